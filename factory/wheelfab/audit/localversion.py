"""How local versions sort: by PEP 440, a part with a letter in it is text."""

from __future__ import annotations

import re
from collections.abc import Iterator

_HASH = re.compile(r"g?[0-9a-f]{7,40}|d\d{8}")  # a commit, a date: nobody wants them in order
_ABI_FLAG = re.compile(r"cxx11abi(?:true|false|[01])?")
_NUMBER = re.compile(r"(?P<name>[a-z]*)(?P<digits>\d+)")
_CUDA = re.compile(r"1\d|\d{3}")  # a major number, or three digits: 118 to 999


def misordered(local: str) -> Iterator[tuple[str, str]]:
    """The parts of a local version whose numbers will sort as text, each with the reason."""
    parts = re.split(r"[._-]", local)
    for part, following in zip(parts, [*parts[1:], ""], strict=True):
        if part.isdigit() or _HASH.fullmatch(part):
            continue
        kept = _ABI_FLAG.sub(lambda flag: "x" * len(flag[0]), part)
        for number in _NUMBER.finditer(kept):
            if not _lasts(number["name"], number["digits"], dotted=following[:1].isdigit()):
                longer = "1" + "0" * len(number["digits"])
                above = part[: number.start("digits")] + longer + part[number.end() :]
                yield part, f"is compared as text, so that {above} is below it"
                break


def _lasts(name: str, digits: str, *, dotted: bool) -> bool:
    """Whether a number that is compared as text will not get another digit soon."""
    if name == "cu":
        return _CUDA.fullmatch(digits) is not None
    if name in ("torch", "pt") and dotted:
        return True  # the 2 of torch2.10
    return len(digits) > 2


def natural(local: str | None) -> tuple[tuple[bool, int, str], ...]:
    """A key that sorts local versions as a person does: every run of digits is a number."""
    runs = re.findall(r"\d+|[a-z]+", local or "")
    return tuple((run.isdigit(), int(run) if run.isdigit() else 0, run) for run in runs)


def skeleton(local: str | None) -> str:
    """The local version without its numbers: only those that are alike have an order."""
    return re.sub(r"\d+", "0", local or "")
