"""A failed step is called what it is, whatever the compiler printed around it."""

from __future__ import annotations

from pathlib import Path

import pytest

from wheelfab.diagnosis import NoMemoryError, failure
from wheelfab.errors import BuildError, InfrastructureError
from wheelfab.plan import Action, ActionKind
from wheelfab.run import Completed

ACTION = Action(
    id="torch:torch2.4",
    kind=ActionKind.PART,
    steps=(),
    needs=(),
    cells=("cu118-torch2.4", "cu121-torch2.4"),
    inputs={},
    identity={},
)


def ended(returncode: int | None, stderr: str) -> Completed:
    """A compiler that ended so."""
    return Completed(argv=("g++",), returncode=returncode, stdout="", stderr=stderr, seconds=1.0)


@pytest.mark.parametrize(
    ("returncode", "stderr", "kind", "text"),
    [
        (-9, "", NoMemoryError, "out of memory"),
        (
            1,
            "g++: fatal error: Killed signal terminated program cc1plus",
            NoMemoryError,
            "out of memory",
        ),
        (
            1,
            "virtual memory exhausted: Cannot allocate memory",
            NoMemoryError,
            "out of memory",
        ),
        (
            1,
            "fatal error: error writing to /x.s: No space left on device",
            InfrastructureError,
            "disk full",
        ),
        (
            2,
            "a.cpp:1:2: note: x\na.cpp:3:4: error: no y\nb.cpp:9: error: z",
            BuildError,
            "exit 2: a.cpp:3:4: error: no y",
        ),
        (1, "ld: a.o: undefined reference to `f'", BuildError, "undefined reference to `f'"),
        (None, "", BuildError, "timed out"),
        (-11, "", BuildError, "SIGSEGV"),
    ],
)
def test_memory_disk_and_code_are_told_apart(
    returncode: int | None, stderr: str, kind: type[Exception], text: str
) -> None:
    error = failure(ACTION, ended(returncode, stderr), Path("build/logs/x.log"))
    assert type(error) is kind
    assert text in str(error)
    assert str(error).startswith("torch:torch2.4 (cu118-torch2.4, cu121-torch2.4): ")
    assert str(error).endswith("log: build/logs/x.log")
