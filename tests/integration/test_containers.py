"""Containers of a real engine: what is in them, what they may not, how their commands end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.integration.conftest import ROOT, Wheelfab
from wheelfab.containers import Container, ContainerOptions, Engine, Mount
from wheelfab.containers.owner import OWNER, owner_labels
from wheelfab.errors import HarnessError, InfrastructureError, NoDeviceError, UsageError

BASES = {"debian-11": "2.31", "debian-12": "2.36", "debian-13": "2.41"}
COMPILERS = ("as", "c++", "cc", "clang", "g++", "gcc", "ld", "make")
_PATIENCE = 60.0

LOOK = f"""
import bz2, ctypes, hashlib, json, lzma, os, platform, shutil, socket, sqlite3, ssl, sys, zlib
network = socket.socket()
network.settimeout(2)
def error(call, *arguments):
    try:
        call(*arguments)
    except OSError as caught:
        return type(caught).__name__
print(json.dumps(dict(
    python=sys.version.split()[0], executable=sys.executable, uid=os.getuid(),
    home=os.environ["HOME"], libc=os.confstr("CS_GNU_LIBC_VERSION").split()[1],
    compilers=[name for name in {COMPILERS!r} if shutil.which(name)],
    network=error(network.connect, ("192.0.2.1", 80)),
    interfaces=[name for _, name in socket.if_nameindex()],
    root=error(open, "/usr/written", "w"), digest=hashlib.sha256(b"").hexdigest()[:4],
    stdcxx=bool(ctypes.CDLL("libstdc++.so.6")), system=platform.system(),
)))
"""


@pytest.fixture(scope="module")
def host(engine: Engine) -> Iterator[Container]:
    """One cpu-host for all tests that change nothing in it."""
    with engine.start(ContainerOptions(image=engine.image("cpu-host"))) as container:
        yield container


def python(container: Container, source: str, **options: Any) -> Any:
    """What a Python in the container prints, as JSON."""
    done = container.run(["python3", "-I", "-c", source], **options)
    assert done.ok, (done.ending, done.stderr)
    return json.loads(done.stdout)


def running(of: str = "") -> list[str]:
    """The names of the containers that carry wheelfab's label, of a process if given."""
    client = docker.from_env()
    try:
        found = client.containers.list(all=True, sparse=True, filters={"label": OWNER})
        names = [entry.attrs["Names"][0].removeprefix("/") for entry in found]
    finally:
        client.close()
    return [name for name in names if name.startswith(f"wheelfab-{of}")]


def gone(of: str) -> bool:
    """Whether the containers of a process are removed in time."""
    end = time.monotonic() + _PATIENCE
    while running(of):
        if time.monotonic() > end:
            return False
        time.sleep(0.2)
    return True


def test_an_image_is_built_once_and_found_again(
    engine: Engine, capsys: pytest.CaptureFixture[str]
) -> None:
    first = engine.image("cpu-host")
    capsys.readouterr()
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", first)
    assert engine.image("cpu-host") == first
    assert "building" not in capsys.readouterr().err


@pytest.mark.parametrize("base", BASES)
def test_python_runs_on_every_base(engine: Engine, base: str) -> None:
    with engine.start(ContainerOptions(image=engine.image("cpu-host", base))) as container:
        seen = python(container, LOOK)
        release = container.run(["cat", "/etc/os-release"]).stdout
    assert f'VERSION_ID="{base.removeprefix("debian-")}"' in release
    assert seen == {
        "python": seen["python"],
        "executable": "/opt/python/bin/python3",
        "uid": 10001,
        "home": "/home/wheel",
        "libc": BASES[base],
        "compilers": [],
        "network": "OSError",
        "interfaces": ["lo"],
        "root": "PermissionError",
        "digest": "e3b0",
        "stdcxx": True,
        "system": "Linux",
    }
    assert seen["python"].startswith("3.11.")


def test_the_builder_compiles_and_its_glibc_is_the_oldest(engine: Engine) -> None:
    with engine.start(ContainerOptions(image=engine.image("builder"))) as container:
        done = container.run(["/opt/python/cp311-cp311/bin/python", "-c", LOOK])
        seen = json.loads(done.stdout)
    assert seen["libc"] == min(BASES.values())
    assert {"g++", "gcc", "make"} <= set(seen["compilers"])
    assert seen["uid"] == 10001


@pytest.mark.parametrize("base", ["debian-11", "debian-12"])
def test_the_driver_host_has_nvidias_own_driver_and_no_device(engine: Engine, base: str) -> None:
    ask = """
import ctypes, json
cuda = ctypes.CDLL("libcuda.so.1")
version = ctypes.c_int()
print(json.dumps([cuda.cuDriverGetVersion(ctypes.byref(version)), version.value, cuda.cuInit(0)]))
"""
    with engine.start(ContainerOptions(image=engine.image("driver-host", base))) as container:
        assert python(container, ask) == [0, 12020, 100]
        cached = container.run(["/sbin/ldconfig", "-p"]).stdout
        polluted = container.run(
            ["grep", "-c", "GLIBCXX_3.4.28", "/opt/pollution/libstdc++/libstdc++.so.6"]
        )
        newer = container.run(
            ["grep", "-c", "GLIBCXX_3.4.29", "/opt/pollution/libstdc++/libstdc++.so.6"]
        )
    assert "libcuda.so.1 " in cached
    assert (polluted.returncode, newer.returncode) == (0, 1)


def test_the_diagnosis_host_sees_stacks_and_calls(engine: Engine) -> None:
    crash = "import ctypes; ctypes.string_at(0)"
    with engine.start(ContainerOptions(image=engine.image("diagnosis"))) as container:
        argv = ["gdb", "-q", "-batch", "-ex", "run", "-ex", "bt", "--args", "python3", "-c", crash]
        stack = container.run(argv)
        calls = container.run(["strace", "-f", "-e", "trace=openat", "python3", "-c", crash])
    assert "SIGSEGV" in stack.stdout
    assert re.search(r"#\d+ .* in _PyEval_EvalFrameDefault", stack.stdout), stack.stdout
    assert "_ctypes" in calls.stderr
    assert calls.returncode == -signal.SIGSEGV


def test_without_an_nvidia_runtime_gpus_are_refused_in_a_sentence(engine: Engine) -> None:
    if engine.has_nvidia:
        pytest.skip("this engine has an NVIDIA runtime")
    before = set(running(str(os.getpid())))
    options = ContainerOptions(image=engine.image("gpu-host"), gpus=True)
    with pytest.raises(NoDeviceError, match="no NVIDIA runtime"), engine.start(options):
        pass
    assert set(running(str(os.getpid()))) == before


@pytest.mark.parametrize(
    ("source", "returncode", "ending"),
    [
        ("pass", 0, "exit 0"),
        ("raise SystemExit(3)", 3, "exit 3"),
        ("raise SystemExit(139)", 139, "exit 139"),
        ("raise SystemExit(124)", 124, "exit 124"),
        ("raise SystemExit(127)", 127, "exit 127"),
        ("import ctypes; ctypes.string_at(0)", -11, "SIGSEGV"),
        ("import os; os.abort()", -6, "SIGABRT"),
        ("import os; os.kill(os.getpid(), 9)", -9, "SIGKILL"),
        ("import os; os.kill(os.getpid(), 40)", -40, "signal 40"),
    ],
)
def test_an_exit_code_and_a_signal_are_told_apart(
    host: Container, source: str, returncode: int, ending: str
) -> None:
    done = host.run(["python3", "-c", source])
    assert (done.returncode, done.ending) == (returncode, ending)
    assert "keeper" not in done.stderr


def test_streams_are_apart_and_bounded(host: Container) -> None:
    source = """
import sys
for number in range(1, 41):
    sys.stdout.write(f"{number:06}\\n" * 100_000)
    sys.stderr.write(f"{-number}\\n")
"""
    done = host.run(["python3", "-c", source])
    assert done.ok
    assert len(done.stdout) == (8 << 20) + len("[19611392 bytes left out]\n")
    assert done.stdout.startswith("[19611392 bytes left out]\n")
    assert done.stdout.endswith("000040\n")
    assert done.stderr.split() == [str(-number) for number in range(1, 41)]


def test_environment_folder_and_user_are_given(host: Container) -> None:
    source = "import json, os; print(json.dumps([os.environ['A'], os.getcwd(), os.getuid()]))"
    assert python(host, source, env={"A": "x y=$z\n"}, cwd="/opt", user="root") == [
        "x y=$z\n",
        "/opt",
        0,
    ]


def test_what_cannot_be_started_is_said(host: Container) -> None:
    with pytest.raises(UsageError, match="no-such-program"):
        host.run(["no-such-program"])
    with pytest.raises(UsageError, match="Permission denied"):
        host.run(["/etc/passwd"])
    with pytest.raises(HarnessError):
        host.run(["true"], user="nobody-of-that-name")


def test_past_its_time_the_whole_tree_is_killed_after_it_could_speak(host: Container) -> None:
    source = """
import faulthandler, os, subprocess, time
faulthandler.enable()
subprocess.Popen(["sleep", "86413"], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", "86414"])
    os._exit(0)
print("ready", flush=True)
time.sleep(86400)
"""
    started = time.monotonic()
    done = host.run(["python3", "-c", source], timeout=2.0)
    assert (done.returncode, done.ending) == (None, "timed out")
    assert time.monotonic() - started < 8
    assert 2.0 <= done.seconds < 4.0
    assert done.stdout == "ready\n"
    assert "Fatal Python error: Aborted" in done.stderr
    assert commands(host, "8641") == []


def test_who_ignores_sigabrt_is_killed_a_second_later(host: Container) -> None:
    source = "import signal, time; signal.signal(6, signal.SIG_IGN); time.sleep(86400)"
    done = host.run(["python3", "-c", source], timeout=1.0)
    assert done.ending == "timed out"
    assert 2.0 <= done.seconds < 4.0


def test_what_a_command_leaves_behind_is_killed_and_reaped(host: Container) -> None:
    done = host.run(["sh", "-c", "setsid sleep 86415 & sleep 86416 & echo left"])
    assert done.ok
    assert done.seconds < 5
    assert commands(host, "8641") == []
    assert commands(host, "<defunct>") == []


def commands(container: Container, of: str) -> list[str]:
    """The command lines in the container that hold ``of``; a zombie's is ``<defunct>``."""
    source = """
import json, pathlib
lines = []
for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
    try:
        lines.append(path.read_bytes().replace(b"\\0", b" ").decode() or "<defunct>")
    except OSError:
        pass
print(json.dumps(lines))
"""
    return [line for line in python(container, source) if of in line and "pathlib" not in line]


def test_eight_commands_at_once_keep_their_own_output(host: Container) -> None:
    def once(number: int) -> tuple[int | None, str, str]:
        source = f"import sys; sys.stdout.write('o{number}' * 50_000); print({number}); 1 / 0"
        done = host.run(["python3", "-c", source])
        return done.returncode, done.stdout, done.stderr.strip().splitlines()[-1]

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(once, range(32)))
    assert results == [
        (1, f"o{n}" * 50_000 + f"{n}\n", "ZeroDivisionError: division by zero") for n in range(32)
    ]


def test_memory_is_limited(engine: Engine) -> None:
    options = ContainerOptions(image=engine.image("cpu-host"), memory=64 << 20)
    with engine.start(options) as container:
        assert container.run(["python3", "-c", "b'x' * (1 << 20)"]).ok
        done = container.run(["python3", "-c", "b'x' * (1 << 28)"])
        assert done.ending == "SIGKILL"
        assert container.run(["true"]).ok


def test_read_only_with_folders_to_write_in(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "given").write_text("given")
    tmp_path.chmod(0o777)
    options = ContainerOptions(
        image=engine.image("cpu-host"),
        read_only=True,
        tmpfs={"/scratch": "size=1m,noexec,mode=1777"},
        mounts=(
            Mount(source=tmp_path, target="/mnt/read"),
            Mount(source=tmp_path, target="/mnt/written", writable=True),
        ),
    )
    script = (
        "cat /mnt/read/given; touch /home/wheel/x; touch /mnt/read/x; touch /mnt/written/y; "
        "cp /bin/true /scratch/; /scratch/true"
    )
    with engine.start(options) as container:
        done = container.run(["sh", "-c", script])
    assert done.stdout == "given"
    assert done.stderr.count("Read-only file system") == 2
    assert done.returncode == 126
    assert sorted(path.name for path in tmp_path.iterdir()) == ["given", "y"]


@pytest.mark.parametrize("target", ["builder", "cpu-host", "driver-host"])
def test_what_lies_in_roots_home_can_be_given(engine: Engine, tmp_path: Path, target: str) -> None:
    (tmp_path / "given").write_text("given")
    tmp_path.chmod(0o755)
    where = "/root/.cache/wheelfab"
    options = ContainerOptions(
        image=engine.image(target), mounts=(Mount(source=tmp_path, target=where),)
    )
    with engine.start(options) as container:
        assert container.run(["cat", f"{where}/given"]).stdout == "given"
        assert not container.run(["ls", "/root"]).ok


def test_a_seccomp_profile_holds(engine: Engine) -> None:
    profile = {
        "defaultAction": "SCMP_ACT_ALLOW",
        "syscalls": [{"names": ["memfd_create"], "action": "SCMP_ACT_ERRNO"}],
    }
    options = ContainerOptions(
        image=engine.image("cpu-host"), security=(f"seccomp={json.dumps(profile)}",)
    )
    with engine.start(options) as container:
        done = container.run(["python3", "-c", "import os; os.memfd_create('x')"])
    assert "PermissionError" in done.stderr


def test_privileges_are_given_only_when_asked_for(engine: Engine) -> None:
    image = engine.image("cpu-host")
    status = "grep -E '^(CapEff|NoNewPrivs)' /proc/self/status"
    with ExitStack() as stack:
        plain = stack.enter_context(engine.start(ContainerOptions(image=image)))
        given = stack.enter_context(
            engine.start(ContainerOptions(image=image, user="root", capabilities=("SYS_ADMIN",)))
        )
        lines = plain.run(["sh", "-c", status]).stdout.split()
        assert lines == ["CapEff:", "0" * 16, "NoNewPrivs:", "1"]
        assert not plain.run(["mount", "-t", "tmpfs", "none", "/mnt"]).ok
        assert given.run(["mount", "-t", "tmpfs", "none", "/mnt"]).ok


OWNING = """
import signal, sys
from pathlib import Path
from wheelfab.containers import ContainerOptions, find_engine
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell put aside
engine = find_engine(Path(sys.argv[1]))
with engine.start(ContainerOptions(image=engine.image("cpu-host"))) as container:
    print(container.id, flush=True)
    container.run(["sleep", "600"], timeout=600)
"""


def owning() -> subprocess.Popen[str]:
    """A process that has a container and runs a long command in it."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNING, str(ROOT)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "factory")},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline()
    return process


def test_an_interrupt_leaves_no_container(engine: Engine) -> None:
    assert engine
    with owning() as process:
        assert running(str(process.pid))
        process.send_signal(signal.SIGINT)
        process.wait(_PATIENCE)
    assert running(str(process.pid)) == []


def test_a_killed_owners_container_goes_with_the_next_start(engine: Engine) -> None:
    assert engine
    with owning() as killed, owning() as alive:
        killed.kill()
        killed.wait(_PATIENCE)
        assert running(str(killed.pid))
        with owning() as next_one:
            assert running(str(killed.pid)) == []
            assert running(str(alive.pid))
            next_one.send_signal(signal.SIGINT)
        alive.send_signal(signal.SIGINT)
    assert gone(str(alive.pid))


def test_a_failing_block_leaves_no_container(engine: Engine) -> None:
    before = set(running(str(os.getpid())))
    options = ContainerOptions(image=engine.image("cpu-host"))

    def fail() -> None:
        with engine.start(options):
            assert set(running(str(os.getpid()))) > before
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert set(running(str(os.getpid()))) == before


def test_a_container_that_cannot_start_is_said_and_removed(engine: Engine) -> None:
    before = set(running(str(os.getpid())))
    options = ContainerOptions(image=engine.image("cpu-host"), user="nobody-of-that-name")
    with pytest.raises(InfrastructureError, match="nobody-of-that-name"), engine.start(options):
        pass
    assert set(running(str(os.getpid()))) == before


def test_a_container_carries_its_owner(host: Container) -> None:
    client = docker.from_env()
    try:
        labels = client.containers.get(host.id).labels
    finally:
        client.close()
    assert labels[OWNER] == owner_labels()[OWNER]


def test_the_command_line_runs_a_command_in_a_container(engine: Engine, wheelfab: Wheelfab) -> None:
    assert engine
    done = wheelfab.run("container", "cpu-host", "--", "sh", "-c", "id -un; echo told >&2; exit 3")
    assert done.stdout == "wheel\n"
    assert "told" in done.stderr
    assert "exit 3" in done.stderr
    assert done.returncode == 8


def test_the_command_line_without_an_engine_says_what_to_do(wheelfab: Wheelfab) -> None:
    done = wheelfab.run("container", "cpu-host", DOCKER_HOST="unix:///none/docker.sock")
    assert done.returncode == InfrastructureError.exit_code
    assert "start dockerd, or set DOCKER_HOST" in done.stderr
