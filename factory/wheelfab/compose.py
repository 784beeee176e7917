"""Composes a cell's wheel: stage the sources, lay the compiled parts beside them, pack, gate."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import tomlkit
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tomlkit.exceptions import ParseError
from tomlkit.items import Table

from wheelfab.elf import is_elf
from wheelfab.errors import BuildError, MatrixError, WheelError
from wheelfab.facts import AbiKind, cuda_release
from wheelfab.fatbin import archs_of
from wheelfab.gate import gate
from wheelfab.plan import Plan
from wheelfab.records import file_digest, read_json, write_json
from wheelfab.sbom import FILE, make_sbom
from wheelfab.toolchain.torch import TorchTree
from wheelfab.variant import Cell
from wheelfab.wheel import read_wheel, repack

_SCHEMA = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """What a wheel is composed of: the parts' result folders, the torch built against, the key."""

    results: tuple[Path, ...]
    torch: TorchTree
    key: str


def make_wheel(
    plan: Plan,
    cell: Cell,
    parts: Parts,
    out: Path,
    work: Path,
    *,
    run_steps: Callable[[Mapping[str, str]], None],
) -> None:
    """Leave ``cell``'s verified wheel and its ``_build.json`` in ``out``.

    Raises ``BuildError`` when the pack step fails, ``WheelError`` when the wheel is not what the
    cell says: another version, archs, needs, glibc floor, or over its size budget.
    """
    raw = prepare(plan, cell, parts, out, work)
    run_steps({"work": str(work), "out": str(out), "wheel": str(raw)})
    wheels = sorted(out.glob("*.whl"))
    if len(wheels) != 1:
        raise BuildError(f"{len(wheels)} wheels where one was due", where=cell.id)
    finish_wheel(wheels[0], wheels[0], plan, cell)


def prepare(plan: Plan, cell: Cell, parts: Parts, out: Path, work: Path) -> Path:
    """Stage all that the pack step takes; gives the path that it leaves the raw wheel at."""
    stage, prebuilt = work / "stage", work / "prebuilt"
    _stage(plan, cell, stage)
    package = plan.matrix.project.name
    _lay_parts(parts.results, prebuilt)
    version = _set_metadata(stage / "pyproject.toml", cell)
    record = build_record(plan, cell, parts, prebuilt / package, version)
    write_json(prebuilt / package / "_build.json", record)
    write_json(out / "_build.json", record)
    return work / "raw" / _raw_name(package, version, plan)


def finish_wheel(wheel: Path, target: Path, plan: Plan, cell: Cell) -> None:
    """Add the bill of materials to a repaired ``wheel``, pack it canonically, and gate it.

    ``target`` has the name that it will bear.

    Raises ``WheelError`` when it is not what the cell says.
    """
    record = read_wheel(wheel).build
    if record is None:
        raise WheelError("no _build.json in it", where=wheel.name)
    # neither umask nor zip tool shows any more
    repack(wheel, target, plan.source.epoch, extra={FILE: make_sbom(record)})
    gate(target, cell, plan.matrix.project, version=str(record["version"]))


def build_record(
    plan: Plan, cell: Cell, parts: Parts, package: Path, version: str
) -> dict[str, object]:
    """``_build.json``: what the wheel was built from, with the archs that are really inside."""
    libraries = compiled_files(package)
    archs = {arch for library in libraries for arch in archs_of(library)}
    pin, torch = cell.pin, parts.torch
    return {
        "schema": _SCHEMA,
        "project": plan.matrix.project.name,
        "version": version,
        "cell": cell.id,
        "profile": cell.profile,
        "variant": cell.variant.name,
        "cuda": str(cell.variant.cuda) if cell.variant.cuda else None,
        "archs": sorted(archs, key=_arch_order),
        "driver": _driver_floors(cell),
        "python": str(cell.requires_python),
        "python_tag": plan.matrix.project.python_tag,
        "glibc": str(cell.variant.glibc),
        "platform": cell.variant.platform,
        "torch": {
            "pin": pin.key,
            "abi": str(pin.kind),
            "requirement": str(pin.requirement),
            "headers": torch.version,
            "target": str(pin.series) if pin.kind is AbiKind.STABLE else None,
            "cxx11_abi": torch.cxx11_abi,
            "cuda": torch.cuda,
            "source": torch.source,
            "sha256": torch.sha256,
        },
        "compilers": {
            "host": plan.compiler.placeless,
            "device": _device_compiler(plan, cell),
        },
        "tools": plan.wheel(cell).identity["tools"],
        "flags": _flags(parts.results),
        "libraries": {library.name: file_digest(library) for library in libraries},
        "commit": plan.source.commit,
        "epoch": plan.source.epoch,
        "plan": parts.key,
    }


def compiled_files(folder: Path) -> list[Path]:
    """What was compiled under ``folder``: shared libraries and programs, sorted."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and (path.suffix == ".so" or (not path.suffix and is_elf(path)))
    )


def _driver_floors(cell: Cell) -> dict[str, object] | None:
    """The oldest drivers for the wheel's cubins and for its PTX.

    ``cubin`` and ``ptx`` are numbers of cuDriverGetVersion (12010 for CUDA 12.1): a cubin loads on
    any driver of its CUDA family, PTX on those of its own release and later. The Linux releases
    that have them are for messages.
    """
    cuda = cell.variant.cuda
    if cuda is None:
        return None
    release = cuda_release(cuda)
    ptx = release.toolkit_floor if release else None
    return {
        "cubin": cuda.major * 1000,
        "ptx": cuda.major * 1000 + cuda.minor * 10,
        "cubin_release": str(release.family_floor) if release else None,
        "ptx_release": str(ptx) if ptx else None,
    }


def _flags(results: tuple[Path, ...]) -> list[str]:
    """All flags that the host compiler was given for any part."""
    files = (result / "flags.json" for result in results)
    return sorted({flag for file in files if file.exists() for flag in read_json(file)})


def _device_compiler(plan: Plan, cell: Cell) -> object:
    if cell.variant.cuda is None:
        return None
    device = next(
        action for action in plan.actions if action.kind == "device" and cell.id in action.cells
    )
    return device.identity


def _arch_order(arch: str) -> tuple[int, int, str]:
    number, _, ptx = arch.partition("+")
    major, _, minor = number.partition(".")
    return int(major), int(minor.rstrip("af")), ptx


def _stage(plan: Plan, cell: Cell, stage: Path) -> None:
    """Copy the wheel's sources, with fixed modes, so that neither umask nor strays matter."""
    for file in plan.wheel(cell).inputs:
        target = stage / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(plan.source.root / file, target)
        target.chmod(0o644)


def _lay_parts(results: tuple[Path, ...], prebuilt: Path) -> None:
    """Lay what was compiled for all parts into one folder; static archives stay behind."""
    for result in results:
        for library in compiled_files(result):
            target = prebuilt / library.relative_to(result)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(library, target)
            target.chmod(0o755)


def _set_metadata(pyproject: Path, cell: Cell) -> str:
    """Set version, torch requirement and Python range of the staged project; return the version."""
    try:
        document = tomlkit.parse(pyproject.read_text(encoding="utf-8"))
    except ParseError as error:
        raise MatrixError(f"not TOML: {error}", where="pyproject.toml") from error
    project = document.get("project")
    if not isinstance(project, Table) or "version" not in project:
        raise MatrixError(
            "no static project.version",
            where="pyproject.toml",
            next_step="write the public version there; the local part comes from the cell",
        )
    version = f"{project['version']}+{cell.local_version}"
    project["version"] = version
    project["requires-python"] = str(cell.requires_python)
    others = [
        str(item)
        for item in project.get("dependencies", [])
        if canonicalize_name(Requirement(str(item)).name) != "torch"
    ]
    project["dependencies"] = [f"torch{cell.pin.requirement}", *others]
    project.pop("dynamic", None)
    _drop_providers(document)
    pyproject.write_text(tomlkit.dumps(document), encoding="utf-8")
    return version


def _drop_providers(document: tomlkit.TOMLDocument) -> None:
    """The staged metadata is static: what would ask this machine has no say."""
    tool = document.get("tool", {})
    tool.pop("dynamic-metadata", None)
    tool.get("scikit-build", {}).pop("metadata", None)


def _raw_name(package: str, version: str, plan: Plan) -> str:
    machine = plan.matrix.project.platform.replace("-", "_")
    return f"{package.replace('-', '_')}-{version}-{plan.matrix.project.python_tag}-{machine}.whl"
