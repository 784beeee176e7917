"""Reading a release: pages of an index, members as they come, the ends of a library, the facts."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.tags import parse_tag
from packaging.version import Version

from wheelfab.atlas.index import IndexedWheel, read_page
from wheelfab.atlas.members import Part, StreamedWheel, ranged_members
from wheelfab.atlas.release import Checked
from wheelfab.atlas.take import Taken, is_wanted, take
from wheelfab.atlas.windows import keep_ends, read_ends
from wheelfab.elf import parse_elf
from wheelfab.errors import FormatError

from .atlasmaker import CORE, HEADER_KEYS, torch_members, zipped
from .elfmaker import make_library

NAME = "torch-2.4.1-cp311-cp311-manylinux_2_28_x86_64.whl"
BUILD = "torch-2.4.1-3-cp313-cp313t-manylinux1_x86_64.whl"
SHA = "ab" * 32
WHEEL = IndexedWheel(
    name=NAME,
    url="http://localhost/x",
    version=Version("2.4.1"),
    tags=parse_tag("cp311-cp311-manylinux_2_28_x86_64"),
    sha256=SHA,
)


def taken(members: dict[str, bytes]) -> Taken:
    data = zipped(members)
    return take(WHEEL, ranged_members(io.BytesIO(data), len(data), is_wanted), pythons=["cp311"])


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


def test_a_page_in_json() -> None:
    page = {
        "files": [
            {"filename": NAME, "url": f"../x/{NAME}", "hashes": {"sha256": SHA}, "size": 7},
            {"filename": BUILD, "url": f"http://other/{BUILD}", "hashes": {}, "yanked": False},
            {"filename": "y", "url": NAME.replace("2.4.1", "2.4.0"), "yanked": "broken"},
            {"filename": "torch-2.4.1.tar.gz", "url": "torch-2.4.1.tar.gz", "hashes": {}},
        ]
    }
    one, two = read_page(json.dumps(page), "application/json", "http://here/simple/torch/")
    assert (one.url, one.sha256, one.size) == (f"http://here/simple/x/{NAME}", SHA, 7)
    assert (one.pythons, one.build, one.fits("linux-x86_64")) == (frozenset({"cp311"}), (), True)
    assert (two.pythons, two.build, two.sha256) == (frozenset({"cp313t"}), (3, ""), None)
    assert not two.fits("linux-aarch64")


def test_a_page_in_html() -> None:
    local = "torch-2.4.1%2Bcu121-cp311-cp311-linux_x86_64.whl"
    page = (
        f'<a href="{local}#sha256={SHA}">x</a><a href="{NAME}" data-yanked="">y</a>'
        f'<a href="file:///{NAME}">z</a><a>w</a>'
    )
    (one,) = read_page(page, "text/html; charset=utf-8", "http://here/torch/")
    assert (str(one.version), one.sha256) == ("2.4.1+cu121", SHA)
    assert one.url == f"http://here/torch/{local}"


def test_what_is_no_page() -> None:
    with pytest.raises(FormatError, match="not a page"):
        read_page("[1]", "application/json", "http://here/")


@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(st.from_regex(r"[a-z]{1,9}", fullmatch=True), st.binary(max_size=5000)),
    st.booleans(),
    st.integers(1, 600),
)
def test_members_come_the_same_by_ranges_and_in_one_stream(
    members: dict[str, bytes],
    seekable: bool,
    size: int,
) -> None:
    data = zipped(members, seekable=seekable)
    if not members:
        return

    def read(parts: Iterable[Part]) -> dict[str, bytes]:
        return {part.name: b"".join(part.pieces) for part in parts}

    def wanted(name: str) -> bool:
        return "a" in name

    stream = StreamedWheel(pieces(data, size))
    expected = {name: content for name, content in members.items() if "a" in name}
    assert read(stream.members(wanted)) == expected
    assert read(ranged_members(io.BytesIO(data), len(data), wanted)) == expected
    assert stream.size == len(data)


def test_stored_members_in_one_stream() -> None:
    data = zipped({"a": b"x" * 3000, "b": b"y"}, method=0)
    found = [(p.name, b"".join(p.pieces)) for p in StreamedWheel([data]).members(lambda _: True)]
    assert found == [("a", b"x" * 3000), ("b", b"y")]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_damaged_stream_ends_in_an_error_or_in_what_it_was(data: st.DataObject) -> None:
    whole = zipped({"a": b"some text " * 99, "b": bytes(range(256))}, seekable=False)
    at = data.draw(st.integers(0, len(whole) - 1))
    damaged = bytearray(whole)
    damaged[at] ^= 1 << data.draw(st.integers(0, 7))
    stream = StreamedWheel([bytes(damaged)])
    try:
        found = {part.name: b"".join(part.pieces) for part in stream.members(lambda _: True)}
    except FormatError:
        return
    assert set(found.values()) <= {b"some text " * 99, bytes(range(256))}


def test_a_stream_that_breaks_off() -> None:
    data = zipped({"a": b"text" * 100})
    with pytest.raises(FormatError, match="truncated"):
        list(StreamedWheel([data[:40]]).members(lambda _: False))
    with pytest.raises(FormatError, match="truncated"):
        list(StreamedWheel([data[:-22]]).members(lambda _: False))
    with pytest.raises(FormatError, match="not a zip archive"):
        list(StreamedWheel([b"GIF89a", b"...."]).members(lambda _: False))


@settings(max_examples=80, deadline=None)
@given(st.binary(max_size=400), st.integers(0, 120), st.integers(1, 120), st.integers(1, 90))
def test_the_ends_of_a_stream_are_kept_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, head: int, tail: int, size: int
) -> None:
    path = tmp_path_factory.mktemp("ends") / "x"
    ends = keep_ends(pieces(data, size), path, head=head, tail=tail)
    kept = path.read_bytes()
    begin, end = ends.hole
    assert (ends.size, len(kept)) == (len(data), len(data))
    assert begin == min(head, len(data))
    assert kept[:begin] == data[:begin]
    assert kept[end:] == data[end:]
    assert not any(kept[begin:end])
    assert end <= max(begin, len(data) - tail)
    assert len(data) - end < tail + size


def test_a_library_is_read_by_its_ends(tmp_path: Path) -> None:
    names = [f"_ZN2at1{letter}Ev" for letter in "abc"]
    library = make_library(defined=names, needed=["libc10.so"])
    ends = keep_ends(pieces(library, 16), tmp_path / "x")
    assert read_ends(tmp_path / "x", ends, where="x") == parse_elf(library, where="x")
    ends = keep_ends(pieces(library, 16), tmp_path / "y", head=64, tail=64)
    with pytest.raises(FormatError, match="lie between the ends kept"):
        read_ends(tmp_path / "y", ends, where="y")


def test_the_facts_of_a_release() -> None:
    item = taken(torch_members())
    release = item.release
    assert (str(release.version), release.build, release.cuda) == ("2.4.1", "2.4.1+cu121", "12.1")
    assert (release.cxx11_abi, release.glibc, release.python) == (True, None, "cp311")
    assert release.archs == ("compute_90", "sm_80", "sm_90")
    assert release.dispatch == HEADER_KEYS
    assert (release.checked, release.complete, release.notes) == (Checked.MEMBERS, True, ())
    assert item.symbols == {
        "libc10.so": {CORE},
        "libtorch_cpu.so": {"_ZN2at6Tensor3addEv", "aoti_torch_new"},
        "libtorch_python.so": {"THPVariable_Wrap"},
    }
    named = {library.name: (library.needed, library.symbols) for library in release.libraries}
    assert named == {
        "libc10.so": (("libc.so.6",), 1),
        "libtorch_cpu.so": (("libc10.so",), 2),
        "libtorch_python.so": ((), 1),
        "libgomp.so.1": ((), 0),
    }


def test_a_library_that_cannot_be_read_is_said_so() -> None:
    members = torch_members()
    cpu = members["torch/lib/libtorch_cpu.so"]
    members["torch/lib/libtorch_cpu.so"] = b"\x7fELF" + bytes(len(cpu) - 4)
    item = taken(members)
    assert not item.release.complete
    assert "libtorch_cpu.so" not in item.symbols
    assert any(note.startswith("libtorch_cpu.so: ") for note in item.release.notes)
    assert "libtorch_cpu.so is not what RECORD says" in item.release.notes


def test_a_library_that_record_lists_and_the_wheel_has_not() -> None:
    members = torch_members()
    del members["torch/lib/libtorch_python.so"]
    release = taken(members).release
    assert not release.complete
    assert "libtorch_python.so was not read" in release.notes


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("torch-2.4.1.dist-info/RECORD", "no RECORD"),
        ("torch/include/c10/core/DispatchKey.h", "no DispatchKey.h"),
    ],
)
def test_what_is_absent_makes_an_entry_incomplete(name: str, words: str) -> None:
    members = torch_members()
    del members[name]
    release = taken(members).release
    assert not release.complete
    assert any(words in note for note in release.notes)


def test_a_wheel_of_another_release() -> None:
    with pytest.raises(FormatError, match=r"is torch 2\.5\.0"):
        taken(torch_members("2.5.0"))
    with pytest.raises(FormatError, match=r"no torch/version\.py"):
        taken({"x": b""})


def test_a_member_that_inflates_wrongly() -> None:
    data = bytearray(zipped(torch_members()))
    at = data.index(b"torch/version.py") + 30
    data[at] ^= 0xFF
    with pytest.raises(FormatError):
        take(WHEEL, ranged_members(io.BytesIO(bytes(data)), len(data), is_wanted), pythons=[])
