"""strace on a rerun: the last calls of the process that died, and what it opened."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from wheelfab.crash.endings import has_address, is_sent
from wheelfab.crash.record import DeviceOpen

CRASHES = ("SIGSEGV", "SIGABRT", "SIGILL", "SIGBUS", "SIGFPE", "SIGSYS", "SIGTRAP")
KEPT = 30  # system calls
_LINES = 200_000  # of a trace that are passed on; importing torch makes about 40,000 calls
_DEEP = 8  # processes that start one another
_LINE = 400  # characters of a call that are kept
_CALL = re.compile(r"(\d{1,9})\s+(.*)$")
_SIGNAL = re.compile(r"--- (SIG\w+) \{(.*)\} ---$")
_CODE, _ADDRESS = re.compile(r"si_code=(\w+)"), re.compile(r"si_addr=(\w+)")
_DEATH = re.compile(r"\+\+\+ killed by (SIG\w+)")
_EXIT = re.compile(r"exit_group\(")
_OPEN = re.compile(r'open(?:at2?)?\((?:[^"]*, )?"([^"]+)"')
_RESULT = re.compile(r"\) += (-1 (E\w+)|\d+)")
_FORK = re.compile(r"(?:clone3?|v?fork)(?:\(| resumed).* = (\d{1,9})\b")
_EXECUTED = re.compile(r"execve(?:at)?\(.*\) += 0$")
_RESUMED = re.compile(r"<\.\.\. (\w+) resumed>(.*)$")
_CUT = " [...]"
_UNFINISHED = " <unfinished ...>"
_LIBRARY = re.compile(r"\.so(?:\.\d[\w.]*)?$")
_DEVICE = re.compile(r"/dev/(?:nvidia|dxg|nvhost|nvmap)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """What strace saw.

    ``path`` is how one gets from the command to the process that died, (3, 1) for the first one
    that its third child started; empty for the command itself. ``forks`` is how many it started.
    ``child_signal``: the signal of a crash by which such a process died, whatever the command did.
    """

    signal: str = ""
    si_code: str = ""
    address: str = ""
    path: tuple[int, ...] = ()
    forks: int = 0
    child_signal: str = ""
    calls: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    device_opens: tuple[DeviceOpen, ...] = ()

    @property
    def last_library(self) -> str:
        """The library that the dying process opened last."""
        return self.libraries[-1] if self.libraries else ""


@dataclass(frozen=True, slots=True)
class _Fault:
    signal: str
    si_code: str
    address: str
    calls: tuple[str, ...]


@dataclass(slots=True)
class _Threads:
    """Calls and processes while a trace is read; a thread counts as its process."""

    calls: dict[int, list[str]] = field(default_factory=dict)
    process: dict[int, int] = field(default_factory=dict)
    children: dict[int, list[int]] = field(default_factory=dict)
    executed: set[int] = field(default_factory=set)
    waiting: dict[int, str] = field(default_factory=dict)
    libraries: dict[int, list[str]] = field(default_factory=dict)
    faults: dict[int, _Fault] = field(default_factory=dict)
    dead: dict[int, str] = field(default_factory=dict)
    ended: list[int] = field(default_factory=list)
    opens: dict[DeviceOpen, None] = field(default_factory=dict)


def strace_argv(program: Sequence[str], marker: str) -> tuple[str, ...]:
    """The command line of strace for ``program``; the trace comes on stdout.

    ``marker`` is a word that the program cannot know; it sets the trace apart from what the
    program prints there.
    """
    lines = f"|tail -n {_LINES} | sed 's/^/{marker} /'"
    return ("strace", "-f", "-y", "-s", "64", "-o", lines, *program)


def parse_strace(text: str, marker: str, signal: str) -> Trace:
    """The trace of a command that ended by ``signal``, or without ``signal`` by itself."""
    seen = _Threads()
    for raw in text.splitlines()[-_LINES:]:
        found = _CALL.match(raw.removeprefix(f"{marker} ")) if raw.startswith(marker) else None
        if found is not None:
            _line(seen, int(found[1]), found[2].rstrip())
    if not seen.process:
        return Trace()
    root = next(iter(seen.process.values()))
    dying = _dying(seen, root, signal)
    process = seen.process.get(dying, root)
    fault = seen.faults.get(dying)
    if fault is None or fault.signal != signal:
        fault = _Fault("", "", "", tuple(seen.calls.get(dying, ())))
    return Trace(
        signal=fault.signal,
        si_code=fault.si_code,
        address=fault.address,
        path=_path(seen, root, process),
        forks=len(seen.children.get(process, ())),
        child_signal=_crashed_child(seen, root),
        calls=fault.calls,
        libraries=tuple(dict.fromkeys(seen.libraries.get(process, ()))),
        device_opens=tuple(seen.opens),
    )


def _path(seen: _Threads, root: int, process: int) -> tuple[int, ...]:
    found: list[int] = []
    parents = {child: parent for parent, children in seen.children.items() for child in children}
    while process != root and process in parents and len(found) < _DEEP:
        parent = parents[process]
        found.append(seen.children[parent].index(process) + 1)
        process = parent
    return tuple(reversed(found))


def _crashed_child(seen: _Threads, root: int) -> str:
    found = [by for pid, by in seen.dead.items() if by in CRASHES and seen.process[pid] != root]
    return found[-1] if found else ""


def _dying(seen: _Threads, root: int, signal: str) -> int:
    """The thread that took the signal, of the command itself if it died of it."""
    killed = [pid for pid, by in seen.dead.items() if by == signal]
    killed = killed or (list(seen.dead) if signal else [])
    own = [pid for pid in killed if seen.process.get(pid) == root]
    faulted = [pid for pid in own or killed if pid in seen.faults]
    if faulted:
        return faulted[-1]
    if not signal:  # it ended by itself
        exits = [pid for pid in seen.ended if seen.process.get(pid) == root]
        return exits[-1] if exits else root
    return (own or killed or [root])[-1]


def _line(seen: _Threads, pid: int, text: str) -> None:
    process = seen.process.setdefault(pid, pid)
    if death := _DEATH.search(text):
        seen.dead[pid] = death[1]
        return
    if event := _SIGNAL.match(text):
        _signal(seen, pid, event[1], event[2])
        return
    if text.startswith("+++"):
        return
    if resumed := _RESUMED.match(text):
        began = seen.waiting.pop(pid, f"{resumed[1]}(")
        seen.calls[pid] = [
            call for call in seen.calls.get(pid, ()) if not call.endswith(_UNFINISHED)
        ]
        text = began + resumed[2]
    if _EXIT.match(text):
        seen.ended.append(pid)
    elif text.endswith(_UNFINISHED):
        seen.waiting[pid] = text.removesuffix(_UNFINISHED)
    _keep(seen, pid, text)
    _learn(seen, process, text)


def _learn(seen: _Threads, process: int, text: str) -> None:
    """What a call that returned says about processes and files."""
    if made := _FORK.match(text):
        thread = "CLONE_THREAD" in text
        seen.process[int(made[1])] = process if thread else int(made[1])
        if not thread:
            _forked(seen, process, int(made[1]))
    if _EXECUTED.match(text):
        seen.executed.add(process)
        seen.libraries[process] = []
    if opened := _OPEN.match(text):
        _opened(seen, process, opened[1], text)


def _forked(seen: _Threads, parent: int, child: int) -> None:
    """A child has its parent's libraries, until it runs another program."""
    seen.children.setdefault(parent, []).append(child)
    if child not in seen.executed:
        own = seen.libraries.get(child, [])
        seen.libraries[child] = [*seen.libraries.get(parent, ()), *own]


def _keep(seen: _Threads, pid: int, text: str) -> None:
    kept = seen.calls.setdefault(pid, [])
    kept.append(text if len(text) <= _LINE else text[: _LINE - len(_CUT)] + _CUT)
    del kept[:-KEPT]


def _signal(seen: _Threads, pid: int, signal: str, about: str) -> None:
    """A signal arrives; the same one sent again by a handler is not the fault."""
    before = seen.faults.get(pid)
    code, address = _CODE.search(about), _ADDRESS.search(about)
    name = code[1] if code else ""
    if before is not None and before.signal == signal and is_sent(name):
        return
    where = address[1].replace("NULL", "0x0") if address and has_address(name) else ""
    seen.faults[pid] = _Fault(signal, name, where, tuple(seen.calls.get(pid, ())))


def _opened(seen: _Threads, process: int, path: str, text: str) -> None:
    result = _RESULT.search(text)
    if result is None:
        return
    if _DEVICE.match(path):
        seen.opens[DeviceOpen(path=path, errno=result[2] or "opened")] = None
    elif result[2] is None and _LIBRARY.search(path):
        seen.libraries.setdefault(process, []).append(path)
