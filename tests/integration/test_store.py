"""The store between processes: races, kills at any moment, waiting with the holder's name."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import wheelfab
from wheelfab.flock import is_held
from wheelfab.store import Store

FACTORY = Path(wheelfab.__file__).parent.parent

# Makes an entry of 40 files, slowly, and notes each make; then prints what it found.
MAKER = """
import json, os, sys, time
from pathlib import Path
from wheelfab.store import Store

root, log, seconds = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])

def make(content):
    with log.open("a") as file:
        file.write(f"{os.getpid()}\\n")
    for number in range(40):
        (content / f"file{number}").write_text("x" * 1000)
        time.sleep(seconds / 40)

found = Store(root).entry("toolchain", "slow", make)
print(json.dumps(sorted(os.listdir(found))))
"""


class Maker:
    """A process that asks a store for the same slow entry."""

    def __init__(self, root: Path, log: Path, seconds: float) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", MAKER, str(root), str(log), str(seconds)],
            env={**os.environ, "PYTHONPATH": str(FACTORY)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self) -> tuple[list[str], str]:
        """The files that it found and what it said on stderr."""
        out, err = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, err
        return json.loads(out), err

    def kill(self) -> None:
        """As the kernel does when memory is out."""
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate(timeout=60)


def wait_for(path: Path) -> None:
    """Wait until ``path`` exists and is not empty."""
    for _ in range(2000):
        if path.exists() and path.stat().st_size:
            return
        time.sleep(0.01)
    pytest.fail(f"{path} did not come")


def only_folder(folder: Path) -> Path:
    """The one folder in ``folder``, once it is there."""
    for _ in range(2000):
        if folder.exists() and (found := list(folder.iterdir())):
            return found[0]
        time.sleep(0.01)
    pytest.fail(f"nothing came into {folder}")


def makes(log: Path) -> int:
    """How many makes were begun."""
    return len(log.read_text().splitlines()) if log.exists() else 0


ALL_FILES = sorted(f"file{number}" for number in range(40))


def test_of_two_processes_one_makes_and_the_other_waits_and_says_for_whom(tmp_path: Path) -> None:
    root, log = tmp_path / "store", tmp_path / "log"
    first = Maker(root, log, 3.5)
    wait_for(log)
    second = Maker(root, log, 3.5)
    assert first.finish()[0] == ALL_FILES
    found, said = second.finish()
    assert found == ALL_FILES
    assert makes(log) == 1
    assert f"waiting for toolchain/slow: held by pid {first.process.pid} on " in said


def test_a_killed_maker_holds_up_nobody_and_its_half_is_removed(tmp_path: Path) -> None:
    root, log = tmp_path / "store", tmp_path / "log"
    first = Maker(root, log, 30)
    wait_for(log)
    wait_for(only_folder(root / ".work") / "content" / "file1")
    second = Maker(root, log, 0.2)
    time.sleep(0.3)
    first.kill()
    assert second.finish()[0] == ALL_FILES
    assert list((root / ".work").iterdir()) == []
    assert list((root / ".locks").iterdir()) == []


def test_a_kill_at_any_moment_leaves_a_whole_entry_or_none(tmp_path: Path) -> None:
    random_ = random.Random(7)
    whole = 0
    for attempt in range(12):
        root, log = tmp_path / f"store{attempt}", tmp_path / f"log{attempt}"
        maker = Maker(root, log, 0.15)
        wait_for(log)
        time.sleep(random_.uniform(0, 0.25))
        maker.kill()
        store = Store(root)
        found = store.find("toolchain", "slow")
        if found is not None:
            whole += 1
            assert sorted(path.name for path in found.iterdir()) == ALL_FILES
            store.verify("toolchain", "slow")
        assert not is_held(root / ".locks" / "toolchain@slow.lock")
        again = store.entry("toolchain", "slow", lambda content: (content / "a").touch())
        assert again.is_dir()
    assert whole < 12


def test_two_interpreters_started_together_agree(tmp_path: Path) -> None:
    root, log = tmp_path / "store", tmp_path / "log"
    makers = [Maker(root, log, 0.2) for _ in range(4)]
    assert [maker.finish()[0] for maker in makers] == [ALL_FILES] * 4
    assert makes(log) == 1
    Store(root).verify("toolchain", "slow")
