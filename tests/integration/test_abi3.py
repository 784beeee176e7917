"""The wheels in dist/ keep to the stable ABI of the Python that their tag names."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

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
