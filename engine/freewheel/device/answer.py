"""What came back from the process that asked the driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from freewheel.device.record import Asked


@dataclass(frozen=True)
class Answer:
    """What came back: ``data`` is the child's object, ``step`` the last step that it began.

    ``signal`` or ``exit_code`` tell how a child without an answer ended; neither, with ``hung``,
    that it had to be killed.
    """

    how: Asked
    data: Mapping[str, Any] | None = None
    step: str = ""
    signal: int | None = None
    exit_code: int | None = None
    hung: bool = False
    seconds: float = 0.0
    problems: tuple[str, ...] = ()  # why a way of asking was given up


def number(value: object) -> int | None:
    """A whole number of the child's object that fits in 64 bits; anything else is ``None``."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if -(1 << 63) <= value < 1 << 63 else None


def text(value: object) -> str | None:
    """A text of the child's object."""
    return value if isinstance(value, str) else None


def code_of(result: object) -> int | None:
    """The driver's code in ``{"code": 100, "name": "CUDA_ERROR_NO_DEVICE", "text": …}``."""
    return number(result.get("code")) if isinstance(result, dict) else None


def ending(answer: Answer) -> str:
    """How the child ended, in words."""
    if answer.signal is not None:
        import signal

        try:
            return signal.Signals(answer.signal).name
        except ValueError:
            return f"signal {answer.signal}"
    return "an unknown end" if answer.exit_code is None else f"exit code {answer.exit_code}"
