"""Loads one library in a process of its own, and says how that went; nothing else of ours is here.

    python -I child.py LIBRARY COUNT_LOG [torch]

With ``torch`` that is imported first, as the library's package would, and its own calls into the
driver are not counted. Prints one line: the number of lines in the log before, a tab, and why the
library did not load, if so.
"""

import ctypes
import os
import resource
import sys
from pathlib import Path

SECONDS, MEMORY, WRITTEN = 60, 16 << 30, 64 << 20


def main() -> None:
    """Load the library named first."""
    library, log = sys.argv[1], Path(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (WRITTEN, WRITTEN))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    error = ""
    if "torch" in sys.argv[3:]:
        try:
            __import__("torch")
        except ImportError as missing:
            error = f"torch cannot be imported here ({missing}); --python names one that has it"
    before = len(log.read_text().splitlines()) if log.exists() else 0
    print(f"before {before}", flush=True)
    if not error:
        try:
            ctypes.CDLL(library, mode=os.RTLD_NOW | os.RTLD_LOCAL)
        except OSError as refused:
            error = str(refused)
    print(f"after {error}", flush=True)
    os._exit(0)  # no destructors: it is loading that is looked at


if __name__ == "__main__":
    main()
