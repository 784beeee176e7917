"""The crashes of a loop: each kind of failure investigated once, while its environment is there."""

from __future__ import annotations

import resource
import signal
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from wheelfab import console
from wheelfab.crash import CrashedCommand, investigate, write_crash
from wheelfab.errors import FactoryError
from wheelfab.loops.crew import Target, load_environment
from wheelfab.loops.judge import EXIT, Failure, Load
from wheelfab.run import Completed, run

_MOST = 5  # kinds of crash that are investigated in one run
_FORK = """import os, signal, sys
{preload}
if pid := os.fork():
    signal.signal(signal.SIGABRT, lambda *_: os.kill(pid, signal.SIGABRT))
    sys.exit(128 + os.WTERMSIG(os.waitpid(pid, 0)[1]))
{source}"""
_GONE = "the command's environment was removed with the loop: install the wheel in a new one"


def report_crashes(
    root: Path,
    target: Target,
    place: str,
    fresh: Sequence[Load],
    forked: Sequence[Load] = (),
) -> tuple[Path, ...]:
    """Investigate the loads that a signal or the time limit ended; gives the reports' paths.

    Loads that failed alike, in one stage by one signal with one stack, are investigated once.
    ``place`` says in words where they ran.
    """
    found: dict[tuple[object, ...], tuple[Failure, bool]] = {}
    for loads, forks in ((fresh, False), (forked, True)):
        for load in loads:
            failure = load.failure
            if failure is not None and (failure.signal is not None or failure.timed_out):
                stack = _functions(failure.stack)
                kind = (failure.stage, failure.signal, failure.timed_out, stack)
                found.setdefault(kind, (failure, forks))
    if len(found) > _MOST:
        console.warn(f"{len(found)} kinds of crash, of which {_MOST} are investigated")
    return tuple(
        dict.fromkeys(
            path
            for failure, forks in list(found.values())[:_MOST]
            if (path := _report(root, target, place, failure, forks=forks)) is not None
        )
    )


def _report(
    root: Path, target: Target, place: str, failure: Failure, *, forks: bool
) -> Path | None:
    console.step(f"investigating: {failure.summary}")
    script = script_of(target, failure.stage, forks=forks)
    argv = (str(target.python), "-I", "-c", script)
    with tempfile.TemporaryDirectory(prefix="wheelfab-crash-") as home:
        command = CrashedCommand(
            argv=argv,
            environment=load_environment(Path(home)),
            stage=failure.stage,
            place=f"{place}, forked" if forks else place,
        )
        first = Completed(
            argv=argv,
            returncode=None if failure.timed_out else _number(failure),
            stdout="",
            stderr=failure.stderr,
            seconds=0.0,
        )
        try:
            report = investigate(command, first, _here, timeout=target.timeout, stack=failure.stack)
            return write_crash(root, replace(report, problems=(*report.problems, _GONE)))
        except (FactoryError, OSError) as error:  # the loop's own result matters more
            console.warn(f"no report of this crash: {error}")
            return None


def script_of(target: Target, stage: str, *, forks: bool) -> str:
    """The stages up to ``stage`` as one script, in a forked process if the load was one."""
    sources = []
    for each in target.stages:
        sources.append(each.run.strip())
        if each.stage == stage != EXIT:
            break
    source = "\n".join(sources)
    return in_fork(target.preload, source) if forks else source


def in_fork(preload: str, source: str) -> str:
    """A script that runs ``source`` in a process forked after ``preload``, and ends as that did."""
    return _FORK.format(preload=preload, source=source)


def _here(argv: Sequence[str], environment: Mapping[str, str], timeout: float) -> Completed:
    """Run on this machine; what crashes on purpose leaves no core file."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    return run(argv, env=environment, timeout=timeout)


def _number(failure: Failure) -> int:
    name = failure.signal or ""
    known = signal.Signals.__members__.get(name)
    return -(known if known is not None else int(name.removeprefix("signal ")))


def _functions(stack: str) -> str:
    """The lines of a stack without the addresses of its threads."""
    return "\n".join(line for line in stack.splitlines() if line.startswith("  File "))
