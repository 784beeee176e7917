"""What asking about the hardware costs, beside what it is made of.

    python benchmarks/device.py [--driver FOLDER] [--count 200] [--check]

Least times of ``--count`` rounds: the cached answer, the layer of files, a whole state without a
driver, and with ``--driver`` (a folder with a ``libcuda.so.1``, such as the fake one) a whole state
through the program, against the program's bare start and the driver's own time in a process. With
``--check`` the exit code is 1 when a budget is not met. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import timeit
from collections.abc import Callable

BUDGETS_US = {
    "cached answer": 1.0,
    "files": 100.0,
    "state without a driver": 1000.0,
    "state over the driver": 10_000.0,
}
BARE = """
import ctypes, time
begun = time.perf_counter()
cuda, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
cuda.cuInit(0), cuda.cuDeviceGetCount(ctypes.byref(count))
print(time.perf_counter() - begun)
"""


def least(work: Callable[[], object], count: int, number: int = 1) -> float:
    """Microseconds of one call, the least of ``count`` rounds."""
    return min(timeit.repeat(work, number=number, repeat=count)) / number * 1e6


def measure(count: int, driver: str | None) -> dict[str, float]:
    """Microseconds by name. With a driver, this process must have been started for it."""
    from freewheel import device
    from freewheel.device.files import read_files

    environment = dict(os.environ)
    device.state()
    found = {
        "cached answer": least(device.state, count, number=1000),
        "files": least(lambda: read_files(environment), count),
    }
    whole = least(lambda: device.state(fresh=True), min(count, 50))
    if driver is None:
        if device.state().asked.value == "not asked":
            found["state without a driver"] = whole
        return found
    command = [sys.executable, "-c", BARE]
    runs = [subprocess.run(command, check=True, capture_output=True) for _ in range(10)]
    own = min(float(done.stdout) for done in runs) * 1e6
    found |= {"state through the program": whole, "driver's own time": own}
    found["state over the driver"] = whole - own
    return found


def main() -> int:
    """Print the table; 1 when ``--check`` is given and a budget is not met."""
    parser = argparse.ArgumentParser(description="What asking about the hardware costs.")
    parser.add_argument("--driver", help="a folder with a libcuda.so.1")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    if options.driver is not None and os.environ.get("LD_LIBRARY_PATH") != options.driver:
        environment = {**os.environ, "LD_LIBRARY_PATH": options.driver}
        return subprocess.run([sys.executable, *sys.argv], env=environment, check=False).returncode
    found = measure(options.count, options.driver)
    print(f"{'microseconds, least of rounds':32} {'time':>10} {'budget':>10}")
    for name, value in found.items():
        budget = BUDGETS_US.get(name)
        print(f"{name:32} {value:10.2f} {'' if budget is None else f'{budget:10.0f}'}")
    within = all(value <= BUDGETS_US.get(name, value) for name, value in found.items())
    return 0 if within or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
