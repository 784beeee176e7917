"""The Docker engine of this machine: whether one answers, its images, its containers."""

from __future__ import annotations

import contextlib
import os
import secrets
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
from docker import DockerClient
from docker.errors import APIError, NotFound

from wheelfab import console
from wheelfab.containers.container import Container, reason
from wheelfab.containers.failing import FAILED
from wheelfab.containers.images import base_digest, find_or_build, recipe
from wheelfab.containers.options import ContainerOptions, creation
from wheelfab.containers.owner import OWNER, is_abandoned, owner_labels
from wheelfab.errors import InfrastructureError, NoDeviceError

_ANSWER = 2  # seconds for an engine to accept and again to answer: 4 in all
_PATIENCE = 600  # seconds for one answer of an engine that is there
_CONNECTIONS = 64  # kept open: one a thread that runs commands
# A name error is what the SDK gives for ssh:// without paramiko.
_NO_ANSWER = (*FAILED, ValueError, LookupError, NameError)
_QUICK = "crun"  # an exec by crun takes under half the CPU of one by runc


@dataclass(frozen=True, kw_only=True, slots=True)
class NoEngine:
    """No engine answers, and why."""

    reason: str


class Engine:
    """An engine that answers. It takes images from ``docker/`` in the project's folder."""

    def __init__(self, client: DockerClient, root: Path) -> None:
        self._client, self._root = client, root
        info: dict[str, Any] = client.info()
        self._usual = str(info["DefaultRuntime"])
        self.runtime = _QUICK if _QUICK in info["Runtimes"] else self._usual
        self.has_nvidia = "nvidia" in info["Runtimes"]
        self._version = str(info["ServerVersion"])
        self._swept = False
        weakref.finalize(self, client.close)

    @property
    def describe(self) -> str:
        """The engine in one line: its version and the runtime that containers get."""
        return f"Docker {self._version}, {self.runtime}"

    def image(self, target: str, base: str = "debian-12") -> str:
        """The id of the image ``target`` of ``docker/Dockerfile`` on ``base``, built if need be.

        ``base`` names an image ``wheelfab/base:<base>``, which ``docker/bootstrap`` makes.

        Raises ``InfrastructureError`` when the base is not there or the build fails.
        """
        with _told("cannot make an image"):
            made_of = recipe(self._client, self._root, target, base)
            return find_or_build(self._client, self._root, made_of)

    def base_digest(self, base: str) -> str | None:
        """The digest of what is in a base image; ``None`` where there is no such base."""
        with _told("cannot look at an image"):
            try:
                return base_digest(self._client, base)
            except InfrastructureError:
                return None

    @contextmanager
    def start(self, options: ContainerOptions) -> Iterator[Container]:
        """A container while the block runs; removed with all its processes however that ends.

        The first one started also removes those of wheelfab's processes that were killed.

        Raises ``InfrastructureError`` when the engine cannot start it, ``NoDeviceError`` when it
        has no GPUs to give.
        """
        self._sweep()
        name = f"wheelfab-{os.getpid()}-{secrets.token_hex(4)}"
        try:
            yield Container(self._client, self._launch(options, name))
        finally:
            self._remove(name)

    def _launch(self, options: ContainerOptions, name: str) -> str:
        """The id of the started container; crun fails on cgroups that runc takes, so both try."""
        runtime = None if options.gpus else self.runtime
        try:
            return self._attempt(options, name, runtime)
        except FAILED as error:
            self._remove(name)
            if runtime in (None, self._usual):
                raise _start_error(error, options, nvidia=self.has_nvidia) from error
            failure = reason(error)
        try:
            identifier = self._attempt(options, name, self._usual)
        except FAILED as error:
            raise _start_error(error, options, nvidia=self.has_nvidia) from error
        console.warn(f"{runtime} starts no container, {self._usual} does: {failure}")
        self.runtime = self._usual
        return identifier

    def _attempt(self, options: ContainerOptions, name: str, runtime: str | None) -> str:
        arguments = creation(options, name=name, labels=owner_labels(), runtime=runtime)
        created = self._client.containers.create(**arguments)
        created.start()
        return str(created.id)

    def _sweep(self) -> None:
        if self._swept:
            return
        with _told("cannot list containers"):
            for container in self._client.containers.list(
                all=True, sparse=True, filters={"label": OWNER}
            ):
                if is_abandoned(container.attrs["Labels"]):
                    self._remove(str(container.id))
        self._swept = True

    def _remove(self, name: str) -> None:
        """Remove a container by its name, as an interrupt may come before its id is known."""
        with _told(f"cannot remove the container {name}"), contextlib.suppress(NotFound):
            try:
                self._client.api.remove_container(name, v=True, force=True)
            except APIError as error:
                if error.status_code != 409:  # another process is removing it
                    raise


def find_engine(root: Path) -> Engine | NoEngine:
    """The engine that ``DOCKER_HOST`` names, or the one behind Docker's usual socket.

    Answers within 5 s and never raises; ``root`` is the project's folder.
    """
    where = os.environ.get("DOCKER_HOST") or "the usual socket"
    try:
        client = docker.from_env(timeout=_ANSWER, max_pool_size=_CONNECTIONS)
    except _NO_ANSWER as error:
        return NoEngine(reason=f"no Docker engine answers at {where}: {_shortly(error)}")
    try:
        engine = Engine(client, root)
    except _NO_ANSWER as error:
        client.close()
        return NoEngine(reason=f"the Docker engine at {where} answers badly: {_shortly(error)}")
    client.api.timeout = _PATIENCE
    return engine


def _shortly(error: Exception) -> str:
    """The innermost reason: requests wraps a socket's error several times."""
    cause: BaseException = error
    while inner := cause.__cause__ or cause.__context__:
        cause = inner
    return str(cause)


@contextmanager
def _told(doing: str) -> Iterator[None]:
    try:
        yield
    except FAILED as error:
        raise InfrastructureError(
            f"{doing}: {reason(error)}", next_step="see whether the Docker engine runs"
        ) from error


def _start_error(
    error: Exception, options: ContainerOptions, *, nvidia: bool
) -> InfrastructureError | NoDeviceError:
    if options.gpus:
        runtime = "its NVIDIA runtime failed" if nvidia else "it has no NVIDIA runtime"
        return NoDeviceError(
            f"the Docker engine gives no GPU, {runtime}: {reason(error)}",
            next_step="install nvidia-container-toolkit on a machine with an NVIDIA driver",
        )
    return InfrastructureError(
        f"cannot start a container: {reason(error)}",
        where=options.image,
        next_step="see the engine's log",
    )
