"""From the ending of a command to the report of its crash, by reruns in the same place."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from wheelfab.crash.blame import guilty_of, own_frames, signature_of
from wheelfab.crash.endings import Ending, Fate, ending_of
from wheelfab.crash.gdb import Stop, death, gdb_argv, parse_gdb
from wheelfab.crash.maps import site_of, version_of
from wheelfab.crash.record import CrashedCommand, CrashReport, Guilty, Library, Runner
from wheelfab.crash.reruns import Reruns, command_line, is_python, without_secrets
from wheelfab.crash.stack import last_words, parse_stack
from wheelfab.crash.strace import Trace, parse_strace, strace_argv
from wheelfab.crash.tools import (
    MARGIN,
    as_it_was,
    ask_for,
    limited,
    said,
    start,
    tool_environment,
)
from wheelfab.run import Completed

_ROUNDS = 6  # stops of a process that gdb looks at
_MOST_ROUNDS = 64  # where it started others, which are stops too
_SLOWER = 2.0  # times longer until a hang counts as one under a tool
_VERSIONS = 'getconf GNU_LIBC_VERSION; for s in "$@"; do ls -d "$s"/*.dist-info; done 2>/dev/null'


def investigate(
    command: CrashedCommand,
    first: Completed,
    run: Runner,
    *,
    timeout: float = 60.0,
    stack: str = "",
) -> CrashReport:
    """Measure the crash of ``command``, which ended as ``first``, by running it again.

    ``stack``: what faulthandler wrote, where the caller has it. ``timeout`` (seconds) holds for
    each rerun. What cannot be had (no gdb, no right to trace, no second crash) is said in the
    report's ``problems``; nothing is raised for it.
    """
    case = _Case(command, ending_of(first), run)
    reruns = Reruns(command, case.ending, run, timeout)
    limit = reruns.limit * (_SLOWER if case.ending.fate is Fate.HANG else 1.0)
    trace = case.trace(limit)
    shortest = reruns.shortest(whole=case.child_died)
    if shortest.reproduced.times < shortest.reproduced.of:
        case.problems.append(f"it crashed again {shortest.reproduced} times only")
    stop = case.stop(trace, limit)
    python = parse_stack(stack) or parse_stack(first.stderr) or shortest.stack
    if not python and is_python(command.argv):
        case.problems.append("no Python stack: faulthandler wrote none")
    words = last_words(first.stderr or shortest.stderr)
    signalled = case.ending.fate is Fate.SIGNAL
    si_code = (stop.si_code or trace.si_code) if signalled else ""
    return CrashReport(
        signature=signature_of(
            signal=case.ending.name,
            si_code=si_code,
            stage=command.stage,
            frames=stop.frames,
            stack=python,
            words=words,
        ),
        signal=case.ending.name,
        si_code=si_code,
        address=(stop.address or trace.address) if signalled else "",
        stage=command.stage,
        place=command.place,
        guilty=case.guilty(stop),
        python_stack=python,
        backtrace=stop.frames,
        symbols_missing=symbols_missing(stop),
        system_calls=trace.calls,
        last_library=trace.last_library,
        device_opens=trace.device_opens,
        libraries=case.libraries(stop.libraries or trace.libraries),
        last_words=words,
        argv=command.argv,
        environment=without_secrets(command.environment),
        driver_state=command.driver_state,
        reproduce=command_line(shortest, case.ending, reruns.limit),
        reproduced=shortest.reproduced,
        problems=tuple(case.problems),
    )


@dataclass(slots=True)
class _Case:
    """The tools at work on one crash, and what went wrong with them."""

    command: CrashedCommand
    ending: Ending
    run: Runner
    problems: list[str] = field(default_factory=list)
    child_died: bool = False

    @property
    def _signal(self) -> str:
        """The signal that ends a rerun: a hang is ended by SIGABRT, an exit by none."""
        if self.ending.fate is Fate.HANG:
            return "SIGABRT"
        return self.ending.name if self.ending.fate is Fate.SIGNAL else ""

    def trace(self, limit: float) -> Trace:
        """The system calls of a rerun under strace."""
        marker = secrets.token_hex(8)
        done = self._tool("strace", strace_argv(self._program(limit), marker), limit)
        if done is None:
            return Trace()
        trace = parse_strace(done.stdout, marker, self._signal)
        if self.ending.fate is Fate.EXIT and trace.child_signal:
            self.problems.append(
                f"the command itself ended with {self.ending.name}; "
                f"a process that it started died of {trace.child_signal}"
            )
            self.child_died = True
            self.ending = Ending(fate=Fate.SIGNAL, name=trace.child_signal)
            trace = parse_strace(done.stdout, marker, self._signal)
        if not trace.calls:
            self.problems.append(f"strace saw no system calls ({done.ending}): {said(done)}")
        return trace

    def stop(self, trace: Trace, limit: float) -> Stop:
        """Where gdb held a rerun at its death, or the process that it started and that died."""
        reason = ask_for("gdb", self.run, self.command.environment)
        if reason:
            self.problems.append(f"no native backtrace: {reason}")
            return Stop()
        done: Completed | None = None
        for path in self._paths(trace):
            marker = secrets.token_hex(8)
            argv = gdb_argv(
                self._program(limit),
                marker,
                rounds=min(_MOST_ROUNDS, _ROUNDS + (trace.forks if path else 0)),
                path=path,
                signal=self._signal,
            )
            done = self._run(argv, limit)
            stops, _ = parse_gdb(done.stdout, marker) if done is not None else ([], "")
            found = death(stops, self._signal)
            if found is not None and found.frames:
                return found
        why = said(done) if done is not None else "it did not end in time"
        self.problems.append(f"no native backtrace: gdb did not see the end: {why}")
        return Stop()

    def _paths(self, trace: Trace) -> tuple[tuple[int, ...], ...]:
        """The ways to the process that dies: known from the trace, else the likely ones."""
        if trace.calls and (trace.path or self.ending.fate is not Fate.HANG):
            return (trace.path,)
        first_child = (1,)  # of timeout, where it hangs
        return (first_child,) if self.ending.fate is Fate.HANG else ((), first_child)

    def guilty(self, stop: Stop) -> Guilty | None:
        """Whom to blame; nobody where a program ended by itself and no library called exit."""
        if self.ending.fate is Fate.EXIT and stop.frames and not own_frames(stop.frames):
            self.problems.append("nobody to blame: the program ended by itself")
            return None
        return guilty_of(stop.frames)

    def libraries(self, paths: Sequence[str]) -> tuple[Library, ...]:
        """``paths`` with the versions that their names, their wheels and the C library tell."""
        if not paths:
            self.problems.append("no mapped libraries: neither gdb nor strace listed any")
            return ()
        sites = sorted({site for path in paths if (site := site_of(path)) is not None})
        environment = tool_environment(self.command.environment)
        done = start(("sh", "-c", _VERSIONS, "sh", *sites), self.run, environment, MARGIN)
        lines = [] if isinstance(done, str) else done.stdout.splitlines()
        libc = next((line.split()[-1] for line in lines if line.startswith("glibc ")), "")
        return tuple(Library(path=path, version=version_of(path, lines, libc)) for path in paths)

    def _program(self, limit: float) -> tuple[str, ...]:
        again = as_it_was(self.command.argv, self.command.environment)
        return limited(again, limit) if self.ending.fate is Fate.HANG else again

    def _tool(self, name: str, argv: Sequence[str], limit: float) -> Completed | None:
        reason = ask_for(name, self.run, self.command.environment)
        if reason:
            self.problems.append(f"no system calls: {reason}")
            return None
        done = self._run(argv, limit)
        if done is None or done.returncode is None:
            self.problems.append(f"no system calls: {name} did not end in {limit + MARGIN:.0f} s")
            return None
        return done

    def _run(self, argv: Sequence[str], limit: float) -> Completed | None:
        environment = tool_environment(self.command.environment)
        done = start(argv, self.run, environment, limit + MARGIN)
        return None if isinstance(done, str) else done


def symbols_missing(stop: Stop) -> str:
    """Which libraries of the stack, but for the system's and Python's own, tell no source lines."""
    bare = [frame for frame in own_frames(stop.frames) if not frame.file]
    names = sorted({PurePosixPath(frame.library).name for frame in bare} - {""})
    if not names:
        return ""
    stripped = sorted(
        {PurePosixPath(frame.library).name for frame in bare if frame.name != frame.function} - {""}
    )
    text = f"no file and line for {', '.join(names)}: built without debug information"
    if stripped:
        text += f"; no function names either in {', '.join(stripped)}"
    return text + "; a wheel's debug twin (build with --debug) has both"
