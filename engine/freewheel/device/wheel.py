"""What the installed wheel holds for devices, and which drivers it asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Wheel:
    """The device code of a wheel. Floors are cuDriverGetVersion's numbers, 0 where unknown."""

    built: bool = True  # False in a source tree
    cuda: str | None = None
    archs: tuple[str, ...] = ()
    cubin_floor: int = 0
    ptx_floor: int = 0
    cubin_release: str | None = None
    ptx_release: str | None = None


def wheel_of(record: Mapping[str, Any] | None) -> Wheel:
    """What a build record says; ``None`` is a source tree."""
    if record is None:
        return Wheel(built=False)
    archs, driver = record.get("archs"), record.get("driver")
    floors = driver if isinstance(driver, dict) else {}
    return Wheel(
        cuda=record.get("cuda"),
        archs=tuple(str(arch) for arch in archs) if isinstance(archs, list) else (),
        cubin_floor=_number(floors.get("cubin")),
        ptx_floor=_number(floors.get("ptx")),
        cubin_release=floors.get("cubin_release"),
        ptx_release=floors.get("ptx_release"),
    )


def installed_wheel() -> Wheel:
    """The wheel that this package was installed from."""
    from freewheel import _native
    from freewheel.errors import LoadError

    try:
        return wheel_of(_native.build())
    except LoadError:
        return Wheel(built=False)


def choose_image(archs: tuple[str, ...], capability: tuple[int, int]) -> str | None:
    """What of ``archs`` runs on a device: the nearest cubin, else the newest PTX, else ``None``.

    A cubin X.Y runs on X.Z for Z >= Y; ``a`` on exactly X.Y; PTX on X.Y and anything newer.
    """
    cubins: list[tuple[tuple[int, int], bool, str]] = []
    sources: list[tuple[tuple[int, int], bool, str]] = []
    for arch in archs:
        number, suffix, ptx = _parse(arch)
        exact = suffix == "a"
        same_family = number[0] == capability[0] and number[1] <= capability[1]
        fits = number == capability if exact else same_family
        if ptx and suffix == "":
            fits = number <= capability
        if fits:
            (sources if ptx else cubins).append((number, exact, arch))
    best = max(cubins, default=None) or max(sources, default=None)
    return None if best is None else best[2]


def _parse(arch: str) -> tuple[tuple[int, int], str, bool]:
    """``9.0a+PTX`` is ((9, 0), "a", True)."""
    text, _, ptx = arch.partition("+")
    number = text.rstrip("af")
    major, _, minor = number.partition(".")
    try:
        return (int(major), int(minor)), text[len(number) :], bool(ptx)
    except ValueError:
        return (0, 0), "a", False


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
