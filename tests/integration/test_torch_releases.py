"""Each binding as it is shipped, on the torch releases that it is for: the tests of a wheel there.

What ``tests/installed`` runs on one release of one pin, the session's own, these run on all others
of the matrix, with two threads, so that a binding's parallel branch meets each torch's OpenMP.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.version import Version

from wheelfab.loops.cell import built_wheel
from wheelfab.loops.environment import clean_environment
from wheelfab.loops.interpreter import Interpreter, ask
from wheelfab.loops.site import torch_site
from wheelfab.matrix import load_matrix
from wheelfab.store import Store, default_root
from wheelfab.toolchain import torch_facts
from wheelfab.toolchain.torch import torch_tree
from wheelfab.variant import Cell, expand
from wheelfab.versions import series

from .beside import packages_in, passed_beside, run_beside, show_ours
from .conftest import ROOT

MATRIX = load_matrix(ROOT / "matrix.toml")
RUNS = [
    (cell, release)
    for cell in expand(MATRIX).cells
    if cell.variant.name == "cpu"  # of a pin, the bindings of all variants are one file
    for release in cell.pin.run_on
    if release != MATRIX.sessions["tests"].torch
]
FILES = ("test_operations.py", "test_arguments.py", "test_torch.py", "test_loading.py")
TWO_THREADS = {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "passive"}


@pytest.fixture
def installed(cell: Cell, release: Version) -> Iterator[Path]:
    """A Python that has the built wheel of ``cell``, torch ``release`` and the tools of the tests.

    Where that torch wants NVIDIA's libraries, stubs stand in for them, as in the loops.
    """
    python = _this_python()
    if series(python.version) not in torch_facts(release).pythons:
        pytest.skip(f"torch {release} is not for Python {python.version}")
    store, variant = Store(default_root()), cell.variant
    tree = torch_tree(
        store,
        release=release,
        index=variant.torch_index,
        fallback=variant.torch_fallback,
        python=str(series(python.version)),
    )
    site = torch_site(store, tree, python, full=False)
    with clean_environment(store, built_wheel(ROOT, cell), site, python) as environment:
        show_ours(packages_in(environment.root))
        yield environment.python


def _this_python() -> Interpreter:
    found = ask(Path(sys.executable))
    assert found is not None
    return found


@pytest.mark.parametrize(("cell", "release"), RUNS, ids=lambda one: getattr(one, "id", str(one)))
def test_the_built_wheel_passes_its_tests(cell: Cell, release: Version, installed: Path) -> None:
    """All but the other instruction sets: their objects are the same in every wheel."""
    code = "import torch, freewheel; print(torch.__version__, freewheel.build()['torch']['abi'])"
    version, abi = run_beside(installed, "-c", code).stdout.split()
    assert Version(version).public == str(release)
    assert abi == cell.pin.kind
    files = [f"tests/installed/{file}" for file in FILES]
    chosen = ("-k", "not forced_isa")
    assert passed_beside(installed, *chosen, *files, settings=TWO_THREADS) > 280


def test_no_binding_and_no_release_is_left_out() -> None:
    """Every pin is among these, and every release that one is run on, but the session's own."""
    own = MATRIX.sessions["tests"].torch
    shown = {(cell.pin.key, release) for cell, release in RUNS}
    assert {key for key, _ in shown} == set(MATRIX.pins)
    assert {release for _, release in shown} | {own} == {
        release for pin in MATRIX.pins.values() for release in pin.run_on
    }
