"""Images of docker/Dockerfile: found by the digest of all that they are made of, or built."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker import DockerClient
from docker.errors import ImageNotFound

from wheelfab import console
from wheelfab.containers.failing import FAILED
from wheelfab.errors import InfrastructureError, UsageError
from wheelfab.flock import hold
from wheelfab.records import digest, file_digest
from wheelfab.suggest import did_you_mean

TARGETS = (
    *("builder", "cpu-host", "driver-host", "gpu-host", "diagnosis", "driver-diagnosis"),
    "wheel-builder",
)
INPUTS = "wheelfab.inputs"  # the label: the digest of the recipe
_BOOTSTRAP = "bootstrap"  # makes the bases, which are inputs by their ids
_BUILDER_BASE = "debian-11"  # the oldest glibc
_LONGEST_BUILD = 1800.0  # seconds to wait for another process that builds
_TAIL = 30  # lines of a build's log in an error


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """What an image is made of; ``arguments`` give the bases by their ids."""

    folder: Path
    target: str
    base: str
    arguments: Mapping[str, str]

    @property
    def tag(self) -> str:
        """The name people know the image by; the newest one has it."""
        return f"wheelfab/{self.target}:{self.base}"

    @property
    def digest(self) -> str:
        """The SHA-256 of the files, the target and the bases."""
        paths = [path for path in self.folder.iterdir() if path.is_file()]
        files = {path.name: file_digest(path) for path in paths if path.name != _BOOTSTRAP}
        return digest({"files": files, "target": self.target, "arguments": self.arguments})


def recipe(client: DockerClient, root: Path, target: str, base: str) -> Recipe:
    """The recipe of ``target`` on ``base``; raises ``InfrastructureError`` where a base is not."""
    if target not in TARGETS:
        raise UsageError(f"no image {target!r}, {did_you_mean(target, TARGETS)}")
    if not (root / "docker" / "Dockerfile").is_file():
        raise InfrastructureError(
            "there is no docker/Dockerfile",
            where=str(root),
            next_step="copy the folder docker/ from wheelfab's repository",
        )
    oldest = _base_id(client, _BUILDER_BASE)
    if target == "builder":
        base = _BUILDER_BASE
    return Recipe(
        folder=root / "docker",
        target=target,
        base=base,
        arguments={"BUILDER_BASE": oldest, "BASE": _base_id(client, base)},
    )


def base_digest(client: DockerClient, base: str) -> str:
    """The digest of what is in a base: of its layers, whatever made them and whenever.

    Raises ``InfrastructureError`` where there is no such base.
    """
    layers = client.images.get(_base_id(client, base)).attrs["RootFS"]["Layers"]
    return f"sha256:{digest(layers)}"


def find_or_build(client: DockerClient, root: Path, made_of: Recipe) -> str:
    """The id of the image made of just this, built if need be; one process builds at a time."""
    found = _find(client, made_of)
    if found is not None:
        return found
    lock = root / "build" / "images.lock"
    with hold(lock, what=f"the image {made_of.tag}", timeout=_LONGEST_BUILD):
        return _find(client, made_of) or _build(client, root, made_of)


def _base_id(client: DockerClient, base: str) -> str:
    tag = f"wheelfab/base:{base}"
    try:
        return str(client.images.get(tag).id)
    except ImageNotFound as error:
        raise InfrastructureError(
            f"there is no image {tag}", next_step=f"run `docker/bootstrap {base}`"
        ) from error


def _find(client: DockerClient, made_of: Recipe) -> str | None:
    found = client.images.list(filters={"label": f"{INPUTS}={made_of.digest}"})
    return str(found[0].id) if found else None


def _build(client: DockerClient, root: Path, made_of: Recipe) -> str:
    console.step(f"building the image {made_of.tag}")
    log = root / "build" / "logs" / f"image-{made_of.target}-{made_of.base}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    answers = client.api.build(
        path=str(made_of.folder),
        target=made_of.target,
        buildargs=dict(made_of.arguments),
        labels={INPUTS: made_of.digest},
        tag=made_of.tag,
        network_mode="host",
        rm=True,
        forcerm=True,
        decode=True,
    )
    try:
        return _follow(answers, log, made_of)
    except FAILED as error:
        raise InfrastructureError(
            f"the engine did not build it: {error}", where=made_of.tag
        ) from error


def _follow(answers: Iterator[dict[str, Any]], log: Path, made_of: Recipe) -> str:
    """Show the steps of a build, log all of it; gives the id that it ends with."""
    lines: list[str] = []
    image = ""
    with log.open("w", encoding="utf-8", buffering=1) as file:
        for answer in answers:
            text = str(answer.get("stream", ""))
            file.write(text)
            lines = [*lines, *text.splitlines()][-_TAIL:]
            if text.startswith("Step "):
                console.note(" ".join(text.split())[:100])
            image = answer.get("aux", {}).get("ID", image)
            if "error" in answer:
                raise InfrastructureError(
                    "\n".join([str(answer["error"]), *lines]),
                    where=made_of.tag,
                    next_step=f"see {log}",
                )
    return str(image)
