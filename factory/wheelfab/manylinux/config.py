"""cibuildwheel's configuration for one cell, made from the plan. Pure: text out of records."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath

import tomlkit

from wheelfab.plan import Plan
from wheelfab.steps import fill
from wheelfab.variant import Cell

IDENTIFIER = "cp311-manylinux_x86_64"  # the CPython of the image; the wheel's own tag is the plan's
PROJECT = PurePosixPath("/project")  # where cibuildwheel copies its working folder to
INPUTS = PurePosixPath("/inputs")  # the store, read-only
OBJECTS = PurePosixPath("/objects")  # what is compiled, kept from one cell to the next
COMPILED = "wheelfab compiled "  # begins the line that tells what the compilers did
SOURCES, LINE, DOOR, ORDER = "sources", "line", "door", "order.json"


def configuration(
    plan: Plan, cell: Cell, *, image: str, mounts: Sequence[tuple[str, str]], tools: str
) -> str:
    """The TOML of ``cell``'s build in ``image`` (an id); nothing is reached over a network.

    ``mounts`` are folders of this machine and their places there, ``:ro`` included; ``tools`` is
    the folder of the locked tools in the container.
    """
    volumes = [f"--volume={source}:{target}" for source, target in mounts]
    table = {
        "build": IDENTIFIER,
        "archs": ["x86_64"],
        "manylinux-x86_64-image": image,
        "container-engine": {
            "name": "docker",
            "create-args": ["--network=none", *volumes],
            "disable-host-mount": True,
        },
        "build-frontend": {"name": "build", "args": ["--no-isolation"]},
        "dependency-versions": "latest",
        "environment": {
            "PATH": f"{tools}/bin:$PATH",
            "PYTHONPATH": f"{PROJECT / LINE}:{tools}",
            "WHEELFAB_STORE": str(INPUTS),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        "repair-wheel-command": repair_command(plan, cell),
        "audit-command": "",
        "test-command": load_command(plan),
        # The wheel alone, without torch; and without the tools that built it.
        "test-environment": {"PIP_NO_DEPS": "1", "PIP_NO_INDEX": "1", "PYTHONPATH": ""},
    }
    return tomlkit.dumps({"tool": {"cibuildwheel": table}})


def repair_command(plan: Plan, cell: Cell) -> str:
    """The line's own call of auditwheel, with its policy and exclusions, then the line's end."""
    places = {"python": "python", "out": "{dest_dir}", "wheel": "{wheel}"}
    repair = fill(plan.wheel(cell).steps[-1].argv, places)
    finish = ("python", "-m", "wheelfab.manylinux.finish", "{dest_dir}")
    return f"{shlex.join(repair)} && {shlex.join(finish)}"


def load_command(plan: Plan) -> str:
    """One load of the wheel: the matrix's stages that need no torch."""
    stages = [stage.run.strip() for stage in plan.matrix.project.load if not stage.needs_torch]
    return shlex.join(("python", "-c", "\n".join(stages)))


def door(plan: Plan) -> str:
    """The ``pyproject.toml`` that cibuildwheel finds: its backend is the line."""
    project = plan.matrix.project
    return tomlkit.dumps(
        {
            "build-system": {"requires": [], "build-backend": "wheelfab.manylinux.hook"},
            "project": {
                "name": project.name,
                "version": "0",
                "requires-python": str(project.python),
            },
        }
    )
