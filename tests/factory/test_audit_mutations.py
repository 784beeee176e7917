"""A thousand damaged wheels: the audit ends with a report each time, and never calls damage good.

Each mutation carries its oracle. A changed byte that RECORD covers must fail; elsewhere the report
equals the original's, or fails. Where RECORD is written anew over the damage, the wheel is another
one and the report may say anything, but there must be one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
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
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.factory.elfmaker import make_library
from tests.factory.imagemaker import with_images
from tests.factory.wheelmaker import Recipe, make_cell
from wheelfab.audit import Audit, Verdict, audit
from wheelfab.manifest import Member, format_manifest

CELL = "cu121-torch2.4"
VERSION = "0.1.0+cu121.torch2.4"
FILE = Recipe(version=VERSION).file
INFO = Recipe(version=VERSION).dist_info
RECORD = f"{INFO}/RECORD"
LIBRARY = "freewheel/_kernels.so"
EXTENSION = "freewheel/_C.abi3.so"
EXAMPLES = {"archive": 400, "content": 250, "record": 150, "resealed": 200}
seen: dict[str, int] = dict.fromkeys(EXAMPLES, 0)


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
    elf = make_library(
        needed=("libc.so.6", "libtorch_cpu.so"),
        soname="_kernels.so",
        defined=("fw_run", "fw_more"),
        undefined=("aoti_torch_empty_strided",),
        relro=True,
    )
    files = {
        LIBRARY: with_images(elf, ["80", "86", "89", "90", "90+PTX"]),
        EXTENSION: make_library(needed=("libc.so.6",), undefined=("PyModule_Create2",), relro=True),
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


@thorough("resealed")
@given(
    st.sampled_from([LIBRARY, LIBRARY, EXTENSION, f"{INFO}/METADATA", f"{INFO}/WHEEL"]),
    st.lists(MUTATIONS, min_size=1, max_size=3),
)
def test_damage_that_record_was_made_to_fit(name: str, mutations: list[Mutation]) -> None:
    seen["resealed"] += 1
    members = original()[1]
    content = members[name]
    for mutation in mutations:
        content = mutation.apply(content)
    found = report(packed(resealed(members | {name: content})))
    assert found.verdict in Verdict
    assert found.facts is not None


def test_there_were_a_thousand() -> None:
    if not any(seen.values()):
        pytest.skip("counts the examples of the tests above, which were not run")
    assert {name: count >= EXAMPLES[name] for name, count in seen.items()} == dict.fromkeys(
        EXAMPLES, True
    )
    assert sum(seen.values()) >= 1000
