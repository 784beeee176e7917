"""Row 27: what needs a device says so, and is not built on one that will not do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from freewheel.device import Device, DeviceRequirement, DeviceState, Needs, Status
from freewheel.errors import DeviceError

PACKAGE = Path(__file__).resolve().parents[2] / "engine" / "freewheel"
# Parts of an engine, by the ends of their names: each must say what device it needs.
PARTS = re.compile(r"(Manager|Scheduler|Runner|Executor|Worker|Engine|Pool|Cache|Sampler|Backend)$")

DEVICE = Device(
    ordinal=0,
    name="Fake",
    capability=(8, 0),
    total_memory=16 << 30,
    free_memory=None,
    uuid=None,
    mig=False,
    image="8.0",
)
READY = DeviceState(Status.READY, "", devices=(DEVICE, replace(DEVICE, ordinal=1, note="busy")))


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.READY])
def test_row_27_every_state_that_is_not_ready_refuses(status: Status) -> None:
    """With its own reason and next step, and never when nothing is needed."""
    state = DeviceState(status, "so it is", "do this")
    with pytest.raises(DeviceError) as raised:
        Needs().validate_device(state)
    assert str(raised.value) == f"{status}: so it is; do this"
    assert state.fallback is not None
    Needs(devices=0).validate_device(state)


@pytest.mark.parametrize(
    ("needs", "words"),
    [
        (Needs(), ""),
        (Needs(capability=(8, 0), memory=16 << 30), ""),
        (Needs(devices=2), "2 devices are needed, and 1 of the 2 visible ones will do"),
        (Needs(capability=(9, 0)), "of capability 9.0 are needed, and 0 of the 2"),
        (Needs(memory=17 << 30), "of 17.0 GiB are needed"),
    ],
)
def test_needs_in_numbers(needs: Needs, words: str) -> None:
    assert isinstance(needs, DeviceRequirement)
    if not words:
        needs.validate_device(READY)
        return
    with pytest.raises(DeviceError, match=re.escape(words)):
        needs.validate_device(READY)


def lacking(sources: Iterable[tuple[str, str]]) -> list[str]:
    """Parts without ``validate_device``, of their own or of a class that they are made from."""
    classes = {
        node.name: (name, node)
        for name, text in sources
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef)
    }

    def has(name: str) -> bool:
        if name not in classes:
            return False
        node = classes[name][1]
        own = any(
            isinstance(item, ast.FunctionDef) and item.name == "validate_device"
            for item in node.body
        )
        return own or any(has(ast.unparse(base).rpartition(".")[2]) for base in node.bases)

    return [
        f"{where}: {name}"
        for name, (where, _) in classes.items()
        if PARTS.search(name) and not has(name)
    ]


def test_row_27_every_part_of_an_engine_says_what_it_needs() -> None:
    """Managers, schedulers, runners: read from the sources, so that none is left out."""
    sources = [(str(path.relative_to(PACKAGE)), path.read_text()) for path in PACKAGE.rglob("*.py")]
    assert lacking(sources) == []


def test_row_27_a_part_that_does_not_is_found() -> None:
    planted = """
class Scheduler:
    pass
class Base:
    def validate_device(self, state): ...
class ModelRunner(Base):
    pass
class BlockManager(outside.Base):
    pass
class KVCache(Scheduler):
    pass
class Request:
    pass
"""
    assert lacking([("core.py", planted)]) == ["core.py: Scheduler", "core.py: KVCache"]
