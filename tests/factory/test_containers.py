"""What is asked of the engine and how its answers are read; no engine is asked."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import pytest

from wheelfab.containers import ContainerOptions, Mount, NoEngine, find_engine
from wheelfab.containers.images import Recipe
from wheelfab.containers.options import KEEPER, creation
from wheelfab.containers.owner import OWNER, is_abandoned, owner_labels
from wheelfab.containers.stream import Demultiplexer, Kind, Tail, engine_returncode
from wheelfab.containers.visit import visiting
from wheelfab.errors import UsageError


def asked(**options: Any) -> dict[str, Any]:
    """The arguments for a container with these options."""
    chosen = ContainerOptions(image="sha256:1", **options)
    return creation(chosen, name="wheelfab-1", labels={OWNER: "me"}, runtime="crun")


def frame(stream: int, data: bytes) -> bytes:
    """One of docker's frames."""
    return bytes([stream, 0, 0, 0]) + len(data).to_bytes(4, "big") + data


def test_a_container_has_nothing_unless_it_is_given() -> None:
    arguments = asked()
    assert arguments["network_mode"] == "none"
    assert arguments["user"] == "wheel"
    assert arguments["security_opt"] == ["no-new-privileges"]
    assert arguments["entrypoint"] == [KEEPER]
    assert arguments["labels"] == {OWNER: "me"}
    assert arguments["runtime"] == "crun"
    assert (arguments["mounts"], arguments["environment"], arguments["cap_add"]) == ([], {}, [])
    assert not arguments["privileged"]
    assert not arguments["read_only"]
    assert "mem_limit" not in arguments
    assert "device_requests" not in arguments


def test_a_mount_is_read_only_unless_it_is_writable(tmp_path: Path) -> None:
    read, written = asked(
        mounts=(
            Mount(source=tmp_path, target="/wheels"),
            Mount(source=tmp_path, target="/out", writable=True),
        )
    )["mounts"]
    assert read == {
        "Type": "bind",
        "Source": str(tmp_path),
        "Target": "/wheels",
        "ReadOnly": True,
    }
    assert written["ReadOnly"] is False


def test_a_mount_of_nothing_is_refused_not_made(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        asked(mounts=(Mount(source=tmp_path / "none", target="/x"),))


def test_the_memory_limit_leaves_no_way_out_into_swap() -> None:
    arguments = asked(memory=1 << 28)
    assert arguments["mem_limit"] == arguments["memswap_limit"] == 1 << 28


def test_gpus_are_asked_of_the_default_runtime() -> None:
    arguments = asked(gpus=True)
    assert arguments["device_requests"] == [
        {"Driver": "", "Count": -1, "DeviceIDs": [], "Capabilities": [["gpu"]], "Options": {}}
    ]
    assert "runtime" not in arguments


def test_other_options_reach_the_engine() -> None:
    arguments = asked(
        user=None,
        read_only=True,
        tmpfs={"/tmp": "noexec"},  # noqa: S108 (a folder of the container)
        capabilities=("SYS_PTRACE",),
        security=("seccomp={}",),
        environment={"A": "1"},
        hostname="bare",
    )
    assert "user" not in arguments
    assert arguments["read_only"]
    assert arguments["tmpfs"] == {"/tmp": "noexec"}  # noqa: S108
    assert arguments["cap_add"] == ["SYS_PTRACE"]
    assert arguments["security_opt"] == ["no-new-privileges", "seccomp={}"]
    assert arguments["environment"] == {"A": "1"}
    assert arguments["hostname"] == "bare"
    assert asked(privileged=True)["security_opt"] == []
    assert "hostname" not in asked(network=True)


def test_a_live_owner_keeps_its_container_and_a_dead_one_does_not() -> None:
    labels = owner_labels()
    assert not is_abandoned(labels)
    machine, pid, started = labels[OWNER].split("/")
    assert pid == str(os.getpid())
    assert is_abandoned({OWNER: f"{machine}/{pid}/{int(started) - 1}"})  # its number went on
    assert is_abandoned({OWNER: f"{machine}/4194305/{started}"})  # above the highest there can be


@pytest.mark.parametrize(
    "label", ["", "another-boot-1/4194305/7", "{machine}/x/7", "{machine}", "{machine}//"]
)
def test_what_cannot_be_judged_is_kept(label: str) -> None:
    machine = owner_labels()[OWNER].split("/")[0]
    assert not is_abandoned({OWNER: label.format(machine=machine)})


def test_a_zombie_owns_nothing(tmp_path: Path) -> None:
    (tmp_path / "sys/kernel/random").mkdir(parents=True)
    (tmp_path / "sys/kernel/random/boot_id").write_text("boot\n")
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/pid").touch()
    inode = (tmp_path / "self/ns/pid").stat().st_ino
    (tmp_path / "7").mkdir()
    labels = {OWNER: f"boot-{inode}/7/900"}
    rest = " ".join(["0"] * 18 + ["900", "0"])
    (tmp_path / "7/stat").write_text(f"7 (a) b) S {rest}")
    assert not is_abandoned(labels, tmp_path)
    (tmp_path / "7/stat").write_text(f"7 (a) b) Z {rest}")
    assert is_abandoned(labels, tmp_path)


@pytest.mark.parametrize("size", [1, 3, 8, 9, 1000])
def test_frames_are_taken_apart_however_they_were_cut(size: int) -> None:
    whole = frame(1, b"out 1\n") + frame(2, b"err") + frame(1, b"") + frame(1, b"out 2")
    output = Demultiplexer()
    for start in range(0, len(whole), size):
        output.feed(whole[start : start + size])
    assert output.stdout.text() == "out 1\nout 2"
    assert output.stderr.text() == "err"


def test_of_a_long_stream_the_end_is_kept() -> None:
    tail = Tail(10)
    for number in range(100):
        tail.add(b"%02d" % number)
    assert tail.text() == "[190 bytes left out]\n9596979899"


@pytest.mark.parametrize(
    ("line", "kind", "returncode"),
    [
        ("exit 0 5", Kind.EXIT, 0),
        ("exit 139 5", Kind.EXIT, 139),
        ("signal 11 5", Kind.SIGNAL, -11),
        ("timeout 0 1500000000", Kind.TIMEOUT, None),
        ("errno 2 5", Kind.ERRNO, 2),
    ],
)
def test_the_keepers_line_is_read_and_taken_off(
    line: str, kind: Kind, returncode: int | None
) -> None:
    output = Demultiplexer()
    output.feed(frame(2, b"its own\n") + frame(2, b"\0keeper " + line.encode() + b"\n"))
    ending = output.ending()
    assert ending is not None
    assert (ending.kind, ending.returncode) == (kind, returncode)
    assert ending.seconds == int(line.split()[2]) / 1e9
    assert output.stderr.text() == "its own\n"


@pytest.mark.parametrize(
    "stderr", [b"", b"keeper exit 0 5\n", b"\0keeper exit 0 5\nmore", b"\0keeper exit -1 5\n"]
)
def test_what_is_not_the_keepers_line_stays(stderr: bytes) -> None:
    output = Demultiplexer()
    output.feed(frame(2, stderr))
    assert output.ending() is None
    assert output.stderr.text() == stderr.decode()


@pytest.mark.parametrize(
    ("code", "returncode"), [(None, None), (0, 0), (1, 1), (128, 128), (137, -9), (255, 255)]
)
def test_an_engines_code_of_a_killed_keeper(code: int | None, returncode: int | None) -> None:
    assert engine_returncode(code) == returncode


def test_an_image_is_known_by_all_that_it_is_made_of(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM x\n")

    def digest(target: str = "cpu-host", base: str = "sha256:1") -> str:
        made_of = Recipe(folder=tmp_path, target=target, base="debian-12", arguments={"BASE": base})
        assert made_of.tag == f"wheelfab/{target}:debian-12"
        return made_of.digest

    seen = {digest(), digest("gpu-host"), digest(base="sha256:2")}
    (tmp_path / "keeper.c").write_text("")
    seen.add(digest())
    (tmp_path / "Dockerfile").write_text("FROM y\n")
    seen.add(digest())
    assert len(seen) == 5
    (tmp_path / "bootstrap").write_text("")  # what it makes is known by the bases' ids
    assert digest() in seen


def test_a_visitor_sees_the_built_wheels_and_gpus_only_where_meant(tmp_path: Path) -> None:
    options = visiting("sha256:1", "cpu-host", tmp_path)
    assert options.mounts == (Mount(source=tmp_path, target="/wheels"),)
    assert (options.user, options.network, options.gpus) == ("wheel", False, False)
    assert visiting("sha256:1", "gpu-host", tmp_path / "none").mounts == ()
    assert visiting("sha256:1", "gpu-host", tmp_path).gpus


@pytest.mark.parametrize("where", ["unix:///none/docker.sock", "garbage://", "ssh://", "tcp://:x"])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_no_engine_is_an_answer(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", where)
    answer = find_engine(tmp_path)
    assert isinstance(answer, NoEngine)
    assert where in answer.reason
    gc.collect()  # the SDK leaves its socket to it, loudly
