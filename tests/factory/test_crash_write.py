"""A report on disk, and its line under the table of the loops."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.version import Version

from tests.factory.test_loops_report import report as loop_report
from tests.factory.test_loops_report import run as loop_run
from wheelfab.crash import (
    COLUMNS,
    CrashReport,
    DeviceOpen,
    Frame,
    Guilty,
    Library,
    PythonFrame,
    Reproduced,
    rows,
    write_crash,
)
from wheelfab.loops.cell import show_reports

REPORT = CrashReport(
    signature="sigsegv-cuinit-0123456789",
    signal="SIGSEGV",
    si_code="SEGV_MAPERR",
    address="0x0",
    stage="import",
    place="processes",
    guilty=Guilty(function="cuInit", library="libcuda.so.1", called_by="start in _C.so"),
    python_stack=(PythonFrame(file="/a/x.py", line=3, function="load"),),
    backtrace=(
        Frame(function="cuInit", library="/opt/libcuda.so.1", offset=0x1139),
        Frame(function="start", library="/opt/_C.so", file="/src/c.cpp", line=7, offset=0x20),
        Frame(function="??", library=""),
    ),
    symbols_missing="no file and line for libcuda.so.1",
    system_calls=("close(3) = 0",),
    last_library="/opt/libcuda.so.1",
    device_opens=(DeviceOpen(path="/dev/nvidiactl", errno="ENOENT"),),
    libraries=(Library(path="/opt/libcuda.so.1", version=""), Library(path="/c", version="2.36")),
    last_words=("```", "# no heading\nnor this"),
    argv=("python",),
    environment={"A": "1"},
    driver_state={"status": "driver_crashed"},
    reproduce="env -i python -c 'import x'",
    reproduced=Reproduced(times=2, of=3),
    problems=("it crashed again 2 of 3 times only",),
)


def test_all_that_is_known_is_in_both_files(tmp_path: Path) -> None:
    path = write_crash(tmp_path, REPORT)
    assert path == tmp_path / "build" / "crashes" / REPORT.signature / "report.md"
    text = path.read_text(encoding="utf-8")
    for part in (
        "SIGSEGV, SEGV_MAPERR at 0x0 (nothing is mapped",
        "cuInit in libcuda.so.1, called by start in _C.so",
        "(2 of 3 times)",
        "    env -i python -c 'import x'",
        "* it crashed again 2 of 3 times only",
        "    /a/x.py:3 in load",
        "    #1  start in _C.so+0x20 at /src/c.cpp:7",
        "    #2  ?? in ?",
        "* /dev/nvidiactl: ENOENT",
        "    close(3) = 0",
        "    status=driver_crashed",
        "    /opt/libcuda.so.1  (no version)",
        "    A=1",
        "    # no heading\n    nor this",  # what a program prints stays inside its block
    ):
        assert part in text
    record = json.loads(path.with_name("report.json").read_text(encoding="utf-8"))
    assert record["schema"] == 1
    assert record["backtrace"][0]["offset"] == 0x1139


def test_a_report_that_cannot_be_read_is_written_anew(tmp_path: Path) -> None:
    path = write_crash(tmp_path, REPORT).with_name("report.json")
    for broken in ("{", "[]", '{"schema": 0}', '{"schema": 1, "seen_on": 3}'):
        path.write_text(broken)
        write_crash(tmp_path, REPORT)
        assert json.loads(path.read_text(encoding="utf-8"))["seen_on"] == {"processes": 1}


def test_each_crash_has_one_row(tmp_path: Path) -> None:
    first = write_crash(tmp_path, REPORT)
    unknown = replace(REPORT, signature="exit-7-0123456789", signal="exit 7", si_code="")
    second = write_crash(tmp_path, replace(unknown, guilty=None))
    found = rows([first, first, second, tmp_path / "nothing" / "report.md"])
    assert [row[1:3] for row in found] == [
        ("SIGSEGV SEGV_MAPERR", "cuInit in libcuda.so.1, called by start in _C.so"),
        ("exit 7", "unknown"),
    ]
    assert {len(row) for row in found} == {len(COLUMNS)}


def test_the_crashes_of_a_loop_are_under_its_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_crash(tmp_path, REPORT)
    crashed = replace(loop_run("2.4.1", fails=1), torch=Version("2.4.1"), crashes=(path,))
    show_reports([loop_report(crashed), loop_report(loop_run("2.10.0"))])
    shown = capsys.readouterr().out
    assert shown.index("2.10.0") < shown.index("Crashes")
    assert "2 of 3" in shown
    show_reports([loop_report(loop_run("2.10.0"))])
    assert "Crashes" not in capsys.readouterr().out
