"""Two wheels that should be one: what differs is found, and named by its cause."""

from __future__ import annotations

import json
import struct
import zipfile
from pathlib import Path

import pytest

from wheelfab.reproduce.causes import Cause, Finding, Words, name_causes
from wheelfab.reproduce.compare import Difference, compare_wheels

FIRST = Words(folder="/srv/x/a", names=("nodea", "user1"))
SECOND = Words(folder="/home/y/other place", names=("nodeb", "user2"))
NOW = (2024, 5, 6, 7, 8, 10)


def pack(
    path: Path,
    members: dict[str, bytes],
    *,
    time: tuple[int, int, int, int, int, int] = NOW,
    mode: int = 0o644,
    level: int = 6,
) -> Path:
    """An archive of ``members`` in their order."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=level) as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name, time)
            info.external_attr = mode << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data, compresslevel=level)
    return path


def causes(folder: Path, one: bytes, other: bytes, name: str = "demo/x.so") -> tuple[Finding, ...]:
    """The findings on a member that is ``one`` in the first wheel and ``other`` in the second."""
    first = pack(folder / "first.whl", {name: one})
    second = pack(folder / "second.whl", {name: other})
    return name_causes(compare_wheels(first, second), FIRST, SECOND)


def library(build_id: bytes, text: bytes = b"some text of it") -> bytes:
    """An ELF file with a build id and a text, by hand."""
    names = b"\0.note.gnu.build-id\0.rodata\0.shstrtab\0"
    at = 64
    bodies = (build_id, text, names)
    offsets = []
    content = b""
    for body in bodies:
        offsets.append(at + len(content))
        content += body
    headers = bytes(64)
    for name, kind, offset, body in zip((1, 20, 28), (7, 1, 3), offsets, bodies, strict=True):
        headers += struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, offset, len(body), 0, 0, 1, 0)
    start = at + len(content)
    header = b"\x7fELF\x02\x01\x01" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, start, 0, 64, 56, 0, 64, 4, 3)
    return header + content + headers


def test_equal_wheels_have_no_difference(tmp_path: Path) -> None:
    wheel = pack(tmp_path / "x.whl", {"a": b"1", "b": b"2"})
    assert compare_wheels(wheel, wheel) == Difference(
        members=(), only_first=(), only_second=(), reordered=False, packed=True
    )


@pytest.mark.parametrize(
    ("one", "other", "cause"),
    [
        (b"\0/srv/x/a/csrc/x.c\0", b"\0/home/y/other place/csrc/x.c\0", Cause.PATH),
        (
            b"\0/srv/x/a/build/work/12-ab/cmake/x.c\0",
            b"\0/home/y/other place/build/work/34-cd/cmake/x.c\0",
            Cause.PATH,
        ),
        (b"\0from /srv/ab12/x.c\0", b"\0from /srv/cd34/x.c\0", Cause.PATH),
        (b"\0made 2024-05-06 07:08:09\0", b"\0made 2024-05-06 07:08:55\0", Cause.TIME),
        (b"\0made on May  6 2024\0", b"\0made on May  7 2024\0", Cause.TIME),
        (b"\0epoch=1700000000\0", b"\0epoch=1700000123\0", Cause.TIME),
        (b"\0built by user1\0", b"\0built by user2\0", Cause.USER),
        (b"\0host is nodea\0", b"\0host is nodeb\0", Cause.USER),
        (b"\0GCC: (Debian 12.2.0-14) 12.2.0\0", b"\0GCC: (GNU) 13.1.0\0", Cause.COMPILER),
        (
            b"\0_GLOBAL__N__0a1b2c3d_4_k_cu_9f8e7d6c\0",
            b"\0_GLOBAL__N__ffeeddcc_4_k_cu_11223344\0",
            Cause.MODULE_ID,
        ),
        (
            b"\0tmpxft_00001a2b_00000000\0",
            b"\0tmpxft_00001a2c_00000000\0",
            Cause.MODULE_ID,
        ),
        (b"\0first name\0other name\0", b"\0other name\0first name\0", Cause.ORDER),
        (b"\1\2\3\4", b"\4\3\2\1", Cause.ORDER),
        (b"\0answer 42 of it\0", b"\0answer 43 of it\0", Cause.UNKNOWN),
        (b"\1\2\3\4", b"\1\2\3\5", Cause.UNKNOWN),
    ],
)
def test_b64_each_cause_has_its_name(
    tmp_path: Path, one: bytes, other: bytes, cause: Cause
) -> None:
    (finding,) = causes(tmp_path, one, other)
    assert (finding.cause, finding.where) == (cause, "demo/x.so")


def test_a_build_id_alone_is_called_so(tmp_path: Path) -> None:
    (finding,) = causes(tmp_path, library(b"\1" * 20), library(b"\2" * 20))
    assert finding.cause is Cause.BUILD_ID


def test_a_build_id_that_follows_from_a_text_is_not(tmp_path: Path) -> None:
    one = library(b"\1" * 20, b"/srv/x/a/k.c")
    other = library(b"\2" * 20, b"/srv/x/b/k.c")
    (finding,) = causes(tmp_path, one, other)
    assert finding.cause is Cause.PATH


def test_two_causes_in_one_file_are_both_named(tmp_path: Path) -> None:
    one = b"\0/srv/x/a/csrc/x.c\0made 07:08:09 today\0"
    other = b"\0/home/y/other place/csrc/x.c\0made 07:08:10 today\0"
    found = {finding.cause: finding for finding in causes(tmp_path, one, other)}
    assert set(found) == {Cause.PATH, Cause.TIME}
    assert found[Cause.PATH].second == "/home/y/other place/csrc/x.c"


def test_b65_what_the_archive_says_of_its_members(tmp_path: Path) -> None:
    plain = pack(tmp_path / "plain.whl", {"a": b"1", "b": b"2"})
    later = pack(tmp_path / "later.whl", {"a": b"1", "b": b"2"}, time=(2025, 1, 1, 0, 0, 0))
    private = pack(tmp_path / "private.whl", {"a": b"1", "b": b"2"}, mode=0o600)
    turned = pack(tmp_path / "turned.whl", {"b": b"2", "a": b"1"})
    less = pack(tmp_path / "less.whl", {"a": b"1"})
    found = {
        other.stem: name_causes(compare_wheels(plain, other), FIRST, SECOND)
        for other in (later, private, turned, less)
    }
    assert {name: {item.cause for item in items} for name, items in found.items()} == {
        "later": {Cause.TIME},
        "private": {Cause.MODE},
        "turned": {Cause.ORDER},
        "less": {Cause.FILES},
    }
    assert (found["private"][0].first, found["private"][0].second) == ("644", "600")
    assert found["less"][0] == Finding(cause=Cause.FILES, where="b", first="there", second="absent")


def test_equal_members_packed_by_another_zlib(tmp_path: Path) -> None:
    data = bytes(range(256)) * 400
    one = pack(tmp_path / "one.whl", {"a": data}, level=1)
    other = pack(tmp_path / "other.whl", {"a": data}, level=9)
    (finding,) = name_causes(compare_wheels(one, other), FIRST, SECOND)
    assert finding.cause is Cause.PACKING


@pytest.mark.parametrize(
    ("change", "cause", "where"),
    [
        ({"compilers": {"host": {"version": "13"}}}, Cause.COMPILER, "compilers.host"),
        ({"torch": {"sha256": "b"}}, Cause.INPUT, "torch"),
        ({"tools": {"cmake": "5"}}, Cause.INPUT, "tools"),
        ({"commit": "b"}, Cause.INPUT, "commit"),
        ({}, Cause.INPUT, "plan"),
    ],
)
def test_the_record_tells_inputs_and_compilers(
    tmp_path: Path, change: dict[str, object], cause: Cause, where: str
) -> None:
    one = {
        "compilers": {"host": {"version": "12"}},
        "torch": {"sha256": "a"},
        "tools": {"cmake": "4"},
        "commit": "a",
        "plan": "1",
    }
    other = {**one, **change, "plan": "2"}
    (finding,) = causes(
        tmp_path, json.dumps(one).encode(), json.dumps(other).encode(), "demo/_build.json"
    )
    assert (finding.cause, finding.where) == (cause, f"demo/_build.json: {where}")


def test_what_only_follows_is_left_out(tmp_path: Path) -> None:
    one = {"demo/x.so": b"\0/srv/x/a/csrc/x.c\0", "demo-1.dist-info/RECORD": b"sha256=1"}
    other = {"demo/x.so": b"\0/srv/x/b/csrc/x.c\0", "demo-1.dist-info/RECORD": b"sha256=2"}
    first, second = pack(tmp_path / "first.whl", one), pack(tmp_path / "second.whl", other)
    found = name_causes(compare_wheels(first, second), FIRST, SECOND)
    assert [finding.where for finding in found] == ["demo/x.so"]
