"""Builds the test libraries of this folder with g++, each once: kept by the digest of its inputs.

Standard library only, so that any interpreter can use it: that of the tests, and a loop's.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
CSRC = HERE.parents[1] / "csrc"
_COMPILER = "g++"
_FLAGS = ("-std=c++17", "-O1", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror")
_DL = ("-Wl,--no-as-needed", "-l:libdl.so.2")  # where the dlopen of glibc 2.28 lives
_HOST = ("images/fatbin.cpp", "driver/results.cpp", "driver/driver.cpp", "driver/device.cpp")


@dataclass(frozen=True, kw_only=True, slots=True)
class Images:
    """Device images to embed: the container of each ``.cu``, by its stem."""

    containers: Mapping[str, bytes]

    def source(self, folder: Path) -> str:
        """The assembly that defines ``fw_images`` and ``fw_image_count``, as the build makes it."""
        lines = ['.section .note.GNU-stack,"",@progbits', '.section .nv_fatbin,"a",@progbits']
        for name, container in self.containers.items():
            path = folder / f"{name}.fatbin"
            path.write_bytes(container)
            lines += [".balign 8", f"{name}_begin:", f'.incbin "{path}"', f"{name}_end:"]
        lines += ['.section .rodata.names,"a",@progbits']
        lines += [f'{name}_name: .asciz "{name}"' for name in self.containers]
        lines += ['.section .data.rel.ro,"aw",@progbits', ".balign 8"]
        lines += [".globl fw_images, fw_image_count", ".hidden fw_images, fw_image_count"]
        lines += ["fw_images:"]
        lines += [f".quad {name}_name, {name}_begin, {name}_end" for name in self.containers]
        lines += [f"fw_image_count: .int {len(self.containers)}", ""]
        return "\n".join(lines)


def build_driver(folder: Path, *, hide: Sequence[str] = ()) -> Path:
    """The folder of a fake ``libcuda.so.1``, without the exports named in ``hide``.

    ``fake/behaviour.h`` tells how its environment makes it behave. ``LD_LIBRARY_PATH`` takes the
    folder that is returned.
    """
    headers = [*(HERE / "fake").glob("*.h"), HERE.parent / "fibers" / "emulation.h"]
    sources = sorted((HERE / "fake").glob("*.cpp"))
    objects = [_compile(folder, source, headers=headers) for source in sources]
    script = "{ local: " + " ".join(f"{name};" for name in hide) + " };\n" if hide else "{ };\n"
    return _link(folder, "libcuda.so.1", objects, script=script).parent


def build_management(folder: Path) -> Path:
    """The folder of a fake ``libnvidia-ml.so.1``; its source tells how to make it behave."""
    built = _compile(folder, HERE / "nvml" / "fakenvml.cpp")
    return _link(folder, "libnvidia-ml.so.1", [built]).parent


def build_kernels(folder: Path, images: Images) -> Path:
    """A library with the CUDA half of ``_kernels`` over ``images``, and ``harness.cpp`` beside it.

    It exports ``freewheel_kernels`` as ``_kernels`` does, and the functions of ``harness.cpp``.
    """
    parts = ("abi", "compat", "images", "driver", "cuda", "kernels")
    headers = [path for part in parts for path in sorted((CSRC / part).glob("*.h"))]
    sources = [*(CSRC / name for name in _HOST), CSRC / "cuda" / "ops.cpp", HERE / "harness.cpp"]
    flags = (f"-I{CSRC}",)
    objects = [_compile(folder, source, headers=headers, flags=flags) for source in sources]
    return _link(folder, "libharness.so", objects, images=images, extra=_DL)


def build_host_cuda(folder: Path, torch: Path) -> Path:
    """A ``libtorch_cuda.so`` that gives the CPU build of torch in ``torch`` a CUDA device.

    ``torch`` is the package's folder, with ``include`` and ``lib``.
    """
    version = (torch / "version.py").read_text(encoding="utf-8")
    include = torch / "include"
    flags = (
        f"-isystem{include}",
        f"-isystem{include / 'torch' / 'csrc' / 'api' / 'include'}",
        "-Wno-error=deprecated-declarations",
    )
    built = _compile(folder, HERE / "host_cuda.cpp", flags=flags, salt=version)
    lib = torch / "lib"
    extra = [f"-L{lib}", "-l:libtorch_cpu.so", "-l:libc10.so", f"-Wl,-rpath,{lib}"]
    return _link(folder, "libtorch_cuda.so", [built], extra=extra)


def _compile(
    folder: Path,
    source: Path,
    *,
    headers: Iterable[Path] = (),
    flags: Sequence[str] = (),
    salt: str = "",
) -> Path:
    """The object of one source file; compiled when it, a header, a flag or the compiler changed."""
    command = [_COMPILER, *_FLAGS, *flags, "-c", str(source)]
    inputs = [source, *sorted(headers)]
    digest = _digest(_compiler(), salt, *command, *(path.read_bytes() for path in inputs))
    target = folder / f"{source.stem}-{digest}.o"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = target.with_suffix(f".{secrets.token_hex(4)}.part")
        _run([*command, "-o", str(part)])
        part.replace(target)
    return target


def _link(
    folder: Path,
    name: str,
    objects: Sequence[Path],
    *,
    script: str = "",
    images: Images | None = None,
    extra: Sequence[str] = (),
) -> Path:
    """The shared library ``name``, in a folder of its own named by the digest of its inputs."""
    embedded = [] if images is None else [f for item in images.containers.items() for f in item]
    digest = _digest(name, script, *(path.name for path in objects), *extra, *embedded)
    target = folder / f"{name.partition('.')[0]}-{digest}" / name
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    token = secrets.token_hex(4)
    part = target.with_name(f"{name}.{token}.part")
    command = [_COMPILER, "-shared", f"-Wl,-soname,{name}", "-o", str(part), *map(str, objects)]
    if script:
        exports = target.with_name(f"exports.{token}")
        exports.write_text(script, encoding="utf-8")
        command.append(f"-Wl,--version-script={exports}")
    if images is not None:
        assembly = target.with_name(f"images.{token}.s")
        assembly.write_text(images.source(target.parent), encoding="utf-8")
        command.append(str(assembly))
    _run([*command, *extra])
    part.replace(target)
    return target


def _digest(*parts: str | bytes) -> str:
    sha = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        sha.update(len(data).to_bytes(8, "little") + data)
    return sha.hexdigest()[:16]


@cache
def _compiler() -> str:
    return _run([_COMPILER, "--version"])


def _run(command: Sequence[str]) -> str:
    environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout
