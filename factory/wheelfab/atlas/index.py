"""The pages of a package index (PEP 503 and 691): which wheels of torch it has, and where."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from wheelfab.errors import FormatError

ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"
MOST_BYTES = 64 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexedWheel:
    """A wheel as an index lists it; ``sha256`` and ``size`` where the index says them.

    ``build`` is the build number in its name: of two wheels installers take the higher one.
    """

    name: str
    url: str
    version: Version
    tags: frozenset[Tag]
    build: tuple[int, str] | tuple[()] = ()
    sha256: str | None = None
    size: int | None = None

    def fits(self, platform: str) -> bool:
        """Whether it is for Linux on this machine type (``linux-x86_64``)."""
        system, _, machine = platform.partition("-")
        return any(
            system in tag.platform and tag.platform.endswith(f"_{machine}") for tag in self.tags
        )

    @property
    def pythons(self) -> frozenset[str]:
        """The ABI tags that it is for: ``cp311``, ``cp313t``."""
        return frozenset(tag.abi for tag in self.tags)


def read_page(text: str, content_type: str, url: str) -> tuple[IndexedWheel, ...]:
    """The wheels of a project's page, JSON or HTML, but those yanked; raises ``FormatError``."""
    try:
        if "json" in content_type:
            found = [_file(file) for file in json.loads(text)["files"] if not file.get("yanked")]
        else:
            page = _Page()
            page.feed(text)
            found = page.files
    except (ValueError, AttributeError, TypeError, KeyError) as error:
        raise FormatError(f"not a page of a package index ({error})", where=url) from error
    return tuple(wheel for file in found if (wheel := _wheel(file, url)) is not None)


_File = tuple[str, str | None, int | None]  # link, SHA-256, size


def _file(file: Mapping[str, Any]) -> _File:
    size = file.get("size")
    sha256 = dict(file.get("hashes") or {}).get("sha256")
    return str(file["url"]), sha256, size if isinstance(size, int) else None


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.files: list[_File] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        link = values.get("href")
        if tag == "a" and link and "data-yanked" not in values:
            fragment = urlsplit(link).fragment
            sha256 = fragment.removeprefix("sha256=") if fragment.startswith("sha256=") else None
            self.files.append((link, sha256, None))


def _wheel(file: _File, page: str) -> IndexedWheel | None:
    link, sha256, size = file
    url = urljoin(page, link).partition("#")[0]
    parts = urlsplit(url)
    name = unquote(parts.path.rpartition("/")[2])
    try:
        _, version, build, tags = parse_wheel_filename(name)
    except InvalidWheelFilename:
        return None
    if parts.scheme not in ("http", "https"):
        return None
    known = sha256 if sha256 and _SHA256.match(sha256) else None
    return IndexedWheel(
        name=name, url=url, version=version, tags=tags, build=build, sha256=known, size=size
    )
