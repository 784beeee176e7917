"""The child of the import loop: runs the stages of a load one after another and reports each.

Run by path under the wheel's own interpreter (Python 3.10 or later), with the standard library
only; wheelfab is never imported::

    python -I load.py PLAN REPORT [INDEX]

``PLAN`` is a JSON file written by the runner; ``REPORT`` an inherited descriptor that takes one
JSON line an event, each at most ``PIPE_BUF`` bytes so that a write is whole or absent. With
``INDEX`` this process is that load. Without, it runs the plan's preload once, forks the loads and
reports how each of them ended. A load leaves through a normal end of the interpreter, so that
finalisation is part of what is judged.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import resource
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any

PLAN_LIMIT = 1 << 20  # bytes
LINE_LIMIT = 4096  # bytes: PIPE_BUF on Linux
TEXT_LIMIT = 300  # characters of an exception's text; JSON may need 12 bytes for one
TAIL_LIMIT = 8192  # bytes of a forked load's stderr
GRACE = 1.0  # seconds between SIGABRT, which makes faulthandler speak, and SIGKILL


class Report:
    """The way to the runner: one line an event."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)  # noqa: FBT003 (its signature)
        self._descriptor = descriptor

    def send(self, event: str, load: int, **values: object) -> None:
        """Send an event of load number ``load``; ``at`` is the monotonic clock in nanoseconds."""
        record = {"event": event, "load": load, "at": time.monotonic_ns(), **values}
        line = json.dumps(record).encode() + b"\n"
        if len(line) > LINE_LIMIT:
            raise ValueError(f"event {event!r} is {len(line)} bytes long, at most {LINE_LIMIT}")
        os.write(self._descriptor, line)


def read_plan(path: str) -> dict[str, Any]:
    """The plan in ``path``; raises ``ValueError`` when it is too large or no plan."""
    with Path(path).open("rb") as file:
        data = file.read(PLAN_LIMIT + 1)
    if len(data) > PLAN_LIMIT:
        raise ValueError(f"{path}: larger than {PLAN_LIMIT} bytes")
    plan = json.loads(data)
    if not isinstance(plan, dict) or plan.get("schema") != 1:
        raise ValueError(f"{path}: not a plan of schema 1")
    return plan


def speak_up(folder: str, name: str) -> None:
    """Let a crash of this process write the stack of its threads to ``folder/NAME.stack``."""
    faulthandler.enable(Path(folder, f"{name}.stack").open("wb"))  # noqa: SIM115 (kept open)


def run_load(plan: dict[str, Any], report: Report, index: int) -> None:
    """Run all stages in one namespace; raises ``SystemExit`` when one of them raises."""
    speak_up(plan["folder"], str(index))
    report.send("start", index)
    namespace: dict[str, Any] = {"__name__": "__load__"}
    for name, source in plan["stages"]:
        started = time.perf_counter()
        try:
            exec(compile(source, f"<stage {name}>", "exec"), namespace)  # noqa: S102 (its purpose)
        except BaseException as error:  # what a stage raises is its own business
            text = f"{type(error).__name__}: {error}"[:TEXT_LIMIT]
            report.send("error", index, stage=name, error=text)
            if isinstance(error, SystemExit):
                raise
            show(error, f"<stage {name}>", source)
            raise SystemExit(1) from None
        report.send("stage", index, stage=name, seconds=time.perf_counter() - started)
    torch = getattr(sys.modules.get("torch"), "__version__", None)
    report.send("done", index, torch=None if torch is None else str(torch)[:TEXT_LIMIT])


def show(error: BaseException, name: str, source: str) -> None:
    """Print the traceback of ``error`` from the stage on, with the stage's lines."""
    import linecache  # a load that passes must not pay for it
    import traceback

    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    frames = error.__traceback__.tb_next if error.__traceback__ else None
    traceback.print_exception(type(error), error, frames)


class Forked:
    """A forked load, as the process that forked it sees it."""

    def __init__(self, index: int, pid: int, stderr: int, deadline: float) -> None:
        self.index, self.pid, self.stderr, self.deadline = index, pid, stderr, deadline
        self.pidfd = os.pidfd_open(pid)
        self.tail = b""
        self.timed_out = False
        os.set_blocking(stderr, False)

    def read(self) -> bool:
        """Take what there is of its stderr; False at the end."""
        try:
            piece = os.read(self.stderr, 1 << 16)
        except BlockingIOError:
            return True
        self.tail = (self.tail + piece)[-TAIL_LIMIT:]
        return bool(piece)

    def overdue(self) -> None:
        """Its time is over: first let it show its stack, then kill it."""
        os.kill(self.pid, signal.SIGKILL if self.timed_out else signal.SIGABRT)
        self.timed_out = True
        self.deadline = time.monotonic() + GRACE

    def end(self, folder: str) -> int:
        """Reap it and keep the end of its stderr; gives the exit code, negative for a signal."""
        _, status = os.waitpid(self.pid, 0)
        self.read()
        os.close(self.stderr)
        os.close(self.pidfd)
        if self.tail:
            Path(folder, f"{self.index}.stderr").write_bytes(self.tail)
        return os.waitstatus_to_exitcode(status)


class Nursery:
    """Forks the loads of a plan, at most ``jobs`` at a time, and reports how each ended."""

    def __init__(self, plan: dict[str, Any], report: Report) -> None:
        self.plan, self.report = plan, report
        self.running: dict[int, Forked] = {}
        self.poll = select.poll()
        self.by_descriptor: dict[int, Forked] = {}

    def run(self) -> None:
        """Fork all loads. Returns in each load when its stages are done, and here at the end."""
        speak_up(self.plan["folder"], "fork")
        preload = compile(self.plan["preload"], "<preload>", "exec")
        exec(preload, {"__name__": "__preload__"})  # noqa: S102 (its purpose)
        # The collector leaves alone what the parent has made: without this, each load at its end
        # would walk and copy all of torch's objects, 0.6 s of CPU instead of 0.25.
        gc.collect()
        gc.freeze()
        self.report.send("ready", 0)
        for index in range(self.plan["count"]):
            while len(self.running) >= self.plan["jobs"]:
                self.wait()
            if self.fork(index):
                return run_load(self.plan, self.report, index)
        while self.running:
            self.wait()
        return None

    def fork(self, index: int) -> bool:
        """Fork load number ``index``; True in the load, False here."""
        read, write = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.report.send("fork", index)
        pid = os.fork()
        if pid == 0:
            os.close(read)
            os.dup2(write, 2)
            os.close(write)
            return True
        os.close(write)
        load = Forked(index, pid, read, time.monotonic() + self.plan["timeout"])
        self.running[index] = load
        for descriptor in (load.stderr, load.pidfd):
            self.by_descriptor[descriptor] = load
            self.poll.register(descriptor, select.POLLIN)
        return False

    def wait(self) -> None:
        """Wait until some load writes, ends or is overdue."""
        first = min(load.deadline for load in self.running.values())
        pause = max(0, int((first - time.monotonic()) * 1000) + 1)
        for descriptor, _ in self.poll.poll(pause):
            load = self.by_descriptor.get(descriptor)
            if load is None:
                continue
            if descriptor == load.pidfd:
                self.finish(load)
            elif not load.read():
                self.forget(descriptor)
        for load in list(self.running.values()):
            if load.deadline <= time.monotonic():
                load.overdue()

    def finish(self, load: Forked) -> None:
        """A load has ended: report it."""
        for descriptor in (load.stderr, load.pidfd):
            self.forget(descriptor)
        del self.running[load.index]
        code = load.end(self.plan["folder"])
        self.report.send("end", load.index, returncode=code, timed_out=load.timed_out)

    def forget(self, descriptor: int) -> None:
        """Stop polling ``descriptor``."""
        if self.by_descriptor.pop(descriptor, None) is not None:
            self.poll.unregister(descriptor)


def main(arguments: list[str]) -> None:
    """Be one load, or fork them all."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    plan = read_plan(arguments[0])
    report = Report(int(arguments[1]))
    if len(arguments) > 2:
        run_load(plan, report, int(arguments[2]))
    else:
        Nursery(plan, report).run()


if __name__ == "__main__":
    main(sys.argv[1:])
