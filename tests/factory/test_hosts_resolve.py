"""Hosts of a matrix: cases of a table, what each is made with, and those that prove nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.factory.matrixmaker import MATRIX, load, refusal
from wheelfab.drivers.library import HERE as DRIVERS
from wheelfab.host import DRIVER_SETTINGS, HostOption, Reach
from wheelfab.matrix import load_matrix

ROOT = Path(__file__).parents[2]
STATE = MATRIX.replace(
    'sources = ["pyproject.toml"]', 'sources = ["pyproject.toml"]\nstate = "x"', 1
)
HOST = '[hosts.codes]\nhelp = "it answers"\ndriver = "fake"\nstatus = "unknown"\n'


def test_a_table_with_cases_is_a_host_a_case(tmp_path: Path) -> None:
    text = (
        STATE
        + HOST
        + (
            'environment = { A = "1", B = "1" }\n[hosts.codes.cases.3]\n'
            '[hosts.codes.cases.100]\nenvironment = { B = "2" }\nstatus = "no_device"\n'
            'status-without-code = "no_image"\n'
        )
    )
    three, hundred = load(tmp_path, text).hosts
    assert (three.name, three.group, three.help) == ("codes-3", "codes", "it answers")
    assert three.environment == {"A": "1", "B": "1"}
    assert (three.expect.status, three.expect.without_code) == ("unknown", "unknown")
    assert hundred.environment == {"A": "1", "B": "2"}
    assert (hundred.expect.status, hundred.expect.without_code) == ("no_device", "no_image")


@pytest.mark.parametrize(
    ("keys", "reach"),
    [
        ("", Reach.PROCESS),
        ('files = { "/proc/version" = "x" }', Reach.NAMESPACE),
        ('options = ["no-proc"]', Reach.NAMESPACE),
        ('files = { "/dev/dxg" = "" }', Reach.CONTAINER),
        ('options = ["no-proc", "read-only"]', Reach.CONTAINER),
        ('base = "debian-11"', Reach.CONTAINER),
        ('pollution = ["libstdc++"]', Reach.CONTAINER),
        ('pollution = ["libcudart"]', Reach.PROCESS),
        ('driver-place = "wsl"', Reach.CONTAINER),
        ('programs = { "/usr/bin/nvidia-smi" = "x" }', Reach.CONTAINER),
    ],
)
def test_what_a_host_must_be_made_with(tmp_path: Path, keys: str, reach: Reach) -> None:
    (host,) = load(tmp_path, f"{STATE}{HOST}{keys}\n").hosts
    assert host.reach is reach


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            STATE + '[hosts.a]\nhelp = "x"\n',
            "hosts.a: has no expected answer; add status, what project.state must answer there",
        ),
        (
            STATE + '[hosts.a]\nstatus = "x"\n',
            "hosts.a.help: is missing; say what is wrong with it",
        ),
        (
            MATRIX + HOST,
            (
                "hosts.codes.status: nothing gives a status; "
                "add project.state, the code that asks the extension for its state"
            ),
        ),
        (
            STATE + HOST.replace("fake", "fak"),
            "hosts.codes.driver: unknown value 'fak'; did you mean 'fake'?",
        ),
        (
            STATE + HOST.replace("fake", "real"),
            'hosts.codes.driver: the image has no driver; add image = "driver-host"',
        ),
        (
            STATE + HOST + "emulated = true\n",
            "hosts.codes.emulated: nothing emulates; add project.device-run.emulation",
        ),
        (
            STATE + HOST + 'variants = ["cu120"]\n',
            "hosts.codes.variants: no variant 'cu120'; did you mean 'cu121'?",
        ),
        (
            STATE + HOST + 'environment = { FAKENVML_MIG = "1" }\n',
            (
                "hosts.codes.environment.FAKENVML_MIG: the fake driver reads no such variable; "
                "did you mean 'FAKECUDA_MIG'?"
            ),
        ),
        (
            STATE + HOST + 'environment-after = [{}, { FAKECUDA_DEVICE = "8.0" }]\n',
            (
                "hosts.codes.environment-after[1].FAKECUDA_DEVICE: the fake driver reads no such "
                "variable; did you mean 'FAKECUDA_DEVICES'?"
            ),
        ),
        (
            STATE + HOST + 'python = ["-c"]\n',
            "hosts.codes.python[0]: '-c' is not an option of Python; write it as -OO",
        ),
        (
            STATE + HOST + 'files = { "/proc/../etc/x" = "" }\n',
            (
                r'hosts.codes.files."/proc/../etc/x"."[key]": '
                "'/proc/../etc/x' is not an absolute path; write it as /dev/nvidia0"
            ),
        ),
        (
            STATE + HOST + '[hosts.codes.cases.3]\nstats = "x"\n',
            "hosts.codes.cases.3.stats: unknown key; did you mean 'status'?",
        ),
        (
            STATE + HOST.replace("codes", "here"),
            "hosts.here: 'here' has a meaning of its own; choose another name",
        ),
    ],
)
def test_a_host_that_proves_nothing_is_refused(tmp_path: Path, text: str, message: str) -> None:
    assert refusal(tmp_path, text) == [f"matrix.toml: {message}"]


def test_the_variables_of_the_fake_driver_are_those_that_its_sources_read() -> None:
    sources = [path.read_text(encoding="utf-8") for path in DRIVERS.rglob("*.cpp")]
    assert set(re.findall(r'"(FAKE(?:CUDA|NVML)_\w+)"', "\n".join(sources))) == set(DRIVER_SETTINGS)


def test_every_host_that_was_promised_is_in_the_matrix() -> None:
    groups = {host.group for host in load_matrix(ROOT / "matrix.toml").hosts}
    assert groups >= {
        *("bare", "debian", "real-driver", "old-driver", "between-floors", "stub", "unversioned"),
        *("broken", "dies", "hangs", "code", "version-skew", "hidden", "no-image", "devices"),
        *("polluted", "wsl", "narrow", "old-cpu", "started", "wrong-torch"),
    }


def test_no_host_of_the_matrix_gives_root_to_a_load_unless_it_says_so() -> None:
    rooted = [
        host.name
        for host in load_matrix(ROOT / "matrix.toml").hosts
        if HostOption.ROOT in host.options
    ]
    assert rooted == ["narrow-root"]
