"""The policy of a cell's wheel: what its row of the matrix says, on top of a policy file."""

from __future__ import annotations

from wheelfab.arch import format_arch_list
from wheelfab.audit.kind import WheelKind
from wheelfab.audit.policy import Policy
from wheelfab.audit.rules import RULES
from wheelfab.facts import RowKind
from wheelfab.model import Project
from wheelfab.variant import Cell, size_budget

_KINDS = {
    RowKind.CPU: WheelKind.CPU,
    RowKind.DRIVER: WheelKind.CUDA_DRIVER,
    RowKind.RUNTIME: WheelKind.CUDA_RUNTIME,
}


def cell_policy(cell: Cell, project: Project, policy: Policy) -> Policy:
    """``policy`` with kind, budget, CUDA and archs of ``cell``, where every rule must be checked.

    Rules that need ``--deep`` are required only where ``policy`` says so.
    """
    quick = tuple(rule.id for rule in RULES.values() if not rule.deep)
    contents = policy.contents.model_copy(
        update={"budget": policy.contents.budget or size_budget(cell, project)}
    )
    device, variant = policy.device, cell.variant
    if variant.cuda is not None:
        archs, cuda = format_arch_list(variant.arch), str(variant.cuda)
        device = device.model_copy(
            update={"archs": device.archs or archs, "cuda": device.cuda or cuda}
        )
    return policy.model_copy(
        update={
            "kind": policy.kind or _KINDS[variant.kind],
            "required": (*policy.required, *quick),
            "contents": contents,
            "device": device,
        }
    )
