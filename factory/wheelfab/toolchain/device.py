"""The device compile of one ``.cu``: a step of the plan, run as a process of its own.

``TORCH_CUDA_ARCH_LIST=8.0;9.0+PTX python -m wheelfab.toolchain.device --toolchain pypi-nvrtc
--cuda 12.1 --include DIR --std c++17 --out X.fatbin X.cu``. The archs come from that variable and
from nowhere else.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from wheelfab import console, facts
from wheelfab.arch import Arch, format_arch_list, parse_arch_list
from wheelfab.errors import BuildError, FactoryError, ToolchainError, UsageError
from wheelfab.fatbin import ImageKind, expand, kernels, loadable_archs, parse_entries
from wheelfab.records import write_bytes
from wheelfab.run import run, tool_environment
from wheelfab.store import Store, default_root
from wheelfab.toolchain import NVCC_ROUTE
from wheelfab.toolchain.compiler import DeviceCompiler, Unit
from wheelfab.toolchain.nvcc import Nvcc
from wheelfab.toolchain.nvrtc import Nvrtc
from wheelfab.toolchain.packer import Image, pack
from wheelfab.toolchain.pins import pinned
from wheelfab.toolchain.wheels import fetch_toolchain

VARIABLE = "TORCH_CUDA_ARCH_LIST"
_STANDARD = re.compile(r"c\+\+\d\d\Z")
_TIMEOUT = 3600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What to compile, with what, for which archs; ``jobs`` archs at once."""

    route: str
    cuda: Version
    archs: tuple[Arch, ...]
    source: Path
    include: tuple[Path, ...]
    standard: str
    out: Path
    jobs: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Compile as the command line and the environment say; the exit code tells errors apart."""
    try:
        compile_device(read_request(arguments, os.environ), Store(default_root()))
    except FactoryError as error:
        console.error(str(error))
        return error.exit_code
    return 0


def read_request(arguments: Sequence[str] | None, environment: Mapping[str, str]) -> Request:
    """Parse the command line, and the archs from the environment.

    Raises ``UsageError`` when the arch list is missing or wrong, or the source does not exist.
    """
    options = _parser().parse_args(arguments)
    if not environment.get(VARIABLE, "").strip():
        raise UsageError(
            f"{VARIABLE} is not set",
            where="device compile",
            next_step=f"set it as the plan does: {VARIABLE}='8.0;9.0+PTX'",
        )
    try:
        cuda = Version(options.cuda)
    except InvalidVersion as error:
        raise UsageError(f"not a CUDA release: {options.cuda!r}", where="--cuda") from error
    if not _STANDARD.match(options.std):
        raise UsageError(f"not a C++ standard: {options.std!r}", where="--std")
    if not options.source.is_file():
        raise UsageError("no such file", where=str(options.source))
    return Request(
        route=options.toolchain,
        cuda=cuda,
        archs=parse_arch_list(environment[VARIABLE], where=VARIABLE),
        source=options.source,
        include=tuple(folder.absolute() for folder in options.include),
        standard=options.std,
        out=options.out,
        jobs=max(1, options.jobs),
    )


def compile_device(request: Request, store: Store) -> None:
    """Compile ``request`` into one fatbin that holds exactly the archs asked for.

    Raises ``BuildError`` when the source does not compile or the result is not what was asked,
    ``ToolchainError`` when the toolchain is not the release that was asked.
    """
    pins = pinned(request.route, request.cuda)
    tree = fetch_toolchain(store, request.route, request.cuda)
    if request.jobs > 1 and len(request.archs) > 1:
        images = _compile_apart(request, store)
    else:
        program = tree / pins.compiler
        compiler = Nvcc(program) if pins.route == NVCC_ROUTE else Nvrtc(program)
        check_compiler(compiler, request)
        unit = Unit(
            source=request.source,
            include=(*request.include, *(tree / folder for folder in pins.include)),
            standard=request.standard,
        )
        images = [_compile(compiler, unit, image, request) for image in wanted(request.archs)]
    packed = pack(tree / pins.packer, images, request.source.name)
    check_fatbin(packed, request.archs, where=str(request.source))
    write_bytes(request.out, packed)


def wanted(archs: Sequence[Arch]) -> list[Image]:
    """The images to make, still without code: a cubin for each arch, then the PTX asked for."""
    cubins = [Image(arch=f"{arch.number}{arch.suffix}", ptx=False, code=b"") for arch in archs]
    ptx = [
        Image(arch=f"{arch.number}{arch.suffix}", ptx=True, code=b"") for arch in archs if arch.ptx
    ]
    return cubins + ptx


def check_compiler(compiler: DeviceCompiler, request: Request) -> None:
    """Raise ``ToolchainError`` unless the tool says that it is what the plan wants."""
    said = compiler.version()
    if said != request.cuda:
        raise ToolchainError(
            f"the tool says it is of CUDA {said}, not {request.cuda}",
            where=f"{request.route} {request.cuda}",
            next_step="mend facts/toolchains.toml",
        )
    numbers, release = compiler.archs(), facts.cuda_release(request.cuda)
    targets = frozenset(release.archs if release else ())  # the tools' lists leave out suffixes
    for arch in request.archs:
        unknown = str(arch.number) not in numbers or (targets and arch.target not in targets)
        if unknown:
            known = sorted(targets or numbers, key=lambda name: (float(name.rstrip("af")), name))
            raise ToolchainError(
                f"{compiler.name} {said} does not know {arch.sm}",
                where=VARIABLE,
                next_step=f"it knows {' '.join(known)}",
            )


def check_fatbin(packed: bytes, archs: Sequence[Arch], *, where: str) -> None:
    """Read a fatbin back; raise ``BuildError`` unless it holds just ``archs`` and equal kernels."""
    entries = parse_entries(packed, where=where)
    asked = {item for arch in archs for item in (arch.target, str(arch))}
    found = loadable_archs(entries)
    if set(found) != asked:
        raise BuildError(
            f"asked for {' '.join(sorted(asked))}, the fatbin has {' '.join(found)}", where=where
        )
    names = {
        entry.target: kernels(expand(packed, entry, where=where), entry, where=where)
        for entry in entries
    }
    first = next(iter(names.values()))
    odd = [target for target, kernel in names.items() if kernel != first]
    if odd or not first:
        problem = f"has other kernels for {', '.join(odd)}" if odd else "has no kernel"
        raise BuildError(
            problem,
            where=where,
            next_step='declare each kernel extern "C" __global__, for all archs',
        )


def _compile(compiler: DeviceCompiler, unit: Unit, image: Image, request: Request) -> Image:
    started = time.monotonic()
    code, said = compiler.compile(unit, image.target)
    seconds = time.monotonic() - started
    name = f"{compiler.name} {request.cuda} {image.target} {unit.source.name}"
    console.note(f"{name} {seconds:.1f} s")
    if said:
        console.warn(f"{name}: {said}")
    return Image(arch=image.arch, ptx=image.ptx, code=code)


def _compile_apart(request: Request, store: Store) -> list[Image]:
    """Compile each arch in a process of its own, ``jobs`` at once, and collect the images."""
    with (
        tempfile.TemporaryDirectory(prefix="wheelfab-device-") as name,
        ThreadPoolExecutor(request.jobs) as pool,
    ):
        parts = list(pool.map(lambda arch: _child(request, store, arch, Path(name)), request.archs))
    made = {(image.arch, image.ptx): image for images in parts for image in images}
    return [made[image.arch, image.ptx] for image in wanted(request.archs)]


def _child(request: Request, store: Store, arch: Arch, folder: Path) -> list[Image]:
    out = folder / f"{arch.sm}.fatbin"
    include = (item for path in request.include for item in ("--include", str(path)))
    argv = (
        *(sys.executable, "-m", "wheelfab.toolchain.device"),
        *("--toolchain", request.route, "--cuda", str(request.cuda), *include),
        *("--std", request.standard, "--out", str(out), str(request.source)),
    )
    environment = {
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "WHEELFAB_STORE": str(store.root),
        VARIABLE: format_arch_list((arch,)),
    }
    done = run(argv, env=tool_environment(environment), timeout=_TIMEOUT)
    if not done.ok:
        raise BuildError(f"{done.ending}: {done.stderr.strip()}", where=f"{request.source} {arch}")
    for line in done.stderr.splitlines():
        console.note(line)
    packed = out.read_bytes()
    return [
        Image(
            arch=entry.arch.replace(".", ""),
            ptx=entry.kind is ImageKind.PTX,
            code=expand(packed, entry, where=str(out)),
        )
        for entry in parse_entries(packed, where=str(out))
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m wheelfab.toolchain.device", description=__doc__
    )
    parser.add_argument("--toolchain", required=True, help="pypi-nvrtc or pypi-nvcc")
    parser.add_argument("--cuda", required=True, help="CUDA release, as 12.1")
    parser.add_argument("--include", action="append", default=[], type=Path, metavar="DIR")
    parser.add_argument("--std", default="c++17", help="C++ standard, as c++17")
    parser.add_argument("--out", required=True, type=Path, metavar="FATBIN")
    parser.add_argument("--jobs", type=int, default=1, help="archs to compile at once")
    parser.add_argument("source", type=Path, metavar="SOURCE.cu")
    return parser


if __name__ == "__main__":
    sys.exit(main())
