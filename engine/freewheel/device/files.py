"""What files say of the driver. They explain an answer and never decide it.

``/proc/driver/nvidia`` is missing on WSL2 and Jetson, and there in a container without a device.
"""

from __future__ import annotations

import os
import re
import stat
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from freewheel.device.machine import foreign_machine

LIBRARY = "libcuda.so.1"
CACHE = "loader cache"
DEFAULT, WSL = "default folder", "WSL"  # where this looks, and not every loader
_LEAST_BYTES, _MAX_BYTES = 4096, 16 << 20  # that are read of a file
_SIGNS = ("nvidiactl", "nvidia0", "nvidia-uvm")
_WSL_FOLDER = "usr/lib/wsl/lib"
_DEFAULT_FOLDERS = (
    "lib/x86_64-linux-gnu",
    "usr/lib/x86_64-linux-gnu",
    "lib64",
    "usr/lib64",
    "lib",
    "usr/lib",
)
_CACHE_MAGIC = b"glibc-ld.so.cache1.1"
_CACHE_HEADER = 48
_CACHE_ENTRY = struct.Struct("<iIIIQ")  # flags, key, value, osversion, hwcap
_MODULE = re.compile(r"Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)")
_RELEASE = re.compile(r"libcuda\.so\.(\d+(?:\.\d+)+)$")


@dataclass(frozen=True)
class Library:
    """A ``libcuda.so.1`` that the loader can reach; ``release`` is in its real file's name."""

    path: str
    release: str | None
    by: str  # LD_PRELOAD, LD_LIBRARY_PATH, loader cache, default folder, WSL
    foreign: str = ""  # the machine that it is for, where that is another one than this

    @property
    def is_compat(self) -> bool:
        """Whether it lies in a forward-compatibility folder, which is for data-centre GPUs only."""
        return "/compat/" in self.path

    def __str__(self) -> str:
        machine = f", for {self.foreign}" if self.foreign else ""
        return f"{self.path} ({self.release or 'release unknown'}, {self.by}{machine})"


@dataclass(frozen=True)
class Files:
    """The files of a driver, as far as they are there."""

    module_version: str | None
    nodes: tuple[str, ...]  # nvidia0, nvidiactl, nvidia-uvm
    dxg: bool
    libraries: tuple[Library, ...]
    wsl: bool = False  # by the kernel's own text; GPUs are there through /dev/dxg only

    @property
    def own(self) -> tuple[Library, ...]:
        """The libraries for this machine: the loader passes over all others."""
        return tuple(library for library in self.libraries if not library.foreign)

    @property
    def first(self) -> Library | None:
        """The library that the loader comes to first; one for another machine if all are."""
        return next(iter((*self.own, *self.libraries)), None)

    @property
    def any_sign(self) -> bool:
        """Whether anything of NVIDIA's is here, so that asking may be worth a process."""
        return bool(self.libraries or self.nodes or self.dxg or self.module_version)


def read_files(environment: Mapping[str, str], *, root: str = "/") -> Files:
    """Look at the machine under ``root``; never raises, opens nothing under ``/dev``."""
    dxg = os.path.exists(os.path.join(root, "dev/dxg"))
    wsl = dxg or b"microsoft" in _read(os.path.join(root, "proc/version")).lower()
    return Files(
        module_version=_module_version(root),
        nodes=_nodes(root),
        dxg=dxg,
        libraries=tuple(_libraries(environment, root, wsl=wsl)),
        wsl=wsl,
    )


def _nodes(root: str) -> tuple[str, ...]:
    """NVIDIA's device nodes; the folder is only listed where one is, as that takes longest."""
    folder = os.path.join(root, "dev")
    if not any(os.path.exists(f"{folder}/{name}") for name in _SIGNS):
        return ()
    try:
        return tuple(sorted(name for name in os.listdir(folder) if name.startswith("nvidia")))
    except OSError:
        return ()


def _module_version(root: str) -> str | None:
    text = _read(os.path.join(root, "proc/driver/nvidia/version"))
    match = _MODULE.search(text.decode(errors="replace"))
    if match is not None:
        return match[1]
    text = _read(os.path.join(root, "sys/module/nvidia/version"))
    return text.decode(errors="replace").strip() or None


def _libraries(environment: Mapping[str, str], root: str, *, wsl: bool) -> Iterator[Library]:
    """In the order in which the loader looks; each file once."""
    seen: set[tuple[int, int]] = set()
    for by, folder_or_file in _places(environment, root, wsl=wsl):
        path = os.path.join(root, folder_or_file.lstrip("/"))
        try:
            status = os.stat(path)
        except (OSError, ValueError):
            continue
        file = (status.st_dev, status.st_ino)
        if file in seen or not stat.S_ISREG(status.st_mode):
            continue
        seen.add(file)
        release = _RELEASE.search(os.path.realpath(path) if os.path.islink(path) else path)
        yield Library(
            path=path,
            release=release[1] if release else None,
            by=by,
            foreign=foreign_machine(path),
        )


def _places(environment: Mapping[str, str], root: str, *, wsl: bool) -> Iterator[tuple[str, str]]:
    for path in re.split("[: ]", environment.get("LD_PRELOAD", "")):
        if os.path.basename(path) == LIBRARY:
            yield "LD_PRELOAD", path
    for folder in search_path(environment):
        yield "LD_LIBRARY_PATH", os.path.join(folder, LIBRARY)
    for path in cached_paths(_read(os.path.join(root, "etc/ld.so.cache")), LIBRARY):
        yield CACHE, path
    for folder in _DEFAULT_FOLDERS:
        yield DEFAULT, f"{folder}/{LIBRARY}"
    if wsl:
        yield WSL, f"{_WSL_FOLDER}/{LIBRARY}"


def search_path(environment: Mapping[str, str]) -> list[str]:
    """The folders of ``LD_LIBRARY_PATH`` as the loader takes them: an empty entry is this one.

    What is no folder is left in: it holds no library.
    """
    value = environment.get("LD_LIBRARY_PATH", "")
    if not value:
        return []
    try:
        here = os.getcwd()
    except OSError:  # it was removed
        here = "/nonexistent"
    return [os.path.normpath(os.path.join(here, folder)) for folder in re.split("[:;]", value)]


def is_default_folder(folder: str) -> bool:
    """Whether the loader looks there anyway."""
    return folder.strip("/") in _DEFAULT_FOLDERS


def cached_paths(cache: bytes, name: str) -> list[str]:
    """The paths that the loader's cache (``/etc/ld.so.cache``) gives for a library's name."""
    key = name.encode()
    start = cache.find(_CACHE_MAGIC)
    # From glibc 2.33 on a name may be stored as the end of another one, such as the library's path.
    if start < 0 or key + b"\0" not in cache:
        return []
    try:
        (count,) = struct.unpack_from("<I", cache, start + len(_CACHE_MAGIC))
    except struct.error:
        return []
    first = start + _CACHE_HEADER
    whole = (len(cache) - first) // _CACHE_ENTRY.size
    paths = []
    for number in range(min(count, max(whole, 0))):
        _, name_at, path_at, _, _ = _CACHE_ENTRY.unpack_from(
            cache, first + number * _CACHE_ENTRY.size
        )
        if cache.startswith(key + b"\0", start + name_at):
            end = cache.find(b"\0", start + path_at)
            paths.append(cache[start + path_at : max(end, 0)].decode(errors="replace"))
    return [path for path in paths if path]


def _read(path: str) -> bytes:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        size = os.fstat(file).st_size  # 0 for files of /proc
        return os.read(file, min(max(size, _LEAST_BYTES), _MAX_BYTES))
    except OSError:
        return b""
    finally:
        os.close(file)
