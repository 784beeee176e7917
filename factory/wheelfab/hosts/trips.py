"""What a visit is made with: the plan that ``visit.py`` reads, its mode and its time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wheelfab.host import Host
from wheelfab.hosts.arrange import Emulation
from wheelfab.hosts.judge import Expected
from wheelfab.hosts.sites import Site
from wheelfab.model import Project
from wheelfab.records import write_json

_TIMEOUT = 120.0  # seconds of a visit
_TORCH = "torch"  # the stage that is left out where an error is expected

Stage = tuple[str, str, bool]  # its name, its code, whether it needs torch


@dataclass(frozen=True, kw_only=True, slots=True)
class Trip:
    """What one visit is made with. ``mode`` is one of ``visit.py``, ``limit`` in seconds."""

    site: Site
    plan: Path
    mode: str
    emulation: Emulation | None = None
    limit: float = _TIMEOUT


def stages_of(
    project: Project, expected: Expected, emulation: Emulation | None
) -> tuple[Stage, ...]:
    """The stages of a load, with operations on the devices where they are emulated."""
    stages = tuple(
        (stage.stage, stage.run, stage.needs_torch)
        for stage in project.load
        if not expected.error or stage.stage != _TORCH
    )
    usable = usable_of(expected)
    if emulation is None or project.device_run is None or not usable:
        return stages
    return (*stages, ("devices", on_devices(project.device_run.operation, usable), True))


def plan_of(
    project: Project,
    host: Host,
    stages: Sequence[Stage],
    emulation: Emulation | None,
    forks: int,
) -> Mapping[str, object]:
    """The plan of a load with these stages, and with ``forks`` processes forked from it."""
    return {
        "stages": stages,
        "repeat": (project.load[-1].stage, project.load[-1].run),
        "state": project.state,
        "later": [dict(variables) for variables in host.environment_after],
        "way": str(host.way),
        "before": emulation.before if emulation is not None else "",
        "forks": forks,
    }


def write_plan(path: Path, plan: Mapping[str, object]) -> None:
    """Write a plan that every user of a host can read."""
    write_json(path, {"schema": 1, **plan})
    path.chmod(0o644)


def usable_of(expected: Expected) -> tuple[int, ...]:
    """The ordinals of the devices that the wheel has an image for."""
    images = enumerate(expected.images or ())
    return tuple(at for at, image in images if not image.startswith("none"))


def on_devices(operation: str, ordinals: Sequence[int]) -> str:
    """Python code that runs ``operation`` on each of the devices ``ordinals``."""
    lines = [f"operation = compile({operation!r}, '<operation>', 'exec')"]
    lines += [f"for ordinal in {list(ordinals)}:"]
    lines += ["    exec(operation, {**globals(), 'device': f'cuda:{ordinal}'})"]
    return "\n".join(lines)
