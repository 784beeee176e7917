"""Stand-ins for NVIDIA's libraries, so that a CUDA build of torch can be imported without them.

The real ones are 5 GB a torch release. A stand-in has the soname, the symbols and the symbol
versions that torch's own libraries ask for; each of its functions does nothing and answers
``cudaErrorNoDevice``. No CUDA operation can run on them, and none is asked for where there is no
GPU. The driver, ``libcuda.so.1``, is never replaced: what asks for it must find none.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wheelfab.elf import Elf, Symbol, read_elf
from wheelfab.errors import ToolchainError
from wheelfab.run import check, run, tool_environment

# What `import torch` loads; the other libraries in torch/lib are opened by operations.
ROOTS = ("libtorch_global_deps.so", "libtorch_python.so")
# Libraries of the system (PEP 600 lets every wheel rely on them), and the driver.
SYSTEM = frozenset(
    {
        "ld-linux-x86-64.so.2",
        "ld-linux-aarch64.so.1",
        "libc.so.6",
        "libdl.so.2",
        "libgcc_s.so.1",
        "libm.so.6",
        "libpthread.so.0",
        "libresolv.so.2",
        "librt.so.1",
        "libstdc++.so.6",
        "libutil.so.1",
        "libz.so.1",
    }
)
DRIVER = "libcuda.so.1"
_NO_DEVICE = 100  # cudaErrorNoDevice, CUDA_ERROR_NO_DEVICE
_TEXT = re.compile(r"Get(?:Error|Status)(?:String|Name)$|^ncclGetLastError$")  # char*, not status
_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_VERSION = re.compile(r"[A-Za-z0-9_.+-]+\Z")
_SONAME = re.compile(r"lib[A-Za-z0-9_.+-]+\Z")


@dataclass(frozen=True, kw_only=True, slots=True)
class Stub:
    """One library to stand in for: its soname, its symbols by version (``""``: without one)."""

    soname: str
    symbols: Mapping[str, tuple[str, ...]]


def stubs_for(libraries: Mapping[str, Elf], roots: Sequence[str] = ROOTS) -> tuple[Stub, ...]:
    """What must be stood in for so that ``roots`` load; ``libraries`` are torch's, by file name.

    A symbol without a version belongs to no library by name. It is taken for one of a missing
    library when no library of torch has it, it is not Python's, and it is a C name: NVIDIA's
    interfaces are C, while torch 2.10 wants even ``operator delete`` of libstdc++ without version.
    """
    loaded = _closure(libraries, roots)
    missing = dict.fromkeys(
        need
        for name in loaded
        for need in libraries[name].needed
        if need not in libraries and need not in SYSTEM and need != DRIVER
    )
    defined = {symbol.name for elf in libraries.values() for symbol in elf.defined}
    found: dict[str, dict[str, set[str]]] = {name: defaultdict(set) for name in missing}
    orphans: dict[str, str] = {}
    for name in loaded:
        here = [need for need in libraries[name].needed if need in missing]
        for symbol in libraries[name].undefined:
            if symbol.library in missing and symbol.library and symbol.version:
                found[symbol.library][symbol.version].add(symbol.name)
            elif here and symbol.name not in defined and _is_c_name_without_version(symbol):
                orphans.setdefault(symbol.name, here[0])
    for symbol_name, library in orphans.items():
        found[library][""].add(symbol_name)
    return tuple(
        Stub(
            soname=soname,
            symbols={version: tuple(sorted(names)) for version, names in sorted(by.items())},
        )
        for soname, by in sorted(found.items())
    )


def _is_c_name_without_version(symbol: Symbol) -> bool:
    others = symbol.version is not None or symbol.weak
    return not others and not symbol.name.startswith(("Py", "_Py", "_Z"))


def read_libraries(tree: Path) -> dict[str, Elf]:
    """The libraries in ``torch/lib`` of an unpacked torch, by file name."""
    folder = tree / "torch" / "lib"
    files = sorted(path for path in folder.glob("*.so*") if path.is_file())
    if not files:
        raise ToolchainError("no torch libraries there", where=str(folder))
    return {path.name: read_elf(path) for path in files}


def source_of(stub: Stub) -> str:
    """C++ for the library: every symbol an alias of one of two functions."""
    names = sorted({name for names in stub.symbols.values() for name in names})
    hidden = 'extern "C" __attribute__((visibility("hidden")))'
    lines = [
        f"{hidden} int wheelfab_no_device() {{ return {_NO_DEVICE}; }}",
        f'{hidden} const char* wheelfab_text() {{ return "a stand-in library"; }}',
    ]
    for name in names:
        if not _SYMBOL.match(name):
            raise ToolchainError(f"not a symbol: {name[:80]!r}", where=stub.soname)
        kind, target = ("const char*", "text") if _TEXT.search(name) else ("int", "no_device")
        lines.append(f'extern "C" {kind} {name}() __attribute__((alias("wheelfab_{target}")));')
    return "\n".join(lines) + "\n"


def version_script_of(stub: Stub) -> str:
    """The linker's version script: each symbol under its version; others are exported without."""
    for name in (stub.soname, *(version for version in stub.symbols if version)):
        if not _VERSION.match(name):
            raise ToolchainError(f"not a version name: {name[:80]!r}", where=stub.soname)
    versioned = [
        f"{version} {{ global: {' '.join(f'{name};' for name in names)} }};\n"
        for version, names in stub.symbols.items()
        if version
    ]
    return "".join(versioned)


def make_stubs(stubs: Iterable[Stub], folder: Path, work: Path) -> None:
    """Compile each stub into ``folder``; raises ``ToolchainError`` when g++ fails."""
    for stub in stubs:
        if not _SONAME.match(stub.soname):
            raise ToolchainError(f"not a soname: {stub.soname[:80]!r}", where=str(folder))
        source, script = work / f"{stub.soname}.cpp", work / f"{stub.soname}.map"
        source.write_text(source_of(stub), encoding="utf-8")
        script.write_text(version_script_of(stub) or "{ };\n", encoding="utf-8")
        done = run(
            (
                *("g++", "-shared", "-fPIC", "-O1", "-nostdlib", "-w"),
                *(f"-Wl,-soname,{stub.soname}", f"-Wl,--version-script={script.name}"),
                *("-o", str(folder / stub.soname), source.name),
            ),
            env=tool_environment(),
            cwd=work,
            timeout=120,
        )
        check(done, ToolchainError, doing=f"the stand-in for {stub.soname}")


def _closure(libraries: Mapping[str, Elf], roots: Sequence[str]) -> tuple[str, ...]:
    """The libraries among ``libraries`` that loading ``roots`` loads, ``roots`` included."""
    pending, seen = [name for name in roots if name in libraries], dict[str, None]()
    while pending:
        name = pending.pop()
        if name not in seen:
            seen[name] = None
            pending.extend(need for need in libraries[name].needed if need in libraries)
    return tuple(seen)
