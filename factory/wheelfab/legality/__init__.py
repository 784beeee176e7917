"""Legality: the rules of ``facts/rules.toml`` evaluated, and what else the facts say of a row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from packaging.version import Version

from wheelfab import facts
from wheelfab.errors import ToolchainError
from wheelfab.facts import Rule
from wheelfab.legality import pins, rows, whole
from wheelfab.legality.draft import Draft, Flaw, PinDraft, Row
from wheelfab.model import Matrix, Pin, Variant
from wheelfab.versions import DriverVersion

PIN_RULES: tuple[tuple[str, Callable[[PinDraft], Iterator[Flaw]]], ...] = (
    ("torch-known", pins.torch_known),
    ("pin-lowest", pins.pin_lowest),
    ("pin-stable", pins.pin_stable),
    ("pin-run-on", pins.pin_run_on),
)
ROW_RULES: tuple[tuple[str, Callable[[Row], Iterator[Flaw]]], ...] = (
    ("variant-name", rows.variant_name),
    ("platform", rows.platform),
    ("cpu-row", rows.cpu_row),
    ("cuda-known", rows.cuda_known),
    ("toolchain-gives-cuda", rows.toolchain_gives_cuda),
    ("arch-listed", rows.arch_listed),
    ("cuda-knows-arch", rows.cuda_knows_arch),
    ("index-serves-cuda", rows.index_serves_cuda),
    ("torch-listed", rows.torch_listed),
    ("cell-once", rows.cell_once),
    ("python", rows.python_tag),
    ("glibc", rows.glibc_level),
)
CELL_RULES: tuple[tuple[str, Callable[[Row, int, Pin], Iterator[Flaw]]], ...] = (
    ("torch-built-for-cuda", rows.torch_built_for_cuda),
    ("python", rows.python_torch),
    ("glibc", rows.glibc_torch),
)
MATRIX_RULES: tuple[tuple[str, Callable[[Draft], Iterator[Flaw]]], ...] = (
    ("cell-once", whole.pin_names),
    ("parts", whole.parts),
    ("load-stages", whole.load_stages),
    ("local-version-order", whole.local_version_order),
    ("exclusion", whole.exclusion),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class DriverFloors:
    """The oldest Linux drivers for a variant: for its cubins, and for running from its PTX.

    Both are ``None`` without CUDA; ``ptx`` also where the variant holds none, or its floor is not
    known.
    """

    cubin: DriverVersion | None
    ptx: DriverVersion | None


def check(draft: Draft) -> Iterator[Flaw]:
    """Everything illegal in ``draft``, in the order pins, rows, whole; each with its source."""
    rules = facts.rules()
    for pin in draft.pins.values():
        for name, of_pin in PIN_RULES:
            if pin.pin.kind in rules[name].pins:
                yield from _sourced(rules[name], of_pin(pin))
    for row in draft.rows:
        yield from _check_row(row, rules)
    for name, of_matrix in MATRIX_RULES:
        yield from _sourced(rules[name], of_matrix(draft))


def _check_row(row: Row, rules: Mapping[str, Rule]) -> Iterator[Flaw]:
    for name, of_row in ROW_RULES:
        if row.variant.kind in rules[name].rows:
            yield from _sourced(rules[name], of_row(row))
    for at, pin in row.pins:
        for name, of_cell in CELL_RULES:
            rule = rules[name]
            if row.variant.kind in rule.rows and pin.kind in rule.pins:
                yield from _sourced(rule, of_cell(row, at, pin))


def _sourced(rule: Rule, flaws: Iterable[Flaw]) -> Iterator[Flaw]:
    """The flaws, each with the source of the fact that it rests on or else of the rule."""
    return (flaw if flaw.source else replace(flaw, source=rule.source) for flaw in flaws)


def check_host_compiler(
    gcc: Version, *, cuda: Version | None = None, torch: Version | None = None
) -> None:
    """Check the host compiler before anything is compiled: nvcc's range, and torch's oldest gcc.

    ``cuda`` is the release whose nvcc will use it (``None`` for NVRTC, which uses none), ``torch``
    the release whose ATen headers it will compile. What the facts do not know is not checked.

    Raises ``ToolchainError`` that names the range and its source.
    """
    release = facts.cuda_release(cuda) if cuda else None
    if release is not None and not release.gcc_min <= gcc.major <= release.gcc_max:
        raise ToolchainError(
            f"g++ is {gcc}, and nvcc of CUDA {release.version} takes gcc {release.gcc_min} to "
            f"{release.gcc_max}",
            where="host compiler",
            next_step=f"install g++-{release.gcc_max}; never -allow-unsupported-compiler "
            f"[{release.gcc_source}]",
        )
    known = facts.torch_release(torch) if torch else None
    if known is not None and known.gcc_min is not None and gcc < known.gcc_min:
        raise ToolchainError(
            f"g++ is {gcc}, and the headers of torch {known.version} want gcc {known.gcc_min}",
            where="host compiler",
            next_step=f"install a newer g++ [{known.cxx_source}]",
        )


def driver_floors(variant: Variant) -> DriverFloors:
    """The oldest drivers that run the wheels of ``variant``.

    A cubin needs the floor of the CUDA family (minor-version compatibility), PTX the floor of the
    very release. Source: CUDA Toolkit release notes, tables 2 and 3.
    """
    release = facts.cuda_release(variant.cuda) if variant.cuda else None
    if release is None:
        return DriverFloors(cubin=None, ptx=None)
    has_ptx = any(arch.ptx for arch in variant.arch)
    return DriverFloors(cubin=release.family_floor, ptx=release.toolkit_floor if has_ptx else None)


def notes(matrix: Matrix) -> tuple[str, ...]:
    """What is legal and still worth knowing, a sentence each: the drivers that PTX needs."""
    found = []
    for variant in matrix.variants:
        ptx = [arch.target for arch in variant.arch if arch.ptx]
        floors = driver_floors(variant)
        if not ptx:
            continue
        needs = f"driver {floors.ptx}" if floors.ptx else "a driver that is not known here"
        found.append(
            f"{variant.name}: its PTX ({', '.join(ptx)}) needs {needs}, its cubins {floors.cubin}"
        )
    return tuple(found)
