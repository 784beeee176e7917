"""A host that is up, and the loads of one wheel after another on it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event

from wheelfab.errors import HarnessError
from wheelfab.host import Host
from wheelfab.hosts.arrange import QEMU, VISIT, Arrangement, Emulation
from wheelfab.hosts.crashes import Blame, Casualty
from wheelfab.hosts.judge import (
    IMPORT,
    Expected,
    control_words,
    doctor_trouble,
    expected_of,
    is_excused,
    is_explained,
    is_late,
    judge_fresh,
    judge_torch,
)
from wheelfab.hosts.places import DIAGNOSIS, Harness, Place
from wheelfab.hosts.report import Beside, Count, HostResult, host_digest
from wheelfab.hosts.sites import Site
from wheelfab.hosts.trips import Trip, plan_of, stages_of, usable_of, write_plan
from wheelfab.hosts.visits import Visit, read_visit
from wheelfab.model import Matrix
from wheelfab.records import read_json
from wheelfab.run import Completed
from wheelfab.variant import Cell
from wheelfab.wheel import Wheel

_DOCTOR_TIMEOUT = 30.0
_CONTROL_TIMEOUT = 60.0  # seconds of torch alone
_KEPT = 15.0  # seconds of it on a host where loads only wait
_QEMU_TIMES = 10.0
_USUAL = 20  # fresh loads, and forked ones
TORCH_FIRST = "torch before all"  # what visit.py calls its import in that way of importing


@dataclass(frozen=True, kw_only=True, slots=True)
class HostOptions:
    """How to run hosts.

    ``count`` and ``forked`` are loads a wheel, 20 if ``None``; ``jobs`` hosts run at a time;
    ``deep`` puts torch into all fresh loads; ``emulations`` are there by torch release.
    """

    count: int | None = None
    forked: int | None = None
    jobs: int = 2
    deep: bool = False
    emulations: Mapping[str, Emulation] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Controls:
    """What torch alone did on a host, asked once for each release."""

    known: dict[str, Visit] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stay:
    """Loads wheels on one host."""

    matrix: Matrix
    host: Host
    things: Arrangement
    place: Place
    folder: Path
    options: HostOptions
    controls: Controls
    blame: Blame
    stopping: Event

    def load(self, cell: Cell, wheel: Wheel, site: Site, *, doctor: bool = False) -> HostResult:
        """All loads of a wheel: the control, fresh ones, one with torch and its forks.

        With ``doctor`` the project's own command looks at the host too.
        """
        began = time.monotonic()
        expected = expected_of(self.host, cell, site.torch)
        emulation = self._emulation(cell, site)
        control = self._control(site)
        alive = control is None or control.passed or control.began != IMPORT
        deep = self.options.deep and alive and not expected.error
        short = self.short(cell, site, "torch" if deep else "fresh")
        long = Trip(
            site=site, plan=self._plan(cell, expected, emulation), mode="torch", emulation=emulation
        )
        fresh, last = self._fresh(short, expected), self._in_time(long, expected)
        wrong = [(visit, text) for visit in fresh if (text := judge_fresh(visit, expected))]
        failures = [f"load without torch: {text}" for _, text in wrong]
        crashes = [self._crash(short, visit) for visit, _ in wrong]
        used = emulation is not None and bool(usable_of(expected))
        trouble = judge_torch(last, self._with_forks(expected, used=used))
        if control is not None and not control.passed and not is_explained(control, self.host):
            failures.append(control_words(control))
        beside = self._beside(last, control, trouble, expected)
        if beside is Beside.FAILED:
            failures.append(f"load with torch: {trouble}")
            crashes.append(self._crash(long, last))
        answer = self._doctor(site) if doctor else None
        if answer is not None and (bad := doctor_trouble(answer)):
            failures.append(f"doctor: {bad}")
        return HostResult(
            host=self.host.name,
            host_digest=host_digest(self.host),
            cell=cell.id,
            wheel=wheel.file,
            sha256=wheel.sha256,
            torch=last.torch or str(site.torch or "none"),
            libraries=str(site.libraries),
            harness=str(self.place.harness),
            base=self.host.base if self.place.harness is Harness.CONTAINER else "",
            deep=deep,
            expected=expected.text,
            fresh=Count(made=len(fresh), passed=len(fresh) - len(wrong)),
            with_torch=self._words(last, trouble, beside, emulated=used),
            beside=beside,
            emulated=beside is Beside.PASSED and used,
            forked=Count(made=len(last.forks), passed=sum(code == 0 for code in last.forks)),
            control=control_words(control) if control is not None else "",
            doctor=f"{answer.ending}, {answer.seconds:.1f} s" if answer is not None else "",
            **_said(fresh[0].state or last.state or {}),
            seconds=time.monotonic() - began,
            failures=tuple(failures),
            crashes=tuple(dict.fromkeys(filter(None, crashes))),
            not_run="",
        )

    def short(self, cell: Cell, site: Site, mode: str = "fresh") -> Trip:
        """A visit without forks."""
        plan = self._plan(cell, expected_of(self.host, cell), None, forks=0)
        return Trip(site=site, plan=plan, mode=mode)

    def _beside(
        self, load: Visit, control: Visit | None, trouble: str, expected: Expected
    ) -> Beside:
        """What became of the load with torch."""
        if not trouble:
            return Beside.ERROR if expected.error else Beside.PASSED
        excused = not expected.error and self._excused(load, control)
        return Beside.EXCUSED if excused else Beside.FAILED

    def _excused(self, load: Visit, control: Visit | None) -> bool:
        """Whether ``load`` may fail where it did, since torch alone cannot be imported."""
        first = [stage.stage for stage in self.matrix.project.load if stage.needs_torch][:1]
        return is_excused(load, control, self.host, (TORCH_FIRST, *first))

    def _crash(self, trip: Trip, visit: Visit) -> str:
        """The report of a visit that a signal or the time limit ended, or a fork of it."""
        if not visit.died and not visit.fork_died:
            return ""
        argv = self.argv(trip)
        container = self.place.harness is Harness.CONTAINER
        return self.blame.report(
            Casualty(
                visit=visit,
                cell=trip.site.cell,
                argv=argv,
                python=argv[: argv.index(str(VISIT))],
                environment=self._environment(trip),
                plan=read_json(trip.plan),
                mode=trip.mode,
                where=f"{self.place.harness} {self.host.base}, host {self.host.name}, "
                f"{trip.site.cell}",
                container=f" in `wheelfab container {DIAGNOSIS[self.host.image]} "
                f"--base {self.host.base}`"
                if container
                else "",
            )
        )

    def _words(self, visit: Visit, trouble: str, beside: Beside, *, emulated: bool) -> str:
        """What the load with torch did, in short."""
        if trouble:
            return trouble
        if beside is Beside.ERROR:
            return f"clear error: {visit.error}"
        if self.host.emulated and not emulated:
            return "passes; its devices were not emulated"
        return "passes, on each device too" if emulated else "passes"

    def _emulation(self, cell: Cell, site: Site) -> Emulation | None:
        if not self.host.emulated or cell.variant.cuda is None:
            return None
        return self.options.emulations.get(str(site.torch))

    def _plan(
        self,
        cell: Cell,
        expected: Expected,
        emulation: Emulation | None,
        *,
        forks: int | None = None,
    ) -> Path:
        stages = stages_of(self.matrix.project, expected, emulation)
        path = self.folder / f"{cell.id}-{len(stages)}-{forks}.json"
        count = self._forks(expected) if forks is None else forks
        write_plan(path, plan_of(self.matrix.project, self.host, stages, emulation, count))
        return path

    def _forks(self, expected: Expected) -> int:
        """How many processes are forked from a load with torch."""
        if expected.error:
            return 0
        return _USUAL if self.options.forked is None else self.options.forked

    def _with_forks(self, expected: Expected, *, used: bool) -> Expected:
        """The answer of a load with torch, whose forks may come after the use of a device."""
        forked = self.host.expect.forked if used else ""
        return replace(expected, forks=self._forks(expected), forked=forked)

    def _doctor(self, site: Site) -> Completed | None:
        """The project's command that reports on the machine; emulators are too slow for it."""
        arguments = self.matrix.project.doctor
        if not arguments or self.host.cpu is not None:
            return None
        argv = (self.place.python(site), *self.host.python, *arguments)
        return self.place.run(argv, self.things.environment, _DOCTOR_TIMEOUT)

    def _in_time(self, trip: Trip, expected: Expected) -> Visit:
        """A visit, and another one instead where a state was late: once it may be the machine."""
        visit = self.visit(trip)
        return self.visit(trip) if is_late(visit, expected) else visit

    def _fresh(self, trip: Trip, expected: Expected) -> list[Visit]:
        count = self.options.count or self.host.count or _USUAL
        if self.host.at_once == 1:
            return [self._in_time(trip, expected) for _ in range(count)]
        with ThreadPoolExecutor(self.host.at_once) as pool:
            return list(pool.map(lambda _: self._in_time(trip, expected), range(count)))

    def _control(self, site: Site) -> Visit | None:
        """Torch alone: once a release on this host, since no wheel takes part."""
        if site.torch is None:
            return None
        key = str(site.torch)
        if key not in self.controls.known:
            plan = self.folder / "control.json"
            write_plan(plan, {})
            kept = _CONTROL_TIMEOUT if self.host.at_once == 1 else _KEPT
            trip = Trip(site=site, plan=plan, mode="control", limit=kept)
            control = self.visit(trip)
            if control.returncode is None and control.began == IMPORT:  # it may only be slow
                control = self.visit(replace(trip, limit=_CONTROL_TIMEOUT))
            self.controls.known[key] = control
        return self.controls.known[key]

    def visit(self, trip: Trip) -> Visit:
        """Make one visit and read what it said; none any more once the run is stopped."""
        if self.stopping.is_set():
            raise HarnessError("the run was stopped", where=f"host {self.host.name}")
        limit = trip.limit * (_QEMU_TIMES if self.host.cpu else 1.0)
        return read_visit(self.place.run(self.argv(trip), self._environment(trip), limit))

    def argv(self, trip: Trip) -> tuple[str, ...]:
        """The command line of a visit."""
        python = self.place.python(trip.site)
        argv = (python, *self.host.python, str(VISIT), str(trip.plan), trip.mode)
        if self.host.cpu is None:
            return argv
        return (shutil.which(QEMU) or QEMU, "-cpu", self.host.cpu, *argv)

    def _environment(self, trip: Trip) -> dict[str, str]:
        extra = trip.emulation.environment if trip.emulation is not None else {}
        return {**self.things.environment, **extra}


def _said(state: Mapping[str, object]) -> dict[str, str]:
    """What the extension said, as far as the report keeps it."""
    return {key: str(state.get(key, "")) for key in ("status", "reason", "next_step")}
