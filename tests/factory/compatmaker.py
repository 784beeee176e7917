"""Rows and tables of compatibility for tests: a usual wheel, changed by keywords."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.tags import parse_tag

from tests.factory.cellmaker import build_all, cells, record_loops
from wheelfab.arch import Code
from wheelfab.build import Folders
from wheelfab.compat import CompatTable, tabulate
from wheelfab.compat.record import Answer, By, GpuEntry, PythonEntry, TorchEntry, WheelRow

LOOPS: dict[str, dict[str, dict[str, Any]]] = {
    "cpu-torch2.4": {"2.4.1": {}},
    "cpu-torch2.10": {"2.10.0": {}, "2.13.0": {}},
    "cu118-torch2.4": {"2.4.1": {}},
    "cu118-torch2.10": {"2.10.0": {}, "2.13.0": {"passed": False, "text": "99 of 100 fresh"}},
    "cu121-torch2.4": {"2.4.1": {}},
    "cu121-torch2.10": {"2.10.0": {}, "2.13.0": {}, "2.15.0": {}},
}


def looped_table(root: Path, **switches: Any) -> CompatTable:
    """The table of six wheels that were built under ``root`` and looped as in ``LOOPS``."""
    build_all(root)
    for cell in cells():
        (wheel,) = Folders(root=root).wheels(cell).glob(f"*+{cell.local_version}-*.whl")
        machine = {"machine": {"libc": "glibc 2.36"}}
        runs = {torch: {**machine, **run} for torch, run in LOOPS[cell.id].items()}
        record_loops(root, cell.id, wheel, runs)
    return tabulate(root, cells(), (), **switches)


def torch(name: str = "2.13.0", **values: Any) -> TorchEntry:
    """A wheel on a torch release that it works with: looped on Python 3.11 and glibc 2.36."""
    usual: dict[str, Any] = {
        "answer": Answer.WORKS,
        "by": By.LOOP,
        "reason": "loop 100 of 100 fresh",
        "pythons_seen": ("3.11",),
        "glibcs_seen": ("2.36",),
        "pythons": ("3.10", "3.11", "3.12"),
        "glibc": "2.28",
        "driver": "525.60.13",
        "builds_complete": True,
    }
    return TorchEntry(torch=name, **{**usual, **values})


def python(name: str, answer: Answer = Answer.WORKS, reason: str = "tag cp310-abi3") -> PythonEntry:
    """A wheel on a Python."""
    return PythonEntry(python=name, answer=answer, reason=reason)


def gpu(capability: str, code: Code | None = Code.CUBIN, **values: Any) -> GpuEntry:
    """A wheel on a GPU: by a cubin for it, by PTX for 9.0, or not at all."""
    cubin = {"driver": "525.60.13", "reason": f"machine code for {capability}"}
    usual: dict[Code | None, dict[str, Any]] = {
        Code.CUBIN: {"arch": capability, **cubin},
        Code.PTX: {"arch": "9.0", "driver": "530.30.02", "reason": "PTX for 9.0"},
        None: {"arch": None, "driver": None, "reason": "no image"},
    }
    made: dict[str, Any] = {"measured": False, **usual[code], **values}
    return GpuEntry(capability=capability, code=code, **made)


def row(**values: Any) -> WheelRow:
    """The row of a wheel for CUDA 12.1 and torch 2.10 and later."""
    usual: dict[str, Any] = {
        "cell": "cu121-torch2.10",
        "file": "freewheel-0.1.0+cu121.torch2.10-cp310-abi3-manylinux_2_28_x86_64.whl",
        "version": "0.1.0+cu121.torch2.10",
        "sha256": "0" * 64,
        "size": 1,
        "cuda": "12.1",
        "archs": ("9.0", "9.0+PTX"),
        "requires_torch": ">=2.10",
        "abi": "stable",
        "requires_python": ">=3.10",
        "tags": ("cp310-abi3-manylinux_2_28_x86_64",),
        "glibc": "2.28",
        "glibcxx": "3.4.22",
        "driver_cubin": "525.60.13",
        "driver_ptx": "530.30.02",
        "run_on": ("2.13.0",),
        "page": "cu121/torch2.10",
        "install": "pip install",
        "torch": (torch(),),
        "pythons": (python("3.11"), python("3.12"), python("3.14", Answer.NO, "not for it")),
        "gpus": (gpu("7.5", None), gpu("9.0"), gpu("12.0", Code.PTX)),
        "hosts": None,
        "audit": None,
    }
    return WheelRow(**{**usual, **values})


def check_row(row: WheelRow, record: Mapping[str, Any]) -> None:
    """Want the row to say what the wheel's own record says, axis by axis."""
    driver = record["driver"] or {}
    platform = record["platform"].removeprefix("linux-")
    level = record["glibc"].replace(".", "_")
    tags = {str(tag) for name in row.tags for tag in parse_tag(name)}
    assert f"{record['python_tag']}-manylinux_{level}_{platform}" in tags
    assert SpecifierSet(row.requires_torch) == SpecifierSet(record["torch"]["requirement"])
    assert SpecifierSet(row.requires_python) == SpecifierSet(record["python"])
    assert (row.cell, row.version, row.cuda) == tuple(
        record[key] for key in ("cell", "version", "cuda")
    )
    assert (row.glibc, row.abi) == (record["glibc"], record["torch"]["abi"])
    assert list(row.archs) == record["archs"]
    assert row.driver_cubin == driver.get("cubin_release")
    assert row.driver_ptx == driver.get("ptx_release")
