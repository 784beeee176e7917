"""Answers of the atlas, and what an update did, as tables and as JSON's own types."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from wheelfab import console
from wheelfab.atlas.demangle import demangle
from wheelfab.atlas.wheels import Binding, WheelAnswer, WheelReport

if TYPE_CHECKING:
    from wheelfab.atlas.update import Step

SCHEMA = 1
_FIRST = 3  # missing symbols that a table names
_LONGEST = 100


def show_answers(reports: Iterable[WheelReport]) -> None:
    """A table a wheel: each release, what becomes of the wheel there, and why."""
    for report in reports:
        title = f"{report.file}: {report.kind} ABI"
        if report.since is not None:
            title += f", loads from torch {report.since} on"
        rows = [
            (_builds(items), str(items[0].verdict), _allowed(items[0]), _why(items[0]))
            for items in _alike(report.answers)
        ]
        if rows:
            console.table(("torch", "verdict", "METADATA", "why"), rows, title=title)
        for note in report.notes:
            console.result(f"{report.file}: {note}")


def plain_answers(reports: Iterable[WheelReport]) -> dict[str, Any]:
    """The reports for a machine; missing symbols both ways."""
    return {"schema": SCHEMA, "wheels": [_plain(report) for report in reports]}


def show_steps(steps: Sequence[Step]) -> None:
    """What an update did, release by release, and its cost."""
    rows = [
        (
            str(step.version),
            step.origin,
            f"{step.received / 1e6:.0f} of {step.size / 1e6:.0f} MB",
            f"{step.seconds:.0f} s",
            str(step.checked or ""),
            "; ".join(step.notes) or ("" if step.complete else "not complete"),
        )
        for step in steps
    ]
    total = sum(step.received for step in steps) / 1e6
    title = f"{total:.0f} MB in {sum(step.seconds for step in steps):.0f} s"
    columns = ("torch", "from", "transferred", "time", "checked", "not read")
    console.table(columns, rows, title=title)


def _alike(answers: Sequence[WheelAnswer]) -> list[list[WheelAnswer]]:
    """Runs of releases that are answered in the same words."""

    def same(item: WheelAnswer) -> object:
        return item.verdict, item.allowed, item.missing, item.reason

    return [list(items) for _, items in groupby(answers, key=same)]


def _builds(items: Sequence[WheelAnswer]) -> str:
    first, last = items[0].release.build, items[-1].release.build
    return first if len(items) == 1 else f"{first} to {last}"


def _why(item: WheelAnswer) -> str:
    named = [_short(demangle(name)) for name in item.missing[:_FIRST]]
    more = len(item.missing) - len(named)
    tail = f" and {more} more" if more > 0 else ""
    return f"{item.reason}: {', '.join(named)}{tail}" if named else item.reason


def _short(name: str) -> str:
    """A name without the end of its arguments, where it is long; JSON has it whole."""
    return name if len(name) <= _LONGEST else name[:_LONGEST] + "…"


def _allowed(item: WheelAnswer) -> str:
    return {None: "says nothing", True: "allows it", False: "refuses it"}[item.allowed]


def _plain(report: WheelReport) -> dict[str, Any]:
    return {
        "file": report.file,
        "kind": report.kind,
        "requires_torch": report.requires,
        "since": report.since,
        "notes": report.notes,
        "libraries": [_plain_binding(binding) for binding in report.bindings],
        "releases": [
            {
                "torch": item.release.version,
                "build": item.release.build,
                "source": item.release.source,
                "verdict": item.verdict,
                "allowed": item.allowed,
                "reason": item.reason,
                "missing": [{"symbol": name, "name": demangle(name)} for name in item.missing],
            }
            for item in report.answers
        ],
    }


def _plain_binding(binding: Binding) -> dict[str, Any]:
    return {
        "name": binding.name,
        "kind": binding.kind,
        "needed": binding.needed,
        "undefined": binding.undefined,
        "dispatch_keys": sorted(binding.keys.numbers) if binding.keys.read else None,
    }
