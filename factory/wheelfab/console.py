"""The only writer of progress: stdout is the result, stderr is what goes on meanwhile."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Protocol

from rich.console import Console as RichConsole

from wheelfab.records import to_plain

_PIECES = 10_000  # of a JSON document that are written at once
_PLAIN_INTERVAL = 5.0  # seconds between progress lines where there is no terminal


class Advance(Protocol):
    """What a progress block yields: call it with the number of items just finished."""

    def __call__(self, done: int = 1) -> None:
        """``done`` more items are finished."""


def _stderr() -> RichConsole:
    return RichConsole(stderr=True, highlight=False, soft_wrap=True)


def step(text: str) -> None:
    """Announce a step of long work on stderr."""
    _stderr().print(f"[bold]{_escape(text)}[/bold]")


def note(text: str) -> None:
    """A detail on stderr."""
    _stderr().print(_escape(text), style="dim")


def warn(text: str) -> None:
    """Something a user must see, on stderr: a fallback, a skipped check."""
    _stderr().print(f"warning: {text}", style="yellow", markup=False)


def error(text: str) -> None:
    """The reason why a command ends badly, on stderr."""
    _stderr().print(f"error: {text}", style="red", markup=False)


def result(text: str) -> None:
    """The result of a command, on stdout, unstyled."""
    sys.stdout.write(text if text.endswith("\n") else text + "\n")
    sys.stdout.flush()


def result_json(value: object) -> None:
    """The result of a command for machines: one JSON document on stdout.

    Written in parts: an audit's can have tens of megabytes, and its pieces ten times that.
    """
    pieces = json.JSONEncoder(indent=2, sort_keys=True).iterencode(to_plain(value))
    while part := "".join(islice(pieces, _PIECES)):
        sys.stdout.write(part)
    result("\n")


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "") -> None:
    """A table as the result, on stdout; wide cells fold, nothing is cut off."""
    from rich.table import Table

    shown = Table(title=title or None, title_justify="left", header_style="bold")
    for column in columns:
        shown.add_column(column, overflow="fold")
    for row in rows:
        shown.add_row(*(_escape(cell) for cell in row))
    console = RichConsole(highlight=False)
    if not console.is_terminal:
        console = RichConsole(highlight=False, width=160)
    console.print(shown)


@contextmanager
def progress(text: str, total: int) -> Iterator[Advance]:
    """Show how many of ``total`` items are done: a bar on a terminal, else a line now and then."""
    console = _stderr()
    if console.is_terminal:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
        )

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, TimeElapsedColumn(), console=console) as bar:
            task = bar.add_task(text, total=total)
            yield lambda done=1: bar.advance(task, done)
        return
    yield _PlainProgress(text, total)


class _PlainProgress:
    def __init__(self, text: str, total: int) -> None:
        self._text, self._total, self._done = text, total, 0
        self._started = self._shown = time.monotonic()

    def __call__(self, done: int = 1) -> None:
        self._done += done
        now = time.monotonic()
        if now - self._shown >= _PLAIN_INTERVAL or self._done == self._total:
            self._shown = now
            note(f"{self._text} {self._done}/{self._total} ({now - self._started:.0f} s)")


def printable(text: str) -> str:
    """Text out of someone else's file, without what a terminal would obey."""
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def _escape(text: str) -> str:
    return text.replace("[", r"\[")
