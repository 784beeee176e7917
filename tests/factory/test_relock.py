"""Making a lock again: what is locked stays, and compilers of other machines always do."""

from __future__ import annotations

import ast
import sys
from dataclasses import replace
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name
from packaging.version import Version

import wheelfab
from wheelfab.containers import NoEngine
from wheelfab.errors import ToolchainError
from wheelfab.locked import Locked, load_locked
from wheelfab.relock import CONTAINER_ROOTS, make_lock, without_all_but_compilers
from wheelfab.store import Store
from wheelfab.toolchain.host import HostCompiler
from wheelfab.toolchain.tools import ROOTS
from wheelfab.variant import expand

from .lockmaker import make_locked, tool
from .matrixmaker import MATRIX, load
from .test_plan import COMPILER

WHOLE = make_locked(COMPILER).model_copy(
    update={"container": tuple(tool(name) for name in (*ROOTS, *CONTAINER_ROOTS))}
)
NEWER = replace(COMPILER, version=Version("13.2.0"), cc1plus_sha256="2" * 64)


def again(
    folder: Path, compiler: HostCompiler, matrix: str = MATRIX, old: Locked = WHOLE
) -> Locked:
    """``old`` made again for ``matrix``, without an engine; nothing has to be fetched."""
    cells = expand(load(folder, matrix)).cells
    engine = NoEngine(reason="none here")
    return make_lock(cells, Store(folder / "store"), compiler, engine, old)


def test_what_is_locked_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert again(tmp_path, COMPILER) == WHOLE
    assert "base images are left as they were: none here" in capsys.readouterr().err


def test_a_fallback_that_the_row_does_not_allow_is_looked_up_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def refuse(_: Store, *, release: Version, **__: object) -> None:
        asked.append(str(release))
        raise ToolchainError("no answer")

    monkeypatch.setattr("wheelfab.relock.torch_tree", refuse)
    source = {"source": "pypi fallback: https://there cannot be reached"}
    fallen = WHOLE.torch[0].model_copy(update=source)
    old = WHOLE.model_copy(update={"torch": (fallen, WHOLE.torch[1])})
    allowed = MATRIX.replace("[defaults]", '[defaults]\ntorch-fallback = "pypi"')
    assert again(tmp_path, COMPILER, allowed, old).torch == old.torch
    with pytest.raises(ToolchainError, match="no answer"):
        again(tmp_path, COMPILER, MATRIX, old)
    assert asked == ["2.4.1"]


def test_this_machines_compiler_joins_the_others(tmp_path: Path) -> None:
    found = again(tmp_path, NEWER).compiler
    assert [item.version for item in found] == ["12.2.0", "13.2.0"]
    assert found[0] == WHOLE.compiler[0]


def test_what_the_matrix_no_longer_has_is_dropped(tmp_path: Path) -> None:
    lock = again(tmp_path, COMPILER, MATRIX.replace('[variants.cu118]\ncuda = "11.8"\n', ""))
    assert [item.cuda for item in lock.toolchain] == ["12.1"]


def test_an_upgrade_forgets_all_but_compilers() -> None:
    kept = without_all_but_compilers(WHOLE)
    assert kept == Locked(schema=1, compiler=WHOLE.compiler)
    assert without_all_but_compilers(None) is None


def imported(path: Path) -> set[str]:
    """The dotted names that a module imports when it is imported itself."""
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update({node.module, *(f"{node.module}.{alias.name}" for alias in node.names)})
    return names


def test_the_lock_has_all_that_the_line_imports_in_the_container() -> None:
    package = Path(wheelfab.__file__).parent
    pending = ["wheelfab.manylinux.hook", "wheelfab.manylinux.finish", "wheelfab.compose"]
    seen, libraries = set[str](), set[str]()
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        path = package.parent.joinpath(*name.split("."))
        found = [file for file in (path.with_suffix(".py"), path / "__init__.py") if file.exists()]
        for used in set[str]().union(*map(imported, found)):
            top = used.partition(".")[0]
            if top == "wheelfab":
                parts = used.split(".")
                pending += [".".join(parts[:count]) for count in range(2, len(parts) + 1)]
            elif top not in sys.stdlib_module_names:
                libraries.add(top)
    lock = load_locked(Path(__file__).resolve().parents[2])
    assert lock is not None
    known = {item.package for item in lock.container}
    owners = packages_distributions()
    needed = {str(canonicalize_name(owners[library][0])) for library in libraries}
    assert {"rich", "pydantic", "cyclonedx-python-lib"} <= needed
    assert needed <= known
    assert {*ROOTS, *CONTAINER_ROOTS} <= known
