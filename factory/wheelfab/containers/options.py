"""What a container may see and do, and the arguments to the engine that say so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from docker.types import DeviceRequest
from docker.types import Mount as DockerMount

from wheelfab.errors import UsageError

KEEPER = "/opt/keeper/keeper"  # process 1, and the parent of each command; docker/keeper.c


@dataclass(frozen=True, kw_only=True, slots=True)
class Mount:
    """A file or folder of this machine at ``target`` in the container."""

    source: Path
    target: str
    writable: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ContainerOptions:
    """A container to start: nothing of this machine but ``mounts``, no network, no new privileges.

    ``image`` is an id from ``Engine.image`` or an image made from one of those. ``user`` None is
    the image's own. ``tmpfs`` maps folders to mount options, such as ``"size=64m,noexec"``.
    ``memory`` is in bytes, swap included. ``network`` gives it this machine's own network.
    ``security`` holds the engine's options, such as ``seccomp=<the profile's JSON text>``.
    """

    image: str
    mounts: tuple[Mount, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str | None = "wheel"
    read_only: bool = False
    tmpfs: Mapping[str, str] = field(default_factory=dict)
    memory: int | None = None
    network: bool = False
    privileged: bool = False
    capabilities: tuple[str, ...] = ()
    security: tuple[str, ...] = ()
    gpus: bool = False
    hostname: str = "wheelfab"


def creation(
    options: ContainerOptions, *, name: str, labels: Mapping[str, str], runtime: str | None
) -> dict[str, Any]:
    """The keyword arguments of the SDK's ``containers.create``.

    Raises ``UsageError`` for a mount of something that does not exist.
    """
    security = options.security if options.privileged else ("no-new-privileges", *options.security)
    arguments: dict[str, Any] = {
        "image": options.image,
        "entrypoint": [KEEPER],
        "command": [],
        "name": name,
        "labels": dict(labels),
        "hostname": options.hostname,
        "environment": dict(options.environment),
        "mounts": [_mount(mount) for mount in options.mounts],
        "read_only": options.read_only,
        "tmpfs": dict(options.tmpfs),
        "network_mode": "host" if options.network else "none",
        "privileged": options.privileged,
        "cap_add": list(options.capabilities),
        "security_opt": list(security),
        "log_config": {"Type": "none", "Config": {}},
    }
    if options.network:
        del arguments["hostname"]  # the machine's own, with its network
    if options.user is not None:
        arguments["user"] = options.user
    if options.memory is not None:
        arguments |= {"mem_limit": options.memory, "memswap_limit": options.memory}
    if options.gpus:
        arguments["device_requests"] = [DeviceRequest(count=-1, capabilities=[["gpu"]])]
    elif runtime is not None:
        arguments["runtime"] = runtime
    return arguments


def _mount(mount: Mount) -> DockerMount:
    if not mount.source.exists():
        raise UsageError(f"cannot mount {mount.source}: it does not exist")
    return DockerMount(
        target=mount.target,
        source=str(mount.source.resolve()),
        type="bind",
        read_only=not mount.writable,
    )
