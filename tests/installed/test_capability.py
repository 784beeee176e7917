"""Row 20: what ``freewheel.capabilities()`` says is what the wheel does."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest
import torch

import freewheel
from freewheel import ops
from freewheel.capability import Capabilities
from freewheel.device import Needs
from freewheel.errors import DeviceError
from tests.factory.compatmaker import check_row
from tests.installed.machine import start
from tests.installed.test_arguments import arguments
from wheelfab.compat import tabulate
from wheelfab.matrix import load_matrix
from wheelfab.model import Profile
from wheelfab.variant import expand

ROOT = Path(__file__).parents[2]

SAY = """
import json, sys
import freewheel
known = freewheel.capabilities()
print(json.dumps([
    "torch" in sys.modules, known.state.status, known.torch.loadable,
    [device.image for device in known.devices], [part.usable for part in known.parts],
]))
"""


@pytest.fixture(scope="module")
def known() -> Capabilities:
    """Of this process, where torch is loaded."""
    freewheel.load()
    return freewheel.capabilities()


@pytest.mark.parametrize(
    ("fail", "status", "images"),
    [
        ("", "ready", ["8.0", None]),
        ("cuInit=100", "no_device", []),
        ("cuInit=segv", "driver_crashed", []),
        ("cuInit=hang", "driver_hung", []),
        ("load=abort", "driver_crashed", []),
    ],
)
def test_row_20_nothing_raises_on_any_machine(
    driver: Path, fail: str, status: str, images: list[str | None]
) -> None:
    done = start(SAY, driver, FAKECUDA_FAIL=fail, FAKECUDA_DEVICES="8.0,7.5")
    assert done.returncode == 0, done.stderr
    imported, found, loadable, shown, parts = json.loads(done.stdout)
    assert (imported, found, loadable) == (False, status, None)
    if freewheel.build()["cuda"] is not None:
        assert shown == images
    assert parts == [True, True, None, True]


def test_row_20_a_requirement_raises(known: Capabilities) -> None:
    known.validate(Needs(devices=0))
    with pytest.raises(DeviceError):
        known.validate(Needs(devices=99))


def test_it_agrees_with_the_wheel(known: Capabilities) -> None:
    record = freewheel.build()
    assert known.version == freewheel.__version__
    assert list(known.wheel.archs) == record["archs"]
    assert known.torch.loadable is True
    assert known.torch.found == torch.__version__
    assert known.torch.built_for == record["torch"]["requirement"]
    assert known.cpu.chosen == ops.cpu_isa()
    assert known.cpu.chosen in known.cpu.usable
    assert set(known.cpu.usable) <= set(known.cpu.built)
    assert all(part.usable for part in known.parts)
    assert all(field.name for field in fields(known))


def test_row_42_the_wheel_carries_its_own_row() -> None:
    """The table's row of this wheel, made from its file, is what the installed one says."""
    record = freewheel.build()
    expansion = expand(load_matrix(ROOT / "matrix.toml"), Profile(record["profile"]))
    cells = [cell for cell in expansion.cells if cell.id == record["cell"]]
    (row,) = tabulate(ROOT, cells, ()).wheels
    check_row(row, record)


def test_it_names_every_operation(known: Capabilities) -> None:
    registered = {
        schema.name.removeprefix("freewheel::")
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.startswith("freewheel::")
    }
    assert {item.name for item in known.operations} == registered - {"warm_up", "cpu_isa"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_the_dtypes_are_those_that_are_taken(known: Capabilities, dtype: torch.dtype) -> None:
    name = str(dtype).removeprefix("torch.")
    for item in known.operations:
        given = {
            key: value.to(dtype)
            if isinstance(value, torch.Tensor) and value.dtype == torch.float32 and key != "cos_sin"
            else value
            for key, value in arguments(item.name).items()
        }
        call = getattr(torch.ops.freewheel, item.name)
        if name in item.dtypes:
            call(*given.values())
            continue
        with pytest.raises(RuntimeError, match="must be float32, float16 or bfloat16"):
            call(*given.values())


@pytest.mark.parametrize("head_size", range(8, 300, 8))
def test_the_head_sizes_are_those_that_are_taken(known: Capabilities, head_size: int) -> None:
    listed = {item.head_sizes for item in known.operations if item.head_sizes}
    assert len(listed) == 1
    assert taken(head_size, 16) == (head_size in next(iter(listed)))


@pytest.mark.parametrize("block_size", [1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 128])
def test_the_block_sizes_are_those_that_are_taken(known: Capabilities, block_size: int) -> None:
    listed = {item.block_sizes for item in known.operations if item.block_sizes}
    assert len(listed) == 1
    assert taken(64, block_size) == (block_size in next(iter(listed)))


def taken(head_size: int, block_size: int) -> bool:
    """Whether the cache takes these sizes."""
    cache = torch.zeros(2, block_size, 1, head_size)
    key = torch.zeros(1, 1, head_size)
    try:
        ops.reshape_and_cache(key, key, cache, cache.clone(), torch.zeros(1, dtype=torch.int64))
    except RuntimeError as error:
        refusal = str(error)
    else:
        return True
    assert "must have" in refusal
    return False
