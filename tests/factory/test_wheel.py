"""Wheels: facts are read rightly, each defect has its own finding, repacking is canonical."""

from __future__ import annotations

import io
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tests.factory.wheelmaker import CP310_ABI3, build_record, cut, flip, make_cell, make_wheel
from wheelfab.archive import FlawKind, Limits
from wheelfab.errors import WheelError
from wheelfab.manifest import encode_digest, parse_manifest
from wheelfab.records import file_digest
from wheelfab.wheel import read_wheel, repack, verify_wheel, wheel_flaws

INFO = "freewheel-0.1.0+cu121.torch2.4.dist-info"
K = FlawKind


def kinds(path: Path) -> list[FlawKind]:
    """The kinds of flaws of a wheel, in order."""
    return [flaw.kind for flaw in wheel_flaws(path)]


def test_facts_of_a_good_wheel(tmp_path: Path) -> None:
    path = make_cell(tmp_path, "cu121-torch2.4")
    wheel = verify_wheel(path)
    assert wheel.name == "freewheel"
    assert wheel.version == Version("0.1.0+cu121.torch2.4")
    assert wheel.local == "cu121.torch2.4"
    assert {str(tag) for tag in wheel.tags} == {CP310_ABI3}
    assert str(wheel.requirement("torch")) == "torch<2.5,>=2.4.1"
    assert wheel.requirement("numpy") is None
    assert wheel.requires_python == SpecifierSet(">=3.10")
    assert (wheel.sha256, wheel.size) == (file_digest(path), path.stat().st_size)
    with zipfile.ZipFile(path) as archive:
        assert wheel.metadata == archive.read(f"{INFO}/METADATA")
        assert wheel.files == tuple(sorted(archive.namelist()))
    assert wheel.build is not None
    assert wheel.build["cell"] == "cu121-torch2.4"


@pytest.mark.parametrize("offset", [1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
def test_a_member_that_lies_outside_the_file_has_no_header(offset: int, tmp_path: Path) -> None:
    path = make_wheel(tmp_path)
    with zipfile.ZipFile(path) as archive:
        last = archive.infolist()[-1].filename.encode()
    data = bytearray(path.read_bytes())
    entry, end = data.rindex(last) - 46, data.rindex(b"PK\5\6")
    struct.pack_into("<I", data, entry + 42, 0xFFFFFFFF)  # it stands in the ZIP64 field
    struct.pack_into("<H", data, entry + 30, 12)
    (size,) = struct.unpack_from("<I", data, end + 12)
    struct.pack_into("<I", data, end + 12, size + 12)
    data[end:end] = struct.pack("<HHQ", 1, 8, offset)
    path.write_bytes(data)
    found = {flaw.what for flaw in wheel_flaws(path) if flaw.kind is K.HEADER}
    assert "has no header where the list says" in found


def test_a_wheel_without_build_record_has_none(tmp_path: Path) -> None:
    assert read_wheel(make_wheel(tmp_path)).build is None


def test_a_wheel_of_several_tags_and_a_build_number_is_read(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, tag="cp310-abi3-manylinux_2_27_x86_64.manylinux_2_28_x86_64")
    assert len(verify_wheel(path).tags) == 2
    numbered = make_wheel(tmp_path, tag=f"1a-{CP310_ABI3}", wheel_tag=CP310_ABI3)
    assert kinds(numbered) == [K.TAG]  # WHEEL does not say the build number
    assert read_wheel(numbered).build_tag == "1a"


INIT = "freewheel/__init__.py"
RIGHT = ("sha256=" + "A" * 43, "24")
EMPTY = "sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"  # of no bytes
OTHER_BUILD = build_record("cu121-torch2.4", "0.1.0")
DEFECTS: list[tuple[str, dict[str, Any], list[FlawKind]]] = [
    ("B11: METADATA without local version", {"metadata_version": "0.1.0"}, [K.VERSION]),
    ("B11: dist-info of another version", {"folder_version": "0.1.0"}, [K.VERSION]),
    ("B11: build record of another version", {"build": OTHER_BUILD}, [K.VERSION]),
    ("another name in METADATA", {"metadata_name": "other"}, [K.NAME]),
    ("METADATA with an unknown field value", {"extra_metadata": "Dynamic: Name\n"}, [K.METADATA]),
    (
        "METADATA with two faults",
        {"requires_dist": ("torch=2",), "metadata_version": "x y"},
        [K.METADATA, K.METADATA],
    ),
    ("no METADATA", {"omit": ("METADATA",)}, [K.METADATA]),
    ("no WHEEL", {"omit": ("WHEEL",)}, [K.WHEEL_FILE]),
    ("no RECORD", {"omit": ("RECORD",)}, [K.RECORD]),
    ("WHEEL of another tag", {"wheel_tag": "cp311-abi3-linux_x86_64"}, [K.TAG]),
    ("B56: wrong hash", {"record_edit": {INIT: ("sha256=" + "A" * 43, "37")}}, [K.HASH]),
    ("B56: no hash", {"record_edit": {INIT: ("", "37")}}, [K.HASH_FORM]),
    ("B56: md5", {"record_edit": {INIT: ("md5=AAAAAAAAAAAAAAAAAAAAAA", "37")}}, [K.HASH_FORM]),
    (
        "B56: hex instead of base64",
        {"record_edit": {INIT: ("sha256=" + "0" * 64, "37")}},
        [K.HASH_FORM],
    ),
    ("B56: padded hashes", {"padded": True}, [K.HASH_FORM] * 3),
    ("B56: file without row", {"unrecorded": {"freewheel/x.py": b""}}, [K.UNRECORDED]),
    ("B56: row without file", {"record_lines": (f"freewheel/gone.py,{RIGHT[0]},1",)}, [K.ABSENT]),
    ("B56: row twice", {"record_lines": (f"{INFO}/RECORD,,",)}, [K.RECORD_DUPLICATE]),
    ("B56: row of two columns", {"record_lines": ("a,b",)}, [K.RECORD]),
    ("B56: row left out", {"drop_rows": (INIT,)}, [K.UNRECORDED]),
    ("RECORD does not list itself", {"self_row": ""}, [K.RECORD]),
    ("RECORD has a hash of itself", {"self_row": f",{RIGHT[0]},9"}, [K.RECORD]),
    (
        "B56: size is wrong",
        {"record_edit": {"freewheel/a": (EMPTY, "1")}, "files": {"freewheel/a": b""}},
        [K.SIZE],
    ),
    (
        "B56: size is no number",
        {"record_edit": {"freewheel/a": (EMPTY, "0x0")}, "files": {"freewheel/a": b""}},
        [K.RECORD],
    ),
    ("WHEEL of another format", {"wheel_head": "Wheel-Version: 2.0\n"}, [K.WHEEL_FILE]),
    ("WHEEL with a tag that is none", {"wheel_extra": "Tag: what\n"}, [K.WHEEL_FILE]),
    ("second dist-info", {"files": {"a-1.dist-info/METADATA": b""}}, [K.DIST_INFO]),
    (
        "data folder of another version",
        {"files": {"freewheel-0.1.data/purelib/a.py": b""}},
        [K.VERSION],
    ),
    ("absolute path", {"files": {"/etc/x": b""}}, [K.BAD_PATH]),
    ("control character", {"files": {"freewheel/a\nb": b""}}, [K.BAD_PATH]),
    ("path that leaves", {"files": {"freewheel/../../x": b""}}, [K.BAD_PATH]),
    ("backslash", {"files": {"freewheel\\x": b""}}, [K.BAD_PATH]),
    ("drive letter", {"files": {"C:/x": b""}}, [K.BAD_PATH]),
    ("link", {"link": "freewheel/link"}, [K.LINK]),
    (
        "B43: library of one Python in an abi3 wheel",
        {"files": {"freewheel/_C.cpython-312-x86_64-linux-gnu.so": b""}},
        [K.LIBRARY_TAG],
    ),
    (
        "B43: abi3 library in a py3 wheel",
        {"tag": "py3-none-linux_x86_64", "files": {"freewheel/_C.abi3.so": b""}},
        [K.LIBRARY_TAG],
    ),
    (
        "library in a pure wheel",
        {"tag": "py3-none-any", "files": {"freewheel/a.so": b""}},
        [K.LIBRARY_TAG],
    ),
    (
        "library with a version in a pure wheel",
        {"tag": "py3-none-any", "files": {"freewheel/libx.so.1.2": b""}},
        [K.LIBRARY_TAG],
    ),
    (
        "two build records",
        {"build": OTHER_BUILD, "files": {"other/_build.json": b"{}"}},
        [K.BUILD_RECORD],
    ),
    ("build record that is no JSON", {"files": {"freewheel/_build.json": b"{"}}, [K.BUILD_RECORD]),
    ("build record that is a list", {"files": {"freewheel/_build.json": b"[]"}}, [K.BUILD_RECORD]),
    (
        "build record without end",
        {"files": {"freewheel/_build.json": b"[" * 100_000}},
        [K.BUILD_RECORD],
    ),
]


@pytest.mark.parametrize(
    ("switches", "expected"), [d[1:] for d in DEFECTS], ids=[d[0] for d in DEFECTS]
)
def test_each_defect_has_its_finding_and_no_other(
    tmp_path: Path, switches: dict[str, Any], expected: list[FlawKind]
) -> None:
    path = make_wheel(tmp_path, **switches)
    assert kinds(path) == expected
    with pytest.raises(WheelError) as caught:
        verify_wheel(path)
    assert caught.value.where == str(path)
    assert "build it again" in caught.value.next_step


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_twice_in_the_archive(tmp_path: Path) -> None:
    assert kinds(make_wheel(tmp_path, twice=INIT)) == [K.DUPLICATE]


def test_a_nul_byte_in_a_name_is_seen(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, files={"freewheel/aXb": b""})
    path.write_bytes(path.read_bytes().replace(b"freewheel/aXb", b"freewheel/a\0b"))
    assert kinds(path) == [K.BAD_PATH]


@pytest.mark.parametrize("library", ["_C.abi3.so", "_C.so", "lib/libx.so"])
def test_libraries_that_fit_an_abi3_wheel(tmp_path: Path, library: str) -> None:
    assert kinds(make_wheel(tmp_path, files={f"freewheel/{library}": b""})) == []


def test_a_library_of_the_wheels_own_python_fits(tmp_path: Path) -> None:
    files = {"freewheel/_C.cpython-312-x86_64-linux-gnu.so": b""}
    assert kinds(make_wheel(tmp_path, tag="cp312-cp312-linux_x86_64", files=files)) == []
    assert kinds(make_wheel(tmp_path, tag="cp313-cp313-linux_x86_64", files=files)) == [
        K.LIBRARY_TAG
    ]
    threaded = {"freewheel/_C.cpython-313t-x86_64-linux-gnu.so": b""}
    assert kinds(make_wheel(tmp_path, tag="cp313-cp313t-linux_x86_64", files=threaded)) == []


@pytest.mark.parametrize("count", [1, 21, 22, 40, 300])
def test_a_truncated_wheel_is_called_truncated(tmp_path: Path, count: int) -> None:
    path = make_cell(tmp_path, "cu121-torch2.4")
    cut(path, count)
    assert kinds(path) == [K.TRUNCATED]
    with pytest.raises(WheelError, match="cut off after"):
        read_wheel(path)


def test_what_is_no_zip_archive(tmp_path: Path) -> None:
    path = tmp_path / "freewheel-0.1.0-py3-none-any.whl"
    path.write_bytes(b"<html>404</html>")
    assert kinds(path) == [K.NOT_A_ZIP]
    path.write_bytes(b"")
    assert kinds(path) == [K.NOT_A_ZIP]


def test_a_missing_file_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(WheelError, match="no such file"):
        verify_wheel(tmp_path / "freewheel-0.1.0-py3-none-any.whl")


def test_bytes_around_the_archive(tmp_path: Path) -> None:
    path = make_wheel(tmp_path)
    good = path.read_bytes()
    path.write_bytes(b"#!/bin/sh\n" + good)
    assert kinds(path) == [K.STRAY_BYTES]
    path.write_bytes(good + b"\n")
    assert kinds(path) == [K.STRAY_BYTES]


def test_a_wheel_renamed_after_it_was_built(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, version="0.1.0")
    renamed = path.rename(tmp_path / path.name.replace("0.1.0", "0.1.0+cu121.torch2.4"))
    assert kinds(renamed) == [K.VERSION, K.VERSION]  # dist-info and METADATA
    other = renamed.rename(tmp_path / "other-0.1.0-cp310-abi3-linux_x86_64.whl")
    assert kinds(other) == [K.NAME, K.NAME, K.TAG]
    bad = other.rename(tmp_path / "freewheel-0.1.0.whl")
    assert K.FILE_NAME in kinds(bad)


def test_all_flaws_are_told_at_once(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, metadata_version="0.1.0", wheel_tag="py3-none-any", padded=True)
    with pytest.raises(WheelError) as caught:
        verify_wheel(path)
    text = str(caught.value)
    assert len(wheel_flaws(path)) == 5
    assert text.startswith(f"{path}: 5 flaws:\n  {INFO}/METADATA: says version '0.1.0'")
    assert "padded" in text
    assert "says tags py3-none-any" in text


def test_limits_are_kept(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, files={"freewheel/zeros": bytes(1 << 20)})
    assert wheel_flaws(path) == ()
    for limits in (
        Limits(members=3),
        Limits(member=1 << 19),
        Limits(total=1 << 19),
        Limits(ratio_from=1 << 16),
    ):
        assert [flaw.kind for flaw in wheel_flaws(path, limits=limits)] == [K.OVER_LIMIT]


def test_a_metadata_file_over_its_limit_is_not_read(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, extra_metadata="\n" + "x" * (17 << 20))
    with pytest.raises(WheelError, match="over 16777216"):
        read_wheel(path)


@given(st.data())
def test_any_changed_byte_is_found_or_changes_no_content(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = make_cell(tmp_path_factory.mktemp("flip"), "cu121-torch2.4")
    before = content(path.read_bytes())
    flip(path, data.draw(st.integers(0, path.stat().st_size - 1)))
    if not wheel_flaws(path):
        assert content(path.read_bytes()) == before


def content(data: bytes) -> dict[str, bytes]:
    """Names and bytes of a zip archive's members."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@given(st.binary(max_size=200))
def test_any_record_parses_or_is_a_flaw(data: bytes) -> None:
    entries, flaws = parse_manifest(data, "RECORD")
    assert all(len(entry.path) <= 200 for entry in entries)
    assert all(flaw.where == "RECORD" for flaw in flaws)


def test_the_digest_form_of_the_wheel_specification() -> None:
    # hashlib.sha256(b"").digest() in base64url without padding
    empty = bytes.fromhex("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
    assert encode_digest(empty) == EMPTY


def test_repacking_is_canonical(tmp_path: Path) -> None:
    switches: dict[str, Any] = {"files": {"freewheel/a.py": b"1", "freewheel/B.py": b"2"}}
    one = make_wheel(tmp_path / "one", **switches)
    two = make_wheel(
        tmp_path / "two", mtime=(2001, 1, 1, 0, 0, 0), mode=0o600, reverse=True, **switches
    )
    assert one.read_bytes() != two.read_bytes()
    first = repack(one, tmp_path / "out1" / one.name, epoch=1_700_000_000)
    second = repack(two, tmp_path / "out2" / two.name, epoch=1_700_000_000)
    assert first.sha256 == second.sha256
    assert verify_wheel(first.path) == first
    with zipfile.ZipFile(first.path) as archive:
        infos = archive.infolist()
        assert [info.filename for info in infos] == [
            "freewheel/B.py",
            "freewheel/__init__.py",
            "freewheel/a.py",
            f"{INFO}/METADATA",
            f"{INFO}/WHEEL",
            f"{INFO}/RECORD",
        ]
        assert {info.date_time for info in infos} == {(2023, 11, 14, 22, 13, 20)}
        assert {oct(info.external_attr >> 16) for info in infos} == {"0o100644"}
    assert content(first.path.read_bytes())[f"{INFO}/METADATA"] == read_wheel(one).metadata


def test_repacking_adds_files_to_dist_info_before_record(tmp_path: Path) -> None:
    path = make_wheel(tmp_path / "in", files={f"{INFO}/sboms/x.json": b"old"})
    wheel = repack(path, tmp_path / "out" / path.name, epoch=0, extra={"sboms/x.json": b"new"})
    assert content(wheel.path.read_bytes())[f"{INFO}/sboms/x.json"] == b"new"
    with zipfile.ZipFile(wheel.path) as archive:
        assert archive.namelist()[-2:] == [f"{INFO}/sboms/x.json", f"{INFO}/RECORD"]
    assert verify_wheel(wheel.path) == wheel


def test_repacking_keeps_the_executable_bit_and_mends_record(tmp_path: Path) -> None:
    path = make_wheel(tmp_path / "in", mode=0o700, padded=True, drop_rows=(INIT,))
    wheel = repack(path, tmp_path / "out" / path.name, epoch=0)
    with zipfile.ZipFile(wheel.path) as archive:
        info = archive.getinfo(INIT)
        assert info.external_attr >> 16 == 0o100755
        assert info.date_time == (1980, 1, 1, 0, 0, 0)


def test_repacking_a_bad_wheel_leaves_nothing(tmp_path: Path) -> None:
    path = make_wheel(tmp_path / "in", wheel_tag="py3-none-any")
    with pytest.raises(WheelError, match="says tags"):
        repack(path, tmp_path / "out" / path.name, epoch=0)
    assert list((tmp_path / "out").iterdir()) == []
