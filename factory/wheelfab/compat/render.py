"""The table in words: ``compat.md``, ``compat.json``, ``compat.html`` and the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import assert_never

from packaging.version import Version

from wheelfab import console
from wheelfab.arch import Code
from wheelfab.compat.page import index_words, to_html
from wheelfab.compat.record import Answer, By, CompatTable, GpuEntry, TorchEntry, WheelRow
from wheelfab.records import write_json, write_text

_FROM_VOLTA = Version("7.0")  # older GPUs get a column only where some wheel has code for them
_INTRODUCTION = """\
# Compatibility

Written by `wheelfab compat` from the wheels in `dist/` and the records of their build, loops and
hosts. Nothing here is claimed that was not read from a wheel or seen in a load, unless it says so.
"""
_TORCH = """\
## torch

*works* with a count: what loads of exactly this wheel saw, each with one operation and a checked
value; *works by the atlas*: every symbol that it needs is in that release, and nothing was loaded.
*no: requires …*: METADATA does not allow that release, and pip and uv refuse it. *untested*:
neither a load nor the atlas says anything.
"""
_GPU = """\
## GPUs

Computed from the images that were read from each wheel and CUDA's rules of binary compatibility;
**not measured on a device** but where it says so. A cubin needs the driver of its CUDA family; PTX
is compiled by the driver and needs that of the CUDA release itself. Facts as of {facts}.
"""
_INSTALL = """\
## Installing

{where}

{lines}
"""


def write_table(table: CompatTable, folder: Path) -> None:
    """Write ``compat.json``, ``compat.md`` and ``compat.html`` into ``folder``."""
    write_json(folder / "compat.json", table)
    write_text(folder / "compat.md", to_markdown(table))
    write_text(folder / "compat.html", to_html(table))


def show_table(table: CompatTable) -> None:
    """The table on stdout: wheels with their facts and verdicts, then the GPUs."""
    releases = [f"torch {release}" for release in table.releases]
    columns = ("cell", "CUDA", "archs", "driver cubin / PTX", "requires torch", *releases)
    console.table(columns, [_shown_row(table, row) for row in table.wheels], title="wheels")
    if table.wheels:
        title = "GPUs (computed, not measured on a device)"
        console.table(("cell", *_capabilities(table)), list(_gpu_rows(table)), title=title)
    if table.absent:
        rows = [(item.cell, str(item.state), item.reason) for item in table.absent]
        console.table(("cell", "state", "reason"), rows, title="without a wheel")


def to_markdown(table: CompatTable) -> str:
    """The whole table as Markdown, the same text for the same table."""
    parts = [_INTRODUCTION, "## Wheels\n", _wheels(table.wheels)]
    parts += [_TORCH, _grid(("cell", *table.releases), _torch_rows(table))]
    parts += [_GPU.format(facts=table.facts_as_of.cuda)]
    parts += [_grid(("cell", *_capabilities(table)), _gpu_rows(table))]
    if table.wheels:
        lines = "\n".join(f"    {row.install}" for row in table.wheels)
        parts += [_INSTALL.format(where=index_words(table), lines=lines)]
    if table.absent:
        rows = [(item.cell, str(item.state), item.reason) for item in table.absent]
        parts += ["## Cells without a wheel\n", _grid(("cell", "state", "reason"), rows)]
    return "\n".join(parts)


def _wheels(rows: Iterable[WheelRow]) -> str:
    columns = ("cell", "CUDA", "archs inside", "torch", "ABI", "Python", "glibc", "GLIBCXX",
               "driver for cubin", "driver for PTX", "MB", "hosts as expected", "audit",
               "wheel")  # fmt: skip
    return _grid(
        columns,
        [
            (
                row.cell,
                row.cuda or "none",
                ", ".join(row.archs) or "none",
                row.requires_torch,
                row.abi,
                row.requires_python,
                row.glibc or "not said",
                row.glibcxx or "none",
                *_drivers(row),
                f"{row.size / 1e6:.2f}",
                _hosts(row),
                _audit(row),
                f"`{row.file}`",
            )
            for row in rows
        ],
    )


def _hosts(row: WheelRow) -> str:
    if row.hosts is None:
        return "untested"
    bad = f", not {', '.join(row.hosts.failed)}" if row.hosts.failed else ""
    return f"{row.hosts.passed} of {row.hosts.passed + len(row.hosts.failed)}{bad}"


def _audit(row: WheelRow) -> str:
    if row.audit is None:
        return "not audited"
    return "; ".join((row.audit.verdict, *row.audit.errors))


def _drivers(row: WheelRow) -> tuple[str, str]:
    if row.cuda is None:
        return "none", "none"
    has_ptx = any(arch.endswith("+PTX") for arch in row.archs)
    cubin = f"≥ {row.driver_cubin}" if row.driver_cubin else "not known"
    ptx = f"≥ {row.driver_ptx}" if row.driver_ptx else "not known" if has_ptx else "no PTX"
    return cubin, ptx


def _shown_row(table: CompatTable, row: WheelRow) -> tuple[str, ...]:
    facts = (row.cell, row.cuda or "none", " ".join(row.archs) or "none")
    drivers = " / ".join(_drivers(row))
    return (*facts, drivers, row.requires_torch, *_torch_texts(table, row))


def _torch_rows(table: CompatTable) -> Iterable[tuple[str, ...]]:
    for row in table.wheels:
        yield (row.cell, *_torch_texts(table, row))


def _torch_texts(table: CompatTable, row: WheelRow) -> list[str]:
    entries = {entry.torch: entry for entry in row.torch}
    return [torch_text(entries[release]) for release in table.releases]


def torch_text(entry: TorchEntry) -> str:
    """An entry in a table's words: ``works (loop 100 of 100 fresh …)``."""
    match entry.answer:
        case Answer.WORKS:
            by_whom = "" if entry.by is By.LOOP else " by the atlas"
            return f"works{by_whom} ({entry.reason})"
        case Answer.NO:
            return f"no: {entry.reason}"
        case Answer.UNTESTED:
            return "untested"
        case _:
            assert_never(entry.answer)


def _capabilities(table: CompatTable) -> list[str]:
    """Those that are worth a column."""
    used = {item.capability for row in table.wheels for item in row.gpus if item.code}
    return [
        number for number in table.capabilities if number in used or Version(number) >= _FROM_VOLTA
    ]


def _gpu_rows(table: CompatTable) -> Iterable[tuple[str, ...]]:
    for row in table.wheels:
        entries = {entry.capability: entry for entry in row.gpus}
        texts = (_gpu_text(entries.get(number)) for number in _capabilities(table))
        yield (row.cell, *texts)


def _gpu_text(entry: GpuEntry | None) -> str:
    if entry is None:
        return "CPU only"
    if entry.code is None:
        return "no image"
    name = "PTX" if entry.code is Code.PTX else "cubin"
    return f"{name} {entry.arch}" + (", measured" if entry.measured else "")


def _grid(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [_line(columns), _line(["---"] * len(columns)), *(_line(row) for row in rows)]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"
