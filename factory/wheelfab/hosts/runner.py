"""Runs every host over every wheel: a host is brought up once, and each wheel is loaded there."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from wheelfab import console
from wheelfab.errors import FactoryError
from wheelfab.host import Host
from wheelfab.hosts.arrange import QEMU, arrange
from wheelfab.hosts.crashes import Blame
from wheelfab.hosts.places import DIAGNOSIS, open_place, possible
from wheelfab.hosts.report import HostResult, not_run
from wheelfab.hosts.sites import Site, Sites
from wheelfab.hosts.stay import Controls, HostOptions, Stay
from wheelfab.loops.report import Libraries
from wheelfab.model import Matrix
from wheelfab.run import stop_all
from wheelfab.variant import Cell
from wheelfab.wheel import Wheel

if TYPE_CHECKING:
    from wheelfab.containers import Engine


@dataclass(frozen=True, slots=True)
class HostRunner:
    """Runs hosts over wheels with what they share; compiled things are kept in ``libraries``."""

    matrix: Matrix
    wheels: Sequence[tuple[Cell, Wheel]]
    sites: Sites
    engine: Engine | None
    libraries: Path
    options: HostOptions
    stopping: Event = field(default_factory=Event)

    def run(
        self, hosts: Sequence[Host], keep: Callable[[Sequence[HostResult]], object]
    ) -> list[HostResult]:
        """The results in the order of hosts and wheels; ``keep`` gets each host's as it is done.

        Hosts whose loads only wait (``at-once``) take no core and run beside the others.
        """
        self._prepare(hosts)
        pool, waiting = ThreadPoolExecutor(self.options.jobs), ThreadPoolExecutor(1)
        with console.progress("hosts x wheels", len(hosts) * len(self.wheels)) as advance:
            futures = [
                (waiting if host.at_once > 1 else pool).submit(self._host, host, advance)
                for host in hosts
            ]
            try:
                for future in as_completed(futures):
                    keep(future.result())
                return [result for future in futures for result in future.result()]
            finally:
                self.stopping.set()  # hosts that are up make no further visit and go down
                for future in futures:
                    future.cancel()
                stop_all()
                for each in (pool, waiting):
                    each.shutdown(cancel_futures=True)

    def _prepare(self, hosts: Sequence[Host]) -> None:
        """Make the environments and images first, one after another: they are shared."""
        for choice in dict.fromkeys(host.torch for host in hosts):
            for cell, wheel in self.wheels:
                console.step(f"environment of {cell.id}, torch: {choice}")
                self.sites.get(cell, wheel, choice)
        if self.engine is not None:
            for image, base in dict.fromkeys((str(host.image), host.base) for host in hosts):
                self.engine.image(image, base)

    def _host(self, host: Host, advance: Callable[[], object]) -> list[HostResult]:
        """All wheels on one host; a host that cannot be brought up fails for each."""
        reason = possible(host, self.engine) or self._no_qemu(host)
        found: dict[str, Site | str] = {}
        for cell, wheel in self.wheels:
            wanted = not host.variants or cell.variant.name in host.variants
            other = "" if wanted else f"this host is for {', '.join(host.variants)}"
            found[cell.id] = reason or other or self.sites.get(cell, wheel, host.torch)
        ready = [site for site in found.values() if isinstance(site, Site)]
        results = [
            not_run(host, cell, wheel, site)
            for cell, wheel in self.wheels
            if not isinstance(site := found[cell.id], Site)
        ]
        for _ in results:
            advance()
        if ready:
            wheels = [pair for pair in self.wheels if isinstance(found[pair[0].id], Site)]
            results += self._loads(host, list(zip(wheels, ready, strict=True)), advance)
        return results

    def _loads(
        self,
        host: Host,
        wheels: Sequence[tuple[tuple[Cell, Wheel], Site]],
        advance: Callable[[], object],
    ) -> list[HostResult]:
        results = []
        sites = [site for _, site in wheels]
        with tempfile.TemporaryDirectory(prefix="wheelfab-host-", ignore_cleanup_errors=True) as at:
            folder = Path(at)
            folder.chmod(0o755)
            try:
                things = arrange(host, folder, self.libraries)
                if host.emulated:
                    made = (item.folder for item in self.options.emulations.values())
                    things = replace(things, folders=(*things.folders, *made))
                with open_place(host, things, sites, self.engine, folder) as place:
                    made_of = (host, things, sites, self.engine, folder)
                    again = partial(open_place, *made_of, image=DIAGNOSIS[host.image])
                    blame = Blame(self.matrix.root, again)
                    shared = (self.matrix, host, things, place, folder, self.options)
                    stay = Stay(*shared, Controls(), blame, self.stopping)
                    widest = max(wheels, key=_holds)
                    for (cell, wheel), site in wheels:
                        doctor = (cell, wheel) == widest[0]
                        results.append(stay.load(cell, wheel, site, doctor=doctor))
                        advance()
            except FactoryError as error:
                for (cell, wheel), _ in wheels[len(results) :]:
                    results.append(not_run(host, cell, wheel, "", failure=str(error)))
                    advance()
        return results

    def _no_qemu(self, host: Host) -> str:
        if host.cpu is None or shutil.which(QEMU) is not None:
            return ""
        return f"{QEMU} is not installed (Debian: qemu-user-static)"


def _holds(pair: tuple[tuple[Cell, Wheel], Site]) -> tuple[bool, bool]:
    """Whether a CUDA torch lies beside a wheel, and whether it holds device code itself."""
    (cell, _), site = pair
    return site.libraries is not Libraries.NONE, cell.variant.cuda is not None
