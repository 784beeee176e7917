"""Words that help after a slip of the keyboard: "did you mean", and the list of what is known."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable

_SHOWN = 12  # choices listed in a message before the rest is only counted
_ALIKE = 0.65  # the least likeness (difflib's ratio) of a suggestion


def nearest(text: str, choices: Iterable[str]) -> str | None:
    """The choice most like ``text``, or ``None`` where none is alike; on a tie, the best prefix."""
    folded = text.casefold()
    best: tuple[float, int] = (_ALIKE, -1)
    found = None
    for choice in choices:
        other = choice.casefold()
        ratio = difflib.SequenceMatcher(None, folded, other).ratio()
        likeness = (ratio, _common_prefix(folded, other))
        if likeness > best:
            best, found = likeness, choice
    return found


def did_you_mean(text: str, choices: Iterable[str]) -> str:
    """``did you mean 'x'?``, or the known choices where none is alike."""
    known = tuple(choices)
    close = nearest(text, known)
    if close is not None:
        return f"did you mean {close!r}?"
    return f"known: {listed(known)}" if known else ""


def listed(choices: Iterable[str]) -> str:
    """``a, b, c``; of a long list the first twelve and how many more there are."""
    known = tuple(choices)
    rest = len(known) - _SHOWN
    return ", ".join(known[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def joined(choices: Iterable[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    known = tuple(choices)
    return " and ".join(part for part in (", ".join(known[:-1]), *known[-1:]) if part)


def _common_prefix(one: str, other: str) -> int:
    pairs = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return sum(1 for _ in pairs)
