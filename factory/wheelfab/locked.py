"""``matrix.lock``: the inputs that a build may take, each to the byte; read, compared, written."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import tomlkit
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from wheelfab.errors import MatrixError, ToolchainError
from wheelfab.records import write_text

LOCK = "matrix.lock"
SCHEMA = 1
RENEW = "run `wheelfab lock --upgrade` if the change is wanted"
ADD = "run `wheelfab lock`, which adds what is missing"
FALLBACK = "pypi fallback"  # begins the source of a torch that is not from the row's own index
_HEADER = """\
# The inputs that a build may take, to the byte. Made by `wheelfab lock`; not edited by hand.
# docs/reproducibility.md says what follows from each.
"""

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+!-]*$")]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LockedWheel(_Record):
    """One wheel, to the byte. ``size`` in bytes."""

    package: FileName
    version: FileName
    file: FileName
    sha256: Sha256
    size: int = Field(ge=1)


class LockedToolchain(_Record):
    """The wheels of the device compilers for one CUDA release."""

    route: str
    cuda: str
    wheel: tuple[LockedWheel, ...]


class LockedTorch(_Record):
    """The torch wheel that bindings are compiled against, for one release and index.

    ``version`` is the file's; ``python`` is the CPython that it is for, whichever runs the build;
    ``source`` says where it was had from when it was locked, and goes into the wheels' records.
    """

    release: str
    index: str
    python: str
    version: str
    file: FileName
    sha256: Sha256
    source: str

    @property
    def fell_back(self) -> bool:
        """Whether it was had from somewhere else than the index when it was locked."""
        return self.source.startswith(FALLBACK)


class LockedCompiler(_Record):
    """A host compiler whose bytes are promised: version, target and its programs' digests."""

    version: str
    target: str
    driver_sha256: Sha256
    cc1plus_sha256: Sha256
    tools: Mapping[str, Sha256]


class LockedImage(_Record):
    """A base image and the digest of its content (docs/reproducibility.md)."""

    base: FileName
    digest: Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]


class Locked(_Record):
    """All locked inputs.

    ``requirement`` are the tools that compile, pack and repair; ``container`` is what wheelfab
    itself needs in a container that has Python alone.
    """

    version: int = Field(alias="schema", ge=SCHEMA, le=SCHEMA)
    toolchain: tuple[LockedToolchain, ...] = ()
    torch: tuple[LockedTorch, ...] = ()
    requirement: tuple[LockedWheel, ...] = ()
    container: tuple[LockedWheel, ...] = ()
    compiler: tuple[LockedCompiler, ...] = ()
    image: tuple[LockedImage, ...] = ()

    def toolchain_of(self, route: str, cuda: str) -> LockedToolchain | None:
        """The locked toolchain of that route and release."""
        known = {(item.route, item.cuda): item for item in self.toolchain}
        return known.get((route, cuda))

    def torch_of(self, release: str, index: str) -> LockedTorch:
        """The locked torch; raises ``ToolchainError`` where the lock has none."""
        for item in self.torch:
            if (item.release, item.index) == (release, index):
                return item
        raise ToolchainError(f"no torch {release} of {index}", where=LOCK, next_step=ADD)

    def image_of(self, base: str) -> LockedImage | None:
        """The locked base image of that name."""
        return next((item for item in self.image if item.base == base), None)

    def requirement_versions(self) -> Mapping[str, str]:
        """The tools' versions with the digests of their wheels, by name."""
        return {item.package: f"{item.version} {item.sha256}" for item in self.requirement}


def load_locked(root: Path) -> Locked | None:
    """The lock of the project at ``root``, ``None`` where there is none.

    Raises ``MatrixError`` that names every field that is wrong.
    """
    path = root / LOCK
    if not path.exists():
        return None
    try:
        return Locked.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise MatrixError(f"not TOML: {error}", where=LOCK, next_step="make it again") from error
    except ValidationError as error:
        lines = (
            f"{'.'.join(map(str, flaw['loc'])) or 'top'}: {flaw['msg']}" for flaw in error.errors()
        )
        raise MatrixError("; ".join(lines), where=LOCK, next_step="make it again") from error


def write_locked(root: Path, locked: Locked) -> Path:
    """Write the lock of the project at ``root``; the same content gives the same bytes."""
    document = tomlkit.document()
    for name, value in locked.model_dump(mode="json", by_alias=True).items():
        if isinstance(value, list):
            tables = tomlkit.aot()
            for item in value:
                tables.append(_table(item))
            if value:
                document.append(name, tables)
        else:
            document.append(name, tomlkit.item(value))
    write_text(root / LOCK, _HEADER + tomlkit.dumps(document))
    return root / LOCK


def _table(item: Mapping[str, object]) -> tomlkit.items.Table:
    table = tomlkit.table()
    for name, value in item.items():
        if isinstance(value, list):
            inner = tomlkit.aot()
            for part in value:
                inner.append(_table(part))
            table.append(name, inner)
        elif isinstance(value, dict):
            inline = tomlkit.inline_table()
            inline.update(dict(sorted(value.items())))
            table.append(name, inline)
        else:
            table.append(name, value)
    return table
