"""What the line costs when there is nothing to do.

    python benchmarks/factory.py [--count 10] [--check]

Builds once, then medians of ``--count`` runs in turn: ``wheelfab build`` again, ``nox --list``,
``nox -s plan``. With ``--check`` the exit code is 1 when the second build takes a second or more,
or the session more than a second over the list. nox and wheelfab's requirements must be installed
beside this Python. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ("wheelfab", "build")
COMMANDS = {
    "second wheelfab build": BUILD,
    "nox --list": ("nox", "--list"),
    "nox -s plan": ("nox", "-s", "plan"),
}
BUDGET = 1.0


def seconds(module: str, *arguments: str) -> float:
    """The wall time of one command that must succeed."""
    paths = [str(ROOT / "factory"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", module, *arguments]
    start = time.perf_counter()
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    return time.perf_counter() - start


def main() -> int:
    """Print the table; 1 when ``--check`` is given and a budget is not met."""
    parser = argparse.ArgumentParser(description="What the line costs with nothing to do.")
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    seconds(*BUILD)
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(options.count):
        for name, command in COMMANDS.items():
            times[name].append(seconds(*command))
    medians = {name: statistics.median(values) for name, values in times.items()}
    medians["plan over the list"] = medians["nox -s plan"] - medians["nox --list"]
    print(f"seconds, medians of {options.count}, budgets {BUDGET:.0f}")
    for name, median in medians.items():
        print(f"{name:24} {median:6.2f}")
    within = medians["second wheelfab build"] < BUDGET and medians["plan over the list"] <= BUDGET
    return 0 if within or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
