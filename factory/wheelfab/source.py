"""The project's source tree as the plan sees it: files by pattern, digests, commit and epoch."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wheelfab.errors import MatrixError
from wheelfab.records import file_digest
from wheelfab.run import run, tool_environment

_NO_COMMIT_EPOCH = 1_577_836_800  # 2020-01-01: a tree without git still gives fixed timestamps
_LARGEST_SOURCE = 16 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """A source tree. ``epoch`` (seconds) is the commit's time and dates every file in a wheel."""

    root: Path
    commit: str | None
    epoch: int

    def glob(self, patterns: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
        """The files that each pattern matches, relative to the root, sorted; links are left out."""
        return {pattern: self._matching(pattern) for pattern in patterns}

    def digests(self, files: Sequence[str]) -> Mapping[str, str]:
        """SHA-256 of each file, by its relative path."""
        return {file: file_digest(self.root / file) for file in files}

    def read(self, file: str) -> bytes:
        """The bytes of a source file of at most 16 MiB."""
        path = self.root / file
        if path.stat().st_size > _LARGEST_SOURCE:
            raise MatrixError("a source file of over 16 MiB", where=file)
        return path.read_bytes()

    def first(self, folders: Sequence[str], name: str) -> str | None:
        """The first of ``folders`` that has ``name``, as a path relative to the root."""
        root = self.root.resolve()
        for folder in folders:
            path = (root / folder / name).resolve()
            if path.is_file() and path.is_relative_to(root):
                return str(path.relative_to(root))
        return None

    def _matching(self, pattern: str) -> tuple[str, ...]:
        found = (path for path in self.root.glob(pattern) if not path.is_symlink())
        names = (path.relative_to(self.root) for path in found if path.is_file())
        return tuple(sorted(str(name) for name in names if "__pycache__" not in name.parts))


def read_source(root: Path) -> Source:
    """The source tree at ``root``, its git commit (``…-dirty`` with changes) and epoch."""
    git = ("git", "-C", str(root))
    if shutil.which("git") is None:
        return Source(root=root, commit=None, epoch=_NO_COMMIT_EPOCH)
    head = run((*git, "log", "-1", "--format=%H %ct"), env=tool_environment(), timeout=20)
    if not head.ok:
        return Source(root=root, commit=None, epoch=_NO_COMMIT_EPOCH)
    commit, epoch = head.stdout.split()
    status = run((*git, "status", "--porcelain", "-uno"), env=tool_environment(), timeout=20)
    dirty = "-dirty" if status.stdout.strip() else ""
    return Source(root=root, commit=commit + dirty, epoch=int(epoch))
