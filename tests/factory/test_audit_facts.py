"""Facts are read once, in bounded room, and nothing of the wheel stays behind."""

from __future__ import annotations

import hashlib
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Self

import pytest

from tests.drivers.cubin import cubin
from tests.factory.auditmaker import library
from tests.factory.imagemaker import KERNELS
from tests.factory.wheelmaker import CP310_ABI3, cut, make_wheel
from wheelfab.archive import FlawKind, Limits
from wheelfab.audit import facts
from wheelfab.audit.facts import read_facts
from wheelfab.audit.kind import WheelKind, kind_of
from wheelfab.errors import InfrastructureError, WheelError
from wheelfab.inflate import pieces
from wheelfab.records import file_digest

K = FlawKind
INFO = "freewheel-0.1.0+cu121.torch2.4.dist-info"


def test_the_facts_of_a_wheel(tmp_path: Path) -> None:
    content = library(needed=("libc.so.6",), soname="lib_C.so")
    program = library(soname=None)
    path = make_wheel(
        tmp_path,
        files={"freewheel/_C.abi3.so": content, "freewheel/_run": program, "freewheel/a.py": b"1"},
        programs=("freewheel/_run",),
    )
    found = read_facts(path)
    assert found.sound
    assert found.flaws == ()
    assert (found.sha256, found.size) == (file_digest(path), path.stat().st_size)
    assert found.name is not None
    assert {str(tag) for tag in found.name.tags} == {CP310_ABI3}
    assert found.dist_info == INFO
    assert found.metadata is not None
    assert found.metadata.requires_dist is not None
    assert [str(one) for one in found.requires_dist] == ["torch<2.5,>=2.4.1"]
    with zipfile.ZipFile(path) as archive:
        assert {one.name: (one.size, one.packed) for one in found.members} == {
            info.filename: (info.file_size, info.compress_size) for info in archive.infolist()
        }
        assert found.metadata_bytes == archive.read(f"{INFO}/METADATA")
        assert found.wheel_bytes == archive.read(f"{INFO}/WHEEL")
    first, second = found.libraries
    assert (first.name, first.file) == ("freewheel/_C.abi3.so", "_C.abi3.so")
    assert (first.size, first.sha256) == (len(content), hashlib.sha256(content).hexdigest())
    assert not first.executable
    assert first.elf is not None
    assert (first.elf.soname, first.elf.needed) == ("lib_C.so", ("libc.so.6",))
    assert (second.name, second.executable) == ("freewheel/_run", True)


def test_each_member_is_inflated_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_wheel(tmp_path, files={"freewheel/_C.abi3.so": library(), "freewheel/a": b"1"})
    with zipfile.ZipFile(path) as archive:
        names = sorted(archive.namelist())
    unpacked: list[str] = []
    opened: list[str] = []
    opening = zipfile.ZipFile.open

    def counting(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Iterator[bytes]:
        unpacked.append(member.filename)
        return pieces(archive, member)

    def by_name(self: zipfile.ZipFile, name: Any, *args: Any, **more: Any) -> IO[bytes]:
        opened.append(name if isinstance(name, str) else name.filename)
        return opening(self, name, *args, **more)

    monkeypatch.setattr(facts, "pieces", counting)
    monkeypatch.setattr(zipfile.ZipFile, "open", by_name)
    read_facts(path)
    assert sorted(unpacked) == names
    assert set(opened) == {f"{INFO}/{name}" for name in ("METADATA", "WHEEL", "RECORD")}


def test_nothing_stays_in_the_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = tmp_path / "room"
    room.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(room))
    read_facts(make_wheel(tmp_path, files={"freewheel/_C.abi3.so": library()}))
    assert list(room.iterdir()) == []


def test_a_file_that_is_no_elf_file_after_all_says_so(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, files={"freewheel/_C.abi3.so": b"\x7fELF and no more"})
    (found,) = read_facts(path).libraries
    assert found.elf is None
    assert "ELF" in found.problem


def test_a_full_disk_is_the_machines_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_wheel(tmp_path, files={"freewheel/_C.abi3.so": library()})
    plain = Path.open

    class Full:
        name = "spool"

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def write(self, _: bytes) -> None:
            raise OSError(28, "No space left on device")

    def opening(self: Path, mode: str = "r", *args: Any, **more: Any) -> Any:
        return Full() if self.name == "member" else plain(self, mode, *args, **more)

    monkeypatch.setattr(Path, "open", opening)
    with pytest.raises(InfrastructureError, match="No space left"):
        read_facts(path)


def test_an_archive_that_is_not_sound_has_flaws_and_no_more(tmp_path: Path) -> None:
    path = make_wheel(tmp_path)
    cut(path)
    found = read_facts(path)
    assert not found.sound
    assert [flaw.kind for flaw in found.flaws] == [FlawKind.TRUNCATED]
    assert (found.members, found.libraries, found.metadata) == ((), (), None)


def test_a_member_over_the_bound_is_not_unpacked(tmp_path: Path) -> None:
    path = make_wheel(tmp_path, files={"freewheel/big": bytes(5000)})
    found = read_facts(path, limits=Limits(member=4000))
    assert [flaw.kind for flaw in found.flaws] == [FlawKind.OVER_LIMIT]
    assert not found.sound


def test_what_can_be_read_of_bad_metadata_is_kept(tmp_path: Path) -> None:
    needs = ("torch==2.4", "numpy=1")
    found = read_facts(make_wheel(tmp_path, requires_dist=needs))
    assert found.metadata is None
    assert [str(one) for one in found.requires_dist] == ["torch==2.4"]


@pytest.mark.parametrize(
    ("key", "value", "kept"),
    [
        ("cuda", "12.1", True),
        ("cuda", "12.1.105", True),
        ("cuda", None, True),
        ("cuda", "cu121x", False),
        ("cuda", "\u00b2", False),
        ("cuda", "12", False),
        ("cuda", 12.1, False),
        ("cuda", "9" * 5000, False),
        ("archs", [], True),
        ("archs", ["8.0", "9.0+PTX"], True),
        ("archs", [80, 90], False),
        ("archs", "9.0", False),
        ("torch", {"pin": "2.4"}, True),
        ("torch", ["2.4"], False),
        ("other", [1, {}], True),
    ],
)
def test_of_a_build_record_only_what_has_its_form_is_kept(
    key: str, value: object, kept: bool, tmp_path: Path
) -> None:
    path = make_wheel(tmp_path, build={"version": "1", key: value})
    expected: dict[str, object] = {"version": "1"}
    assert read_facts(path).build == expected | ({key: value} if kept else {})


@pytest.mark.parametrize(
    ("switches", "kind"),
    [
        ({"metadata_version": "9" * 5000}, K.METADATA),
        ({"folder_version": "9" * 40}, K.VERSION),
        ({"build": {"version": "9" * 5000}}, K.VERSION),
        ({"requires_dist": ("torch<" + "9" * 5000,)}, K.METADATA),
        ({"requires_python": ">=" + "9" * 5000}, K.METADATA),
        ({"wheel_extra": f"Tag: {'.'.join('a' * 9000)}-{'.'.join('b' * 9000)}-c"}, K.WHEEL_FILE),
    ],
)
def test_numbers_that_python_does_not_convert_are_flaws(
    switches: dict[str, Any], kind: FlawKind, tmp_path: Path
) -> None:
    found = read_facts(make_wheel(tmp_path, **switches))
    assert kind in {flaw.kind for flaw in found.flaws}
    assert [one for one in found.requires_dist if "999" in str(one)] == []


def test_a_wheel_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(WheelError, match="there is no such file"):
        read_facts(tmp_path / "none.whl")


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({}, WheelKind.PURE),
        ({"a.so": library()}, WheelKind.CPU),
        ({"a.so": library(sections=(".nv_fatbin",))}, WheelKind.CUDA_DRIVER),
        ({"a.cubin": cubin(80, KERNELS)}, WheelKind.CUDA_DRIVER),
        ({"a.so": library(needed=("libcudart.so.12",))}, WheelKind.CUDA_RUNTIME),
        ({"a.so": library(needed=("libc10_cuda.so",))}, WheelKind.CUDA_RUNTIME),
    ],
)
def test_the_kind_comes_from_the_wheel(
    files: dict[str, bytes], kind: WheelKind, tmp_path: Path
) -> None:
    named = {f"freewheel/{name}": content for name, content in files.items()}
    assert kind_of(read_facts(make_wheel(tmp_path, files=named))) is kind
