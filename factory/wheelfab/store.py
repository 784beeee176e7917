"""Content-addressed store: an entry is made once, aside and under a lock, and never changes."""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from wheelfab.errors import InfrastructureError, StoreError
from wheelfab.flock import hold, is_held
from wheelfab.machine import GIB, require_disk
from wheelfab.records import file_digest, read_json, write_json

_SCHEMA = 1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,180}\Z")
_FULL = (errno.ENOSPC, errno.EDQUOT)
_LOCK_TIMEOUT = 3600.0  # seconds; the longest make is a torch download on a slow line


def default_root() -> Path:
    """Where toolchains and torch releases are kept: ``WHEELFAB_STORE``, or the user's cache."""
    chosen = os.environ.get("WHEELFAB_STORE")
    if chosen:
        return Path(chosen).expanduser().absolute()
    import platformdirs

    return Path(platformdirs.user_cache_dir("wheelfab"))


class Store:
    """Folders by kind and key; each is whole and read-only, or absent.

    On disk: ``<root>/<kind>/<key>/content`` beside ``manifest.json`` (path, size and SHA-256 of
    each file), ``<root>/.locks`` and, for each attempt at an entry, one folder in ``<root>/.work``.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()

    def find(self, kind: str, key: str) -> Path | None:
        """The content of an entry, or ``None`` when it has not been made. One stat."""
        content = self._entry(kind, key) / "content"
        return content if content.is_dir() else None

    def entry(
        self,
        kind: str,
        key: str,
        make: Callable[[Path], None],
        *,
        needs: int = 0,
        timeout: float = _LOCK_TIMEOUT,
    ) -> Path:
        """The content of an entry; ``make`` fills the empty folder that it is given if need be.

        Of several processes and threads that ask at once, one makes and the others wait for it.
        Whatever ends ``make`` early leaves nothing behind; a killed process leaves a folder that
        the next attempt at the same entry removes.

        ``needs``: bytes that must be free before ``make`` starts. ``timeout``: seconds to wait for
        another process.

        Raises ``StoreError`` when the wait is too long or ``make`` left nothing,
        ``InfrastructureError`` when the disk is full, and whatever ``make`` raises.
        """
        found = self.find(kind, key)
        if found is not None:
            return found
        with _disk_full(self.root, needs), self._held(kind, key, timeout):
            found = self.find(kind, key)
            return found if found is not None else self._make(kind, key, make, needs)

    def manifest(self, kind: str, key: str) -> dict[str, Any]:
        """What the entry held when it was made; raises ``StoreError`` when there is no entry."""
        path = self._entry(kind, key) / "manifest.json"
        if not path.exists():
            raise StoreError("no such entry", where=f"{kind}/{key}")
        manifest: dict[str, Any] = read_json(path)
        return manifest

    def verify(self, kind: str, key: str) -> None:
        """Read an entry again; raises ``StoreError`` naming what differs from its manifest."""
        then = {item["path"]: item for item in self.manifest(kind, key)["files"]}
        now = {item["path"]: item for item in _describe(self._entry(kind, key) / "content")}
        changed = sorted(p for p in then.keys() | now.keys() if then.get(p) != now.get(p))
        if changed:
            more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
            raise StoreError(
                f"changed since it was made: {', '.join(changed[:3])}{more}",
                where=str(self._entry(kind, key)),
                next_step="remove that folder; it is made again when needed",
            )

    def remove(self, kind: str, key: str, *, timeout: float = _LOCK_TIMEOUT) -> bool:
        """Remove an entry, unless it is not there; readers that have files open keep them."""
        entry = self._entry(kind, key)
        if not entry.exists():
            return False
        with self._held(kind, key, timeout):
            doomed = self._attempt(kind, key)
            try:
                entry.rename(doomed)
            except FileNotFoundError:
                return False
            _remove_tree(doomed)
        return True

    def prune(self, keep: Collection[tuple[str, str]]) -> int:
        """Remove all entries but ``keep`` and what killed processes left; return how many."""
        removed = 0
        for kind in _names(self.root):
            for key in _names(self.root / kind):
                if (kind, key) not in keep:
                    removed += self.remove(kind, key)
        for name in _names(self.root / ".work"):
            lock = self.root / ".locks" / f"{name.rpartition('.')[0]}.lock"
            if not is_held(lock):
                _remove_tree(self.root / ".work" / name)
        return removed

    def _make(self, kind: str, key: str, make: Callable[[Path], None], needs: int) -> Path:
        self._remove_abandoned(kind, key)
        if needs:
            require_disk(self.root, needs)
        attempt = self._attempt(kind, key)
        content = attempt / "content"
        try:
            content.mkdir(parents=True)
            make(content)
            files = list(_describe(content))
            if not files:
                raise StoreError("nothing was made", where=f"{kind}/{key}")
            size = sum(item.get("size", 0) for item in files)
            manifest = {"schema": _SCHEMA, "kind": kind, "key": key, "size": size, "files": files}
            write_json(attempt / "manifest.json", manifest)
            _make_read_only(content)
            entry = self._entry(kind, key)
            entry.parent.mkdir(parents=True, exist_ok=True)
            attempt.rename(entry)
        finally:
            _remove_tree(attempt)
        return entry / "content"

    def _entry(self, kind: str, key: str) -> Path:
        for name in (kind, key):
            if not _NAME.match(name):
                raise StoreError(f"not a name for an entry: {name!r}", where=str(self.root))
        return self.root / kind / key

    def _attempt(self, kind: str, key: str) -> Path:
        folder = self.root / ".work"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{kind}@{key}.{os.getpid()}-{secrets.token_hex(4)}"

    def _held(self, kind: str, key: str, timeout: float) -> AbstractContextManager[None]:
        self._entry(kind, key)
        lock = self.root / ".locks" / f"{kind}@{key}.lock"
        return hold(lock, what=f"{kind}/{key}", timeout=timeout)

    def _remove_abandoned(self, kind: str, key: str) -> None:
        """We hold the entry's lock, so whoever left these folders is dead."""
        for name in _names(self.root / ".work"):
            if name.rpartition(".")[0] == f"{kind}@{key}":
                _remove_tree(self.root / ".work" / name)


@contextmanager
def _disk_full(root: Path, needs: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        existing = next(path for path in (root, *root.parents) if path.exists())
        free = shutil.disk_usage(existing).free / GIB
        needed = f", {needs / GIB:.2f} GiB needed" if needs else ""
        raise InfrastructureError(
            f"disk full: {free:.2f} GiB free{needed}",
            where=str(root),
            next_step="free some space or point WHEELFAB_STORE to a larger disk",
        ) from error


def _describe(content: Path) -> Iterator[dict[str, Any]]:
    """Path, size and SHA-256 of each file; the target of each link, which must stay inside."""
    for folder, folders, names in os.walk(content):
        folders.sort()
        for name in sorted([*names, *(f for f in folders if (Path(folder) / f).is_symlink())]):
            path = Path(folder) / name
            relative = path.relative_to(content).as_posix()
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                if not path.resolve().is_relative_to(content.resolve()):
                    raise StoreError("a link that leaves the entry", where=relative)
                yield {"path": relative, "link": str(path.readlink())}
            elif stat.S_ISREG(mode):
                size = path.stat().st_size
                yield {
                    "path": relative,
                    "size": size,
                    "sha256": file_digest(path),
                    "executable": bool(mode & stat.S_IXUSR),
                }
            else:
                raise StoreError("neither a file, a folder nor a link", where=relative)


def _make_read_only(content: Path) -> None:
    for folder, _, names in os.walk(content, topdown=False):
        for name in names:
            path = Path(folder) / name
            if not path.is_symlink():
                path.chmod(0o555 if path.stat().st_mode & stat.S_IXUSR else 0o444)
        Path(folder).chmod(0o555)


def _remove_tree(folder: Path) -> None:
    """Remove ``folder``, read-only folders in it too; what an orphaned child still writes stays."""
    if not folder.exists():
        return
    for inner, _, _ in os.walk(folder):
        with suppress(OSError):
            Path(inner).chmod(0o755)
    shutil.rmtree(folder, ignore_errors=True)


def _names(folder: Path) -> list[str]:
    try:
        names = [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []
    return sorted(name for name in names if not name.startswith("."))
