"""A publisher killed at any moment leaves the old index or the new one, never a half."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.factory.cellmaker import build_all, cells
from wheelfab.index import CellWheel, built_wheels, publish, verify_index

CELLS = cells(["cu121-torch2.4", "cu121-torch2.10"])
MOMENTS = 20
SEED = 20261130
# What the interpreter reports before it does it: each is a moment at which a kill can come.
EVENTS = frozenset(
    f"{module}.{name}" if module else name
    for module, name in [
        ("", "open"),
        ("os", "chmod"),
        ("os", "link"),
        ("os", "mkdir"),
        ("os", "remove"),
        ("os", "rename"),
        ("os", "rmdir"),
        ("os", "scandir"),
        ("os", "symlink"),
        ("os", "truncate"),
        ("shutil", "copyfile"),
        ("shutil", "rmtree"),
    ]
)


def in_child(work: Callable[[], object], kill_at: int | None) -> tuple[int, int]:
    """Run ``work`` in a fork, killed at its ``kill_at``-th event: wait status, number of events."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        seen = 0

        def count(event: str, _: object) -> None:
            nonlocal seen
            if event in EVENTS:
                seen += 1
                if seen == kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        work()
        os.write(writer, str(seen).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        seen = int(pipe.read() or 0)
    return os.waitpid(pid, 0)[1], seen


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> tuple[tuple[CellWheel, ...], ...]:
    """Two releases, built."""
    found = []
    for version in ("0.1.0", "0.2.0"):
        root = tmp_path_factory.mktemp(version)
        names = [cell.id for cell in CELLS]
        build_all(root, names, public=version, files={"freewheel/data": os.urandom(1 << 16)})
        found.append(built_wheels(root, CELLS))
        publish(found[-1], root / "warm", expected=CELLS)  # so that no child has to import
    return tuple(found)


@pytest.mark.parametrize("first", [True, False], ids=["first release", "second release"])
def test_a_kill_leaves_the_old_state_or_the_new_one(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    releases: tuple[tuple[CellWheel, ...], ...],
    *,
    first: bool,
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # a kill, unlike a power cut, loses no write
    old = tmp_path / "old"
    old.mkdir()
    if not first:
        publish(releases[0], old, expected=CELLS)
    wheels = releases[0] if first else releases[1]
    before = None if first else (old / "current").readlink()

    def attempt(number: int, kill_at: int | None) -> tuple[Path, int, int]:
        target = tmp_path / str(number)
        shutil.copytree(old, target, symlinks=True)
        status, seen = in_child(lambda: publish(wheels, target, expected=CELLS), kill_at)
        return target, status, seen

    target, status, total = attempt(0, None)
    assert status == 0
    after = (target / "current").readlink()
    assert total > MOMENTS
    # the switch itself is among the last events, so these are always tried
    moments = {
        *random.Random(SEED).sample(range(1, total + 1), MOMENTS),
        *range(total - 4, total + 1),
    }
    states = []
    for moment in sorted(moments):
        target, status, _ = attempt(moment, moment)
        assert os.WTERMSIG(status) == signal.SIGKILL
        link = target / "current"
        state = link.readlink() if link.is_symlink() else None
        assert state in (before, after)
        if state is not None:
            verify_index(link)
        states.append(state)
        done = publish(wheels, target, expected=CELLS)
        assert link.readlink() == after
        assert len(done.catalog.files) == len(CELLS) * (1 if first else 2)
        assert {path.name for path in target.iterdir()} == {"current", "snapshots"}
        assert not [path for path in (target / "snapshots").iterdir() if path.suffix == ".part"]
        shutil.rmtree(target)
    assert states == sorted(states, key=[before, after].index)  # old until the switch, then new
    assert set(states) == {before, after}
