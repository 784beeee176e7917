"""The loop in real processes: every way in which a load can end gets exactly its verdict."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.factory.wheelmaker import make_wheel
from wheelfab.errors import HarnessError, WheelError
from wheelfab.loops.crashes import report_crashes
from wheelfab.loops.crew import Target
from wheelfab.loops.environment import Environment, clean_environment, make_environment
from wheelfab.loops.interpreter import Interpreter, ask, find_interpreter
from wheelfab.loops.judge import Failure, Load
from wheelfab.loops.runner import run_forked, run_fresh
from wheelfab.loops.stubs import Stub, make_stubs
from wheelfab.model import LoadStage
from wheelfab.store import Store
from wheelfab.wheel import read_wheel

Loop = Callable[[Target, int, int], tuple[Load, ...]]

NATIVE = """
#include <cstdlib>
extern "C" int tiny_add(int a, int b) { return a + b; }
static bool armed = false;
extern "C" void tiny_arm() { armed = true; }
struct AtExit { ~AtExit() { if (armed) std::abort(); } };
static AtExit at_exit;
extern "C" void tiny_null() { int* volatile nowhere = nullptr; *nowhere = 1; }
"""
PACKAGE = """
import ctypes, pathlib
native = ctypes.CDLL(str(pathlib.Path(__file__).with_name("native.so")))
"""


def stages(*sources: str) -> tuple[LoadStage, ...]:
    """Stages named a, b, c and so on."""
    return tuple(
        LoadStage(stage=name, run=source, needs_torch=False)
        for name, source in zip("abcdefgh", sources, strict=False)
    )


@pytest.fixture(scope="module")
def interpreter() -> Interpreter:
    """The Python that runs the tests."""
    found = ask(Path(sys.executable))
    assert found is not None
    return found


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, interpreter: Interpreter) -> Environment:
    """An environment with a small package that has a library, installed by pip."""
    folder = tmp_path_factory.mktemp("loops")
    source, library = folder / "native.cpp", folder / "native.so"
    source.write_text(NATIVE)
    compiler = shutil.which("g++")
    assert compiler is not None
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    wheel = make_wheel(
        folder / "dist",
        name="tinyload",
        version="1.0",
        tag="py3-none-linux_x86_64",
        requires_dist=(),
        files={
            "tinyload/__init__.py": PACKAGE.encode(),
            "tinyload/native.so": library.read_bytes(),
        },
    )
    return make_environment(folder / "env", read_wheel(wheel), None, interpreter)


@pytest.fixture(params=[run_fresh, run_forked])
def loop(request: pytest.FixtureRequest) -> Loop:
    """Both kinds of loop."""
    found: Loop = request.param
    return found


def test_loads_that_work_pass(environment: Environment, loop: Loop) -> None:
    what = stages("import tinyload", "assert tinyload.native.tiny_add(3, 4) == 7")
    loads = loop(Target(python=environment.python, stages=what), 5, 2)
    assert [load.load for load in loads] == [0, 1, 2, 3, 4]
    assert all(load.passed for load in loads)
    assert list(loads[0].stages) == ["start", "a", "b", "exit"]
    assert sum(loads[0].stages.values()) == pytest.approx(loads[0].total, rel=0.5)


def test_torch_is_imported_once_before_forking(environment: Environment, tmp_path: Path) -> None:
    packages = next((environment.root / "lib").glob("python3*/site-packages"))
    log = tmp_path / "imports"
    (packages / "torch.py").write_text(
        f"__version__ = '1.2+fake'\nopen({str(log)!r}, 'a').write('x')\n"
    )
    what = (LoadStage(stage="torch", run="import torch", needs_torch=True),)
    try:
        loads = run_forked(Target(python=environment.python, stages=what), 4, 2)
        assert [load.torch for load in loads] == ["1.2+fake"] * 4
        assert log.read_text() == "x"
        run_fresh(Target(python=environment.python, stages=what), 3, 2)
        assert log.read_text() == "xxxx"
    finally:
        (packages / "torch.py").unlink()


ENDINGS = {
    "segfault": ("import ctypes; ctypes.string_at(0)", "b", "SIGSEGV", None, None),
    "abort": ("import os; os.abort()", "b", "SIGABRT", None, None),
    "killed": ("import os, signal; os.kill(os.getpid(), 9)", "b", "SIGKILL", None, None),
    "exits 3": ("import sys; sys.exit(3)", "b", None, 3, "SystemExit: 3"),
    "exits 0": ("import sys; sys.exit(0)", "b", None, 0, "SystemExit: 0"),
    "leaves": (
        "import os; os._exit(0)",
        "b",
        None,
        0,
        "the process ended before the stage was done",
    ),
    "raises": ("1 / 0", "b", None, 1, "ZeroDivisionError: division by zero"),
    "no syntax": ("1 +", "b", None, 1, "SyntaxError: invalid syntax (<stage b>, line 1)"),
    "wrong": ("assert tinyload.native.tiny_add(3, 4) == 8", "b", None, 1, "AssertionError: "),
    "library": ("tinyload.native.tiny_arm()", "exit", "SIGABRT", None, None),
    "atexit": ("import atexit, os; atexit.register(os._exit, 5)", "exit", None, 5, None),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_every_ending_has_its_verdict(environment: Environment, loop: Loop, name: str) -> None:
    source, stage, signal_, code, error = ENDINGS[name]
    target = Target(python=environment.python, stages=stages("import tinyload", source))
    for load in loop(target, 2, 2):
        assert load.failure is not None
        found = load.failure
        assert (found.stage, found.signal, found.exit_code, found.error, found.timed_out) == (
            *(stage, signal_, code, error),
            False,
        )


def only_failure(loads: tuple[Load, ...]) -> Failure:
    """The failure of a loop of one load."""
    (load,) = loads
    assert load.failure is not None
    return load.failure


def test_a_crash_leaves_its_stack_and_an_exception_its_line(
    environment: Environment, loop: Loop
) -> None:
    crash = stages("import ctypes", "def deep(): ctypes.string_at(0)\ndeep()")
    failure = only_failure(loop(Target(python=environment.python, stages=crash), 1, 1))
    assert 'File "<stage b>", line 1 in deep' in failure.stack
    raising = stages("import sys; sys.stderr.write('last words\\n')\nraise KeyError('key')")
    failure = only_failure(loop(Target(python=environment.python, stages=raising), 1, 1))
    assert "last words" in failure.stderr
    assert "raise KeyError('key')" in failure.stderr


@pytest.mark.parametrize(
    ("source", "stage"),
    [
        ("import time; time.sleep(600)", "a"),
        (
            "import threading, time\nthreading.Thread(target=time.sleep, args=(600,)).start()",
            "exit",
        ),
        ("import signal, time\nsignal.pthread_sigmask(0, [6])\nwhile True: time.sleep(9)", "a"),
    ],
)
def test_a_load_that_hangs_is_ended_and_shows_its_stack(
    environment: Environment, loop: Loop, source: str, stage: str
) -> None:
    target = Target(python=environment.python, stages=stages(source), timeout=0.6)
    began = time.monotonic()
    failure = only_failure(loop(target, 1, 1))
    assert time.monotonic() - began < 10
    assert (failure.stage, failure.timed_out) == (stage, True)
    assert failure.summary == f"load 0: stage {stage!r}: timed out"
    if failure.signal == "SIGABRT":
        assert "most recent call first" in failure.stack


def test_what_a_load_prints_or_leaves_behind_does_not_matter(
    environment: Environment, loop: Loop, tmp_path: Path
) -> None:
    child = tmp_path / "child"
    source = (
        "import subprocess, sys\n"
        'print(\'{"event": "done"}\' * 20000, flush=True)\n'
        "sys.stderr.write('e' * 300000)\n"
        "sys.stderr.flush()\n"
        "left = subprocess.Popen(['sleep', '600'])\n"
        f"open({str(child)!r}, 'w').write(str(left.pid))\n"
        "left.returncode = 0\n"
    )
    (load,) = loop(Target(python=environment.python, stages=stages(source)), 1, 1)
    assert load.passed
    assert gone(int(child.read_text()))


def gone(pid: int) -> bool:
    """Whether the process ends within a moment; a zombie has ended."""
    for _ in range(100):
        try:
            status = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return True
        if status.rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.02)
    return False


CRASHES = {
    "fresh": (
        (
            "import tinyload",
            "import json\ntinyload.native.tiny_null()",
            "tinyload.native.tiny_arm()",
        ),
        ("SIGSEGV", "tiny_null", "b"),
    ),
    "at the end": (
        ("import tinyload", "tinyload.native.tiny_arm()"),
        ("SIGABRT", "AtExit::~AtExit()", "exit"),
    ),
}


@pytest.mark.skipif(not shutil.which("gdb"), reason="needs gdb")
@pytest.mark.parametrize("kind", CRASHES)
def test_row_16_a_crash_of_a_load_is_investigated_once(
    environment: Environment, loop: Loop, tmp_path: Path, kind: str
) -> None:
    sources, (signal_, function, stage) = CRASHES[kind]
    target = Target(python=environment.python, stages=stages(*sources), timeout=60.0)
    loads = loop(target, 3, 2)
    fresh, forked = (loads, ()) if loop is run_fresh else ((), loads)
    (path,) = report_crashes(tmp_path, target, "tinyload", fresh, forked)
    record = json.loads(path.with_name("report.json").read_text(encoding="utf-8"))
    assert (record["signal"], record["stage"]) == (signal_, stage)
    assert (record["guilty"]["function"], record["guilty"]["library"]) == (function, "native.so")
    assert list(record["seen_on"].values()) == [1]
    assert record["reproduced"] == {"times": 3, "of": 3}
    if loop is run_fresh and kind == "fresh":
        code = record["reproduce"].partition(" -c ")[2]
        assert code == "'import tinyload; tinyload.native.tiny_null()'"


def test_a_load_that_raises_is_no_crash(environment: Environment, tmp_path: Path) -> None:
    target = Target(python=environment.python, stages=stages("1 / 0"))
    assert report_crashes(tmp_path, target, "here", run_fresh(target, 1, 1)) == ()
    assert list(tmp_path.iterdir()) == []


GARBAGE = """
import os
for descriptor in range(3, 64):
    try:
        os.write(descriptor, b"garbage\\n")
    except OSError:
        pass
"""


def test_garbage_in_the_report_is_an_error_of_the_harness(
    environment: Environment, loop: Loop
) -> None:
    with pytest.raises(HarnessError, match="no event"):
        loop(Target(python=environment.python, stages=stages(GARBAGE)), 1, 1)


def test_a_load_that_closes_its_report_has_not_passed(environment: Environment, loop: Loop) -> None:
    source = "import os; os.closerange(3, 64)"
    failure = only_failure(loop(Target(python=environment.python, stages=stages(source)), 1, 1))
    assert (failure.stage, failure.exit_code) == ("a", 1)


def test_the_death_of_the_forking_process_is_an_error_of_the_harness(
    environment: Environment,
) -> None:
    source = "import os; os.kill(os.getppid(), 9)"
    with pytest.raises(HarnessError, match=r"forks the loads ended \(SIGKILL\) after 0 of 3"):
        run_forked(Target(python=environment.python, stages=stages(source)), 3, 1)


def test_a_missing_interpreter_or_child_is_an_error_of_the_harness(
    environment: Environment, loop: Loop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(HarnessError, match="no interpreter there"):
        loop(Target(python=tmp_path / "python", stages=stages("pass")), 1, 1)
    broken = tmp_path / "python"
    broken.write_text("not a program")
    broken.chmod(0o755)
    with pytest.raises(HarnessError, match="cannot start a load"):
        loop(Target(python=broken, stages=stages("pass")), 1, 1)
    child = tmp_path / "load.py"
    child.write_text("raise SystemExit('no child')")
    monkeypatch.setattr("wheelfab.loops.crew.CHILD", child)
    with pytest.raises(HarnessError, match="no child"):
        loop(Target(python=environment.python, stages=stages("pass")), 1, 1)


def test_an_interrupt_ends_every_load(environment: Environment, tmp_path: Path) -> None:
    source = (
        "import os, pathlib, time\n"
        f"pathlib.Path({str(tmp_path)!r}, str(os.getpid())).touch()\n"
        "time.sleep(600)"
    )
    timer = threading.Timer(1.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        run_fresh(Target(python=environment.python, stages=stages(source)), 4, 2)
    timer.join()
    pids = [int(path.name) for path in tmp_path.iterdir()]
    assert len(pids) == 2
    assert all(gone(pid) for pid in pids)


def test_nothing_of_our_environment_reaches_a_load(
    environment: Environment, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    monkeypatch.setenv("LD_PRELOAD", "")
    monkeypatch.setenv("TORCH_LOGS", "all")
    source = (
        "import os, resource, sys\n"
        "assert not {'PYTHONPATH', 'LD_PRELOAD', 'TORCH_LOGS'} & set(os.environ), os.environ\n"
        "assert '/nowhere' not in sys.path and '' not in sys.path\n"
        "assert os.environ['OMP_NUM_THREADS'] == '1'\n"
        "assert resource.getrlimit(resource.RLIMIT_CORE) == (0, 0)\n"
    )
    (load,) = loop(Target(python=environment.python, stages=stages(source)), 1, 1)
    assert load.failure is None


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store."""
    return Store(tmp_path / "store")


def test_a_clean_environment_is_removed_and_an_abandoned_one_too(
    store: Store, tmp_path: Path, interpreter: Interpreter
) -> None:
    wheel = read_wheel(make_wheel(tmp_path, name="tiny", tag="py3-none-any", requires_dist=()))
    abandoned = store.root / ".loops" / "env-dead"
    abandoned.mkdir(parents=True)
    (store.root / ".loops" / ".env-dead.lock").touch()
    with clean_environment(store, wheel, None, interpreter) as found:
        assert found.version("tiny") == wheel.version
        assert found.version("pip") is None
    assert list((store.root / ".loops").iterdir()) == []


def test_a_wheel_whose_requirements_are_not_met_is_refused(
    store: Store, tmp_path: Path, interpreter: Interpreter
) -> None:
    wheel = read_wheel(make_wheel(tmp_path, tag="py3-none-any", requires_dist=("torch>=2.10",)))
    with (
        pytest.raises(WheelError, match=r"torch>=2.10 \(not installed\)"),
        clean_environment(store, wheel, None, interpreter),
    ):
        pass


def test_a_wheel_for_another_platform_is_refused_by_pip(
    store: Store, tmp_path: Path, interpreter: Interpreter
) -> None:
    tag = "cp310-abi3-macosx_11_0_arm64"
    wheel = read_wheel(make_wheel(tmp_path, tag=tag, requires_dist=()))
    with (
        pytest.raises(WheelError, match="not a supported wheel"),
        clean_environment(store, wheel, None, interpreter),
    ):
        pass


def test_a_python_that_does_not_work_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from packaging.version import Version

    shim = tmp_path / "python3.99"
    shim.write_text("#!/bin/sh\necho 'not installed' >&2\nexit 127\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert find_interpreter([Version("3.99")]) is None
    running = Version(f"{sys.version_info.major}.{sys.version_info.minor}")
    found = find_interpreter([Version("3.99"), running])
    assert found is not None
    assert found.path == Path(sys.executable)


def test_a_stand_in_library_has_its_soname_symbols_and_versions(tmp_path: Path) -> None:
    stub = Stub(
        soname="libcudart.so.13",
        symbols={"": ("ncclSend",), "libcudart.so.13": ("cudaFree", "cudaGetErrorString")},
    )
    work = tmp_path / "work"
    work.mkdir()
    make_stubs([stub, Stub(soname="libnccl.so.2", symbols={})], tmp_path, work)
    code = (
        "import ctypes; lib = ctypes.CDLL('./libcudart.so.13')\n"
        "assert lib.cudaFree() == lib.ncclSend() == 100\n"
        "lib.cudaGetErrorString.restype = ctypes.c_char_p\n"
        "assert lib.cudaGetErrorString(100) == b'a stand-in library'\n"
        "ctypes.CDLL('./libnccl.so.2')\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    from wheelfab.elf import read_elf

    elf = read_elf(tmp_path / "libcudart.so.13")
    assert elf.soname == "libcudart.so.13"
    exported = {symbol.name: symbol.version for symbol in elf.defined}
    assert exported["cudaFree"] == "libcudart.so.13"
    assert exported["ncclSend"] is None
    assert "wheelfab_no_device" not in exported
