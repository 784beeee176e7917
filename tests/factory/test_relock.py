"""Making a lock again: what is locked stays, and compilers of other machines always do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from packaging.version import Version

from wheelfab.containers import NoEngine
from wheelfab.locked import Locked
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


def again(folder: Path, compiler: HostCompiler, matrix: str = MATRIX) -> Locked:
    """``WHOLE`` made again for ``matrix``, without an engine; nothing has to be fetched."""
    cells = expand(load(folder, matrix)).cells
    engine = NoEngine(reason="none here")
    return make_lock(cells, Store(folder / "store"), compiler, engine, WHOLE)


def test_what_is_locked_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert again(tmp_path, COMPILER) == WHOLE
    assert "base images are left as they were: none here" in capsys.readouterr().err


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
