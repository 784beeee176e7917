"""The machine's g++ is found on the PATH, told from imitations, and measured."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from packaging.version import Version

from wheelfab.errors import ToolchainError
from wheelfab.records import file_digest
from wheelfab.toolchain.host import host_compiler

GNU = "g++ (GCC) {version}\nCopyright (C) Free Software Foundation, Inc."


def imitation(
    folder: Path, *, says: str = GNU, version: str = "13.1.0", gcc: str | None = None
) -> None:
    """Programs ``g++`` and ``gcc`` that answer as told."""
    folder.mkdir(exist_ok=True)
    (folder / "cc1plus").write_text("the compiler proper")
    for name, number in (("g++", version), ("gcc", gcc or version)):
        program = folder / name
        program.write_text(
            "#!/bin/sh\ncase $1 in\n"
            f"--version) echo '{says.format(version=version)}';;\n"
            f"-dumpfullversion) echo '{number}';;\n"
            "-dumpmachine) echo riscv64-linux-gnu;;\n"
            f"-print-prog-name=cc1plus) echo '{folder}/cc1plus';;\nesac\n"
        )
        program.chmod(0o755)


def test_the_real_compiler_is_known_by_version_and_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/nowhere/c++")
    compiler = host_compiler()
    said = subprocess.run(
        [compiler.path, "-dumpfullversion"], capture_output=True, text=True, check=True
    )
    assert compiler.version == Version(said.stdout.strip())
    assert compiler.driver_sha256 == file_digest(compiler.path.resolve())
    assert compiler.cc.name == "gcc"


def test_the_first_on_the_path_is_taken_whatever_it_targets(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    imitation(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    compiler = host_compiler()
    assert compiler.path == tmp_path / "bin" / "g++"
    assert (compiler.version, compiler.target) == (Version("13.1.0"), "riscv64-linux-gnu")
    assert compiler.cc1plus_sha256 == file_digest(tmp_path / "bin" / "cc1plus")


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"says": "clang version 15.0"}, "not GNU's g\\+\\+: clang version 15.0; install g\\+\\+"),
        ({"version": "9.4.0"}, "g\\+\\+ 9.4.0 is too old: 11.3 is wanted"),
        ({"version": "new"}, "cannot read its version 'new'"),
        ({"gcc": "12.0.0"}, "no gcc 13.1.0 beside it"),
    ],
)
def test_a_compiler_that_will_not_do_is_refused_with_the_next_step(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, how: dict[str, str], says: str
) -> None:
    imitation(tmp_path / "bin", **how)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    with pytest.raises(ToolchainError, match=says):
        host_compiler()


def test_no_compiler_at_all_is_said_with_how_to_install_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolchainError, match="no C\\+\\+ compiler on the PATH; install g\\+\\+"):
        host_compiler()
