"""Publishes wheels and pages: complete or not at all, write-once, switched in one step."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from wheelfab.build import CellState
from wheelfab.compat.cells import CellWheel
from wheelfab.errors import (
    FactoryError,
    InfrastructureError,
    PublishError,
    WheelError,
    one_of_many,
)
from wheelfab.flock import hold
from wheelfab.index.catalog import Catalog, Listed, catalog_of, listed, read_catalog
from wheelfab.index.pages import render_pages
from wheelfab.index.verify import verify_index
from wheelfab.index.write import fill, folder_aside, sync_names
from wheelfab.records import digest
from wheelfab.wheel import Wheel, verify_wheel

if TYPE_CHECKING:
    from wheelfab.variant import Cell

CURRENT = "current"
SNAPSHOTS = "snapshots"
_LOCK_TIMEOUT = 600.0  # seconds
_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, kw_only=True, slots=True)
class Published:
    """What ``current`` leads to after publishing, and whether this call changed it."""

    snapshot: Path
    catalog: Catalog
    changed: bool


def publish(wheels: Sequence[CellWheel], target: Path, expected: Sequence[Cell]) -> Published:
    """Publish the wheel of every one of ``expected`` in the folder ``target``.

    ``target/current`` is a link to the index served, one folder in ``target/snapshots``; what was
    published before stays in it. The link is renamed as the last act: whatever happens earlier, a
    kill at any moment included, leaves it as it was.

    Raises ``PublishError`` when a cell has no wheel, a wheel belongs to no cell, versions are
    mixed, or a published file would change; ``WheelError`` when a wheel is not sound;
    ``StoreError`` when another process has been publishing there for ten minutes.
    """
    _require_complete(wheels, [cell.id for cell in expected])
    sound = _verified(wheels)
    _require_one_version([wheel for _, wheel in sound])
    with (
        _disk_errors(target),
        hold(target / ".publish.lock", what=f"publishing to {target}", timeout=_LOCK_TIMEOUT),
    ):
        _remove_leftovers(target)
        old = _current(target)
        before = verify_index(old).files if old else ()
        new = [listed(wheel, item.page, item.cell) for item, wheel in sound]
        known = {item.file for item in before}
        _require_unchanged(target, new)
        catalog = catalog_of([*before, *(item for item in new if item.file not in known)])
        sources = {wheel.file: wheel for _, wheel in sound if wheel.file not in known}
        snapshot = _make_snapshot(target, catalog, sources, old)
        changed = snapshot != old
        if changed:
            _switch(target, snapshot)
    return Published(snapshot=snapshot, catalog=catalog, changed=changed)


def _require_complete(wheels: Sequence[CellWheel], expected: Sequence[str]) -> None:
    by_cell = {item.cell: item for item in wheels}
    strangers = sorted(by_cell.keys() - set(expected))
    if strangers:
        what = f"wheels of cells that the matrix does not have: {', '.join(strangers)}"
        raise PublishError(what, next_step="build from this matrix.toml")
    bad = []
    for cell in expected:
        item = by_cell.get(cell)
        if item is None:
            bad.append(f"{cell}: {CellState.MISSING} (nothing is known of it)")
        elif item.state is not CellState.OK or item.wheel is None:
            bad.append(str(item))
    if bad or not expected:
        lines = "".join(f"\n  {line}" for line in bad)
        what = f"nothing was published: {len(bad)} of {len(expected)} cells have no wheel{lines}"
        next_step = "build them, or exclude them in matrix.toml with a reason"
        raise PublishError(what, next_step=next_step)


def _verified(wheels: Sequence[CellWheel]) -> list[tuple[CellWheel, Wheel]]:
    """Each cell with its wheel, verified now; it must have the bytes that it had when read."""
    sound: list[tuple[CellWheel, Wheel]] = []
    errors: list[FactoryError] = []
    for item in wheels:
        if item.wheel is None:
            continue
        try:
            wheel = verify_wheel(item.wheel.path)
        except WheelError as error:
            errors.append(error)
            continue
        if wheel.sha256 != item.wheel.sha256:
            errors.append(WheelError("changed while it was published", where=str(wheel.path)))
        sound.append((item, wheel))
    if errors:
        raise one_of_many(errors)
    return sound


def _require_one_version(wheels: Sequence[Wheel]) -> None:
    versions = sorted({f"{wheel.name} {wheel.version.public}" for wheel in wheels})
    if len(versions) > 1:
        what = f"nothing was published: the wheels are of {', '.join(versions)}"
        raise PublishError(what, next_step="build all cells from one commit")


def _require_unchanged(target: Path, new: Iterable[Listed]) -> None:
    """Every file name means the bytes that any snapshot has under it, served now or not."""
    published: dict[str, set[str]] = defaultdict(set)
    for snapshot in sorted((target / SNAPSHOTS).glob("[!.]*")):
        for item in read_catalog(snapshot).files:
            published[item.file].add(item.sha256)
    changed = [item.file for item in new if published[item.file] - {item.sha256}]
    if changed:
        lines = "".join(f"\n  {file}" for file in changed)
        what = f"nothing was published: these are published with other bytes{lines}"
        next_step = "a published file never changes; raise the version"
        raise PublishError(what, next_step=next_step)


def _current(target: Path) -> Path | None:
    """The folder that is served now, ``None`` where nothing was ever published."""
    link = target / CURRENT
    if not link.is_symlink():
        if link.exists():
            next_step = "publish to another folder"
            raise PublishError("is not a link", where=str(link), next_step=next_step)
        return None
    return target / link.readlink()


def _make_snapshot(target: Path, catalog: Catalog, new: dict[str, Wheel], old: Path | None) -> Path:
    """The verified folder of ``catalog``, made now unless it is there; named by its content."""
    snapshot = target / SNAPSHOTS / digest(render_pages(catalog))[:16]
    if snapshot.is_dir():
        verify_index(snapshot)
        return snapshot
    with folder_aside(snapshot) as part:
        fill(part, catalog, new, old)
        verify_index(part)
        for inner, _, _ in os.walk(part):
            sync_names(Path(inner))
        part.rename(snapshot)
    sync_names(snapshot.parent)
    return snapshot


def _switch(target: Path, snapshot: Path) -> None:
    """Let ``current`` lead to ``snapshot``, by the rename of a link."""
    link = target / f".{CURRENT}.{secrets.token_hex(4)}"
    link.symlink_to(snapshot.relative_to(target))
    link.replace(target / CURRENT)
    sync_names(target)


def _remove_leftovers(target: Path) -> None:
    """Remove what killed publishers left; we hold the lock, so they are dead."""
    for link in target.glob(f".{CURRENT}.*"):
        link.unlink()
    for part in (target / SNAPSHOTS).glob(".*.part"):
        shutil.rmtree(part, ignore_errors=True)


@contextmanager
def _disk_errors(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        kind = InfrastructureError if error.errno in _FULL else PublishError
        what = f"cannot be written: {error.strerror or error}"
        raise kind(what, where=str(target), next_step="nothing was published") from error
