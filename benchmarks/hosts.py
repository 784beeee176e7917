"""Loads a second on a host, beside ``xargs -P`` running the same command.

    python benchmarks/hosts.py CELL [--count 60] [--rounds 3] [--no-container]

The same visits without torch are run by wheelfab and by xargs, in turns, on the bare host; in
a container, xargs starts ``docker exec``. Prints loads a second of each and the ratio of the best
rounds. Needs the cell's wheel, and a Docker engine unless ``--no-container``.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from wheelfab import machine
from wheelfab.containers import NoEngine, find_engine
from wheelfab.hosts.arrange import arrange
from wheelfab.hosts.crashes import Blame
from wheelfab.hosts.judge import Expected, expected_of, judge_fresh
from wheelfab.hosts.places import ContainerPlace, open_place
from wheelfab.hosts.run_hosts import select_hosts
from wheelfab.hosts.sites import Site, open_sites
from wheelfab.hosts.stay import Controls, HostOptions, Stay
from wheelfab.hosts.trips import Trip
from wheelfab.loops.cell import built_wheel
from wheelfab.matrix import load_matrix
from wheelfab.store import Store, default_root
from wheelfab.variant import expand, select


@dataclass(frozen=True, slots=True)
class Race:
    """One host that is up, and the visit that both sides make there."""

    stay: Stay
    trip: Trip
    expected: Expected
    count: int

    def ours(self) -> float:
        """Loads a second of wheelfab's pool; each is judged."""
        began = time.monotonic()
        with ThreadPoolExecutor(machine.cores()) as pool:
            visits = list(pool.map(lambda _: self.stay.visit(self.trip), range(self.count)))
        seconds = time.monotonic() - began
        assert not any(judge_fresh(visit, self.expected) for visit in visits)
        return self.count / seconds

    def xargs(self) -> float:
        """Loads a second of ``xargs -P`` with as many processes."""
        environment = self.stay.things.environment
        command = list(self.stay.argv(self.trip))
        if isinstance(self.stay.place, ContainerPlace):
            settings = [f"--env={name}={value}" for name, value in environment.items()]
            identifier = self.stay.place.container.id
            command = ["docker", "exec", *settings, identifier, *command]
        else:
            command = ["env", "-i", *(f"{k}={v}" for k, v in environment.items()), *command]
        numbers = "\n".join(map(str, range(self.count)))
        began = time.monotonic()
        subprocess.run(
            ["xargs", "-P", str(machine.cores()), "-I", "{}", *command],
            input=numbers.encode(),
            stdout=subprocess.DEVNULL,
            check=True,
        )
        return self.count / (time.monotonic() - began)


def main() -> None:
    """Race and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cell")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-container", action="store_true")
    options = parser.parse_args()
    matrix = load_matrix(Path("matrix.toml"))
    (cell,) = select(expand(matrix), [options.cell])
    (host,) = select_hosts(matrix, ["bare"])
    engine = None if options.no_container else find_engine(matrix.root)
    if isinstance(engine, NoEngine):
        raise SystemExit(engine.reason)
    with (
        tempfile.TemporaryDirectory() as at,
        open_sites(matrix, Store(default_root())) as sites,
    ):
        folder = Path(at)
        folder.chmod(0o755)
        site = sites.get(cell, built_wheel(matrix.root, cell), host.torch)
        assert isinstance(site, Site), site
        things = arrange(host, folder, folder / "libraries")
        with open_place(host, things, [site], engine, folder) as place:
            blame = Blame(matrix.root, lambda: open_place(host, things, [site], engine, folder))
            shared = (matrix, host, things, place, folder, HostOptions())
            stay = Stay(*shared, Controls(), blame, Event())
            race = Race(stay, stay.short(cell, site), expected_of(host, cell), options.count)
            race.ours()
            rounds = [(race.ours(), race.xargs()) for _ in range(options.rounds)]
    ours, xargs = (max(values) for values in zip(*rounds, strict=True))
    where = place.harness
    print(f"{where}: wheelfab {ours:.2f}, xargs {xargs:.2f} loads a second: {ours / xargs:.2f}")


if __name__ == "__main__":
    main()
