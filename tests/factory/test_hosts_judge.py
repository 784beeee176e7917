"""What is expected of a host for a wheel, and each way in which a visit can miss it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from packaging.version import Version

from tests.factory.cellmaker import cells
from tests.factory.hostmaker import host
from wheelfab.hosts.judge import (
    Expected,
    control_words,
    doctor_trouble,
    expected_of,
    judge_fresh,
    judge_state,
    judge_torch,
)
from wheelfab.hosts.visits import Visit
from wheelfab.run import Completed

READY = {"status": "ready", "reason": "1 device", "notes": ["a note"], "images": ["8.0", None]}
BUSY = {"status": "busy", "reason": "full"}


def visit(**values: Any) -> Visit:
    """A visit that passed, but for ``values``."""
    usual: dict[str, Any] = {
        "ending": "exit 0",
        "returncode": 0,
        "started": True,
        "complete": True,
        "stages": (("package", 0.1),),
        "began": "package",
        "error": "",
        "states": (READY,),
        "state_seconds": (0.1,),
        "forks": (),
        "forked": (),
        "forked_error": "",
        "available": None,
        "torch": None,
        "stderr": "",
        "seconds": 1.0,
    }
    return Visit(**{**usual, **values})


def expected(**values: Any) -> Expected:
    """A ready machine, but for ``values``."""
    usual: dict[str, Any] = {"status": "ready", "says": (), "images": None, "error": ()}
    return Expected(**{**usual, **values})


def test_the_expected_answer_depends_on_what_the_wheel_holds() -> None:
    there = host(
        status="ready",
        without_code="no_image",
        without_ptx="mismatch",
        says=("1 device",),
        images=("9.0+PTX",),
    )
    cpu, cuda = cells(("cpu-torch2.4", "cu121-torch2.4"))
    said = expected(says=("1 device",), images=("9.0+PTX",), limit=30.0)
    assert expected_of(there, cuda) == said
    assert expected_of(replace(there, cpu="Nehalem"), cuda) == replace(said, limit=None)
    assert expected_of(there, cpu) == expected(status="no_image", limit=30.0)
    cubins = tuple(replace(arch, ptx=False) for arch in cuda.variant.arch)
    only = replace(cuda, variant=replace(cuda.variant, arch=cubins))
    assert expected_of(there, only) == expected(status="mismatch", limit=30.0)


def test_an_error_may_be_expected_for_one_abi_only() -> None:
    there = host(status="x", error=("built for",), error_for="classic")
    classic, stable = cells(("cpu-torch2.4", "cpu-torch2.10"))
    assert expected_of(there, classic).error == ("built for",)
    assert expected_of(there, stable).error == ()


def test_a_clear_error_may_have_to_name_the_torch_that_was_found() -> None:
    there = host(status="x", error=("built for", "but torch {torch}"))
    (cell,) = cells(("cpu-torch2.4",))
    wanted = expected_of(there, cell, Version("2.13.0"))
    assert wanted.error == ("built for", "but torch 2.13.0")
    failed = {"returncode": 1, "ending": "exit 1", "complete": False}
    said = "ImportError: built for torch 2.4, but torch {} is installed"
    assert judge_torch(visit(error=said.format("2.13.0+cpu"), **failed), wanted) == ""
    trouble = judge_torch(visit(error=said.format("2.4.1"), **failed), wanted)
    assert trouble.startswith("its error does not say ['but torch 2.13.0']")


@pytest.mark.parametrize(
    ("values", "wanted", "trouble"),
    [
        ({}, {}, ""),
        ({}, {"status": ""}, ""),
        ({"states": ()}, {"status": ""}, ""),
        ({}, {"says": ("a note", "1 device")}, ""),
        ({}, {"images": ("8.0", "none")}, ""),
        ({}, {"status": "busy"}, "state 'ready', not 'busy': 1 device"),
        ({}, {"says": ("2 devices",)}, "neither reason nor notes say ['2 devices']"),
        ({}, {"images": ("8.0",)}, "images ('8.0', 'none'), not ('8.0',)"),
        ({"states": ()}, {}, "it gave 0 states, not 1"),
        ({"states": (READY, READY)}, {}, "it gave 2 states, not 1"),
        ({"states": (READY, READY)}, {"times": 2}, ""),
        ({"states": (READY, BUSY)}, {"times": 2}, "state 'busy', not 'ready': full"),
        ({"state_seconds": (0.8,)}, {"limit": 0.3}, ""),
        (
            {"states": (READY, READY), "state_seconds": (0.1, 0.81)},
            {"times": 2, "limit": 0.3},
            "the state took 0.81 s where 0.8 s is the limit",
        ),
    ],
)
def test_the_state(values: dict[str, Any], wanted: dict[str, Any], trouble: str) -> None:
    said = judge_state(visit(**values), expected(**wanted))
    assert said == trouble or (trouble and said.startswith(trouble))


@pytest.mark.parametrize(
    ("forked", "trouble"),
    [
        ([("ready", 0.1), ("ready", 0.1)], ""),
        ([("ready", 0.1)], "its forked processes gave 1 states, not 2"),
        ([("ready", 0.1), ("busy", 0.1)], "1 of 2 states of forked processes: 'busy', not 'ready'"),
        (
            [("ready", 0.1), ("ready", 31.0)],
            "in a forked process the state took 31.00 s where 30.5 s is the limit",
        ),
    ],
)
def test_the_states_of_forked_processes(forked: list[tuple[str, float]], trouble: str) -> None:
    wanted = expected(forks=2, limit=30.0)
    seen = visit(forks=(0, 0), forked=tuple(forked))
    assert judge_torch(seen, wanted) == trouble
    assert judge_torch(seen, replace(wanted, status="")) == ""


def test_devices_that_were_used_may_not_be_had_after_a_fork() -> None:
    wanted = expected(forks=1, forked="forked")
    assert judge_torch(visit(forks=(0,), forked=(("forked", 0.1),)), wanted) == ""
    assert "'ready', not 'forked'" in judge_torch(
        visit(forks=(0,), forked=(("ready", 0.1),)), wanted
    )


@pytest.mark.parametrize(
    ("code", "stdout", "stderr", "trouble"),
    [
        (0, "{}", "", ""),
        (2, "{}", "a warning", ""),
        (None, "{}", "", "timed out"),
        (-11, "{}", "", "SIGSEGV"),
        (1, "", "Traceback (most recent call last):\n  x\nKeyError: 'x'\n", "KeyError: 'x'"),
        (0, "", "", "it said nothing (exit 0)"),
    ],
)
def test_a_report_on_the_machine(code: int | None, stdout: str, stderr: str, trouble: str) -> None:
    done = Completed(argv=("x",), returncode=code, stdout=stdout, stderr=stderr, seconds=1.0)
    assert doctor_trouble(done) == trouble


@pytest.mark.parametrize(
    ("values", "trouble"),
    [
        ({"returncode": -11, "ending": "SIGSEGV", "complete": False}, "stage 'package': SIGSEGV"),
        ({"returncode": None, "ending": "timed out", "complete": False}, "timed out"),
        ({"complete": False}, "stage 'package': exit 0"),
        ({"returncode": 1, "ending": "exit 1", "error": "OSError: no"}, "OSError: no"),
        ({"returncode": -6, "ending": "SIGABRT"}, "SIGABRT"),
        ({"forks": (0, -11)}, "1 of 2 forked processes ended badly: -11"),
    ],
)
def test_a_load_that_did_not_pass(values: dict[str, Any], trouble: str) -> None:
    for judged in (judge_fresh, judge_torch):
        assert trouble in judged(visit(**values), expected())


def test_a_clear_error_must_be_there_and_say_what_is_expected() -> None:
    wanted = expected(error=("built for torch", "found"))
    failed = {"returncode": 1, "ending": "exit 1", "complete": False}
    good = visit(error="ImportError: built for torch 2.4, found 2.13", **failed)
    assert judge_torch(good, wanted) == ""
    assert "does not say ['found']" in judge_torch(
        visit(error="ImportError: built for torch 2.4", **failed), wanted
    )
    assert "passed" in judge_torch(visit(), wanted)
    died = visit(error="built for torch, found", returncode=-11, ending="SIGSEGV", complete=False)
    assert "SIGSEGV" in judge_torch(died, wanted)


def test_what_torch_alone_did() -> None:
    assert control_words(visit(available=False)) == "is_available() is False"
    dead = visit(returncode=-11, ending="SIGSEGV", complete=False, began="import")
    assert control_words(dead) == "torch dies here: SIGSEGV in its import"
    left = visit(returncode=7, ending="exit 7", complete=False, began="is_available")
    assert control_words(left) == "torch dies here: exit 7 in is_available()"
    failed = visit(returncode=1, error="ImportError: libx", complete=False)
    assert control_words(failed) == "torch fails here: stage 'package': ImportError: libx"
