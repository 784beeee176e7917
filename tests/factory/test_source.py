"""The source tree: files by pattern in one order, no links or caches, reads within bounds."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from wheelfab.errors import MatrixError
from wheelfab.source import Source


@pytest.fixture
def source(tmp_path: Path) -> Source:
    """A tree with a cache, a link to a file, a link out of it, and a folder that matches."""
    root = tmp_path / "project"
    for name in ("csrc/b.cu", "csrc/a.cu", "csrc/a.h", "csrc/sub/c.cu", "py/x.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    (root / "py/__pycache__").mkdir()
    (root / "py/__pycache__/x.cpython-311.pyc").write_bytes(b"")
    (root / "csrc/folder.cu").mkdir()
    (root / "csrc/link.cu").symlink_to("a.cu")
    (tmp_path / "secret.h").write_text("outside")
    (root / "csrc/out.h").symlink_to(tmp_path / "secret.h")
    return Source(root=root, commit=None, epoch=0)


def test_patterns_give_files_sorted_without_links_folders_and_caches(source: Source) -> None:
    assert source.glob(["csrc/*.cu", "csrc/**/*.cu", "py/**/*", "none/*"]) == {
        "csrc/*.cu": ("csrc/a.cu", "csrc/b.cu"),
        "csrc/**/*.cu": ("csrc/a.cu", "csrc/b.cu", "csrc/sub/c.cu"),
        "py/**/*": ("py/x.py",),
        "none/*": (),
    }


def test_digests_are_of_the_bytes(source: Source) -> None:
    assert source.digests(["py/x.py"]) == {"py/x.py": hashlib.sha256(b"py/x.py").hexdigest()}


def test_a_deleted_file_is_in_no_pattern_any_more(source: Source) -> None:
    """B62: what is packed comes from the tree as it is now."""
    (source.root / "py/x.py").unlink()
    assert source.glob(["py/**/*"]) == {"py/**/*": ()}


def test_a_huge_source_file_is_not_read(source: Source) -> None:
    with (source.root / "csrc/a.cu").open("wb") as file:
        file.truncate((16 << 20) + 1)
    with pytest.raises(MatrixError, match=r"^csrc/a\.cu: a source file of over 16 MiB$"):
        source.read("csrc/a.cu")
    with (source.root / "csrc/a.cu").open("wb") as file:
        file.truncate(16 << 20)
    assert len(source.read("csrc/a.cu")) == 16 << 20


@pytest.mark.parametrize(
    ("folders", "name", "found"),
    [
        (["py", "csrc"], "a.h", "csrc/a.h"),
        (["csrc/sub", "csrc"], "c.cu", "csrc/sub/c.cu"),
        (["csrc/sub"], "../a.h", "csrc/a.h"),
        (["csrc"], "missing.h", None),
        (["csrc"], "out.h", None),
        (["csrc"], "../../secret.h", None),
        (["csrc"], "sub", None),
    ],
)
def test_the_first_folder_that_has_an_include_counts_and_none_outside(
    source: Source, folders: list[str], name: str, found: str | None
) -> None:
    assert source.first(folders, name) == found
