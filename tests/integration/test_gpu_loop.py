"""``wheelfab gpu-loop`` on this repository's wheel: without a GPU, and under the fake driver."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from wheelfab.gpu.report import NOTHING_ON_A_DEVICE

from .conftest import ROOT, Wheelfab
from .sources import repository_with

CELL = "cu121-torch2.10"
LAUNCH = 'launch = "close(ops.rms_norm(sample, weight), wanted)"'
QUICK = ("gpu-loop", "--variant", CELL, "--count", "1", "--soak", "100")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, wheelfab: Wheelfab) -> Wheelfab:
    """A copy of this repository with the wheel; what was compiled for loops is shared."""
    wheelfab.json("build", CELL)
    copy = repository_with(tmp_path_factory.mktemp("gpu") / "repository", "")
    shutil.copytree(ROOT / "build" / CELL, copy.root / "build" / CELL)
    (ROOT / "build" / "hosts").mkdir(exist_ok=True)
    (copy.root / "build" / "hosts").symlink_to(ROOT / "build" / "hosts")
    (copy.root / "dist").symlink_to(ROOT / "dist")
    return copy


@pytest.fixture
def looped(project: Wheelfab) -> Wheelfab:
    """The copy, with the matrix as it is here and no report."""
    shutil.copy(ROOT / "matrix.toml", project.root / "matrix.toml")
    report(project).unlink(missing_ok=True)
    return project


def report(project: Wheelfab) -> Path:
    """Where the report of the cell lies."""
    return project.root / "build" / "gpu" / f"{CELL}.json"


def plant(project: Wheelfab, launch: str) -> None:
    """Make ``launch`` one launch of the soak."""
    matrix = project.root / "matrix.toml"
    text = matrix.read_text()
    assert LAUNCH in text
    matrix.write_text(text.replace(LAUNCH, f"launch = {launch!r}"))


def errors(stderr: str) -> list[str]:
    """The lines that say why a command ended badly."""
    return [line for line in stderr.splitlines() if line.startswith("error: ")]


def found(project: Wheelfab) -> dict[str, Any]:
    """The report."""
    record: dict[str, Any] = json.loads(report(project).read_text())
    return record


@pytest.mark.parametrize(
    "options", [QUICK, (*QUICK, "--no-container"), (*QUICK, "--json"), ("gpu-loop",)]
)  # the last one is for wheels, too, that were not built
def test_without_a_gpu_it_is_exit_code_5_and_one_sentence(
    looped: Wheelfab, options: tuple[str, ...]
) -> None:
    done = looped.run(*options, CUDA_VISIBLE_DEVICES="", LD_LIBRARY_PATH="")
    assert done.returncode == 5, done.stderr
    assert done.stdout == ""
    (line,) = errors(done.stderr)
    assert line.startswith("error: no GPU answers (")
    assert not report(looped).exists()


def test_under_the_fake_driver_all_is_done_and_nothing_is_said_of_a_device(
    looped: Wheelfab,
) -> None:
    done = looped.run(*QUICK, "--emulated", "--count", "2")
    assert done.returncode == 0, done.stderr
    assert NOTHING_ON_A_DEVICE in done.stdout
    record = found(looped)
    assert (record["harness"], record["on_device"]) == ("emulated", "untested")
    assert record["fresh"] == {"made": 2, "passed": 2}
    assert [device["image"] for device in record["devices"]] == ["8.0", "9.0"]
    for device in record["devices"]:
        assert device["operation_seconds"] > 0
        assert (device["launches"], device["growth"], device["failure"]) == (100, 0, "")


def test_a_leak_is_caught(looped: Wheelfab) -> None:
    plant(
        looped,
        "kept = globals().setdefault('kept', []); kept.append(torch.empty(25_000, device=device))",
    )
    done = looped.run(*QUICK, "--emulated")
    assert done.returncode == 8, done.stderr
    record = found(looped)
    assert [device["growth"] for device in record["devices"]] == [100 * 100_352] * 2
    assert len(record["failures"]) == 2
    assert "memory in use grew by 10035200 bytes in 100 launches" in record["failures"][0]
    assert record["on_device"] == "untested"


def test_a_wrong_result_is_caught_on_its_device(looped: Wheelfab) -> None:
    plant(looped, "close(ops.rms_norm(sample, weight), wanted * (1 + (device == 'cuda:1') * 1e-3))")
    done = looped.run(*QUICK, "--emulated")
    assert done.returncode == 8, done.stderr
    (failure,) = found(looped)["failures"]
    assert failure.startswith("device 1: soak: AssertionError: torch.float32 on cuda:1: error")
    assert errors(done.stderr)[0] == f"error: {CELL}: {failure}"


def test_a_kernel_that_dies_or_hangs_is_a_failure_with_its_reason(looped: Wheelfab) -> None:
    done = looped.run(*QUICK, "--emulated", FAKECUDA_FAIL="cuLaunchKernel=segv")
    assert done.returncode == 8, done.stderr
    assert found(looped)["failures"] == [
        f"device {ordinal}: operation on device 0: SIGSEGV" for ordinal in (0, 1)
    ]
    hang = ("--emulated", "--timeout", "30")
    done = looped.run(*QUICK, *hang, FAKECUDA_FAIL="cuLaunchKernel=hang")
    assert done.returncode == 8, done.stderr
    assert found(looped)["failures"][0] == "device 0: operation on device 0: timed out"


@pytest.mark.parametrize(
    ("settings", "status"),
    [
        ({"FAKECUDA_FAIL": "cuInit=segv"}, "driver_crashed"),
        ({"FAKECUDA_DEVICES": "none"}, "no_device"),
        ({"FAKECUDA_DEVICES": "7.5"}, "no_image"),
    ],
)
def test_a_driver_that_has_no_device_to_give_is_no_gpu(
    looped: Wheelfab, settings: dict[str, str], status: str
) -> None:
    done = looped.run(*QUICK, "--emulated", **settings)
    assert done.returncode == 5, done.stderr
    (line,) = errors(done.stderr)
    assert line.startswith(f"error: no GPU answers ({status}): ")
    assert not report(looped).exists()
