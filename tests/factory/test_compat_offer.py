"""Which wheel is offered on a machine, and what is nearest where none works."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.factory.cellmaker import build_all, cells
from tests.factory.compatmaker import looped_table
from wheelfab.compat import CompatTable, Picked, offer, tabulate
from wheelfab.compat.offer import Offer
from wheelfab.compat.record import Answer

DRIVER = "550.54.14"


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> CompatTable:
    return looped_table(tmp_path_factory.mktemp("project"))


def pick(**values: str) -> Picked:
    """A machine with torch 2.13.0 on Python 3.11 and no GPU, with some values changed."""
    usual = {"torch": "2.13.0", "python": "3.11", "glibc": "2.36", "gpu": "none", "driver": ""}
    return Picked(**{**usual, **values})


def answered(found: Offer) -> tuple[str, Answer | None]:
    """The cell and the answer."""
    return found.cell, found.verdict.answer if found.verdict else None


def nearest(found: Offer) -> list[tuple[dict[str, str], str]]:
    """What would have to change, and the cell that then works."""
    assert all(item.answer is Answer.WORKS for item in found.nearest)
    return [({str(k): v for k, v in item.values.items()}, item.cell) for item in found.nearest]


@pytest.mark.parametrize(
    ("values", "cell"),
    [
        ({}, "cpu-torch2.10"),
        ({"torch": "2.4.1"}, "cpu-torch2.4"),
        ({"gpu": "9.0", "driver": DRIVER}, "cu121-torch2.10"),
        ({"gpu": "9.0", "driver": DRIVER, "torch": "2.4.1"}, "cu121-torch2.4"),
        # too old for CUDA 12, new enough for 11.8 and for torch's own build for it
        ({"gpu": "8.6", "driver": "470.57.02", "torch": "2.4.1"}, "cu118-torch2.4"),
        # Blackwell by PTX: 11.8's is compiled by 520 on, 12.1's by 530.30.02 on
        ({"gpu": "12.0", "driver": "525.85.12", "torch": "2.10.0"}, "cu118-torch2.10"),
        ({"gpu": "12.0", "driver": "570.26", "torch": "2.10.0"}, "cu121-torch2.10"),
    ],
)
def test_the_wheel_for_a_machine(table: CompatTable, values: dict[str, str], cell: str) -> None:
    found = offer(table, pick(**values))
    assert answered(found) == (cell, Answer.WORKS)
    assert found.nearest == ()


def test_a_driver_that_is_too_old_names_the_one_that_is_enough(table: CompatTable) -> None:
    found = offer(table, pick(gpu="9.0", driver="470.57.02"))
    assert found.verdict is not None
    assert found.verdict.answer is Answer.NO
    assert nearest(found) == [
        ({"torch": "2.4.1"}, "cu118-torch2.4"),
        ({"driver": "525.60.13"}, "cu121-torch2.10"),
        ({"gpu": "none"}, "cpu-torch2.10"),
    ]


def test_an_old_gpu_has_the_cpu_left(table: CompatTable) -> None:
    found = offer(table, pick(gpu="7.5", driver=DRIVER))
    assert answered(found)[1] is Answer.NO
    assert nearest(found) == [({"gpu": "none"}, "cpu-torch2.10")]


def test_the_nearest_torch_and_python(table: CompatTable) -> None:
    assert nearest(offer(table, pick(torch="2.6.0", gpu="9.0", driver=DRIVER)))[0] == (
        {"torch": "2.4.1"},
        "cu121-torch2.4",
    )
    assert nearest(offer(table, pick(torch="2.4.1", python="3.14"))) == [
        ({"torch": "2.10.0"}, "cpu-torch2.10"),
        ({"python": "3.12"}, "cpu-torch2.4"),
    ]


def test_two_changes_where_one_is_not_enough(table: CompatTable) -> None:
    """No CUDA build of torch 2.13 runs on that driver, and no wheel is for Python 3.9."""
    found = offer(table, pick(torch="2.13.0", python="3.9", gpu="9.0", driver="470.57.02"))
    assert nearest(found) == [({"torch": "2.4.1", "python": "3.10"}, "cu118-torch2.4")]


def test_untested_is_offered_as_such_with_what_is_known_to_work(table: CompatTable) -> None:
    found = offer(table, pick(torch="2.12.1"))
    assert answered(found) == ("cpu-torch2.10", Answer.UNTESTED)
    assert nearest(found) == [({"torch": "2.13.0"}, "cpu-torch2.10")]


def test_a_loop_that_failed_is_not_offered_on_that_torch(table: CompatTable) -> None:
    """Driver 520 is too old for CUDA 12; the wheel for 11.8 failed on torch 2.13."""
    found = offer(table, pick(gpu="9.0", driver="520.61.05"))
    assert found.verdict is not None
    assert found.verdict.answer is Answer.NO


def test_where_nothing_works_what_ends_a_no_is_named_as_untested(tmp_path: Path) -> None:
    build_all(tmp_path)
    found = offer(tabulate(tmp_path, cells(), ()), pick(gpu="9.0", driver="390.157"))
    assert found.verdict is not None
    assert found.verdict.answer is Answer.NO
    assert {(str(next(iter(item.values))), item.answer) for item in found.nearest} == {
        ("driver", Answer.UNTESTED),
        ("gpu", Answer.UNTESTED),
    }


def test_without_any_wheel_there_is_no_offer(tmp_path: Path) -> None:
    assert offer(tabulate(tmp_path, (), ()), pick()) == Offer(cell="", verdict=None, nearest=())
