"""The wheels in dist/ keep to the stable ABI of their tag; the audit sees what abi3audit sees."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.factory.wheelmaker import CP310_ABI3, make_wheel
from wheelfab.audit import audit

from .conftest import Wheelfab


def test_abi3audit_finds_nothing_in_any_wheel(wheelfab: Wheelfab, tmp_path: Path) -> None:
    wheels = [result["wheel"] for result in wheelfab.json("build")]
    assert len(wheels) == 6
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "abi3audit", "--strict", "--report", "-o", str(report)]
    done = subprocess.run([*command, *wheels], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    specs = json.loads(report.read_text())["specs"].values()
    objects = [item for spec in specs for item in spec["wheel"]]
    audited = [item["result"] for item in objects if item["name"] == "_C.abi3.so"]
    assert len(audited) == 6
    assert all(result["is_abi3"] and result["is_abi3_baseline_compatible"] for result in audited)
    assert {result["baseline"] for result in audited} == {"3.10"}


@pytest.mark.parametrize(
    "used",
    [
        ("PyModule_Create2",),
        ("PyModule_Create2", "PyType_GetName"),  # new in 3.11
        ("PyUnicode_AsUTF8", "_PyLong_Sign", "PyObject_CallNoArgs"),
        ("PyVectorcall_Call", "PyErr_GetRaisedException", "PyThreadState_GetUnchecked"),
    ],
)
def test_the_audit_agrees_with_abi3audit(used: tuple[str, ...], tmp_path: Path) -> None:
    calls = "".join(f"extern void {name}(void); " for name in used)
    source = (
        f"{calls}void *PyInit__C(void) {{ {''.join(f'{name}();' for name in used)} return 0; }}"
    )
    (tmp_path / "c.c").write_text(source)
    library = tmp_path / "_C.abi3.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, tmp_path / "c.c"], check=True)
    files = {"freewheel/_C.abi3.so": library.read_bytes()}
    path = make_wheel(tmp_path, tag=CP310_ABI3, files=files)
    theirs = _abi3audit(path, tmp_path / "report.json")
    found = [one.found for one in audit(path).findings if one.rule == "python-abi3"]
    foreign = ", ".join(sorted(theirs["non_abi3_symbols"]))
    future = ", ".join(
        f"{name} ({at})" for name, at in sorted(theirs["future_abi3_objects"].items())
    )
    wanted = [f"uses {foreign}, not of the stable ABI"] if foreign else []
    assert found == wanted + ([f"uses {future}"] if future else [])
    assert bool(found) != bool(theirs["is_abi3"] and theirs["is_abi3_baseline_compatible"])


def _abi3audit(path: Path, report: Path) -> dict[str, Any]:
    """What abi3audit says of the one library of a wheel."""
    command = [sys.executable, "-m", "abi3audit", "--report", "-o", str(report), str(path)]
    subprocess.run(command, capture_output=True, check=False)
    (spec,) = json.loads(report.read_text())["specs"].values()
    (item,) = spec["wheel"]
    result: dict[str, Any] = item["result"]
    return result
