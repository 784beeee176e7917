"""Reruns of a command that crashed: whether it crashes again, and how little of it is enough."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from wheelfab.crash.endings import Ending, Fate, ending_of
from wheelfab.crash.record import CrashedCommand, PythonFrame, Reproduced, Runner
from wheelfab.crash.shrink import script_of, shrink, statements_of
from wheelfab.crash.stack import last_words, names_of, parse_stack
from wheelfab.crash.tools import MARGIN, limited, start
from wheelfab.run import Completed

_PYTHON = re.compile(r"(?:python|pypy)[\d.]*$")
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|AUTH", re.IGNORECASE)
_TRIES = 3  # runs of the whole command before it counts as not crashing again
_PROOFS = 3  # runs of the shortest command
_MOST = 40  # reruns that look for the shortest command
_BUDGET = 2.0  # times the time limit of one run, for all of those together


@dataclass(frozen=True, kw_only=True, slots=True)
class Shortest:
    """What is left of a command that still crashes the same way."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    reproduced: Reproduced
    stack: tuple[PythonFrame, ...] = ()
    stderr: str = ""


class Reruns:
    """Runs variants of a command and compares how they end."""

    def __init__(
        self, command: CrashedCommand, ending: Ending, run: Runner, timeout: float
    ) -> None:
        self.command, self.ending, self.run, self.timeout = command, ending, run, timeout
        self.limit = max(1.0, timeout / 3) if ending.fate is Fate.HANG else timeout
        self._left = _MOST
        self._deadline = time.monotonic() + _BUDGET * timeout
        self._like: tuple[object, ...] = ()

    def shortest(self, *, whole: bool = False) -> Shortest:
        """Run the command until it crashes again, then less and less of it unless ``whole``."""
        command = self.command
        done, tries = self._again()
        if done is None:
            return Shortest(
                argv=command.argv,
                environment=command.environment,
                reproduced=Reproduced(times=0, of=tries),
            )
        self._like = self._character(done)
        hangs = self.ending.fate is Fate.HANG
        argv, environment = command.argv, dict(command.environment)
        if whole:
            pass
        elif hangs:  # each of these takes the whole time limit: all the variables, or none
            environment = {} if environment and self._still(argv, {}) else environment
        else:
            kept = shrink(
                tuple(environment),
                lambda names: self._still(argv, {name: environment[name] for name in names}),
            )
            environment = {name: environment[name] for name in kept}
            argv = self._less_script(argv, environment)
        proofs = 1 if hangs else _PROOFS
        times = sum(self._ends_so(self.once(argv, environment)) for _ in range(proofs))
        return Shortest(
            argv=argv,
            environment=environment,
            reproduced=Reproduced(times=times, of=proofs),
            stack=parse_stack(done.stderr),
            stderr=done.stderr,
        )

    def once(self, argv: Sequence[str], environment: Mapping[str, str]) -> Completed | None:
        """Run ``argv`` once; ``None`` when it cannot be started."""
        if self.ending.fate is Fate.HANG:
            done = start(limited(argv, self.limit), self.run, environment, self.limit + MARGIN)
        else:
            done = start(argv, self.run, environment, self.limit)
        return None if isinstance(done, str) else done

    def _again(self) -> tuple[Completed | None, int]:
        command = self.command
        tries = 1 if self.ending.fate is Fate.HANG else _TRIES
        for number in range(tries):
            done = self.once(speaking(command.argv), command.environment)
            if self._ends_so(done):
                return done, number + 1
        return None, tries

    def _still(self, argv: Sequence[str], environment: Mapping[str, str]) -> bool:
        if self._left <= 0 or time.monotonic() > self._deadline:
            return False
        self._left -= 1
        done = self.once(speaking(argv), environment)
        return done is not None and self._ends_so(done) and self._character(done) == self._like

    def _ends_so(self, done: Completed | None) -> bool:
        if done is None:
            return False
        return ending_of(done, limited=self.ending.fate is Fate.HANG) == self.ending

    def _character(self, done: Completed) -> tuple[object, ...]:
        """What tells one crash from another with the same signal: stack, or last words."""
        names = names_of(parse_stack(done.stderr))
        if names or self.ending.fate is not Fate.EXIT:
            return names
        return last_words(done.stderr)[-1:]

    def _less_script(
        self, argv: tuple[str, ...], environment: Mapping[str, str]
    ) -> tuple[str, ...]:
        place = script_place(argv)
        statements = statements_of(argv[place]) if place is not None else ()
        if place is None or len(statements) < 2:
            return argv

        def variant(kept: Sequence[str]) -> tuple[str, ...]:
            return (*argv[:place], script_of(kept), *argv[place + 1 :])

        kept = shrink(
            statements, lambda some: bool(some) and self._still(variant(some), environment)
        )
        return variant(kept) if 0 < len(kept) < len(statements) else argv


def is_python(argv: Sequence[str]) -> bool:
    """Whether the command is an interpreter of Python, by its name."""
    return _PYTHON.match(PurePosixPath(argv[0]).name) is not None


def speaking(argv: Sequence[str]) -> tuple[str, ...]:
    """``argv`` with faulthandler on when it is a Python."""
    return (argv[0], "-X", "faulthandler", *argv[1:]) if is_python(argv) else tuple(argv)


def script_place(argv: Sequence[str]) -> int | None:
    """Where in the command of a Python the script of its ``-c`` stands."""
    if not is_python(argv):
        return None
    for place in range(1, len(argv) - 1):
        word = argv[place]
        if word == "-c":
            return place + 1
        if not word.startswith("-") and argv[place - 1] not in ("-X", "-W"):
            return None
    return None


def command_line(shortest: Shortest, ending: Ending, limit: float) -> str:
    """A line for a shell that gives the command just its environment, and a hang its end."""
    settings = [f"{name}={value}" for name, value in without_secrets(shortest.environment).items()]
    words: tuple[str, ...] = ("env", "-i", *settings, *shortest.argv)
    if ending.fate is Fate.HANG:
        words = limited(words, limit)
    return shlex.join(words)


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """``environment`` in order, without the values of what is named like a secret."""
    return {
        name: "(hidden)" if _SECRET.search(name) else value
        for name, value in sorted(environment.items())
    }
