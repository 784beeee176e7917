"""Fills in the defaults of the tables of ``matrix.toml`` and keeps where each value is written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from wheelfab import facts
from wheelfab.arch import Arch, merge, parse_arch_list
from wheelfab.errors import MatrixError
from wheelfab.facts import AbiKind
from wheelfab.legality.draft import Draft, Flaw, PinDraft, Row
from wheelfab.matrix_file import (
    DeviceRunTable,
    DeviceTable,
    MatrixFile,
    PinTable,
    ProjectTable,
    RowDefaults,
    SessionTable,
    Table,
    TorchFallback,
    VariantTable,
    size_in_bytes,
)
from wheelfab.matrix_reader import Reading, key_path
from wheelfab.model import (
    CudaApi,
    Debug,
    Device,
    DeviceRun,
    Exclusion,
    LoadStage,
    Part,
    Pin,
    Project,
    Session,
    Toolchain,
    Variant,
    cell_id,
)
from wheelfab.suggest import did_you_mean

BUILT_IN_SESSIONS = (
    *("plan", "build", "reproduce", "cpu-import-loop", "gpu-import-loop", "compat", "index"),
    "publish",
)
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"

Archs = tuple[tuple[str, Arch], ...]

_PIN = re.compile(r"(?P<stable>stable >= )?(?P<series>[1-9]\d?\.\d{1,2})", re.ASCII)
_PIN_LIKE = re.compile(r"(?P<stable>stable)?\D{0,4}(?P<series>[1-9]\d?\.\d{1,2})(?!\d).*", re.ASCII)


def resolve(reading: Reading, file: MatrixFile) -> tuple[Draft, tuple[Flaw, ...]]:
    """The draft of a matrix, and what hindered it: pins and archs that cannot be read."""
    resolver = _Resolver(reading, file)
    return resolver.draft(), tuple(resolver.flaws)


def resolve_sessions(
    file: MatrixFile, draft: Draft
) -> tuple[Mapping[str, Session], tuple[Flaw, ...]]:
    """The project's own sessions, and those whose wheel is no cell or whose name is taken."""
    cells = [cell_id(row.name, pin) for row in draft.rows for _, pin in row.pins]
    of_rows = (f"{what}-{row.name}" for row in draft.rows for what in ("build", "shell"))
    taken = {*BUILT_IN_SESSIONS, *of_rows}
    flaws = []
    for name, table in file.sessions.items():
        if name in taken:
            what = "is the name of a session that every project has"
            flaws.append(Flaw(where=f"sessions.{name}", what=what, next_step="choose another"))
        if table.wheel is not None and table.wheel not in cells and not draft.broken:
            known = did_you_mean(table.wheel, cells) or f"cells are {', '.join(cells)}"
            where = f"sessions.{name}.wheel"
            flaws.append(Flaw(where=where, what=f"no cell {table.wheel!r}", next_step=known))
    return {name: _session(table) for name, table in file.sessions.items()}, tuple(flaws)


class _Resolver:
    """Goes through the tables once, in the order pins, defaults, rows."""

    def __init__(self, reading: Reading, file: MatrixFile) -> None:
        self.flaws: list[Flaw] = []
        self.reading, self.file = reading, file
        self.broken = set(reading.broken)
        self.project = _project(file.project)
        self.pins = self._pins()
        self.default_archs = self._archs(("defaults",), file.defaults)

    def draft(self) -> Draft:
        rows = tuple(self._row(name, table) for name, table in self.file.variants.items())
        return Draft(
            project=self.project,
            pins=self.pins,
            rows=rows,
            exclude=tuple(
                (at, Exclusion(variant=entry.variant, torch=entry.torch, reason=entry.reason))
                for at, entry in zip(self.reading.exclude_at, self.file.exclude, strict=True)
            ),
            broken=frozenset(self.broken),
        )

    def _flaw(self, location: Iterable[str | int], what: str, next_step: str) -> None:
        self.flaws.append(Flaw(where=key_path(location), what=what, next_step=next_step))

    def _pins(self) -> dict[str, PinDraft]:
        found = {key: self._pin(key, table) for key, table in self.file.torch.items()}
        for key in (key for key, pin in found.items() if pin is None):
            self.broken |= {("torch", key), ("torch", _meant(key) or key)}
        return {
            key: PinDraft(pin=pin, own=_keys(self.file.torch[key]))
            for key, pin in found.items()
            if pin is not None
        }

    def _pin(self, key: str, table: PinTable) -> Pin | None:
        found = _PIN.fullmatch(key)
        if found is None:
            better = f'"{meant}"' if (meant := _meant(key)) else '"2.4" or "stable >= 2.10"'
            self._flaw(("torch", key), "is neither a series nor a stable pin", f"write {better}")
            return None
        kind = AbiKind.STABLE if found["stable"] else AbiKind.CLASSIC
        series = Version(found["series"])
        known = facts.torch_series(series)
        first = known[0].version if known else Version(f"{series}.0")
        if kind is AbiKind.STABLE and table.headers is None:
            hint = f'name the release whose headers it is built with, such as "{first}"'
            self._flaw(("torch", key, "headers"), "is missing", hint)
            return None
        lowest = Version(table.lowest) if table.lowest else first
        headers = Version(table.headers) if table.headers else lowest
        return Pin(
            key=key,
            kind=kind,
            series=series,
            lowest=first if kind is AbiKind.STABLE else lowest,
            headers=headers if kind is AbiKind.STABLE else lowest,
            run_on=tuple(dict.fromkeys(map(Version, table.run_on))),
        )

    def _row(self, name: str, table: VariantTable) -> Row:
        own, defaults = _keys(table), _keys(self.file.defaults)
        archs, whole = self.default_archs
        if "arch" in own:
            archs, whole = self._archs(("variants", name), table)
        elif archs:
            archs = tuple((_inherited(place, name), arch) for place, arch in archs)
        if table.cuda is None:
            archs = ()
        hidden = _keys(RowDefaults) - own - defaults if ("defaults",) in self.broken else ()
        row = Row(
            variant=self._variant(name, table, archs),
            project=self.project,
            own=own,
            inherited=defaults - own,
            archs=archs,
            pins=self._row_pins(table),
            doubtful=frozenset(hidden) | (frozenset() if whole else {"arch"}),
        )
        self._check_pin_names(row)
        return row

    def _archs(self, table_at: tuple[str, ...], table: RowDefaults) -> tuple[Archs, bool]:
        """The archs of a table, each with its place, and whether all its entries could be read."""
        found: list[tuple[str, Arch]] = []
        whole = True
        written = self._raw(table_at).get("arch")
        for index, entry in enumerate(table.arch or ()):
            place = key_path((*table_at, "arch", *((index,) if isinstance(written, list) else ())))
            try:
                archs = parse_arch_list(entry, where=place, error=MatrixError)
            except MatrixError as error:
                self.flaws.append(Flaw(where=place, what=error.what, next_step=error.next_step))
                whole = False
            else:
                found += [(place, arch) for arch in archs]
        return tuple(found), whole

    def _raw(self, table_at: tuple[str, ...]) -> Mapping[str, Any]:
        table: Any = self.reading.raw
        for key in table_at:
            table = table.get(key, {})
        return dict(table)

    def _row_pins(self, table: VariantTable) -> tuple[tuple[int, Pin], ...]:
        keys = table.torch or self.file.defaults.torch or ()
        return tuple((at, self.pins[key].pin) for at, key in enumerate(keys) if key in self.pins)

    def _check_pin_names(self, row: Row) -> None:
        for at, key in enumerate(row.variant.torch):
            if key not in self.pins and ("torch", key) not in self.broken:
                known = did_you_mean(key, self.pins)
                self.flaws.append(
                    Flaw(
                        where=row.origin("torch", at),
                        what=f"unknown pin {key[:60]!r}",
                        next_step=known or f"add the table [{key_path(('torch', key))}]",
                    )
                )

    def _variant(self, name: str, table: VariantTable, archs: Archs) -> Variant:
        defaults, project = self.file.defaults, self.project
        python = table.python or defaults.python
        glibc = table.glibc or defaults.glibc
        size = table.size_budget or defaults.size_budget
        fallback = table.torch_fallback or defaults.torch_fallback
        return Variant(
            name=name,
            cuda=Version(table.cuda) if table.cuda else None,
            arch=merge(arch for _, arch in archs),
            cuda_api=table.cuda_api or defaults.cuda_api or CudaApi.DRIVER,
            toolchain=table.toolchain or defaults.toolchain or Toolchain.PYPI_NVRTC,
            torch=tuple(dict.fromkeys(table.torch or defaults.torch or ())),
            torch_index=table.torch_index or defaults.torch_index or TORCH_INDEX,
            torch_fallback="pypi" if fallback is TorchFallback.PYPI else None,
            python=SpecifierSet(python) if python else project.python,
            glibc=Version(glibc) if glibc else project.glibc,
            platform=table.platform or defaults.platform or project.platform,
            size_budget=size_in_bytes(size) if size else project.size_budget,
        )


def _project(table: ProjectTable) -> Project:
    return Project(
        name=table.name,
        python=SpecifierSet(table.python),
        python_tag=table.python_tag,
        glibc=Version(table.glibc),
        platform=table.platform,
        size_budget=size_in_bytes(table.size_budget),
        cmake=table.cmake,
        sources=table.sources,
        device=_device(table.device) if table.device else None,
        debug=Debug(flags=table.debug.flags, extra_size=size_in_bytes(table.debug.extra_size)),
        parts=tuple(
            Part(name=name, per=part.per, uses=part.uses, inputs=part.inputs, defines=part.defines)
            for name, part in table.parts.items()
        ),
        load=tuple(
            LoadStage(stage=stage.stage, run=stage.run, needs_torch=stage.needs_torch)
            for stage in table.load
        ),
        state=table.state,
        doctor=table.doctor,
        device_run=_device_run(table.device_run) if table.device_run else None,
    )


def _device_run(table: DeviceRunTable) -> DeviceRun:
    return DeviceRun(operation=table.operation, launch=table.launch, emulation=table.emulation)


def _session(table: SessionTable) -> Session:
    return Session(
        help=table.help,
        wheel=table.wheel,
        torch=Version(table.torch) if table.torch else None,
        requirements=table.requirements,
        run=table.run,
    )


def _device(table: DeviceTable) -> Device:
    return Device(sources=table.sources, include=table.include, standard=table.standard)


def _keys(table: Table | type[Table]) -> frozenset[str]:
    """The keys that a table has, or that a kind of table may have, as the file spells them."""
    names = table.model_fields if isinstance(table, type) else table.model_fields_set
    return frozenset(name.replace("_", "-") for name in names)


def _inherited(place: str, name: str) -> str:
    return f"{key_path(('variants', name))}{place.removeprefix('defaults')} (from defaults)"


def _meant(key: str) -> str | None:
    """The pin that a malformed key was probably meant to be."""
    found = _PIN_LIKE.fullmatch(key.strip())
    return f"{'stable >= ' if found['stable'] else ''}{found['series']}" if found else None
