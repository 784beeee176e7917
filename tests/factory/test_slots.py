"""One budget of compile jobs: actions and the Ninjas that they start share it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest

from wheelfab.errors import InfrastructureError
from wheelfab.slots import Slots

NINJA = """\
rule note
  command = echo +1 >> ../log; sleep 0.2; echo -1 >> ../log; touch $out
build a: note
build b: note
build c: note
"""


def free(slots: Slots) -> int:
    """How many jobs are free: the bytes in the pipe, which are put back."""
    match = re.fullmatch(r"-j\d+ --jobserver-auth=fifo:(\S+)", slots.environment["MAKEFLAGS"])
    assert match is not None
    fifo = os.open(match[1], os.O_RDWR | os.O_NONBLOCK)
    try:
        found = os.read(fifo, 1000)
    except BlockingIOError:
        found = b""
    os.write(fifo, found)
    os.close(fifo)
    return len(found)


def test_a_job_is_taken_and_given_back() -> None:
    with Slots(3) as slots:
        assert free(slots) == 3
        with slots.one(), slots.one():
            assert free(slots) == 1
        assert free(slots) == 3


@pytest.mark.parametrize(("count", "jobs"), [(6, 3), (2, 1), (3, 1)])
def test_half_is_alone_and_finds_what_a_killed_ninja_kept(count: int, jobs: int) -> None:
    order: list[str] = []

    def other(slots: Slots, name: str) -> None:
        with slots.one():
            order.append(name)
            time.sleep(0.1)

    with Slots(count) as slots:
        fifo = os.open(slots.environment["MAKEFLAGS"].partition("fifo:")[2], os.O_RDWR)
        os.read(fifo, count - 1)  # never given back
        os.close(fifo)
        first = threading.Thread(target=other, args=(slots, "before"))
        first.start()
        while not order:
            time.sleep(0.01)
        with slots.half() as found:
            assert order == ["before"]
            assert not first.is_alive() or free(slots) == jobs - 1
            second = threading.Thread(target=other, args=(slots, "after"))
            second.start()
            time.sleep(0.1)
            assert (found, free(slots), order) == (jobs, jobs - 1, ["before"])
            order.append("half")
        second.join()
        assert order == ["before", "half", "after"]
        assert free(slots) == count


def test_who_waits_is_told_when_the_build_is_stopped() -> None:
    told: list[str] = []

    def wait(slots: Slots) -> None:
        try:
            with slots.one():
                told.append("ran")
        except InfrastructureError as error:
            told.append(str(error))

    with Slots(1) as slots, slots.one():
        waiting = threading.Thread(target=wait, args=(slots,))
        waiting.start()
        time.sleep(0.05)
        assert told == []
        slots.stop()
        waiting.join(5)
        assert told == ["the build was stopped"]


def test_two_ninjas_compile_no_more_at_once_than_the_budget(tmp_path: Path) -> None:
    ninja = shutil.which("ninja")
    assert ninja is not None

    def build(slots: Slots, name: str) -> None:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "build.ninja").write_text(NINJA)
        with slots.one():
            env = {"PATH": os.environ["PATH"], **slots.environment}
            subprocess.run([ninja, "-C", folder], env=env, check=True, capture_output=True)

    with Slots(2) as slots:
        builds = [threading.Thread(target=build, args=(slots, name)) for name in "xy"]
        for one in builds:
            one.start()
        for one in builds:
            one.join()
        assert free(slots) == 2
    running, most = 0, 0
    for line in (tmp_path / "log").read_text().split():
        running += int(line)
        most = max(most, running)
    assert most == 2
