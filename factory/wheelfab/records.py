"""Records on disk: canonical JSON, digests, and writes that are whole or absent."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from pathlib import Path, PurePath
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version
from pydantic import BaseModel

_CHUNK = 1 << 20
_PLAIN = frozenset({str, int, float, bool, type(None)})  # exactly: an enum's member is a str too


def to_plain(value: object) -> Any:  # noqa: ANN401, PLR0911 (JSON's types, a kind a return)
    """Turn records (dataclasses, pydantic models, enums, paths, versions) into JSON's own types."""
    if type(value) in _PLAIN:  # nearly all, and by far the fastest to tell
        return value
    if isinstance(value, BaseModel):
        return to_plain(value.model_dump(mode="json", by_alias=True))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: to_plain(getattr(value, field.name)) for field in fields}
    if isinstance(value, Enum):
        return to_plain(value.value)
    if isinstance(value, (Version, SpecifierSet, PurePath)):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(to_plain(item) for item in value)
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    raise TypeError(f"no plain form for {type(value).__name__}")


def canonical_json(value: object) -> str:
    """The one JSON text of ``value``: sorted keys, no spaces; what digests are taken of."""
    return json.dumps(to_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def digest(value: object) -> str:
    """SHA-256 (hex) of the canonical JSON of ``value``."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 (hex) of a file, read in pieces of 1 MiB."""
    sha = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_CHUNK):
            sha.update(piece)
    return sha.hexdigest()


def read_json(path: Path) -> Any:  # noqa: ANN401 (JSON's own types)
    """The JSON value in ``path``."""
    return json.loads(path.read_text(encoding="utf-8"))


def write_json(path: Path, value: object) -> None:
    """Write ``value`` as readable JSON, whole or not at all."""
    write_text(path, json.dumps(to_plain(value), indent=2, sort_keys=True) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write ``text`` to ``path``: aside on the same file system, fsync, rename."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path``: aside on the same file system, fsync, rename."""
    with aside(path) as part, part.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def aside(path: Path, *, folder: Path | None = None) -> Iterator[Path]:
    """A name to write to, renamed to ``path`` when the block ends well.

    It lies in ``folder``, which must be on the file system of ``path``, or beside it. When the
    block raises, the half-made file is removed and ``path`` is left as it was. A process killed
    inside the block leaves a file named ``.*.part`` there, which nothing ever reads.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = (folder or path.parent) / f".{os.getpid()}-{secrets.token_hex(4)}.{path.name}.part"
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
