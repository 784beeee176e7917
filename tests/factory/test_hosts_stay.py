"""One wheel on one host, loaded in a place that plays what each visit does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from packaging.version import Version

from tests.factory.cellmaker import cells
from tests.factory.hostmaker import host
from tests.factory.matrixmaker import MATRIX, load
from tests.factory.wheelmaker import make_cell
from wheelfab.host import Host, Pollution, TorchChoice
from wheelfab.hosts.arrange import Arrangement
from wheelfab.hosts.crashes import Blame
from wheelfab.hosts.places import Harness, Place
from wheelfab.hosts.report import Beside, HostResult, host_digest
from wheelfab.hosts.sites import Site
from wheelfab.hosts.stay import Controls, HostOptions, Stay
from wheelfab.hosts.visits import MARK
from wheelfab.loops.report import Libraries
from wheelfab.run import Completed
from wheelfab.wheel import read_wheel

STATE = {"status": "driver_crashed", "reason": "SIGSEGV in cuInit"}
LOADS = """
[[project.load]]
stage = "torch"
run = "import torch"
needs-torch = true

[[project.load]]
stage = "libraries"
run = "demo.load()"
needs-torch = true
"""
DOCTOR = 'doctor = ["-m", "demo", "doctor"]\n\n'
Events = Sequence[Mapping[str, object]]


@dataclass
class Actor:
    """A place where each mode of a visit tells ``said``, then ``then``, and ends by ``codes``."""

    said: dict[str, Events]
    codes: dict[str, int | None]
    then: dict[str, Events]
    modes: list[str] = field(default_factory=list)
    limits: list[float] = field(default_factory=list)
    harness: Harness = Harness.PROCESS

    def run(self, argv: Sequence[str], environment: Mapping[str, str], timeout: float) -> Completed:
        """Play the visit that ``argv`` asks for."""
        del environment
        mode = argv[-1]
        if mode == "doctor":
            self.modes.append(mode)
            code = self.codes.get(mode, 1)
            return Completed(argv=(), returncode=code, stdout="{}", stderr="", seconds=timeout)
        self.modes.append(mode)
        self.limits.append(timeout)
        lines = [MARK + json.dumps(event) for event in self.said[mode]]
        self.said |= {mode: self.then.get(mode, self.said[mode])}
        code = self.codes.get(mode, 0)
        return Completed(
            argv=tuple(argv), returncode=code, stdout="\n".join(lines), stderr="", seconds=0.1
        )

    def python(self, site: Site) -> str:
        """Its interpreter."""
        return str(site.python)


def begun(*stages: str) -> list[dict[str, object]]:
    """Stages that were done, but for the last one, which was begun."""
    events: list[dict[str, object]] = [{"event": "start"}]
    for stage in stages:
        events += [
            {"event": "begin", "stage": stage},
            {"event": "stage", "stage": stage, "seconds": 0.1},
        ]
    return events[:-1]


def whole(*stages: str, forks: Sequence[int] = ()) -> list[dict[str, object]]:
    """A visit that did all ``stages``, asked for the state and came to its end."""
    return [
        *begun(*stages, ""),
        {"event": "state", "state": STATE, "seconds": 0.1},
        *(event for code in forks for event in forked(code)),
        {"event": "done", "torch": "2.4.1"},
    ]


def forked(code: int) -> list[dict[str, object]]:
    """A process that was forked, and told its state unless it died."""
    told = {"event": "forked", "status": "driver_crashed", "seconds": 0.1}
    return [*([told] if code == 0 else []), {"event": "fork", "returncode": code}]


FRESH = whole("package")
GOOD = whole("package", "torch", "libraries", forks=(0, 0))
CONTROL: Events = [
    *begun("import", "is_available", ""),
    {"event": "control"},
    {"event": "done"},
]

Loaded = Callable[..., tuple[HostResult, Actor]]


@pytest.fixture
def loaded(tmp_path: Path) -> Loaded:
    """Loads a wheel on a host where the visits end as given."""
    return lambda *given, **options: _loaded(tmp_path, *given, **options)


def _loaded(
    folder: Path,
    there: Host,
    said: dict[str, Events],
    codes: dict[str, int | None],
    *,
    doctor: bool = False,
    then: dict[str, Events] | None = None,
    **options: Any,
) -> tuple[HostResult, Actor]:
    text = MATRIX.replace('\n[torch."2.4"]', f'{LOADS}\n[torch."2.4"]', 1)
    matrix = load(folder, text.replace("[project.device]", f"{DOCTOR}[project.device]", 1))
    (cell,) = cells(("cu121-torch2.4",))
    site = Site(
        cell=cell.id,
        torch=Version("2.4.1"),
        libraries=Libraries.FULL,
        root=folder,
        python=folder / "python",
        packages=folder,
        overlays={},
    )
    place = Actor({"fresh": FRESH, "torch": GOOD, "control": CONTROL, **said}, codes, then or {})

    @contextmanager
    def again() -> Iterator[Place]:
        yield place

    stay = Stay(
        matrix,
        there,
        Arrangement(),
        place,
        folder,
        HostOptions(count=2, forked=2, **options),
        Controls(),
        Blame(folder, again),
        Event(),
    )
    monkey = pytest.MonkeyPatch()
    monkey.setattr(Blame, "report", lambda *_: "a report")
    try:
        wheel = read_wheel(make_cell(folder / "dist", cell.id))
        return stay.load(cell, wheel, site, doctor=doctor), place
    finally:
        monkey.undo()


DIES = host("dies", status="driver_crashed")
TORCH_ASKS: dict[str, Any] = {"control": begun("import", "is_available")}
TORCH_DIES: dict[str, Any] = {"control": begun("import")}


def test_a_wheel_that_passes(loaded: Loaded) -> None:
    result, place = loaded(DIES, {}, {})
    assert (result.failures, result.crashes) == ((), ())
    assert sorted(place.modes) == ["control", "fresh", "fresh", "torch"]
    assert (result.forked.made, result.forked.passed) == (2, 2)
    assert (result.beside, result.host_digest) == (Beside.PASSED, host_digest(DIES))


@pytest.mark.parametrize("stage", ["torch", "libraries"])
def test_a_load_that_dies_fails_where_torch_only_dies_when_it_is_asked(
    loaded: Loaded, stage: str
) -> None:
    stages = ("package", "torch", "libraries")
    dead = begun(*stages[: stages.index(stage) + 1])
    result, _ = loaded(DIES, TORCH_ASKS | {"torch": dead}, {"control": -11, "torch": -11})
    assert result.failures == (f"load with torch: stage {stage!r}: SIGSEGV",)
    assert result.crashes == ("a report",)
    assert result.control == "torch dies here: SIGSEGV in is_available()"


def test_forks_that_die_fail_where_torch_only_dies_when_it_is_asked(loaded: Loaded) -> None:
    forks = whole("package", "torch", "libraries", forks=(0, -11))
    result, _ = loaded(DIES, TORCH_ASKS | {"torch": forks}, {"control": -11})
    assert result.failures[0].startswith("load with torch: 1 of 2 forked processes ended badly")


def test_where_torch_cannot_be_imported_a_load_may_end_there_and_nowhere_else(
    loaded: Loaded,
) -> None:
    codes = {"control": -11, "torch": -11}
    result, _ = loaded(DIES, TORCH_DIES | {"torch": begun("package", "torch")}, codes)
    assert (result.failures, result.crashes) == ((), ())
    assert result.beside is Beside.EXCUSED
    assert result.control == "torch dies here: SIGSEGV in its import"
    result, _ = loaded(DIES, TORCH_DIES | {"torch": begun("package")}, codes)
    assert result.failures == ("load with torch: stage 'package': SIGSEGV",)
    assert result.beside is Beside.FAILED
    result, _ = loaded(DIES, TORCH_DIES | {"torch": begun("package", "torch", "libraries")}, codes)
    assert result.failures == ("load with torch: stage 'libraries': SIGSEGV",)


def test_an_import_of_torch_that_waits_is_given_time_before_it_counts_as_hung(
    loaded: Loaded,
) -> None:
    hangs = host("hangs", status="driver_crashed", at_once=2)
    _, place = loaded(hangs, TORCH_DIES, {"control": None})
    waited = zip(place.modes, place.limits, strict=True)
    assert [limit for mode, limit in waited if mode == "control"] == [15.0, 60.0]
    _, place = loaded(hangs, TORCH_ASKS, {"control": None})
    assert place.modes.count("control") == 1


def test_an_error_of_torch_is_the_hosts_own_where_older_libraries_are_in_front(
    loaded: Loaded,
) -> None:
    error = {"event": "error", "stage": "import", "error": "ImportError: libx"}
    said = {"control": [*begun("import"), error], "torch": begun("package", "torch")}
    polluted = host("polluted", status="driver_crashed", pollution=(Pollution.NVJITLINK,))
    result, _ = loaded(polluted, said, {"control": 1, "torch": 1})
    assert result.failures == ()
    result, _ = loaded(DIES, said, {"control": 1, "torch": 1})
    assert result.failures[0] == "torch fails here: stage 'import': ImportError: libx"
    assert result.failures[1].startswith("load with torch: stage 'torch'")


def test_deep_loads_have_torch_where_it_can_be_imported(loaded: Loaded) -> None:
    result, place = loaded(DIES, TORCH_ASKS, {"control": -11}, deep=True)
    assert (result.deep, place.modes.count("torch")) == (True, 3)
    result, place = loaded(DIES, TORCH_DIES, {"control": -11}, deep=True)
    assert (result.deep, place.modes.count("torch")) == (False, 1)


def test_the_control_is_run_beside_another_series_too(loaded: Loaded) -> None:
    said = {"torch": [*begun("package"), {"event": "error", "stage": "x", "error": "built for"}]}
    other = host("other", status="driver_crashed", torch=TorchChoice.OTHER, error=("built for",))
    result, place = loaded(other, said, {"torch": 1})
    assert (result.failures, result.control) == ((), "is_available() is False")
    assert result.beside is Beside.ERROR
    assert place.modes.count("control") == 1


def test_the_projects_own_report_on_the_machine_must_end_by_itself_in_30_seconds(
    loaded: Loaded,
) -> None:
    result, place = loaded(DIES, {}, {}, doctor=True)
    assert (place.modes[-1], result.doctor, result.failures) == ("doctor", "exit 1, 30.0 s", ())
    result, _ = loaded(DIES, {}, {"doctor": None}, doctor=True)
    assert result.failures == ("doctor: timed out",)
    result, _ = loaded(host("old", status="driver_crashed", cpu="Nehalem"), {}, {}, doctor=True)
    assert result.doctor == ""


def test_a_fork_that_does_not_tell_the_state_fails(loaded: Loaded) -> None:
    mute = [event for event in GOOD if event["event"] != "forked"]
    result, _ = loaded(DIES, {"torch": mute}, {})
    assert result.failures == ("load with torch: its forked processes gave 0 states, not 2",)


def test_a_state_that_is_late_twice_fails(loaded: Loaded) -> None:
    late = [event | {"seconds": 31.0} if event["event"] == "state" else event for event in FRESH]
    result, place = loaded(DIES, {"fresh": late}, {})
    assert place.modes.count("fresh") == 4
    assert result.fresh.passed == 0
    assert result.failures == 2 * (
        "load without torch: the state took 31.00 s where 30.5 s is the limit",
    )


def test_a_state_that_is_late_once_is_the_machines(loaded: Loaded) -> None:
    fork = {"event": "forked", "status": "driver_crashed", "seconds": 31.0}
    late = [fork if event["event"] == "forked" else event for event in GOOD]
    result, place = loaded(DIES, {"torch": late}, {}, then={"torch": GOOD})
    assert (place.modes.count("torch"), result.failures) == (2, ())
