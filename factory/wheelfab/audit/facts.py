"""The facts of a wheel, read from its file alone: nothing is executed, nothing believed.

Each member is inflated once: hashed for RECORD and, where it is an ELF file, spooled to a temporary
folder that holds one member at a time.
"""

from __future__ import annotations

import hashlib
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any
from zipfile import ZipFile, ZipInfo

from packaging.metadata import Metadata, parse_email
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename

from wheelfab.ahead import ahead
from wheelfab.archive import (
    LIMITS,
    Flaw,
    FlawKind,
    Limits,
    open_archive,
    read_member,
)
from wheelfab.audit.library import LibraryFacts, cubin_header, read_cubin_file, read_library
from wheelfab.elf import MAGIC
from wheelfab.errors import FormatError, InfrastructureError
from wheelfab.inflate import pieces
from wheelfab.records import file_digest
from wheelfab.wheel import wheel_flaws
from wheelfab.wheelrules import (
    NameFacts,
    dist_infos,
    is_comparable,
    parse_name,
    read_build_record,
)

NEWER_FIELD = "introduced in metadata version"  # packaging's words
_RELEASE = re.compile(r"[1-9]\d?\.\d{1,2}(\.\d{1,4})?", re.ASCII)  # of CUDA, by a build record
_UNSOUND = frozenset(
    {
        FlawKind.NOT_A_ZIP,
        FlawKind.TRUNCATED,
        FlawKind.OVER_LIMIT,
        FlawKind.BAD_PATH,
        FlawKind.DUPLICATE,
        FlawKind.LINK,
        FlawKind.HEADER,
        FlawKind.UNREADABLE,
        FlawKind.DAMAGED,
        FlawKind.STRAY_BYTES,
    }
)


@dataclass(frozen=True, kw_only=True, slots=True)
class MemberFacts:
    """A file in the archive; ``size`` unpacked and ``packed``, in bytes."""

    name: str
    size: int
    packed: int


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelFacts:
    """All that the rules may look at. ``size`` of the file in bytes, ``sha256`` of the file.

    Where ``sound`` is false the archive cannot be trusted and only ``flaws`` and what is above it
    is there. ``name``, ``metadata`` and ``build`` are ``None`` where they cannot be read; a flaw
    says why (``build`` also where the wheel has no ``_build.json``). Of ``build`` only what has the
    form of wheelfab's own record is kept: another project's file may bear that name.
    ``requires_dist`` has what can be read of METADATA's requirements even where METADATA as a whole
    is not valid.
    """

    path: Path
    sha256: str
    size: int
    python: Path | None  # what loads the libraries under --deep; None: nothing is loaded
    flaws: tuple[Flaw, ...]
    sound: bool
    members: tuple[MemberFacts, ...] = ()
    name: NameFacts | None = None
    dist_info: str | None = None
    metadata: Metadata | None = None
    requires_dist: tuple[Requirement, ...] = ()
    metadata_bytes: bytes = b""
    wheel_bytes: bytes = b""  # of dist-info/WHEEL
    build: Mapping[str, Any] | None = None
    libraries: tuple[LibraryFacts, ...] = ()

    @property
    def file(self) -> str:
        """The file's name."""
        return self.path.name


def read_facts(path: Path, *, python: Path | None = None, limits: Limits = LIMITS) -> WheelFacts:
    """The facts of the wheel in ``path``; what is wrong with the archive is among them.

    With ``python`` also those that take longer than seconds. Raises ``WheelError`` where there is
    no such file.
    """
    with TemporaryDirectory(prefix="wheelfab-audit-") as folder:
        reader = _Reader(Path(folder), deep=python is not None)
        flaws = wheel_flaws(path, limits=limits, digest=reader.digest)
    facts = WheelFacts(
        path=path,
        sha256=file_digest(path),
        size=path.stat().st_size,
        python=python,
        flaws=flaws,
        sound=not any(flaw.kind in _UNSOUND for flaw in flaws),
    )
    if not facts.sound:
        return facts
    return _with_contents(facts, tuple(reader.libraries))


def _with_contents(facts: WheelFacts, libraries: tuple[LibraryFacts, ...]) -> WheelFacts:
    with open_archive(facts.path) as archive:
        folders = dist_infos(archive)
        folder = folders[0] if len(folders) == 1 else None
        metadata = _bytes(archive, f"{folder}/METADATA")
        return replace(
            facts,
            members=tuple(_member(info) for info in archive.infolist() if not info.is_dir()),
            name=_name(facts.file),
            dist_info=folder,
            metadata=_metadata(metadata),
            requires_dist=tuple(_requirements(metadata)),
            metadata_bytes=metadata,
            wheel_bytes=_bytes(archive, f"{folder}/WHEEL"),
            build=_build(archive),
            libraries=libraries,
        )


def _member(info: ZipInfo) -> MemberFacts:
    return MemberFacts(name=info.filename, size=info.file_size, packed=info.compress_size)


def _name(file: str) -> NameFacts | None:
    try:
        return parse_name(file)
    except InvalidWheelFilename:
        return None


def _bytes(archive: ZipFile, name: str) -> bytes:
    try:
        return read_member(archive, name) if name in archive.namelist() else b""
    except FormatError:
        return b""


def _metadata(data: bytes) -> Metadata | None:
    """METADATA where it is valid, but for fields that its own version does not know yet."""
    try:
        return Metadata.from_email(data) if data else None
    except ExceptionGroup as group:
        early = all(NEWER_FIELD in str(error) for error in group.exceptions)
        return Metadata.from_email(data, validate=False) if early else None
    except ValueError:  # a version with a number of thousands of digits
        return None


def _requirements(metadata: bytes) -> Iterator[Requirement]:
    for text in parse_email(metadata)[0].get("requires_dist", []):
        with suppress(InvalidRequirement):
            need = Requirement(text)
            if is_comparable(need):
                yield need


def _build(archive: ZipFile) -> Mapping[str, Any] | None:
    try:
        record = read_build_record(archive)
    except FormatError:
        return None
    if record is None:
        return None
    return {key: value for key, value in record.items() if _has_form(key, value)}


def _has_form(key: str, value: object) -> bool:
    """Whether a value of a build record is of the form that the rules read."""
    match key:
        case "cuda":
            return value is None or (isinstance(value, str) and bool(_RELEASE.fullmatch(value)))
        case "archs":
            return isinstance(value, list) and all(isinstance(one, str) for one in value)
        case "torch":
            return isinstance(value, dict)
    return True


class _Reader:
    """Digests members for RECORD and, on the way, takes the facts of those that are ELF files."""

    def __init__(self, folder: Path, *, deep: bool) -> None:
        self.folder = folder
        self.deep = deep
        self.libraries: list[LibraryFacts] = []

    def digest(self, archive: ZipFile, member: ZipInfo, algorithm: str) -> bytes:
        """The digest of a member; raises ``FormatError`` where it cannot be unpacked."""
        spool = self.folder / "member"
        try:
            read = _unpack(archive, member, algorithm, spool)
            if read.elf:
                facts = LibraryFacts(
                    name=member.filename,
                    size=member.file_size,
                    sha256=read.sha256,
                    executable=bool(member.external_attr >> 16 & stat.S_IXUSR),
                )
                self.libraries.append(
                    read_cubin_file(facts, read.whole)
                    if read.whole
                    else read_library(facts, spool, deep=self.deep)
                )
        finally:
            spool.unlink(missing_ok=True)
        return read.digest


@dataclass(frozen=True, kw_only=True, slots=True)
class _Unpacked:
    """``digest`` by the algorithm asked for. Of an ELF file ``sha256`` too, and it is spooled.

    Unless it is a small cubin, of which ``whole`` has the bytes: wheels hold thousands of them.
    """

    digest: bytes
    elf: bool
    sha256: str
    whole: bytes = b""


def _unpack(archive: ZipFile, member: ZipInfo, algorithm: str, spool: Path) -> _Unpacked:
    """A member unpacked once, for all that is wanted of it."""
    sha = hashlib.new(algorithm)
    own = sha if algorithm == "sha256" else hashlib.sha256()
    stream = pieces(archive, member)
    first = next(stream, b"")
    elf, small = first.startswith(MAGIC), len(first) == member.file_size
    whole = first if elf and small and cubin_header(first) else b""
    with spool.open("wb") if elf and not whole else nullcontext() as copy:
        for piece in chain((first,), stream if small else ahead(stream)):
            sha.update(piece)
            if elf and own is not sha:
                own.update(piece)
            if copy is not None:
                _write(copy, piece)
    return _Unpacked(digest=sha.digest(), elf=elf, sha256=own.hexdigest(), whole=whole)


def _write(copy: IO[bytes], piece: bytes) -> None:
    try:
        copy.write(piece)
    except OSError as error:
        raise InfrastructureError(
            f"a member cannot be spooled: {error.strerror}",
            where=str(copy.name),
            next_step="set TMPDIR to a folder with more room",
        ) from error
