"""Reports: series add up, JSON keeps runs on other releases, tables say what was skipped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from packaging.version import Version

from wheelfab.loops.judge import Failure, Load
from wheelfab.loops.report import (
    COLUMNS,
    Harness,
    Libraries,
    LoopReport,
    Machine,
    Run,
    SkipKind,
    Skipped,
    rows,
    series,
    write_report,
)
from wheelfab.records import read_json


def load(index: int, total: float = 2.0, *, fails: bool = False) -> Load:
    """A load of two stages that took ``total`` seconds, or one that crashed in the second."""
    failure = Failure(
        load=index,
        stage="torch",
        signal="SIGSEGV",
        exit_code=None,
        timed_out=False,
        error=None,
        stderr="",
        stack="",
    )
    return Load(
        load=index,
        total=total,
        stages={"package": total / 4} if fails else {"package": total / 4, "torch": total / 2},
        torch=None if fails else "2.4.1+cu121",
        failure=failure if fails else None,
    )


def run(torch: str, *, fails: int = 0, sha256: str = "a" * 64) -> Run:
    """A run of 100 loads of which the first ``fails`` crashed."""
    fresh = series([load(index, fails=index < fails) for index in range(100)])
    return Run(
        torch=Version(torch),
        found=f"{torch}+cu121",
        source="pypi",
        libraries=Libraries.STUBS,
        python="3.11.7",
        wheel="x.whl",
        sha256=sha256,
        harness=Harness.PROCESSES,
        jobs=2,
        machine=Machine(system="Linux", processor="x", cores=2, memory=1, libc="glibc 2.36"),
        fresh=fresh,
        forked=None,
        not_forked="fresh loads failed" if fails else "none asked for",
    )


def report(*runs: Run, skipped: tuple[Skipped, ...] = (), sha256: str = "a" * 64) -> LoopReport:
    """A report of ``runs``."""
    return LoopReport(cell="cu121", wheel="x.whl", sha256=sha256, runs=runs, skipped=skipped)


def test_row_13_a_series_counts_and_times_what_passed() -> None:
    found = series([load(0, 2.0), load(1, 4.0), load(2, 90.0, fails=True)])
    assert (found.count, found.passed, found.all_passed) == (3, 2, False)
    assert found.total is not None
    assert found.total.mean == pytest.approx(3.0)
    assert found.stages["torch"].mean == pytest.approx(1.5)
    assert [failure.load for failure in found.failures] == [2]
    assert found.failure_bound == pytest.approx(0.8646, abs=1e-4)


def test_a_series_in_which_all_fail_has_no_times() -> None:
    found = series([load(index, fails=True) for index in range(60)])
    assert (found.total, dict(found.stages), found.failure_bound) == (None, {}, 1.0)
    assert len(found.failures) == 50


def test_a_report_passes_only_when_every_load_did() -> None:
    assert report(run("2.4.1")).passed
    assert not report(run("2.4.1"), run("2.4.0", fails=1)).passed


def test_what_was_not_possible_has_not_passed_and_what_was_not_asked_does_not_count() -> None:
    def skip(kind: SkipKind) -> Skipped:
        return Skipped(torch=Version("2.15.0"), kind=kind, reason="no Python")

    assert not report(run("2.4.1"), skipped=(skip(SkipKind.NOT_POSSIBLE),)).passed
    assert report(run("2.4.1"), skipped=(skip(SkipKind.NOT_ASKED),)).passed
    shown = rows(report(run("2.4.1"), skipped=(skip(SkipKind.NOT_POSSIBLE),)))
    assert {len(row) for row in shown} == {len(COLUMNS)}
    assert "skipped: no Python" in shown[1]


def test_a_cell_that_loaded_nothing_has_not_passed_and_is_shown_as_not_run() -> None:
    reason = "torch 2.5.0 is not in <2.5,>=2.4.1"
    skip = Skipped(torch=Version("2.5.0"), kind=SkipKind.NOT_ASKED, reason=reason)
    empty = report(skipped=(skip,))
    assert (empty.passed, empty.asked) == (False, False)
    (row,) = rows(empty)
    assert row == ("cu121", "2.5.0", "", "", f"not run: {reason}", "", "", "", "", "")
    looped = report(run("2.4.1"), skipped=(skip,))
    assert (looped.passed, looped.asked, len(rows(looped))) == (True, True, 1)
    impossible = report(skipped=(replace(skip, kind=SkipKind.NOT_POSSIBLE),))
    assert (impossible.passed, impossible.asked) == (False, True)


def test_the_table_says_it_all() -> None:
    (row,) = rows(report(run("2.4.1")))
    assert dict(zip(COLUMNS, row, strict=True)) == {
        "cell": "cu121",
        "torch": "2.4.1",
        "python": "3.11.7",
        "NVIDIA libraries": "stubs",
        "fresh": "100 of 100",
        "mean ± sd": "2.00 ± 0.00 s",
        "p50": "2.00 s",
        "p99": "2.00 s",
        "failure rate below (95 %)": "2.95%",
        "forked": "none asked for",
    }


def test_the_file_keeps_runs_of_the_same_wheel_on_other_releases(tmp_path: Path) -> None:
    write_report(tmp_path, report(run("2.13.0"), run("2.10.0", fails=1)))
    path = write_report(tmp_path, report(run("2.10.0")))
    assert path == tmp_path / "build" / "loops" / "cu121.json"
    record = read_json(path)
    assert record["schema"] == 1
    assert [(r["torch"], r["passed"], r["text"]) for r in record["runs"]] == [
        ("2.10.0", True, "100 of 100 fresh"),
        ("2.13.0", True, "100 of 100 fresh"),
    ]


@pytest.mark.parametrize("older", ["", "{}", "[]", '{"schema": 0, "sha256": "a", "runs": []}'])
def test_an_older_file_that_cannot_be_read_is_replaced(tmp_path: Path, older: str) -> None:
    path = tmp_path / "build" / "loops" / "cu121.json"
    path.parent.mkdir(parents=True)
    path.write_text(older)
    write_report(tmp_path, report(run("2.10.0")))
    assert len(read_json(path)["runs"]) == 1


def test_runs_of_another_wheel_are_dropped(tmp_path: Path) -> None:
    write_report(tmp_path, report(run("2.13.0")))
    path = write_report(tmp_path, report(run("2.10.0", sha256="b" * 64), sha256="b" * 64))
    assert [r["torch"] for r in read_json(path)["runs"]] == ["2.10.0"]
