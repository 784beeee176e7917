"""Imports run for real: under the counting driver, with crashes, hangs and budgets."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from wheelfab.imports import ImportReport, LintOptions, lint
from wheelfab.imports.record import Ending, ImportRun, Rule

PACKAGES = Path(__file__).parent / "lint_packages"
ENGINE = Path(__file__).parents[2] / "engine" / "freewheel"
LIMIT = 5.0
needs_compiler = pytest.mark.skipif(
    shutil.which("g++") is None, reason="the counting driver is built with g++"
)


@pytest.fixture(scope="module")
def report() -> ImportReport:
    return lint(PACKAGES / "runs" / "runs", LintOptions(dynamic=True, limit=LIMIT))


def of(report: ImportReport, module: str) -> ImportRun:
    return next(done for done in report.runs if done.module == module)


def rules(report: ImportReport, module: str) -> set[Rule]:
    return {one.rule for one in report.findings if one.module == module and "import" in one.call}


def test_every_module_was_imported_whatever_the_others_did(report: ImportReport) -> None:
    assert len(report.runs) == report.modules
    assert of(report, "runs.quiet").ending is Ending.DONE
    assert rules(report, "runs.quiet") == set()


@needs_compiler
def test_a_driver_call_is_counted_and_its_chain_of_imports_told(report: ImportReport) -> None:
    run = of(report, "runs.imports_driver")
    assert run.driver_calls == {"cuInit": 1}
    assert [frame.rpartition("/")[2] for frame in run.driver_stack] == [
        "imports_driver.py:1 in <module>",
        "driver.py:8 in <module>",
        "driver.py:5 in ask",
    ]
    finding = next(one for one in report.findings if one.text == "cuInit x1")
    assert (finding.module, finding.reached_from) == ("runs.driver", 2)


@needs_compiler
def test_nvml_is_counted_as_well(report: ImportReport) -> None:
    assert of(report, "runs.nvml").driver_calls == {"nvmlInit_v2": 1}


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_device_files_that_are_opened_are_seen(report: ImportReport) -> None:
    if any(one.what.startswith("opens of") for one in report.unchecked):
        pytest.skip("strace may not trace here")
    assert of(report, "runs.device").devices == ("/dev/nvidia0",)


def test_a_crash_names_the_signal_and_the_line(report: ImportReport) -> None:
    run = of(report, "runs.crash")
    assert (run.ending, run.detail) == (Ending.DIED, "SIGSEGV")
    assert run.end_stack[-1].endswith("crash.py:4 in <module>")
    assert of(report, "runs.leave").detail == "exit 3"


def test_a_hang_ends_at_the_limit_and_names_the_line(report: ImportReport) -> None:
    run = of(report, "runs.hang")
    assert (run.ending, run.detail) == (Ending.HUNG, "not done after 5 s")
    assert run.end_stack[-1].endswith("hang.py:3 in <module>")


def test_threads_processes_and_exceptions_are_told(report: ImportReport) -> None:
    assert of(report, "runs.thread").threads == ("waiter",)
    assert rules(report, "runs.process") == {Rule.PROCESS}
    assert of(report, "runs.raises").detail == "RuntimeError: no CUDA GPUs are available"
    assert of(report, "runs.chatty").detail == "SystemExit: 4"
    assert [one.what for one in report.unchecked if "nobody" in one.reason] == [
        "import of runs.missing"
    ]


def test_row_58_a_slow_import_is_over_its_budget(tmp_path: Path) -> None:
    budget = tmp_path / "budget.toml"
    budget.write_text('[milliseconds]\n"runs.slow" = 100\n"runs.quiet" = 5000\n')
    target = PACKAGES / "runs" / "runs" / "slow.py"
    with pytest.raises(Exception, match=r"no module 'runs\.quiet'"):
        lint(target, LintOptions(dynamic=True, budget=budget))
    budget.write_text('[milliseconds]\n"runs.slow" = 100\n')
    slow = lint(target, LintOptions(dynamic=True, budget=budget))
    assert {one.rule for one in slow.findings} == {Rule.OVER_BUDGET}
    budget.write_text('[milliseconds]\n"runs.slow" = 30000\n')
    assert lint(target, LintOptions(dynamic=True, budget=budget)).findings == ()


def test_the_time_for_all_imports_is_bounded() -> None:
    started = time.monotonic()
    options = LintOptions(dynamic=True, limit=600, total=1.0, jobs=1)
    bounded = lint(PACKAGES / "runs" / "runs", options)
    assert time.monotonic() - started < 30
    assert any("were over" in one.reason for one in bounded.unchecked)


def test_nothing_is_imported_without_being_asked(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "__init__.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    lint(tmp_path / "p", LintOptions(dynamic=False))
    assert not (tmp_path / "ran").exists()
    lint(tmp_path / "p", LintOptions(dynamic=True))
    assert (tmp_path / "ran").exists()


def test_importing_freewheel_touches_nothing() -> None:
    found = lint(ENGINE, LintOptions(dynamic=True))
    # from the sources, without native libraries, some modules cannot be imported
    assert {one.rule for one in found.findings} <= {Rule.RAISED}
    assert all("NotBuiltError" in one.text for one in found.findings)
    assert found.runs
