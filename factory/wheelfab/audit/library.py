"""Facts of one ELF file of a wheel, taken from a spooled copy that is gone afterwards."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from wheelfab.atlas import NO_KEYS, Keys, Kind, kind_of, read_keys
from wheelfab.audit.device import DeviceFacts, read_bare, read_device
from wheelfab.audit.instructions import Instructions, read_instructions
from wheelfab.audit.traces import Traces, read_traces
from wheelfab.cubin import MACHINE
from wheelfab.elf import Elf, mapped, read_elf
from wheelfab.errors import FormatError

HEADER_SIZE = 64  # of an ELF file, in bytes
_NO_CODE, _NO_TRACES = DeviceFacts(), Traces()


@dataclass(frozen=True, kw_only=True, slots=True)
class LibraryFacts:
    """A shared library or program in a wheel. ``size`` in bytes, ``sha256`` of its content.

    ``elf`` is ``None`` where the file cannot be read, and ``problem`` then says why. A cubin that
    lies in the wheel as a file is one of these, too: it is an ELF file for another machine.
    """

    name: str  # of the member
    size: int
    sha256: str
    executable: bool  # the archive gives it an exec bit
    elf: Elf | None = None
    problem: str = ""
    device: DeviceFacts = _NO_CODE
    traces: Traces = _NO_TRACES
    keys: Keys = NO_KEYS  # of the dispatcher, that it registers kernels under
    instructions: Instructions | None = None  # with --deep alone

    @property
    def host(self) -> Elf | None:
        """The ELF facts of what a loader of this machine loads: of anything but a cubin."""
        return self.elf if self.elf is not None and self.elf.machine != MACHINE else None

    @property
    def file(self) -> str:
        """The name without its folders."""
        return self.name.rpartition("/")[2]


def read_library(facts: LibraryFacts, spool: Path, *, deep: bool) -> LibraryFacts:
    """``facts`` with those of the ELF file in ``spool``; never raises for what is in the file."""
    try:
        with spool.open("rb") as file:
            elf = cubin_header(file.read(HEADER_SIZE)) or read_elf(spool)
        facts = replace(facts, elf=elf, device=read_device(spool, elf))
        if elf.machine == MACHINE:
            return facts
        facts = replace(facts, traces=read_traces(spool, elf))
        facts = replace(facts, keys=_keys(spool, elf))
        return replace(facts, instructions=read_instructions(spool, elf) if deep else None)
    except FormatError as error:
        return replace(facts, problem=error.what)


def read_cubin_file(facts: LibraryFacts, cubin: bytes) -> LibraryFacts:
    """``facts`` with those of the cubin whose bytes are at hand; never raises for what is there."""
    return replace(facts, elf=cubin_header(cubin), device=read_bare(cubin, facts.name))


def _keys(path: Path, elf: Elf) -> Keys:
    if kind_of(symbol.name for symbol in elf.undefined) is not Kind.CLASSIC:
        return NO_KEYS
    with mapped(path) as data:
        return read_keys(data, elf)


def cubin_header(head: bytes) -> Elf | None:
    """The header of a cubin, without the rest; ``None`` of anything else. Wheels hold thousands."""
    if len(head) < HEADER_SIZE or int.from_bytes(head[18:20], "little") != MACHINE:
        return None
    return Elf(
        machine=MACHINE,
        type=int.from_bytes(head[16:18], "little"),
        abi_version=head[8],
        flags=int.from_bytes(head[48:52], "little"),
        soname=None,
        needed=(),
        rpath=None,
        runpath=None,
        executable_stack=False,
        sections=(),
        defined=(),
        undefined=(),
        version_needs={},
    )
