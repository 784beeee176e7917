"""From what was seen to a state: a pure function over files, answer, wheel and environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from freewheel.device.answer import Answer, code_of, ending, number, text
from freewheel.device.codes import CODES, INSTALL, INSTALL_WSL, LOAD_UVM, ONE_DRIVER, RESTART
from freewheel.device.files import DEFAULT, LIBRARY, WSL, Files
from freewheel.device.layers import layers_of
from freewheel.device.notes import lacks_uvm, notes_of, skew, with_pollution
from freewheel.device.obstacle import Obstacle, obstacle_of
from freewheel.device.record import Asked, Device, DeviceState, Status
from freewheel.device.shadows import Shadow
from freewheel.device.visible import visible_devices
from freewheel.device.wheel import Wheel, choose_image


@dataclass(frozen=True)
class Seen:
    """Everything that a state is judged by. Without an answer the driver was not asked."""

    files: Files
    answer: Answer | None
    wheel: Wheel
    visible: str | None = None  # CUDA_VISIBLE_DEVICES
    deep: bool = False
    shadows: tuple[Shadow, ...] = ()


def judge(seen: Seen) -> DeviceState:
    """The one state that fits."""
    answer = seen.answer
    data: Mapping[str, Any] = (answer.data if answer else None) or {}
    libraries = tuple(library.path for library in seen.files.libraries)
    first = seen.files.first
    library = text(data.get("library")) or (first.path if first else None)
    state = replace(
        _judge(seen, data, library),
        driver_version=number(data.get("driver_version")),
        module_version=seen.files.module_version,
        library=library,
        libraries=libraries,
        archs=seen.wheel.archs,
        asked=answer.how if answer else Asked.NOT_ASKED,
        deep=seen.deep,
        seconds=answer.seconds if answer else 0.0,
        layers=layers_of(seen.files, answer),
    )
    notes = notes_of(seen.files, answer, seen.visible, seen.shadows)
    state = replace(state, notes=tuple(note for note in notes if note not in state.reason))
    return with_pollution(state, seen.files, seen.shadows)


def _judge(seen: Seen, data: Mapping[str, Any], library: str | None) -> DeviceState:
    answer = seen.answer
    if answer is None:
        return _no_library(seen.files)
    return _no_answer(answer, library) if answer.data is None else _answered(seen, data, library)


def _answered(seen: Seen, data: Mapping[str, Any], library: str | None) -> DeviceState:
    if "not_loaded" in data:
        return _not_loaded(seen, str(data["not_loaded"]), library)
    if "missing" in data:
        return DeviceState(
            Status.MISMATCH,
            f"{library or LIBRARY} has no function {data['missing']}: it is broken, or not "
            "a driver library",
            "reinstall the NVIDIA driver, or take this library out of the search path",
        )
    for call, key in (("cuInit", "initialised"), ("cuDeviceGetCount", "counted")):
        code = code_of(data.get(key))
        if code is None:
            return DeviceState(
                Status.UNKNOWN,
                f"the process that asked the driver gave no result of {call}",
                "install freewheel again",
            )
        if code != 0:
            return _by_code(seen, call, data.get(key), code)
    given = data.get("devices")
    devices = (
        [entry for entry in given if isinstance(entry, dict)] if isinstance(given, list) else []
    )
    if not devices:
        return _by_code(seen, "cuDeviceGetCount", None, 100)
    return _with_devices(seen, data, devices)


def _no_library(files: Files) -> DeviceState:
    mend = INSTALL_WSL if files.wsl else INSTALL
    return DeviceState(
        Status.CUDA_UNAVAILABLE,
        "no NVIDIA driver: there is no libcuda.so.1 where the loader looks",
        mend + "; without a GPU nothing is needed, CPU operations work",
    )


def _no_answer(answer: Answer, library: str | None) -> DeviceState:
    where = f" in {answer.step}" if answer.step else ""
    named = library or LIBRARY
    if answer.how is Asked.FAILED:
        return DeviceState(
            Status.UNKNOWN,
            f"the driver could not be asked: {'; '.join(answer.problems) or 'no way to ask'}",
            "allow freewheel/_probe to be executed, or install freewheel again",
        )
    mend = "reinstall the NVIDIA driver, or see the kernel's log (dmesg) for NVRM and Xid lines"
    if answer.hung:
        return DeviceState(
            Status.DRIVER_HUNG,
            f"the driver ({named}) did not answer within {answer.seconds:.1f} s{where}",
            f"{mend}; FREEWHEEL_PROBE_TIMEOUT gives a slow one more seconds",
        )
    verb = "died of" if answer.signal is not None else "ended with"
    return DeviceState(
        Status.DRIVER_CRASHED,
        f"the process that asked the driver ({named}) {verb} {ending(answer)}{where}",
        mend,
    )


def _not_loaded(seen: Seen, error: str, library: str | None) -> DeviceState:
    if library is None:
        signs = [f"/dev/{node}" for node in seen.files.nodes[:1]]
        if seen.files.module_version:
            signs.append(f"kernel module {seen.files.module_version}")
        there = f" although there is {' and '.join(signs)}" if signs else ""
        reason = f"no NVIDIA driver library{there}: {error}"
        mend = INSTALL_WSL if seen.files.wsl else INSTALL
        return DeviceState(Status.CUDA_UNAVAILABLE, reason, mend)
    first = seen.files.first
    if first is not None and first.foreign:
        return DeviceState(
            Status.CUDA_UNAVAILABLE,
            f"the driver library {first.path} is for another machine ({first.foreign}): {error}",
            "install the NVIDIA driver for this machine, or take this file out of the search path",
        )
    unseen = "cannot open shared object file: No such file" in error and LIBRARY in error
    if unseen and first is not None and first.by in (DEFAULT, WSL):
        return DeviceState(
            Status.CUDA_UNAVAILABLE,
            f"there is {library}, but the loader does not look in its folder: {error}",
            "run ldconfig, or add the folder to LD_LIBRARY_PATH",
        )
    return DeviceState(
        Status.CUDA_UNAVAILABLE,
        f"the driver library {library} does not load: {error}",
        "reinstall the NVIDIA driver for this machine, or take this file out of the search path",
    )


def _by_code(seen: Seen, call: str, result: Any, code: int) -> DeviceState:  # noqa: ANN401 - JSON
    status, meaning, next_step = CODES.get(code, (Status.UNKNOWN, "", RESTART))
    given = result if isinstance(result, dict) else {}
    name = f" ({given['name']}: {given.get('text')})" if text(given.get("name")) else ""
    answer = f"{call} returned {code}{name}" if result is not None else "the driver shows no device"
    skewed = skew(seen.files)
    if status is Status.NO_DEVICE and seen.visible is not None:
        sentence = visible_devices(seen.visible).sentence(seen.visible) or (
            f"no device that CUDA_VISIBLE_DEVICES={seen.visible!r} names is there"
        )
        reason, next_step = f"{sentence} ({answer})", "unset CUDA_VISIBLE_DEVICES or mend it"
        return DeviceState(status, reason, next_step, code=code)
    if skewed and status in (Status.UNKNOWN, Status.MISMATCH):
        return DeviceState(Status.MISMATCH, f"{skewed}; {answer}", ONE_DRIVER, code=code)
    if status is Status.UNKNOWN and lacks_uvm(seen.files):
        reason = f"/dev/nvidia-uvm is missing, which CUDA needs: {answer}"
        return DeviceState(status, reason, LOAD_UVM, code=code)
    compat = next((item for item in seen.files.libraries if item.is_compat), None)
    if status is Status.MISMATCH and compat is not None:
        meaning = f"{meaning} (it is {compat})"
    reason = f"{meaning}: {answer}" if meaning else answer
    return DeviceState(status, reason, next_step, code=code)


def _with_devices(
    seen: Seen, data: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]
) -> DeviceState:
    wheel = seen.wheel
    obstacles = [obstacle_of(entry) for entry in entries]
    devices = tuple(map(partial(_device, wheel), entries, obstacles))
    version = number(data.get("driver_version")) or 0
    found = DeviceState(Status.READY, "", devices=devices)
    if not wheel.archs:
        what = "this wheel holds" if wheel.built else "this is a source tree, with"
        reason = f"{what} no device code, only CPU kernels"
        return replace(
            found,
            status=Status.NO_IMAGE,
            reason=reason,
            next_step="install a CUDA variant of freewheel to use the GPU",
        )
    if 0 < version < wheel.cubin_floor:
        needed = _named(wheel.cubin_floor, wheel.cubin_release)
        return replace(
            found,
            status=Status.MISMATCH,
            reason=f"the driver is for CUDA {release_name(version)}, the wheel needs {needed}",
            next_step=f"update the driver, or install a variant for CUDA "
            f"{release_name(version)} or older",
        )
    refuse_ptx = 0 < version < wheel.ptx_floor
    return _match(found, obstacles, wheel, refuse_ptx=refuse_ptx, version=version)


def _match(
    found: DeviceState,
    obstacles: Sequence[Obstacle | None],
    wheel: Wheel,
    *,
    refuse_ptx: bool,
    version: int,
) -> DeviceState:
    refusal = ""
    if refuse_ptx:
        needed = _named(wheel.ptx_floor, wheel.ptx_release)
        refusal = f"its PTX needs {needed}, the driver is for CUDA {release_name(version)}"
    judged = []
    for device in found.devices:
        if device.image is None:
            judged.append(replace(device, note=device.note or "no device code fits it"))
        elif refuse_ptx and device.image.endswith("+PTX"):
            judged.append(replace(device, image=None, note=refusal))
        else:
            judged.append(device)
    devices = tuple(judged)
    state = replace(found, devices=devices)
    if any(device.image is not None and not device.note for device in devices):
        return replace(state, reason=_ready(state, wheel))
    barred = [
        (device, obstacle)
        for device, obstacle in zip(devices, obstacles, strict=True)
        if obstacle is not None and (device.image is not None or device.capability is None)
    ]
    if barred:
        return _barred(state, barred)
    first = devices[0]
    if any(device.note == refusal for device in devices if refusal):
        return replace(
            state,
            status=Status.MISMATCH,
            reason=f"only the wheel's PTX fits {_title(first)}, and {refusal}",
            next_step="update the driver, or install a variant with a cubin for this device",
        )
    return replace(
        state,
        status=Status.NO_IMAGE,
        reason=f"the wheel's device code ({' '.join(wheel.archs)}) does not run on {_title(first)}",
        next_step="install a variant whose arch list has this capability",
    )


def _barred(state: DeviceState, barred: Sequence[tuple[Device, Obstacle]]) -> DeviceState:
    """The state where no device can be used now; ``busy`` if waiting can help with one of them."""
    obstacles = [obstacle for _, obstacle in barred]
    chosen = next((item for item in obstacles if item.status is Status.BUSY), obstacles[0])
    return replace(
        state,
        status=chosen.status,
        reason="; ".join(f"device {device.ordinal}: {item.note}" for device, item in barred),
        next_step=chosen.next_step,
        code=chosen.code,
    )


def _ready(state: DeviceState, wheel: Wheel) -> str:
    usable = [device for device in state.devices if device.image is not None and not device.note]
    plural = "s" if len(usable) > 1 else ""
    ready = f"{len(usable)} device{plural} with code in the wheel for CUDA {wheel.cuda}"
    others = [device for device in state.devices if device not in usable]
    return ready + "".join(f"; not device {item.ordinal}: {item.note}" for item in others)


def _device(wheel: Wheel, entry: Mapping[str, Any], obstacle: Obstacle | None) -> Device:
    major, minor = number(entry.get("major")), number(entry.get("minor"))
    capability = None if major is None or minor is None else (major, minor)
    digits = text(entry.get("uuid"))
    mig = entry.get("mig") is True
    free = number(entry.get("free_in_context"))
    return Device(
        ordinal=number(entry.get("ordinal")) or 0,
        name=text(entry.get("name")),
        capability=capability,
        total_memory=number(entry.get("total_memory")),
        free_memory=number(entry.get("free_memory")) if free is None else free,
        uuid=f"{'MIG' if mig else 'GPU'}-{digits}" if digits else None,
        mig=mig,
        image=choose_image(wheel.archs, capability) if capability else None,
        note="" if obstacle is None else obstacle.note,
    )


def _title(device: Device) -> str:
    capability = ".".join(map(str, device.capability)) if device.capability else "unknown"
    return f"{device.name or 'the device'} (capability {capability})"


def _named(version: int, release: str | None) -> str:
    name = f"a driver for CUDA {release_name(version)}"
    return f"{name} ({release} or later)" if release else name


def release_name(version: int) -> str:
    """``12.4`` for cuDriverGetVersion's 12040."""
    return f"{version // 1000}.{version % 1000 // 10}"
