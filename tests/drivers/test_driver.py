"""The driver: opened once, lazily; each failure kept with its reason; forks noticed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.drivers import build
from tests.drivers.child import Run, calls
from tests.drivers.cubin import Kernel
from wheelfab.drivers import DriverKind, make_driver

REQUIRED = (
    "cuInit",
    "cuDriverGetVersion",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuDeviceGetAttribute",
    "cuDevicePrimaryCtxRetain",
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    "cuModuleLoadData",
    "cuModuleGetFunction",
    "cuFuncSetAttribute",
    "cuLaunchKernel",
)

WARM_UP = "result = harness.call('warm_up')"
TWICE = "result = [harness.call('warm_up'), harness.call('warm_up')]"

EMPTY = """
args = records["FwRmsNormArgs"]()
args.hidden, args.out_stride, args.x_stride = 64, 64, 64
result = harness.call("rms_norm", args)
"""


def test_loading_the_library_and_empty_input_touch_no_driver(run: Run, log: Path) -> None:
    assert run(EMPTY + "result = [result, harness.archs()]") == ["", "8.0 8.6 8.9 9.0 9.0+PTX"]
    assert not log.exists()


def test_a_missing_library_is_said_so_and_kept(run: Run) -> None:
    first, second = run(TWICE, driver=None)
    assert first.startswith("warm_up: no NVIDIA driver: libcuda.so.1: cannot open shared object")
    assert "operations on CPU tensors do not" in first
    assert second == first


def test_a_library_that_appears_later_is_not_asked_for(run: Run, fake_driver: Path) -> None:
    code = f"""
first = harness.open()
import ctypes
ctypes.CDLL({str(fake_driver / "libcuda.so.1")!r})  # a second dlopen would now find this one
result = [first, harness.open()]
"""
    first, second = run(code, driver=None)
    assert "no NVIDIA driver" in first
    assert second == first


@pytest.mark.parametrize("name", REQUIRED)
def test_a_missing_function_is_not_a_missing_library(
    run: Run, build_folder: Path, log: Path, name: str
) -> None:
    lacking = make_driver(DriverKind.MISSING_SYMBOL, build_folder, hide=[name])
    first, second = run(TWICE, driver=lacking)
    assert first.startswith(
        f"warm_up: the driver library {lacking}/libcuda.so.1 has no function {name}: "
    )
    assert second == first
    assert not calls(log, "cuInit")


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        ("cuInit=100", "returned 100 (CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected)"),
        ("cuInit=803", "returned 803 (CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: system has unsupported "),
        ("cuInit=304", "returned 304 (CUDA_ERROR_OPERATING_SYSTEM: OS call failed "),
        ("*=34", "returned 34 (CUDA_ERROR_STUB_LIBRARY: CUDA driver is a stub library)"),
        ("cuInit=999", "returned 999 (CUDA_ERROR_UNKNOWN: unknown error)"),
        ("cuInit=46", "returned 46 (CUDA_ERROR_DEVICE_UNAVAILABLE)"),  # the fake cannot name it
        ("cuInit=12345", "returned 12345 (a code without a name)"),
        ("cuInit=3", "forked after CUDA was used: start workers with the spawn method"),
    ],
)
def test_a_failing_cuinit_is_said_so_and_kept(
    run: Run, fake_driver: Path, log: Path, failure: str, text: str
) -> None:
    first, second = run(TWICE, fail=failure)
    assert first.startswith(f"warm_up: cuInit of {fake_driver}/libcuda.so.1 returned ")
    assert text in first
    assert second == first
    assert len(calls(log, "cuInit")) == 1


@pytest.mark.parametrize("hidden", [("cuGetErrorName",), ("cuGetErrorName", "cuGetErrorString")])
def test_a_driver_without_names_for_its_errors(
    run: Run, build_folder: Path, hidden: tuple[str, ...]
) -> None:
    driver = make_driver(DriverKind.FAKE, build_folder, hide=hidden)
    text = run(WARM_UP, driver=driver, fail="cuInit=804")
    assert "returned 804 (CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE" in text
    assert ("forward compatibility" in text) == (len(hidden) == 1)


STAYS = """
import ctypes
dlsym = ctypes.CDLL(None).dlsym
dlsym.restype, dlsym.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p]
text = harness.open()
maps = open("/proc/self/maps").read()
result = [text, dlsym(None, b"cuInit"), "libcuda.so.1" in maps]  # None: RTLD_DEFAULT
"""


@pytest.mark.parametrize("failure", ["", "cuInit=100", "cuDriverGetVersion=999"])
def test_the_library_is_local_and_never_closed(run: Run, fake_driver: Path, failure: str) -> None:
    """Nobody else's cuInit becomes ours, and a driver that failed is not unloaded."""
    text, symbol, mapped = run(STAYS, fail=failure)
    assert (text == "") == (failure == "")
    assert str(fake_driver) in text or not failure
    assert symbol is None
    assert mapped


@pytest.mark.parametrize(
    ("call", "of"),
    [
        ("cuDriverGetVersion", "/libcuda.so.1"),
        ("cuDeviceGetCount", "CUDA device 0"),
        ("cuDeviceGet", "CUDA device 0"),
        ("cuDeviceGetName", "CUDA device 0"),
        ("cuDeviceGetAttribute", "attribute 75 of CUDA device 0"),
        ("cuDevicePrimaryCtxRetain", "CUDA device 0 (Fake A100, capability 8.0)"),
        ("cuCtxPushCurrent_v2", "the context of CUDA device 0 (Fake A100, capability 8.0)"),
        ("cuCtxPopCurrent_v2", "the context of CUDA device 0 (Fake A100, capability 8.0)"),
        ("cuModuleLoadData", "image rms_norm for 8.0 on CUDA device 0 (Fake A100, capability 8.0)"),
        ("cuModuleGetFunction", "fw_rms_norm_f32 in rms_norm on CUDA device 0"),
    ],
)
def test_every_call_is_checked(run: Run, call: str, of: str) -> None:
    text = run(WARM_UP, fail=f"{call}=999")
    assert text.startswith(f"warm_up: {call} of ")
    assert of in text
    assert text.endswith(" returned 999 (CUDA_ERROR_UNKNOWN: unknown error)")


def test_eight_threads_open_it_once(
    run: Run, log: Path, kernels: Mapping[str, Mapping[str, Kernel]]
) -> None:
    code = """
import threading
barrier = threading.Barrier(8)
texts = []
def work():
    barrier.wait()
    texts.append(harness.call("warm_up"))
threads = [threading.Thread(target=work) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
result = texts
"""
    slow = "cuInit=slow:200,cuDevicePrimaryCtxRetain=slow:50,cuModuleLoadData=slow:20"
    assert run(code, fail=slow) == [""] * 8
    for once in ("load", "cuInit", "cuDriverGetVersion", "cuDevicePrimaryCtxRetain"):
        assert len(calls(log, once)) == 1, once
    assert len(calls(log, "cuModuleLoadData")) == len(kernels)
    assert len(calls(log, "cuModuleGetFunction")) == sum(map(len, kernels.values()))


FORK = """
import os
def in_child():
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, harness.call("warm_up").encode())
        os._exit(0)
    os.close(write)
    os.wait()
    return os.read(read, 4096).decode()
"""


def test_row_41_a_fork_after_use_is_noticed(run: Run, log: Path) -> None:
    code = FORK + "before = harness.call('warm_up'); result = [before, in_child(), os.getpid()]"
    before, child, parent = run(code)
    assert before == ""
    assert child.startswith(f"warm_up: CUDA was used in process {parent} before it forked process ")
    assert "start workers with the spawn method" in child
    assert len({line.split()[0] for line in log.read_text().splitlines()}) == 1  # processes asking


def test_row_41_a_fork_before_use_does_no_harm(run: Run) -> None:
    assert run(FORK + "result = [in_child(), harness.call('warm_up')]") == ["", ""]


def test_a_failure_is_kept_across_a_fork(run: Run, log: Path) -> None:
    code = FORK + "before = harness.call('warm_up'); result = [before, in_child()]"
    before, child = run(code, fail="cuInit=100")
    assert child == before
    assert len(calls(log, "cuInit")) == 1


def test_a_fork_during_opening_does_not_hang(run: Run) -> None:
    code = (
        FORK
        + """\
import threading, time
threading.Thread(target=lambda: harness.call("warm_up"), daemon=True).start()
while fake().calls("cuInit") == 0:
    time.sleep(0.01)
child = in_child()
result = child
import json, sys
print("RESULT", json.dumps(result), flush=True)
os._exit(0)
"""
    )
    assert "CUDA was used in process" in run(code, fail="cuInit=hang")


def test_a_device_that_is_not_there(run: Run) -> None:
    code = "result = [harness.call('warm_up', device=n) for n in (0, 1, 2, 255, 256)]"
    texts = run(code, devices="8.0,9.0")
    assert texts[:2] == ["", ""]
    assert texts[2] == "warm_up: there is no CUDA device 2: the driver shows 2 devices"
    assert texts[4] == "warm_up: there is no CUDA device 256"


def test_no_images_asks_no_driver(run: Run, build_folder: Path, log: Path) -> None:
    plain = build.build_kernels(build_folder, build.Images(containers={}))
    code = WARM_UP + "; result = [result, harness.archs()]"
    text, archs = run(code, library=plain)
    assert text.startswith(
        "warm_up: this freewheel was built without CUDA kernels; install a CUDA "
    )
    assert archs == ""
    assert not log.exists()
