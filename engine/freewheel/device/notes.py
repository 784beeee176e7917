"""Findings that do not decide a state: what files and environment say besides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from freewheel.device.answer import Answer
from freewheel.device.files import Files
from freewheel.device.record import Asked
from freewheel.device.shadows import Shadow
from freewheel.device.visible import visible_devices


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
        hidden = f", in front of {libraries[1].path}" if len(libraries) > 1 else ""
        yield f"{libraries[0].path} is a forward-compatibility library{hidden}"
    if any(library.by == "LD_PRELOAD" for library in libraries):
        yield "LD_PRELOAD brings libcuda.so.1 into every process"


def skew(files: Files) -> str:
    """Library and kernel module of different releases, in words, ``""`` if they agree."""
    release = files.own[0].release if files.own else None
    if release is None or files.module_version is None or release == files.module_version:
        return ""
    return f"libcuda is {release}, the kernel module {files.module_version}"


def lacks_uvm(files: Files) -> bool:
    """Whether the device of unified memory is missing beside NVIDIA's others."""
    return "nvidiactl" in files.nodes and "nvidia-uvm" not in files.nodes
