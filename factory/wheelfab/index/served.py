"""Downloads an index from where it is served, as a client does, and verifies what came."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from wheelfab import console
from wheelfab.atlas.transfer import Line
from wheelfab.errors import FormatError, InfrastructureError, PublishError
from wheelfab.index.catalog import CATALOG, FILES, LONGEST, Catalog, read_catalog
from wheelfab.index.pages import render_pages
from wheelfab.index.verify import IndexFlaw, IndexFlawKind, index_flaws
from wheelfab.machine import require_disk
from wheelfab.toolchain import pip

_PAGE = "index.html"


def verify_served(url: str, *, published: Catalog | None = None) -> Catalog:
    """The catalog of the sound index whose folder is served at ``url``.

    Every page, wheel and metadata file is downloaded, none further than its catalog says, and held
    to ``index_flaws``. With ``published``, just that must be served.

    Raises ``PublishError`` that lists everything that is wrong, ``InfrastructureError`` when
    nothing answers.
    """
    line = Line(pip.transport_settings())
    with TemporaryDirectory(prefix="wheelfab-") as name:
        folder = Path(name)
        catalog = _catalog(line, url, folder)
        size = sum(item.size for item in catalog.files)
        require_disk(folder, size)
        console.step(f"downloading {len(catalog.files)} wheels of {url}, {size / 1e6:.1f} MB")
        lost = {where: why for where, why in _fetched(line, url, catalog, folder) if why}
        flaws = [_explained(flaw, lost) for flaw in index_flaws(folder)]
    if published is not None and catalog != published:
        what = "is not what was published: another folder, or an old copy on the way"
        flaws.insert(0, IndexFlaw(kind=IndexFlawKind.CATALOG, where=CATALOG, what=what))
    if flaws:
        lines = "".join(f"\n  {flaw}" for flaw in flaws)
        raise PublishError(
            f"what is served is not sound:{lines}",
            where=url,
            next_step="mend the server or what is in front of it, and verify again",
        )
    return catalog


def _catalog(line: Line, url: str, folder: Path) -> Catalog:
    why = _download(line, f"{url}/{CATALOG}", folder / CATALOG, LONGEST)
    next_step = "give the address of the folder that `current` leads to"
    if why:
        raise InfrastructureError(why, where=f"{url}/{CATALOG}", next_step=next_step)
    try:
        catalog = read_catalog(folder)
    except FormatError as error:
        what = error.what
        raise PublishError(what, where=f"{url}/{CATALOG}", next_step=next_step) from error
    if not catalog.files:
        raise PublishError("lists no wheel", where=f"{url}/{CATALOG}", next_step=next_step)
    return catalog


def _fetched(line: Line, url: str, catalog: Catalog, folder: Path) -> Iterator[tuple[str, str]]:
    """Each path of the index with why it could not be had, empty where it could."""
    for page in render_pages(catalog).keys() - {CATALOG}:
        asked = page.removesuffix(_PAGE)  # of a folder, as clients do
        yield page, _download(line, f"{url}/{asked}", folder / page, LONGEST)
    for item in catalog.files:
        file = f"{FILES}/{item.file}"
        address = f"{url}/{file.replace('+', '%2B')}"
        yield file, _download(line, address, folder / file, item.size)
        metadata = f"{file}.metadata"
        yield metadata, _download(line, f"{address}.metadata", folder / metadata, LONGEST)


def _download(line: Line, url: str, target: Path, longest: int) -> str:
    """Put what ``url`` gives into ``target``; why not, and no file, where it cannot be had."""
    target.parent.mkdir(parents=True, exist_ok=True)
    size = 0
    try:
        with target.open("wb") as file:
            for piece in line.stream(url):
                size += len(piece)
                if size > longest:
                    target.unlink()
                    return f"over {longest:,} bytes long"
                file.write(piece)
    except InfrastructureError as error:
        target.unlink()
        return error.what
    return ""


def _explained(flaw: IndexFlaw, lost: dict[str, str]) -> IndexFlaw:
    why = lost.get(flaw.where) or lost.get(f"{FILES}/{flaw.where}")
    if flaw.kind is not IndexFlawKind.ABSENT or why is None:
        return flaw
    return replace(flaw, what=f"is not served: {why}")
