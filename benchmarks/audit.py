"""What an audit costs, beside the tools that see a part of what it sees.

    python benchmarks/audit.py WHEEL... [--cuobjdump PROGRAM] [--check]

Seconds of wall and of processor, and the largest memory, of fresh processes: ``wheelfab audit``,
``auditwheel show`` (versions and libraries alone) and, where it is named, ``cuobjdump -lelf``
over the unpacked libraries (names of images alone; unpacking is not counted). With ``--check``
nothing but the audit is run, and the exit code is 1 when a wheel takes over 30 ms a megabyte of
processor time, Python's start included (500 MB in 15 s; but 4 s at least, and 1 s where it is
smaller than 1 MB, as freewheel's are), or over 300 MB of memory; of a small wheel the best of three
runs counts. Wall time is that of the machine as it is: run it on an idle one.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

SMALL = 1e6  # bytes: freewheel
SMALL_BUDGET = 1.0  # seconds of processor time
REPEATED = 3  # times that a small one is measured; other work on the machine only adds
MIDDLE_BUDGET = 4.0
BUDGET = 0.030  # seconds of processor time a megabyte
MEMORY = 300e6


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Of one process: seconds of wall and processor, bytes of memory at most."""

    wall: float
    processor: float
    memory: float

    def __str__(self) -> str:
        return f"{self.wall:7.2f} s {self.processor:7.2f} s {self.memory / 1e6:6.0f} MB"


def cost(argv: list[str]) -> Cost:
    """Run a command with its output thrown away."""
    begun = time.perf_counter()
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, _, usage = os.wait4(process.pid, 0)
    process.returncode = 0
    return Cost(
        wall=time.perf_counter() - begun,
        processor=usage.ru_utime + usage.ru_stime,
        memory=usage.ru_maxrss * 1024,
    )


def unpacked(wheel: Path, folder: Path) -> list[str]:
    """The wheel's libraries, unpacked."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".so" in name.rpartition("/")[2]]
        return [archive.extract(name, folder) for name in names]


def measure_audit(wheel: Path) -> Cost:
    """The cost of the audit of one wheel."""
    argv = [sys.executable, "-m", "wheelfab", "audit", "--json", str(wheel)]
    times = REPEATED if wheel.stat().st_size < SMALL else 1
    return min((cost(argv) for _ in range(times)), key=lambda one: one.processor)


def measure_others(wheel: Path, cuobjdump: str | None) -> dict[str, Cost]:
    """The cost of each other tool for one wheel."""
    found = {"auditwheel show": cost([sys.executable, "-m", "auditwheel", "show", str(wheel)])}
    if cuobjdump is not None:
        with tempfile.TemporaryDirectory() as folder:
            each = [cost([cuobjdump, "-lelf", path]) for path in unpacked(wheel, Path(folder))]
        found["cuobjdump -lelf"] = Cost(
            wall=sum(one.wall for one in each),
            processor=sum(one.processor for one in each),
            memory=max((one.memory for one in each), default=0.0),
        )
    return found


def over_budget(size: int, own: Cost) -> list[str]:
    """In what the audit of a wheel of ``size`` bytes took more than it may."""
    allowed = SMALL_BUDGET if size < SMALL else max(MIDDLE_BUDGET, BUDGET * size / 1e6)
    over = []
    if own.processor > allowed:
        over.append(f"{own.processor:.2f} s of processor time, {allowed:.2f} s are allowed")
    if own.memory > MEMORY:
        over.append(f"{own.memory / 1e6:.0f} MB of memory, {MEMORY / 1e6:.0f} MB are allowed")
    return over


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheels", nargs="+", type=Path)
    parser.add_argument("--cuobjdump")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    start = cost([sys.executable, "-m", "wheelfab", "audit", "--explain", "archive-zip"])
    print(f"{'Python and imports':<18}{start}")
    late = False
    for wheel in options.wheels:
        print(f"{wheel.name} ({wheel.stat().st_size / 1e6:.1f} MB)")
        own = measure_audit(wheel)
        print(f"  {'wheelfab audit':<16}{own}", flush=True)
        for what in over_budget(wheel.stat().st_size, own):
            print(f"  over budget: {what}")
            late = True
        if not options.check:
            for tool, one in measure_others(wheel, options.cuobjdump).items():
                print(f"  {tool:<16}{one}")
    sys.exit(int(options.check and late))


if __name__ == "__main__":
    main()
