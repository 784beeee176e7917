"""CUDA_VISIBLE_DEVICES as the driver reads it: a pure function over the value and the devices.

The driver itself applies the variable; this explains what it did. The rules are NVIDIA's (CUDA
programming guide, "CUDA environment variables"): the list ends at its first invalid entry, and an
entry that appears twice leaves no device at all.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from freewheel.device.record import _Word

_INDEX = re.compile(r"\s*([+-]?\d+)")
_UUID = re.compile(r"(GPU|MIG)-[0-9A-Za-z/-]*")


class Finding(_Word):
    """What the variable does."""

    ALL = "all"  # it is not set
    LISTED = "listed"  # every entry names a device
    EMPTY = "empty"
    MINUS_ONE = "minus_one"  # the first entry is -1, the usual way to hide all
    ENDS_EARLY = "ends_early"  # an entry is invalid: it and all after it are not seen
    DUPLICATE = "duplicate"


@dataclass(frozen=True)
class Visible:
    """The devices that stay visible, as indices, in the order of the list.

    ``ordinals`` is ``None`` where all are. ``entry`` is the one that ended the list.
    """

    finding: Finding
    ordinals: tuple[int, ...] | None
    entry: str | None = None

    @property
    def hides_all(self) -> bool:
        """Whether no device is left."""
        return self.ordinals == ()

    def sentence(self, value: str | None) -> str:
        """The finding in words, ``""`` where there is nothing to say."""
        text = f"CUDA_VISIBLE_DEVICES={value!r}"
        if self.finding is Finding.EMPTY:
            return f"{text} is set but empty, which hides every device"
        if self.finding is Finding.MINUS_ONE:
            return f"{text} hides every device"
        if self.finding is Finding.DUPLICATE:
            return f"{text} names {self.entry} twice, which hides every device"
        if self.finding is Finding.ENDS_EARLY:
            rest = "every device is hidden" if self.hides_all else "it and all after it are hidden"
            return f"{text} ends at its first invalid entry, {self.entry!r}: {rest}"
        return ""


def visible_devices(value: str | None, devices: Sequence[Sequence[str]] | None = None) -> Visible:
    """What ``CUDA_VISIBLE_DEVICES=value`` leaves of ``devices``.

    Each device is given by the names it answers to: ``("GPU-<uuid>",)``, or for a MIG instance
    ``("MIG-<uuid>", "MIG-GPU-<uuid>/<gi>/<ci>")``; ``None``: not known, and every index and every
    well-formed name is taken to exist (``ordinals`` then counts names from 0).
    """
    if value is None:
        return Visible(Finding.ALL, None)
    if not value.strip():
        return Visible(Finding.EMPTY, ())
    entries = [entry.strip() for entry in value.split(",")]
    named = _UUID.match(entries[0]) is not None
    found: list[int] = []
    seen: set[int | str] = set()
    for entry in entries:
        ordinal = _named(entry, devices, len(found)) if named else _index(entry, devices)
        if ordinal is None:
            minus_one = not found and _INDEX.match(entry) is not None and entry.startswith("-")
            finding = Finding.MINUS_ONE if minus_one else Finding.ENDS_EARLY
            return Visible(finding, tuple(found), entry)
        key = entry if named and devices is None else ordinal
        if key in seen:
            return Visible(Finding.DUPLICATE, (), entry)
        seen.add(key)
        found.append(ordinal)
    return Visible(Finding.LISTED, tuple(found))


def _index(entry: str, devices: Sequence[Sequence[str]] | None) -> int | None:
    """The leading number of an entry, as strtol reads it: ``1x`` is 1."""
    match = _INDEX.match(entry)
    if match is None or len(match[1]) > 9:
        return None
    index = int(match[1])
    count = len(devices) if devices is not None else index + 1
    return index if 0 <= index < count else None


def _named(entry: str, devices: Sequence[Sequence[str]] | None, position: int) -> int | None:
    """The one device whose name begins as ``entry`` does; a MIG name must be whole."""
    if _UUID.fullmatch(entry) is None or len(entry) == len("GPU-"):
        return None
    if devices is None:
        return position
    whole = entry.startswith("MIG-")
    matches = [
        ordinal
        for ordinal, names in enumerate(devices)
        if any(name == entry or (not whole and name.startswith(entry)) for name in names)
    ]
    return matches[0] if len(matches) == 1 else None
