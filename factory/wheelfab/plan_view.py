"""The plan in words: cells, actions, what each is shared by, what is stored, and the cost."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from wheelfab import console
from wheelfab.legality import notes
from wheelfab.plan import Action, ActionKind, Plan, python
from wheelfab.records import read_json
from wheelfab.steps import Step
from wheelfab.variant import Excluded

_BY_HAND = {"python": python(), "cxx": "g++", "cc": "gcc", "jobs": "1", "root": "."}


def plan_record(
    plan: Plan, excluded: Sequence[Excluded], missing: Sequence[Action], times: Path
) -> dict[str, Any]:
    """The plan as plain facts; ``seconds`` is what an action took when it last ran, or null."""
    to_run = {action.id for action in missing}
    actions = [
        {
            "id": action.id,
            "kind": str(action.kind),
            "key": action.key,
            "needs": list(action.needs),
            "shared_by": list(action.cells),
            "to_run": action.id in to_run,
            "seconds": _seconds(times / f"{action.key}.json"),
            "commands": [_typed(action, step) for step in action.steps],
        }
        for action in plan.actions
    ]
    return {
        "digest": plan.digest,
        "cells": [
            {
                "id": cell.id,
                "profile": cell.profile,
                "local_version": cell.local_version,
                "torch": str(cell.pin.requirement),
            }
            for cell in plan.cells
        ],
        "notes": list(notes(plan.matrix)),
        "excluded": [{"id": item.id, "reason": item.reason} for item in excluded],
        "compiler": plan.compiler,
        "actions": actions,
        "cost": plan_cost(plan, actions),
    }


def plan_cost(plan: Plan, actions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Compilations planned, against one of everything per cell, and the seconds where known."""
    compiled = [action for action in plan.actions if action.kind is not ActionKind.WHEEL]
    unshared = sum(len(action.cells) for action in compiled)
    known = [action["seconds"] for action in actions if action["to_run"]]
    return {
        "compilations": len(compiled),
        "without_sharing": unshared,
        "to_run": len(known),
        "seconds_last_time": sum(seconds for seconds in known if seconds),
        "never_timed": sum(seconds is None for seconds in known),
    }


def show_plan(record: Mapping[str, Any]) -> None:
    """Print the plan as tables, then the device compiles as a person would type them."""
    cells = [
        (cell["id"], cell["local_version"], f"torch{cell['torch']}") for cell in record["cells"]
    ]
    cells += [(item["id"], "excluded", item["reason"]) for item in record["excluded"]]
    console.table(("cell", "local version", "requires"), cells)
    rows = [
        (
            action["id"],
            "to run" if action["to_run"] else "stored",
            f"{action['seconds']:.1f} s" if action["seconds"] is not None else "not timed",
            ", ".join(action["shared_by"]),
        )
        for action in record["actions"]
    ]
    console.table(("action", "state", "last time", "shared by"), rows)
    cost = record["cost"]
    console.result(
        f"{cost['compilations']} compilations instead of {cost['without_sharing']}; "
        f"{cost['to_run']} actions to run, {cost['seconds_last_time']:.0f} s when last timed, "
        f"{cost['never_timed']} never timed\nplan {record['digest']}"
    )
    for note in record["notes"]:
        console.result(note)
    for action in record["actions"]:
        if action["kind"] == ActionKind.DEVICE:
            console.result("\n".join(action["commands"]))


def _typed(action: Action, step: Step) -> str:
    """A step as it can be typed in the project's root, wheelfab being installed or not."""
    path = () if _is_installed() else (("PYTHONPATH", str(Path(__file__).parents[1])),)
    return replace(step, env=(*path, *step.env)).shell(_places(action))


@cache
def _is_installed() -> bool:
    try:
        importlib.metadata.version("wheelfab")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _places(action: Action) -> dict[str, str]:
    folder = f"build/by-hand/{action.id.replace(':', '-')}"
    needs = {need: f"build/by-hand/{need.replace(':', '-')}" for need in action.needs}
    return {
        **_BY_HAND,
        **needs,
        "out": folder,
        "work": f"{folder}/work",
        "device": f"{folder}/device",
        "torch": f"{folder}/torch",
        "wheel": f"{folder}/raw.whl",
    }


def _seconds(path: Path) -> float | None:
    return float(read_json(path)["seconds"]) if path.exists() else None
