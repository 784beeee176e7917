"""The rule that joins a row's entries into one verdict.

``templates/verdict.js`` is the same rule for the page; a test compares both over the whole cross
product. Whoever changes one changes the other, to the letter of each reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from wheelfab.arch import Code
from wheelfab.compat.record import Answer, By, GpuEntry, TorchEntry, WheelRow

NO_GPU = "none"


class Axis(StrEnum):
    """What a wheel's working depends on."""

    TORCH = "torch"
    PYTHON = "python"
    GLIBC = "glibc"
    GPU = "gpu"
    DRIVER = "driver"


@dataclass(frozen=True, kw_only=True, slots=True)
class Reason:
    """Why, and by which axis."""

    axis: Axis
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """A wheel in one place: every reason of a no, else every gap, else what speaks for it.

    ``by`` says what a ``works`` rests on. ``computed`` are the axes of a ``works`` on which nothing
    was tried with that torch release: tags and CUDA's rules speak for them.
    """

    answer: Answer
    by: By | None
    reasons: tuple[Reason, ...]
    computed: tuple[Axis, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Found:
    """What one axis, or two of them together, say against a wheel."""

    answer: Answer
    reason: Reason


def verdict(
    row: WheelRow, *, torch: str, python: str, glibc: str, gpu: str, driver: str
) -> Verdict:
    """Whether the wheel of ``row`` works on one machine.

    ``gpu`` is a compute capability (``9.0``), or ``NO_GPU`` for use on the CPU; ``driver`` a Linux
    driver (``535.104.05``), empty where it is not known. The other values are as on the axes.
    """
    entry = next((item for item in row.torch if item.torch == torch), None)
    image = next((item for item in row.gpus if item.capability == gpu), None)
    found = [
        *_torch(entry, torch),
        *_python(row, entry, python),
        *_glibc(row, entry, glibc),
        *_gpu(row, image, gpu),
        *_driver(row, entry, image, driver),
    ]
    for answer in (Answer.NO, Answer.UNTESTED):
        reasons = tuple(item.reason for item in found if item.answer is answer)
        if reasons:
            return Verdict(answer=answer, by=None, reasons=reasons, computed=())
    if entry is None:  # never: that is untested
        raise ValueError(torch)
    return _works(entry, image, python, glibc)


def numbers(text: str) -> tuple[int, ...]:
    """A dotted version as what it is compared by; empty where it is none."""
    parts = text.split(".")
    known = all(part.isascii() and part.isdigit() and len(part) <= 4 for part in parts)
    return tuple(map(int, parts)) if known else ()


def _works(entry: TorchEntry, image: GpuEntry | None, python: str, glibc: str) -> Verdict:
    reasons = [Reason(axis=Axis.TORCH, text=entry.reason)]
    computed = []
    if python not in entry.pythons_seen:
        computed.append(Axis.PYTHON)
    if glibc not in entry.glibcs_seen:
        computed.append(Axis.GLIBC)
    if image is not None:
        reasons.append(Reason(axis=Axis.GPU, text=image.reason))
        computed += [Axis.DRIVER] if image.measured else [Axis.GPU, Axis.DRIVER]
    return Verdict(
        answer=Answer.WORKS, by=entry.by, reasons=tuple(reasons), computed=tuple(computed)
    )


def _torch(entry: TorchEntry | None, torch: str) -> Iterator[_Found]:
    if entry is None:
        yield _gap(Axis.TORCH, f"torch {torch} is not in this table")
    elif entry.answer is not Answer.WORKS:
        yield _Found(answer=entry.answer, reason=Reason(axis=Axis.TORCH, text=entry.reason))


def _python(row: WheelRow, entry: TorchEntry | None, python: str) -> Iterator[_Found]:
    mine = next((item for item in row.pythons if item.python == python), None)
    if mine is None:
        yield _gap(Axis.PYTHON, f"Python {python} is not in this table")
    elif mine.answer is not Answer.WORKS:
        yield _Found(answer=mine.answer, reason=Reason(axis=Axis.PYTHON, text=mine.reason))
    if entry is not None and entry.pythons and python not in entry.pythons:
        yield _no(Axis.PYTHON, f"torch {entry.torch} has no wheel for Python {python}")


def _glibc(row: WheelRow, entry: TorchEntry | None, glibc: str) -> Iterator[_Found]:
    here = numbers(glibc)
    if not here:
        yield _gap(Axis.GLIBC, f"{glibc} is no glibc release")
        return
    if row.glibc is None:
        yield _gap(Axis.GLIBC, "no tag of the wheel says which glibc it needs")
    elif here < numbers(row.glibc):
        yield _no(Axis.GLIBC, f"needs glibc {row.glibc}, not {glibc}")
    if entry is not None and entry.glibc is not None and here < numbers(entry.glibc):
        yield _no(Axis.GLIBC, f"torch {entry.torch} needs glibc {entry.glibc}, not {glibc}")


def _gpu(row: WheelRow, image: GpuEntry | None, gpu: str) -> Iterator[_Found]:
    if gpu == NO_GPU:
        return
    if row.cuda is None:
        yield _no(Axis.GPU, "has no device code: CPU only")
    elif image is None:
        yield _gap(Axis.GPU, f"compute capability {gpu} is not in this table")
    elif image.code is None:
        yield _no(Axis.GPU, image.reason)


def _driver(
    row: WheelRow, entry: TorchEntry | None, image: GpuEntry | None, driver: str
) -> Iterator[_Found]:
    """Asked only where the wheel has an image for the GPU: ours first, then torch's own."""
    if image is None or image.code is None:
        return
    here = numbers(driver)
    if not here:
        yield _gap(Axis.DRIVER, "which driver is not known")
        return
    what = "PTX" if image.code is Code.PTX else "machine code"
    if image.driver is None:
        yield _gap(Axis.DRIVER, f"the oldest driver for CUDA {row.cuda} {what} is not known")
    elif here < numbers(image.driver):
        text = f"its CUDA {row.cuda} {what} needs driver {image.driver}, not {driver}"
        yield _no(Axis.DRIVER, text)
    if entry is None or entry.driver is None or here >= numbers(entry.driver):
        return
    if entry.builds_complete:
        text = f"every CUDA build of torch {entry.torch} needs driver {entry.driver}, not {driver}"
        yield _no(Axis.DRIVER, text)
    else:
        known = f"the CUDA builds of torch {entry.torch} that are known"
        yield _gap(Axis.DRIVER, f"{known} need driver {entry.driver}, not {driver}")


def _no(axis: Axis, text: str) -> _Found:
    return _Found(answer=Answer.NO, reason=Reason(axis=axis, text=text))


def _gap(axis: Axis, text: str) -> _Found:
    return _Found(answer=Answer.UNTESTED, reason=Reason(axis=axis, text=text))
