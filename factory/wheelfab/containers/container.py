"""A running container, and the commands that run in it side by side."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from docker import DockerClient

from wheelfab.containers.failing import FAILED
from wheelfab.containers.options import KEEPER
from wheelfab.containers.stream import (
    Demultiplexer,
    Ending,
    Kind,
    engine_returncode,
    receive,
)
from wheelfab.errors import HarnessError, UsageError
from wheelfab.run import Completed

_MARGIN = 10.0  # seconds over its time limit that a command may take to be killed
_NOT_STARTED = (126, 127)  # the runtime's codes: the user, the folder or the keeper is not there
_NO_PROGRAM = (errno.ENOENT, errno.EACCES, errno.ENOEXEC, errno.ENOTDIR, errno.ELOOP)


class Container:
    """A container that runs; several threads may run commands in it at once."""

    def __init__(self, client: DockerClient, identifier: str) -> None:
        self._api = client.api
        self.id = identifier

    def run(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        timeout: float = 60.0,
        user: str | None = None,
        cwd: str | PurePath | None = None,
    ) -> Completed:
        """Run ``argv`` to its end and return how it went; a failure is returned, never raised.

        It leads a session of its own. Past ``timeout`` seconds it gets SIGABRT, a second later all
        its descendants get SIGKILL; so do those that it leaves behind when it ends by itself. The
        last 8 MiB of each stream are kept. ``seconds`` are the program's own, without the engine's.
        ``env`` comes on top of the container's; ``user`` None is the container's.

        Raises ``UsageError`` when there is no such program, ``HarnessError`` when the container or
        the engine cannot run any.
        """
        started = time.monotonic()
        try:
            execution = self._create(argv, env or {}, timeout, user, cwd)
            output, at_end = self._listen(execution, timeout + _MARGIN)
            ending = output.ending()
            code = self._engine_code(execution) if at_end and ending is None else None
        except FAILED as error:
            raise HarnessError(
                f"cannot run {argv[0]!r}: {reason(error)}",
                where=f"container {self.id[:12]}",
                next_step="see whether the engine runs and its disk has room",
            ) from error
        if code in _NOT_STARTED:
            raise HarnessError(
                f"cannot run {argv[0]!r}: {output.stdout.text() or output.stderr.text()}".strip(),
                where=f"container {self.id[:12]}",
            )
        return Completed(
            argv=tuple(argv),
            returncode=_returncode(argv[0], ending) if ending else engine_returncode(code),
            stdout=output.stdout.text(),
            stderr=output.stderr.text(),
            seconds=ending.seconds if ending else time.monotonic() - started,
        )

    def _create(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        timeout: float,
        user: str | None,
        cwd: str | PurePath | None,
    ) -> str:
        created: dict[str, Any] = self._api.exec_create(
            self.id,
            [KEEPER, "run", f"{timeout:.3f}", *argv],
            environment=[f"{name}={value}" for name, value in env.items()],
            user=user or "",
            workdir=None if cwd is None else str(cwd),
        )
        return str(created["Id"])

    def _listen(self, execution: str, timeout: float) -> tuple[Demultiplexer, bool]:
        """What the command prints, and whether that came to its end."""
        output = Demultiplexer()
        socket = self._api.exec_start(execution, socket=True)
        try:
            return output, receive(socket, output, timeout=timeout)
        finally:
            socket._response.close()  # noqa: SLF001 (the SDK keeps the connection there)
            socket.close()

    def _engine_code(self, execution: str) -> int | None:
        code = self._api.exec_inspect(execution)["ExitCode"]
        return None if code is None else int(code)


def reason(error: Exception) -> str:
    """Why, in the engine's own words where it gave some."""
    return str(getattr(error, "explanation", None) or error)


def _returncode(program: str, ending: Ending) -> int | None:
    """As Popen tells it, None for a time-out; raises when the program did not start."""
    if ending.kind is not Kind.ERRNO:
        return ending.returncode
    what = f"cannot start {program!r}: {os.strerror(ending.number)}"
    if ending.number in _NO_PROGRAM:
        raise UsageError(what, next_step="give a program that the image has")
    raise HarnessError(what)
