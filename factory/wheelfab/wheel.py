"""A wheel: what its file says, checked against what is in it."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from zipfile import ZipFile, ZipInfo

from packaging.metadata import Metadata
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import Tag
from packaging.utils import canonicalize_name
from packaging.version import Version

from wheelfab.archive import (
    LIMITS,
    Flaw,
    FlawKind,
    Limits,
    NewMember,
    digest_member,
    layout_flaws,
    open_archive,
    read_member,
    write_archive,
)
from wheelfab.errors import FormatError, WheelError
from wheelfab.manifest import Member, format_manifest
from wheelfab.records import aside, file_digest
from wheelfab.wheelrules import (
    Digest,
    content_flaws,
    dist_infos,
    fact_flaws,
    parse_name,
    read_build_record,
)

_NEXT_STEP = "build it again; a wheel is never renamed or edited after it was built"

_Rules = Callable[[ZipFile, str], Iterator[Flaw]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Wheel:
    """A wheel file: the facts of its name and METADATA, its bytes' digest and size.

    ``metadata`` is METADATA byte for byte; ``build`` is the content of the package's
    ``_build.json``, ``None`` for a wheel that has none.
    """

    path: Path
    name: str
    version: Version
    build_tag: str
    tags: frozenset[Tag]
    requires_dist: tuple[Requirement, ...]
    requires_python: SpecifierSet | None
    sha256: str
    size: int
    metadata: bytes
    files: tuple[str, ...]
    build: Mapping[str, Any] | None

    @property
    def file(self) -> str:
        """The file's name."""
        return self.path.name

    @property
    def local(self) -> str | None:
        """The local part of the version: ``cu121.torch2.4``."""
        return self.version.local

    def requirement(self, name: str) -> Requirement | None:
        """What METADATA requires of distribution ``name`` on every platform."""
        for need in self.requires_dist:
            if canonicalize_name(need.name) == name and need.marker is None:
                return need
        return None


def read_wheel(path: Path) -> Wheel:
    """The facts of the wheel in ``path``.

    Raises ``WheelError`` with everything that stands in the way of reading them. Hashes, RECORD
    and tags are not compared here: ``verify_wheel`` does that.
    """
    _raise(path, _flaws(path, path.name, fact_flaws))
    name = parse_name(path.name)
    with open_archive(path) as archive:
        data = read_member(archive, f"{dist_infos(archive)[0]}/METADATA")
        metadata = Metadata.from_email(data)
        return Wheel(
            path=path,
            name=name.name,
            version=name.version,
            build_tag=name.build_tag,
            tags=name.tags,
            requires_dist=tuple(metadata.requires_dist or ()),
            requires_python=metadata.requires_python,
            sha256=file_digest(path),
            size=path.stat().st_size,
            metadata=data,
            files=tuple(sorted(info.filename for info in _files(archive))),
            build=read_build_record(archive),
        )


def verify_wheel(path: Path) -> Wheel:
    """Check everything about the wheel in ``path`` and return it.

    Raises ``WheelError`` that lists every flaw at once.
    """
    _raise(path, wheel_flaws(path))
    return read_wheel(path)


def wheel_flaws(
    path: Path,
    *,
    name: str | None = None,
    limits: Limits = LIMITS,
    digest: Digest = digest_member,
) -> tuple[Flaw, ...]:
    """Everything that is wrong with the wheel in ``path``; empty for a sound one.

    ``name`` is the file name that it will have, where that is not its present one. ``digest`` is
    called once for each file of an archive that is sound, and may look at its bytes on the way.
    """
    rules = partial(content_flaws, digest=digest)
    return _flaws(path, name or path.name, rules, limits)


def _flaws(path: Path, name: str, rules: _Rules, limits: Limits = LIMITS) -> tuple[Flaw, ...]:
    """What is wrong with the archive's directory or, if that is sound, by ``rules``."""
    if not path.is_file():
        raise WheelError(
            "there is no such file", where=str(path), next_step="check its name, or build it"
        )
    try:
        with open_archive(path) as archive:
            unsound = layout_flaws(archive, path.stat().st_size, limits)
            return tuple(unsound) or _apply(rules, archive, name)
    except FormatError as error:
        kind = FlawKind.TRUNCATED if error.what.startswith("truncated") else FlawKind.NOT_A_ZIP
        return (Flaw(kind=kind, where="", what=error.what),)


def _apply(rules: _Rules, archive: ZipFile, name: str) -> tuple[Flaw, ...]:
    try:
        return tuple(rules(archive, name))
    except FormatError as error:  # a member that the rules need cannot be read
        return (Flaw(kind=FlawKind.DAMAGED, where=error.where, what=error.what),)


def _raise(path: Path, flaws: tuple[Flaw, ...]) -> None:
    if len(flaws) == 1:
        raise WheelError(str(flaws[0]), where=str(path), next_step=_NEXT_STEP)
    if flaws:
        lines = "".join(f"\n  {flaw}" for flaw in flaws)
        raise WheelError(f"{len(flaws)} flaws:{lines}", where=str(path), next_step=_NEXT_STEP)


def _files(archive: ZipFile) -> list[ZipInfo]:
    return [info for info in archive.infolist() if not info.is_dir()]


def repack(
    source: Path, target: Path, epoch: int, *, extra: Mapping[str, bytes] | None = None
) -> Wheel:
    """Write the wheel ``source`` to ``target`` so that its bytes depend on its content alone.

    Members sorted with dist-info last and RECORD at the very end, one time (``epoch``, seconds),
    modes 644 and 755, one compression, RECORD written anew. ``target`` has the name that the wheel
    will bear; it appears whole and verified, or not at all. ``extra`` files are put into the
    dist-info folder, by their paths there.

    Raises ``WheelError`` when ``source`` cannot be read or the result is not sound.
    """
    unsound = _flaws(source, target.name, fact_flaws)
    _raise(source, unsound)
    with open_archive(source) as archive, aside(target) as part:
        folder = dist_infos(archive)[0]
        infos = {info.filename: info for info in _files(archive)}
        for signed in ("RECORD", "RECORD.jws", "RECORD.p7s"):
            infos.pop(f"{folder}/{signed}", None)
        added = {f"{folder}/{name}": content for name, content in (extra or {}).items()}
        digests = {
            name: Member(digest=digest_member(archive, info), size=info.file_size)
            for name, info in infos.items()
            if name not in added
        }
        for name, content in added.items():
            digests[name] = Member(digest=hashlib.sha256(content).digest(), size=len(content))
        record = NewMember(name=f"{folder}/RECORD", content=format_manifest(digests, folder))
        names = sorted(digests, key=lambda name: (name.startswith(f"{folder}/"), name))
        members = [
            NewMember(name=name, content=added[name]) if name in added else _copied(infos[name])
            for name in names
        ]
        with part.open("wb") as file:
            write_archive(file, [*members, record], epoch, source=archive)
        _raise(target, wheel_flaws(part, name=target.name))
    return read_wheel(target)


def _copied(info: ZipInfo) -> NewMember:
    executable = bool(info.external_attr >> 16 & (stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH))
    return NewMember(name=info.filename, content=info, executable=executable)
