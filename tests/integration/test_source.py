"""The source tree's commit and time, asked of a real git."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from wheelfab.source import read_source

DATE = "2025-06-07T08:09:10+02:00"
EPOCH = 1_749_276_550
NO_COMMIT = 1_577_836_800  # 2020-01-01


def git(root: Path, *arguments: str) -> str:
    """Run git with nothing of the user's."""
    env = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(root),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_COMMITTER_DATE": DATE,
        "GIT_AUTHOR_DATE": DATE,
    }
    who = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    done = subprocess.run(
        ["git", "-C", str(root), *who, *arguments],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with one commit."""
    (tmp_path / "a.c").write_text("int a;\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "a.c")
    git(tmp_path, "commit", "--quiet", "-m", "one")
    return tmp_path


def test_a_clean_tree_has_its_commit_and_the_commits_time(root: Path) -> None:
    source = read_source(root)
    assert source.commit == git(root, "rev-parse", "HEAD")
    assert source.epoch == EPOCH


def test_a_changed_tree_is_dirty_and_an_untracked_file_is_not(root: Path) -> None:
    (root / "notes.txt").touch()
    assert read_source(root).commit == git(root, "rev-parse", "HEAD")
    (root / "a.c").write_text("int b;\n")
    assert read_source(root).commit == git(root, "rev-parse", "HEAD") + "-dirty"
    assert read_source(root).epoch == EPOCH


def test_without_git_the_time_is_fixed(
    root: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = read_source(tmp_path_factory.mktemp("plain"))
    assert (plain.commit, plain.epoch) == (None, NO_COMMIT)
    monkeypatch.setenv("PATH", str(root))
    assert (read_source(root).commit, read_source(root).epoch) == (None, NO_COMMIT)


def test_a_repository_without_a_commit_is_a_tree_without_git(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    assert read_source(tmp_path).commit is None
