"""A build ended at 50 random moments: no half wheel, no stuck lock; what was finished is kept."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import time
from functools import partial
from pathlib import Path

from wheelfab.wheel import verify_wheel

from .conftest import Wheelfab

MOMENTS = 50
LONGEST = 4.0  # seconds into a build; a whole one takes about 15
# Python itself ends with 1 when it is interrupted before it runs a line of ours.
STARTING = ("Fatal Python error: init_", "Could not import runpy module")


def end_at(tiny: Wheelfab, delay: float, with_signal: signal.Signals) -> tuple[int, str]:
    """Start a build and end it after ``delay`` seconds; return its exit code and last words."""
    process = tiny.start("build", "cu121")
    try:
        _, words = process.communicate(timeout=delay)
    except subprocess.TimeoutExpired:
        process.send_signal(with_signal)
        _, words = process.communicate(timeout=60)
    return process.returncode, words


def finished_things(root: Path) -> dict[str, float]:
    """The stored results that are there, by name, with the time that they were made."""
    entries = (root / "build/store").glob("[a-z]*/*/content")
    return {str(entry.relative_to(root)): entry.stat().st_mtime for entry in entries}


def wait_for_what_goes_on(root: Path) -> None:
    """Let the compilers of a killed build, which nobody ends, come to their end."""
    limit = time.monotonic() + 60
    while time.monotonic() < limit and any(map(partial(works_in, root), Path("/proc").iterdir())):
        time.sleep(0.1)


def works_in(root: Path, process: Path) -> bool:
    try:
        return process.name.isdigit() and (process / "cwd").readlink().is_relative_to(root)
    except OSError:  # it has ended, or is another user's
        return False


def test_no_moment_leaves_anything_half_made(tiny: Wheelfab) -> None:
    chance = random.Random(20261129)
    ended = {signal.SIGKILL: 0, signal.SIGINT: 0}
    for number in range(MOMENTS):
        with_signal = signal.SIGKILL if number % 2 else signal.SIGINT
        before = finished_things(tiny.root)
        code, words = end_at(tiny, chance.uniform(0.05, LONGEST), with_signal)
        ended[with_signal] += code != 0
        if with_signal is signal.SIGINT and code != 0:
            assert code in (130, -signal.SIGINT) or words.startswith(STARTING), words
        for path in (tiny.root / "dist").glob("*") if (tiny.root / "dist").exists() else ():
            verify_wheel(path)  # nothing but whole wheels lies there
        after = finished_things(tiny.root)
        assert before.items() <= after.items()
        if code == 0:
            shutil.rmtree(tiny.root / "build")
            shutil.rmtree(tiny.root / "dist")
    assert ended[signal.SIGKILL] >= MOMENTS // 4
    assert ended[signal.SIGINT] >= MOMENTS // 4

    wait_for_what_goes_on(tiny.root)
    started = time.monotonic()
    results = tiny.json("build", "cu121")
    assert [item["state"] for item in results] == ["ok"] * 3
    assert time.monotonic() - started < 120  # no wait for a lock that a dead process held
    assert not list((tiny.root / "build/work").iterdir())
    assert not list((tiny.root / "build/store/.work").iterdir())


def test_what_a_killed_build_writes_later_is_removed_too(tiny: Wheelfab) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    work = tiny.root / "build/work"
    process = tiny.start("build", "cu121")
    while not (work.exists() and list(work.iterdir())):
        assert process.poll() is None
        time.sleep(0.01)
    (work / f"{dead.pid}-late/cmake").mkdir(parents=True)
    process.communicate(timeout=120)
    assert process.returncode == 0
    assert not list(work.iterdir())
