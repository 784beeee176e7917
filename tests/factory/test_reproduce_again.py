"""What is compared with what: the first build, the container's by its compiler, a given wheel."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from wheelfab.diagnosis import Compiles
from wheelfab.errors import UsageError, WheelError
from wheelfab.plan import Plan, plan
from wheelfab.reproduce.again import (
    ReproduceOptions,
    compare_build,
    compare_given,
    given_cell,
    reproduce,
)
from wheelfab.reproduce.builds import Made
from wheelfab.reproduce.report import Outcome, Report
from wheelfab.source import Source
from wheelfab.store import Store
from wheelfab.variant import expand, select

from .lockmaker import make_locked
from .matrixmaker import MATRIX, load
from .test_plan import COMPILER, FILES
from .wheelmaker import make_wheel

CELL = "cu121-torch2.4"
OLD, NEW = {"version": "12.2.0", "cc1plus": "1"}, {"version": "13.1.0", "cc1plus": "2"}


def built(folder: Path, name: str, compiler: dict[str, str], text: bytes = b"same") -> Made:
    """A build that left a wheel by ``compiler`` with ``text`` in it."""
    record = {
        "version": "0.1.0+cu121.torch2.4",
        "compilers": {"host": compiler},
        "torch": {},
        "tools": {},
        "plan": "p",
    }
    files = {"freewheel/_build.json": json.dumps(record).encode(), "freewheel/x.py": text}
    wheel = make_wheel(folder / name, files=files)
    return Made(
        name=name,
        root=folder / name,
        seconds=1.0,
        compiles=Compiles(host=1, device=0),
        wheels={CELL: wheel},
        failures={},
    )


def report(made: Made) -> Report:
    """The report of a first build."""
    return Report(
        cell=CELL,
        wheel=made.wheels[CELL].name,
        compiler="g++",
        compiler_locked=True,
        different={},
        same={},
        builds=(),
    )


@pytest.fixture(autouse=True)
def no_diffoscope(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unit tests start no process."""
    monkeypatch.setattr("wheelfab.reproduce.again.shutil.which", lambda _: None)


def test_equal_bytes_are_the_same(tmp_path: Path) -> None:
    first, second = built(tmp_path, "first", OLD), built(tmp_path, "second", OLD)
    assert compare_build(CELL, second, first, tmp_path).outcome is Outcome.SAME


def test_other_bytes_differ_with_their_cause_and_why_there_is_no_report(tmp_path: Path) -> None:
    first = built(tmp_path, "first", OLD)
    second = built(tmp_path, "second", OLD, b"other")
    found = compare_build(CELL, second, first, tmp_path)
    assert found.outcome is Outcome.DIFFERS
    assert [item.where for item in found.findings] == ["freewheel/x.py"]
    assert found.diffoscope.startswith("no diffoscope on the PATH; install it")


def test_the_container_is_not_compared_with_another_compilers_bytes(tmp_path: Path) -> None:
    first, boxed = built(tmp_path, "first", NEW), built(tmp_path, "container", OLD)
    found = compare_build(CELL, boxed, first, tmp_path)
    assert found.outcome is Outcome.NOT_COMPARED
    assert found.reason.startswith("made by g++ 12.2.0 (")
    assert "there and by g++ 13.1.0 (" in found.reason


def test_a_build_without_a_wheel_says_why(tmp_path: Path) -> None:
    first = built(tmp_path, "first", OLD)
    broken = Made(
        name="second",
        root=tmp_path,
        seconds=0,
        compiles=Compiles(host=0, device=0),
        wheels={},
        failures={CELL: "no disk"},
    )
    found = compare_build(CELL, broken, first, tmp_path)
    assert (found.outcome, found.reason) == (Outcome.FAILED, "no disk")
    turned = compare_build(CELL, first, broken, tmp_path)
    assert turned.outcome is Outcome.NOT_COMPARED


def test_a_given_wheel_is_held_to_the_build_that_had_its_compiler(tmp_path: Path) -> None:
    first, boxed = built(tmp_path, "first", NEW), built(tmp_path, "container", OLD)
    given = built(tmp_path, "given", OLD).wheels[CELL]
    (only,) = compare_given(report(first), given, [first, boxed], tmp_path).builds
    assert (only.name, only.outcome) == ("given", Outcome.SAME)
    foreign = built(tmp_path, "foreign", {"version": "14"}).wheels[CELL]
    (only,) = compare_given(report(first), foreign, [first, boxed], tmp_path).builds
    assert only.outcome is Outcome.DIFFERS
    assert [str(item.cause) for item in only.findings] == ["compiler"]


def test_a_given_wheel_that_no_build_has_a_twin_of_is_not_compared(tmp_path: Path) -> None:
    first = built(tmp_path, "first", OLD)
    broken = replace(first, wheels={}, failures={CELL: "no disk"})
    (only,) = compare_given(report(first), first.wheels[CELL], [broken], tmp_path).builds
    assert (only.name, only.outcome) == ("given", Outcome.NOT_COMPARED)
    assert only.reason == "no build left a wheel to compare it with"


def planned(folder: Path, *names: str) -> Plan:
    """A plan of the cells ``names`` of the project ``demo``, or of all six."""
    matrix = load(folder, MATRIX)
    for file, text in FILES.items():
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    source = Source(root=folder, commit=None, epoch=1)
    cells = select(expand(matrix), names)
    return plan(matrix, cells, source, COMPILER, make_locked(COMPILER))


def test_a_given_wheel_is_of_one_cell_whatever_its_public_version(tmp_path: Path) -> None:
    made = planned(tmp_path)
    for version in ("0.1.0+cu121.torch2.4", "7+cu121.torch2.4"):
        assert given_cell(made, make_wheel(tmp_path, name="demo", version=version)).id == CELL


@pytest.mark.parametrize(
    ("cells", "name", "version", "says"),
    [
        (
            ["cu121"],
            "demo",
            "0.1.0+cpu.torch2.4",
            (
                "--against: demo-0.1.0+cpu.torch2.4-cp310-abi3-manylinux_2_28_x86_64.whl is demo "
                "0.1.0+cpu.torch2.4, not a cell that is built: cu121-torch2.4 "
                "(demo …+cu121.torch2.4), cu121-torch2.10 (demo …+cu121.torch2.10); "
                "give the wheel of one of them, or name its cell with --cell"
            ),
        ),
        ([CELL], "other", "0.1.0+cu121.torch2.4", "is other 0.1.0+cu121.torch2.4, not a cell"),
        ([CELL], "demo", "0.1.0", "is demo 0.1.0, not a cell"),
        ([CELL], "demo", "0.1.0+cu121.torch2.4.debug", ".debug, not a cell"),
    ],
)
def test_a_given_wheel_of_no_cell_is_an_error_before_anything_is_built(
    tmp_path: Path, cells: list[str], name: str, version: str, says: str
) -> None:
    given = make_wheel(tmp_path, name=name, version=version)
    options = ReproduceOptions(against=given, container=False)
    with pytest.raises(UsageError) as caught:
        reproduce(planned(tmp_path, *cells), Store(tmp_path / "store"), options)
    assert says in str(caught.value)
    assert not (tmp_path / "build").exists()


def test_a_given_wheel_that_was_renamed_is_an_error(tmp_path: Path) -> None:
    made = make_wheel(tmp_path, name="demo", version="0.1.0+cpu.torch2.4")
    given = made.rename(tmp_path / made.name.replace("cpu", "cu121"))
    with pytest.raises(WheelError, match="never renamed"):
        given_cell(planned(tmp_path), given)
