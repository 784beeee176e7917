"""Row 41: a driver does not survive a fork. Children that are forked, and that are spawned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import freewheel
from tests.installed.machine import start

IN_CHILD = """
import json, os
def in_child(work):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = work()
        except BaseException as error:
            answer = repr(error)
        os.write(write, json.dumps(answer).encode())
        os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    return json.loads(os.read(read, 1 << 16))
"""
STATE = """
from freewheel import device
def state():
    found = device.state()
    return [found.status, found.reason, device.device_count(), found.next_step, found.fallback]
"""
USE = "import ctypes\nassert ctypes.CDLL('libcuda.so.1').cuInit(0) == 0\n"


def run(driver: Path, code: str, **settings: str) -> Any:
    """What ``code`` leaves in ``result``."""
    done = start(f"{IN_CHILD}{STATE}{code}\nprint(json.dumps(result))", driver, **settings)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_fork_asks_anew(driver: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = "result = [state()[0], state()[0], in_child(state)[0], in_child(state)[0]]"
    assert run(driver, code, FAKECUDA_LOG=str(log)) == ["ready"] * 4
    assert log.read_text(encoding="utf-8").count(" cuInit\n") == 3


def test_row_41_cuda_used_before_the_fork(driver: Path) -> None:
    code = f"before = state()\n{USE}result = [before, in_child(state), state(), os.getpid()]"
    before, child, after, parent = run(driver, code)
    assert before[0] == after[0] == "ready"
    status, reason, count, step, fallback = child
    assert (status, count, fallback) == ("forked", 0, "fail")
    assert reason.startswith(f"CUDA was first used in process {parent} before it forked process ")
    assert "start workers with spawn" in step


def test_row_41_a_grandchild_is_told_the_same(driver: Path) -> None:
    code = f"state()\n{USE}result = [in_child(lambda: in_child(state)), os.getpid()]"
    child, parent = run(driver, code)
    assert child[0] == "forked"
    assert f"process {parent} " in child[1]


def test_row_41_cuda_used_after_the_fork_is_the_childs_own(driver: Path) -> None:
    code = (
        "def use():\n"
        f"    {USE.replace(chr(10), chr(10) + '    ')}\n"
        "    return state()[0]\n"
        "state()\nresult = [in_child(use), in_child(state)[0]]"
    )
    assert run(driver, code) == ["ready", "ready"]


SPAWN = """
import multiprocessing, os, sys
import freewheel
from freewheel import device

def work(queue):
    try:
        freewheel.warm_up(0)
        queue.put([device.state().status.value, "", os.getpid()])
    except Exception as error:
        queue.put([device.state().status.value, str(error), os.getpid()])

def told(method):
    context = multiprocessing.get_context(method)
    queue = context.SimpleQueue()
    process = context.Process(target=work, args=(queue,))
    process.start()
    answer = queue.get()
    process.join()
    return answer

if __name__ == "__main__":
    import json, warnings
    warnings.simplefilter("ignore")  # of torch, about forks of threaded processes
    freewheel.warm_up(0)
    print(json.dumps([told("fork"), told("spawn"), os.getpid()]))
"""


def test_row_41_operations_say_it_too_and_spawn_works(driver: Path, tmp_path: Path) -> None:
    """Nobody asked for a state before: freewheel's own driver knows."""
    if freewheel.build()["cuda"] is None:
        pytest.skip("a wheel for the CPU opens no driver")
    program = tmp_path / "program.py"
    program.write_text(SPAWN, encoding="utf-8")
    code = f"import runpy, sys\nsys.argv = [{str(program)!r}]\n"
    done = start(f"{code}runpy.run_path({str(program)!r}, run_name='__main__')", driver)
    assert done.returncode == 0, done.stderr
    forked, spawned, parent = json.loads(done.stdout)
    status, error, child = forked
    assert status == "forked"
    assert f"CUDA was used in process {parent} before it forked process {child}" in error
    assert "start workers with the spawn method" in error
    assert spawned[:2] == ["ready", ""]
