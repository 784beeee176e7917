"""What is known of a crash: the command that crashed, and the report on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from wheelfab.run import Completed

UNKNOWN = "??"  # a function without a name, as gdb writes it

Runner = Callable[[Sequence[str], Mapping[str, str], float], Completed]
"""Runs an argv with an environment and a time limit in the place where the crash was seen."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CrashedCommand:
    """A command that crashed. ``place`` in words: ``container debian-12, host segv-cuinit``."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    stage: str
    place: str
    driver_state: Mapping[str, object] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
    """A native frame; ``offset`` is in bytes from where ``library`` is mapped, if it is in one."""

    function: str
    library: str
    file: str = ""
    line: int | None = None
    offset: int | None = None

    @property
    def name(self) -> str:
        """The function, or for want of a symbol the place in its library: ``libx.so+0x1139``."""
        if self.function != UNKNOWN:
            return self.function
        base = PurePosixPath(self.library).name or "no library"
        return base if self.offset is None else f"{base}+{self.offset:#x}"

    @property
    def place(self) -> str:
        """Where that is: ``a.cpp:4 (libx.so)``, or the library alone."""
        base = PurePosixPath(self.library).name
        return f"{self.file}:{self.line} ({base})" if self.file else base


@dataclass(frozen=True, kw_only=True, slots=True)
class Guilty:
    """The function that is blamed, the base name of its library, and its callers, in words."""

    function: str
    library: str
    called_by: str = ""

    def __str__(self) -> str:
        text = f"{self.function} in {self.library}" if self.library else self.function
        return f"{text}, called by {self.called_by}" if self.called_by else text


@dataclass(frozen=True, kw_only=True, slots=True)
class PythonFrame:
    """A line of a Python stack."""

    file: str
    line: int
    function: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceOpen:
    """A device file that was opened: its path, ``opened`` or the name of the error."""

    path: str
    errno: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Library:
    """A mapped library; ``version`` is empty when nothing tells it."""

    path: str
    version: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Reproduced:
    """How many of ``of`` reruns of the shortest command ended the same way."""

    times: int
    of: int

    def __str__(self) -> str:
        return f"{self.times} of {self.of}"


@dataclass(frozen=True, kw_only=True, slots=True)
class CrashReport:
    """A crash as it was measured.

    ``signal`` is the ending: ``SIGSEGV``, ``exit 3``, ``timed out``. ``si_code`` and ``address``
    (hexadecimal) are empty where there was none. Stacks begin with the innermost frame.
    ``problems`` says what could not be had, and why.
    """

    signature: str
    signal: str
    si_code: str
    address: str
    stage: str
    place: str
    guilty: Guilty | None
    python_stack: tuple[PythonFrame, ...]
    backtrace: tuple[Frame, ...]
    symbols_missing: str
    system_calls: tuple[str, ...]
    last_library: str
    device_opens: tuple[DeviceOpen, ...]
    libraries: tuple[Library, ...]
    last_words: tuple[str, ...]
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    driver_state: Mapping[str, object] | None
    reproduce: str
    reproduced: Reproduced
    problems: tuple[str, ...]
