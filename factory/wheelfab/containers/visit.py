"""A container for a person: a shell in it, or one command."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from wheelfab import console
from wheelfab.containers.engine import Engine
from wheelfab.containers.options import ContainerOptions, Mount
from wheelfab.errors import UsageError
from wheelfab.run import Completed, attach, tool_environment

WHEELS = "/wheels"  # where the built wheels lie in it
_LONGEST_COMMAND = 3600.0  # seconds
_CLIENT = ("DOCKER_HOST", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH", "TERM")


def visiting(image: str, target: str, wheels: Path) -> ContainerOptions:
    """The container that ``target`` is opened in: non-root, no network, ``wheels`` read-only."""
    mounts = (Mount(source=wheels, target=WHEELS),) if wheels.is_dir() else ()
    return ContainerOptions(image=image, mounts=mounts, gpus=target == "gpu-host", hostname=target)


def run_command(engine: Engine, options: ContainerOptions, command: Sequence[str]) -> Completed:
    """Run one command in a container of its own."""
    with engine.start(options) as container:
        return container.run(command, timeout=_LONGEST_COMMAND)


def open_shell(engine: Engine, options: ContainerOptions) -> int:
    """Open a shell on our terminal by Docker's own client; gives the shell's exit code.

    Raises ``UsageError`` where the client is not installed.
    """
    client = shutil.which("docker")
    if client is None:
        raise UsageError(
            "a shell needs Docker's command line client",
            next_step="install docker.io or docker-cli, or give a command after --",
        )
    if not options.mounts:
        console.note("no wheels are built: there is no " + WHEELS)
    kept = {name: os.environ[name] for name in _CLIENT if name in os.environ}
    with engine.start(options) as container:
        argv = (client, "exec", "-i", "-t", container.id, "bash")
        return attach(argv, env=tool_environment(kept), cwd=Path.cwd())
