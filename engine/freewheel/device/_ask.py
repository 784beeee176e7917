"""The questions of csrc/probe/probe.c in Python, for where that program cannot be started.

Run as ``python -I -S _ask.py DESCRIPTOR [--deep]``, never imported: it loads the driver.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import Any

_MAX_DEVICES = 64
_PR_SET_PDEATHSIG, _SIGKILL = 1, 9
_CAPABILITY = {"major": 75, "minor": 76}


def ask(descriptor: int, *, deep: bool) -> dict[str, Any]:
    """The same object as the program gives, without what NVML knows."""

    def step(name: str) -> None:
        os.write(descriptor, f"step {name}\n".encode())

    step("start")
    answer: dict[str, Any] = {"schema": 1, "deep": deep}
    step("dlopen")
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return {**answer, "not_loaded": str(error)}
    answer["library"] = _path()
    for name in ("cuInit", "cuDriverGetVersion", "cuDeviceGetCount"):
        if not hasattr(cuda, name):
            return {**answer, "missing": name}
    version, count = ctypes.c_int(), ctypes.c_int()
    step("cuDriverGetVersion")
    code = cuda.cuDriverGetVersion(ctypes.byref(version))
    answer["versioned"] = _result(code)
    answer["driver_version"] = version.value if code == 0 and version.value > 0 else None
    step("cuInit")
    answer["initialised"] = _result(cuda.cuInit(0))
    if answer["initialised"]["code"] != 0:
        return answer
    step("cuDeviceGetCount")
    answer["counted"] = _result(cuda.cuDeviceGetCount(ctypes.byref(count)))
    if answer["counted"]["code"] == 0:
        step("contexts" if deep else "devices")
        answer["count"] = count.value
        ordinals = range(min(count.value, _MAX_DEVICES))
        answer["devices"] = [_device(cuda, ordinal, deep=deep) for ordinal in ordinals]
    return answer


def _result(code: int) -> dict[str, Any]:
    return {"code": code, "name": None, "text": None}


def _path() -> str | None:
    """The file that was mapped, where /proc tells."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            for line in maps:
                path = line.rstrip("\n").partition("/")[2]
                if "libcuda.so" in path:
                    return f"/{path}"
    except OSError:
        pass
    return None


def _device(cuda: ctypes.CDLL, ordinal: int, *, deep: bool) -> dict[str, Any]:
    device, total = ctypes.c_int(), ctypes.c_size_t()
    name, uuid = ctypes.create_string_buffer(256), ctypes.create_string_buffer(16)
    found: dict[str, Any] = {"ordinal": ordinal}
    found["get"] = _result(cuda.cuDeviceGet(ctypes.byref(device), ordinal))
    if found["get"]["code"] != 0:
        return found
    ok = cuda.cuDeviceGetName(name, 256, device) == 0
    found["name"] = name.value.decode(errors="replace") if ok else None
    for key, attribute in _CAPABILITY.items():
        value = ctypes.c_int()
        ok = cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, device) == 0
        found[key] = value.value if ok else None
    ok = cuda.cuDeviceTotalMem_v2(ctypes.byref(total), device) == 0
    found["total_memory"] = total.value if ok else None
    get_uuid = getattr(cuda, "cuDeviceGetUuid_v2", None) or getattr(cuda, "cuDeviceGetUuid", None)
    ok = get_uuid is not None and get_uuid(uuid, device) == 0
    digits = uuid.raw.hex()
    parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    found["uuid"] = "-".join(parts) if ok else None
    if deep:
        context = ctypes.c_void_p()
        code = cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
        found["context"] = _result(code)
    return found


def _leave_nothing() -> None:
    """Neither a core file nor a process that outlives the one that asks."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _SIGKILL)
    except (ImportError, OSError, ValueError, AttributeError):
        pass  # asking goes before tidiness


def main(arguments: list[str]) -> None:
    """Answer on the descriptor given, and leave without anyone's exit handlers."""
    _leave_nothing()
    descriptor = int(arguments[0])
    answer = ask(descriptor, deep="--deep" in arguments)
    os.write(descriptor, f"{json.dumps(answer)}\n".encode())
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
