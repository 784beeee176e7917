"""Makes all files read-only but those of one folder, then becomes a command; nothing else is here.

    unshare --user --map-root-user --mount -- python -I fence.py FOLDER COMMAND...

The command cannot undo it: it starts without the rights of the name space's root.
"""

import ctypes
import os
import sys

_MOUNT_SETATTR = 442  # of every 64-bit architecture; Linux 5.12
_RECURSIVE, _READ_ONLY = 0x8000, 1
_BIND = 4096
_SET_SECURE_BITS, _NO_ROOT_LOCKED = 28, 3


def main() -> None:
    """Fence the folder named first and start the command."""
    folder, command = sys.argv[1], sys.argv[2:]
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.mount(folder.encode(), folder.encode(), None, _BIND, None), "mount")
    _set(libc, "/", _RECURSIVE, (_READ_ONLY, 0))
    _set(libc, folder, 0, (0, _READ_ONLY))
    _check(libc.prctl(_SET_SECURE_BITS, _NO_ROOT_LOCKED, 0, 0, 0), "prctl")
    os.chdir(folder)
    os.execvp(command[0], command)  # noqa: S606 (this is what it is for)


def _set(libc: ctypes.CDLL, path: str, flags: int, change: tuple[int, int]) -> None:
    """Change the attributes of a mount: those to set, those to clear."""
    attributes = (ctypes.c_uint64 * 4)(*change, 0, 0)
    size = ctypes.sizeof(attributes)
    done = libc.syscall(_MOUNT_SETATTR, -100, path.encode(), flags, attributes, size)
    _check(done, "mount_setattr")


def _check(code: int, what: str) -> None:
    if code != 0:
        sys.exit(f"{what}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    main()
