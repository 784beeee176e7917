"""Device code of one file: its images with their kernels, each image read and let go of."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from wheelfab.ahead import ahead
from wheelfab.arch import Arch
from wheelfab.cubin import MACHINE, KernelFacts, read_cubin
from wheelfab.elf import Elf
from wheelfab.errors import FormatError
from wheelfab.fatbin import Compression, Entry, ImageKind, entries_of, expand, kernel_facts, kernels

_LARGEST = 128 << 20  # of an image that is expanded in memory
_MOST = 8 << 30  # bytes expanded of one file; torch 2.4.1 has 3.8 GB
_RATIO, _RATIO_FROM = 200, 1 << 20  # expanded : stored, of larger images; real ones reach 62


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    """One image; ``kernels`` by name, ``None`` for those of PTX, which takes no registers yet.

    ``problem`` says why the kernels were not read; there are none then.
    """

    entry: Entry
    kernels: Mapping[str, KernelFacts | None]
    problem: str = ""

    @property
    def target(self) -> str:
        """As an arch list writes it: ``9.0a``, ``9.0+PTX``."""
        return self.entry.target


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceFacts:
    """The device code of one file; ``problem`` where its containers cannot be read."""

    images: tuple[Image, ...] = ()
    problem: str = ""

    @property
    def targets(self) -> tuple[str, ...]:
        """The distinct targets that a driver would load, sorted."""
        return tuple(sorted({one.target for one in self.images if one.entry.loadable}))

    def containers(self) -> Iterator[tuple[Image, ...]]:
        """The images of each container: one compiled file, for all its archs."""
        groups: dict[tuple[str, int], list[Image]] = {}
        for image in self.images:
            groups.setdefault((image.entry.section, image.entry.container), []).append(image)
        yield from map(tuple, groups.values())

    def bytes_by_target(self) -> dict[str, int]:
        """What the images of each target take in the file, in bytes."""
        sizes: dict[str, int] = {}
        for image in self.images:
            sizes[image.target] = sizes.get(image.target, 0) + image.entry.stored
        return dict(sorted(sizes.items()))


def read_device(path: Path, elf: Elf) -> DeviceFacts:
    """The device code of the ELF file ``path``; never raises for what is in it."""
    try:
        if elf.machine == MACHINE:
            size = path.stat().st_size
            if size > _LARGEST:
                return DeviceFacts(problem=f"a cubin of {size} bytes")
            return read_bare(path.read_bytes(), path.name)
        entries = entries_of(path)
    except FormatError as error:
        return DeviceFacts(problem=error.what)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return DeviceFacts(images=tuple(_images(descriptor, entries)))
    finally:
        os.close(descriptor)


def archs_of(device: DeviceFacts) -> tuple[Arch, ...]:
    """The loadable targets as archs."""
    return tuple(_archs_of(device.targets))


def _archs_of(targets: Iterable[str]) -> Iterator[Arch]:
    for target in targets:
        text, _, ptx = target.partition("+")
        number, suffix = (text[:-1], text[-1]) if text[-1] in "af" else (text, "")
        major, _, minor = number.partition(".")
        yield Arch(int(major), int(minor), suffix, bool(ptx))


def read_bare(cubin: bytes, where: str) -> DeviceFacts:
    """The bytes of a cubin that lies in the wheel as a file; never raises for what is in it."""
    try:
        facts = read_cubin(cubin, where)
    except FormatError as error:
        return DeviceFacts(problem=error.what)
    entry = Entry(
        section="",
        container=0,
        kind=ImageKind.CUBIN,
        arch=f"{facts.arch // 10}.{facts.arch % 10}{facts.suffix}",
        isa=None,
        compression=Compression.NONE,
        offset=0,
        stored=len(cubin),
        size=len(cubin),
        name="",
    )
    return DeviceFacts(images=(Image(entry=entry, kernels=dict(facts.kernels)),))


def _images(descriptor: int, entries: tuple[Entry, ...]) -> Iterator[Image]:
    names: dict[str, str] = {}  # a name is the same in the images of all archs: kept once
    for entry, image, problem in ahead(_expanded(descriptor, entries)):
        found, why = ({}, problem) if problem else _kernels(image, entry)
        yield Image(
            entry=entry,
            kernels={names.setdefault(name, name): facts for name, facts in found.items()},
            problem=why,
        )


def _expanded(descriptor: int, entries: tuple[Entry, ...]) -> Iterator[tuple[Entry, bytes, str]]:
    """Each image, or why there is none.

    Read by position, not mapped: pages of a mapped file would count as our memory.
    """
    left = _MOST
    for entry in entries:
        left -= entry.size
        bomb = entry.size > _RATIO_FROM and entry.size > _RATIO * entry.stored
        if entry.size > _LARGEST or left < 0 or bomb:
            yield entry, b"", f"not expanded: {entry.size} bytes"
            continue
        stored = os.pread(descriptor, entry.stored, entry.offset)
        try:
            yield entry, expand(stored, replace(entry, offset=0), where=entry.name), ""
        except FormatError as error:
            yield entry, b"", error.what


def _kernels(image: bytes, entry: Entry) -> tuple[Mapping[str, KernelFacts | None], str]:
    """The kernels of an image, or why they cannot be read."""
    try:
        if entry.kind is ImageKind.PTX:
            return dict.fromkeys(kernels(image, entry, where=entry.name)), ""
        return dict(kernel_facts(image, entry, where=entry.name)), ""
    except FormatError as error:
        return {}, error.what
