"""The rules of the wheel format: what must agree inside one archive, and with the file's name."""

from __future__ import annotations

import email
import email.message
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from zipfile import ZipFile, ZipInfo

from packaging.metadata import InvalidMetadata, Metadata
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import InvalidTag, Tag, parse_tag
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from wheelfab.archive import Flaw, FlawKind, digest_member, read_member
from wheelfab.errors import FormatError
from wheelfab.manifest import Entry, Member, manifest_flaws, parse_manifest

_BUILD_RECORD = re.compile(r"[^/]+/_build\.json")
_LIBRARY = re.compile(r"\.so(\.\d+)*$")
_LONG_NUMBER = re.compile(r"\d{1000}")  # packaging converts each; Python refuses 4300 digits
_MOST_TAGS = 10_000  # that the lines of WHEEL stand for
_LIBRARY_SUFFIX = re.compile(r"\.(?:cpython-(?P<cpython>\d+[a-z]*)|(?P<abi3>abi3))[^./]*\.so$")

Digest = Callable[[ZipFile, ZipInfo, str], bytes]


@dataclass(frozen=True, kw_only=True, slots=True)
class NameFacts:
    """What a wheel's file name says."""

    name: str
    version: Version
    build_tag: str
    tags: frozenset[Tag]


def parse_name(file: str) -> NameFacts:
    """The parts of a wheel's file name; raises ``InvalidWheelFilename``."""
    name, version, build, tags = parse_wheel_filename(file)
    build_tag = "".join(str(part) for part in build)
    return NameFacts(name=name, version=version, build_tag=build_tag, tags=tags)


def dist_infos(archive: ZipFile) -> list[str]:
    """The ``*.dist-info`` folders at the top of the archive; a wheel has exactly one."""
    tops = {name.partition("/")[0] for name in archive.namelist() if "/" in name}
    return sorted(top for top in tops if top.endswith(".dist-info"))


def read_build_record(archive: ZipFile) -> Mapping[str, Any] | None:
    """The content of the package's ``_build.json``, ``None`` where there is none.

    Raises ``FormatError`` when there are two, or it is not a JSON object.
    """
    found = [name for name in archive.namelist() if _BUILD_RECORD.fullmatch(name)]
    if not found:
        return None
    if len(found) > 1:
        raise FormatError(f"more than one build record: {', '.join(found)}", where=found[0])
    try:
        value = json.loads(read_member(archive, found[0]))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"is not JSON: {error}", where=found[0]) from error
    if not isinstance(value, dict):
        raise FormatError("is not a JSON object", where=found[0])
    return value


def is_comparable(requirement: Requirement | SpecifierSet) -> bool:
    """Whether versions can be held against it: not with a number of a thousand digits."""
    return not _LONG_NUMBER.search(str(requirement))


def fact_flaws(archive: ZipFile, file: str) -> Iterator[Flaw]:
    """What is wrong with name, dist-info folder, METADATA and build record."""
    try:
        name = parse_name(file)
    except InvalidWheelFilename as error:
        yield Flaw(kind=FlawKind.FILE_NAME, where="", what=str(error))
        return
    folders = dist_infos(archive)
    if len(folders) != 1:
        what = f"{len(folders)} dist-info folders, not one: {', '.join(folders) or 'none'}"
        yield Flaw(kind=FlawKind.DIST_INFO, where="", what=what)
        return
    yield from _folder_flaws(folders[0], ".dist-info", name)
    tops = {entry.partition("/")[0] for entry in archive.namelist()}
    for top in sorted(top for top in tops if top.endswith(".data")):
        yield from _folder_flaws(top, ".data", name)
    yield from _metadata_flaws(archive, folders[0], name)
    yield from _build_flaws(archive, name)


def content_flaws(archive: ZipFile, file: str, digest: Digest = digest_member) -> Iterator[Flaw]:
    """All flaws: bytes that cannot be unpacked, else facts, tags, RECORD and libraries.

    ``digest`` is called once for each file and may look at its bytes on the way.
    """
    folders = dist_infos(archive)
    where = f"{folders[0]}/RECORD" if len(folders) == 1 else ""
    entries: tuple[Entry, ...] = ()
    form: list[Flaw] = []
    has_record = where in archive.namelist()
    if has_record:
        entries, form = parse_manifest(read_member(archive, where), where)
    members, damaged = _digest_all(archive, entries, digest)
    if damaged:
        yield from damaged
        return
    yield from fact_flaws(archive, file)
    if not where:
        return
    if has_record:
        yield from form
        if entries:
            yield from manifest_flaws(entries, members, folders[0])
    else:
        yield Flaw(kind=FlawKind.RECORD, where=where, what="is missing")
    yield from _tag_flaws(archive, folders[0], file)


def _digest_all(
    archive: ZipFile, entries: tuple[Entry, ...], digest: Digest
) -> tuple[dict[str, Member], list[Flaw]]:
    algorithms = {entry.path: entry.algorithm for entry in entries}
    members: dict[str, Member] = {}
    damaged: list[Flaw] = []
    for info in archive.infolist():
        if info.is_dir():
            continue
        try:
            found = digest(archive, info, algorithms.get(info.filename, "sha256"))
        except FormatError as error:
            damaged.append(Flaw(kind=FlawKind.DAMAGED, where=error.where, what=error.what))
            continue
        members[info.filename] = Member(digest=found, size=info.file_size)
    return members, damaged


def _folder_flaws(folder: str, suffix: str, name: NameFacts) -> Iterator[Flaw]:
    distribution, _, version = folder.removesuffix(suffix).partition("-")
    if canonicalize_name(distribution) != name.name:
        what = f"is a folder of {distribution!r}, the file name says {name.name!r}"
        yield Flaw(kind=FlawKind.NAME, where=folder, what=what)
    yield from _version_flaws(version, folder, name)


def _version_flaws(version: str, where: str, name: NameFacts) -> Iterator[Flaw]:
    try:
        same = Version(version) == name.version
    except ValueError:  # no version, or one with a number of thousands of digits
        same = False
    if not same:
        what = f"says version {version[:100]!r}, the file name says {str(name.version)!r}"
        yield Flaw(kind=FlawKind.VERSION, where=where, what=what)


def _metadata_flaws(archive: ZipFile, folder: str, name: NameFacts) -> Iterator[Flaw]:
    where = f"{folder}/METADATA"
    if where not in archive.namelist():
        yield Flaw(kind=FlawKind.METADATA, where=where, what="is missing")
        return
    try:
        metadata = Metadata.from_email(read_member(archive, where))
    except ExceptionGroup as group:
        for error in group.exceptions:
            field = f"{error.field}: " if isinstance(error, InvalidMetadata) else ""
            yield Flaw(kind=FlawKind.METADATA, where=where, what=f"{field}{error}")
        return
    except ValueError as error:  # a version with a number of thousands of digits
        yield Flaw(kind=FlawKind.METADATA, where=where, what=f"version: {error}")
        return
    for need in (*(metadata.requires_dist or ()), *filter(None, (metadata.requires_python,))):
        if not is_comparable(need):
            what = f"a number of over a thousand digits: {str(need)[:60]}"
            yield Flaw(kind=FlawKind.METADATA, where=where, what=what)
    if canonicalize_name(metadata.name) != name.name:
        what = f"says name {metadata.name!r}, the file name says {name.name!r}"
        yield Flaw(kind=FlawKind.NAME, where=where, what=what)
    yield from _version_flaws(str(metadata.version), where, name)


def _build_flaws(archive: ZipFile, name: NameFacts) -> Iterator[Flaw]:
    try:
        record = read_build_record(archive)
    except FormatError as error:
        yield Flaw(kind=FlawKind.BUILD_RECORD, where=error.where, what=error.what)
        return
    if record is not None:
        yield from _version_flaws(str(record.get("version")), "_build.json", name)


def _tag_flaws(archive: ZipFile, folder: str, file: str) -> Iterator[Flaw]:
    where = f"{folder}/WHEEL"
    if where not in archive.namelist():
        yield Flaw(kind=FlawKind.WHEEL_FILE, where=where, what="is missing")
        return
    try:
        name = parse_name(file)
    except InvalidWheelFilename:
        return  # told by fact_flaws
    fields = email.message_from_bytes(read_member(archive, where))
    yield from _wheel_field_flaws(fields, where, name)
    texts = [str(text) for text in fields.get_all("Tag", [])]
    if (count := sum(map(_tag_count, texts))) > _MOST_TAGS:
        what = f"{count} tags, over {_MOST_TAGS}"
        yield Flaw(kind=FlawKind.WHEEL_FILE, where=where, what=what)
        return
    for text in texts:
        if not _tag_set(text):
            yield Flaw(kind=FlawKind.WHEEL_FILE, where=where, what=f"Tag {text!r} is not a tag")
    said = frozenset[Tag]().union(*(_tag_set(text) for text in texts))
    if said != name.tags:
        what = f"says tags {_tags(said)}, the file name says {_tags(name.tags)}"
        yield Flaw(kind=FlawKind.TAG, where=where, what=what)
    pure = str(fields.get("Root-Is-Purelib")).lower() == "true"
    yield from _library_flaws(archive, name.tags, pure=pure)


def _tag_count(text: str) -> int:
    """How many tags a compressed tag stands for."""
    return math.prod(part.count(".") + 1 for part in text.split("-"))


def _tag_set(text: str) -> frozenset[Tag]:
    """The tags that a compressed tag stands for; none where it is no tag."""
    try:
        return parse_tag(text)
    except InvalidTag:
        return frozenset()


def _wheel_field_flaws(
    fields: email.message.Message, where: str, name: NameFacts
) -> Iterator[Flaw]:
    version = str(fields.get("Wheel-Version"))
    if version.partition(".")[0] != "1":
        what = f"Wheel-Version is {version!r}, not 1.x"
        yield Flaw(kind=FlawKind.WHEEL_FILE, where=where, what=what)
    pure = str(fields.get("Root-Is-Purelib")).lower()
    if pure not in ("true", "false"):
        what = f"Root-Is-Purelib is {pure!r}, not true or false"
        yield Flaw(kind=FlawKind.WHEEL_FILE, where=where, what=what)
    if (build := str(fields.get("Build", ""))) != name.build_tag:
        what = f"says build {build!r}, the file name says {name.build_tag!r}"
        yield Flaw(kind=FlawKind.TAG, where=where, what=what)


def _library_flaws(archive: ZipFile, tags: frozenset[Tag], *, pure: bool) -> Iterator[Flaw]:
    libraries = [name for name in archive.namelist() if _LIBRARY.search(name)]
    platforms = {tag.platform for tag in tags}
    for library in libraries:
        if pure or "any" in platforms:
            what = "a shared library in a wheel for any platform"
            yield Flaw(kind=FlawKind.LIBRARY_TAG, where=library, what=what)
        if (suffix := _LIBRARY_SUFFIX.search(library)) and not _fits(suffix, tags):
            what = f"no Python of the wheel's tags {_tags(tags)} looks for this suffix"
            yield Flaw(kind=FlawKind.LIBRARY_TAG, where=library, what=what)


def _fits(suffix: re.Match[str], tags: frozenset[Tag]) -> bool:
    """Whether every Python that ``tags`` promise finds a library of this suffix."""
    if suffix["abi3"]:
        return all(tag.interpreter.startswith("cp") for tag in tags)
    return all(tag.abi == f"cp{suffix['cpython']}" for tag in tags)


def _tags(tags: frozenset[Tag]) -> str:
    return ", ".join(sorted(str(tag) for tag in tags)) or "none"
