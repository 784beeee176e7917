"""What a target is, where its modules lie, and archives that would do harm."""

from __future__ import annotations

import io
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wheelfab.errors import FormatError, UsageError
from wheelfab.imports import LintOptions, lint
from wheelfab.imports import unpack as unpack_module
from wheelfab.imports.target import is_test, open_target
from wheelfab.imports.unpack import unpack_sources


def names(target: Path | str, search: list[str] | None = None) -> list[str]:
    with open_target(target, search or []) as opened:
        return [name for name, _ in opened.modules]


def fill(root: Path, *files: str) -> Path:
    for file in files:
        path = root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    return root


def test_a_package_folder(tmp_path: Path) -> None:
    fill(tmp_path, "p/__init__.py", "p/a.py", "p/b/__init__.py", "p/not-a-module.py")
    assert names(tmp_path / "p") == ["p", "p.a", "p.b"]


def test_a_project_with_its_package_in_src(tmp_path: Path) -> None:
    fill(tmp_path, "src/p/__init__.py", "tests/__init__.py", "setup.py")
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "p"\nversion = "1.2"\ndependencies = ["triton>=3.4"]\n'
    )
    with open_target(tmp_path, []) as opened:
        assert opened.root == tmp_path / "src"
        assert [name for name, _ in opened.modules] == ["p"]
        assert (opened.version, opened.requirements) == ("1.2", ("triton>=3.4",))


def test_one_file_is_named_by_the_package_it_is_in(tmp_path: Path) -> None:
    fill(tmp_path, "p/__init__.py", "p/q/__init__.py", "p/q/a.py")
    assert names(tmp_path / "p" / "q" / "a.py") == ["p.q.a"]


def test_an_installed_package_by_module_and_by_distribution(tmp_path: Path) -> None:
    fill(tmp_path, "my_mod/__init__.py", "my_mod/a.py")
    info = tmp_path / "My_Dist-3.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: My-Dist\nVersion: 3.0\n")
    (info / "top_level.txt").write_text("my_mod\n")
    search = [str(tmp_path)]
    assert names("my_mod", search) == ["my_mod", "my_mod.a"]
    with open_target("my-dist", search) as opened:
        assert opened.tops == {"my_mod"}
        assert opened.version == "3.0"
        assert not opened.editable
    assert "my_mod" not in sys.modules


def test_nothing_of_that_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="neither a file"):
        names("no_such_thing_at_all", [str(tmp_path)])
    with pytest.raises(UsageError, match="no Python package"):
        names(tmp_path)


def wheel(path: Path, members: dict[str, str]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return path


def sdist(path: Path, members: dict[str, str], *extra: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, text in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
        for info in extra:
            archive.addfile(info)
    return path


def test_a_wheel_with_its_requirements(tmp_path: Path) -> None:
    metadata = "Metadata-Version: 2.1\nName: p\nVersion: 4\nRequires-Dist: torch==2.14.0\n"
    path = wheel(
        tmp_path / "p-4-py3-none-any.whl",
        {"p/__init__.py": "", "p/lib.so": "x", "p-4.dist-info/METADATA": metadata},
    )
    with open_target(path, []) as opened:
        assert [name for name, _ in opened.modules] == ["p"]
        assert (opened.version, opened.requirements) == ("4", ("torch==2.14.0",))
        assert not (opened.root / "p" / "lib.so").exists()
        root = opened.root
    assert not root.exists()


def test_an_sdist_by_what_it_says_it_installs(tmp_path: Path) -> None:
    path = sdist(
        tmp_path / "p-1.tar.gz",
        {
            "p-1/PKG-INFO": "Name: p\nVersion: 1\n",
            "p-1/p.egg-info/top_level.txt": "p\n",
            "p-1/p/__init__.py": "",
            "p-1/bench/__init__.py": "",
        },
    )
    assert names(path) == ["p"]


@pytest.mark.parametrize("name", ["../evil.py", "/evil.py", "a/../../evil.py", "a\\evil.py"])
def test_members_that_leave_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    for path in (wheel(tmp_path / "a.whl", {name: ""}), sdist(tmp_path / "a.tar.gz", {name: ""})):
        with pytest.raises(FormatError, match="leaves the folder"):
            unpack_sources(path, tmp_path / "out")
    assert not (tmp_path / "evil.py").exists()


def test_links_are_not_followed(tmp_path: Path) -> None:
    link = tarfile.TarInfo("p/link.py")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    path = sdist(tmp_path / "a.tar.gz", {"p/__init__.py": ""}, link)
    assert unpack_sources(path, tmp_path / "out") == 1


def test_a_broken_archive_is_said(tmp_path: Path) -> None:
    for name in ("a.whl", "a.tar.gz"):
        (tmp_path / name).write_bytes(b"PK\x03\x04 nothing more")
        with pytest.raises(FormatError, match="cannot be unpacked"):
            unpack_sources(tmp_path / name, tmp_path / "out")


def test_bounds_on_what_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = wheel(tmp_path / "a.whl", {"a.py": "x" * 100, "b.py": "x" * 100})
    monkeypatch.setattr(unpack_module, "_TOTAL", 150)
    with pytest.raises(FormatError, match="over the bounds"):
        unpack_sources(path, tmp_path / "out")


@given(st.binary(max_size=300))
def test_any_bytes_are_an_error_or_no_sources(data: bytes) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.whl"
        path.write_bytes(data)
        with pytest.raises(FormatError):
            unpack_sources(path, Path(folder) / "out")


def test_tests_are_left_out_unless_asked_for(tmp_path: Path) -> None:
    ask = "import torch\ntorch.cuda.init()\n"
    fill(tmp_path, "p/__init__.py", "p/tests/__init__.py")
    for file in ("tests/util.py", "test_a.py", "conftest.py", "tested.py"):
        (tmp_path / "p" / file).write_text(ask)
    report = lint(tmp_path / "p", LintOptions(dynamic=False))
    assert [one.place.file for one in report.findings] == ["p/tested.py"]
    assert [one.what for one in report.unchecked] == ["4 test modules"]
    every = lint(tmp_path / "p", LintOptions(dynamic=False, tests=True))
    assert len(every.findings) == 4


def test_what_counts_as_a_test() -> None:
    assert is_test("p.test_a")
    assert is_test("p.tests.util")
    assert not is_test("tests")
    assert not is_test("p.testing.util")
