"""Crash reports from hosts: what died is run again in the same place, with gdb and strace there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from wheelfab import console
from wheelfab.crash import CrashedCommand, CrashReport, add_place, investigate, write_crash
from wheelfab.errors import FactoryError
from wheelfab.hosts.places import Place
from wheelfab.hosts.visits import Visit
from wheelfab.loops.crashes import in_fork
from wheelfab.run import Completed

_MOST = 3  # crashes that are investigated on one host
_TIMEOUT = 60.0
_SAYABLE = ("plain", "torch-first")  # ways of importing that a script can follow
_ALIKE = "alike, not investigated"


@dataclass(frozen=True, kw_only=True, slots=True)
class Casualty:
    """A visit that died, or a process forked from it.

    ``argv`` made the visit; ``python`` are its first words, up to the program; ``plan`` and
    ``mode`` are what it was told. ``where`` says in words where that was, ``container`` how a
    person gets into such a place.
    """

    visit: Visit
    cell: str
    argv: tuple[str, ...]
    python: tuple[str, ...]
    environment: Mapping[str, str]
    plan: Mapping[str, Any]
    mode: str
    where: str
    container: str

    @property
    def kind(self) -> tuple[object, ...]:
        """What one crash has in common with another that looks alike."""
        visit = self.visit
        frames = tuple(line for line in visit.stderr.splitlines() if line.startswith("  File "))
        signals = frozenset(code for code in visit.forks if code < 0)
        return (visit.began, visit.ending, signals, frames)


@dataclass(slots=True)
class Blame:
    """Investigates the crashes of one host, each kind once a wheel, and keeps the reports' paths.

    ``again`` brings the host up a second time, with the tools in it.
    """

    root: Path
    again: Callable[[], AbstractContextManager[Place]]
    known: dict[tuple[object, ...], str] = field(default_factory=dict)
    like: dict[tuple[object, ...], str] = field(default_factory=dict)

    def report(self, casualty: Casualty) -> str:
        """The path of the report of what died; ``""`` where there is none."""
        key = (casualty.cell, *casualty.kind)
        if key not in self.known and len(self.known) < _MOST:
            self.known[key] = self._investigate(casualty)
            self.like.setdefault(casualty.kind, self.known[key])
        elif found := self.known.get(key):
            add_place(Path(found), casualty.where)
        elif found := self.like.get(casualty.kind):
            add_place(Path(found), f"{casualty.where} ({_ALIKE})")
            return found
        return self.known.get(key, "")

    def _investigate(self, casualty: Casualty) -> str:
        console.step(f"investigating: {casualty.where}: {casualty.visit.trouble}")
        try:
            with self.again() as tools:
                report = _measured(casualty, tools)
            return str(write_crash(self.root, report))
        except (FactoryError, OSError) as error:  # the host's own result matters more
            console.warn(f"no report of this crash: {error}")
            return ""


def _measured(casualty: Casualty, tools: Place) -> CrashReport:
    """The crash of a script that does what the visit did; of the visit, if that does not crash."""
    visit = casualty.visit
    codes = [code for code in visit.forks if code < 0] if visit.fork_died else [visit.returncode]
    script = script_of(casualty)
    report = None
    if script:
        argv = (*casualty.python, "-c", script)
        report = _investigated(casualty, argv, codes[0], tools)
    if report is None or not report.reproduced.times:
        whole = _investigated(casualty, casualty.argv, visit.returncode, tools)
        gone = f"the plan {casualty.argv[-2]} was removed with the host"
        return replace(whole, problems=(*whole.problems, gone))
    gone = "the command's environment was removed with the host: install the wheel in a new one"
    return replace(report, problems=(*report.problems, f"{gone}{casualty.container}"))


def _investigated(
    casualty: Casualty, argv: tuple[str, ...], code: int | None, tools: Place
) -> CrashReport:
    visit = casualty.visit
    command = CrashedCommand(
        argv=argv,
        environment=casualty.environment,
        stage="forked" if visit.fork_died else visit.began,
        place=casualty.where,
        driver_state=visit.state,
    )
    first = Completed(
        argv=argv, returncode=code, stdout="", stderr=visit.stderr, seconds=visit.seconds
    )
    return investigate(command, first, tools.run, timeout=_TIMEOUT)


def script_of(casualty: Casualty) -> str:
    """What the visit did up to its death as one script; ``""`` where no plain script does that."""
    plan, visit = casualty.plan, casualty.visit
    if plan["way"] not in _SAYABLE:
        return ""
    torch = casualty.mode == "torch"
    stages = [(name, source) for name, source, needs in plan["stages"] if torch or not needs]
    before = [plan["before"]] if torch and plan["before"] else []
    if torch and plan["way"] == "torch-first":
        before.append("import torch")
    state = ["import os", *_states(plan)] if plan["state"] else []
    names = [name for name, _ in stages]
    if not visit.fork_died and visit.began in names:
        stages, state = stages[: names.index(visit.began) + 1], []
    parts = [*before, *(source for _, source in stages), *state]
    source = "\n".join(part.strip() for part in parts)
    if not visit.fork_died:
        return source
    return in_fork(source, "\n".join(part.strip() for part in (plan["repeat"][1], *state)))


def _states(plan: Mapping[str, Any]) -> list[str]:
    """The question for the state, after each set of variables."""
    asked = []
    for variables in plan["later"] or [{}]:
        asked += [f"os.environ.update({variables!r})"] if variables else []
        asked.append(plan["state"])
    return asked
