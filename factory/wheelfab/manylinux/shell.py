"""The builder's container for a person: a copy of the sources, the inputs, the line."""

from __future__ import annotations

import shutil
from pathlib import Path

from wheelfab.containers import ContainerOptions, Engine, Mount
from wheelfab.containers.visit import open_shell
from wheelfab.errors import ToolchainError
from wheelfab.locked import ADD, LOCK
from wheelfab.manylinux.box import Box, lay_out
from wheelfab.manylinux.config import INPUTS, LINE, PROJECT
from wheelfab.plan import Plan
from wheelfab.store import Store
from wheelfab.toolchain.tools import KIND, fetch_tools, tools_key


def shell_options(plan: Plan, box: Box, folder: Path, store: Store) -> ContainerOptions:
    """The container that a build gets, to look around in; ``folder`` is its ``/project``.

    In ``/project/sources``, ``python -m wheelfab build CELL`` builds as cibuildwheel's hook does.
    """
    if plan.locked is None:
        raise ToolchainError("there is none", where=LOCK, next_step=ADD)
    fetch_tools(store, plan.locked.container)
    lay_out(plan, plan.cells[0], folder)
    tools = INPUTS / KIND / tools_key(plan.locked.container) / "content"
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return ContainerOptions(
        image=box.image,
        mounts=(
            Mount(source=folder, target=str(PROJECT), writable=True),
            Mount(source=store.root, target=str(INPUTS)),
        ),
        environment={
            "PATH": f"{tools}/bin:/opt/python/cp311-cp311/bin:{path}",
            "PYTHONPATH": f"{PROJECT / LINE}:{tools}",
            "WHEELFAB_STORE": str(INPUTS),
        },
        user="root",
        hostname="wheel-builder",
    )


def visit_box(engine: Engine, options: ContainerOptions, folder: Path) -> int:
    """Open a shell there; gives its exit code. The copy of the sources goes when it ends."""
    try:
        return open_shell(engine, options)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
