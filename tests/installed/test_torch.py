"""How the operators behave in torch: registration, fake tensors, compilation."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from freewheel import ops
from tests.installed.test_arguments import arguments

OPERATORS = (
    "rms_norm",
    "fused_add_rms_norm",
    "silu_and_mul",
    "rotary_embedding",
    "reshape_and_cache",
    "paged_attention",
)


@pytest.mark.parametrize("name", OPERATORS)
def test_opcheck(name: str) -> None:
    """Schema, fake implementation, autograd registration, AOT dispatch with dynamic shapes."""
    operator: Any = getattr(torch.ops.freewheel, name).default
    torch.library.opcheck(operator, tuple(arguments(name).values()))


@pytest.mark.parametrize("name", ["warm_up", "cpu_isa"])
def test_opcheck_without_tensors(name: str) -> None:
    """The schema of a function without a tensor."""
    operator: Any = getattr(torch.ops.freewheel, name).default
    given = (-1,) if name == "warm_up" else ()
    torch.library.opcheck(operator, given, test_utils="test_schema")


def test_every_operator_is_here() -> None:
    """The namespace holds the operators of the schema list, and nothing else."""
    registered = {
        schema.name
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.startswith("freewheel::")
    }
    assert registered == {f"freewheel::{name}" for name in (*OPERATORS, "warm_up", "cpu_isa")}


def test_meta_tensors_do_nothing() -> None:
    """On the meta device an operation is valid and computes nothing."""
    x = torch.empty(2, 8, device="meta")
    assert ops.rms_norm(x, torch.empty(8, device="meta")).device.type == "meta"


@pytest.mark.filterwarnings("ignore")  # torch's own, while it compiles
def test_compile_full_graph() -> None:
    """One operation in a graph without a break, for several shapes."""

    def block(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return ops.rms_norm(x * 2, weight, 1e-5) + 1

    compiled = torch.compile(block, fullgraph=True, backend="aot_eager", dynamic=True)
    weight = torch.randn(32)
    for rows in (1, 4, 9):
        x = torch.randn(rows, 32)
        assert torch.allclose(compiled(x, weight), block(x, weight))


def test_meta_among_others() -> None:
    """Torch would call the Meta implementation, and nothing would be computed."""
    x = torch.ones(1, 4)
    with pytest.raises(RuntimeError, match="some tensors are on the meta device and some are not"):
        ops.rms_norm(x, torch.ones(4, device="meta"), out=x)
