"""The fake driver's ways to misbehave, as its environment asks for them."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.drivers.child import LOAD, Run, calls, python, result
from wheelfab.drivers import entry_points, make_management

LIMIT = 2.0  # seconds for a process to start or to end
# Dies with the si_code of its signal as the exit code, after the name of the function that raised
# it: the registers are in the third argument, RIP the 17th of them.
CATCH = """
import os, signal
from ctypes import *
class Action(Structure):
    _fields_ = [("handler", c_void_p), ("mask", c_char * 128), ("flags", c_int), ("r", c_void_p)]
class Place(Structure):
    _fields_ = [("file", c_char_p), ("base", c_void_p), ("name", c_char_p), ("at", c_void_p)]
def caught(number, info, context):
    place = Place()
    CDLL(None).dladdr(c_void_p(cast(context + 168, POINTER(c_uint64))[0]), byref(place))
    os.write(1, place.name or b"?")
    os._exit(cast(info, POINTER(c_int))[2] & 255)
handler = CFUNCTYPE(None, c_int, c_void_p, c_void_p)(caught)
action = Action(handler=cast(handler, c_void_p), flags=4)
CDLL(None).sigaction(int(signal.SIGSEGV), byref(action), None)
"""


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


def test_what_the_fake_does_not_have_it_refuses(fake_driver: Path, tmp_path: Path) -> None:
    names = entry_points()[len(entry_points(refused=False)) :]
    code = (
        f"{LOAD}names = {names!r}\nbefore = {{cuda[name]() for name in names}}\n"
        "cuda.cuInit(0)\nresult = [list(before), list({cuda[name]() for name in names})]"
    )
    log = tmp_path / "log"
    assert result(code, fake_driver, FAKECUDA_LOG=str(log)) == [[3], [801]]
    assert log.read_text().count(" cuMemAddressReserve\n") == 2


@pytest.mark.parametrize("place", ["load", "cuInit", "cuDriverGetVersion", "cuMemAddressReserve"])
@pytest.mark.parametrize(("action", "code"), [("segv", 1), ("gp", 128)])
def test_who_crashes_is_the_entry_point(
    fake_driver: Path, place: str, action: str, code: int
) -> None:
    """SEGV_MAPERR is 1, SI_KERNEL 128."""
    call = "" if place == "load" else f"cuda.{place}(0)"
    settings = {"FAKECUDA_FAIL": f"{place}={action}"}
    done = python(f"{CATCH}{LOAD}{call}", fake_driver, **settings)
    name = "fakecuda_load" if place == "load" else place
    assert (done.stdout, done.returncode) == (name, code), done.stderr


@pytest.mark.parametrize(
    ("fail", "returncode"),
    [("cuInit=segv", -11), ("cuInit=gp", -11), ("cuInit=abort", -6), ("load=exit:7", 7)],
)
def test_how_a_process_ends(fake_driver: Path, fail: str, returncode: int) -> None:
    assert python(f"{LOAD}cuda.cuInit(0)", fake_driver, FAKECUDA_FAIL=fail).returncode == returncode


def test_exit_runs_what_a_process_leaves_to_its_end(fake_driver: Path) -> None:
    code = f"{LOAD}end = CFUNCTYPE(None)(lambda: print('end', flush=True))\n"
    code += "CDLL(None).__cxa_atexit(end, None, None)\ncuda.cuInit(0)"
    done = python(code, fake_driver, FAKECUDA_FAIL="cuInit=exit:5")
    assert (done.stdout, done.returncode) == ("end\n", 5)


@contextmanager
def hanging(driver: Path, action: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that hangs in ``cuInit``."""
    code = f"{LOAD}print(flush=True)\ncuda.cuInit(0)"
    settings = {"LD_LIBRARY_PATH": str(driver), "FAKECUDA_FAIL": f"cuInit={action}"}
    command = [sys.executable, "-I", "-S", "-c", code]
    with subprocess.Popen(command, env=settings, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        until = time.monotonic() + LIMIT
        while action == "deaf" and not blocks_all(process.pid) and time.monotonic() < until:
            time.sleep(0.01)
        try:
            yield process
        finally:
            process.kill()


def blocks_all(pid: int) -> bool:
    """Whether a process blocks SIGTERM and SIGINT."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    (blocked,) = (int(line.split()[1], 16) for line in status.splitlines() if "SigBlk" in line)
    return all(blocked & 1 << number - 1 for number in (signal.SIGTERM, signal.SIGINT))


def test_a_hang_ends_by_a_signal_and_a_deaf_one_by_none_but_kill(fake_driver: Path) -> None:
    with hanging(fake_driver, "hang") as process:
        process.terminate()
        assert process.wait(LIMIT) == -signal.SIGTERM
    with hanging(fake_driver, "deaf") as process:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGSEGV, signal.SIGALRM):
            process.send_signal(number)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        process.kill()
        assert process.wait(LIMIT) == -signal.SIGKILL


DEVICES = f"""{LOAD}
count, result = c_int(), []
started = cuda.cuInit(0)
cuda.cuDeviceGetCount(byref(count))
for i in range(count.value):
    name, uuid, parent = (create_string_buffer(size) for size in (64, 16, 16))
    memory, major, minor = c_size_t(), c_int(), c_int()
    assert cuda.cuDeviceGetName(name, 64, i) == cuda.cuDeviceTotalMem_v2(byref(memory), i) == 0
    assert cuda.cuDeviceGetUuid_v2(uuid, i) == cuda.cuDeviceGetUuid(parent, i) == 0
    assert cuda.cuDeviceComputeCapability(byref(major), byref(minor), i) == 0
    result.append([name.value.decode(), f"{{major.value}}.{{minor.value}}", memory.value >> 30,
                   uuid.raw.hex()[-2:], parent.raw.hex()[20:]])
"""
WHOLE = ["Fake A100", "8.0", 16, "01", "000000000001"]
PART = ["Fake H100 MIG 1g.2gb", "9.0", 2, "02", "800000000002"]
OTHER = ["Fake T4", "7.5", 16, "03", "000000000003"]


@pytest.mark.parametrize(
    ("visible", "devices"),
    [
        (None, [WHOLE, PART, OTHER]),
        ("2,1", [OTHER, PART]),
        ("MIG-00000000-0000-0000-0000-000000000002", [PART]),
        ("MIG-GPU-00000000-0000-0000-0000-800000000002/1/0", [PART]),
        ("MIG-GPU-00000000-0000-0000-0000-800000000002/2/0", []),
        ("MIG-00000000-0000-0000-0000-00000000000", []),  # a MIG name is never shortened
        ("MIG-00000000-0000-0000-0000-000000000001", []),  # no instance
        ("GPU-00000000-0000-0000-0000-000000000002", []),  # an instance
        ("GPU-00000000-0000-0000-0000-000000000003,1", [OTHER]),
        ("", []),
    ],
)
def test_b28_devices_of_several_kinds(fake_driver: Path, visible: str | None, devices: Any) -> None:
    settings = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    found = result(
        DEVICES, fake_driver, FAKECUDA_DEVICES="8.0,9.0,7.5", FAKECUDA_MIG="1", **settings
    )
    assert found == devices


@pytest.mark.parametrize(("mig", "kinds"), [("", "GG"), ("1", "GM"), ("0,1", "MM"), ("all", "MM")])
def test_nvml_knows_the_same_devices(build_folder: Path, mig: str, kinds: str) -> None:
    code = """
from ctypes import *
nvml, count, result = CDLL("libnvidia-ml.so.1"), c_uint(), ""
assert nvml.nvmlInit() == nvml.nvmlInit_v2() == nvml.nvmlDeviceGetCount_v2(byref(count)) == 0
for i in range(count.value):
    first, second, text = c_void_p(), c_void_p(), create_string_buffer(48)
    memory = (c_ulonglong * 3)()
    assert nvml.nvmlDeviceGetHandleByIndex_v2(i, byref(first)) == 0
    assert nvml.nvmlDeviceGetUUID(first, text, 48) == 0
    assert nvml.nvmlDeviceGetHandleByUUID(text, byref(second)) == 0
    assert nvml.nvmlDeviceGetMemoryInfo(first, memory) == 0
    assert first.value == second.value and text.value[-1:] == b"%d" % (i + 1)
    assert memory[0] == (2 << 30 if text.value[:1] == b"M" else 16 << 30)
    result += text.value[:1].decode()
assert nvml.nvmlDeviceGetHandleByIndex_v2(count, byref(c_void_p())) == 2
assert nvml.nvmlDeviceGetHandleByUUID(b"GPU-", byref(c_void_p())) == 6
"""
    settings = {"FAKECUDA_DEVICES": "8.0,9.0", "FAKECUDA_MIG": mig}
    assert result(code, make_management(build_folder), **settings) == kinds


IN_CONTEXT = f"""{LOAD}
context, pointer = c_void_p(), c_void_p()
assert cuda.cuInit(0) == cuda.cuDevicePrimaryCtxRetain(byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
"""


def test_memory_is_copied_and_set(fake_driver: Path) -> None:
    code = f"""{IN_CONTEXT}
other, text = c_void_p(), create_string_buffer(4)
cuda.cuMemsetD8_v2.argtypes = [c_void_p, c_ubyte, c_size_t]
cuda.cuMemcpyHtoDAsync_v2.argtypes = [c_void_p, c_char_p, c_size_t, c_void_p]
assert cuda.cuMemAlloc_v2(byref(pointer), c_size_t(4)) == 0
assert cuda.cuMemAlloc_v2(byref(other), c_size_t(4)) == 0
assert cuda.cuMemcpyHtoDAsync_v2(pointer, b"abcd", 4, None) == 0
assert cuda.cuMemsetD8_v2(c_void_p(pointer.value + 1), ord("x"), 2) == 0
assert cuda.cuMemcpyDtoD_v2(other, pointer, c_size_t(4)) == 0
assert cuda.cuMemcpyDtoH_v2(text, other, c_size_t(4)) == 0
result = [text.raw.decode(), cuda.cuMemcpyHtoDAsync_v2(pointer, b"", 0, 999)]
"""
    assert result(code, fake_driver) == ["axxd", 400]


def test_events_are_recorded_before_they_are_compared(fake_driver: Path) -> None:
    code = f"""{IN_CONTEXT}
first, second, time = c_void_p(), c_void_p(), c_float(-1)
assert cuda.cuEventCreate(byref(first), 0) == cuda.cuEventCreate(byref(second), 0) == 0
assert cuda.cuEventRecord(first, None) == 0
result = [cuda.cuEventElapsedTime(byref(time), first, second)]
assert cuda.cuEventRecord(second, None) == cuda.cuEventSynchronize(second) == 0
result += [cuda.cuEventElapsedTime(byref(time), first, second), time.value]
result += [cuda.cuEventDestroy_v2(first), cuda.cuEventQuery(first), cuda.cuEventQuery(second)]
"""
    assert result(code, fake_driver) == [400, 0, 0.0, 0, 400, 0]


def test_contexts_of_a_thread(fake_driver: Path) -> None:
    code = f"""{IN_CONTEXT}
now, flags, active = c_void_p(), c_uint(), c_int()
result = [cuda.cuCtxGetCurrent(byref(now)), now.value == context.value]
result += [cuda.cuCtxSetCurrent(c_void_p(4096)), cuda.cuCtxSetCurrent(None)]
result += [cuda.cuCtxGetCurrent(byref(now)), now.value, cuda.cuCtxSynchronize()]
result += [cuda.cuDevicePrimaryCtxGetState(0, byref(flags), byref(active)), active.value]
"""
    assert result(code, fake_driver) == [0, True, 201, 0, 0, None, 201, 0, 1]


@pytest.mark.parametrize(
    ("name", "version", "exported"),
    [
        ("cuInit", 2000, "cuInit"),
        ("cuMemAlloc", 12010, "cuMemAlloc_v2"),
        ("cuDeviceGetUuid", 12010, "cuDeviceGetUuid_v2"),
        ("cuGetProcAddress", 11080, "cuGetProcAddress"),
        ("cuGetProcAddress", 12000, "cuGetProcAddress_v2"),
        ("cuNothing", 12010, None),
    ],
)
def test_functions_are_found_in_their_newest_form(
    fake_driver: Path, name: str, version: int, exported: str | None
) -> None:
    code = f"""{LOAD}
found, status = c_void_p(), c_int(-1)
answer = cuda.cuGetProcAddress_v2({name.encode()!r}, byref(found), {version}, 0, byref(status))
old = c_void_p()
assert cuda.cuGetProcAddress({name.encode()!r}, byref(old), {version}, 0) == answer
assert old.value == found.value
wanted = {exported!r} and cast(cuda[{exported!r}], c_void_p).value
result = [answer, status.value, found.value == wanted]
"""
    assert result(code, fake_driver) == ([500, 1, True] if exported is None else [0, 0, True])


def test_free_memory_is_what_was_not_given_out(fake_driver: Path) -> None:
    code = f"""{LOAD}
cuda.cuInit(0)
contexts = [c_void_p(), c_void_p()]
for i in range(2):
    cuda.cuDevicePrimaryCtxRetain(byref(contexts[i]), i)

def taken(device):
    free, total = c_size_t(), c_size_t()
    cuda.cuCtxPushCurrent_v2(contexts[device])
    cuda.cuMemGetInfo_v2(byref(free), byref(total))
    cuda.cuCtxPopCurrent_v2(byref(c_void_p()))
    return total.value // 16 * 15 - free.value

result, memory = [taken(0)], c_void_p()
cuda.cuCtxPushCurrent_v2(contexts[1])
cuda.cuMemAlloc_v2(byref(memory), 1000)
result += [taken(0), taken(1)]
cuda.fakecuda_hold(1, c_int64(5000))
result += [taken(0), taken(1)]
result += [cuda.cuMemFree_v2(memory), cuda.cuMemFree_v2(memory), cuda.cuMemFree_v2(None)]
cuda.fakecuda_hold(1, c_int64(0))
result += [taken(1)]
"""
    answers = result(code, fake_driver, FAKECUDA_DEVICES="8.0,9.0")
    assert answers == [0, 0, 1024, 0, 6024, 0, 1, 0, 0]
