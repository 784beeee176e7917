"""Small libraries made by g++, each once: kept by the digest of what they are made of."""

from __future__ import annotations

import hashlib
import secrets
import shutil
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path

from wheelfab.errors import ToolchainError
from wheelfab.flock import hold
from wheelfab.run import check, run, tool_environment

HERE = Path(__file__).resolve().parent
INCLUDE = HERE / "include"  # emulation.h, the interface of a library that runs kernels
_COMPILER = "g++"
_FLAGS = ("-std=c++17", "-O1", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror")
_TIMEOUT = 600.0  # seconds for one file, and for another process that makes it


def compile_object(
    folder: Path,
    source: Path,
    *,
    headers: Iterable[Path] = (),
    flags: Sequence[str] = (),
    salt: str = "",
) -> Path:
    """The object of one source file; compiled when it, a header, a flag or the compiler changed.

    ``headers`` are all the files that it includes from no system folder. ``salt`` stands for other
    inputs. Raises ``ToolchainError`` when g++ is missing or refuses the file.
    """
    inputs = [source, *sorted(headers)]
    contents = (part for path in inputs for part in (path.name, path.read_bytes()))
    digest = _digest(_version(_compiler()), salt, *_FLAGS, *flags, *contents)
    arguments = (*_FLAGS, *flags, "-c", str(source))
    return _made(folder, folder / f"{source.stem}-{digest}.o", lambda path: _run(path, arguments))


def link_library(
    folder: Path,
    name: str,
    objects: Sequence[Path],
    *,
    script: str = "",
    flags: Sequence[str] = (),
    soname: str = "",
) -> Path:
    """The shared library ``name``, in a folder of its own named by the digest of its inputs.

    ``script`` is the linker's version script: what is exported, under which versions. ``soname`` is
    ``name`` unless given. Raises ``ToolchainError`` when g++ is missing or refuses.
    """
    soname = soname or name
    digest = _digest(_version(_compiler()), name, soname, script, *flags, *_names(objects))

    def link(path: Path) -> None:
        argv = ["-shared", f"-Wl,-soname,{soname}", *map(str, objects), *flags]
        if script:
            exports = write_file(folder, "exports.map", script.encode())
            argv.append(f"-Wl,--version-script={exports}")
        _run(path, argv)

    return _made(folder, folder / f"{_stem(name)}-{digest}" / name, link)


def write_file(folder: Path, name: str, content: bytes) -> Path:
    """The file ``name`` with ``content``, in a folder of its own named by its digest."""

    def write(path: Path) -> None:
        path.write_bytes(content)

    digest = _digest(name, content)
    return _made(folder, folder / f"{_stem(name)}-{digest}" / name, write)


def _made(folder: Path, target: Path, make: Callable[[Path], None]) -> Path:
    """``target``, whole and readable by all; ``make`` writes it aside, in one process only."""
    if target.exists():
        return target
    _make_folder(target.parent)
    lock = folder / f".{'-'.join(target.relative_to(folder).parts)}.lock"
    with hold(lock, what=target.name, timeout=_TIMEOUT):
        if target.exists():
            return target
        aside = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        try:
            make(aside)
            aside.chmod(0o755 if ".so" in target.name else 0o644)
            aside.replace(target)
        finally:
            aside.unlink(missing_ok=True)
    return target


def _make_folder(folder: Path) -> None:
    """``folder`` and those above it that are missing, readable by all whatever the umask says."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in missing:
        path.chmod(0o755)


def _run(output: Path, arguments: Sequence[str]) -> None:
    argv = (_compiler(), *arguments, "-o", str(output))
    done = run(argv, env=tool_environment(), timeout=_TIMEOUT)
    check(done, ToolchainError, doing=" ".join(argv))


def _compiler() -> str:
    path = shutil.which(_COMPILER)
    if path is None:
        raise ToolchainError(f"{_COMPILER} is not on the PATH", next_step=f"install {_COMPILER}")
    return path


@cache
def _version(compiler: str) -> str:
    done = run((compiler, "--version"), env=tool_environment(), timeout=_TIMEOUT)
    check(done, ToolchainError, doing=f"{compiler} --version")
    return done.stdout


def _names(paths: Iterable[Path]) -> tuple[str, ...]:
    """Objects are named by their digests, so that their names stand for their contents."""
    return tuple(path.name for path in paths)


def _stem(name: str) -> str:
    return name.partition(".")[0]


def _digest(*parts: str | bytes) -> str:
    sha = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        sha.update(len(data).to_bytes(8, "little") + data)
    return sha.hexdigest()[:16]
