"""Reads an index back as a client would, and compares every word of it with the bytes served."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from wheelfab.errors import FormatError, PublishError, WheelError
from wheelfab.index.catalog import FILES, Catalog, Listed, read_catalog
from wheelfab.index.pages import render_pages
from wheelfab.records import file_digest
from wheelfab.wheel import verify_wheel

_BASE = "http://server/folder/"
_LONGEST_PAGE = 64 << 20
_UNPARSED = (ValueError, KeyError, TypeError, AttributeError, FileNotFoundError)


class IndexFlawKind(StrEnum):
    """What can be wrong with an index folder."""

    CATALOG = "catalog"
    ABSENT = "absent"
    STRAY = "stray"
    WHEEL = "wheel"
    FILE = "file"
    METADATA = "metadata"
    PAGE = "page"
    LINK = "link"


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexFlaw:
    """One thing that is wrong with an index, and the file that shows it."""

    kind: IndexFlawKind
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Anchor:
    """A file as a page offers it, in HTML or JSON alike."""

    target: str
    file: str
    sha256: str
    metadata: str
    requires_python: str | None


def verify_index(folder: Path) -> Catalog:
    """The catalog of a sound index; raises ``PublishError`` that lists everything that is wrong."""
    flaws = index_flaws(folder)
    if flaws:
        lines = "".join(f"\n  {flaw}" for flaw in flaws)
        raise PublishError(
            f"the index is not sound:{lines}",
            where=str(folder),
            next_step="restore the files named, or publish to another folder",
        )
    return read_catalog(folder)


def index_flaws(folder: Path) -> tuple[IndexFlaw, ...]:
    """Everything that is wrong with the index in ``folder``; empty for a sound one.

    Each wheel is verified and its digest taken from its bytes; each ``.metadata`` compared with
    METADATA inside; each page parsed and its links followed to those bytes.
    """
    try:
        catalog = read_catalog(folder)
    except FormatError as error:
        return (IndexFlaw(kind=IndexFlawKind.CATALOG, where=error.where, what=error.what),)
    served: dict[str, Listed] = {}
    flaws = [*_stray_flaws(folder, catalog)]
    for item in catalog.files:
        found = list(_file_flaws(folder / FILES, item))
        flaws += found
        if not any(flaw.kind in (IndexFlawKind.ABSENT, IndexFlawKind.FILE) for flaw in found):
            served[item.file] = item
    for page in catalog.pages:
        projects = sorted({item.project for item in catalog.on_page(page)})
        flaws += _projects_flaws(folder, page, projects)
        for project in projects:
            flaws += _page_flaws(folder, f"{page}/{project}", catalog.on_page(page), served)
    return tuple(flaws)


def _stray_flaws(folder: Path, catalog: Catalog) -> Iterator[IndexFlaw]:
    """Pages that are missing and files that are too many."""
    pages = render_pages(catalog).keys()
    files = {f"{FILES}/{item.file}" for item in catalog.files}
    wanted = pages | files | {f"{file}.metadata" for file in files}
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}
    for name in sorted(there - wanted):
        yield _flaw(IndexFlawKind.STRAY, name, "belongs to no wheel of the catalog")
    for name in sorted(pages - there):
        yield _flaw(IndexFlawKind.ABSENT, name, "is missing")


def _file_flaws(files: Path, item: Listed) -> Iterator[IndexFlaw]:
    path, metadata = files / item.file, files / f"{item.file}.metadata"
    if not path.is_file():
        yield _flaw(IndexFlawKind.ABSENT, item.file, "is missing")
        return
    if (found := file_digest(path)) != item.sha256:
        what = f"has SHA-256 {found}, was published with {item.sha256}"
        yield _flaw(IndexFlawKind.FILE, item.file, what)
        return
    try:
        wheel = verify_wheel(path)
    except WheelError as error:
        yield _flaw(IndexFlawKind.WHEEL, item.file, error.what)
        return
    if not metadata.is_file():
        yield _flaw(IndexFlawKind.ABSENT, metadata.name, "is missing")
    elif metadata.stat().st_size != len(wheel.metadata) or metadata.read_bytes() != wheel.metadata:
        yield _flaw(IndexFlawKind.METADATA, metadata.name, "is not METADATA of the wheel")
    facts = (str(wheel.version), wheel.size, str(wheel.requires_python or "") or None)
    if facts != (item.version, item.size, item.requires_python):
        what = "the catalog says another version, size or Requires-Python"
        yield _flaw(IndexFlawKind.CATALOG, item.file, what)


def _projects_flaws(folder: Path, page: str, projects: list[str]) -> Iterator[IndexFlaw]:
    """The list of projects of an index: ours, and no other."""
    wanted = [f"{project}/" for project in projects]
    for name, parse in (("index.html", _parse_links), ("index.json", _parse_projects)):
        where = f"{page}/{name}"
        try:
            found = parse(_read(folder / where))
        except _UNPARSED:
            found = []
        if found != wanted:
            yield _flaw(IndexFlawKind.PAGE, where, f"does not list exactly {', '.join(projects)}")


def _page_flaws(
    folder: Path, page: str, items: tuple[Listed, ...], served: Mapping[str, Listed]
) -> Iterator[IndexFlaw]:
    """Follow the links of a project's two pages to the files that they promise."""
    for name, parse in (("index.html", _parse_html), ("index.json", _parse_json)):
        where = f"{page}/{name}"
        try:
            anchors = parse(_read(folder / where))
        except _UNPARSED:
            yield _flaw(IndexFlawKind.PAGE, where, "cannot be parsed")
            continue
        offered = {anchor.file for anchor in anchors}
        if offered != {item.file for item in items} or len(anchors) != len(offered):
            yield _flaw(IndexFlawKind.PAGE, where, "does not offer exactly the files of its index")
        for anchor in anchors:
            yield from _anchor_flaws(folder, where, anchor, served)


def _anchor_flaws(
    folder: Path, where: str, anchor: _Anchor, served: Mapping[str, Listed]
) -> Iterator[IndexFlaw]:
    # as if served below a folder: an index may lie anywhere on a server
    place = urljoin(f"{_BASE}{where}", anchor.target).removeprefix(_BASE)
    path = folder / unquote(place)
    item = served.get(anchor.file)
    if item is None or "+" in place or path != folder / FILES / anchor.file:
        yield _flaw(IndexFlawKind.LINK, where, f"{anchor.target} leads to no file of the index")
        return
    if anchor.sha256 != item.sha256:
        yield _flaw(IndexFlawKind.LINK, where, f"{anchor.file}: the hash is not that of the file")
    metadata = path.with_name(f"{path.name}.metadata")
    if not metadata.is_file() or anchor.metadata != file_digest(metadata):
        what = f"{anchor.file}: the metadata's hash is not that of {metadata.name}"
        yield _flaw(IndexFlawKind.LINK, where, what)
    if anchor.requires_python != item.requires_python:
        yield _flaw(IndexFlawKind.LINK, where, f"{anchor.file}: another Requires-Python")


class _Anchors(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[_Anchor] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take the links, which hold all that a client uses."""
        if tag != "a":
            return
        values = {name: value or "" for name, value in attrs}
        target, fragment = urldefrag(values.get("href", ""))
        self.found.append(
            _Anchor(
                target=target,
                file=unquote(target.rpartition("/")[2]),
                sha256=fragment.removeprefix("sha256="),
                metadata=values.get("data-core-metadata", "").removeprefix("sha256="),
                requires_python=values.get("data-requires-python"),
            )
        )


def _parse_html(data: bytes) -> list[_Anchor]:
    parser = _Anchors()
    parser.feed(data.decode())
    parser.close()
    return parser.found


def _parse_links(data: bytes) -> list[str]:
    return [anchor.target for anchor in _parse_html(data)]


def _parse_projects(data: bytes) -> list[str]:
    page: dict[str, Any] = json.loads(data)
    return [f"{project['name']}/" for project in page["projects"]]


def _parse_json(data: bytes) -> list[_Anchor]:
    page: dict[str, Any] = json.loads(data)
    return [
        _Anchor(
            target=file["url"],
            file=file["filename"],
            sha256=file["hashes"]["sha256"],
            metadata=file["core-metadata"]["sha256"],
            requires_python=file.get("requires-python"),
        )
        for file in page["files"]
    ]


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_LONGEST_PAGE)


def _flaw(kind: IndexFlawKind, where: str, what: str) -> IndexFlaw:
    return IndexFlaw(kind=kind, where=where, what=what)
