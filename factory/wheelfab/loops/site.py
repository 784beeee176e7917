"""A torch release ready to be imported, in the store: dependencies, bytecode, stand-in libraries.

torch itself stays where it was unpacked; an environment is made of both by hard links.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.metadata import Metadata
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from wheelfab import console
from wheelfab.errors import ToolchainError
from wheelfab.loops.interpreter import Interpreter
from wheelfab.loops.report import Libraries
from wheelfab.loops.stubs import make_stubs, read_libraries, stubs_for
from wheelfab.machine import GIB, cores
from wheelfab.records import digest, file_digest
from wheelfab.run import check, run, tool_environment
from wheelfab.store import Store
from wheelfab.toolchain import pip
from wheelfab.toolchain.torch import TorchTree, torch_tree
from wheelfab.variant import Cell
from wheelfab.versions import series

KIND = "loop-site"
_NVIDIA = ("nvidia-", "cuda-")  # libraries of a CUDA build of torch, by their distributions' names
_COMPILERS = frozenset({"triton"})  # wanted by torch.compile, not by an import
_NUMPY_2 = Version("2.3")  # the first torch built for numpy 2
_INSTALL_TIMEOUT = 3600.0
_COMPILE_TIMEOUT = 900.0


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchSite:
    """The two folders that make up torch in an environment, and whose NVIDIA libraries it has."""

    tree: TorchTree
    extra: Path
    version: Version
    libraries: Libraries


def torch_site(store: Store, tree: TorchTree, interpreter: Interpreter, *, full: bool) -> TorchSite:
    """What must be added to the unpacked torch in ``tree`` so that ``interpreter`` can import it.

    With ``full``, NVIDIA's libraries (5 GB) come from their own wheels, else stubs stand in for
    them. A CPU build needs neither. Raises ``ToolchainError`` when pip or g++ fails.
    """
    metadata = torch_metadata(tree.root)
    libraries = Libraries.NONE
    if tree.cuda is not None:
        libraries = Libraries.FULL if full else Libraries.STUBS
    needs = requirements_of(metadata, dict(interpreter.markers), full=full)
    identity = {
        "torch": tree.sha256,
        "python": interpreter.version,
        "libraries": libraries,
        "needs": needs,
        "code": [file_digest(Path(__file__).with_name(name)) for name in ("site.py", "stubs.py")],
    }
    python = interpreter.version
    key = f"{tree.version}-py{python.major}.{python.minor}-{digest(identity)[:16]}"

    def make(content: Path) -> None:
        console.step(f"preparing torch {tree.version} for loops (NVIDIA libraries: {libraries})")
        _install(needs, content, interpreter)
        _compile_torch(tree.root, content, interpreter)
        if libraries is Libraries.STUBS:
            with tempfile.TemporaryDirectory(dir=content.parent) as work:
                folder = content / "torch" / "lib"
                folder.mkdir(parents=True, exist_ok=True)
                make_stubs(stubs_for(read_libraries(tree.root)), folder, Path(work))

    extra = store.entry(KIND, key, make, needs=(10 if libraries is Libraries.FULL else 1) * GIB)
    return TorchSite(tree=tree, extra=extra, version=metadata.version, libraries=libraries)


def torch_for(
    cell: Cell, release: Version, interpreter: Interpreter, store: Store, *, full: bool
) -> TorchSite:
    """A torch release, from where the cell's row has its torch, for ``torch_site``."""
    tree = torch_tree(
        store,
        release=release,
        index=cell.variant.torch_index,
        fallback=cell.variant.torch_fallback,
        python=str(series(interpreter.version)),
    )
    return torch_site(store, tree, interpreter, full=full)


def torch_metadata(tree: Path) -> Metadata:
    """The metadata of the torch unpacked in ``tree``; raises ``ToolchainError`` without one."""
    found = sorted(tree.glob("torch-*.dist-info/METADATA"))
    if len(found) != 1:
        raise ToolchainError(f"{len(found)} torch distributions, one is wanted", where=str(tree))
    return Metadata.from_email(found[0].read_bytes(), validate=False)


def requirements_of(
    metadata: Metadata, markers: Mapping[str, str], *, full: bool
) -> tuple[str, ...]:
    """What to install beside torch: its own requirements and numpy, NVIDIA's only with ``full``."""
    needs = [
        need
        for need in metadata.requires_dist or ()
        if need.marker is None or need.marker.evaluate({**markers, "extra": ""})
    ]
    if not full:
        needs = [
            need
            for need in needs
            if not is_nvidia(str(need)) and canonicalize_name(need.name) not in _COMPILERS
        ]
    numpy = "numpy" if metadata.version >= _NUMPY_2 else "numpy<2"
    return (*sorted(_without_marker(need) for need in needs), numpy)


def is_nvidia(requirement: str) -> bool:
    """Whether a requirement of torch is for NVIDIA's libraries."""
    return canonicalize_name(Requirement(requirement).name).startswith(_NVIDIA)


def link_tree(source: Path, target: Path) -> None:
    """Give ``target`` every file of ``source`` by hard link, or by copy on another file system.

    Files that are there already stay. Modification times are kept: bytecode is checked by them.
    """
    for folder, folders, names in os.walk(source):
        here = target / Path(folder).relative_to(source)
        here.mkdir(parents=True, exist_ok=True)
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        for name in (*names, *links):
            _link(Path(folder) / name, here / name)


def _without_marker(need: Requirement) -> str:
    extras = f"[{','.join(sorted(need.extras))}]" if need.extras else ""
    return f"{need.name}{extras}{need.specifier}"


def _install(needs: Sequence[str], content: Path, interpreter: Interpreter) -> None:
    with tempfile.TemporaryDirectory(dir=content.parent) as work:
        done = run(
            (
                *pip_for(interpreter.path),
                *("install", "--target", str(content), "--only-binary=:all:", "--no-input"),
                *("--no-warn-script-location", "--progress-bar=off", *needs),
            ),
            env=pip.user_environment(Path(work)),
            timeout=_INSTALL_TIMEOUT,
        )
    check(
        done,
        ToolchainError,
        doing="installing what torch needs",
        next_step="check that pip reaches its index",
    )


def _compile_torch(tree: Path, content: Path, interpreter: Interpreter) -> None:
    """Compile torch's modules once, so that no load pays for it; sources come by hard link."""
    for folder in ("torch", "torchgen", "functorch"):
        for source in sorted((tree / folder).rglob("*.py")):
            path = content / source.relative_to(tree)
            path.parent.mkdir(parents=True, exist_ok=True)
            _link(source, path)
    # What this Python cannot compile (templates, newer syntax) no load imports.
    done = run(
        (str(interpreter.path), "-I", "-m", "compileall", "-q", "-j", str(cores()), str(content)),
        env=tool_environment(),
        timeout=_COMPILE_TIMEOUT,
    )
    if done.returncode is None:
        check(done, ToolchainError, doing="compiling torch's modules")


def _link(source: Path, path: Path) -> None:
    try:
        os.link(source, path, follow_symlinks=False)
    except FileExistsError:
        return
    except OSError:
        shutil.copy2(source, path, follow_symlinks=False)


def pip_for(python: Path) -> tuple[str, ...]:
    """The command line of our own pip, working on the environment of ``python``."""
    return (sys.executable, "-m", "pip", "--python", str(python))
