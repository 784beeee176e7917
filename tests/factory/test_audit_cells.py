"""A cell's policy: its row's kind and budget, and nothing left unchecked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.factory.cellmaker import cells
from tests.factory.matrixmaker import MATRIX, load
from wheelfab.audit import Policy, cell_policy
from wheelfab.audit.kind import WheelKind
from wheelfab.audit.rules import RULES


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cpu-torch2.4", WheelKind.CPU),
        ("cu121-torch2.10", WheelKind.CUDA_DRIVER),
    ],
)
def test_the_row_says_kind_and_budget(name: str, kind: WheelKind, tmp_path: Path) -> None:
    (cell,) = cells([name])
    policy = cell_policy(cell, load(tmp_path, MATRIX).project, Policy())
    assert policy.kind is kind
    assert policy.contents.budget == cell.variant.size_budget
    archs = "8.0;8.6;8.9;9.0+PTX" if kind is WheelKind.CUDA_DRIVER else None
    assert (policy.device.archs, policy.device.cuda) == (archs, "12.1" if archs else None)


def test_every_quick_rule_is_required(tmp_path: Path) -> None:
    (cell,) = cells(["cpu-torch2.4"])
    policy = cell_policy(cell, load(tmp_path, MATRIX).project, Policy())
    assert set(policy.required) == {rule.id for rule in RULES.values() if not rule.deep}


def test_a_policy_file_goes_before_the_row(tmp_path: Path) -> None:
    (cell,) = cells(["cpu-torch2.4"])
    own = Policy.model_validate(
        {"kind": "pure", "contents": {"budget": "1 MB", "packages": ["x"]}, "required": ["deep"]}
    )
    policy = cell_policy(cell, load(tmp_path, MATRIX).project, own)
    assert policy.kind is WheelKind.PURE
    assert policy.contents.budget == 1_000_000
    assert policy.contents.packages == ("x",)
    assert policy.required[0] == "deep"
