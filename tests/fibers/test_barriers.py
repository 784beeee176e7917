"""Every __syncthreads() is needed: without it some check fails in some order of the threads."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from .accuracy import measure
from .build import CSRC, build
from .emulation import ORDERS, Emulation, EmulationError, fiber_order
from .kernel_source import kernels, only, sources

_BARRIER = "__syncthreads();"


@dataclass(frozen=True, kw_only=True, slots=True)
class Barrier:
    """The ``index``-th barrier of a file."""

    file: Path
    index: int

    def __str__(self) -> str:
        """As test names show it."""
        return f"{self.file.name}:{self.index}"


def _barriers() -> list[Barrier]:
    files = sorted([*sources(), *(CSRC / "kernels").glob("*.cuh")])
    return [
        Barrier(file=file, index=index)
        for file in files
        for index in range(file.read_text().count(_BARRIER))
    ]


def _without(text: str, index: int) -> str:
    parts = text.split(_BARRIER)
    return _BARRIER.join(parts[: index + 1]) + _BARRIER.join(parts[index + 1 :])


def _variant(
    folder: Path, removed: Barrier | None, build_folder: Path
) -> tuple[Emulation, list[str]]:
    """The first kernel of each file that may have the barrier, with or without it."""
    csrc = folder / "csrc"
    shutil.copytree(CSRC / "abi", csrc / "abi")
    shutil.copytree(CSRC / "kernels", csrc / "kernels", ignore=shutil.ignore_patterns("cpu"))
    names = {path: next(iter(kernels(path))) for path in sources()}
    for path, name in names.items():
        (csrc / "kernels" / path.name).write_text(only(path.read_text(), {name}))
    if removed is not None:
        target = csrc / "kernels" / removed.file.name
        target.write_text(_without(target.read_text(), removed.index))
        if removed.file in names:
            names = {removed.file: names[removed.file]}
    chosen = [csrc / "kernels" / path.name for path in names]
    return Emulation(build(build_folder, csrc=csrc, sources=chosen)), list(names.values())


def _complaints(emulation: Emulation, names: list[str]) -> list[str]:
    """What goes wrong, over all orders; a result of NaN is wrong too."""
    found = (_complaint(emulation, name, order) for name in names for order in ORDERS)
    return [complaint for complaint in found if complaint is not None]


def _complaint(emulation: Emulation, name: str, order: str) -> str | None:
    try:
        with fiber_order(order):
            used = measure(emulation, name).used
    except EmulationError as error:
        return f"{name}, {order}: {error}"
    return None if used <= 1.0 else f"{name}, {order}: {used} of the bound"


@pytest.mark.parametrize("barrier", _barriers(), ids=str)
def test_a_missing_barrier_is_noticed(barrier: Barrier, tmp_path: Path, build_folder: Path) -> None:
    assert _complaints(*_variant(tmp_path, barrier, build_folder))


def test_with_all_barriers_the_same_checks_pass(tmp_path: Path, build_folder: Path) -> None:
    assert _barriers()
    assert _complaints(*_variant(tmp_path, None, build_folder)) == []
