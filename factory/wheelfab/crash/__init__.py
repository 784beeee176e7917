"""Crashes as measurements: why a command died, and the shortest command that dies the same way."""

from __future__ import annotations

from wheelfab.crash.investigate import investigate
from wheelfab.crash.record import (
    CrashedCommand,
    CrashReport,
    DeviceOpen,
    Frame,
    Guilty,
    Library,
    PythonFrame,
    Reproduced,
    Runner,
)
from wheelfab.crash.write import COLUMNS, add_place, rows, write_crash

__all__ = [
    "COLUMNS",
    "CrashReport",
    "CrashedCommand",
    "DeviceOpen",
    "Frame",
    "Guilty",
    "Library",
    "PythonFrame",
    "Reproduced",
    "Runner",
    "add_place",
    "investigate",
    "rows",
    "write_crash",
]
