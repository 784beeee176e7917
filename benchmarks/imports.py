"""What importing freewheel costs, in fresh interpreters.

    python benchmarks/imports.py [--count 30] [--check]

Medians of ``--count`` interpreters, run in turn so that a busy moment hits all alike: bare, with
``import freewheel``, with ``import torch``, and with torch and the loaded libraries. With
``--check`` the exit code is 1 when freewheel adds more than 30 ms to either.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

BUDGET_MS = 30.0
PROGRAMS = {
    "bare interpreter": "pass",
    "import freewheel": "import freewheel",
    "import torch": "import torch",
    "torch, freewheel.load()": "import torch, freewheel; freewheel.load()",
}


def milliseconds(program: str) -> float:
    """The wall time of one interpreter."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True)
    return (time.perf_counter() - start) * 1e3


def main() -> int:
    """Print the table; 1 when ``--check`` is given and a budget is not met."""
    parser = argparse.ArgumentParser(description="What importing freewheel costs.")
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    times: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for program in PROGRAMS.values():
        milliseconds(program)
    for _ in range(options.count):
        for name, program in PROGRAMS.items():
            times[name].append(milliseconds(program))
    medians = {name: statistics.median(values) for name, values in times.items()}
    print(f"milliseconds, medians of {options.count} interpreters, budget {BUDGET_MS:.0f}")
    for name, median in medians.items():
        print(f"{name:24} {median:8.1f}")
    package = medians["import freewheel"] - medians["bare interpreter"]
    libraries = medians["torch, freewheel.load()"] - medians["import torch"]
    print(f"{'package adds':24} {package:8.1f}\n{'package and libraries add':24} {libraries:7.1f}")
    within = max(package, libraries) <= BUDGET_MS
    return 0 if within or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
