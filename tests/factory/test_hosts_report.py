"""The report of hosts on disk, its table, and the two pages that are made of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.factory.cellmaker import cells
from tests.factory.hostmaker import host
from tests.factory.matrixmaker import MATRIX, load
from tests.factory.test_crash_write import REPORT
from tests.factory.wheelmaker import make_cell
from wheelfab.crash import write_crash
from wheelfab.errors import UsageError
from wheelfab.hosts.pages import hosts_page, no_gpu_page, write_pages
from wheelfab.hosts.report import (
    COLUMNS,
    Beside,
    Count,
    HostResult,
    Run,
    Verdict,
    host_digest,
    not_run,
    read_report,
    report_path,
    rows,
    write_report,
)
from wheelfab.hosts.run_hosts import show_results
from wheelfab.wheel import read_wheel

MACHINE = {"processor": "a processor", "cores": 2, "system": "Linux"}
HOSTS = (host("bare"), host("dies", status="driver_crashed", help="it dies"))


@pytest.fixture
def result(tmp_path: Path) -> HostResult:
    """A wheel that did as expected on the bare host."""
    (cell,) = cells(("cu121-torch2.4",))
    wheel = read_wheel(make_cell(tmp_path / "dist", cell.id))
    return replace(
        not_run(HOSTS[0], cell, wheel, ""),
        torch="2.4.1+cu121",
        harness="container",
        base="debian-12",
        fresh=Count(made=20, passed=20),
        forked=Count(made=20, passed=20),
        with_torch="passes",
        beside=Beside.PASSED,
        control="is_available() is False",
        status="cuda_unavailable",
        reason="no driver | none",
        next_step="install one",
    )


def on(name: str, result: HostResult, **values: Any) -> HostResult:
    """The same on another host."""
    (there,) = (item for item in HOSTS if item.name == name)
    return replace(result, host=name, host_digest=host_digest(there), **values)


def write(root: Path, *results: HostResult) -> Any:
    """The report after a run with these results."""
    run = Run(seconds=125.0, jobs=2, pairs=sum(not item.not_run for item in results))
    write_report(root, results, HOSTS, MACHINE, run)
    report = read_report(root)
    assert report is not None
    return report


def test_verdicts(result: HostResult) -> None:
    assert result.verdict is Verdict.PASSED
    assert replace(result, failures=("no",)).verdict is Verdict.FAILED
    assert replace(result, not_run="no engine").verdict is Verdict.NOT_RUN


def test_other_hosts_of_the_same_wheel_stay_and_those_of_another_go(
    tmp_path: Path, result: HostResult
) -> None:
    other = on("dies", result, status="driver_crashed")
    write(tmp_path, result)
    both = write(tmp_path, other)
    assert [item["host"] for item in both["results"]] == ["bare", "dies"]
    rebuilt = write(tmp_path, replace(other, sha256="0" * 64))
    assert [item["host"] for item in rebuilt["results"]] == ["dies"]


def test_a_host_that_was_changed_keeps_no_result(tmp_path: Path, result: HostResult) -> None:
    write(tmp_path, result)
    changed = (replace(HOSTS[0], environment={"A": "1"}), HOSTS[1])
    run = Run(seconds=1.0, jobs=1, pairs=1)
    write_report(tmp_path, [on("dies", result)], changed, MACHINE, run)
    report = read_report(tmp_path)
    assert report is not None
    assert [item["host"] for item in report["results"]] == ["dies"]


def test_a_report_that_cannot_be_read_is_none(tmp_path: Path, result: HostResult) -> None:
    write(tmp_path, result)
    report_path(tmp_path).write_text("{", encoding="utf-8")
    assert read_report(tmp_path) is None


def test_rows(result: HostResult) -> None:
    failed = replace(result, failures=("load without torch: SIGSEGV",))
    left = replace(result, not_run="needs a container", torch="")
    passed_row, failed_row, left_row = rows([result, failed, left])
    assert len(passed_row) == len(failed_row) == len(left_row) == len(COLUMNS)
    assert passed_row[3:7] == ("container", "20 of 20", "passes", "20 of 20")
    assert failed_row[5] == "failed: load without torch: SIGSEGV"
    assert left_row[4] == "not run: needs a container"


def test_the_crashes_of_hosts_are_under_their_table_each_once(
    tmp_path: Path, result: HostResult, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(write_crash(tmp_path, REPORT))
    failed = replace(result, failures=("SIGSEGV",), crashes=(path,))
    show_results([failed, replace(failed, host="dies")])
    shown = capsys.readouterr().out
    assert shown.index("bare") < shown.index("Crashes")
    assert shown.count("2 of 3") == 1
    show_results([result])
    assert "Crashes" not in capsys.readouterr().out


def test_the_page_of_hosts_counts_what_was_run(tmp_path: Path, result: HostResult) -> None:
    left = on("dies", result, not_run="needs a container", harness="")
    page = hosts_page(write(tmp_path, result, left), HOSTS)
    assert "2 hosts, 1 wheels (cu121-torch2.4): 1 pairs run, 1 as expected, 1 not run.\n" in page
    assert "Linux. The last run did 1 pairs in 2 min 5 s, 2 hosts at a time.\n" in page
    assert "\nMade as: 1 container.\nLoads with torch: 1 passed.\n\n" in page
    assert (
        "| `bare` | no driver | container debian-12 | 1 of 1 | 20 of 20 fresh, 1 of 1 with torch, "
        "20 of 20 forked | `cuda_unavailable` | 2.4.1+cu121: is_available() is False |"
    ) in page
    assert "| `dies` | it dies |  | not run: needs a container |" in page


def test_the_pages_tell_what_was_excused_and_what_was_emulated(
    tmp_path: Path, result: HostResult
) -> None:
    hosts = (replace(HOSTS[0], emulated=True), HOSTS[1])
    cell = "cu121-torch2.10"
    results = (
        result,
        replace(result, cell=cell, emulated=True, doctor="exit 1, 2.0 s"),
        on("dies", result, beside=Beside.EXCUSED),
        on("dies", result, cell=cell, beside=Beside.FAILED, failures=("SIGSEGV",)),
    )
    report = write(tmp_path, *results)
    page = hosts_page(report, hosts)
    assert "40 of 40 fresh, 2 of 2 with torch (1 on its devices too), 40" in page
    assert "40 of 40 fresh, 0 of 2 with torch (1 cannot import torch), 40" in page
    assert (
        "Loads with torch: 1 failed, 2 passed, 1 torch cannot be imported.\n"
        "Operations on emulated devices: in 1 of 2 pairs.\n"
        "The project's own report on the machine: 1 times.\n"
    ) in page
    assert (
        "A CPU operation beside torch was right in 2 of 3 loads of wheels with CUDA; in 1 more "
        "torch itself cannot be imported."
    ) in no_gpu_page(report, hosts)


def test_row_33_the_page_of_failures_has_symptom_state_and_fix(
    tmp_path: Path, result: HostResult
) -> None:
    ready = on("dies", result, status="ready")
    made = replace(result, reason="no driver | none at /a/build/hosts/libraries/x-1/libcuda.so.1")
    page = no_gpu_page(write(tmp_path, made, ready), HOSTS)
    assert (
        "| no driver (`bare`) | `cuda_unavailable` | no driver \\| none at …/libcuda.so.1 | "
        "install one | "
        "2.4.1+cu121: is_available() is False |"
    ) in page
    assert "it dies" not in page


def test_the_pages_name_no_folder_of_the_machine_that_ran(
    tmp_path: Path, result: HostResult
) -> None:
    folder = "/a/build/hosts/libraries/libcudart-1"
    made = replace(result, reason=f"{folder} is in front", next_step=f"take {folder} out of it")
    page = no_gpu_page(write(tmp_path, made), HOSTS)
    assert "| …/libcudart-1 is in front | take …/libcudart-1 out of it |" in page
    assert "/a/" not in page


def test_no_pages_without_a_run(tmp_path: Path) -> None:
    matrix = load(tmp_path, MATRIX)
    with pytest.raises(UsageError, match="no report of a run"):
        write_pages(matrix, tmp_path / "docs")
    assert not (tmp_path / "docs").exists()
