"""The one family of errors: what happened, and what to do next.

An operation's own errors (wrong shapes, no driver) come through torch, as ``RuntimeError``.
"""

from __future__ import annotations


class FreewheelError(Exception):
    """An error that a user can act on; rendered as ``what; next_step``."""

    def __init__(self, what: str, *, next_step: str = "") -> None:
        self.what = what
        self.next_step = next_step
        super().__init__(f"{what}; {next_step}" if next_step else what)


class LoadError(FreewheelError, ImportError):
    """The native libraries cannot be used in this process."""


class DeviceError(FreewheelError, RuntimeError):
    """A part of an engine cannot work on the devices that are there."""


class InterpreterError(LoadError):
    """torch works in the main interpreter of a process only."""


class NotBuiltError(LoadError):
    """There is no ``_build.json`` beside the package: a source tree, not an installed wheel."""


class TorchMissingError(LoadError):
    """torch is not installed, or does not import."""


class TorchNotFoundError(TorchMissingError, ModuleNotFoundError):
    """torch is not installed; ``name`` is ``"torch"``, as Python itself says it."""

    name = "torch"


class TorchMismatchError(LoadError):
    """The installed torch is not one that this wheel was built for."""


class LibraryError(LoadError):
    """A shared library of the wheel does not load, or two of them do not fit together."""
