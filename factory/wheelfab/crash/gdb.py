"""gdb in batch on a rerun: its commands, and what it says about the stop that killed the process.

Only gdb's own commands, no Python in it, so that any build of gdb will do. The program is resumed
after each stop, since a process may handle a signal (a probe of the processor by SIGILL) and die
of another one; which stop was the death is found out from the text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from wheelfab.crash.endings import code_name, has_address, is_sent, signal_name
from wheelfab.crash.frames import parse_frame
from wheelfab.crash.maps import Mapping, libraries_without_debug, parse_mappings
from wheelfab.crash.record import Frame

_FRAMES = 64
_LINE = 4000  # characters of a line that are looked at
_LINES = 40_000
_STOPPING = ("SIGSEGV", "SIGABRT", "SIGILL", "SIGBUS", "SIGFPE", "SIGSYS")
_OWN = "SIGTRAP"  # gdb's own: passed to the program, it would die of gdb's breakpoints
_EARLY = ("auto-load off", "debuginfod enabled off")
_SETTINGS = (
    *("width 0", "height 0", "confirm off", "style enabled off", "disable-randomization off"),
    *("print frame-arguments none", "print symbol-filename off", "filename-display absolute"),
    "print frame-info location-and-address",
)
_SIGINFO = "$_siginfo.si_signo, $_siginfo.si_code, $_siginfo._sifields._sigfault.si_addr"
_KILLED = re.compile(r"Program terminated with signal (SIG\w+)")
_EVENT = re.compile(r"signal (-?\d{1,9}) code (-?\d{1,9}) address (\w+)$")
_AT = re.compile(r"pc (\w+) inferior (\d{1,9})$")


@dataclass(kw_only=True, slots=True)
class Stop:
    """A moment at which gdb held the process that it had followed."""

    signal: str = ""
    si_code: str = ""
    address: str = ""
    inferior: int = 0
    pc: int = 0
    frames: tuple[Frame, ...] = ()
    libraries: tuple[str, ...] = ()
    without_debug: frozenset[str] = frozenset()
    lines: dict[str, list[str]] = field(default_factory=dict)


def gdb_argv(
    program: Sequence[str],
    marker: str,
    *,
    rounds: int,
    path: Sequence[int] = (),
    signal: str = "",
) -> tuple[str, ...]:
    """The command line of gdb for ``program``, to be run under ``tool_environment``.

    ``marker`` is a word that the program cannot know; it sets gdb's answers apart from what the
    program prints. ``path`` leads to the process that dies: (3, 1) is the first that the third
    one forked by the command forks. Without ``signal`` the stop is the call of exit_group.
    """
    words = ["gdb", "-nx", "-nh", "--batch"]
    for setting in _EARLY:
        words += ["-iex", f"set {setting}"]
    for command in (
        *(f"set {setting}" for setting in _SETTINGS),
        "handle all nostop noprint pass",
        _watch(signal),
        *(("catch fork", "catch vfork") if path else ()),
        "run",
        *(command for number in path for command in _into(number)),
        *(_round(marker) * rounds),
    ):
        words += ["-ex", command]
    return (*words, "--args", *program)


def _into(number: int) -> tuple[str, ...]:
    """Held at a process's first fork: on to its fork ``number``, and from there into the child.

    One process is held at a time and the others run on: gdb is known to hang when it holds many.
    """
    turn = ("set follow-fork-mode child", "continue", "set follow-fork-mode parent")
    return (*("continue",) * (number - 1), *turn)


def _watch(signal: str) -> str:
    if not signal:
        return "catch syscall exit_group"
    return f"handle {' '.join(sorted({*_STOPPING, signal} - {_OWN}))} stop print pass"


def _round(marker: str) -> tuple[str, ...]:
    return (
        f"echo \\n{marker} stop\\n",
        f"bt {_FRAMES}",
        f"echo \\n{marker} libraries\\n",
        "info sharedlibrary",
        f"echo \\n{marker} mappings\\n",
        "info proc mappings",
        f'printf "\\n{marker} pc %#lx inferior %d\\n", $pc, $_inferior',
        f'printf "{marker} signal %d code %d address %#lx\\n", {_SIGINFO}',
        f"echo {marker} on\\n",
        "continue",
    )


def parse_gdb(text: str, marker: str) -> tuple[list[Stop], str]:
    """The stops in gdb's output, and the signal that a process of it was killed by, if any."""
    stops: list[Stop] = []
    killed = ""
    section = "on"
    for raw in text.splitlines()[:_LINES]:
        line = raw[:_LINE]
        if line.startswith(f"{marker} "):
            section = _marked(line[len(marker) + 1 :], stops)
        elif section == "on":
            died = _KILLED.search(line)
            killed = died[1] if died else killed
        elif stops:
            stops[-1].lines.setdefault(section, []).append(line)
    found = [_read(stop) for stop in stops if stop.inferior]
    return found, killed


def _marked(words: str, stops: list[Stop]) -> str:
    """Take a line of ours; gives the section that follows."""
    if words == "stop":
        stops.append(Stop())
        return "frames"
    if not stops:
        return "on"
    event, at = _EVENT.match(words), _AT.match(words)
    if event is not None:
        stop = stops[-1]
        stop.signal = signal_name(int(event[1]))
        stop.si_code = code_name(stop.signal, int(event[2]))
        stop.address = hex(_number(event[3])) if has_address(stop.si_code) else ""
    elif at is not None:
        stops[-1].pc, stops[-1].inferior = _number(at[1]), int(at[2])
    return words if words in ("libraries", "mappings", "on") else "nothing"


def _read(stop: Stop) -> Stop:
    mappings = parse_mappings(stop.lines.get("mappings", ()))
    stop.without_debug = libraries_without_debug(stop.lines.get("libraries", ()))
    stop.libraries = tuple(sorted({item.path for item in mappings if item.is_library}))
    parsed = [parse_frame(line) for line in stop.lines.get("frames", ())]
    frames = [frame for frame in parsed if frame is not None]
    addresses = [address for address, _ in frames]
    if addresses and addresses[0] is None:
        addresses[0] = stop.pc
    stop.frames = tuple(
        _placed(frame, address or _next(addresses, number), mappings)
        for number, (address, (_, frame)) in enumerate(zip(addresses, frames, strict=True))
    )
    stop.lines = {}
    return stop


def _next(addresses: Sequence[int | None], number: int) -> int | None:
    """The address of an inlined frame is that of the function it was inlined into."""
    return next((address for address in addresses[number:] if address is not None), None)


def _placed(frame: Frame, address: int | None, mappings: Sequence[Mapping]) -> Frame:
    for item in mappings:
        if address is not None and item.start <= address < item.end:
            return Frame(
                function=frame.function,
                library=item.path or frame.library,
                file=frame.file,
                line=frame.line,
                offset=address - item.start + item.offset if item.path else None,
            )
    return frame


def _number(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        return 0


def death(stops: Sequence[Stop], signal: str) -> Stop | None:
    """The stop that was the death by ``signal``, or without ``signal`` the last one.

    A handler such as faulthandler's raises the signal again: the last one that the kernel sent is
    the fault, and where all were sent by processes the first of those that end the list.
    """
    if not signal:
        return stops[-1] if stops else None
    fatal = [stop for stop in stops if stop.signal == signal]
    if not fatal:
        return None
    faults = [stop for stop in fatal if not is_sent(stop.si_code)]
    if faults:
        return faults[-1]
    signals = [stop for stop in stops if stop.signal]
    first = len(signals)
    while first > 1 and signals[first - 1].signal != signal:
        first -= 1
    while first > 1 and signals[first - 2].signal == signal:
        first -= 1
    return signals[first - 1]
