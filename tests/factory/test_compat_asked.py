"""Atlas and audit in the words of the table, asked of wheels that are made for it."""

from __future__ import annotations

from pathlib import Path

from packaging.version import Version

from tests.factory.cellmaker import build_cell, cells
from tests.factory.elfmaker import make_library
from tests.factory.matrixmaker import MATRIX, load
from wheelfab.atlas import read_atlas
from wheelfab.compat import ask_both
from wheelfab.wheel import read_wheel

CELL = "cpu-torch2.10"
# The shim has it since 2.10, by the atlas's own releases.
YOUNG = "torch_call_dispatcher"


def test_each_release_of_the_atlas_speaks_with_its_build(tmp_path: Path) -> None:
    library = make_library(undefined=[YOUNG], needed=["libtorch_cpu.so"])
    path = build_cell(tmp_path, CELL, files={"freewheel/_torch.so": library})
    sources = ask_both(read_atlas(), load(tmp_path, MATRIX).project)
    said = {item.torch: item for item in sources.atlas(read_wheel(path))}
    old, new = said[Version("2.4.1")], said[Version("2.10.0")]
    assert (old.loads, new.loads) == (False, True)
    assert old.reason.endswith(f"first {YOUNG}")
    assert new.build.startswith("2.10.0+cu")


def test_without_a_binding_the_atlas_says_nothing(tmp_path: Path) -> None:
    path = build_cell(tmp_path, CELL)
    sources = ask_both(read_atlas(), load(tmp_path, MATRIX).project)
    assert sources.atlas(read_wheel(path)) == ()


def test_the_audit_is_that_of_the_cells_own_policy(tmp_path: Path) -> None:
    """A wheel of a CPU row that needs the driver is refused with the rule's name."""
    library = make_library(needed=["libcuda.so.1"])
    path = build_cell(tmp_path, CELL, files={"freewheel/_kernels.so": library})
    sources = ask_both(read_atlas(), load(tmp_path, MATRIX).project)
    (cell,) = cells([CELL])
    found = sources.audit(cell, read_wheel(path))
    assert found is not None
    assert found.verdict == "fail"
    assert any("libcuda.so.1" in error for error in found.errors)
