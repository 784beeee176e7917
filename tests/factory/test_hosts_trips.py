"""The plan of a visit: which stages, on which devices, with how many forks."""

from __future__ import annotations

import json
from pathlib import Path

from tests.factory.hostmaker import host
from tests.factory.matrixmaker import MATRIX, load
from tests.factory.test_hosts_judge import expected
from wheelfab.hosts.arrange import Emulation
from wheelfab.hosts.trips import on_devices, plan_of, stages_of, usable_of, write_plan
from wheelfab.hosts.visit import read_plan
from wheelfab.model import Project

RUN = """
[project.device-run]
operation = "seen.append(device)"
launch = "pass"
emulation = "emulate.py"
"""


def project(folder: Path) -> Project:
    """The small matrix's project, with an operation for devices."""
    return load(folder, MATRIX.replace('\n[torch."2.4"]', f'{RUN}\n[torch."2.4"]', 1)).project


def emulation(folder: Path) -> Emulation:
    """Devices on fibers."""
    return Emulation(folder=folder, environment={}, before="emulate()")


def test_a_device_without_an_image_is_not_used_whatever_kind_it_is() -> None:
    images = ("8.0", "none", "9.0+PTX", "none on MIG", "9.0 on MIG")
    assert usable_of(expected(images=images)) == (0, 2, 4)
    assert usable_of(expected()) == ()


def test_the_operation_runs_on_each_device_by_its_ordinal() -> None:
    seen: list[str] = []
    exec(on_devices("seen.append(device)", (0, 2)), {"seen": seen})  # noqa: S102 (its purpose)
    assert seen == ["cuda:0", "cuda:2"]


def test_operations_on_devices_are_a_stage_where_something_emulates_them(tmp_path: Path) -> None:
    made, there = project(tmp_path), expected(images=("8.0",))
    assert [name for name, _, _ in stages_of(made, there, None)] == ["package"]
    with_devices = stages_of(made, there, emulation(tmp_path))
    assert [(name, needs) for name, _, needs in with_devices] == [
        ("package", False),
        ("devices", True),
    ]
    assert stages_of(made, expected(images=("none",)), emulation(tmp_path)) == with_devices[:1]


def test_a_plan_is_one_that_the_visit_reads(tmp_path: Path) -> None:
    made = project(tmp_path)
    there = host(environment_after=({"A": "1"},))
    stages = stages_of(made, expected(), None)
    write_plan(tmp_path / "plan.json", plan_of(made, there, stages, emulation(tmp_path), 3))
    plan = read_plan(str(tmp_path / "plan.json"))
    assert plan == json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))
    assert plan["stages"] == [["package", "import demo", False]]
    assert plan["repeat"] == ["package", "import demo"]
    assert (plan["later"], plan["way"], plan["before"]) == ([{"A": "1"}], "plain", "emulate()")
    assert plan["forks"] == 3
