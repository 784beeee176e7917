"""The emulation itself: orders, barriers, poison, and what it refuses."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from .accuracy import measure
from .build import CSRC, HERE, BuildError, build
from .emulation import ORDERS, Emulation, EmulationError, fiber_order


@pytest.fixture(scope="module")
def probes(build_folder: Path) -> Emulation:
    """The kernels of probes.cu."""
    return Emulation(build(build_folder, sources=[HERE / "probes.cu"]))


def _pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _order_of(probes: Emulation, order: str) -> list[int]:
    out, turn = np.zeros(64, np.int32), np.zeros(1, np.int32)
    with fiber_order(order):
        probes.launch("fw_probe_order", [1, 1, 1], [64, 1, 1], _pointer(out), _pointer(turn))
    return out.tolist()


def test_threads_run_in_the_order_asked_for(probes: Emulation) -> None:
    assert _order_of(probes, "ascending") == list(range(64))
    assert _order_of(probes, "descending") == list(range(63, -1, -1))
    one, two = _order_of(probes, "shuffled:1"), _order_of(probes, "shuffled:2")
    assert sorted(one) == sorted(two) == list(range(64))
    assert one != two
    assert one == _order_of(probes, "shuffled:1")


@pytest.mark.parametrize("order", ["sideways", "shuffled:", "shuffled:x", "shuffled:1 "])
def test_an_unknown_order_is_an_error(probes: Emulation, order: str) -> None:
    with pytest.raises(EmulationError, match="FW_FIBER_ORDER"):
        _order_of(probes, order)


@pytest.mark.parametrize("order", ORDERS)
def test_a_barrier_makes_writes_seen(probes: Emulation, order: str) -> None:
    out = np.zeros(64, np.int32)
    with fiber_order(order):
        probes.launch("fw_probe_pass", [1, 1, 1], [64, 1, 1], _pointer(out))
    assert out.tolist() == [*range(101, 164), 100]


def test_shared_memory_is_poisoned_for_every_block(probes: Emulation) -> None:
    out = np.zeros(3, np.int32)
    probes.launch("fw_probe_unwritten", [3, 1, 1], [1, 1, 1], _pointer(out))
    assert out.tolist() == [-1, -1, -1]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("way", "message"),
    [
        (0, r"waits at .*probes\.cu:\d+, where only 63 of 64 threads came"),
        (1, r"came to .*probes\.cu:\d+ while others wait at .*probes\.cu:\d+"),
        (2, r"waits at .*probes\.cu:\d+, where only (7 of 32|57 of 64) threads came"),
    ],
)
def test_a_divergent_barrier_is_reported(
    probes: Emulation, order: str, way: int, message: str
) -> None:
    out = np.zeros(1, np.int32)
    arguments = (_pointer(out), ctypes.c_int32(way))
    with fiber_order(order), pytest.raises(EmulationError, match=message):
        probes.launch("fw_probe_diverge", [1, 1, 1], [64, 1, 1], *arguments)


def test_it_goes_on_after_an_error(probes: Emulation) -> None:
    test_a_divergent_barrier_is_reported(probes, "ascending", 0, "threads came")
    test_a_barrier_makes_writes_seen(probes, "ascending")


def test_shuffles_of_part_of_a_warp_are_refused(probes: Emulation) -> None:
    out = np.zeros(1, np.int32)
    arguments = (_pointer(out), ctypes.c_int32(2))
    with pytest.raises(EmulationError, match="only shuffles of whole warps"):
        probes.launch("fw_probe_diverge", [1, 1, 1], [20, 1, 1], *arguments)


def test_more_static_shared_memory_than_a_device_has_is_refused(probes: Emulation) -> None:
    out = np.zeros(1, np.int32)
    with pytest.raises(EmulationError, match="more static shared memory than 49152 bytes"):
        probes.launch("fw_probe_shared", [1, 1, 1], [1, 1, 1], _pointer(out))


@pytest.mark.parametrize("block", [[0, 1, 1], [1025, 1, 1], [32, 32, 2]])
def test_a_block_that_no_device_takes_is_refused(probes: Emulation, block: list[int]) -> None:
    out = np.zeros(64, np.int32)
    with pytest.raises(EmulationError, match="threads cannot be run"):
        probes.launch("fw_probe_pass", [1, 1, 1], block, _pointer(out))


def test_the_portable_switch_runs_the_same_kernels(
    build_folder: Path, emulation: Emulation
) -> None:
    flags, sources = ["-DFIBERS_UCONTEXT"], [CSRC / "kernels/rms_norm.cu"]
    portable = Emulation(build(build_folder, sources=sources, flags=flags))
    assert measure(portable, "fw_rms_norm_f32") == measure(emulation, "fw_rms_norm_f32")


def test_a_build_says_what_the_compiler_said(build_folder: Path, tmp_path: Path) -> None:
    source = tmp_path / "broken.cu"
    source.write_text("this is no C++\n")
    before = set(build_folder.glob("*/*.so"))
    with pytest.raises(BuildError, match=r"broken\.cu:1:1: error"):
        build(build_folder, sources=[source])
    assert set(build_folder.glob("*/*.so")) == before
