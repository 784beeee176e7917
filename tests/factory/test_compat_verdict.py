"""The joined verdict: one no is enough, then one gap; what works says what was tried of it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.factory.compatmaker import gpu, python, row, torch
from wheelfab.arch import Code
from wheelfab.compat.record import Answer, By, WheelRow
from wheelfab.compat.verdict import NO_GPU, Axis, Verdict, numbers, verdict

HERE: dict[str, Any] = {
    "torch": "2.13.0",
    "python": "3.11",
    "glibc": "2.36",
    "gpu": NO_GPU,
    "driver": "",
}
ON_GPU: dict[str, Any] = {"gpu": "9.0", "driver": "550.54.14"}


def ask(found: WheelRow | None = None, **values: Any) -> Verdict:
    """The verdict on the usual machine, a CPU, with some values changed."""
    return verdict(found or row(), **{**HERE, **values})


def said(found: Verdict) -> tuple[Answer, list[tuple[Axis, str]]]:
    """Answer and reasons."""
    return found.answer, [(reason.axis, reason.text) for reason in found.reasons]


def test_a_place_that_was_looped_works_by_its_loop_alone() -> None:
    found = ask()
    assert (found.answer, found.by, found.computed) == (Answer.WORKS, By.LOOP, ())
    assert said(found)[1] == [(Axis.TORCH, "loop 100 of 100 fresh")]


def test_what_was_not_tried_with_that_torch_is_called_computed() -> None:
    assert ask(python="3.12").computed == (Axis.PYTHON,)
    assert ask(glibc="2.41").computed == (Axis.GLIBC,)
    found = ask(**ON_GPU)
    assert (found.by, found.computed) == (By.LOOP, (Axis.GPU, Axis.DRIVER))
    assert (Axis.GPU, "machine code for 9.0") in said(found)[1]
    measured = row(gpus=(gpu("9.0", measured=True),))
    assert ask(measured, **ON_GPU).computed == (Axis.DRIVER,)


def test_by_the_atlas() -> None:
    entry = torch(by=By.ATLAS, reason="all 33 symbols", pythons_seen=(), glibcs_seen=())
    found = ask(row(torch=(entry,)))
    assert (found.answer, found.by) == (Answer.WORKS, By.ATLAS)
    assert found.computed == (Axis.PYTHON, Axis.GLIBC)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"python": "3.14"}, "not for it"),
        ({"glibc": "2.17"}, "needs glibc 2.28, not 2.17"),
        ({"glibc": "2.5"}, "needs glibc 2.28, not 2.5"),  # by number, not as text
        ({**ON_GPU, "gpu": "7.5"}, "no image"),
        (
            {**ON_GPU, "driver": "520.61.05"},
            "its CUDA 12.1 machine code needs driver 525.60.13, not 520.61.05",
        ),
        (
            {"gpu": "12.0", "driver": "525.85.12"},
            "its CUDA 12.1 PTX needs driver 530.30.02, not 525.85.12",
        ),
    ],
)
def test_each_axis_can_say_no(values: dict[str, Any], reason: str) -> None:
    answer, reasons = said(ask(**values))
    assert answer is Answer.NO
    assert reason in [text for _, text in reasons]


@pytest.mark.parametrize(
    ("values", "axis", "reason"),
    [
        ({"torch": "9.9.0"}, "torch", "torch 9.9.0 is not in this table"),
        ({"python": "2.7"}, "python", "Python 2.7 is not in this table"),
        ({"glibc": "musl"}, "glibc", "musl is no glibc release"),
        ({"gpu": "99.0"}, "gpu", "compute capability 99.0 is not in this table"),
        ({"gpu": "9.0", "driver": ""}, "driver", "which driver is not known"),
        ({"gpu": "9.0", "driver": "five"}, "driver", "which driver is not known"),
    ],
)
def test_what_is_not_known_is_untested(values: dict[str, Any], axis: str, reason: str) -> None:
    found = ask(row(pythons=(python("3.11"),), torch=(torch(pythons=()),)), **values)
    assert said(found) == (Answer.UNTESTED, [(axis, reason)])


def test_a_no_counts_more_than_a_gap_and_all_are_given() -> None:
    found = ask(row(torch=(torch(answer=Answer.UNTESTED, reason="no loop"),)), glibc="2.17",
                python="3.14")  # fmt: skip
    answer, reasons = said(found)
    assert answer is Answer.NO
    assert [axis for axis, _ in reasons] == [Axis.PYTHON, Axis.PYTHON, Axis.GLIBC, Axis.GLIBC]


def test_torch_must_have_a_wheel_for_the_python() -> None:
    entry = torch(pythons=("3.11",))
    answer, reasons = said(ask(row(torch=(entry,)), python="3.12"))
    assert (answer, reasons) == (
        Answer.NO, [(Axis.PYTHON, "torch 2.13.0 has no wheel for Python 3.12")]
    )  # fmt: skip


def test_torchs_own_cuda_builds_need_a_driver() -> None:
    some = torch(driver="580.65.06", builds_complete=False)
    known = torch(driver="580.65.06")
    text = "torch 2.13.0 needs driver 580.65.06, not 550.54.14"
    assert said(ask(row(torch=(known,)), **ON_GPU)) == (
        Answer.NO, [(Axis.DRIVER, f"every CUDA build of {text}")]
    )  # fmt: skip
    assert ask(row(torch=(some,)), **ON_GPU).answer is Answer.UNTESTED
    assert ask(row(torch=(known,))).answer is Answer.WORKS  # no GPU, no driver


def test_a_cpu_wheel_is_none_for_a_gpu_and_a_cuda_wheel_works_without_one() -> None:
    cpu: Any = {"cuda": None, "archs": (), "gpus": (), "driver_cubin": None, "driver_ptx": None}
    assert said(ask(row(**cpu), **ON_GPU)) == (
        Answer.NO, [(Axis.GPU, "has no device code: CPU only")]
    )  # fmt: skip
    assert ask(row(**cpu)).answer is Answer.WORKS
    assert ask().answer is Answer.WORKS


def test_a_floor_that_nobody_knows_is_a_gap() -> None:
    found = ask(row(gpus=(gpu("12.0", Code.PTX, driver=None),)), gpu="12.0", driver="610.43.02")
    assert said(found) == (
        Answer.UNTESTED, [(Axis.DRIVER, "the oldest driver for CUDA 12.1 PTX is not known")]
    )  # fmt: skip
    assert ask(row(glibc=None)).answer is Answer.UNTESTED


def test_numbers_compare_as_versions_do() -> None:
    assert numbers("525.60.13") == (525, 60, 13)
    assert numbers("570.26") < numbers("570.26.1")
    assert numbers("2.5") < numbers("2.28")
    for text in ("", "5.", "-1.2", "1e3", "99999", "٣.1", "a"):
        assert numbers(text) == ()
