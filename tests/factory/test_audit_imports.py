"""What importing would do: for each rule a wheel that breaks it and one that does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.factory.auditmaker import Case, audited, finds, keeps, library
from wheelfab.audit import Severity

OURS = "freewheel/_kernels.so"
IMPORTED = b"import torch\n\nHAS = torch.cuda.is_available()\n"
ASKED = b"import torch\n\n\ndef has():\n    return torch.cuda.is_available()\n"


def one(**switches: Any) -> dict[str, Any]:
    """Switches for one library."""
    return {"files": {OURS: library(**switches)}}


CASES = [
    Case(
        rule="imports-initialisers",
        name="over the policy",
        bad=one(tags=((27, 32),)),
        found="4 functions run at load",
        subject=OURS,
        severity=Severity.WARNING,
        good=one(tags=((27, 24),)),
        policy={"imports": {"initialisers": 3}},
    ),
    Case(
        rule="imports-driver-symbols",
        name="B05: the driver's, with nothing that brings it",
        bad=one(undefined=("cuInit", "cuDeviceGet")),
        found="cuDeviceGet, cuInit: undefined, with no driver needed",
        subject=OURS,
        good=one(undefined=("cudaMalloc",), weak=("cuInit",), needed=("libcudart.so.12",)),
    ),
    Case(
        rule="imports-python",
        name="B13: a call at the top of a module",
        bad={"files": {"freewheel/probe.py": IMPORTED}},
        found="torch.cuda.is_available(): ",
        subject="freewheel/probe.py:3",
        good={"files": {"freewheel/probe.py": ASKED}},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_rule_finds_what_it_is_for(case: Case, tmp_path: Path) -> None:
    finds(case, tmp_path)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_rule_is_silent_about_a_wheel_that_keeps_it(case: Case, tmp_path: Path) -> None:
    keeps(case, tmp_path)


def test_the_json_counts_what_is_wanted_of_the_driver_and_of_the_runtime(tmp_path: Path) -> None:
    driver = ("cuInit", "cuMemAlloc_v2")
    runtime = ("cudaMalloc", "__cudaRegisterFunction", "__cudaPushCallConfiguration")
    others = ("cublasCreate_v2", "_ZN4cuda3fooEv", "curl_easy_init", "nvmlInit_v2")
    needs = ("libc.so.6", "libcuda.so.1")
    found = audited(tmp_path, **one(undefined=(*driver, *runtime, *others), needed=needs))
    assert found.facts is not None
    link = found.facts.libraries[0].link
    assert link is not None
    assert (link.undefined, link.driver_symbols, link.runtime_symbols) == (9, 2, 3)


def test_a_wheel_of_very_many_modules_is_left_to_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wheelfab.audit.rules.imports._MOST_MODULES", 1)
    found = audited(tmp_path, files={"freewheel/a.py": IMPORTED, "freewheel/b.py": IMPORTED})
    reasons = [each.reason for each in found.unchecked if each.rule == "imports-python"]
    assert ["run wheelfab lint-import" in reason for reason in reasons] == [True]
