"""What the GPU loop does on the devices, in a process of its own, by the wheel's own interpreter.

Run by path (Python 3.10 or later) with the standard library only; wheelfab is never imported::

    python exercise.py PLAN

The JSON file ``PLAN`` says what to import, the devices, the operation, and how many launches. On
each device: the operation, a few launches to warm up, its memory, the soak, its memory again. An
error ends what is done on that device. Each event is a line ``@device {JSON}`` on stdout.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import json
import os
import resource
import sys
import time
from typing import Any

MARK = "@device "
PLAN_LIMIT = 1 << 20  # bytes
TEXT_LIMIT = 2000  # characters of an exception's text
_PAGE = os.sysconf("SC_PAGE_SIZE")


def tell(event: str, **values: object) -> None:
    """Send an event, as one write."""
    os.write(1, (MARK + json.dumps({"event": event, **values}) + "\n").encode())


def read_plan(path: str) -> dict[str, Any]:
    """The plan in ``path``; raises ``ValueError`` when it is too large or no plan."""
    with open(path, "rb") as file:  # noqa: PTH123 (as in visit.py)
        data = file.read(PLAN_LIMIT + 1)
    plan = json.loads(data) if len(data) <= PLAN_LIMIT else None
    if not isinstance(plan, dict) or plan.get("schema") != 1:
        raise ValueError(f"{path}: not a plan of schema 1")
    return plan


def words(error: BaseException) -> str:
    """An exception in a line."""
    return f"{type(error).__name__}: {error}"[:TEXT_LIMIT]


def driver_memory(ordinal: int) -> tuple[int, int]:
    """Bytes of a device that are free, and all of them, by the driver's own word.

    Raises ``OSError`` without a driver library, ``RuntimeError`` when a call fails.
    """
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context = ctypes.c_int(), ctypes.c_void_p()
    free, total = ctypes.c_size_t(), ctypes.c_size_t()

    def call(name: str, *arguments: object) -> None:
        code = getattr(cuda, name)(*arguments)
        if code != 0:
            raise RuntimeError(f"{name} returned {code}")

    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), ordinal)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    try:
        call("cuCtxPushCurrent_v2", context)
        try:
            call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        finally:
            call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
    finally:
        call("cuDevicePrimaryCtxRelease_v2", device)
    return free.value, total.value


def torch_memory(ordinal: int) -> int | None:
    """Bytes that torch's allocator has given out, when all launches are done; else ``None``."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    torch.cuda.synchronize(ordinal)
    return int(torch.cuda.memory_allocated(ordinal))


def host_memory() -> int:
    """Bytes of this process that are in memory."""
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123
            return int(file.read().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        return 0


def tell_memory(ordinal: int, when: str) -> None:
    """Tell the memory of a device and of this process."""
    gc.collect()
    allocated = torch_memory(ordinal)
    free, total = driver_memory(ordinal)
    values = {"free": free, "total": total, "allocated": allocated, "host": host_memory()}
    tell("memory", ordinal=ordinal, when=when, **values)


def on_device(ordinal: int, plan: dict[str, Any], imported: dict[str, Any]) -> None:
    """The operation and the soak on one device; raises what they raise."""
    names = {**imported, "device": f"cuda:{ordinal}"}
    tell("begin", ordinal=ordinal, what="operation")
    started = time.perf_counter()
    exec(compile(plan["operation"], "<operation>", "exec"), names)  # noqa: S102 (its purpose)
    tell("operation", ordinal=ordinal, seconds=time.perf_counter() - started)
    launch = compile(plan["launch"], "<launch>", "exec")
    tell("begin", ordinal=ordinal, what="soak")
    for _ in range(plan["warm"]):
        exec(launch, names)  # noqa: S102
    tell_memory(ordinal, "before")
    started = time.perf_counter()
    done = 0
    try:
        for _ in range(plan["launches"]):
            exec(launch, names)  # noqa: S102
            done += 1
        torch_memory(ordinal)  # waits for the device
    finally:
        tell("soak", ordinal=ordinal, launches=done, seconds=time.perf_counter() - started)
    tell_memory(ordinal, "after")


def attempt(ordinal: int, plan: dict[str, Any], imported: dict[str, Any]) -> None:
    """Everything on one device; an error is told, so that the next device has its turn."""
    try:
        on_device(ordinal, plan, imported)
    except Exception as error:  # noqa: BLE001 (told)
        tell("error", ordinal=ordinal, error=words(error))


def main(arguments: list[str]) -> None:
    """Import, then do everything on each device."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.enable()
    plan = read_plan(arguments[0])
    imported: dict[str, Any] = {"__name__": "__exercise__"}
    for name, source in [("before", plan["before"]), *plan["stages"]]:
        tell("begin", ordinal=None, what=name)
        try:
            exec(compile(source, f"<stage {name}>", "exec"), imported)  # noqa: S102
        except BaseException as error:
            tell("error", ordinal=None, error=words(error))
            raise
    for ordinal in plan["ordinals"]:
        attempt(ordinal, plan, imported)
    torch = getattr(sys.modules.get("torch"), "__version__", None)
    tell("done", torch=None if torch is None else str(torch)[:TEXT_LIMIT])


if __name__ == "__main__":
    main(sys.argv[1:])
