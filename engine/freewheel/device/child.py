"""Asks the driver in a child process, within a time limit, whatever the driver does to it."""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from freewheel.device.answer import Answer, ending
from freewheel.device.record import Asked

PROGRAM = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "_probe")
SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_ask.py")
_DESCRIPTOR = 3  # where the child finds its end of the pipe
_MAX_BYTES = 1 << 20
_SLOW = 2.0  # seconds until a warning
_GRACE = 0.3  # seconds for a killed child to be reaped
_unreaped: list[int] = []  # killed, but stuck in the kernel

_Wait = Callable[[int, int], "tuple[int, int]"]


def ask(
    environment: Mapping[str, str],
    limit: float,
    *,
    deep: bool = False,
    program: str = PROGRAM,
    python: str = sys.executable,
    wait: _Wait = os.waitpid,
) -> Answer:
    """The driver's answer, after at most ``limit`` seconds and half a second more.

    The program that comes with the wheel asks; where it cannot be started (no exec bit, noexec), a
    second Python does.
    """
    extra = ("--deep",) if deep else ()
    ways: list[tuple[Asked, tuple[str, ...]]] = [
        (Asked.PROGRAM, (program, str(_DESCRIPTOR), *extra))
    ]
    if is_python(python):
        command = (python, "-I", "-S", SCRIPT, str(_DESCRIPTOR), *extra)
        ways.append((Asked.PYTHON, command))
    problems: list[str] = []
    begun = time.monotonic()
    for how, command in ways:
        remaining = max(begun + limit - time.monotonic(), 0.0)
        try:
            answer = converse(how, command, environment, remaining, wait=wait)
        except OSError as error:
            problems.append(f"{command[0]} cannot be started: {error.strerror or error}")
            continue
        if answer.data is None and not answer.step and not answer.hung:
            problems.append(f"{command[0]} ended before it asked anything: {ending(answer)}")
            continue
        return _with(answer, problems, begun)
    return _with(Answer(how=Asked.FAILED), problems, begun)


def _with(answer: Answer, problems: Sequence[str], begun: float) -> Answer:
    return replace(answer, problems=tuple(problems), seconds=time.monotonic() - begun)


def is_python(path: str) -> bool:
    """Whether it is an interpreter: an application that embeds Python may name itself."""
    name = os.path.basename(path).lower()
    return name.startswith(("python", "pypy")) and os.access(path, os.X_OK)


def converse(
    how: Asked,
    command: Sequence[str],
    environment: Mapping[str, str],
    limit: float,
    *,
    wait: _Wait = os.waitpid,
    slow: float = _SLOW,
) -> Answer:
    """Start a process that writes its steps and one JSON object to descriptor 3; listen to it.

    After ``slow`` seconds a warning says that the driver has not answered. Raises ``OSError`` when
    the process cannot be started.
    """
    for pid in list(_unreaped):
        if _reap(pid, 0.0, wait) is not None:
            with suppress(ValueError):  # another thread was quicker
                _unreaped.remove(pid)
    reader, writer = os.pipe()
    try:
        pid = _start(command, environment, writer)
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    deadline = time.monotonic() + limit
    try:
        text, ended = _listen(reader, deadline, slow)
    except BaseException:  # an interrupt, or a handler that raises
        _finish(pid, wait, kill=True)
        raise
    finally:
        os.close(reader)
    data, step = _parse(text)
    status = _reap(pid, time.monotonic() if not ended else deadline, wait) if data is None else None
    if status is None:
        status = _finish(pid, wait, kill=data is None)
        if data is None and (status is None or os.WIFSIGNALED(status)):
            return Answer(how=how, step=step, hung=True)
    if data is not None or status is None or status < 0:
        return Answer(how=how, data=data, step=step)
    if os.WIFSIGNALED(status):
        return Answer(how=how, step=step, signal=os.WTERMSIG(status))
    return Answer(how=how, step=step, exit_code=os.WEXITSTATUS(status))


def _finish(pid: int, wait: _Wait, *, kill: bool) -> int | None:
    """Reap a child that has answered, or kill one that does not; ``None`` if it stays."""
    status = None if kill else _reap(pid, time.monotonic() + _GRACE / 2, wait)
    if status is None:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            return None
        status = _reap(pid, time.monotonic() + _GRACE, wait)
    if status is None:
        _unreaped.append(pid)
    return status


def _start(command: Sequence[str], environment: Mapping[str, str], writer: int) -> int:
    """Start the child with the pipe on its descriptor and nothing else of ours."""
    import fcntl

    # Away from the low numbers: a descriptor that is duplicated to itself would stay close-on-exec.
    high = fcntl.fcntl(writer, fcntl.F_DUPFD_CLOEXEC, 10)
    try:
        return os.posix_spawn(
            command[0],
            list(command),
            dict(environment),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_DUP2, high, _DESCRIPTOR),
            ],
            setsigmask=(),
        )
    finally:
        os.close(high)


def _listen(reader: int, deadline: float, patience: float = _SLOW) -> tuple[bytes, bool]:
    """What the child writes until its answer, its end (then ``True``) or the deadline."""
    poller = select.poll()
    poller.register(reader, select.POLLIN)
    text = b""
    slow = min(time.monotonic() + patience, deadline)
    while True:
        now = time.monotonic()
        if now >= deadline:
            return text, False
        if not poller.poll(max((slow if now < slow else deadline) - now, 0.001) * 1000):
            if slow <= time.monotonic() < deadline:
                _say_slow(text, deadline)
                slow = deadline
            continue
        chunk = os.read(reader, 1 << 16)
        text += chunk
        if not chunk or len(text) > _MAX_BYTES:
            return text, True
        if text.endswith(b"}\n") and _parse(text)[0] is not None:
            return text, True


def _say_slow(text: bytes, deadline: float) -> None:
    import logging

    logging.getLogger("freewheel.device").warning(
        "the NVIDIA driver has not answered for %.0f s (%s); waiting %.0f s more",
        _SLOW,
        _parse(text)[1] or "starting",
        deadline - time.monotonic(),
    )


def _parse(text: bytes) -> tuple[Mapping[str, Any] | None, str]:
    """The answer, if it is whole, and the last step that was begun."""
    step = ""
    data: Mapping[str, Any] | None = None
    for line in text.split(b"\n")[:-1]:
        if line.startswith(b"step "):
            step = line[5:].decode(errors="replace")
        elif line.startswith(b"{"):
            try:
                given = json.loads(line)
            except (ValueError, RecursionError):  # a library may write to any descriptor
                continue
            data = given if isinstance(given, dict) and "schema" in given else data
    return data, step


def _reap(pid: int, until: float, wait: _Wait) -> int | None:
    """The child's wait status; ``None`` while it lives; -1 where another has taken it."""
    pause = 0.0002
    while True:
        try:
            found, status = wait(pid, os.WNOHANG)
        except ChildProcessError:
            return -1  # SIGCHLD is ignored, or someone waits for all children
        if found == pid:
            return status
        if time.monotonic() >= until:
            return None
        time.sleep(pause)
        pause = min(pause * 2, 0.01)
