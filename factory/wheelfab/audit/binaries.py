"""Facts of libraries for the JSON of an audit: linking, device code, what torch they load on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter

from wheelfab import facts as known
from wheelfab.arch import Arch, code_for
from wheelfab.atlas import Verdict
from wheelfab.audit.device import DeviceFacts, archs_of
from wheelfab.audit.library import LibraryFacts
from wheelfab.audit.manylinux import MACHINES, floors, kept
from wheelfab.audit.torchside import Binding, together
from wheelfab.cubin import KernelFacts
from wheelfab.elf import Elf
from wheelfab.fatbin import ImageKind

_DRIVER = re.compile(r"cu[A-Z]\w*", re.ASCII)
_RUNTIME = re.compile(r"(?:__)?cuda[A-Z]\w*", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkSummary:
    """How a library was linked. ``versions``: the newest wanted of glibc, libstdc++, its ABI.

    ``policy``: the oldest manylinux level whose symbol versions it keeps to; empty: none.
    ``driver_symbols`` (``cuInit``) and ``runtime_symbols`` (``cudaMalloc``): of the ``undefined``.
    """

    relro: str
    executable_stack: bool
    text_relocations: bool
    initialisers: int
    build_id: str
    stripped: bool
    debug: bool
    run_path: str
    versions: dict[str, str]
    policy: str
    undefined: int
    driver_symbols: int
    runtime_symbols: int
    defined: int
    paths: tuple[str, ...]
    compilers: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelSummary:
    """A kernel in a container: the ``targets`` of the images that have it, in the file's order.

    What it takes in each is in that order; registers, else bytes. PTX takes nothing yet: ``None``.
    ``loadable``: false of relocatable code, which no driver looks at.
    """

    name: str
    container: int
    loadable: bool
    targets: tuple[str, ...]
    registers: tuple[int | None, ...]
    stack: tuple[int | None, ...]
    shared: tuple[int | None, ...]
    local: tuple[int | None, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceSummary:
    """Device code of a file. ``targets`` are what a driver loads, ``bytes`` as stored, by target.

    ``ptx``: its versions with the CUDA release that writes each. ``gpus``: known capabilities with
    what runs there, ``cubin`` or ``ptx``.
    """

    targets: tuple[str, ...]
    images: int
    relocatable: int
    lto: int
    compression: tuple[str, ...]
    ptx: dict[str, str]
    bytes: dict[str, int]
    gpus: dict[str, str]
    kernels: tuple[KernelSummary, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchSummary:
    """What the wheel wants of torch. ``binding`` and ``cxx11_abi`` by library.

    ``loads``, ``fails``, ``unknown``: releases of the atlas.
    """

    binding: dict[str, str]
    cxx11_abi: dict[str, bool]
    symbols: dict[str, int]
    loads: tuple[str, ...]
    fails: tuple[str, ...]
    unknown: tuple[str, ...]


def link_summary(library: LibraryFacts) -> LinkSummary | None:
    """How a library was linked; ``None`` of a cubin or what cannot be read."""
    elf = library.host
    if elf is None:
        return None
    machine = MACHINES.get(elf.machine)
    level = kept((elf,), machine) if machine else None
    return LinkSummary(
        relro=str(elf.relro),
        executable_stack=elf.executable_stack,
        text_relocations=elf.text_relocations,
        initialisers=elf.initialisers,
        build_id=elf.build_id or "",
        stripped=elf.stripped,
        debug=elf.debug,
        run_path=elf.runpath or elf.rpath or "",
        versions=floors((elf,)),
        policy=level.name if level else "",
        undefined=len(elf.undefined),
        driver_symbols=_count(elf, _DRIVER),
        runtime_symbols=_count(elf, _RUNTIME),
        defined=len(elf.defined),
        paths=library.traces.paths,
        compilers=library.traces.compilers,
    )


def _count(elf: Elf, pattern: re.Pattern[str]) -> int:
    return sum(pattern.fullmatch(symbol.name) is not None for symbol in elf.undefined)


def device_summary(device: DeviceFacts) -> DeviceSummary | None:
    """The device code of a file; ``None`` where there is none."""
    if not device.images:
        return None
    entries = [image.entry for image in device.images]
    isas = sorted({entry.isa for entry in entries if entry.isa})
    releases = known.ptx_releases()
    return DeviceSummary(
        targets=device.targets,
        images=len(entries),
        relocatable=sum(not entry.loadable for entry in entries),
        lto=sum(entry.kind is ImageKind.LTO for entry in entries),
        compression=tuple(sorted({str(entry.compression) for entry in entries})),
        ptx={f"{isa[0]}.{isa[1]}": str(releases.get(isa, "")) for isa in isas},
        bytes=device.bytes_by_target(),
        gpus=_gpus(archs_of(device)),
        kernels=tuple(_kernels(device)),
    )


@lru_cache(maxsize=256)
def _gpus(archs: tuple[Arch, ...]) -> dict[str, str]:
    found = {}
    for capability in known.gpus():
        major, _, minor = capability.partition(".")
        code = code_for(archs, (int(major), int(minor)))
        if code is not None:
            found[capability] = str(code)
    return found


def gpu_names(devices: Iterable[DeviceFacts]) -> dict[str, str]:
    """The GPUs that something of the device code runs on: capability to names."""
    covered = {one for device in devices for one in _gpus(archs_of(device))}
    return {
        capability: f"{gpu.architecture}: {', '.join(gpu.examples)}"
        for capability, gpu in known.gpus().items()
        if capability in covered
    }


def _kernels(device: DeviceFacts) -> Iterator[KernelSummary]:
    for number, images in enumerate(device.containers()):
        found: dict[tuple[str, bool], list[tuple[str, KernelFacts | None]]] = {}
        for image in images:
            for name, facts in image.kernels.items():
                found.setdefault((name, image.entry.loadable), []).append((image.target, facts))
        for (name, loadable), each in sorted(found.items(), key=itemgetter(0)):
            takes = [facts for _, facts in each]
            yield KernelSummary(
                name=name,
                container=number,
                loadable=loadable,
                targets=tuple(target for target, _ in each),
                registers=tuple(None if one is None else one.registers for one in takes),
                stack=tuple(None if one is None else one.stack for one in takes),
                shared=tuple(None if one is None else one.shared for one in takes),
                local=tuple(None if one is None else one.local for one in takes),
            )


def torch_summary(found: tuple[Binding, ...]) -> TorchSummary | None:
    """What the wheel wants of torch; ``None`` where it wants nothing."""
    if not found:
        return None
    rows = together(found)
    by_verdict = {
        verdict: tuple(str(row.release.version) for row in rows if row.verdict is verdict)
        for verdict in Verdict
    }
    return TorchSummary(
        binding={one.name: str(one.kind) for one in found},
        cxx11_abi={one.name: one.cxx11_abi for one in found if one.cxx11_abi is not None},
        symbols={one.name: len(one.undefined) for one in found},
        loads=by_verdict[Verdict.LOADS],
        fails=by_verdict[Verdict.FAILS],
        unknown=by_verdict[Verdict.UNKNOWN],
    )
