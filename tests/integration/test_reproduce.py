"""Builds made again elsewhere: the same bytes; what is planted to differ is named by its cause."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from wheelfab.inputs import locked_compiler
from wheelfab.locked import load_locked, write_locked
from wheelfab.reproduce.report import ReproduceError
from wheelfab.reproduce.surroundings import make_clock, vary
from wheelfab.run import run, tool_environment
from wheelfab.toolchain.host import host_compiler

from .conftest import ROOT, Wheelfab

CELL = "cu121-torch2.10"
ASK = """
import calendar, json, subprocess, threading, time
begun = time.time()
threading.Event().wait(0.2)
waited = time.time() - begun
date = subprocess.run(["date", "+%s"], capture_output=True, text=True, check=True).stdout
preprocess = ["env", "TZ=UTC", "g++", "-E", "-P", "-"]
compiled = subprocess.run(preprocess, input="__DATE__ __TIME__", capture_output=True, text=True,
                          check=True)
there = time.strptime(compiled.stdout.replace('"', "").strip(), "%b %d %Y %H:%M:%S")
print(json.dumps({"python": begun, "date": int(date), "waited": waited,
                  "compiler": calendar.timegm(there)}))
"""
PLANTS = """
function(planted name content)
  file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/${name}.c" CONTENT "${content}")
  add_library(_${name} MODULE "${CMAKE_CURRENT_BINARY_DIR}/${name}.c")
  set_target_properties(_${name} PROPERTIES PREFIX "")
  install(TARGETS _${name} LIBRARY DESTINATION tiny)
endfunction()
if(WHEELFAB_PART STREQUAL "torch")
  planted(path "const char* tiny_path(void) { return __FILE__; }\\n")
  execute_process(COMMAND date "+%Y-%m-%d %H:%M:%S" OUTPUT_VARIABLE now
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  planted(time "const char* tiny_time(void) { return \\"made on ${now}\\"; }\\n")
  # Two names in the order of a listing that nobody sorts.
  if(CMAKE_CURRENT_SOURCE_DIR MATCHES "levels")
    planted(order "const char tiny_order[] = \\"first name\\\\0other name\\";\\n")
  else()
    planted(order "const char tiny_order[] = \\"other name\\\\0first name\\";\\n")
  endif()
  planted(build_id "int tiny_build_id(void) { return 1; }\\n")
  target_link_options(_build_id PRIVATE -Wl,--build-id=uuid)
endif()
"""


@pytest.fixture
def locked(tiny: Wheelfab) -> Wheelfab:
    """The tiny extension with this repository's lock and this machine's compiler in it."""
    lock = load_locked(ROOT)
    assert lock is not None
    ours = locked_compiler(host_compiler())
    known = lock.compiler if ours in lock.compiler else (*lock.compiler, ours)
    write_locked(tiny.root, lock.model_copy(update={"compiler": known}))
    return tiny


def test_b64_b65_two_builds_far_apart_give_the_same_bytes(locked: Wheelfab) -> None:
    (report,) = locked.json("reproduce", "--cell", CELL, "--no-container")
    first, second = report["builds"]
    assert (first["outcome"], second["outcome"]) == ("same", "same")
    assert first["sha256"] == second["sha256"]
    for build in (first, second):  # base.c, binding.cpp and images.S; three archs
        assert (build["host_compiles"], build["device_compiles"]) == (3, 3)
    told = {"folder", "umask", "time zone", "language", "hash seed", "files' times"}
    assert told <= set(report["different"])
    assert set(report["different"]) | set(report["same"]) >= {
        *("user", "host name", "cores", "clock"),
    }
    kept = json.loads((locked.root / "build/reproduce" / CELL / "reproduce.json").read_text())
    assert kept["report"] == report
    wheel = next((locked.root / "build/reproduce/first/a/dist").glob("*.whl"))
    with ZipFile(wheel) as archive:
        left = b"".join(archive.read(name) for name in archive.namelist())
    assert str(locked.root).encode() not in left


def test_builds_alike_by_a_compiler_that_is_not_in_the_lock_fail(locked: Wheelfab) -> None:
    lock = load_locked(locked.root)
    assert lock is not None
    write_locked(locked.root, lock.model_copy(update={"compiler": ()}))
    done = locked.run("reproduce", "--cell", CELL, "--no-container", "--json")
    assert done.returncode == ReproduceError.exit_code, done.stderr
    (report,) = json.loads(done.stdout)
    assert [build["outcome"] for build in report["builds"]] == ["same", "same"]
    assert report["compiler_locked"] is False
    why = f"{CELL} (built alike, but by {report['compiler']}, which is not in matrix.lock)"
    assert f"not reproduced: {why}" in done.stderr


def test_the_second_builds_clock_is_years_ahead_and_its_waits_end(tmp_path: Path) -> None:
    compiler = host_compiler()
    varied = vary(make_clock(tmp_path / "clock", compiler.cc))
    if "clock" in varied.same:
        pytest.skip(varied.same["clock"])
    script = tmp_path / "ask.py"
    script.write_text(ASK)
    env = tool_environment()  # of which tools get no more
    here = run((sys.executable, str(script)), env=env, timeout=60)
    there = run(varied.second.command((sys.executable, str(script))), env=env, timeout=60)
    assert (here.returncode, there.returncode) == (0, 0), there.stderr
    ours, theirs = (json.loads(done.stdout) for done in (here, there))
    ahead = 5 * 365 * 24 * 3600
    for name in ("python", "date", "compiler"):
        assert ahead <= theirs[name] - ours[name] < ahead + 120
    assert 0.2 <= theirs["waited"] < 60


def test_what_is_planted_is_named_by_its_cause(locked: Wheelfab) -> None:
    with (locked.root / "csrc/CMakeLists.txt").open("a") as file:
        file.write(PLANTS)
    done = locked.run("reproduce", "--cell", CELL, "--no-container", "--json")
    assert done.returncode == ReproduceError.exit_code, done.stderr
    (report,) = json.loads(done.stdout)
    second = report["builds"][1]
    assert second["outcome"] == "differs"
    found = {item["where"]: item["cause"] for item in second["findings"]}
    assert found == {
        "tiny/_path.so": "path",
        "tiny/_time.so": "time",
        "tiny/_order.so": "order",
        "tiny/_build_id.so": "build id",
    }
    shown = {item["cause"]: item for item in second["findings"]}
    assert "/first/a/" in shown["path"]["first"]
    years = [
        int(shown["time"][which].partition("made on ")[2][:4]) for which in ("first", "second")
    ]
    assert years[1] - years[0] in ((5, 4) if "clock" in report["different"] else (0,))  # leap days
    diffoscope = second["diffoscope"]
    if shutil.which("diffoscope"):
        assert "_path.so" in Path(diffoscope).read_text()
    else:
        assert diffoscope.startswith("no diffoscope on the PATH; install it")
