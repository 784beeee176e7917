"""What the GPU loop does on devices, on those of the fake driver and without torch."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from wheelfab.drivers import DriverKind, make_driver
from wheelfab.gpu.exercised import Exercise, read_exercise
from wheelfab.gpu.ground import EXERCISE
from wheelfab.run import run

IMAGES = {0: "8.0", 1: "9.0"}
LAUNCHES = 40
# An operation that takes memory from the driver, as an extension would.
OPERATION = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
ordinal = int(device.removeprefix("cuda:"))
context = ctypes.c_void_p()
assert cuda.cuInit(0) == cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), ordinal) == 0

def take():
    memory = ctypes.c_void_p()
    assert cuda.cuCtxPushCurrent_v2(context) == 0
    assert cuda.cuMemAlloc_v2(ctypes.byref(memory), 1 << 20) == 0
    return memory

def give(memory):
    assert cuda.cuMemFree_v2(memory) == 0
    assert cuda.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p())) == 0
"""


@pytest.fixture(scope="session")
def driver(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the fake driver."""
    cache = getattr(request.config, "cache", None)
    folder = Path(cache.mkdir("drivers")) if cache else tmp_path_factory.mktemp("drivers")
    return make_driver(DriverKind.FAKE, folder)


def exercise(
    folder: Path, driver: Path, launch: str, timeout: float = 60.0, **fake: str
) -> Exercise:
    """The exercise of two devices of the fake driver with ``launch``."""
    plan: dict[str, Any] = {"schema": 1, "before": "", "stages": [("sys", "import sys")]}
    plan |= {"ordinals": list(IMAGES), "operation": OPERATION, "launch": launch}
    path = folder / "plan.json"
    path.write_text(json.dumps(plan | {"warm": 2, "launches": LAUNCHES}))
    environment = {"LD_LIBRARY_PATH": str(driver), "FAKECUDA_DEVICES": "8.0,9.0", **fake}
    done = run((sys.executable, str(EXERCISE), str(path)), env=environment, timeout=timeout)
    return read_exercise(done, IMAGES, LAUNCHES)


def failures(found: Exercise) -> list[str]:
    """The failure of each device."""
    return [device.failure for device in found.devices]


def test_all_is_done_on_each_device(tmp_path: Path, driver: Path) -> None:
    found = exercise(tmp_path, driver, "give(take())")
    assert (failures(found), found.failure, found.torch) == (["", ""], "", None)
    for device in found.devices:
        assert (device.launches, device.growth) == (LAUNCHES, 0)
        assert device.before is not None
        assert device.before.total == 16 << 30
        assert 0 < device.before.free < device.before.total


def test_memory_that_is_not_given_back_is_caught_on_its_device(
    tmp_path: Path, driver: Path
) -> None:
    leak = "memory = take()\nif ordinal == 0: give(memory)"
    first, second = exercise(tmp_path, driver, leak).devices
    assert (first.failure, first.growth) == ("", 0)
    assert second.growth == LAUNCHES << 20
    assert second.failure.startswith("the device's memory in use grew by 41943040 bytes in 40")


def test_a_wrong_launch_is_named_and_the_other_device_goes_on(tmp_path: Path, driver: Path) -> None:
    wrong = "made = globals().get('made', 0) + 1\nassert ordinal or made < 10, 'wrong value'"
    found = exercise(tmp_path, driver, wrong)  # two launches are to warm up
    assert failures(found) == ["launch 8 of 40: AssertionError: wrong value", ""]


@pytest.mark.parametrize(
    ("fail", "timeout", "end"),
    [
        ("cuMemGetInfo_v2=segv", 60.0, "soak on device 0: SIGSEGV"),
        ("cuMemAlloc_v2=abort", 60.0, "soak on device 0: SIGABRT"),
        ("cuMemAlloc_v2=exit:7", 60.0, "soak on device 0: exit 7"),
        ("cuInit=segv", 60.0, "operation on device 0: SIGSEGV"),
        ("cuMemAlloc_v2=hang", 3.0, "soak on device 0: timed out"),
    ],
)
def test_a_driver_that_dies_or_hangs_ends_in_a_reason(
    tmp_path: Path, driver: Path, fail: str, timeout: float, end: str
) -> None:
    found = exercise(tmp_path, driver, "give(take())", timeout, FAKECUDA_FAIL=fail)
    assert failures(found) == [end, end]
    assert all(device.after is None for device in found.devices)


def test_a_driver_that_refuses_is_an_error_on_each_device(tmp_path: Path, driver: Path) -> None:
    found = exercise(tmp_path, driver, "pass", FAKECUDA_FAIL="cuMemGetInfo_v2=2")
    words = "soak: RuntimeError: cuMemGetInfo_v2 returned 2"
    assert (failures(found), found.failure) == ([words, words], "")
