"""How gdb and strace are started, so that what kills the program does not kill the tool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wheelfab.crash.record import Runner
from wheelfab.errors import UsageError
from wheelfab.run import Completed

_OURS: Mapping[str, str] = {"LC_ALL": "C.UTF-8", "LANGUAGE": "C", "SHELL": "/bin/sh"}
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_RISKY = ("LD_", "PYTHON", "GLIBC_", "MALLOC_", "ASAN_", "LSAN_", "UBSAN_", "TSAN_", "DEBUGINFOD_")
_SET_BY_GDB = ("LINES", "COLUMNS")
_GRACE = 2  # seconds between SIGABRT, which makes faulthandler speak, and SIGKILL
MARGIN = 15.0  # seconds that a tool may take over the program's own time limit
_SAID = 300  # characters of a tool's complaint


def tool_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What the tool itself gets: nothing that changes how programs load or Python starts."""
    kept = {name: value for name, value in environment.items() if not name.startswith(_RISKY)}
    return {"PATH": _PATH, **kept, **_OURS}


def as_it_was(argv: Sequence[str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """``argv`` under a tool that has ``tool_environment``, given exactly ``environment`` again."""
    given = tool_environment(environment)
    unset = [name for name in (*given, *_SET_BY_GDB) if name not in environment]
    changed = [f"{name}={value}" for name, value in environment.items() if given.get(name) != value]
    drop = [word for name in sorted(set(unset)) for word in ("-u", name)]
    return ("env", *drop, *changed, *argv)


def limited(argv: Sequence[str], seconds: float) -> tuple[str, ...]:
    """``argv`` ended by SIGABRT after ``seconds``, so that it shows where it hangs."""
    return ("timeout", "--foreground", "-s", "ABRT", "-k", str(_GRACE), f"{seconds:g}", *argv)


def ask_for(tool: str, run: Runner, environment: Mapping[str, str]) -> str:
    """Why ``tool`` cannot be used there; empty when it answers."""
    done = start((tool, "--version"), run, tool_environment(environment), MARGIN)
    if isinstance(done, str):
        return done
    if done.ok:
        return ""
    if done.returncode in (126, 127):
        return f"{tool} is not installed there"
    return f"{tool} does not work there ({done.ending}): {said(done)}"


def start(
    argv: Sequence[str], run: Runner, environment: Mapping[str, str], seconds: float
) -> Completed | str:
    """Run a tool; gives the reason when it is not there."""
    try:
        return run(argv, environment, seconds)
    except (UsageError, OSError) as error:
        return f"{argv[0]} is not installed there ({error})"


def said(done: Completed) -> str:
    """The end of what a tool printed, on one line."""
    return " ".join((done.stderr.strip() or done.stdout.strip()).split())[-_SAID:]
