"""Endings, stacks and last words of a process; what of its command can be left out."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wheelfab.crash.endings import Ending, Fate, code_name, ending_of, has_address
from wheelfab.crash.record import CrashedCommand, Reproduced
from wheelfab.crash.reruns import Reruns, Shortest, command_line, script_place, speaking
from wheelfab.crash.shrink import script_of, shrink, statements_of
from wheelfab.crash.stack import last_words, parse_stack
from wheelfab.crash.tools import as_it_was, ask_for, tool_environment
from wheelfab.errors import UsageError
from wheelfab.run import Completed

DATA = Path(__file__).parent / "data" / "crash"


def done(code: int | None, stderr: str = "") -> Completed:
    """A process that ended."""
    return Completed(argv=("x",), returncode=code, stdout="", stderr=stderr, seconds=1.0)


@pytest.mark.parametrize(
    ("code", "fate", "name"),
    [
        (-11, Fate.SIGNAL, "SIGSEGV"),
        (139, Fate.SIGNAL, "SIGSEGV"),  # as a shell or a container's engine gives it
        (134, Fate.SIGNAL, "SIGABRT"),
        (7, Fate.EXIT, "exit 7"),
        (0, Fate.EXIT, "exit 0"),
        (128, Fate.EXIT, "exit 128"),
        (255, Fate.EXIT, "exit 255"),
        (124, Fate.EXIT, "exit 124"),
        (None, Fate.HANG, "timed out"),
    ],
)
def test_endings(code: int | None, fate: Fate, name: str) -> None:
    assert ending_of(done(code)) == Ending(fate=fate, name=name)


def test_under_timeout_its_exit_codes_are_a_hang() -> None:
    assert {ending_of(done(code), limited=True).fate for code in (124, 137, -9)} == {Fate.HANG}
    assert ending_of(done(139), limited=True).name == "SIGSEGV"


def test_codes_have_their_names() -> None:
    assert code_name("SIGSEGV", 1) == "SEGV_MAPERR"
    assert code_name("SIGSEGV", 128) == "SI_KERNEL"
    assert code_name("SIGBUS", 2) == "BUS_ADRERR"
    assert code_name("SIGABRT", -6) == "SI_TKILL"
    assert code_name("SIGSEGV", 99) == "si_code 99"
    assert has_address("SEGV_MAPERR")
    assert not any(map(has_address, ("SI_KERNEL", "SI_TKILL", "si_code 99", "")))


def test_the_stack_of_the_thread_that_died() -> None:
    text = """Fatal Python error: Segmentation fault

Thread 0x00007fb70f05f6c0 (most recent call first):
  File "/lib/python3.10/threading.py", line 953 in run

Current thread 0x00007fb70f9b2b80 [python] (most recent call first):
  File "/a b/x.py", line 517 in string_at
  File "<string>", line ??? in <module>

Current thread's C stack trace (most recent call first):
  Binary file "/usr/lib/libc.so.6", at +0x1234

Extension modules: numpy._core (total: 1)
"""
    assert [(f.file, f.line, f.function) for f in parse_stack(text)] == [
        ("/a b/x.py", 517, "string_at"),
        ("<string>", 0, "<module>"),
    ]
    assert last_words(f"before\n{text}after\n") == ("before", "after")
    assert parse_stack("nothing of the kind") == ()


def test_a_recorded_stack() -> None:
    text = (DATA / "stderr-driver.txt").read_text(encoding="utf-8")
    assert [frame.function for frame in parse_stack(text)] == ["__init__", "<module>"]
    assert last_words(text) == ()


def test_last_words_keep_the_names_of_fatal_errors() -> None:
    text = "terminate called\nFatal Python error: init: no encodings\nPython runtime state: core\n"
    assert last_words(text)[1] == "Fatal Python error: init: no encodings"


@given(st.text())
def test_any_stderr_is_survived(text: str) -> None:
    parse_stack(text)
    assert len(last_words(text * 3)) <= 10


@given(st.lists(st.integers(), unique=True, max_size=12), st.data())
def test_what_is_needed_stays_and_all_else_goes(items: list[int], data: st.DataObject) -> None:
    needed = data.draw(st.sets(st.sampled_from(items))) if items else set()
    left = shrink(items, lambda some: needed <= set(some))
    assert left == tuple(item for item in items if item in needed)


def test_a_script_is_its_statements() -> None:
    source = "import a\nif a:\n    b()\nx = '''one\ntwo'''"
    assert statements_of(source) == ("import a", "if a:\n    b()", "x = '''one\ntwo'''")
    assert statements_of("1 +") == ()
    assert script_of(["import a", "a.b()"]) == "import a; a.b()"
    assert script_of(["import a", "if a: b()"]) == "import a\nif a: b()"


def test_the_script_of_a_python_is_found() -> None:
    assert script_place(("/env/bin/python3.11", "-I", "-X", "dev", "-c", "pass")) == 5
    assert script_place(("python", "script.py", "-c", "x")) is None
    assert script_place(("sh", "-c", "x")) is None
    assert speaking(("python", "-c", "x")) == ("python", "-X", "faulthandler", "-c", "x")
    assert speaking(("_probe",)) == ("_probe",)


SEGFAULT = Ending(fate=Fate.SIGNAL, name="SIGSEGV")


def fake(counter: itertools.count[int], *, every: int = 1) -> Reruns:
    """Reruns of a script that dies when ``boom()`` runs and BAD is set, each ``every``-th time."""

    def run(argv: Sequence[str], environment: Mapping[str, str], _: float) -> Completed:
        dies = "boom()" in argv[-1] and "import b" in argv[-1] and "BAD" in environment
        return done(-11 if dies and next(counter) % every == 0 else 0)

    command = CrashedCommand(
        argv=("/bin/python", "-c", "import a\nimport b\nb.boom()"),
        environment={"A": "1", "BAD": "x y", "C": "2", "MY_TOKEN": "z"},
        stage="a",
        place="here",
    )
    return Reruns(command, SEGFAULT, run, 9.0)


def test_the_shortest_command_has_what_matters_only() -> None:
    shortest = fake(itertools.count()).shortest()
    assert shortest.argv == ("/bin/python", "-c", "import b; b.boom()")
    assert shortest.environment == {"BAD": "x y"}
    assert shortest.reproduced == Reproduced(times=3, of=3)
    line = command_line(shortest, SEGFAULT, 9.0)
    assert line == "env -i 'BAD=x y' /bin/python -c 'import b; b.boom()'"


STACK = """Current thread 0x1 (most recent call first):
  File "/x/{}.py", line 1 in load
"""


@pytest.mark.parametrize(
    ("code", "same", "other"),
    [
        (1, "ImportError: broken", "NameError: name 'a' is not defined"),
        (-11, STACK.format("a"), STACK.format("b")),
    ],
)
def test_another_crash_with_the_same_ending_is_not_taken_for_it(
    code: int, same: str, other: str
) -> None:
    def run(argv: Sequence[str], environment: Mapping[str, str], _: float) -> Completed:
        whole = "import a" in argv[-1] and "A" in environment
        return done(code, same if whole else other)

    command = CrashedCommand(
        argv=("/bin/python", "-c", "import json\nimport a\na.load()"),
        environment={"A": "1", "B": "2"},
        stage="a",
        place="here",
    )
    shortest = Reruns(command, ending_of(done(code)), run, 9.0).shortest()
    assert shortest.argv == ("/bin/python", "-c", "import a")
    assert shortest.environment == {"A": "1"}


def test_the_number_of_reruns_is_bounded() -> None:
    counter = itertools.count()
    reruns = fake(counter, every=10_000)
    shortest = reruns.shortest()
    assert shortest.reproduced == Reproduced(times=0, of=3)
    assert next(counter) <= 50


def test_a_crash_that_is_not_met_again_keeps_its_command() -> None:
    command = CrashedCommand(argv=("x",), environment={"A": "1"}, stage="a", place="here")
    shortest = Reruns(command, SEGFAULT, lambda *_: done(0), 9.0).shortest()
    assert (shortest.argv, shortest.environment) == (("x",), {"A": "1"})
    assert shortest.reproduced == Reproduced(times=0, of=3)


def test_secrets_are_in_no_command_line() -> None:
    nothing = Reproduced(times=1, of=1)
    shortest = Shortest(argv=("x",), environment={"HF_TOKEN": "abc"}, reproduced=nothing)
    assert "abc" not in command_line(shortest, SEGFAULT, 9.0)
    hang = command_line(shortest, Ending(fate=Fate.HANG, name="timed out"), 2.5)
    assert shlex.split(hang)[:7] == ["timeout", "--foreground", "-s", "ABRT", "-k", "2", "2.5"]


def test_a_tool_gets_nothing_that_kills_it_and_the_program_gets_all() -> None:
    environment = {"PATH": "/bin", "LD_PRELOAD": "/bad.so", "PYTHONHOME": "/x", "LC_ALL": "de"}
    assert tool_environment(environment) == {
        "PATH": "/bin",
        "LC_ALL": "C.UTF-8",
        "LANGUAGE": "C",
        "SHELL": "/bin/sh",
    }
    argv = as_it_was(("prog", "a b"), environment)
    assert argv[0] == "env"
    assert argv[-2:] == ("prog", "a b")
    assert {"LD_PRELOAD=/bad.so", "PYTHONHOME=/x", "LC_ALL=de"} <= set(argv)
    assert [argv[n + 1] for n, word in enumerate(argv) if word == "-u"] == [
        *("COLUMNS", "LANGUAGE", "LINES", "SHELL")
    ]


def test_a_missing_tool_is_a_reason() -> None:
    def missing(*_: object) -> Completed:
        raise UsageError("cannot start 'gdb'")

    assert "not installed" in ask_for("gdb", missing, {})
    assert ask_for("gdb", lambda *_: done(127), {}) == "gdb is not installed there"
    assert "exit 1" in ask_for("gdb", lambda *_: done(1, "broken"), {})
    assert ask_for("gdb", lambda *_: done(0), {}) == ""
