"""The one family of errors: what happened, where, and what to do next, each with an exit code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar


class FactoryError(Exception):
    """An error that a user can act on; only ``__main__`` and ``nox`` catch it.

    Rendered as ``where: what; next_step``. Anything that is not a ``FactoryError`` is a bug in
    wheelfab and keeps its traceback.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, where: str = "", next_step: str = "") -> None:
        self.what = what
        self.where = where
        self.next_step = next_step
        super().__init__(what)

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text}; {self.next_step}" if self.next_step else text


class UsageError(FactoryError):
    """The command line asks for something that does not exist."""

    exit_code = 2


class MatrixError(FactoryError):
    """``matrix.toml`` is not valid, or names a cell that cannot be built."""

    exit_code = 3


class ToolchainError(FactoryError):
    """A compiler, a header package or a torch release is missing or not the one asked for."""

    exit_code = 4


class NoDeviceError(FactoryError):
    """A GPU was asked for and none answers."""

    exit_code = 5


class BuildError(FactoryError):
    """A compile or link step failed, or at least one cell of the build did."""

    exit_code = 6


class InfrastructureError(FactoryError):
    """The machine failed, not the code: memory or disk ran out."""

    exit_code = 7


class LoopError(FactoryError):
    """At least one load of a wheel failed."""

    exit_code = 8


class HarnessError(FactoryError):
    """The loop itself broke, so that nothing was proved."""

    exit_code = 9


class WheelError(FactoryError):
    """A wheel is broken, or not what its name says."""

    exit_code = 10


class PublishError(FactoryError):
    """The set of wheels is not complete, or a published file would change."""

    exit_code = 11


class StoreError(FactoryError):
    """The content-addressed store cannot be used: a lock is held, a file was changed."""

    exit_code = 12


class FormatError(FactoryError):
    """A file that was read (ELF, fatbin, zip) is malformed or over its bounds."""

    exit_code = 13


class AuditError(FactoryError):
    """The audit of a wheel found an error."""

    exit_code = 1


class UncheckedError(FactoryError):
    """An audit could not check something that its policy requires."""

    exit_code = 14


def one_of_many(errors: Sequence[FactoryError]) -> FactoryError:
    """Join ``errors`` into one error of the first one's class that lists them all, a line each."""
    if len(errors) == 1:
        return errors[0]
    return type(errors[0])("\n".join(str(error) for error in errors))
