"""Facts of one ELF file of a wheel, taken from a spooled copy that is gone afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from wheelfab.atlas import NO_KEYS, Keys, Kind, kind_of, read_keys
from wheelfab.audit.device import DeviceFacts, read_device
from wheelfab.audit.instructions import Instructions, read_instructions
from wheelfab.audit.traces import Traces, read_traces
from wheelfab.cubin import MACHINE
from wheelfab.elf import Elf, mapped, read_elf
from wheelfab.errors import FormatError

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
    elf: Elf | None
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Spooled:
    """A member's bytes in a temporary file."""

    path: Path
    name: str
    size: int
    sha256: str
    executable: bool


def read_library(spooled: Spooled, *, deep: bool) -> LibraryFacts:
    """The facts of the ELF file in ``spooled``; never raises for what is in the file."""
    elf, problem = None, ""
    device, traces, keys = _NO_CODE, _NO_TRACES, NO_KEYS
    instructions: Instructions | None = None
    try:
        elf = _cubin(spooled.path) or read_elf(spooled.path)
        device = read_device(spooled.path, elf)
        if elf.machine != MACHINE:
            traces = read_traces(spooled.path, elf)
            keys = _keys(spooled.path, elf)
            instructions = read_instructions(spooled.path, elf) if deep else None
    except FormatError as error:
        problem = error.what
    return LibraryFacts(
        name=spooled.name,
        size=spooled.size,
        sha256=spooled.sha256,
        executable=spooled.executable,
        elf=elf,
        problem=problem,
        device=device,
        traces=traces,
        keys=keys,
        instructions=instructions,
    )


def _keys(path: Path, elf: Elf) -> Keys:
    if kind_of(symbol.name for symbol in elf.undefined) is not Kind.CLASSIC:
        return NO_KEYS
    with mapped(path) as data:
        return read_keys(data, elf)


def _cubin(path: Path) -> Elf | None:
    """The header of a cubin, without the rest; ``None`` of anything else. Wheels hold thousands."""
    with path.open("rb") as file:
        head = file.read(64)
    if len(head) < 64 or int.from_bytes(head[18:20], "little") != MACHINE:
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
