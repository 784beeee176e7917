"""Cells built in the container and put into ``dist/``, and its shell: what commands ask for."""

from __future__ import annotations

from wheelfab import console
from wheelfab.build import CellResult, CellState, place_wheel
from wheelfab.containers import NoEngine, find_engine
from wheelfab.errors import FactoryError, InfrastructureError
from wheelfab.inputs import fetch_inputs
from wheelfab.manylinux.box import build_in_box, find_box
from wheelfab.manylinux.shell import shell_options, visit_box
from wheelfab.plan import Plan
from wheelfab.store import Store
from wheelfab.wheel import read_wheel


def build_boxed(plan: Plan, store: Store, *, only_listed: bool = False) -> tuple[CellResult, ...]:
    """Build every cell of ``plan`` in the container, into ``dist/``; the others outlive a failure.

    Raises ``InfrastructureError`` where no engine answers, ``ToolchainError`` for a base image that
    differs from the lock's, with ``only_listed`` also for one that the lock does not list.
    """
    folder = plan.source.root.resolve() / "build" / "container"
    box = find_box(plan.source.root, plan.locked, only_listed=only_listed)
    fetch_inputs(plan.locked, plan.cells, store)
    results = []
    for cell in plan.cells:
        try:
            made = build_in_box(plan, cell, box, folder / cell.id, store)
        except FactoryError as error:
            console.error(f"{cell.id}: {error}")
            state = CellState.FAILED
            results.append(CellResult(cell=cell.id, state=state, reason=str(error)))
            continue
        record = read_wheel(made.wheel).build
        results.append(place_wheel(plan, cell, made.wheel, record, fresh=True))
    return tuple(results)


def open_box(plan: Plan, store: Store) -> int:
    """Open a shell in the container that ``plan``'s cells are built in; gives its exit code."""
    engine = find_engine(plan.source.root)
    if isinstance(engine, NoEngine):
        raise InfrastructureError(engine.reason, next_step="start dockerd, or set DOCKER_HOST")
    box = find_box(plan.source.root, plan.locked)
    fetch_inputs(plan.locked, plan.cells, store)
    folder = plan.source.root.resolve() / "build" / "shell"
    return visit_box(engine, shell_options(plan, box, folder, store), folder)
