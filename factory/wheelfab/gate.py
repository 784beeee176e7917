"""The gate of a freshly built wheel: what it needs, holds and weighs is what its cell says.

A debug twin is held to every rule but two: it must not be stripped, since its symbols are what it
is built for, and for those and its plain code it may weigh ``extra-size`` more.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from wheelfab.arch import format_arch_list
from wheelfab.elf import Elf, is_elf, read_elf
from wheelfab.errors import WheelError, one_of_many
from wheelfab.facts import RowKind, cuda_libraries
from wheelfab.fatbin import archs_of
from wheelfab.model import Profile, Project
from wheelfab.variant import Cell, size_budget
from wheelfab.wheel import Wheel, verify_wheel

# The policy's own libraries (PEP 600) and torch's two: nothing else is needed at load.
_NEEDED = re.compile(
    r"lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+)\.so\.\d+|ld-linux-[\w-]+\.so\.\d+|lib(torch|torch_cpu|c10)\.so"
)
_VERSIONED = re.compile(r"GLIBC|GLIBCXX|CXXABI|GCC")
_UNDEFINED = re.compile(
    r"aoti_torch_\w+|torch_\w+|GOMP_\w+|omp_\w+|_?Py[A-Z_]\w*"
    r"|_Z\w*(2at|3c10|5torch|6caffe2)\w*|_ITM_\w+|__gmon_start__|__cxa_finalize"
)
_DRIVER = re.compile(r"cu[A-Z]\w+|nv[a-z]*[A-Z]\w+")
_RUNTIME = re.compile(r"cuda\w+|__cuda\w+")
_TORCH_CUDA = re.compile(r"_ZN\w*4cuda\w*")
# What a row that links the CUDA runtime may need beside it: torch's libraries for CUDA.
_NEEDED_TORCH_CUDA = re.compile(r"lib(torch_cuda|c10_cuda)\.so")
_FILES = re.compile(r".*\.(py|pyi|so)|.*/py\.typed|.*/_build\.json|[^/]+\.dist-info/.+")
# A program that the package starts; what is in it is held to the rules for libraries.
_PROGRAM = re.compile(r"[^/]+/_[a-z0-9_]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Library:
    """A shared library or program of the wheel, unpacked."""

    name: str
    elf: Elf
    archs: tuple[str, ...]
    executable: bool


def gate(path: Path, cell: Cell, project: Project, *, version: str) -> Wheel:
    """The record of a wheel that is what ``cell`` says.

    Raises ``WheelError`` with all that is wrong: structure, version, tag, needs, undefined symbols,
    run paths, executable stack, debug information, archs, strays and size.
    """
    wheel = verify_wheel(path)
    libraries, runtime = tuple(_libraries(path)), _linked_runtime(cell)
    flaws = [
        WheelError(what, where=f"{path.name}: {where}" if where else path.name, next_step=next_step)
        for where, what, next_step in (
            *_identity(wheel, cell, project, version),
            *_contents(wheel, cell, libraries, size_budget(cell, project)),
            *(flaw for library in libraries for flaw in _library(library, runtime)),
            *(flaw for library in libraries for flaw in _symbols(library, cell.profile)),
        )
    ]
    if flaws:
        raise one_of_many(flaws)
    return wheel


_Flaw = tuple[str, str, str]


def _libraries(path: Path) -> Iterator[_Library]:
    with TemporaryDirectory(prefix="wheelfab-") as folder, zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            name = info.filename
            if name.endswith(".so") or _PROGRAM.fullmatch(name):
                file = Path(archive.extract(name, folder))
                if not name.endswith(".so") and not is_elf(file):
                    continue  # a stray, as _contents says
                yield _Library(
                    name=name,
                    elf=read_elf(file),
                    archs=archs_of(file),
                    executable=bool(info.external_attr >> 16 & 0o100),
                )


def _identity(wheel: Wheel, cell: Cell, project: Project, version: str) -> Iterator[_Flaw]:
    if str(wheel.version) != version:
        yield "", f"version {wheel.version}, not {version}", "set it before the build"
    machine = cell.variant.platform.partition("-")[2]
    policy = f"manylinux_{str(cell.variant.glibc).replace('.', '_')}_{machine}"
    wanted = f"{project.python_tag}-{policy}"
    found = sorted(str(tag) for tag in wheel.tags)
    if found != [wanted]:
        yield "", f"tag {', '.join(found)}, not {wanted}", "see wheel.py-api and the glibc floor"
    requirement = wheel.requirement("torch")
    if requirement is None or requirement.specifier != cell.pin.requirement:
        yield "METADATA", f"Requires-Dist {requirement}, not torch{cell.pin.requirement}", ""


def _contents(
    wheel: Wheel, cell: Cell, libraries: tuple[_Library, ...], budget: int
) -> Iterator[_Flaw]:
    known = {library.name for library in libraries}
    strays = [name for name in wheel.files if name not in known and not _FILES.fullmatch(name)]
    if strays:
        yield "", f"files that no rule explains: {', '.join(strays[:5])}", "mend project.sources"
    if wheel.size > budget:
        key = "extra-size" if cell.profile is Profile.DEBUG else "size-budget"
        over = f"{wheel.size:,} bytes, over the budget of {budget:,}"
        yield "", over, f"raise {key} or ship fewer archs"
    found = {arch for library in libraries for arch in library.archs}
    wanted = _wanted_archs(cell)
    if found != wanted:
        text = f"device code for {' '.join(sorted(found)) or 'nothing'}"
        yield "", f"{text}, not {' '.join(sorted(wanted)) or 'nothing'}", "see the device logs"


def _wanted_archs(cell: Cell) -> set[str]:
    """``9.0+PTX`` asks for two images: the cubin 9.0 and the PTX."""
    wanted: set[str] = set()
    for arch in format_arch_list(cell.variant.arch).split(";") if cell.variant.arch else ():
        wanted.add(arch.removesuffix("+PTX"))
        if arch.endswith("+PTX"):
            wanted.add(arch)
    return wanted


def _linked_runtime(cell: Cell) -> str | None:
    """The CUDA runtime that the row links, by its soname; ``None`` for a cpu or driver row."""
    cuda = cell.variant.cuda
    if cuda is None or cell.variant.kind is not RowKind.RUNTIME:
        return None
    sonames = cuda_libraries()["libcudart"].sonames
    return next((soname for soname, majors in sonames.items() if cuda.major in majors), None)


def _library(library: _Library, runtime: str | None) -> Iterator[_Flaw]:
    elf = library.elf
    if not library.name.endswith(".so") and not library.executable:
        yield library.name, "a program without its exec bit", "install it with install(TARGETS)"
    foreign = [name for name in elf.needed if not _is_there(name, runtime)]
    if foreign:
        yield library.name, f"needs {', '.join(foreign)}", "open it at run time by name instead"
    if elf.rpath is not None or elf.runpath is not None:
        yield library.name, f"a run path: {elf.rpath or elf.runpath}", "set SKIP_BUILD_RPATH"
    if elf.executable_stack:
        yield library.name, "an executable stack", "add .note.GNU-stack to the assembler files"
    unknown = [
        symbol.name
        for symbol in elf.undefined
        if not _explained(symbol.name, symbol.version, runtime)
    ]
    if unknown:
        text = ", ".join(sorted(unknown)[:5])
        yield library.name, f"{len(unknown)} undefined symbols that nothing explains: {text}", ""


def _symbols(library: _Library, profile: Profile) -> Iterator[_Flaw]:
    """A release has no debug information; its twin has that and the table of all symbols."""
    found = [name for name in (".debug_info", ".symtab") if library.elf.section(name)]
    match profile:
        case Profile.RELEASE if ".debug_info" in found:
            next_step = "leave -g to the twin: wheelfab build --debug"
            yield library.name, "debug information, of no use to users", next_step
        case Profile.DEBUG if len(found) < 2:
            what = "is stripped" if ".debug_info" in found else "no debug information"
            yield library.name, what, "where CMAKE_BUILD_TYPE is Debug, keep its flags and no -s"


def _is_there(name: str, runtime: str | None) -> bool:
    """Whether a library that is needed is there at load: the system's, torch's, the runtime."""
    if _NEEDED.fullmatch(name):
        return True
    return runtime is not None and (name == runtime or bool(_NEEDED_TORCH_CUDA.fullmatch(name)))


def _explained(name: str, version: str | None, runtime: str | None) -> bool:
    """The driver's functions never are; those of the runtime where the row links that one."""
    if _DRIVER.fullmatch(name):
        return False
    if _RUNTIME.fullmatch(name):
        return runtime is not None and version in (None, runtime)
    if _TORCH_CUDA.fullmatch(name) and runtime is None:
        return False
    if version is not None:
        return _VERSIONED.match(version) is not None
    return _UNDEFINED.fullmatch(name) is not None
