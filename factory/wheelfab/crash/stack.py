"""The Python stack that faulthandler writes when a process dies."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from wheelfab.crash.record import PythonFrame

_HEAD = re.compile(r"^(Current thread|Thread|Stack)\b(.*)\(most recent call first\):\s*$")
_FRAME = re.compile(r'^  File "(.*)", line (\d{1,9}|\?\?\?) in (.+)$')
_REST = re.compile(r"^(?:Fatal Python error: |Extension modules: |  <|  Binary file |  \.\.\.)")
_PLAIN = re.compile(  # says no more than the signal does
    r"^Fatal Python error: (?:Segmentation fault|Aborted|Bus error|Illegal instruction"
    r"|Floating point exception)$"
)
_FRAMES = 100
_LINES = 10_000
_WORDS = 10  # lines of stderr that are kept
_LINE = 300  # characters of one


def parse_stack(text: str) -> tuple[PythonFrame, ...]:
    """The frames of the thread that died, innermost first; empty when there is no stack in it."""
    stacks: dict[str, list[PythonFrame]] = {}
    frames: list[PythonFrame] | None = None
    for line in text.splitlines()[-_LINES:]:
        if head := _HEAD.match(line):
            kind = head[1] if "C stack" not in head[2] else "native"
            frames = stacks.setdefault(kind, []) if kind not in stacks else []
        elif (found := _FRAME.match(line)) and frames is not None and len(frames) < _FRAMES:
            number = int(found[2]) if found[2].isdigit() else 0
            frames.append(PythonFrame(file=found[1], line=number, function=found[3]))
    for kind in ("Current thread", "Stack", "Thread"):
        if stacks.get(kind):
            return tuple(stacks[kind])
    return ()


def names_of(stack: tuple[PythonFrame, ...]) -> tuple[tuple[str, str], ...]:
    """Base names and functions of ``stack``: what stays when folders and line numbers change."""
    return tuple((PurePosixPath(frame.file).name, frame.function) for frame in stack)


def last_words(text: str) -> tuple[str, ...]:
    """The last lines of stderr that say something: not faulthandler's, but its error's name."""
    said = []
    skipping = False
    for line in text.splitlines()[-_LINES:]:
        if _HEAD.match(line):
            skipping = True
        elif skipping and (not line.strip() or _FRAME.match(line) or _REST.match(line)):
            continue
        elif line.strip() and not _PLAIN.match(line):
            skipping = False
            said.append(line[:_LINE])
    return tuple(said[-_WORDS:])
