"""What imports that were run say, as findings."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from pathlib import Path

from wheelfab.imports.budget import Budget
from wheelfab.imports.record import Ending, Finding, ImportRun, Level, Place, Rule, Step

_SHOWN = 5  # names of driver calls shown
_LOOK_UP = "cuGetProcAddress"


def judge_runs(
    runs: Iterable[ImportRun], files: dict[str, str], root: Path, budget: Budget | None
) -> tuple[Finding, ...]:
    """The findings of all runs; one cause that many modules import is one finding.

    ``files`` gives the file of a module, relative to ``root``.
    """
    merged: dict[tuple[Rule, str, tuple[Step, ...] | str], list[Finding]] = {}
    for done in runs:
        for finding in _judge(done, files.get(done.module, ""), root, budget):
            tail = finding.chain[-1:] or finding.module
            merged.setdefault((finding.rule, finding.text, tail), []).append(finding)
    return tuple(_first(found) for found in merged.values())


def _first(found: list[Finding]) -> Finding:
    shortest = min(found, key=lambda finding: (len(finding.chain), finding.module))
    return dataclasses.replace(shortest, reached_from=len({one.module for one in found}))


def _judge(done: ImportRun, file: str, root: Path, budget: Budget | None) -> Iterator[Finding]:
    def found(rule: Rule, text: str, why: str, next_step: str, level: Level) -> Finding:
        chain = _chain(_stack_of(rule, done), root)
        place = chain[-1].place if chain else Place(file=file, line=0, column=0)
        return Finding(
            rule=rule,
            level=level,
            module=done.module,
            place=place,
            call=f"import {done.module}",
            text=text,
            why=why,
            next_step=next_step,
            chain=chain,
        )

    error, warning = Level.ERROR, Level.WARNING
    if done.driver_calls:
        # a runtime looks hundreds of entry points up before it calls one
        calls = sorted(done.driver_calls.items(), key=lambda item: (item[0] == _LOOK_UP, -item[1]))
        text = ", ".join(f"{name} x{count}" for name, count in calls[:_SHOWN])
        why = "importing it called into the driver"
        yield found(
            Rule.DRIVER_CALLED, text, why, "follow the chain; ask later, or in a child", error
        )
    if done.devices:
        why = "importing it opened NVIDIA's device files"
        yield found(Rule.DEVICE_OPENED, ", ".join(done.devices), why, "ask later", error)
    if done.threads or done.native_threads:
        text = ", ".join(done.threads) or f"{done.native_threads} native"
        why = "a thread from import does not live on in a forked child, and may hold a lock there"
        yield found(Rule.THREAD, text, why, "start it on first use", warning)
    if done.processes:
        why = "importing it started another program"
        yield found(Rule.PROCESS, "; ".join(done.processes), why, "start it on first use", warning)
    match done.ending:
        case Ending.DIED:
            yield found(Rule.CRASHED, done.detail, "importing it ended the process", "", error)
        case Ending.HUNG:
            yield found(Rule.HUNG, done.detail, "importing it does not end", "", error)
        case Ending.RAISED:
            why = "importing it raised, on a machine without a device"
            yield found(Rule.RAISED, done.detail, why, "keep the failure until it is used", error)
    allowed = budget.of(done.module) if budget is not None else None
    if allowed is not None and done.milliseconds is not None and done.milliseconds > allowed:
        text = f"{done.milliseconds:.1f} ms of {allowed:.1f} ms"
        yield found(Rule.OVER_BUDGET, text, "over its budget", "see -X importtime", error)


def _stack_of(rule: Rule, done: ImportRun) -> tuple[str, ...]:
    if rule is Rule.DRIVER_CALLED:
        return done.driver_stack
    return done.end_stack if rule in (Rule.CRASHED, Rule.HUNG) else ()


def _chain(frames: tuple[str, ...], root: Path) -> tuple[Step, ...]:
    """The frames from the import to what was seen, names of files shortened."""
    steps = []
    for frame in frames:
        where, _, function = frame.rpartition(" in ")
        file, _, line = where.rpartition(":")
        path = Path(file)
        shown = path.relative_to(root).as_posix() if path.is_relative_to(root) else file
        place = Place(file=shown, line=int(line), column=0)
        steps.append(Step(place=place, function=function, call=""))
    return tuple(steps)
