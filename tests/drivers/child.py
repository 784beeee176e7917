"""Names that the tests of child processes share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]  # what a child needs on its path
Run = Callable[..., Any]  # the fixture `run`


def calls(log: Path, name: str) -> list[str]:
    """Lines of the fake driver's log for one entry point."""
    if not log.exists():
        return []
    return [line for line in log.read_text().splitlines() if line.split()[2] == name]
