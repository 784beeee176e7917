"""Findings that do not decide a state: what files and environment say besides."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace

from freewheel.device.answer import Answer
from freewheel.device.files import CACHE, Files, Library
from freewheel.device.record import Asked, DeviceState
from freewheel.device.shadows import Shadow
from freewheel.device.visible import visible_devices

_SEARCH = "LD_LIBRARY_PATH"


def notes_of(
    files: Files, answer: Answer | None, visible: str | None, shadows: Sequence[Shadow]
) -> Iterator[str]:
    """Each finding in a sentence."""
    if answer is not None and answer.how is not Asked.FAILED:
        yield from answer.problems
    sentence = visible_devices(visible).sentence(visible)
    if sentence:
        yield sentence
    yield from _libraries(files)
    if lacks_uvm(files):
        yield "/dev/nvidia-uvm is missing, which CUDA needs"
    if files.wsl and not files.dxg:
        yield "this is WSL without /dev/dxg: it shows no GPU to Linux"
    yield from map(str, shadows)


def _libraries(files: Files) -> Iterator[str]:
    skewed = skew(files)
    if skewed:
        yield skewed
    for library in files.libraries:
        if library.foreign:
            yield f"{library.path} is for another machine ({library.foreign})"
    libraries = files.own
    if len(libraries) > 1:
        listed = ", ".join(map(str, libraries))
        yield f"the loader can reach several libcuda.so.1, and takes the first: {listed}"
    if libraries and libraries[0].is_compat:
        yield _compat(libraries)
    if any(library.by == "LD_PRELOAD" for library in libraries):
        yield "LD_PRELOAD brings libcuda.so.1 into every process"


def _compat(libraries: Sequence[Library]) -> str:
    hidden = f", in front of {libraries[1].path}" if len(libraries) > 1 else ""
    return f"{libraries[0].path} is a forward-compatibility library{hidden}"


def with_pollution(state: DeviceState, files: Files, shadows: Sequence[Shadow]) -> DeviceState:
    """Adds to a state that is not ready what stands in front of torch's and the driver's libraries.

    Nothing says that this is the cause; it is what a person must know besides.
    """
    if state.is_ready():
        return state
    found = list(map(str, shadows))
    steps = []
    if shadows:
        steps.append(f"take {', '.join(shadow.folder for shadow in shadows)} out of {_SEARCH}")
    first = files.own[0] if files.own else None
    if first is not None and first.is_compat and str(first) not in state.reason:
        found.append(_compat(files.own))
        place = f"the {first.by}" if first.by == CACHE else first.by
        steps.append(f"take {os.path.dirname(first.path)} out of {place}")
    if not found:
        return state
    return replace(
        state,
        reason=f"{state.reason}; besides, {'; '.join(found)}",
        next_step="; ".join(filter(None, [state.next_step, *steps])),
    )


def skew(files: Files) -> str:
    """Library and kernel module of different releases, in words, ``""`` if they agree."""
    release = files.own[0].release if files.own else None
    if release is None or files.module_version is None or release == files.module_version:
        return ""
    return f"libcuda is {release}, the kernel module {files.module_version}"


def lacks_uvm(files: Files) -> bool:
    """Whether the device of unified memory is missing beside NVIDIA's others."""
    return "nvidiactl" in files.nodes and "nvidia-uvm" not in files.nodes
