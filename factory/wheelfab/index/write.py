"""Writes an index into a folder: files, metadata, pages; whole and verified, or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from wheelfab import console
from wheelfab.compat.cells import CellWheel
from wheelfab.errors import PublishError
from wheelfab.index.catalog import CATALOG, FILES, Catalog, catalog_of, listed
from wheelfab.index.pages import render_pages
from wheelfab.index.verify import verify_index
from wheelfab.records import write_bytes, write_text
from wheelfab.wheel import Wheel, verify_wheel


def write_index(wheels: Iterable[CellWheel], target: Path) -> Catalog:
    """Write the index of those of ``wheels`` that are ``ok`` to the folder ``target``.

    The others are named in a warning. An index that was there is replaced as a whole; any other
    folder is left alone.

    Raises ``WheelError`` for a wheel that is not sound and ``PublishError`` where there is none, or
    where ``target`` holds something else.
    """
    present = []
    for item in wheels:
        if item.wheel is None:
            console.warn(f"not in the index: {item}")
        else:
            present.append((item, verify_wheel(item.wheel.path)))
    if not present:
        raise PublishError("there is no wheel to list", where=str(target), next_step="build first")
    if target.exists() and not (target / CATALOG).is_file():
        next_step = "name another folder"
        raise PublishError("exists and is not an index", where=str(target), next_step=next_step)
    catalog = catalog_of(listed(wheel, item.page, item.cell) for item, wheel in present)
    with folder_aside(target) as part:
        fill(part, catalog, {wheel.file: wheel for _, wheel in present}, None)
        verify_index(part)
        _replace(part, target)
    return catalog


def fill(folder: Path, catalog: Catalog, new: Mapping[str, Wheel], old: Path | None) -> None:
    """Fill ``folder`` with the files and pages of ``catalog``.

    Files in ``new`` are copied from their wheel, the others linked from the index folder ``old``.
    """
    files = folder / FILES
    files.mkdir(parents=True)
    for item in catalog.files:
        if item.file in new:
            _copy(new[item.file].path, files / item.file)
            write_bytes(files / f"{item.file}.metadata", new[item.file].metadata)
        elif old is not None:
            for name in (item.file, f"{item.file}.metadata"):
                _link(old / FILES / name, files / name)
    for path, text in render_pages(catalog).items():
        write_text(folder / path, text)


@contextmanager
def folder_aside(target: Path) -> Iterator[Path]:
    """An empty folder beside ``target`` to fill; removed if the block does not rename it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.parent / f".{target.name}.{secrets.token_hex(4)}.part"
    part.mkdir()
    try:
        yield part
    finally:
        shutil.rmtree(part, ignore_errors=True)


def sync_names(folder: Path) -> None:
    """Make the names in ``folder`` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _replace(part: Path, target: Path) -> None:
    """Put ``part`` in the place of ``target``, which rename alone cannot do to a full folder."""
    old = target.with_name(f".{target.name}.{secrets.token_hex(4)}.old")
    with suppress(FileNotFoundError):
        target.rename(old)
    part.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def _copy(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)
    target.chmod(0o644)
    with target.open("rb") as file:
        os.fsync(file.fileno())


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without hard links
        _copy(source, target)
