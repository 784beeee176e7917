"""The table in words: ``compat.md``, ``compat.json`` and the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import assert_never

from wheelfab import console
from wheelfab.compat.table import CompatTable, GpuEntry, TorchEntry, Verdict, WheelRow
from wheelfab.records import write_json, write_text

_INTRODUCTION = """\
# Compatibility

Written by `wheelfab compat` from the wheels in `dist/` and the records of their build and loops.
Nothing here is claimed that was not read from a wheel or seen in a loop, unless it says so.
"""
_TORCH = """\
## torch

*works* and *no* with a count: what an import loop of exactly this wheel saw, each load with one
operation and a checked value. *no: requires …*: METADATA does not allow that release, and pip and
uv refuse it. *untested*: no loop was run.
"""
_GPU = """\
## GPUs

Computed from the images that were read from each wheel and CUDA's rules of binary compatibility;
**not measured on a device**. A cubin needs the driver of its CUDA family; PTX is compiled by the
driver and needs that of the CUDA release itself. Facts as of {facts}.
"""


def write_table(table: CompatTable, folder: Path) -> None:
    """Write ``compat.json`` and ``compat.md`` into ``folder``."""
    write_json(folder / "compat.json", table)
    write_text(folder / "compat.md", to_markdown(table))


def show_table(table: CompatTable) -> None:
    """The table on stdout: wheels with their facts and verdicts, then the GPUs."""
    releases = [f"torch {release}" for release in table.releases]
    columns = ("cell", "CUDA", "archs", "driver cubin / PTX", "requires torch", *releases)
    console.table(columns, [_shown_row(table, row) for row in table.wheels], title="wheels")
    if table.gpus:
        title = "GPUs (computed, not measured on a device)"
        console.table(("cell", *table.capabilities), list(_gpu_rows(table)), title=title)
    if table.absent:
        rows = [(item.cell, str(item.state), item.reason) for item in table.absent]
        console.table(("cell", "state", "reason"), rows, title="without a wheel")


def to_markdown(table: CompatTable) -> str:
    """The whole table as Markdown, the same text for the same table."""
    parts = [_INTRODUCTION, "## Wheels\n", _wheels(table.wheels)]
    parts += [_TORCH, _grid(("cell", *table.releases), _torch_rows(table))]
    parts += [_GPU.format(facts=table.facts_as_of)]
    parts += [_grid(("cell", *table.capabilities), _gpu_rows(table))]
    if table.absent:
        rows = [(item.cell, str(item.state), item.reason) for item in table.absent]
        parts += ["## Cells without a wheel\n", _grid(("cell", "state", "reason"), rows)]
    return "\n".join(parts)


def _wheels(rows: Iterable[WheelRow]) -> str:
    columns = ("cell", "CUDA", "archs inside", "torch", "ABI", "Python", "glibc",
               "driver for cubin", "driver for PTX", "MB", "wheel")  # fmt: skip
    return _grid(
        columns,
        [
            (
                row.cell,
                row.cuda or "none",
                ", ".join(row.archs) or "none",
                row.torch,
                row.abi,
                row.python,
                row.glibc or "not said",
                *_drivers(row),
                f"{row.size / 1e6:.2f}",
                f"`{row.file}`",
            )
            for row in rows
        ],
    )


def _drivers(row: WheelRow) -> tuple[str, str]:
    if row.cuda is None:
        return "none", "none"
    has_ptx = any(arch.endswith("+PTX") for arch in row.archs)
    cubin = f"≥ {row.driver_cubin}" if row.driver_cubin else "not known"
    ptx = f"≥ {row.driver_ptx}" if row.driver_ptx else "not known" if has_ptx else "no PTX"
    return cubin, ptx


def _shown_row(table: CompatTable, row: WheelRow) -> tuple[str, ...]:
    verdicts = {entry.torch: _torch_text(entry) for entry in table.torch if entry.cell == row.cell}
    facts = (row.cell, row.cuda or "none", " ".join(row.archs) or "none")
    drivers = " / ".join(_drivers(row))
    return (*facts, drivers, row.torch, *(verdicts[release] for release in table.releases))


def _torch_rows(table: CompatTable) -> Iterable[tuple[str, ...]]:
    entries = {(entry.cell, entry.torch): _torch_text(entry) for entry in table.torch}
    for row in table.wheels:
        yield (row.cell, *(entries[row.cell, release] for release in table.releases))


def _torch_text(entry: TorchEntry) -> str:
    match entry.verdict:
        case Verdict.WORKS:
            return f"works ({entry.text})"
        case Verdict.FAILS | Verdict.REFUSED:
            return f"no: {entry.text}"
        case Verdict.UNTESTED:
            return "untested"
        case _:
            assert_never(entry.verdict)


def _gpu_rows(table: CompatTable) -> Iterable[tuple[str, ...]]:
    entries = {(entry.cell, entry.capability): entry for entry in table.gpus}
    for row in table.wheels:
        texts = (_gpu_text(row, entries[row.cell, number]) for number in table.capabilities)
        yield (row.cell, *texts)


def _gpu_text(row: WheelRow, entry: GpuEntry) -> str:
    if row.cuda is None:
        return "CPU only"
    return f"{entry.code} {entry.arch}" if entry.code else "no image"


def _grid(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [_line(columns), _line(["---"] * len(columns)), *(_line(row) for row in rows)]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"
