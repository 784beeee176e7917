"""The questions of csrc/probe/probe.c in Python, for where that program cannot be started.

Run as ``python -I -S _ask.py DESCRIPTOR [--deep]``, never imported: it loads the driver. It gives
the same object, step by step.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Callable
from typing import Any

_MAX_DEVICES = 64
_PR_SET_PDEATHSIG, _SIGKILL = 1, 9
_COMPUTE_MODE, _CAPABILITY = 20, {"major": 75, "minor": 76}  # CUdevice_attribute of cuda.h
_NOT_FOUND = 500  # CUDA_ERROR_NOT_FOUND
_INSUFFICIENT_SIZE = 7  # NVML_ERROR_INSUFFICIENT_SIZE

_Call = Callable[..., int]


class _Memory(ctypes.Structure):
    """nvmlMemory_t."""

    _fields_ = (
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    )


class _Where(ctypes.Structure):
    """Dl_info of dlfcn.h."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def ask(descriptor: int, *, deep: bool) -> dict[str, Any]:
    """The same object as the program gives."""

    def step(name: str) -> None:
        os.write(descriptor, f"step {name}\n".encode())

    step("start")
    answer: dict[str, Any] = {"schema": 1, "deep": deep}
    step("dlopen")
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return {**answer, "not_loaded": str(error)}
    answer["library"] = _path(_find(cuda, "cuInit") or _find(cuda, "cuDriverGetVersion"))
    for name in ("cuInit", "cuDriverGetVersion", "cuDeviceGetCount"):
        if _find(cuda, name) is None:
            return {**answer, "missing": name}
    version, count = ctypes.c_int(), ctypes.c_int()
    step("cuDriverGetVersion")
    code = cuda.cuDriverGetVersion(ctypes.byref(version))
    answer["versioned"] = _result(cuda, code)
    answer["driver_version"] = version.value if code == 0 and version.value > 0 else None
    step("cuInit")
    answer["initialised"] = _result(cuda, cuda.cuInit(0))
    if answer["initialised"]["code"] != 0:
        return answer
    step("cuDeviceGetCount")
    answer["counted"] = _result(cuda, cuda.cuDeviceGetCount(ctypes.byref(count)))
    if answer["counted"]["code"] == 0:
        step("nvmlInit")
        nvml = _open_nvml() if count.value > 0 else None
        step("contexts" if deep else "devices")
        answer["count"] = count.value
        ordinals = range(min(count.value, _MAX_DEVICES))
        answer["devices"] = [_device(cuda, nvml, ordinal, deep=deep) for ordinal in ordinals]
    return answer


def _find(library: ctypes.CDLL | None, name: str) -> _Call | None:
    return getattr(library, name, None)


def _said(call: _Call | None, code: int) -> str | None:
    """What cuGetErrorName or cuGetErrorString says of a result."""
    text = ctypes.c_char_p()
    if call is None or code == 0 or call(code, ctypes.byref(text)) != 0 or text.value is None:
        return None
    return text.value.decode(errors="replace")


def _result(cuda: ctypes.CDLL, code: int) -> dict[str, Any]:
    name = _said(_find(cuda, "cuGetErrorName"), code)
    return {"code": code, "name": name, "text": _said(_find(cuda, "cuGetErrorString"), code)}


def _path(function: _Call | None) -> str | None:
    """The file that a function lies in, by the name it was loaded under."""
    where, dladdr = _Where(), _find(ctypes.CDLL(None), "dladdr")
    if function is None or dladdr is None:
        return None
    address = ctypes.cast(function, ctypes.c_void_p)  # type: ignore[arg-type]
    if dladdr(address, ctypes.byref(where)) == 0 or where.file is None:
        return None
    return os.fsdecode(where.file)


def _open_nvml() -> ctypes.CDLL | None:
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    start = _find(nvml, "nvmlInit_v2")
    return nvml if start is not None and start() == 0 else None


def _device(
    cuda: ctypes.CDLL, nvml: ctypes.CDLL | None, ordinal: int, *, deep: bool
) -> dict[str, Any]:
    device, total = ctypes.c_int(), ctypes.c_size_t()
    name, uuid = ctypes.create_string_buffer(256), ctypes.create_string_buffer(16)

    def asked(function: str, *arguments: Any) -> bool:  # noqa: ANN401 - of any C type
        call = _find(cuda, function)
        return call is not None and call(*arguments) == 0

    get = _find(cuda, "cuDeviceGet")
    code = _NOT_FOUND if get is None else get(ctypes.byref(device), ordinal)
    found: dict[str, Any] = {"ordinal": ordinal, "get": _result(cuda, code)}
    if code != 0:
        return found
    named = asked("cuDeviceGetName", name, 256, device)
    found["name"] = name.value.decode(errors="replace") if named else None
    numbers = {key: _attribute(cuda, which, device) for key, which in _CAPABILITY.items()}
    found |= dict.fromkeys(numbers) if None in numbers.values() else numbers
    found["total_memory"] = (
        total.value if asked("cuDeviceTotalMem_v2", ctypes.byref(total), device) else None
    )
    newest = "cuDeviceGetUuid_v2" if _find(cuda, "cuDeviceGetUuid_v2") else "cuDeviceGetUuid"
    digits = uuid.raw.hex() if asked(newest, uuid, device) else None
    if digits is not None:
        parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
        digits = "-".join(parts)
    found["uuid"] = digits
    found |= _managed(nvml, digits)
    if found["compute_mode"] is None:
        found["compute_mode"] = _attribute(cuda, _COMPUTE_MODE, device)
    return found | (_context(cuda, device) if deep else {})


def _attribute(cuda: ctypes.CDLL, which: int, device: ctypes.c_int) -> int | None:
    value, get = ctypes.c_int(), _find(cuda, "cuDeviceGetAttribute")
    return value.value if get and get(ctypes.byref(value), which, device) == 0 else None


def _managed(nvml: ctypes.CDLL | None, digits: str | None) -> dict[str, Any]:
    """What NVML knows of the device with this UUID; the numbers it does not give are None."""
    handle, mig = _handle(nvml, digits)
    memory, mode, processes = _Memory(), ctypes.c_int(), ctypes.c_uint()

    def asked(function: str, *arguments: Any) -> int | None:  # noqa: ANN401 - of any C type
        call = None if handle is None else _find(nvml, function)
        return None if call is None else call(handle, *arguments)

    remembered = asked("nvmlDeviceGetMemoryInfo", ctypes.byref(memory)) == 0
    moded = asked("nvmlDeviceGetComputeMode", ctypes.byref(mode)) == 0
    # With room for none it says how many there are.
    counted = asked("nvmlDeviceGetComputeRunningProcesses_v3", ctypes.byref(processes), None)
    return {
        "free_memory": memory.free if remembered else None,
        "compute_mode": mode.value if moded else None,
        "processes": processes.value if counted in (0, _INSUFFICIENT_SIZE) else None,
        "mig": mig,
    }


def _handle(nvml: ctypes.CDLL | None, digits: str | None) -> tuple[ctypes.c_void_p | None, bool]:
    """NVML's handle of a device, and whether it knows it as a MIG instance."""
    handle, by_uuid = ctypes.c_void_p(), _find(nvml, "nvmlDeviceGetHandleByUUID")
    if by_uuid is None or digits is None:
        return None, False
    for kind in ("GPU", "MIG"):
        if by_uuid(f"{kind}-{digits}".encode(), ctypes.byref(handle)) == 0:
            return handle, kind == "MIG"
    return None, False


def _context(cuda: ctypes.CDLL, device: ctypes.c_int) -> dict[str, Any]:
    """The result of making a context, and the memory that is free in it."""
    context, free, total = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
    names = ("cuDevicePrimaryCtxRetain", "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2")
    calls = [_find(cuda, name) for name in (*names, "cuMemGetInfo_v2")]
    if None in calls:
        return {}
    retain, push, pop, get_memory = (call for call in calls if call is not None)
    code = retain(ctypes.byref(context), device)
    if code == 0:
        code = push(context)
    if code == 0:
        code = get_memory(ctypes.byref(free), ctypes.byref(total))
        pop(ctypes.byref(context))
    found = {"context": _result(cuda, code)}
    return found if code != 0 else {**found, "free_in_context": free.value}


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
