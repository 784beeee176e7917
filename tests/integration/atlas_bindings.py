"""Small bindings built against a torch release, and what becomes of them on another one."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from wheelfab.atlas import Answer, Atlas, Verdict, answer, read_keys
from wheelfab.elf import mapped, parse_elf
from wheelfab.loops.interpreter import Interpreter, find_interpreter
from wheelfab.loops.site import link_tree, torch_site
from wheelfab.loops.stubs import make_stubs, read_libraries, stubs_for
from wheelfab.run import tool_environment
from wheelfab.store import Store
from wheelfab.toolchain import torch_facts
from wheelfab.toolchain.torch import TorchTree, torch_tree

SOURCES = Path(__file__).parent / "atlas"
SOURCE = {"classic": "classic.cpp", "cpu": "classic.cpp", "stable": "stable.cpp"}
COMMON = "2.13.0"
INDEX = "https://download.pytorch.org/whl/cpu"
_TIMEOUT = 1800
_LOAD = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
import torch

def happened(library):
    try:
        torch.ops.load_library(library)
    except OSError as error:
        return f"no: {error} {error.__cause__ or ''}"
    x = torch.tensor([1.0, -2.5])
    try:
        y = torch.ops.atlas.twice(x)
    except NotImplementedError as error:
        return "NotImplementedError: " + str(error).splitlines()[0]
    return "answers" if y.tolist() == [2.0, -5.0] else f"wrong: {y}"

found = []
for library in sys.argv[2:]:
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.write(writer, happened(library).encode()[:4000])
        os._exit(0)
    os.close(writer)
    _, status = os.wait()
    with os.fdopen(reader, "rb") as pipe:
        found.append(pipe.read().decode() or f"status {status}")
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Torch:
    """A torch release to build against and to load into."""

    tree: TorchTree
    interpreter: Interpreter
    folder: Path


def get_torch(store: Store, release: str, folder: Path) -> Torch:
    """A release that can be imported from ``folder``, with stubs for NVIDIA's libraries.

    Nothing is compiled beforehand, and what torch requires is the same for all.
    """
    version = Version(release)
    tree = torch_tree(store, release=version, index=INDEX, fallback="pypi")
    interpreter = find_interpreter(torch_facts(version).pythons)
    assert interpreter is not None
    common = torch_tree(store, release=Version(COMMON), index=INDEX, fallback="pypi")
    site = torch_site(store, common, interpreter, full=False)
    for part in sorted(site.extra.iterdir()):
        if part.is_dir() and part.name not in ("torch", "torchgen", "functorch"):
            link_tree(part, folder / part.name)
        elif part.is_file():
            shutil.copy2(part, folder / part.name)
    link_tree(tree.root, folder)
    with tempfile.TemporaryDirectory() as work:
        make_stubs(stubs_for(read_libraries(tree.root)), folder / "torch" / "lib", Path(work))
    return Torch(tree=tree, interpreter=interpreter, folder=folder)


def build(torch: Torch, kind: str, folder: Path, target: str = "") -> Path:
    """A binding against the headers of ``torch``; a stable one for ``target`` and later releases.

    ``kind``: ``classic`` for CPU and CUDA, ``cpu`` for the CPU alone, ``stable`` for both.
    """
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / f"{kind}-{torch.tree.release}-{target}.so"
    include = torch.tree.include
    flags = [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.tree.cxx11_abi)}"]
    if kind == "cpu":
        flags.append("-DCPU_ONLY")
    if target:
        major, minor = map(int, target.split("."))
        flags.append(f"-DTORCH_TARGET_VERSION={major << 56 | minor << 48:#x}")
    standard = torch_facts(Version(torch.tree.release)).cxx
    command = (
        *("g++", f"-std={standard}", "-O2", "-shared", "-fPIC", "-w", *flags),
        *("-isystem", str(include), "-isystem", str(include / "torch/csrc/api/include")),
        *("-o", str(library), str(SOURCES / SOURCE[kind])),
        *(f"-L{torch.tree.lib}", "-Wl,--unresolved-symbols=ignore-all"),
        *("-Wl,--no-as-needed", "-ltorch_cpu", "-lc10"),
    )
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT)
    assert done.returncode == 0, done.stderr
    return library


def load(torch: Torch, libraries: Sequence[Path]) -> list[str]:
    """What really happens to each library, in a process of its own forked after ``import torch``.

    ``answers``, ``no: …``, ``NotImplementedError: …``, or ``wrong: …``: another kernel ran.
    """
    named = map(str, libraries)
    done = subprocess.run(
        (str(torch.interpreter.path), "-I", "-c", _LOAD, str(torch.folder), *named),
        env={**tool_environment(), "PYTHONDONTWRITEBYTECODE": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=_TIMEOUT,
    )
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout)
    return found


def ask(atlas: Atlas, library: Path, built_on: str) -> dict[str, Answer]:
    """What the atlas says, by release, of a library whose wheel requires what it was built on."""
    with mapped(library) as data:
        elf = parse_elf(data, where=str(library))
        keys = read_keys(data, elf)
    undefined = [symbol.name for symbol in elf.undefined if not symbol.weak]
    allowed = SpecifierSet(f"=={built_on}")
    answers = answer(atlas, undefined, needed=elf.needed, keys=keys, allowed=allowed)
    return {str(item.release.version): item for item in answers}


def agrees(said: Answer, happened: str) -> bool:
    """Whether an answer of the atlas is what happened; a doubt agrees with nothing."""
    match said.verdict:
        case Verdict.LOADS:
            return happened == "answers"
        case Verdict.FAILS if said.missing:
            return any(name in happened for name in said.missing)
        case Verdict.FAILS:
            return happened.startswith(("NotImplementedError", "wrong"))
        case Verdict.UNKNOWN:
            return False
