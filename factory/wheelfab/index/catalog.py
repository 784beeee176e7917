"""What an index holds: every file with its digests and its page; kept as ``catalog.json``."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import Version
from pydantic import TypeAdapter, ValidationError

from wheelfab.compat import line
from wheelfab.errors import FormatError, PublishError
from wheelfab.model import Profile
from wheelfab.wheel import Wheel

SCHEMA = 1
CATALOG = "catalog.json"
FILES = "files"
ALL = "all"
LONGEST = 64 << 20  # bytes of a page
_PAGE = re.compile(r"[a-z0-9][a-z0-9._-]*(/[a-z0-9][a-z0-9._-]*)*", re.ASCII)
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*\.whl", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class Listed:
    """One wheel of an index. ``page`` is the index that lists it beside ``all``."""

    project: str
    version: str
    file: str
    sha256: str
    size: int
    requires_python: str | None
    metadata_sha256: str
    page: str
    cell: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Catalog:
    """All wheels of an index, sorted by project, version and file name."""

    schema: int
    files: tuple[Listed, ...]

    @property
    def pages(self) -> tuple[str, ...]:
        """The folders that are an index each: ``all`` and one per variant and torch pin."""
        return (ALL, *sorted({item.page for item in self.files}))

    def on_page(self, page: str) -> tuple[Listed, ...]:
        """The files that ``page`` lists."""
        return tuple(item for item in self.files if page in (ALL, item.page))


def listed(wheel: Wheel, page: str, cell: str) -> Listed:
    """The entry for a wheel.

    Raises ``PublishError`` where ``page`` cannot be a folder's name, and for a debug twin.
    """
    if not _PAGE.fullmatch(page) or page.partition("/")[0] in (ALL, FILES):
        raise PublishError(f"{page!r} cannot be the folder of an index", where=cell)
    if wheel.build is not None and wheel.build.get("profile") == Profile.DEBUG:
        what = f"{wheel.file} is a debug twin: installers would take it for the newer release"
        raise PublishError(what, where=cell, next_step="list the release's wheel")
    return Listed(
        project=canonicalize_name(wheel.name),
        version=str(wheel.version),
        file=wheel.file,
        sha256=wheel.sha256,
        size=wheel.size,
        requires_python=str(wheel.requires_python) if wheel.requires_python else None,
        metadata_sha256=hashlib.sha256(wheel.metadata).hexdigest(),
        page=page,
        cell=cell,
    )


def catalog_of(files: Iterable[Listed]) -> Catalog:
    """The catalog of ``files``; of two entries for one file name the later counts."""
    by_name = {item.file: item for item in files}

    def order(item: Listed) -> tuple[str, Version, str]:
        return item.project, Version(item.version), item.file

    return Catalog(schema=SCHEMA, files=tuple(sorted(by_name.values(), key=order)))


def read_catalog(folder: Path) -> Catalog:
    """The catalog of the index in ``folder``; raises ``FormatError`` when it is not sound."""
    path = folder / CATALOG
    next_step = "restore it, or publish to another folder"
    if not path.is_file() or path.stat().st_size > LONGEST:
        raise FormatError("there is no catalog", where=str(path), next_step=next_step)
    try:
        catalog = TypeAdapter(Catalog).validate_json(path.read_bytes(), strict=True)
    except ValidationError as error:
        raise FormatError(
            f"not a catalog: {error}", where=str(path), next_step=next_step
        ) from error
    bad = [item for item in catalog.files if not _is_safe(item)]
    if catalog.schema != SCHEMA or bad:
        what = f"bad entry {bad[0].file!r}" if bad else f"schema {catalog.schema}, not {SCHEMA}"
        raise FormatError(what, where=str(path), next_step=next_step)
    return catalog


def install_line(item: Listed, url: str, tool: str = "pip") -> str:
    """The line that installs exactly ``item`` from the index folder served at ``url``."""
    return line.install_line(item.project, item.version, item.page, url, tool)


def _is_safe(item: Listed) -> bool:
    """Whether the names in an entry stay inside the index folder."""
    return bool(_FILE.fullmatch(item.file) and _PAGE.fullmatch(item.page))
