"""How a process ended, in the kernel's own names: its signal, the signal's code, its exit code."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from wheelfab.run import Completed

_SHELL = 128  # a shell, timeout and docker exec give 128 + the signal's number as exit code
_OVERDUE = (124, 128 + signal.SIGKILL)  # what timeout gives when it had to end the command
_ANY: Mapping[int, str] = {
    128: "SI_KERNEL",
    0: "SI_USER",
    -1: "SI_QUEUE",
    -2: "SI_TIMER",
    -3: "SI_MESGQ",
    -4: "SI_ASYNCIO",
    -5: "SI_SIGIO",
    -6: "SI_TKILL",
}
_CODES: Mapping[str, tuple[str, ...]] = {
    "SIGSEGV": ("SEGV_MAPERR", "SEGV_ACCERR", "SEGV_BNDERR", "SEGV_PKUERR"),
    "SIGBUS": ("BUS_ADRALN", "BUS_ADRERR", "BUS_OBJERR", "BUS_MCEERR_AR", "BUS_MCEERR_AO"),
    "SIGILL": (
        *("ILL_ILLOPC", "ILL_ILLOPN", "ILL_ILLADR", "ILL_ILLTRP"),
        *("ILL_PRVOPC", "ILL_PRVREG", "ILL_COPROC", "ILL_BADSTK"),
    ),
    "SIGFPE": (
        *("FPE_INTDIV", "FPE_INTOVF", "FPE_FLTDIV", "FPE_FLTOVF"),
        *("FPE_FLTUND", "FPE_FLTRES", "FPE_FLTINV", "FPE_FLTSUB"),
    ),
    "SIGTRAP": ("TRAP_BRKPT", "TRAP_TRACE", "TRAP_BRANCH", "TRAP_HWBKPT"),
    "SIGSYS": ("SYS_SECCOMP",),
}
_MEANINGS: Mapping[str, str] = {
    "SEGV_MAPERR": "nothing is mapped at the address: a null or a wild pointer",
    "SEGV_ACCERR": "the address is mapped, but not for this kind of access",
    "SI_KERNEL": "general protection: an address that no page can have, or a misaligned operand",
    "BUS_ADRERR": "the file behind the mapping is shorter than the mapping",
    "ILL_ILLOPN": "an instruction that this processor does not know",
    "ILL_ILLOPC": "an instruction that this processor does not know",
    "SI_TKILL": "the process sent it to itself, as abort() does",
    "SI_USER": "another process sent it",
}


class Fate(StrEnum):
    """The three ways in which a process ends badly."""

    SIGNAL = "signal"
    EXIT = "exit"
    HANG = "hang"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """How a process ended. ``name``: ``SIGSEGV``, ``exit 3``, ``timed out``."""

    fate: Fate
    name: str


def ending_of(done: Completed, *, limited: bool = False) -> Ending:
    """How ``done`` ended; ``limited`` when it ran under ``timeout``, whose exit codes then count.

    An exit code of 128 and a signal's number is that signal: so a container's engine reports it.
    """
    code = done.returncode
    if code is None or (limited and code in (*_OVERDUE, -signal.SIGKILL)):
        return Ending(fate=Fate.HANG, name="timed out")
    number = -code if code < 0 else code - _SHELL
    if number > 0 and (code < 0 or number in set(signal.Signals)):
        return Ending(fate=Fate.SIGNAL, name=signal_name(number))
    return Ending(fate=Fate.EXIT, name=f"exit {code}")


def signal_name(number: int) -> str:
    """``SIGSEGV`` for 11; ``signal 40`` for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def code_name(signal_: str, code: int) -> str:
    """The name of an ``si_code``: ``SEGV_MAPERR`` for 1 with SIGSEGV, ``SI_KERNEL`` for 128."""
    names = _CODES.get(signal_, ())
    if 0 < code <= len(names):
        return names[code - 1]
    return _ANY.get(code, f"si_code {code}")


def has_address(code: str) -> bool:
    """Whether a signal with this ``si_code`` carries the address that was at fault."""
    return not code.startswith(("SI_", "si_code", "SYS_")) and bool(code)


def is_sent(code: str) -> bool:
    """Whether a process sent the signal, as ``raise`` does, and not the kernel for a fault."""
    return code in ("SI_USER", "SI_TKILL", "SI_QUEUE")


def meaning(code: str) -> str:
    """What an ``si_code`` says, in words; empty for one that says nothing more."""
    return _MEANINGS.get(code, "")
