"""The pages of an index, made from its catalog: PEP 503 and PEP 691, and one for people."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined

from wheelfab.index.catalog import CATALOG, FILES, Catalog, Listed, install_line
from wheelfab.records import to_plain

API_VERSION = "1.1"


def render_pages(catalog: Catalog) -> Mapping[str, str]:
    """Every page, by its path in the index folder, and ``catalog.json`` itself."""
    pages = {CATALOG: _json(to_plain(catalog)), "index.html": _front(catalog)}
    for page in catalog.pages:
        pages |= _index(page, catalog)
    return pages


def file_link(page: str, file: str) -> str:
    """The link from a project's page to a file, relative and with ``+`` quoted."""
    up = "../" * (page.count("/") + 2)
    return f"{up}{FILES}/{quote(file, safe='')}"


def _index(page: str, catalog: Catalog) -> dict[str, str]:
    """The index ``page``: its list of projects and a page for each of them."""
    items = catalog.on_page(page)
    projects = sorted({item.project for item in items})
    made = {
        f"{page}/index.html": _html("projects.html", title=page, projects=projects),
        f"{page}/index.json": _json(
            {"meta": _meta(), "projects": [{"name": name} for name in projects]}
        ),
    }
    for project in projects:
        files = [item for item in items if item.project == project]
        made[f"{page}/{project}/index.html"] = _html(
            "project.html", title=project, files=[(file_link(page, f.file), f) for f in files]
        )
        made[f"{page}/{project}/index.json"] = _json(_project(page, project, files))
    return made


def _project(page: str, project: str, files: list[Listed]) -> dict[str, Any]:
    return {
        "meta": _meta(),
        "name": project,
        "versions": list(dict.fromkeys(item.version for item in files)),
        "files": [dict(_file(page, item)) for item in files],
    }


def _file(page: str, item: Listed) -> Iterator[tuple[str, Any]]:
    yield "filename", item.file
    yield "url", file_link(page, item.file)
    yield "hashes", {"sha256": item.sha256}
    yield "size", item.size
    yield "core-metadata", {"sha256": item.metadata_sha256}
    if item.requires_python is not None:
        yield "requires-python", item.requires_python


def _front(catalog: Catalog) -> str:
    newest: dict[str, Listed] = {}
    for item in catalog.files:  # sorted by version: the last of a page is its newest
        newest[item.page] = item
    lines = [(page, install_line(newest[page], "URL")) for page in sorted(newest)]
    return _html("front.html", title="Wheels", lines=lines)


def _meta() -> dict[str, str]:
    return {"api-version": API_VERSION}


def _json(value: object) -> str:
    return json.dumps(value, indent=1, sort_keys=True) + "\n"


def _html(template: str, **values: object) -> str:
    return _environment().get_template(template).render(version=API_VERSION, **values)


@lru_cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("wheelfab.index"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
