"""Which wheel to install on a machine, or why none, and the smallest change that makes one work.

``templates/verdict.js`` has the same rules for the page; a test compares both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice

from wheelfab.arch import Code
from wheelfab.compat.record import Answer, CompatTable, WheelRow
from wheelfab.compat.verdict import NO_GPU, Axis, Verdict, numbers, verdict

_ANSWERS = (Answer.WORKS, Answer.UNTESTED, Answer.NO)
# What a person changes sooner comes first; a pair only where one change is not enough.
_CHANGES: tuple[tuple[Axis, ...], ...] = (
    (Axis.TORCH,),
    (Axis.DRIVER,),
    (Axis.PYTHON,),
    (Axis.GLIBC,),
)
_PAIRS: tuple[tuple[Axis, ...], ...] = (
    (Axis.TORCH, Axis.DRIVER),
    (Axis.TORCH, Axis.PYTHON),
    (Axis.DRIVER, Axis.PYTHON),
    (Axis.TORCH, Axis.GLIBC),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Picked:
    """A machine; the values are those of ``verdict``."""

    torch: str
    python: str
    glibc: str
    gpu: str
    driver: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """Other values for some axes, and the cell whose wheel then works or is at least untested."""

    values: Mapping[Axis, str]
    cell: str
    answer: Answer


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer:
    """The wheel that fits best, with its verdict; unless it works, the nearest that would.

    ``cell`` is empty where there is no wheel at all.
    """

    cell: str
    verdict: Verdict | None
    nearest: tuple[Change, ...]


def offer(table: CompatTable, picked: Picked) -> Offer:
    """The best of the table's wheels on that machine."""
    best = _best(table.wheels, picked)
    if best is None:
        return Offer(cell="", verdict=None, nearest=())
    row, found = best
    return Offer(cell=row.cell, verdict=found, nearest=tuple(_nearest(table, picked, found)))


def judge(row: WheelRow, picked: Picked) -> Verdict:
    """``verdict`` of the row on that machine."""
    return verdict(row, **asdict(picked))


def _best(rows: Sequence[WheelRow], picked: Picked) -> tuple[WheelRow, Verdict] | None:
    judged = [(row, judge(row, picked)) for row in rows]
    return min(judged, key=lambda item: _rank(item[0], item[1], picked), default=None)


def _rank(row: WheelRow, found: Verdict, picked: Picked) -> tuple[int, ...]:
    """What works first; on the CPU the smaller wheel, on a GPU the one with machine code for it.

    Then the fewest obstacles, then the newest CUDA.
    """
    on_cpu = picked.gpu == NO_GPU
    image = next((item for item in row.gpus if item.capability == picked.gpu), None)
    newest = (*numbers(row.cuda or "0"), 0)
    return (
        _ANSWERS.index(found.answer),
        int(on_cpu is (row.cuda is not None)),
        len(found.reasons) if found.answer is not Answer.WORKS else 0,
        int(image is not None and image.code is not Code.CUBIN),
        -newest[0],
        -newest[1],
    )


def _nearest(table: CompatTable, picked: Picked, found: Verdict) -> Iterator[Change]:
    """What makes a wheel work; where nothing does, what ends a no; last, the CPU."""
    better = _ANSWERS[: _ANSWERS.index(found.answer)]
    for answer in better:
        changes = _changes(table, picked, answer)
        yield from changes
        if changes:
            break
    if picked.gpu != NO_GPU and better:
        best = _best(table.wheels, replace(picked, gpu=NO_GPU))
        if best is not None and best[1].answer in better:
            yield Change(values={Axis.GPU: NO_GPU}, cell=best[0].cell, answer=best[1].answer)


def _changes(table: CompatTable, picked: Picked, answer: Answer) -> list[Change]:
    """One change an axis that is enough alone; else the first pair."""
    singles = [change for axes in _CHANGES if (change := _change(table, picked, axes, answer))]
    if singles:
        return singles
    pairs = (_change(table, picked, axes, answer) for axes in _PAIRS)
    return list(islice(filter(None, pairs), 1))


def _change(
    table: CompatTable, picked: Picked, axes: Sequence[Axis], answer: Answer
) -> Change | None:
    """The nearest values of ``axes`` with which a wheel has that answer."""
    for values in _combinations(table, picked, axes):
        best = _best(table.wheels, replace(picked, **values))
        if best is not None and best[1].answer is answer:
            named = {Axis(name): value for name, value in values.items()}
            return Change(values=named, cell=best[0].cell, answer=answer)
    return None


def _combinations(
    table: CompatTable, picked: Picked, axes: Sequence[Axis]
) -> Iterator[dict[str, str]]:
    first, *rest = axes
    for value in _values(table, picked, first):
        if not rest:
            yield {first.value: value}
        for more in _combinations(table, picked, rest) if rest else ():
            yield {first.value: value, **more}


def _values(table: CompatTable, picked: Picked, axis: Axis) -> list[str]:
    """The other values of an axis, the nearest first; a driver or a glibc only gets newer."""
    axes = table.axes
    if axis is Axis.DRIVER:
        if picked.gpu == NO_GPU:
            return []
        names = [item.driver for item in axes.driver]
        return [name for name in names if numbers(name) > numbers(picked.driver)]
    if axis is Axis.GLIBC:
        return [name for name in axes.glibc if numbers(name) > numbers(picked.glibc)]
    names = list(axes.torch if axis is Axis.TORCH else axes.python)
    chosen = picked.torch if axis is Axis.TORCH else picked.python
    at = names.index(chosen) if chosen in names else len(names)
    order = sorted(range(len(names)), key=lambda i: (abs(i - at), -i))
    return [names[i] for i in order if i != at]
