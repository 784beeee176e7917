"""The loop on devices: what is good, what is on a device, and what it says without one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.factory.cellmaker import build_cell, cells
from tests.factory.matrixmaker import changed, load
from wheelfab.containers import ContainerOptions
from wheelfab.errors import HarnessError, NoDeviceError, UsageError
from wheelfab.gpu import GpuOptions, GpuResult, OnDevice, gpu_loop, show_results
from wheelfab.gpu.exercise import MARK
from wheelfab.gpu.exercised import (
    DRIVER_TOLERANCE,
    TORCH_TOLERANCE,
    Exercise,
    Memory,
    growth_failure,
    read_exercise,
)
from wheelfab.gpu.exercised import MARK as READ_MARK
from wheelfab.gpu.ground import EXERCISE, open_footing
from wheelfab.gpu.loop import unfit, usable_engine
from wheelfab.gpu.report import NOTHING_ON_A_DEVICE, Ground, plain, report_path, rows, write_result
from wheelfab.gpu.work import images_of, load_failure, no_device, ready_state
from wheelfab.hosts.report import Count
from wheelfab.hosts.sites import Site
from wheelfab.hosts.visits import Visit, read_visit
from wheelfab.loops.report import Libraries
from wheelfab.run import Completed
from wheelfab.toolchain.torch import TorchTree

GIB = 1 << 30
IMAGES = {0: "8.0", 1: "9.0"}
RUN = """
[project.device-run]
operation = "pass"
launch = "pass"
"""


def completed(events: list[dict[str, Any]], returncode: int | None = 0, err: str = "") -> Completed:
    """A process that sent ``events``."""
    out = "noise\n" + "".join(f"{MARK}{json.dumps(event)}\n" for event in events)
    return Completed(argv=("x",), returncode=returncode, stdout=out, stderr=err, seconds=1.0)


def memory(ordinal: int, when: str, free: int = 15 * GIB, **others: Any) -> dict[str, Any]:
    """The event of a look at the memory."""
    usual = {"total": 16 * GIB, "allocated": None, "host": 1000}
    place = {"event": "memory", "ordinal": ordinal, "when": when, "free": free}
    return {**place, **usual, **others}


def on_device(ordinal: int, launches: int = 5, **after: Any) -> list[dict[str, Any]]:
    """The events of a device that does everything."""
    return [
        {"event": "begin", "ordinal": ordinal, "what": "operation"},
        {"event": "operation", "ordinal": ordinal, "seconds": 0.5},
        {"event": "begin", "ordinal": ordinal, "what": "soak"},
        memory(ordinal, "before"),
        {"event": "soak", "ordinal": ordinal, "launches": launches, "seconds": 1.5},
        memory(ordinal, "after", **after),
    ]


DONE = {"event": "done", "torch": "2.13.0"}


def read(events: list[dict[str, Any]], returncode: int | None = 0, err: str = "") -> Exercise:
    """The exercise of two devices with five launches each."""
    return read_exercise(completed(events, returncode, err), IMAGES, 5)


def failures(found: Exercise) -> list[str]:
    """The failure of each device."""
    return [device.failure for device in found.devices]


def test_the_two_sides_agree_on_the_mark() -> None:
    assert MARK == READ_MARK


def test_what_was_done_on_each_device_is_read() -> None:
    found = read([*on_device(0), *on_device(1), DONE])
    assert failures(found) == ["", ""]
    assert (found.torch, found.failure) == ("2.13.0", "")
    assert [(item.image, item.launches, item.growth) for item in found.devices] == [
        ("8.0", 5, 0),
        ("9.0", 5, 0),
    ]


def test_a_process_that_said_nothing_proves_nothing() -> None:
    found = read([])
    assert failures(found) == ["exit 0", "exit 0"]
    assert failures(read([DONE])) == ["its operation was not run"] * 2


def test_what_ends_early_is_no_pass_and_names_where_it_was() -> None:
    events = [*on_device(0), *on_device(1)[:1]]
    found = read(events, -11)
    assert failures(found) == ["", "operation on device 1: SIGSEGV"]
    assert failures(read(events, None)) == ["", "operation on device 1: timed out"]
    assert failures(read(events, 3, "a\nlast words\n"))[1] == (
        "operation on device 1: exit 3: last words"
    )


def test_too_few_launches_are_no_soak() -> None:
    found = read([*on_device(0, launches=4), *on_device(1), DONE])
    assert failures(found) == ["4 of 5 launches were made", ""]


def test_a_soak_without_a_second_look_at_memory_is_none() -> None:
    found = read([*on_device(0)[:-1], *on_device(1), DONE])
    assert failures(found)[0] == "5 of 5 launches were made"


def test_an_error_names_its_launch_and_the_next_device_goes_on() -> None:
    wrong = [*on_device(0, launches=3)[:-1], {"event": "error", "ordinal": 0, "error": "E: no"}]
    found = read([*wrong, *on_device(1), DONE])
    assert failures(found) == ["launch 4 of 5: E: no", ""]
    early = [on_device(0)[0], {"event": "error", "ordinal": 0, "error": "E: no"}]
    assert failures(read([*early, *on_device(1), DONE])) == ["operation: E: no", ""]


def test_an_error_that_comes_with_the_end_of_the_soak() -> None:
    late = [*on_device(0)[:-1], {"event": "error", "ordinal": 0, "error": "E: no"}]
    assert failures(read([*late, *on_device(1), DONE])) == ["after the soak: E: no", ""]


def test_an_error_before_the_devices_fails_them_all() -> None:
    events = [
        {"event": "begin", "ordinal": None, "what": "torch"},
        {"event": "error", "ordinal": None, "error": "ImportError: torch"},
    ]
    assert failures(read(events, 1)) == ["stage 'torch': ImportError: torch"] * 2


def test_a_bad_end_after_good_devices_is_kept() -> None:
    found = read([*on_device(0), *on_device(1), DONE], -6)
    assert failures(found) == ["", ""]
    assert found.failure == "soak on device 1: SIGABRT"


def test_nonsense_in_the_output_is_passed_over() -> None:
    nonsense: list[Any] = [
        {"event": "operation", "ordinal": 7, "seconds": 1.0},
        {"event": "operation", "ordinal": 0, "seconds": "fast"},
        {"event": "memory", "ordinal": 0, "when": "never"},
        [],
    ]
    found = read([*nonsense, *on_device(0), *on_device(1), DONE])
    assert failures(found) == ["", ""]


@pytest.mark.parametrize(
    ("taken", "allocated", "words"),
    [
        (0, None, ""),
        (DRIVER_TOLERANCE, None, ""),
        (-GIB, None, ""),
        (DRIVER_TOLERANCE + 1, None, "the device's memory in use grew by 4194305 bytes in 5"),
        (0, TORCH_TOLERANCE, ""),
        (0, TORCH_TOLERANCE + 1, "torch's allocated grew by 65537 bytes in 5 launches"),
    ],
)
def test_memory_that_grows_is_a_failure(taken: int, allocated: int | None, words: str) -> None:
    before = Memory(free=9 * GIB, total=16 * GIB, allocated=0, host=0)
    after = Memory(free=9 * GIB - taken, total=16 * GIB, allocated=allocated, host=0)
    found = growth_failure(before, after, 5)
    assert found.startswith(words)
    assert bool(found) == bool(words)


def test_a_leak_is_found_in_what_was_read() -> None:
    found = read([*on_device(0, free=14 * GIB), *on_device(1), DONE])
    assert failures(found)[0].startswith(f"the device's memory in use grew by {GIB} bytes")
    assert found.devices[0].growth == GIB


def result(**others: Any) -> GpuResult:
    """A good result on a device, but for ``others``."""
    exercise = read([*on_device(0), *on_device(1), DONE])
    good = GpuResult(
        cell="cu121-torch2.10",
        wheel="x.whl",
        sha256="0" * 64,
        torch="2.13.0+cu126",
        libraries="full",
        harness=Ground.PROCESS,
        status="ready",
        reason="2 devices",
        fresh=Count(made=2, passed=2),
        soak=5,
        devices=exercise.devices,
        failures=(),
        seconds=1.0,
        not_run="",
    )
    return replace(good, **others)


def test_only_a_device_passes() -> None:
    assert result().on_device is OnDevice.PASSED
    assert result(harness=Ground.CONTAINER).on_device is OnDevice.PASSED
    assert result(failures=("no",)).on_device is OnDevice.FAILED
    for other in (
        result(harness=Ground.EMULATED),
        result(harness=Ground.EMULATED, failures=("no",)),
        result(harness=None, not_run="no torch", devices=()),
    ):
        assert other.on_device is OnDevice.UNTESTED
    assert not result(harness=None, not_run="no torch").good
    assert not result(devices=()).good


def test_an_emulated_result_says_so_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    emulated = result(harness=Ground.EMULATED)
    record = json.loads(write_result(tmp_path, emulated, None).read_text())
    assert (record["harness"], record["on_device"], record["good"]) == (
        "emulated",
        "untested",
        True,
    )
    assert "passed" not in json.dumps({**record, "fresh": None})
    assert report_path(tmp_path, "cu121-torch2.10").is_file()
    show_results([emulated])
    shown = capsys.readouterr().out
    assert NOTHING_ON_A_DEVICE in shown
    assert "passed" not in shown
    show_results([result()])
    assert NOTHING_ON_A_DEVICE not in capsys.readouterr().out


def test_rows_and_records_hold_each_device() -> None:
    assert [row[4:9] for row in rows(result())] == [
        ("0", "8.0", "right", "5 of 5, 1.5 s", "0 bytes"),
        ("1", "9.0", "right", "5 of 5, 1.5 s", "0 bytes"),
    ]
    (row,) = rows(result(harness=None, devices=(), not_run="no torch"))
    assert row[4:] == ("not run: no torch", "", "", "", "", "untested")
    assert plain(result())["devices"][0]["growth"] == 0


def visit(status: str | None, **others: Any) -> Visit:
    """What asking for the hardware gave."""
    lines: list[dict[str, Any]] = [{"event": "start", "mode": "fresh"}]
    if status is not None:
        state = {"status": status, "reason": "because\nof it", "next_step": "do this"}
        lines.append({"event": "state", "state": state | others, "seconds": 0.1})
        lines.append({"event": "done", "torch": None})
    out = "".join(f"@visit {json.dumps(line)}\n" for line in lines)
    code = 0 if status is not None else -11
    return read_visit(Completed(argv=(), returncode=code, stdout=out, stderr="", seconds=0.1))


def test_no_device_is_a_sentence_and_exit_code_5() -> None:
    error = no_device(visit("no_device"))
    assert str(error) == "no GPU answers (no_device): because of it; do this"
    assert error.exit_code == 5
    assert str(no_device(visit(None))) == "no GPU answers: asking for one: SIGSEGV"
    assert ready_state(visit("no_device")) is None
    assert ready_state(visit(None)) is None
    assert ready_state(visit("ready")) is not None


def test_a_load_is_good_when_it_passes_and_the_device_is_still_there() -> None:
    assert load_failure(visit("ready")) == ""
    assert load_failure(visit("busy")) == "state 'busy' after loading, not 'ready'"
    assert load_failure(visit(None)) == "SIGSEGV"


def test_the_devices_that_can_be_used() -> None:
    assert images_of({"images": ["8.6", None, "none", "8.9"]}) == {0: "8.6", 3: "8.9"}
    for images in ([], [None], None, "8.0"):
        with pytest.raises(HarnessError, match="names no device"):
            images_of({"images": images})


def tree(cuda: str | None) -> TorchTree:
    """An unpacked torch."""
    names = ("release", "version", "python", "file", "sha256", "source")
    return TorchTree(root=Path(), cuda=cuda, cxx11_abi=True, **dict.fromkeys(names, "2.13.0"))


def test_each_kind_of_torch_is_for_one_kind_of_device() -> None:
    assert unfit(tree("12.6"), emulated=False) == unfit(tree(None), emulated=True) == ""
    assert "--torch-index" in unfit(tree(None), emulated=False)
    assert "needs a CPU build" in unfit(tree("12.6"), emulated=True)


def test_a_wheel_whose_torch_does_not_fit_is_not_run_and_not_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = ('size-budget = "40 MB"', 'size-budget = "40 MB"\nstate = "result = {}"')
    matrix = load(tmp_path, changed(state, ("\n[project.device]", f"{RUN}\n[project.device]")))
    build_cell(tmp_path, "cu121-torch2.10")
    monkeypatch.setenv("WHEELFAB_STORE", str(tmp_path / "store"))
    monkeypatch.setattr("wheelfab.gpu.loop.torch_tree", lambda *_, **__: tree(None))
    monkeypatch.setattr("wheelfab.gpu.loop._Looper.ask", lambda *_: None)  # a device answers
    (found,) = gpu_loop(matrix, cells(["cu121-torch2.10"]), GpuOptions(), None)
    assert "--torch-index" in found.not_run
    assert (found.good, found.on_device) == (False, OnDevice.UNTESTED)
    record = json.loads(report_path(tmp_path, "cu121-torch2.10").read_text())
    assert (record["harness"], record["good"], record["on_device"]) == (None, False, "untested")


@pytest.mark.parametrize(
    ("text", "names", "options", "words"),
    [
        (changed(), ["cu121-torch2.10"], GpuOptions(), "nothing says what to run"),
        (None, ["cpu-torch2.10"], GpuOptions(), "no wheel asked for holds device code"),
        (None, ["cu121-torch2.10"], GpuOptions(emulated=True), "has no emulation"),
        (None, ["cu121-torch2.10"], GpuOptions(soak=0), "would prove nothing"),
        (None, ["cu121-torch2.10"], GpuOptions(count=0), "would prove nothing"),
        (None, ["cu121-torch2.10"], GpuOptions(), "was not built"),
    ],
)
def test_what_cannot_be_looped_is_a_sentence(
    tmp_path: Path, text: str | None, names: list[str], options: GpuOptions, words: str
) -> None:
    state = ('size-budget = "40 MB"', 'size-budget = "40 MB"\nstate = "result = {}"')
    matrix = load(
        tmp_path, text or changed(state, ("\n[project.device]", f"{RUN}\n[project.device]"))
    )
    with pytest.raises(UsageError, match=words):
        gpu_loop(matrix, cells(names), options, None)


@dataclass
class AnEngine:
    """An engine of which no more is known than its runtime."""

    has_nvidia: bool


def test_an_engine_without_nvidias_runtime_starts_no_container() -> None:
    without: Any = AnEngine(has_nvidia=False)
    nvidia: Any = AnEngine(has_nvidia=True)
    assert usable_engine(without, emulated=False) is None
    assert usable_engine(None, emulated=False) is None
    assert usable_engine(nvidia, emulated=True) is None
    assert usable_engine(nvidia, emulated=False) is nvidia


def test_processes_get_our_devices_and_nothing_of_the_fake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setenv("FAKECUDA_DEVICES", "8.6")
    monkeypatch.setenv("LD_PRELOAD", "")
    with open_footing(None, site(tmp_path), tmp_path, tmp_path, emulated=False) as footing:
        assert footing.ground is Ground.PROCESS
        assert footing.environment["CUDA_VISIBLE_DEVICES"] == "1"
        assert not {"FAKECUDA_DEVICES", "LD_PRELOAD"} & footing.environment.keys()


@dataclass
class GpuEngine:
    """An engine with NVIDIA's runtime that keeps what it is asked for, or raises ``error``."""

    error: Exception | None = None
    options: ContainerOptions | None = None
    ran: tuple[tuple[str, ...], dict[str, str], str] | None = None

    def image(self, target: str, base: str) -> str:
        """An image by its names."""
        return f"{target}:{base}"

    @contextmanager
    def start(self, options: ContainerOptions) -> Iterator[GpuEngine]:
        """The container is the engine itself."""
        if self.error is not None:
            raise self.error
        self.options = options
        yield self

    def run(
        self, argv: tuple[str, ...], *, env: dict[str, str], timeout: float, user: str
    ) -> Completed:
        """What a command in the container gives."""
        self.ran = (argv, env, user)
        return completed([], int(timeout))


def site(folder: Path) -> Site:
    """An environment."""
    return Site(
        cell="cu121-torch2.10",
        torch=None,
        libraries=Libraries.NONE,
        root=folder / "env",
        packages=folder / "env" / "packages",
        python=folder / "env" / "bin" / "python",
        overlays={},
    )


def test_a_container_gets_all_gpus_and_sees_no_more_than_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/here")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    engine: Any = GpuEngine()
    libraries, own = tmp_path / "drivers", tmp_path / "own"
    with open_footing(engine, site(tmp_path), own, libraries, emulated=False) as footing:
        assert footing.ground is Ground.CONTAINER
        assert footing.place.run(("x",), footing.environment, 3).returncode == 3
    assert engine.options.gpus
    assert engine.options.image == "gpu-host:debian-12"
    assert not engine.options.network
    assert not engine.options.privileged
    hosts = EXERCISE.parent.parent / "hosts"
    assert {mount.source for mount in engine.options.mounts} == {
        *(hosts, EXERCISE.parent, own, tmp_path / "env"),
    }
    argv, environment, user = engine.ran
    assert (argv, user) == (("x",), "wheel")
    assert environment["CUDA_VISIBLE_DEVICES"] == "1"
    assert "LD_LIBRARY_PATH" not in environment


def test_an_engine_that_gives_no_gpu_is_exit_code_5(tmp_path: Path) -> None:
    engine: Any = GpuEngine(error=NoDeviceError("the Docker engine gives no GPU"))
    footing = open_footing(engine, site(tmp_path), tmp_path, tmp_path, emulated=False)
    with pytest.raises(NoDeviceError, match="gives no GPU") as caught, footing:
        pass
    assert caught.value.exit_code == 5
