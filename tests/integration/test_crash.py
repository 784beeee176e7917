"""Planted crashes, measured by gdb and strace on reruns: each has its report, each comes again."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from wheelfab.crash import (
    CrashedCommand,
    CrashReport,
    DeviceOpen,
    Runner,
    investigate,
    rows,
    write_crash,
)
from wheelfab.run import Completed, run

SOURCES = Path(__file__).parent / "crashes"
_AGAIN = 5  # times that a shell must see the same ending

pytestmark = pytest.mark.skipif(
    shutil.which("gdb") is None or shutil.which("strace") is None, reason="needs gdb and strace"
)


def here(argv: Sequence[str], environment: Mapping[str, str], timeout: float) -> Completed:
    """The runner of this machine."""
    return run(argv, env=environment, timeout=timeout)


class Planted:
    """The planted libraries and the reports on them, each made once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.driver = self.build("driver/libcuda.so.1", "driver.cpp", "-Wl,-soname,libcuda.so.1")

    @cache  # noqa: B019 (lives as long as the tests)
    def build(self, name: str, source: str, *flags: str) -> Path:
        """A library made of one of the sources, without debug information unless asked for."""
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        argv = ["g++", "-std=c++17", "-shared", "-fPIC", "-O0", *flags, "-o", str(path)]
        subprocess.run([*argv, str(SOURCES / source), "-ldl"], check=True)
        return path

    @property
    def debug(self) -> Path:
        """The library with debug information."""
        return self.build("planted.so", "planted.cpp", "-g")

    def command(self, script: str, **environment: str) -> CrashedCommand:
        """A Python that runs ``script``."""
        return CrashedCommand(
            argv=(sys.executable, "-I", "-c", script),
            environment={"PATH": os.environ["PATH"], "HOME": str(self.folder), **environment},
            stage="load",
            place="processes",
        )

    def calling(self, function: str) -> CrashedCommand:
        """A Python that calls one of the planted functions, and does more than it needs to."""
        script = f"import json\nimport ctypes\nlib = ctypes.CDLL({str(self.debug)!r})"
        return self.command(f"{script}\nlib.{function}()", UNUSED="1")

    @cache  # noqa: B019
    def report(self, function: str) -> CrashReport:
        """The report on a planted function; a hang is given 4 s."""
        timeout = 12.0 if function == "hangs" else 60.0
        return measure(self.calling(function), timeout=timeout)


def measure(
    command: CrashedCommand, *, runner: Runner = here, timeout: float = 60.0
) -> CrashReport:
    """Let ``command`` crash and investigate."""
    first = runner(command.argv, command.environment, timeout / 3)
    return investigate(command, first, runner, timeout=timeout)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    """All planted crashes."""
    return Planted(tmp_path_factory.mktemp("planted"))


CRASHES = {
    "null_pointer": ("SIGSEGV", "SEGV_MAPERR", "0x0", 139),
    "non_canonical": ("SIGSEGV", "SI_KERNEL", "", 139),
    "read_only": ("SIGSEGV", "SEGV_ACCERR", None, 139),
    "aborts": ("SIGABRT", "SI_TKILL", "", 134),
    "throws": ("SIGABRT", "SI_TKILL", "", 134),
    "undefined_instruction": ("SIGILL", "ILL_ILLOPN", None, 132),
    "truncated_mapping": ("SIGBUS", "BUS_ADRERR", None, 135),
    "leaves": ("exit 7", "", "", 7),
    "hangs": ("timed out", "", "", 124),
}


@pytest.mark.parametrize("function", CRASHES)
def test_b47_every_ending_is_measured(planted: Planted, function: str) -> None:
    report = planted.report(function)
    name, code, address, _ = CRASHES[function]
    assert (report.signal, report.si_code) == (name, code)
    assert report.address == address or (address is None and int(report.address, 16) > 0)
    assert report.guilty is not None
    assert (report.guilty.function, report.guilty.library) == (function, "planted.so")
    assert report.signature.startswith(f"{name.lower().replace(' ', '-')}-{function}-")
    if function != "leaves":  # faulthandler is silent at an exit
        assert report.problems == ()
        assert [frame.function for frame in report.python_stack] == ["<module>"]


@pytest.mark.parametrize("function", CRASHES)
def test_row_16_one_command_reproduces_each_crash_every_time(
    planted: Planted, function: str
) -> None:
    report = planted.report(function)
    assert report.reproduced.times == report.reproduced.of
    assert "UNUSED" not in report.reproduce
    assert ("json" in report.reproduce) == (function == "hangs")  # whose tries take too long
    shell = ["sh", "-c", f"{report.reproduce}; exit $?"]
    with ThreadPoolExecutor(_AGAIN) as pool:
        again = pool.map(lambda _: run(shell, env=dict(os.environ)).returncode, range(_AGAIN))
    assert list(again) == [CRASHES[function][3]] * _AGAIN


def test_row_17_system_calls_tell_the_library_and_the_devices(planted: Planted) -> None:
    report = planted.report("asks_devices")
    assert report.device_opens == (DeviceOpen(path="/dev/nvidiactl", errno="ENOENT"),)
    assert 0 < len(report.system_calls) <= 30
    assert report.system_calls[-1].startswith("tgkill(")
    driver = str(planted.driver.parent)
    script = "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)"
    report = measure(planted.command(script, LD_LIBRARY_PATH=driver))
    assert report.last_library == str(planted.driver)
    assert str(planted.driver) in [library.path for library in report.libraries]
    assert any(library.version for library in report.libraries)


def test_row_18_file_and_line_with_debug_information(planted: Planted) -> None:
    report = planted.report("null_pointer")
    frame = report.backtrace[0]
    lines = (SOURCES / "planted.cpp").read_text(encoding="utf-8").splitlines()
    assert frame.file == str(SOURCES / "planted.cpp")
    assert frame.line is not None
    assert lines[frame.line - 1].strip() == "*nowhere = 1;"
    assert report.symbols_missing == ""


def test_row_18_it_says_where_symbols_are_missing(planted: Planted) -> None:
    library = planted.build("bare.so", "planted.cpp", "-s")
    report = measure(
        planted.command(f"import ctypes; ctypes.CDLL({str(library)!r}).null_pointer()")
    )
    assert "no file and line for bare.so" in report.symbols_missing
    assert report.guilty is not None
    assert report.guilty.function == "null_pointer"  # exported, so that its name is left
    assert report.backtrace[0].line is None


@pytest.mark.parametrize("flags", [("-g",), ("-s",)])
def test_a_constructor_that_calls_the_driver_is_named(
    planted: Planted, flags: tuple[str, ...]
) -> None:
    library = planted.build(f"constructor{flags[0]}.so", "planted.cpp", "-DCONSTRUCTOR", *flags)
    environment = {"LD_LIBRARY_PATH": str(planted.driver.parent), "UNUSED": "1"}
    command = planted.command(f"import ctypes; ctypes.CDLL({str(library)!r})", **environment)
    report = measure(command)
    assert report.guilty is not None
    assert (report.guilty.function, report.guilty.library) == ("cuInit", "libcuda.so.1")
    if flags == ("-g",):
        assert "start_the_driver in constructor-g.so" in report.guilty.called_by
    else:
        assert report.guilty.called_by.startswith("constructor-s.so+0x")
        assert "no function names either in constructor-s.so" in report.symbols_missing
    assert f"env -i LD_LIBRARY_PATH={planted.driver.parent} {sys.executable}" in report.reproduce


def test_a_library_that_kills_every_program_does_not_kill_the_tools(planted: Planted) -> None:
    library = planted.build("constructor-g.so", "planted.cpp", "-DCONSTRUCTOR", "-g")
    environment = {"LD_PRELOAD": str(library), "LD_LIBRARY_PATH": str(planted.driver.parent)}
    report = measure(planted.command("pass", **environment))
    assert report.guilty is not None
    assert report.guilty.function == "cuInit"
    assert report.system_calls


CHILDREN = {
    "forked by the library": "lib.forks()",
    "forked": "import os\nlib.null_pointer() if os.fork() == 0 else os.wait()",
    "spawned after others": (
        "import os, subprocess\nsubprocess.run(['true'])\nsubprocess.run(['true'])\n"
        "pid = os.posix_spawn(sys.executable, [sys.executable, '-c', source], os.environ)\n"
        "os.waitpid(pid, 0)"
    ),
    "grandchild": (
        "import subprocess\nsubprocess.run(['true'])\n"
        "subprocess.run(['sh', '-c', 'true; \"$0\" -c \"$1\"; exit 3', sys.executable, source])"
    ),
}


@pytest.mark.parametrize("kind", CHILDREN)
def test_a_process_that_was_started_and_dies_is_followed(planted: Planted, kind: str) -> None:
    load = f"import ctypes; lib = ctypes.CDLL({str(planted.debug)!r})"
    source = f"{load}; lib.null_pointer()"
    report = measure(planted.command(f"import sys; {load}\nsource = {source!r}\n{CHILDREN[kind]}"))
    assert (report.signal, report.si_code) == ("SIGSEGV", "SEGV_MAPERR")
    assert report.guilty is not None
    assert report.guilty.function == "null_pointer"
    assert "the command itself ended with exit 0" in report.problems[0]


def test_pythons_own_fatal_error(planted: Planted) -> None:
    script = "import ctypes; ctypes.pythonapi.Py_FatalError(b'planted')"
    report = measure(planted.command(script))
    assert report.signal == "SIGABRT"
    assert any("Fatal Python error" in line and "planted" in line for line in report.last_words)
    assert report.guilty is not None
    assert "python" in report.guilty.library


def test_an_exception_has_nobody_to_blame(planted: Planted) -> None:
    report = measure(planted.command("import json\n{}['key']"))
    assert (report.signal, report.guilty) == ("exit 1", None)
    assert report.last_words[-1] == "KeyError: 'key'"
    assert "nobody to blame: the program ended by itself" in report.problems
    assert report.reproduce.endswith(" -I -c '{}['\"'\"'key'\"'\"']'")


def without(*tools: str) -> Runner:
    """A place where ``tools`` are not installed, as a container's engine tells it."""

    def runner(argv: Sequence[str], environment: Mapping[str, str], timeout: float) -> Completed:
        if argv[0] in tools:
            return Completed(argv=tuple(argv), returncode=127, stdout="", stderr="", seconds=0.0)
        return here(argv, environment, timeout)

    return runner


def test_a_missing_tool_is_said_and_the_other_one_still_tells(planted: Planted) -> None:
    command = planted.calling("null_pointer")
    report = measure(command, runner=without("gdb"))
    assert report.problems == ("no native backtrace: gdb is not installed there",)
    assert (report.si_code, report.address) == ("SEGV_MAPERR", "0x0")
    assert str(planted.debug) in [library.path for library in report.libraries]
    report = measure(command, runner=without("strace"))
    assert report.problems == ("no system calls: strace is not installed there",)
    assert report.signature == planted.report("null_pointer").signature
    report = measure(command, runner=without("strace", "gdb"))
    assert (report.signal, report.backtrace, len(report.problems)) == ("SIGSEGV", (), 3)


def test_where_tracing_is_forbidden_it_says_so(planted: Planted) -> None:
    def traced(argv: Sequence[str], environment: Mapping[str, str], timeout: float) -> Completed:
        outer = ("strace", "-f", "-qq", "-e", "trace=none", "-e", "signal=none", "-o", "/dev/null")
        return here((*outer, *argv), environment, timeout)  # what is traced can be by nobody else

    report = measure(planted.calling("null_pointer"), runner=traced)
    assert (report.signal, report.reproduced.times) == ("SIGSEGV", 3)
    said = " ".join(report.problems)
    assert "no native backtrace: gdb did not see the end" in said
    assert "Operation not permitted" in said
    assert "strace saw no system calls" in said


def test_a_crash_that_does_not_come_again_is_reported_as_it_was_seen(planted: Planted) -> None:
    command = planted.command("pass")
    first = Completed(
        argv=command.argv, returncode=-signal.SIGSEGV, stdout="", stderr="", seconds=1.0
    )
    report = investigate(command, first, here)
    assert (report.signal, str(report.reproduced)) == ("SIGSEGV", "0 of 3")
    assert "it crashed again 0 of 3 times only" in report.problems
    assert report.guilty is None


def test_one_crash_on_many_cells_is_one_finding(planted: Planted, tmp_path: Path) -> None:
    report = planted.report("null_pointer")
    moved = tmp_path / "elsewhere" / "planted.so"
    moved.parent.mkdir()
    shutil.copy(planted.debug, moved)
    other = measure(planted.command(f"import ctypes; ctypes.CDLL({str(moved)!r}).null_pointer()"))
    paths = [
        write_crash(tmp_path, report),
        write_crash(tmp_path, replace(other, place="container debian-12")),
        write_crash(tmp_path, replace(other, place="container debian-12")),
    ]
    assert len(set(paths)) == 1
    folder = tmp_path / "build" / "crashes" / report.signature
    assert sorted(path.name for path in folder.iterdir()) == ["report.json", "report.md"]
    assert list(folder.parent.iterdir()) == [folder]
    record = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    assert record["seen_on"] == {"processes": 1, "container debian-12": 2}
    (row,) = rows(paths)
    assert row[1:3] == ("SIGSEGV SEGV_MAPERR", "null_pointer in planted.so")
    assert row[5] == "container debian-12 (2 times); processes"
    text = paths[0].read_text(encoding="utf-8")
    for part in (report.reproduce, f"{SOURCES / 'planted.cpp'}:", "SEGV_MAPERR at 0x0", "munmap("):
        assert part in text


def test_a_better_report_takes_the_place_of_a_poorer_one(planted: Planted, tmp_path: Path) -> None:
    report = planted.report("null_pointer")
    poorer: Callable[[str], CrashReport] = lambda word: replace(  # noqa: E731
        report, system_calls=(), problems=(word,), place=word
    )
    path = write_crash(tmp_path, poorer("a")).with_name("report.json")
    write_crash(tmp_path, report)
    write_crash(tmp_path, poorer("b"))
    record = json.loads(path.read_text(encoding="utf-8"))
    assert record["problems"] == []
    assert set(record["seen_on"]) == {"a", "b", "processes"}
