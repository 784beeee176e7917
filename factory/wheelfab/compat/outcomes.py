"""What the import loops said of a cell, read from ``build/loops/<cell>.json``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from wheelfab.errors import FormatError
from wheelfab.loops.report import SCHEMA, Libraries, report_path
from wheelfab.records import read_json


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """The loop of a wheel on one torch release. ``passed`` is ``None`` where it could not run.

    ``python`` and ``glibc`` are what it ran with, as far as that is known.
    """

    torch: Version
    sha256: str
    python: str | None
    glibc: str | None
    passed: bool | None
    text: str


def read_outcomes(root: Path, cell: str) -> tuple[Outcome, ...]:
    """The loops that were run of ``cell``, or could not be; none where it was never looped.

    Raises ``FormatError`` when the record is not one.
    """
    path = report_path(root, cell)
    if not path.is_file():
        return ()
    try:
        record = _record(path, cell)
        runs = [_run(run) for run in record["runs"]]
        skips = [_skip(skip, str(record["sha256"])) for skip in record["skipped"]]
    except (ValueError, KeyError, TypeError, AttributeError, InvalidVersion) as error:
        raise FormatError(
            f"is not the record of a loop: {error!r}",
            where=str(path),
            next_step="run the loop again",
        ) from error
    return (*runs, *skips)


def _record(path: Path, cell: str) -> Mapping[str, Any]:
    record: Mapping[str, Any] = read_json(path)
    if record["schema"] != SCHEMA or record["cell"] != cell:
        raise ValueError(f"not schema {SCHEMA} of {cell}")
    return record


def _run(run: Mapping[str, Any]) -> Outcome:
    python = str(run["python"])
    libraries = Libraries(run["libraries"])
    with_what = "" if libraries is Libraries.NONE else f", NVIDIA libraries: {libraries}"
    return Outcome(
        torch=Version(run["torch"]),
        sha256=str(run["sha256"]),
        python=python,
        glibc=_glibc(run),
        passed=run["passed"] is True,
        text=f"loop {run['text']}{with_what}; Python {python}",
    )


def _skip(skip: Mapping[str, Any], sha256: str) -> Outcome:
    text = str(skip["reason"])
    torch = Version(skip["torch"])
    return Outcome(torch=torch, sha256=sha256, python=None, glibc=None, passed=None, text=text)


def _glibc(run: Mapping[str, Any]) -> str | None:
    """``2.36`` of ``glibc 2.36``."""
    name, _, release = str(run.get("machine", {}).get("libc", "")).partition(" ")
    return release if name == "glibc" and release else None
