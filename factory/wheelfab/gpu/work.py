"""The work on a footing for one wheel: ask for its devices, load it, exercise each device."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wheelfab import console, machine
from wheelfab.errors import HarnessError, NoDeviceError
from wheelfab.gpu.exercised import Exercise, read_exercise
from wheelfab.gpu.ground import EXERCISE, Footing
from wheelfab.hosts.arrange import VISIT, Emulation
from wheelfab.hosts.sites import Site
from wheelfab.hosts.visits import Visit, read_visit
from wheelfab.model import DeviceRun, Project
from wheelfab.records import write_json

_LOAD_TIMEOUT = 120.0  # seconds of a fresh load
_WARM = 10  # launches before memory is first looked at
_AT_ONCE = 4  # fresh loads, on as many cores


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """One wheel in its environment, on a footing."""

    project: Project
    footing: Footing
    site: Site

    def ask(self) -> Visit:
        """Ask the extension for the hardware, in a child, without torch."""
        return self._visit(self._plan("ask", ()), "fresh")

    def load(self, count: int) -> list[Visit]:
        """``count`` loads with torch, each in a fresh interpreter."""
        stages = [(item.stage, item.run, item.needs_torch) for item in self.project.load]
        plan = self._plan("load", stages)
        visits = []
        with (
            console.progress(f"{self.site.cell}: fresh loads", count) as advance,
            ThreadPoolExecutor(min(_AT_ONCE, machine.cores())) as pool,
        ):
            for visit in pool.map(lambda _: self._visit(plan, "torch"), range(count)):
                visits.append(visit)
                advance()
        return visits

    def exercise(
        self,
        images: Mapping[int, str],
        device_run: DeviceRun,
        *,
        soak: int,
        timeout: float,
        emulation: Emulation | None,
    ) -> Exercise:
        """The operation and a soak of ``soak`` launches on each device in ``images``."""
        console.step(f"{self.site.cell}: {len(images)} devices, {soak} launches each")
        plan = self._write(
            "exercise",
            {
                "schema": 1,
                "before": emulation.before if emulation is not None else "",
                "stages": [(item.stage, item.run) for item in self.project.load],
                "ordinals": list(images),
                "operation": device_run.operation,
                "launch": device_run.launch,
                "warm": _WARM,
                "launches": soak,
            },
        )
        extra = emulation.environment if emulation is not None else {}
        argv = (self.footing.place.python(self.site), str(EXERCISE), str(plan))
        environment = {**self.footing.environment, **extra}
        done = self.footing.place.run(argv, environment, timeout)
        return read_exercise(done, images, soak)

    def _visit(self, plan: Path, mode: str) -> Visit:
        argv = (self.footing.place.python(self.site), str(VISIT), str(plan), mode)
        return read_visit(self.footing.place.run(argv, self.footing.environment, _LOAD_TIMEOUT))

    def _plan(self, name: str, stages: Sequence[tuple[str, str, bool]]) -> Path:
        record = {"schema": 1, "stages": stages, "state": self.project.state, "later": []}
        return self._write(name, record | {"way": "plain", "before": "", "forks": 0})

    def _write(self, name: str, record: Mapping[str, object]) -> Path:
        path = self.footing.folder / f"{name}.json"
        write_json(path, record)
        path.chmod(0o644)  # who loads is not who writes
        return path


def ready_state(visit: Visit) -> Mapping[str, Any] | None:
    """What the extension said of the hardware, if that is ready."""
    state = visit.state
    return state if state is not None and state.get("status") == "ready" else None


def no_device(visit: Visit) -> NoDeviceError:
    """Why no GPU answers, in a sentence, with the extension's own next step."""
    if visit.state is None:
        return NoDeviceError(f"no GPU answers: asking for one: {_line(visit.trouble)}")
    status, reason = visit.state.get("status"), _line(str(visit.state.get("reason", "")))
    next_step = _line(str(visit.state.get("next_step", "")))
    return NoDeviceError(f"no GPU answers ({status}): {reason}", next_step=next_step)


def images_of(state: Mapping[str, Any]) -> dict[int, str]:
    """The devices that the wheel has code for, each with its image.

    Raises ``HarnessError`` when a state that is ready names none.
    """
    images = state.get("images")
    found = {
        ordinal: str(image)
        for ordinal, image in enumerate(images if isinstance(images, list) else ())
        if image not in (None, "", "none")
    }
    if not found:
        raise HarnessError(
            f"the state is ready, but names no device that can be used: {json.dumps(images)[:200]}",
            where="matrix.toml: project.state",
        )
    return found


def load_failure(visit: Visit) -> str:
    """Why a fresh load is not good, or ``""``."""
    if not visit.passed:
        return visit.trouble
    status = (visit.state or {}).get("status")
    return "" if status == "ready" else f"state {status!r} after loading, not 'ready'"


def _line(text: str) -> str:
    return " ".join(text.split())
