"""A line of gdb's backtrace."""

from __future__ import annotations

import re

from wheelfab.crash.record import UNKNOWN, Frame

_FRAME = re.compile(r"#\d+\s+(?:(0x[0-9a-f]+) in )?(.+)$")
_SOURCE = re.compile(r" at (\S.*):(\d{1,9})$")
_LIBRARY = re.compile(r" from (/.*|\S+)$")
_HANDLER = "<signal handler called>"
_NAME = 400  # characters of a function's name; templates have longer ones


def parse_frame(line: str) -> tuple[int | None, Frame] | None:
    """The address and the frame of a line such as ``#1 0x7f in f (a=...) at a.cpp:4``.

    Returns ``None`` for a line that is no frame. A signal handler's frame is named
    ``<signal handler called>``.
    """
    found = _FRAME.match(line.rstrip())
    if found is None:
        return None
    rest, file, number, library = found[2], "", None, ""
    if source := _SOURCE.search(rest):
        rest, file, number = rest[: source.start()], source[1], int(source[2])
    elif of := _LIBRARY.search(rest):
        rest, library = rest[: of.start()], of[1]
    address = int(found[1], 16) if found[1] else None
    function = rest if rest == _HANDLER else without_arguments(rest)
    return address, Frame(
        function=function[:_NAME] or UNKNOWN, library=library, file=file, line=number
    )


def without_arguments(text: str) -> str:
    """``f(int)::g (a=..., b=...)`` without what stands in the last pair of brackets."""
    text = text.rstrip()
    if not text.endswith(")"):
        return text
    depth = 0
    for place in range(len(text) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(text[place], 0)
        if depth == 0:
            return text[:place].rstrip() or text
    return text


def is_handler(frame: Frame) -> bool:
    """Whether this is where the kernel called a signal handler."""
    return frame.function == _HANDLER
