"""What a place is made with: possible or not, and what is mounted over /proc."""

from __future__ import annotations

import os
from pathlib import Path

from tests.factory.hostmaker import host
from wheelfab.host import HostOption
from wheelfab.hosts.arrange import Arrangement, arrange
from wheelfab.hosts.places import _binds, possible


def test_a_host_that_wants_a_container_is_not_possible_without_an_engine() -> None:
    assert possible(host(), None) == ""
    assert "needs a container" in possible(host(base="debian-11"), None)
    root = os.geteuid() == 0
    no_proc = host(options=(HostOption.NO_PROC,))
    assert bool(possible(no_proc, None)) is not root


def test_files_of_proc_are_mounted_and_those_of_the_driver_as_a_folder(tmp_path: Path) -> None:
    files = {
        "/proc/driver/nvidia/version": "Kernel Module 1.2",
        "/proc/version": "WSL",
        "/dev/dxg": "",
    }
    things = arrange(host(files=files), tmp_path, tmp_path / "libraries")
    assert _binds(things) == (
        *(str(tmp_path / "files/proc/driver"), "/proc/driver"),
        *(str(tmp_path / "files/proc/version"), "/proc/version"),
    )
    assert (tmp_path / "files/proc/driver/nvidia/version").read_text() == "Kernel Module 1.2"


def test_a_load_inherits_nothing(tmp_path: Path) -> None:
    os.environ["WHEELFAB_TEST_LEAK"] = "1"
    try:
        things = arrange(host(environment={"A": "b"}), tmp_path, tmp_path / "libraries")
    finally:
        del os.environ["WHEELFAB_TEST_LEAK"]
    assert isinstance(things, Arrangement)
    assert things.environment["A"] == "b"
    assert "WHEELFAB_TEST_LEAK" not in things.environment
    assert "LD_LIBRARY_PATH" not in things.environment
