"""A thousand damaged wheels: the audit ends with a report each time, and never calls damage good.

Each mutation carries its oracle. A changed byte that RECORD covers must fail; elsewhere the report
equals the original's, or fails.

Where RECORD is written anew over the damage, the wheel is another one. Then size and digest of the
damaged member are those of its bytes, all facts of the other members are as before, and of the
damaged one only facts may differ that are read from the damaged part: pyelftools tells which
section a byte lies in, ``READ_FROM`` what is read from that section. A library that cannot be read
any more has a finding. What the text files say is read a second time here, line by line, and a
wheel passes only where they still say what the file's name and the device code say.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import struct
import zipfile
import zlib
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from elftools.elf.elffile import ELFFile
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from tests.factory.elfmaker import FLAGS, OFFSET, SIZE, TYPE, make_library, with_field
from tests.factory.imagemaker import with_images
from tests.factory.wheelmaker import Recipe, make_cell
from wheelfab.audit import Audit, Verdict, audit
from wheelfab.audit.summary import LibrarySummary
from wheelfab.manifest import Member, format_manifest

CELL = "cu121-torch2.4"
VERSION = "0.1.0+cu121.torch2.4"
FILE = Recipe(version=VERSION).file
INFO = Recipe(version=VERSION).dist_info
RECORD = f"{INFO}/RECORD"
LIBRARY = "freewheel/_kernels.so"
EXTENSION = "freewheel/_C.abi3.so"
BUILD = "freewheel/_build.json"
METADATA, WHEEL = f"{INFO}/METADATA", f"{INFO}/WHEEL"
EXAMPLES = {
    "archive": 350,
    "content": 200,
    "record": 100,
    "resealed": 150,
    "aimed": 100,
    "fields": 100,
}
seen: dict[str, int] = dict.fromkeys(EXAMPLES, 0)

# What is read from a part of an ELF file: facts of the library, each by the beginning of its name.
NAMES = {"soname", "needed", "link.run_path", "link.versions", "link.policy"}
COUNTS = {"link.driver_symbols", "link.runtime_symbols"}
READ_FROM: dict[str, set[str]] = {
    "the header": {""},
    "the segments": {"link.", *NAMES},
    "the sections": {"link.", "device"},
    ".shstrtab": {"link.", "device"},
    ".dynsym": {"link.undefined", "link.defined", "link.policy", *COUNTS},
    ".dynstr": NAMES | COUNTS,
    ".dynamic": {"link.relro", "link.text_relocations", "link.initialisers", *NAMES},
    ".gnu.version": set(),
    ".gnu.version_r": {"link.versions", "link.policy"},
    ".rodata": {"link.paths"},
    ".comment": {"link.compilers"},
    ".symtab": set(),
    ".strtab": set(),
    ".nv_fatbin": {"device"},
}
# Facts of the wheel, each with the facts of a library that it follows from.
FOLLOWS = {
    "kind": {"needed", "device"},
    "gpus": {"device"},
    "device_bytes": {"device"},
    "torch": {"needed", "link.undefined", "link.driver_symbols"},
}


class Change(StrEnum):
    """What is done to the bytes."""

    FLIP = "flip"
    ZERO = "zero"
    ONES = "ones"
    CUT = "cut"
    INSERT = "insert"
    SWAP = "swap"
    NUMBER = "number"  # a count, size or offset made huge


@dataclass(frozen=True, kw_only=True)
class Mutation:
    """A change at ``at`` thousandths of thousandths of the bytes, of ``size`` bytes."""

    change: Change
    at: int
    size: int

    def offset(self, length: int) -> int:
        """Where it is, in ``length`` bytes."""
        return self.at * length // 1_000_000

    def apply(self, data: bytes) -> bytes:
        """The bytes afterwards."""
        at = self.offset(len(data))
        end = min(at + self.size, len(data))
        old, rest = data[at:end], data[end:]
        new = {
            Change.FLIP: bytes(byte ^ 1 << (self.size % 8) for byte in old[:1]) + old[1:],
            Change.ZERO: bytes(len(old)),
            Change.ONES: b"\xff" * len(old),
            Change.CUT: b"",
            Change.INSERT: bytes(range(self.size)) + old,
            Change.SWAP: old[::-1],
            Change.NUMBER: struct.pack("<Q", 1 << (self.at % 64))[: len(old)].ljust(
                len(old), b"\0"
            ),
        }[self.change]
        return data[:at] + new + rest


MUTATIONS = st.builds(
    Mutation,
    change=st.sampled_from(Change),
    at=st.integers(0, 999_999),
    size=st.integers(1, 40),
)


def thorough(name: str) -> settings:
    """Settings of one of the tests: so many examples, always the same, a minute for each."""
    return settings(
        max_examples=EXAMPLES[name],
        derandomize=True,
        database=None,
        deadline=timedelta(seconds=60),
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=[HealthCheck.too_slow],
    )


@cache
def original() -> tuple[bytes, dict[str, bytes]]:
    """A good wheel with libraries, device code and a build record: its bytes, and its members'."""
    notes = {".rodata": b"/usr/include/x.h\0some words\0" * 4, ".comment": b"GCC: (GNU) 13\0"}
    elf = make_library(
        needed=("libc.so.6", "libtorch_cpu.so"),
        soname="_kernels.so",
        defined=("fw_run", "fw_more"),
        undefined=("aoti_torch_empty_strided",),
        local=("helper", "_ZL21TORCH_LIBRARY_init_fwRN5torch7LibraryE"),
        sections=notes,
        relro=True,
    )
    extension = make_library(
        needed=("libc.so.6",),
        undefined=("PyModule_Create2",),
        versioned={"memcpy": ("libc.so.6", "GLIBC_2.14"), "puts": ("libc.so.6", "GLIBC_2.2.5")},
        sections=notes,
        local=("helper",),
        relro=True,
    )
    files = {
        LIBRARY: with_images(elf, ["80", "86", "89", "90", "90+PTX"]),
        EXTENSION: extension,
        "freewheel/ops.py": b"import torch\n" * 20,
    }
    with TemporaryDirectory() as folder:
        data = make_cell(
            Path(folder), CELL, files=files, requires_dist=("torch>=2.2",)
        ).read_bytes()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return data, {info.filename: archive.read(info) for info in archive.infolist()}


def report(data: bytes) -> Audit:
    """The audit of a wheel of these bytes, without what only says which file it was."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / FILE
        path.write_bytes(data)
        return dataclasses.replace(audit(path), sha256="", size=0, seconds=0.0)


@cache
def right() -> Audit:
    """The report of the good wheel."""
    return report(original()[0])


def unpacked(found: Audit) -> Audit:
    """The report without the sizes that another packer changes."""
    if found.facts is None:
        return found
    largest = tuple(
        sorted(
            (dataclasses.replace(one, packed=0, size=0) for one in found.facts.largest),
            key=lambda one: one.name,
        )
    )
    facts = dataclasses.replace(found.facts, largest=largest, unpacked=0)
    return dataclasses.replace(found, facts=facts)


def packed(members: dict[str, bytes]) -> bytes:
    """A sound archive of these members."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return file.getvalue()


def resealed(members: dict[str, bytes]) -> dict[str, bytes]:
    """The members with a RECORD that fits them."""
    digests = {
        name: Member(digest=hashlib.sha256(content).digest(), size=len(content))
        for name, content in members.items()
        if name != RECORD
    }
    return members | {RECORD: format_manifest(digests, INFO)}


@cache
def packed_places() -> dict[str, range]:
    """Where in the file the packed bytes of each member lie."""
    data, _ = original()
    places = {}
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for info in archive.infolist():
            name, extra = struct.unpack_from("<HH", data, info.header_offset + 26)
            start = info.header_offset + 30 + name + extra
            places[info.filename] = range(start, start + info.compress_size)
    return places


def is_covered(damaged: bytes) -> bool:
    """Whether a member now unpacks to other bytes, or not at all.

    Asked of zlib alone, for a file of the original's length. The last byte of a packed member can
    have bits that mean nothing; RECORD, and the checksum for RECORD itself, hold what is unpacked.
    """
    data, members = original()
    for name, place in packed_places().items():
        piece = damaged[place.start : place.stop]
        if piece == data[place.start : place.stop]:
            continue
        unpacker = zlib.decompressobj(-15)
        try:
            if unpacker.decompress(piece) + unpacker.flush() != members[name]:
                return True
        except zlib.error:
            return True
    return False


def test_the_wheel_that_is_damaged_is_a_good_one() -> None:
    assert right().verdict is Verdict.PASS
    assert right().findings == ()
    assert right().facts is not None
    assert unpacked(report(packed(original()[1]))) == unpacked(right())


@thorough("archive")
@given(MUTATIONS)
def test_damage_anywhere_in_the_file(mutation: Mutation) -> None:
    seen["archive"] += 1
    data, _ = original()
    damaged = mutation.apply(data)
    found = report(damaged)
    if len(damaged) == len(data) and is_covered(damaged):
        assert found.verdict is Verdict.FAIL
    else:
        assert found == right() or found.verdict is Verdict.FAIL


@thorough("content")
@given(st.sampled_from(sorted(original()[1])), MUTATIONS)
def test_damage_to_a_file_that_record_lists(name: str, mutation: Mutation) -> None:
    seen["content"] += 1
    members = original()[1]
    damaged = mutation.apply(members[name])
    found = report(packed(members | {name: damaged}))
    if name == RECORD or damaged == members[name]:
        assert unpacked(found) == unpacked(right()) or found.verdict is Verdict.FAIL
    else:
        assert found.verdict is Verdict.FAIL
        assert {"record-hash"} & {one.rule for one in found.findings}


@thorough("record")
@given(MUTATIONS)
def test_damage_to_record(mutation: Mutation) -> None:
    seen["record"] += 1
    members = original()[1]
    found = report(packed(members | {RECORD: mutation.apply(members[RECORD])}))
    assert unpacked(found) == unpacked(right()) or found.verdict is Verdict.FAIL


def parts(elf: bytes) -> list[tuple[str, range]]:
    """The parts of an ELF file, by pyelftools; what is in none is padding."""
    file = ELFFile(io.BytesIO(elf))
    segments, sections = file["e_phoff"], file["e_shoff"]
    found = [
        ("the header", range(64)),
        ("the segments", range(segments, segments + 56 * file["e_phnum"])),
        ("the sections", range(sections, sections + 64 * file["e_shnum"])),
    ]
    places = [(one.name, one["sh_offset"], one["sh_size"]) for one in file.iter_sections()]
    return [*found, *((name, range(at, at + size)) for name, at, size in places[1:])]


def damaged_parts(old: bytes, new: bytes) -> set[str]:
    """The parts with a byte that is another; after a cut or more bytes, all that follows."""
    changed = [at for at, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]]
    if len(old) != len(new):
        first = min((*changed, len(old), len(new)))
        return {name for name, place in parts(old) if place.stop > first}
    return {name for name, place in parts(old) if any(at in place for at in changed)}


def flat(library: LibrarySummary) -> dict[str, object]:
    """The facts of a library by name, ``link.relro``, without its size and digest."""
    facts = dataclasses.asdict(library)
    for part in ("link", "device"):
        values = facts.pop(part) or {}
        facts |= {f"{part}.{name}": value for name, value in values.items()}
    return {name: value for name, value in facts.items() if name not in ("size", "sha256")}


def differing(old: LibrarySummary, new: LibrarySummary) -> set[str]:
    """The names of the facts in which the two differ."""
    before, after = flat(old), flat(new)
    return {name for name in before | after if before.get(name) != after.get(name)}


def keeps_the_other_facts(
    found: Audit, members: dict[str, bytes], name: str, others: set[str]
) -> None:
    """Want the facts of all members but ``name`` as they were, and those of the wheel's.

    But for ``others``, which may follow from the damage.
    """
    old, new = right().facts, found.facts
    assert old is not None
    assert new is not None
    assert new.unpacked == sum(map(len, members.values()))
    sizes = {one.name: one.size for one in new.largest}
    assert sizes == {one: len(content) for one, content in members.items()}
    rest = [[one for one in facts.libraries if one.name != name] for facts in (old, new)]
    assert rest[0] == rest[1]
    apart = {"libraries", "largest", "unpacked", *others}
    fields = {field.name for field in dataclasses.fields(old)} - apart
    changed = {field for field in fields if getattr(old, field) != getattr(new, field)}
    assert changed == set()


def holds_for_a_library(found: Audit, members: dict[str, bytes], name: str) -> None:
    """Want that of a damaged library nothing else differs than what is read from the damage."""
    old, new = original()[1][name], members[name]
    assert found.facts is not None
    libraries = {one.name: one for one in found.facts.libraries}
    assert (name in libraries) == new.startswith(b"\x7fELF")
    library = libraries.get(name)
    about = {one.rule for one in found.findings if one.subject == name}
    if library is None or library.problem:
        assert library is None or "elf-readable" in about
        keeps_the_other_facts(found, members, name, set(FOLLOWS))
        return
    assert (library.size, library.sha256) == (len(new), hashlib.sha256(new).hexdigest())
    (before,) = (one for one in right().facts.libraries if one.name == name)  # type: ignore[union-attr]
    may = set[str]().union(*(READ_FROM[part] for part in damaged_parts(old, new)))
    changed = differing(before, library)
    assert {one for one in changed if not one.startswith(tuple(may))} == set()
    follows = {
        fact
        for fact, sources in FOLLOWS.items()
        if any(one.startswith(tuple(may)) for one in sources)
    }
    keeps_the_other_facts(found, members, name, follows)


def values(text: bytes, field: str) -> list[str]:
    """The values of a field, line by line; case does not count."""
    lines = text.decode("utf-8", "replace").split("\n")
    pairs = [line.partition(":") for line in lines]
    return [value.strip() for name, _, value in pairs if name.lower() == field.lower()]


def is_version(text: str) -> bool:
    """Whether it is the wheel's version, however written."""
    try:
        return Version(text) == Version(VERSION)
    except InvalidVersion:
        return False


def requirements(text: bytes) -> set[str]:
    """What is required, where it can be read."""
    found = set()
    for value in values(text, "Requires-Dist"):
        try:
            found.add(str(Requirement(value)))
        except InvalidRequirement:
            continue
    return found


def holds_for_metadata(found: Audit, members: dict[str, bytes]) -> None:
    """Want what METADATA says, and a failure where it says another name or version."""
    text = members[METADATA]
    keeps_the_other_facts(found, members, METADATA, {"requires_python", "requires_dist", "torch"})
    assert found.facts is not None
    assert set(found.facts.requires_dist) <= requirements(text)
    names = {canonicalize_name(one) for one in values(text, "Name")}
    if names != {"freewheel"} or not all(map(is_version, values(text, "Version"))):
        assert found.verdict is Verdict.FAIL


def holds_for_wheel(found: Audit, members: dict[str, bytes]) -> None:
    """Want a failure where WHEEL has other tags, and else what was there."""
    keeps_the_other_facts(found, members, WHEEL, set())
    before, after = (
        {one.lower() for one in values(text, "Tag")}
        for text in (original()[1][WHEEL], members[WHEEL])
    )
    assert before == after or found.verdict is Verdict.FAIL
    assert found.verdict is Verdict.FAIL or found.findings == right().findings


def holds_for_build_record(found: Audit, members: dict[str, bytes]) -> None:
    """Want that a wheel passes only if its record is one and claims the archs that are there."""
    keeps_the_other_facts(found, members, BUILD, set())
    try:
        record = json.loads(members[BUILD])
    except ValueError:
        record = None
    if not isinstance(record, dict) or not is_version(str(record.get("version"))):
        assert found.verdict is Verdict.FAIL
        return
    archs, right_ones = record.get("archs"), json.loads(original()[1][BUILD])["archs"]
    if isinstance(archs, list) and all(isinstance(one, str) for one in archs):
        assert archs == right_ones or found.verdict is not Verdict.PASS


def holds(members: dict[str, bytes], name: str) -> None:
    """Want of a wheel with one damaged member, and a RECORD that fits it, what is due."""
    members = resealed(members)
    found = report(packed(members))
    if members[name] == original()[1][name]:
        assert unpacked(found) == unpacked(right())
    elif name == METADATA:
        holds_for_metadata(found, members)
    elif name == WHEEL:
        holds_for_wheel(found, members)
    elif name == BUILD:
        holds_for_build_record(found, members)
    else:
        holds_for_a_library(found, members, name)


@thorough("resealed")
@given(
    st.sampled_from([LIBRARY, EXTENSION, METADATA, WHEEL, BUILD]),
    st.lists(MUTATIONS, min_size=1, max_size=3),
)
def test_damage_that_record_was_made_to_fit(name: str, mutations: list[Mutation]) -> None:
    seen["resealed"] += 1
    members = original()[1]
    content = members[name]
    for mutation in mutations:
        content = mutation.apply(content)
    holds(members | {name: content}, name)


@thorough("aimed")
@given(
    st.sampled_from([LIBRARY, EXTENSION]),
    st.integers(0, 999),
    MUTATIONS,
)
def test_damage_to_a_part_of_a_library(name: str, number: int, mutation: Mutation) -> None:
    """The parts of a library are hit equally often, however small they are."""
    seen["aimed"] += 1
    members = original()[1]
    content = members[name]
    _, place = parts(content)[number % len(parts(content))]
    piece = content[place.start : place.stop]
    damaged = content[: place.start] + mutation.apply(piece) + content[place.stop :]
    holds(members | {name: damaged}, name)


@thorough("fields")
@given(
    st.sampled_from([LIBRARY, EXTENSION]),
    st.integers(0, 999),
    st.sampled_from([TYPE, FLAGS, OFFSET, SIZE]),
    st.sampled_from([0, 4, 8, 1 << 30, 1 << 31, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]),
)
def test_damage_to_where_a_section_lies(
    name: str, number: int, field: tuple[int, str], value: int
) -> None:
    seen["fields"] += 1
    members = original()[1]
    sections = [part for part, _ in parts(members[name]) if part.startswith(".")]
    section = sections[number % len(sections)]
    most = (1 << 8 * struct.calcsize(field[1])) - 1
    damaged = with_field(members[name], section, field, min(value, most))
    holds(members | {name: damaged}, name)


def test_there_were_a_thousand() -> None:
    if not any(seen.values()):
        pytest.skip("counts the examples of the tests above, which were not run")
    assert {name: count >= EXAMPLES[name] for name, count in seen.items()} == dict.fromkeys(
        EXAMPLES, True
    )
    assert sum(seen.values()) >= 1000
