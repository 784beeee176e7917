"""The base image of the container against the lock: another digest, none in the lock, none here."""

from __future__ import annotations

from pathlib import Path

import pytest

from wheelfab.errors import ToolchainError
from wheelfab.locked import Locked
from wheelfab.manylinux import box as module
from wheelfab.manylinux.box import find_box

from .lockmaker import make_locked
from .test_plan import COMPILER

LOCKED = make_locked(COMPILER)
DIGEST = "sha256:" + "c" * 64  # of the lock's debian-12
OTHER = "sha256:" + "d" * 64
ADD = "; run `wheelfab lock`, which adds what is missing"


class Engine:
    """An engine with one base."""

    def __init__(self, digest: str) -> None:
        self.digest = digest

    def base_digest(self, base: str) -> str:
        """The base's digest."""
        assert base in ("debian-12", "debian-13")
        return self.digest

    def image(self, target: str, base: str) -> str:
        """The name of a built image."""
        return f"{target} on {base}"


def here(monkeypatch: pytest.MonkeyPatch, digest: str) -> None:
    """Let a base with ``digest`` be the engine's."""
    monkeypatch.setattr(module, "find_engine", lambda _: Engine(digest))


@pytest.mark.parametrize("only_listed", [False, True])
def test_the_locks_base_is_taken_in_silence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, only_listed: bool
) -> None:
    here(monkeypatch, DIGEST)
    found = find_box(Path(), LOCKED, only_listed=only_listed)
    assert (found.image, found.base_digest) == ("wheel-builder on debian-12", DIGEST)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("only_listed", [False, True])
def test_a_base_with_another_digest_stops_the_build(
    monkeypatch: pytest.MonkeyPatch, *, only_listed: bool
) -> None:
    here(monkeypatch, OTHER)
    with pytest.raises(ToolchainError) as caught:
        find_box(Path(), LOCKED, only_listed=only_listed)
    assert str(caught.value) == (
        f"matrix.lock: image debian-12: {OTHER} here, {DIGEST} in the lock; "
        "run `wheelfab lock --upgrade` if the change is wanted"
    )


def test_a_base_that_is_not_in_the_lock_is_told_and_stops_what_takes_the_locks_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here(monkeypatch, OTHER)
    says = f"matrix.lock: image debian-13: {OTHER} is not in the lock{ADD}"
    assert find_box(Path(), LOCKED, "debian-13").base_digest == OTHER
    assert says in " ".join(capsys.readouterr().err.split())
    with pytest.raises(ToolchainError) as caught:
        find_box(Path(), LOCKED, "debian-13", only_listed=True)
    assert str(caught.value) == says


@pytest.mark.parametrize("locked", [None, Locked(schema=1)])
def test_a_project_without_a_lock_has_no_container(
    monkeypatch: pytest.MonkeyPatch, locked: Locked | None
) -> None:
    here(monkeypatch, DIGEST)
    with pytest.raises(ToolchainError, match=r"^matrix\.lock: has nothing for a container; run"):
        find_box(Path(), locked)
