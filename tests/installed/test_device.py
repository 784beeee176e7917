"""The state of the hardware from the installed wheel, under drivers that answer, lie and die."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import freewheel
from freewheel.device import child
from freewheel.device.record import Asked
from tests.installed.machine import ASK, LIMIT, PACKAGE, ask, start
from wheelfab.drivers import DriverKind, make_driver, make_management

FROZEN = ("ready 1 False", "ready 1 True")  # asked again, and with a context
FAILS = (
    *("", "cuInit=100", "cuInit=304", "cuInit=803", "cuInit=34", "cuInit=999"),
    *("load=segv", "load=abort", "cuInit=segv", "load=hang", "cuInit=hang"),
)


@pytest.mark.parametrize("fails", [None, *FAILS, "garbage", "missing-symbol"])
def test_row_1_importing_ends_well_whatever_the_driver_is(
    build_folder: Path, driver: Path, fails: str | None
) -> None:
    """Exit code 0, nothing printed, and not one call into the driver."""
    folder: Path | None = driver
    if fails in ("garbage", "missing-symbol"):
        folder = make_driver(DriverKind(fails), build_folder)
    code = "import freewheel, freewheel._C\nfreewheel._C.kernels()"
    settings = {"FAKECUDA_FAIL": fails} if fails in FAILS else {}
    done = start(code, folder if fails is not None else None, **settings)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("devices", ["8.0", "8.0,9.0", ",".join(["8.0", "8.6"] * 4)])
@pytest.mark.parametrize("deep", [False, True])
def test_row_7_devices_of_a_driver_that_works(driver: Path, devices: str, *, deep: bool) -> None:
    answer = ask(driver, deep=deep, devices=devices)
    count = len(devices.split(","))
    assert (answer["status"], answer["asked"], answer["deep"]) == ("ready", "program", deep)
    assert answer["library"] == str(driver / "libcuda.so.1")
    assert answer["driver_version"] == 12040
    assert answer["count"] == len(answer["devices"]) == count
    assert (answer["capability"], answer["memory"]) == ([8, 0], 16 << 30)
    assert [item["image"] for item in answer["devices"]] == devices.split(",")
    assert len({item["uuid"] for item in answer["devices"]}) == count
    assert answer["devices"][0]["name"] == "Fake A100"
    assert answer["devices"][0]["free_memory"] == ((15 << 30) if deep else None)


@pytest.mark.parametrize(
    ("settings", "status", "words"),
    [
        ({}, "ready", "1 device with code"),
        ({"FAKENVML_MODE": "3"}, "ready", "1 device with code"),
        ({"FAKENVML_MODE": "3", "FAKENVML_PROCESSES": "1"}, "busy", "has it exclusively"),
        ({"FAKENVML_MODE": "2"}, "prohibited", "prohibited"),
        ({"FAKENVML_FREE": "1048576"}, "busy", "only 1 MiB"),
        ({"FAKENVML_FAIL": "999"}, "ready", "1 device with code"),  # it only adds to an answer
        ({"FAKENVML_FAIL": "segv"}, "driver_crashed", "SIGSEGV in nvmlInit"),
        ({"FAKECUDA_MIG": "0"}, "ready", "1 device with code"),
    ],
)
@pytest.mark.parametrize("way", ["program", "python"])
def test_what_nvml_adds(  # noqa: PLR0917 - three of a row, three fixtures
    driver: Path,
    build_folder: Path,
    tmp_path: Path,
    settings: dict[str, str],
    status: str,
    words: str,
    way: str,
) -> None:
    folders = f"{driver}:{make_management(build_folder)}"
    package = {"PYTHONPATH": copied(tmp_path, 0o644)} if way == "python" else {}
    done = start(ASK.format(deep=False), Path(folders), **settings, **package)
    answer = json.loads(done.stdout)
    assert (answer["status"], answer["asked"]) == (status, way)
    assert words in answer["reason"]
    for device in answer["devices"]:
        known = "FAKENVML_FAIL" not in settings
        half = (1 << 30) if "FAKECUDA_MIG" in settings else 1 << 33
        free = int(settings.get("FAKENVML_FREE", half)) if known else None
        assert device["free_memory"] == free
        assert device["mig"] == ("FAKECUDA_MIG" in settings)
        assert device["uuid"].startswith("MIG-" if device["mig"] else "GPU-")


NO_DRIVER = pytest.mark.skipif(
    shutil.which("nvidia-smi") is not None or Path("/dev/nvidiactl").exists(),
    reason="this machine has an NVIDIA driver of its own",
)


@NO_DRIVER
def test_no_driver_starts_no_child(tmp_path: Path) -> None:
    """The answer comes from files alone."""
    code = (
        "import os, sys\n"
        "def watch(event, arguments):\n"
        "    if event in ('os.posix_spawn', 'os.fork', 'os.exec', 'subprocess.Popen'):\n"
        "        print('STARTED', event)\n"
        "sys.addaudithook(watch)\n"
    )
    done = start(code + ASK.format(deep=False), tmp_path)
    answer = json.loads(done.stdout)
    assert (answer["status"], answer["asked"]) == ("cuda_unavailable", "not asked")
    assert answer["fallback"] == "use_cpu"


@NO_DRIVER
def test_no_driver_takes_under_a_millisecond(tmp_path: Path) -> None:
    """Of many questions, as some are interrupted on a busy machine."""
    code = """
import statistics, timeit
from freewheel import device
times = timeit.repeat(lambda: device.state(fresh=True), number=1, repeat=301)
print(device.state().asked, statistics.median(times))
"""
    asked, median = start(code, tmp_path).stdout.rsplit(maxsplit=1)
    assert asked == "not asked"
    assert float(median) < 1e-3


@pytest.mark.parametrize(
    ("code", "status", "fallback"),
    [
        (3, "unknown", "fail"),
        (34, "mismatch", "fail"),
        (35, "mismatch", "fail"),
        (100, "no_device", "use_cpu"),
        (101, "no_device", "use_cpu"),
        (304, "unknown", "fail"),
        (802, "busy", "wait"),
        (803, "mismatch", "fail"),
        (804, "mismatch", "fail"),
        (999, "unknown", "fail"),
        (4242, "unknown", "fail"),
    ],
)
def test_row_27_codes_of_cuinit(driver: Path, code: int, status: str, fallback: str) -> None:
    answer = ask(driver, fail=f"cuInit={code}")
    assert (answer["status"], answer["fallback"], answer["code"]) == (status, fallback, code)
    assert f"cuInit returned {code}" in answer["reason"]


@pytest.mark.parametrize(
    ("place", "code", "status", "fallback"),
    [
        ("cuDevicePrimaryCtxRetain", 2, "busy", "wait"),
        ("cuDevicePrimaryCtxRetain", 214, "unknown", "fail"),
        ("cuDevicePrimaryCtxRetain", 999, "unknown", "fail"),
        ("cuDeviceGet", 304, "unknown", "fail"),
    ],
)
def test_row_27_codes_of_a_device(
    driver: Path, place: str, code: int, status: str, fallback: str
) -> None:
    done = start(ASK.format(deep=True), driver, FAKECUDA_FAIL=f"{place}={code}")
    answer = json.loads(done.stdout)
    assert (answer["status"], answer["fallback"], answer["code"]) == (status, fallback, code)
    assert answer["reason"].startswith(f"device 0: {place} returned {code}")


@pytest.mark.parametrize("place", ["load", "cuInit", "cuDriverGetVersion", "cuDeviceGetCount"])
@pytest.mark.parametrize(
    ("action", "words"), [("segv", "SIGSEGV"), ("abort", "SIGABRT"), ("exit:7", "exit code 7")]
)
def test_a_driver_that_dies(driver: Path, place: str, action: str, words: str) -> None:
    answer = ask(driver, fail=f"{place}={action}")
    assert (answer["status"], answer["fallback"]) == ("driver_crashed", "fail")
    step = "dlopen" if place == "load" else place
    assert words in answer["reason"]
    assert answer["reason"].endswith(f"in {step}")


@pytest.mark.parametrize("place", ["load", "cuInit", "cuDeviceGetName"])
def test_a_driver_that_never_answers(driver: Path, place: str) -> None:
    answer = ask(driver, fail=f"{place}=hang")
    assert answer["status"] == "driver_hung"
    assert LIMIT <= answer["took"] < LIMIT + 0.5


def test_slowness_is_said(driver: Path) -> None:
    done = start(
        ASK.format(deep=False),
        driver,
        FAKECUDA_FAIL="cuInit=slow:2300",
        FREEWHEEL_PROBE_TIMEOUT="20",
    )
    assert json.loads(done.stdout)["status"] == "ready"
    assert "has not answered for 2 s (cuInit)" in done.stderr


def test_it_returns_though_the_child_cannot_be_reaped(driver: Path) -> None:
    """As after an ioctl that nothing interrupts: the killed child stays."""
    code = """
import os, time
from freewheel.device import child
begun = time.monotonic()
answer = child.ask(dict(os.environ), 0.5, wait=lambda pid, options: (0, 0))
print(answer.hung, time.monotonic() - begun, len(child._unreaped))
again = child.ask({**os.environ, "FAKECUDA_FAIL": ""}, 5.0)
print(again.data is not None, len(child._unreaped))
"""
    done = start(code, driver, FAKECUDA_FAIL="cuInit=hang")
    hung, took, left, answered, after = done.stdout.split()
    assert (hung, left, answered, after) == ("True", "1", "True", "0")
    assert float(took) < 1.0


@pytest.mark.parametrize(
    ("fail", "status"), [("", "ready"), ("cuInit=segv", "driver_crashed"), ("cuInit=3", "unknown")]
)
def test_a_process_that_ignores_its_children(driver: Path, fail: str, status: str) -> None:
    code = "import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
    done = start(code + ASK.format(deep=False), driver, FAKECUDA_FAIL=fail)
    assert json.loads(done.stdout)["status"] == status, done.stderr


def test_an_interrupt_leaves_no_child(driver: Path) -> None:
    code = """
import os, signal
from freewheel import device
def interrupt(number, frame):
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, interrupt)
signal.setitimer(signal.ITIMER_REAL, 0.3)
try:
    device.state()
except KeyboardInterrupt:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        print("none is left")
"""
    done = start(code, driver, FAKECUDA_FAIL="cuInit=hang", FREEWHEEL_PROBE_TIMEOUT="20")
    assert done.stdout.split() == ["none", "is", "left"], done.stderr


@pytest.mark.parametrize("hidden", ["cuInit", "cuDriverGetVersion", "cuDeviceGetCount"])
def test_b04_a_driver_without_a_function(build_folder: Path, hidden: str) -> None:
    """What it lacks is said, nothing is undefined."""
    answer = ask(make_driver(DriverKind.MISSING_SYMBOL, build_folder, hide=[hidden]))
    assert answer["status"] == "mismatch"
    assert f"has no function {hidden}" in answer["reason"]


@pytest.mark.parametrize(
    ("kind", "words", "step"),
    [
        (DriverKind.UNVERSIONED, "there is no libcuda.so.1", "install the NVIDIA driver"),
        (DriverKind.GARBAGE, "does not load: {}: invalid ELF header", "reinstall the"),
        (DriverKind.EMPTY, "does not load: {}: file too short", "reinstall the"),
        (DriverKind.TRUNCATED, "does not load: {}: cannot read file data", "reinstall the"),
        (DriverKind.WRONG_MACHINE, "{} is for another machine (aarch64)", "for this machine"),
    ],
)
def test_files_that_are_no_driver(
    build_folder: Path, kind: DriverKind, words: str, step: str
) -> None:
    """Each with a reason of its own."""
    folder = make_driver(kind, build_folder)
    answer = ask(folder)
    assert answer["status"] == "cuda_unavailable"
    assert words.format(folder / "libcuda.so.1") in answer["reason"]
    assert step in answer["next_step"]


def test_a_file_that_ends_where_the_loader_maps_it(driver: Path, tmp_path: Path) -> None:
    whole = (driver / "libcuda.so.1").read_bytes()
    (tmp_path / "libcuda.so.1").write_bytes(whole[:4000])
    answer = ask(tmp_path)
    assert answer["status"] in ("cuda_unavailable", "driver_crashed")
    assert "libcuda.so.1" in answer["reason"]


def test_a_toolkits_stub(build_folder: Path) -> None:
    answer = ask(make_driver(DriverKind.STUB, build_folder))
    assert (answer["status"], answer["code"]) == ("mismatch", 34)


@pytest.mark.parametrize(
    ("version", "devices", "status"),
    [
        ("11080", "8.0", "mismatch"),
        ("12000", "8.0", "ready"),
        ("12000", "12.0", "mismatch"),
        ("12010", "12.0", "ready"),
        ("12040", "7.5", "no_image"),
        ("13000", "8.6", "ready"),
    ],
)
def test_row_36_driver_versions(driver: Path, version: str, devices: str, status: str) -> None:
    if freewheel.build()["cuda"] != "12.1":
        pytest.skip("the numbers are those of a wheel for CUDA 12.1")
    assert ask(driver, version=version, devices=devices)["status"] == status


@pytest.mark.parametrize(
    ("value", "status", "uuids"),
    [
        ("", "no_device", ()),
        ("-1", "no_device", ()),
        ("7", "no_device", ()),
        ("none", "no_device", ()),
        ("0,0", "no_device", ()),
        ("1", "ready", ("2",)),
        ("1,0", "ready", ("2", "1")),
        ("0,7,1", "ready", ("1",)),
        ("GPU-00000000-0000-0000-0000-000000000002", "ready", ("2",)),
        ("GPU-00000000", "no_device", ()),
        ("MIG-00000000-0000-0000-0000-000000000002", "no_device", ()),
    ],
)
def test_b28_visible_devices(driver: Path, value: str, status: str, uuids: tuple[str, ...]) -> None:
    answer = ask(driver, devices="8.0,9.0", CUDA_VISIBLE_DEVICES=value)
    assert answer["status"] == status
    assert tuple(item["uuid"][-1] for item in answer["devices"]) == uuids
    if status == "no_device":
        assert "CUDA_VISIBLE_DEVICES" in answer["reason"]


@pytest.mark.parametrize(
    ("value", "uuids"),
    [
        (None, ("GPU1", "MIG2", "GPU3")),
        ("MIG-00000000-0000-0000-0000-000000000002", ("MIG2",)),
        ("MIG-GPU-00000000-0000-0000-0000-800000000002/1/0", ("MIG2",)),
        ("MIG-GPU-00000000-0000-0000-0000-800000000002/3/0", ()),
        ("2,1", ("GPU3", "MIG2")),
    ],
)
def test_b28_mig_instances_and_mixed_capabilities(
    driver: Path, build_folder: Path, value: str | None, uuids: tuple[str, ...]
) -> None:
    settings: dict[str, Any] = {"FAKECUDA_DEVICES": "8.0,9.0,8.6", "FAKECUDA_MIG": "1"}
    if value is not None:
        settings["CUDA_VISIBLE_DEVICES"] = value
    answer = ask(Path(f"{driver}:{make_management(build_folder)}"), **settings)
    found = [item["uuid"][:3] + item["uuid"][-1] for item in answer["devices"]]
    assert (tuple(found), answer["count"]) == (uuids, len(uuids))
    images = {"GPU1": "8.0", "MIG2": "9.0", "GPU3": "8.6"}
    assert [item["image"] for item in answer["devices"]] == [images[name] for name in uuids]


def test_row_11_visible_devices_changed_after_the_import(driver: Path) -> None:
    code = """
import os
from freewheel import device
for value in ("0", "-1", "0"):
    os.environ["CUDA_VISIBLE_DEVICES"] = value
    print(device.device_count())
"""
    assert start(code, driver).stdout.split() == ["1", "0", "1"]


def test_row_11_frozen_once_cuda_is_in_use(driver: Path) -> None:
    code = """
import ctypes, os, warnings
from freewheel import device
os.environ["CUDA_VISIBLE_DEVICES"] = "0"
print(device.device_count())
assert ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    print(device.device_count())
print(len(caught), "has no effect any more" in str(caught[0].message))
for more in ({"fresh": True}, {"deep": True}):
    state = device.state(**more)
    print(state.status, len(state.devices), state.deep)
print(device.device_count())
"""
    done = start(code, driver)
    assert done.stdout.splitlines() == ["1", "1", "1 True", *FROZEN, "1"], done.stderr


def test_b13_importing_asks_nothing(driver: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = "import freewheel.device, freewheel.doctor, freewheel.device.judge, freewheel._C"
    done = start(code, driver, FAKECUDA_LOG=str(log), FAKECUDA_FAIL="load=segv")
    assert done.returncode == 0, done.stderr
    assert not log.exists()


def test_row_12_a_known_answer_is_cheap(driver: Path) -> None:
    code = """
import timeit
from freewheel import device
device.state()
print(min(timeit.repeat(device.state, number=1000, repeat=20)) / 1000)
"""
    assert float(start(code, driver).stdout) < 5e-6  # 1 us on a machine of its own


def copied(tmp_path: Path, mode: int) -> str:
    """A folder with the wheel's package, its program in this mode."""
    shutil.copytree(PACKAGE, tmp_path / "freewheel", ignore=shutil.ignore_patterns("_torch.so"))
    (tmp_path / "freewheel/_probe").chmod(mode)
    return str(tmp_path)


def test_without_an_exec_bit_a_second_python_asks(driver: Path, tmp_path: Path) -> None:
    for deep in (False, True):
        folder = copied(tmp_path / str(deep), 0o644)
        answer = ask(driver, deep=deep, devices="8.0,9.0", PYTHONPATH=folder)
        assert (answer["status"], answer["asked"]) == ("ready", "python")
        assert [item["capability"] for item in answer["devices"]] == [[8, 0], [9, 0]]
        assert any("cannot be started: Permission denied" in note for note in answer["notes"])


@pytest.mark.parametrize(
    ("fail", "status"),
    [("cuInit=803", "mismatch"), ("cuInit=segv", "driver_crashed"), ("cuInit=hang", "driver_hung")],
)
def test_the_second_python_gives_the_same_states(
    driver: Path, tmp_path: Path, fail: str, status: str
) -> None:
    answer = ask(driver, fail=fail, PYTHONPATH=copied(tmp_path, 0o644))
    assert (answer["status"], answer["asked"]) == (status, "python")


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"FAKECUDA_DEVICES": "8.0,9.0,8.6", "FAKECUDA_MIG": "1", "FAKENVML_FREE": "77"},
        {"FAKENVML_MODE": "3", "FAKENVML_PROCESSES": "2"},
        {"FAKENVML_FAIL": "999"},
        {"FAKECUDA_DEVICES": "none"},
        {"FAKECUDA_VERSION": "13000"},
        {"CUDA_VISIBLE_DEVICES": "-1"},
        *(
            {"FAKECUDA_FAIL": f"{call}={code}"}
            for call, code in {
                "cuInit": 803,
                "cuDriverGetVersion": 999,
                "cuDeviceGetCount": 101,
                "cuDeviceGet": 304,
                "cuDeviceGetName": 1,
                "cuDeviceGetAttribute": 1,
                "cuDeviceTotalMem_v2": 1,
                "cuDeviceGetUuid_v2": 1,
                "cuDevicePrimaryCtxRetain": 2,
                "cuCtxPushCurrent_v2": 214,
                "cuMemGetInfo_v2": 46,
            }.items()
        ),
    ],
)
@pytest.mark.parametrize("deep", [False, True])
def test_the_second_python_asks_the_same(
    driver: Path, build_folder: Path, settings: dict[str, str], *, deep: bool
) -> None:
    """Its object is that of the program, key by key, with NVML beside the driver and without."""
    for folders in (f"{driver}:{make_management(build_folder)}", str(driver)):
        first, second = both_ways(folders, settings, deep=deep)
        assert first == second
        assert first["deep"] == deep


@pytest.mark.parametrize(
    "hidden",
    [
        *("cuInit", "cuDeviceGet", "cuDeviceGetName", "cuDeviceGetAttribute"),
        *("cuDeviceGetUuid_v2", "cuGetErrorName", "cuCtxPopCurrent_v2"),
    ],
)
def test_the_second_python_asks_the_same_of_a_driver_without_a_function(
    build_folder: Path, hidden: str
) -> None:
    folder = make_driver(DriverKind.MISSING_SYMBOL, build_folder, hide=[hidden])
    settings = {"FAKECUDA_FAIL": "cuDevicePrimaryCtxRetain=2"}
    first, second = both_ways(str(folder), settings, deep=True)
    assert first == second


@pytest.mark.parametrize("kind", [DriverKind.GARBAGE, DriverKind.WRONG_MACHINE, DriverKind.STUB])
def test_the_second_python_says_the_same_of_what_is_no_driver(
    build_folder: Path, kind: DriverKind
) -> None:
    first, second = both_ways(str(make_driver(kind, build_folder)), {}, deep=False)
    assert first == second


def both_ways(folders: str, settings: dict[str, str], *, deep: bool) -> tuple[Any, Any]:
    """The objects that the program and the second Python give."""
    environment = {"LD_LIBRARY_PATH": folders, **settings}
    more = ("--deep",) if deep else ()
    python = (sys.executable, "-I", "-S", child.SCRIPT)
    first, second = (
        child.converse(Asked.PROGRAM, (*command, "3", *more), environment, 60.0).data
        for command in ((child.PROGRAM,), python)
    )
    assert first is not None
    return first, second


def test_where_starting_the_program_is_not_permitted(driver: Path) -> None:
    """As a security module refuses it: EPERM."""
    code = """
import os
spawn = os.posix_spawn
def refuse(path, *arguments, **named):
    if path.endswith("_probe"):
        raise PermissionError(1, os.strerror(1), path)
    return spawn(path, *arguments, **named)
os.posix_spawn = refuse
"""
    answer = json.loads(start(code + ASK.format(deep=False), driver).stdout)
    assert (answer["status"], answer["asked"]) == ("ready", "python")
    note = f"{PACKAGE / '_probe'} cannot be started: Operation not permitted"
    assert note in answer["notes"]


def test_where_the_file_system_lets_nothing_be_executed(driver: Path) -> None:
    """A real noexec mount of the program, in a namespace of its own."""
    namespace = ("unshare", "--user", "--map-root-user", "--mount")
    mount = 'mount --bind "$1" "$1" && mount -o remount,bind,noexec "$1" && shift && exec "$@"'
    command = (*namespace, "sh", "-c", mount, "sh", str(PACKAGE / "_probe"))
    try:
        subprocess.run((*command, "true"), check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no mount can be made here, even in a namespace of its own")
    done = subprocess.run(
        (*command, sys.executable, "-c", ASK.format(deep=False)),
        env={"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(driver)},
        check=True,
        capture_output=True,
    )
    answer = json.loads(done.stdout)
    assert (answer["status"], answer["asked"]) == ("ready", "python")
    assert f"{PACKAGE / '_probe'} cannot be started: Permission denied" in answer["notes"]


def test_a_program_that_is_no_program(driver: Path, tmp_path: Path) -> None:
    folder = copied(tmp_path, 0o755)
    (tmp_path / "freewheel/_probe").write_bytes(b"#!/bin/sh\nexit 127\n")
    answer = ask(driver, PYTHONPATH=folder)
    assert (answer["status"], answer["asked"]) == ("ready", "python")
    assert any("ended before it asked anything: exit code 127" in note for note in answer["notes"])


def test_nothing_can_be_started(driver: Path, tmp_path: Path) -> None:
    """An application that embeds Python is not taken for one."""
    code = "import sys\nsys.executable = '/bin/true'\n" + ASK.format(deep=False)
    done = start(code, driver, PYTHONPATH=copied(tmp_path, 0o644))
    answer = json.loads(done.stdout)
    assert (answer["status"], answer["asked"]) == ("unknown", "failed")
    assert "_probe cannot be started" in answer["reason"]


def test_a_question_takes_under_ten_milliseconds_over_the_driver(driver: Path) -> None:
    """In processor time, here and in the child: a busy machine says nothing by a clock.

    The fake driver's own time is in it, and is next to nothing. benchmarks/device.py has the clock.
    """
    code = """
import resource, statistics
from freewheel import device
def spent():
    both = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in both)
def once():
    begun = spent()
    device.state(fresh=True)
    return spent() - begun
print(device.state().asked, statistics.median(once() for _ in range(31)))
"""
    done = start(code, driver)
    asked, median = done.stdout.split()
    assert asked == "program", done.stderr
    assert float(median) < 0.01
