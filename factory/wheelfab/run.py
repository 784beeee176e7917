"""The only door to processes: argv tuples, an environment made on purpose, a time limit, a log."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wheelfab.errors import FactoryError, UsageError

_live: set[subprocess.Popen[str]] = set()
_live_lock = threading.Lock()
_TAIL = 4000  # characters of output kept in an error
_FETCH_PREFIXES = ("PIP_", "UV_", "SSL_", "REQUESTS_", "CURL_")
_FETCH_NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")


@dataclass(frozen=True, kw_only=True, slots=True)
class Completed:
    """A process that ended. ``returncode`` is negative for a signal, ``None`` for a time-out."""

    argv: tuple[str, ...]
    returncode: int | None
    stdout: str
    stderr: str
    seconds: float

    @property
    def ok(self) -> bool:
        """Exit code 0."""
        return self.returncode == 0

    @property
    def ending(self) -> str:
        """How it ended, in words: ``exit 1``, ``SIGSEGV``, ``timed out``."""
        if self.returncode is None:
            return "timed out"
        if self.returncode >= 0:
            return f"exit {self.returncode}"
        try:
            return signal.Signals(-self.returncode).name
        except ValueError:
            return f"signal {-self.returncode}"


def tool_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a build tool: nothing inherited but where programs, home and temp lie.

    An inherited ``TORCH_CUDA_ARCH_LIST``, ``CUDAARCHS``, ``CFLAGS``, ``CXXFLAGS`` or ``NVCC_*``
    therefore changes nothing; what a plan wants set is given in ``extra``.
    """
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return {**kept, "LC_ALL": "C.UTF-8", "TZ": "UTC", "PYTHONDONTWRITEBYTECODE": "1"} | dict(
        extra or {}
    )


def fetch_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a download: a tool's, and the user's own index, proxy and certificates."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in _FETCH_NAMES or name.startswith(_FETCH_PREFIXES)
    }
    return tool_environment({**kept, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **dict(extra or {})})


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    timeout: float | None = None,
    log: Path | None = None,
) -> Completed:
    """Run ``argv`` to its end and return how it went; a failure is returned, never raised.

    With ``log``, the command line and everything printed are appended to that file. A process that
    outlives ``timeout`` (seconds) is killed with its whole group, as it is when we are interrupted.

    Raises ``UsageError`` when the program does not exist.
    """
    started = time.monotonic()
    try:
        process = subprocess.Popen(
            list(argv),
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise UsageError(
            f"cannot start {argv[0]!r}: {error.strerror}", next_step="install it or mend the PATH"
        ) from error
    returncode: int | None
    with _live_lock:
        _live.add(process)
    try:
        stdout, stderr = process.communicate(timeout=timeout)
        returncode = process.returncode
    except subprocess.TimeoutExpired:
        _kill_group(process)
        stdout, stderr = process.communicate()
        returncode = None
    except BaseException:
        _kill_group(process)
        process.wait()
        raise
    finally:
        with _live_lock:
            _live.discard(process)
    done = Completed(
        argv=tuple(argv),
        returncode=returncode,
        stdout=stdout,
        stderr=stderr,
        seconds=time.monotonic() - started,
    )
    if log is not None:
        _append(log, done)
    return done


def start(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[str]:
    """Start ``argv`` in a session of its own and return at once; the caller ends it with ``stop``.

    Its stdout is thrown away, its stderr is a pipe, and of our descriptors it gets ``pass_fds``.

    Raises ``OSError`` when it cannot be started.
    """
    process = subprocess.Popen(
        list(argv),
        env=dict(env),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        pass_fds=tuple(pass_fds),
    )
    with _live_lock:
        _live.add(process)
    return process


def stop(process: subprocess.Popen[str]) -> int:
    """Kill what is left of a started process and its group; gives its exit code as Popen does."""
    _kill_group(process)
    code = process.wait()
    if process.stderr is not None:
        process.stderr.close()
    with _live_lock:
        _live.discard(process)
    return code


def attach(argv: Sequence[str], *, env: Mapping[str, str], cwd: Path) -> int:
    """Run ``argv`` on our own terminal and return its exit code, negative for a signal.

    Raises ``UsageError`` when the program does not exist.
    """
    program = shutil.which(argv[0], path=env.get("PATH"))
    if program is None:
        raise UsageError(f"no program {argv[0]!r} in the session's environment")
    return subprocess.run([program, *argv[1:]], env=dict(env), cwd=cwd, check=False).returncode


def check(done: Completed, error: type[FactoryError], *, doing: str, next_step: str = "") -> None:
    """Raise ``error`` with the end of the output unless ``done`` ended with exit code 0."""
    if done.ok:
        return
    tail = (done.stderr.strip() or done.stdout.strip())[-_TAIL:]
    raise error(f"{doing} failed ({done.ending}): {tail}", next_step=next_step)


def stop_all() -> None:
    """Kill every process that ``run`` started from any thread: what an interrupt does."""
    with _live_lock:
        running = list(_live)
    for process in running:
        _kill_group(process)


def _kill_group(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _append(log: Path, done: Completed) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as file:
        file.write("+ " + " ".join(done.argv) + "\n")
        file.write(done.stdout + done.stderr)
        file.write(f"= {done.ending} after {done.seconds:.2f} s\n")
