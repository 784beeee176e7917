"""An entry is made once, whole and read-only, or it is not there."""

from __future__ import annotations

import errno
import hashlib
import threading
import time
from pathlib import Path

import pytest

from wheelfab import flock
from wheelfab.errors import InfrastructureError, StoreError
from wheelfab.store import Store, default_root


def fill(content: Path) -> None:
    """A small entry: a file, a program in a folder, a link."""
    (content / "bin").mkdir()
    (content / "data").write_bytes(b"hello")
    (content / "bin" / "tool").write_bytes(b"#!/bin/sh\n")
    (content / "bin" / "tool").chmod(0o755)
    (content / "bin" / "again").symlink_to("tool")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store."""
    return Store(tmp_path / "store")


def leftovers(store: Store) -> list[str]:
    """What attempts and locks are lying about."""
    folders = (store.root / ".work", store.root / ".locks")
    return [path.name for folder in folders if folder.exists() for path in folder.iterdir()]


def test_an_entry_is_made_once_and_found_again(store: Store) -> None:
    assert store.find("toolchain", "a") is None
    made = store.entry("toolchain", "a", fill)
    again = store.entry("toolchain", "a", lambda _: pytest.fail("made twice"))
    assert made == again == store.find("toolchain", "a") == store.root / "toolchain/a/content"
    assert (made / "data").read_bytes() == b"hello"
    assert leftovers(store) == []


def test_the_manifest_describes_every_file(store: Store) -> None:
    store.entry("toolchain", "a", fill)
    manifest = store.manifest("toolchain", "a")
    assert manifest["size"] == 15
    assert manifest["files"] == [
        {"path": "data", "size": 5, "sha256": sha(b"hello"), "executable": False},
        {"path": "bin/again", "link": "tool"},
        {"path": "bin/tool", "size": 10, "sha256": sha(b"#!/bin/sh\n"), "executable": True},
    ]
    with pytest.raises(StoreError, match="toolchain/b: no such entry"):
        store.manifest("toolchain", "b")


def sha(data: bytes) -> str:
    """SHA-256, hex."""
    return hashlib.sha256(data).hexdigest()


def test_an_entry_is_read_only(store: Store) -> None:
    made = store.entry("toolchain", "a", fill)
    modes = {path.name: path.lstat().st_mode & 0o777 for path in (made, *made.rglob("*"))}
    assert modes["content"] == modes["bin"] == modes["tool"] == 0o555
    assert modes["data"] == 0o444


def test_a_changed_file_is_found_and_named(store: Store) -> None:
    made = store.entry("toolchain", "a", fill)
    store.verify("toolchain", "a")
    (made / "data").chmod(0o644)
    (made / "data").write_bytes(b"hellO")
    made.chmod(0o755)
    (made / "stray").touch()
    with pytest.raises(StoreError, match="changed since it was made: data, stray; remove"):
        store.verify("toolchain", "a")


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_whatever_ends_a_make_early_leaves_nothing(
    store: Store, error: type[BaseException]
) -> None:
    def broken(content: Path) -> None:
        fill(content)
        (content / "bin").chmod(0o555)
        raise error

    with pytest.raises(error):
        store.entry("toolchain", "a", broken)
    assert store.find("toolchain", "a") is None
    assert leftovers(store) == []
    assert store.entry("toolchain", "a", fill).is_dir()


def test_an_empty_result_is_an_error(store: Store) -> None:
    with pytest.raises(StoreError, match="toolchain/a: nothing was made"):
        store.entry("toolchain", "a", lambda _: None)
    assert store.find("toolchain", "a") is None


def test_a_link_that_leaves_the_entry_is_refused(store: Store) -> None:
    with pytest.raises(StoreError, match="way: a link that leaves the entry"):
        store.entry("toolchain", "a", lambda content: (content / "way").symlink_to("../../.."))
    assert store.find("toolchain", "a") is None


def test_a_full_disk_is_named_with_what_is_free_and_needed(store: Store) -> None:
    def write(content: Path) -> None:
        (content / "data").write_bytes(b"x")
        Path("/dev/full").write_bytes(b"x")

    with pytest.raises(InfrastructureError, match=r"disk full: [\d.]+ GiB free, 0.00 GiB needed"):
        store.entry("toolchain", "a", write, needs=1000)
    assert leftovers(store) == []


def test_other_errors_of_the_system_stay_what_they_are(store: Store) -> None:
    def refuse(_: Path) -> None:
        raise PermissionError(errno.EACCES, "no")

    with pytest.raises(PermissionError):
        store.entry("toolchain", "a", refuse)


def test_too_little_space_is_said_before_anything_is_made(store: Store) -> None:
    with pytest.raises(InfrastructureError, match=r"GiB free, [\d.]+ GiB needed"):
        store.entry("toolchain", "a", lambda _: pytest.fail("started"), needs=1 << 60)


def test_what_a_killed_process_left_is_removed_by_the_next_attempt(store: Store) -> None:
    dead = store.root / ".work" / "toolchain@a.12345-deadbeef"
    other = store.root / ".work" / "toolchain@a.b.12345-deadbeef"
    for folder in (dead / "content" / "closed", other / "content"):
        folder.mkdir(parents=True)
        folder.chmod(0o555)
    store.entry("toolchain", "a", fill)
    assert not dead.exists()
    assert other.exists()


def test_threads_that_ask_at_once_make_it_once(store: Store) -> None:
    made: list[int] = []
    found: list[Path] = []

    def make(content: Path) -> None:
        made.append(1)
        time.sleep(0.05)
        fill(content)

    threads = [
        threading.Thread(target=lambda: found.append(store.entry("toolchain", "a", make)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert set(found) == {store.find("toolchain", "a")}
    assert len(found) == 8


def test_waiting_too_long_for_another_is_an_error(store: Store) -> None:
    started, done = threading.Event(), threading.Event()

    def slow(content: Path) -> None:
        fill(content)
        started.set()
        done.wait(10)

    thread = threading.Thread(target=lambda: store.entry("toolchain", "a", slow))
    thread.start()
    assert started.wait(5)
    with pytest.raises(StoreError, match="toolchain/a: still locked"):
        store.entry("toolchain", "a", fill, timeout=0.1)
    done.set()
    thread.join()
    assert store.find("toolchain", "a") is not None


@pytest.mark.parametrize("name", ["", ".", "..", "../a", "a/b", ".hidden", "a b", "a\n", "x" * 300])
def test_a_name_that_could_lead_elsewhere_is_refused(store: Store, name: str) -> None:
    with pytest.raises(StoreError, match="not a name for an entry"):
        store.entry("toolchain", name, fill)
    with pytest.raises(StoreError, match="not a name for an entry"):
        store.find(name, "a")


def test_remove_and_prune(store: Store) -> None:
    for key in ("a", "b", "c"):
        store.entry("toolchain", key, fill)
    assert store.remove("toolchain", "a")
    assert not store.remove("toolchain", "a")
    abandoned = store.root / ".work" / "toolchain@z.1-00000000"
    abandoned.mkdir(parents=True)
    assert store.prune({("toolchain", "c")}) == 1
    assert store.find("toolchain", "b") is None
    assert store.find("toolchain", "c") is not None
    assert leftovers(store) == []


def test_prune_leaves_an_attempt_that_is_going_on(store: Store) -> None:
    going = store.root / ".work" / "toolchain@z.1-00000000"
    going.mkdir(parents=True)
    with flock.hold(store.root / ".locks" / "toolchain@z.lock", what="z", timeout=1):
        store.prune(())
        assert going.exists()
    store.prune(())
    assert not going.exists()


def test_the_root_is_the_users_cache_unless_the_environment_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WHEELFAB_STORE", str(tmp_path))
    assert default_root() == tmp_path
    monkeypatch.delenv("WHEELFAB_STORE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert default_root().name == "wheelfab"
