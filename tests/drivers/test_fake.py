"""The fake driver's ways to misbehave, as its environment asks for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drivers.child import Run, calls


@pytest.mark.parametrize(
    ("fail", "ending"),
    [
        ("cuInit=segv", "exit -11"),
        ("cuInit=abort", "exit -6"),
        ("cuInit=exit:42", "exit 42"),
        ("load=segv", "exit -11"),
        ("load=exit:7", "exit 7"),
        ("cuLaunchKernel=abort,*=segv", "exit -11"),
    ],
)
def test_crashes(run: Run, fail: str, ending: str) -> None:
    with pytest.raises(AssertionError, match=f"^{ending}\n"):
        run("result = harness.open()", fail=fail)


def test_a_call_of_its_own_goes_before_all_calls(run: Run, log: Path) -> None:
    assert "returned 999" in run("result = harness.open()", fail="*=34,cuInit=999")
    assert [len(calls(log, name)) for name in ("load", "cuInit", "cuDriverGetVersion")] == [1, 1, 0]


@pytest.mark.parametrize(
    ("devices", "count", "first"),
    [("none", 0, 100), ("8.0", 1, 80), ("9.0,8.6,12.1", 3, 90), ("7.0", 1, 70)],
)
def test_devices(run: Run, devices: str, count: int, first: int) -> None:
    code = """
import ctypes
driver = fake().library
started = driver.cuInit(0)
number, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
driver.cuDeviceGetCount(ctypes.byref(number))
driver.cuDeviceGetAttribute(ctypes.byref(major), 75, 0)
driver.cuDeviceGetAttribute(ctypes.byref(minor), 76, 0)
result = [number.value, started or 10 * major.value + minor.value]
"""
    assert run(code, devices=devices) == [count, first]


def test_a_child_forked_after_cuinit_gets_no_answer(run: Run) -> None:
    code = """
import ctypes, os
driver = fake()
driver.library.cuInit(0)
number = ctypes.c_int()
before = driver.library.cuDeviceGetCount(ctypes.byref(number))
if (child := os.fork()) == 0:
    os._exit(10 * driver.library.cuInit(0) + driver.library.cuDeviceGetCount(ctypes.byref(number)))
result = [before, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]
"""
    assert run(code) == [0, 33]
