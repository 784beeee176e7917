"""Whether this process uses CUDA, or its parent did before the fork. Never initialises it."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

_SUCCESS = 0  # CUDA_SUCCESS


@dataclass
class _Watch:
    """What the hook before a fork finds."""

    user: int | None = None  # the process that used CUDA when it forked
    sound: bool = False  # the driver has answered a child of this process, so it may be called


watch = _Watch()


def is_used(*, sound: bool) -> bool:
    """Whether this process has initialised CUDA; loads nothing.

    The driver itself is only called where it is ``sound``, as one that has answered before.
    """
    return _torch_uses_it() or _opened_by() == os.getpid() or (sound and _driver_says_so())


def used_before_fork() -> int | None:
    """The process that used CUDA before it forked this one; 0 if only that much is known."""
    here = os.getpid()
    if watch.user is not None and watch.user != here:
        return watch.user
    opened = _opened_by()
    if opened not in (0, here):
        return opened
    torch = sys.modules.get("torch")
    try:
        return 0 if torch is not None and torch.cuda._is_in_bad_fork() else None  # noqa: SLF001
    except AttributeError:  # half imported, or another release
        return None


def _torch_uses_it() -> bool:
    torch = sys.modules.get("torch")
    try:
        return torch is not None and bool(torch.cuda.is_initialized())
    except AttributeError:  # half imported
        return False


def _opened_by() -> int:
    """The process in which freewheel's own operations opened the driver, 0 if they did not."""
    native = sys.modules.get("freewheel._native")  # as it is: this also runs before every fork
    return 0 if native is None else int(native.driver_process())


def _driver_says_so() -> bool:
    import ctypes

    try:
        cuda = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        return bool(cuda.cuCtxGetCurrent(ctypes.byref(ctypes.c_void_p())) == _SUCCESS)
    except (OSError, AttributeError):
        return False


def _before_fork() -> None:
    if is_used(sound=watch.sound):
        watch.user = os.getpid()


os.register_at_fork(before=_before_fork)
