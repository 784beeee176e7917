"""From wheels and hosts to the report: the engine, the emulation, the run, the record."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from wheelfab import console, crash
from wheelfab.errors import UsageError
from wheelfab.host import HERE, Host, TorchChoice
from wheelfab.hosts.arrange import Emulation, make_emulation
from wheelfab.hosts.report import COLUMNS, HostResult, Run, Verdict, rows, write_report
from wheelfab.hosts.runner import HostRunner
from wheelfab.hosts.sites import Site, Sites, open_sites
from wheelfab.hosts.stay import HostOptions
from wheelfab.loops.report import Libraries, this_machine
from wheelfab.model import Matrix
from wheelfab.store import Store, default_root
from wheelfab.suggest import did_you_mean
from wheelfab.variant import Cell
from wheelfab.wheel import Wheel

if TYPE_CHECKING:
    from wheelfab.containers import Engine


def select_hosts(matrix: Matrix, names: Sequence[str]) -> tuple[Host, ...]:
    """The hosts, or those of all in a group, that are named; all without a name.

    Raises ``UsageError`` for a name that is none.
    """
    if not names:
        return matrix.hosts
    known = {host.name for host in matrix.hosts} | {host.group for host in matrix.hosts}
    for name in names:
        if name not in known:
            hint = (
                did_you_mean(name, sorted(known)) or f"matrix.toml has: {', '.join(sorted(known))}"
            )
            raise UsageError(f"no host {name!r}", next_step=f"{hint}, or {HERE!r}")
    return tuple(host for host in matrix.hosts if {host.name, host.group} & set(names))


def run_hosts(
    matrix: Matrix,
    wheels: Sequence[tuple[Cell, Wheel]],
    hosts: Sequence[Host],
    options: HostOptions,
    engine: Engine | None,
) -> list[HostResult]:
    """Load each of the ``wheels`` on each host; write ``build/hosts/report.json`` after each host.

    What is not as expected is in the results. Raises ``HarnessError`` when the run itself breaks.
    """
    began = time.monotonic()
    store = Store(default_root())
    libraries = matrix.root / "build" / "hosts" / "libraries"
    with open_sites(matrix, store) as sites:
        if any(host.emulated for host in hosts):
            options = replace(options, emulations=_emulations(matrix, wheels, sites))
        runner = HostRunner(matrix, wheels, sites, engine, libraries, options)
        done: list[HostResult] = []

        def keep(results: Sequence[HostResult]) -> None:
            done.extend(results)
            pairs = sum(not result.not_run for result in done)
            run = Run(seconds=time.monotonic() - began, jobs=options.jobs, pairs=pairs)
            write_report(matrix.root, done, matrix.hosts, this_machine(), run)

        return runner.run(hosts, keep)


def show_results(results: Sequence[HostResult]) -> None:
    """Show a table of the results, then what was not as expected."""
    console.table(COLUMNS, rows(results))
    for result in results:
        for failure in result.failures:
            console.error(f"{result.cell} on {result.host}: {failure}")
    crashes = [Path(path) for result in results for path in result.crashes]
    if crashes:
        console.table(crash.COLUMNS, crash.rows(crashes), title="Crashes")
    counts = {verdict: sum(result.verdict is verdict for result in results) for verdict in Verdict}
    console.note(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))


def _emulations(
    matrix: Matrix, wheels: Sequence[tuple[Cell, Wheel]], sites: Sites
) -> dict[str, Emulation]:
    """An emulation for each torch release among the wheels' that can have one."""
    made: dict[str, Emulation] = {}
    device_run = matrix.project.device_run
    for cell, wheel in wheels:
        site = sites.get(cell, wheel, TorchChoice.OWN)
        if device_run is None or not isinstance(site, Site) or str(site.torch) in made:
            continue
        if site.libraries is not Libraries.NONE:
            console.note(f"torch {site.torch} is a CUDA build: its devices are not emulated")
            continue
        folder = matrix.root / "build" / "hosts" / f"emulation-{site.torch}"
        packages = site.packages / "torch"
        console.step(f"making the emulation of devices for torch {site.torch}")
        made[str(site.torch)] = make_emulation(
            device_run, matrix.root, Path(sys.executable), packages, folder
        )
    return made
