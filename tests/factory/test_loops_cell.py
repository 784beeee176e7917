"""The loop of a cell: which releases, which wheel, and that the torch under test was the one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from tests.factory.cellmaker import build_cell
from tests.factory.wheelmaker import make_cell
from wheelfab.errors import HarnessError, UsageError
from wheelfab.facts import AbiKind
from wheelfab.loops.cell import (
    built_wheel,
    imported_torch,
    parse_releases,
    plan_runs,
    require_asked,
)
from wheelfab.loops.environment import Environment, unmet_requirements
from wheelfab.loops.interpreter import Interpreter
from wheelfab.loops.judge import Load
from wheelfab.loops.report import SkipKind
from wheelfab.model import CudaApi, Pin, Profile, Toolchain, Variant
from wheelfab.records import file_digest, write_json
from wheelfab.variant import Cell
from wheelfab.wheel import Wheel, read_wheel

V = Version
HERE = Interpreter(path=Path("python"), version=V("3.11.7"), markers=(("python_version", "3.11"),))


def cell(kind: AbiKind = AbiKind.STABLE) -> Cell:
    """A cell of cu121: for the stable ABI, or for the series 2.4."""
    stable = kind is AbiKind.STABLE
    pin = Pin(
        key="stable >= 2.10" if stable else "2.4",
        kind=kind,
        series=V("2.10") if stable else V("2.4"),
        lowest=V("2.10.0") if stable else V("2.4.1"),
        headers=V("2.13.0") if stable else V("2.4.1"),
        run_on=(V("2.10.0"), V("2.13.0")) if stable else (V("2.4.1"),),
    )
    variant = Variant(
        name="cu121",
        cuda=V("12.1"),
        arch=(),
        cuda_api=CudaApi.DRIVER,
        toolchain=Toolchain.PYPI_NVRTC,
        torch=(pin.key,),
        torch_index="https://index.example/cpu",
        torch_fallback=None,
        python=SpecifierSet(">=3.10"),
        glibc=V("2.28"),
        platform="linux-x86_64",
        size_budget=1,
    )
    return Cell(id="cu121-torch2.10" if stable else "cu121-torch2.4", variant=variant, pin=pin)


@pytest.fixture
def wheel(tmp_path: Path) -> Wheel:
    """A wheel of the cell for the stable ABI."""
    return read_wheel(make_cell(tmp_path / "dist", "cu121-torch2.10"))


def test_without_a_wish_the_pins_releases_are_looped(wheel: Wheel) -> None:
    planned, skipped = plan_runs(cell(), wheel, ())
    assert [run.torch for run in planned] == [V("2.10.0"), V("2.13.0")]
    assert skipped == []
    assert planned[0].pythons == (V("3.10"), V("3.11"), V("3.12"), V("3.13"), V("3.14"))


def test_a_release_that_the_pin_does_not_allow_is_not_asked_of_this_cell(wheel: Wheel) -> None:
    planned, skipped = plan_runs(cell(), wheel, (V("2.4.1"), V("2.14.1")))
    assert [run.torch for run in planned] == [V("2.14.1")]
    assert [(skip.torch, skip.kind) for skip in skipped] == [(V("2.4.1"), SkipKind.NOT_ASKED)]


def test_a_release_without_facts_cannot_be_looped(wheel: Wheel) -> None:
    planned, skipped = plan_runs(cell(), wheel, (V("9.9.0"),))
    assert planned == []
    assert skipped[0].kind is SkipKind.NOT_POSSIBLE


def test_releases_are_versions() -> None:
    assert parse_releases(["2.10.0"]) == (V("2.10.0"),)
    with pytest.raises(UsageError, match="--torch"):
        parse_releases(["newest"])


def test_a_release_that_no_cell_takes_is_a_mistake() -> None:
    cells = (cell(AbiKind.CLASSIC), cell())
    require_asked(cells, ())
    require_asked(cells, ("2.4.1", "2.13.0"))
    with pytest.raises(UsageError) as caught:
        require_asked(cells, ("2.4.1", "2.5.0", "2.6.0"))
    assert str(caught.value) == (
        "--torch: no cell takes 2.5.0, 2.6.0; cu121-torch2.4 takes torch<2.5,>=2.4.1; "
        "cu121-torch2.10 takes torch>=2.10"
    )


def test_the_wheel_is_the_one_that_was_built(tmp_path: Path, wheel: Wheel) -> None:
    record = tmp_path / "build" / "cu121-torch2.10" / "build.json"
    with pytest.raises(UsageError, match="was not built"):
        built_wheel(tmp_path, cell())
    write_json(record, {"wheel": None, "sha256": None, "reason": "no compiler"})
    with pytest.raises(UsageError, match="has no wheel: no compiler"):
        built_wheel(tmp_path, cell())
    write_json(record, {"wheel": wheel.file, "sha256": "0" * 64, "reason": ""})
    with pytest.raises(UsageError, match="changed since it was built"):
        built_wheel(tmp_path, cell())
    write_json(record, {"wheel": wheel.file, "sha256": file_digest(wheel.path), "reason": ""})
    assert built_wheel(tmp_path, cell()) == wheel
    wheel.path.unlink()
    with pytest.raises(UsageError, match="its wheel is gone"):
        built_wheel(tmp_path, cell())


def test_row_19_the_twins_wheel_is_found_in_its_own_place(tmp_path: Path) -> None:
    twin = replace(cell(), id="cu121-torch2.10-debug", profile=Profile.DEBUG)
    build_cell(tmp_path, "cu121-torch2.10")
    with pytest.raises(UsageError, match=r"run `wheelfab build cu121-torch2\.10 --debug`"):
        built_wheel(tmp_path, twin)
    build_cell(tmp_path, twin.id)
    assert built_wheel(tmp_path, twin).local == "cu121.torch2.10.debug"
    assert built_wheel(tmp_path, cell()).local == "cu121.torch2.10"


def installed(**versions: str) -> Environment:
    """An environment with these distributions."""
    found = tuple((name, V(version)) for name, version in versions.items())
    return Environment(root=Path("env"), python=Path("env/bin/python"), installed=found)


def test_the_torch_that_was_imported_is_the_one_that_is_installed() -> None:
    def load(torch: str | None) -> Load:
        return Load(load=0, total=1.0, stages={}, torch=torch)

    environment = installed(torch="2.10.0")
    assert imported_torch([load("2.10.0+cu128")] * 2, environment) == "2.10.0+cu128"
    assert imported_torch([load(None)], environment) is None
    with pytest.raises(HarnessError, match="was imported"):
        imported_torch([load("2.13.0")], environment)
    with pytest.raises(HarnessError, match="several torch"):
        imported_torch([load("2.10.0"), load("2.10.0+cpu")], environment)


def test_requirements_are_met_or_named(wheel: Wheel) -> None:
    assert unmet_requirements(wheel, installed(torch="2.10.0"), HERE) == ()
    assert unmet_requirements(wheel, installed(torch="2.4.1"), HERE) == (
        "torch>=2.10 (installed: 2.4.1)",
    )
    assert unmet_requirements(wheel, installed(), HERE) == ("torch>=2.10 (not installed)",)
