"""A crash's folder, ``build/crashes/<signature>/``: the report for people, and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from wheelfab.crash.endings import meaning
from wheelfab.crash.record import CrashReport
from wheelfab.flock import hold
from wheelfab.records import read_json, to_plain, write_json, write_text

SCHEMA = 1
COLUMNS = ("crash", "ending", "guilty", "stage", "crashed again", "seen on", "report")
_LOCK_TIMEOUT = 60.0
_MAPPED = 400  # libraries listed


def write_crash(root: Path, report: CrashReport) -> Path:
    """Write ``report`` in the project ``root`` and return the path of its ``report.md``.

    A crash that is known already keeps its report, unless the new one lacks less: only where it
    was seen is added to it.
    """
    folder = root / "build" / "crashes" / report.signature
    folder.parent.mkdir(parents=True, exist_ok=True)
    with hold(_lock(folder), what="crash", timeout=_LOCK_TIMEOUT):
        record = _known(folder / "report.json")
        seen = record["seen_on"] if record is not None else {}
        if record is None or len(record["problems"]) > len(report.problems):
            record = {"schema": SCHEMA, **to_plain(report), "seen_on": seen}
        _write(folder, record, report.place)
    return folder / "report.md"


def add_place(path: Path, place: str) -> None:
    """Say in the report at ``path`` that the crash was seen at ``place`` too."""
    with hold(_lock(path.parent), what="crash", timeout=_LOCK_TIMEOUT):
        record = _known(path.with_name("report.json"))
        if record is not None:
            _write(path.parent, record, place)


def _lock(folder: Path) -> Path:
    return folder.parent / f".{folder.name}.lock"


def _write(folder: Path, record: dict[str, Any], place: str) -> None:
    seen = record["seen_on"]
    seen[place] = int(seen.get(place, 0)) + 1
    write_json(folder / "report.json", record)
    write_text(folder / "report.md", render(record))


def rows(paths: Iterable[Path]) -> tuple[tuple[str, ...], ...]:
    """The rows under ``COLUMNS`` for what ``write_crash`` returned, each crash once."""
    found = []
    for path in dict.fromkeys(paths):
        record = _known(path.with_name("report.json"))
        if record is not None:
            ending = " ".join(filter(None, (record["signal"], record["si_code"])))
            guilty = guilty_words(record)
            seen = _seen(record)
            again = _again(record)
            found.append(
                (record["signature"], ending, guilty, record["stage"], again, seen, str(path))
            )
    return tuple(found)


def guilty_words(record: dict[str, Any]) -> str:
    """Whom a report blames, in words: ``cuInit in libcuda.so.1, called by start in native.so``."""
    guilty = record["guilty"]
    if guilty is None:
        return "unknown"
    text = f"{guilty['function']} in {guilty['library']}" if guilty["library"] else ""
    text = text or str(guilty["function"])
    return f"{text}, called by {guilty['called_by']}" if guilty["called_by"] else text


def render(record: dict[str, Any]) -> str:
    """The report as Markdown, from its JSON."""
    again = _again(record)
    head = [
        ("ending", _ending(record)),
        ("guilty", guilty_words(record)),
        ("stage", record["stage"]),
        ("seen on", _seen(record)),
        ("last library opened", record["last_library"] or "unknown"),
        ("symbols", record["symbols_missing"] or "there"),
    ]
    parts = [
        f"# {record['signature']}\n",
        *(f"* {name}: {text}" for name, text in head),
        f"\nIt crashes again with this command ({again} times):\n",
        _block([record["reproduce"]]),
        _section("What could not be had", [f"* {text}" for text in record["problems"]]),
        _section("Last words", _fenced(record["last_words"])),
        _section("Python stack", _fenced(map(_python, record["python_stack"]))),
        _section("Native backtrace", _fenced(_native(record["backtrace"]))),
        _section("Device files", [f"* {o['path']}: {o['errno']}" for o in record["device_opens"]]),
        _section("Last system calls", _fenced(record["system_calls"])),
        _section("Driver", _fenced(_pairs(record["driver_state"] or {}))),
        _section("Libraries", _fenced(map(_library, record["libraries"][:_MAPPED]))),
        _section("Environment", _fenced(_pairs(record["environment"]))),
    ]
    return "\n".join(part for part in parts if part).rstrip() + "\n"


def _ending(record: dict[str, Any]) -> str:
    if not record["si_code"]:
        return str(record["signal"])
    at = f" at {record['address']}" if record["address"] else ""
    said = meaning(record["si_code"])
    return f"{record['signal']}, {record['si_code']}{at}" + (f" ({said})" if said else "")


def _again(record: dict[str, Any]) -> str:
    return f"{record['reproduced']['times']} of {record['reproduced']['of']}"


def _seen(record: dict[str, Any]) -> str:
    return "; ".join(
        place if times == 1 else f"{place} ({times} times)"
        for place, times in sorted(record["seen_on"].items())
    )


def _section(title: str, lines: Sequence[str]) -> str:
    return "\n".join(("", f"## {title}\n", *lines)) if lines else ""


def _fenced(lines: Iterable[str]) -> list[str]:
    kept = list(lines)
    return [_block(kept)] if kept else []


def _block(lines: Sequence[str]) -> str:
    """Indented text: what a program printed cannot end it, as it could end a fence."""
    return "\n".join(f"    {piece}" for line in lines for piece in line.splitlines() or [""])


def _python(frame: dict[str, Any]) -> str:
    return f"{frame['file']}:{frame['line']} in {frame['function']}"


def _native(frames: Sequence[dict[str, Any]]) -> list[str]:
    lines = []
    for number, frame in enumerate(frames):
        base = PurePosixPath(frame["library"]).name
        offset = f"+{frame['offset']:#x}" if frame["offset"] is not None else ""
        source = f" at {frame['file']}:{frame['line']}" if frame["file"] else ""
        lines.append(f"#{number:<2} {frame['function']} in {base or '?'}{offset}{source}")
    return lines


def _library(item: dict[str, Any]) -> str:
    return f"{item['path']}  {item['version'] or '(no version)'}"


def _pairs(values: dict[str, Any]) -> list[str]:
    return [f"{name}={value}" for name, value in values.items()]


def _known(path: Path) -> dict[str, Any] | None:
    """A report that can be read and is of our schema."""
    try:
        record = read_json(path)
    except (OSError, ValueError):
        return None
    ours = isinstance(record, dict) and record.get("schema") == SCHEMA
    return record if ours and isinstance(record.get("seen_on"), dict) else None
