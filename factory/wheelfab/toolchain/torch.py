"""torch releases as trees of headers and libraries: fetched alone and never imported."""

from __future__ import annotations

import ast
import platform
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

from packaging.version import Version

from wheelfab import console
from wheelfab.elf import Elf, read_elf
from wheelfab.errors import ToolchainError
from wheelfab.locked import FALLBACK, LOCK, RENEW, LockedTorch
from wheelfab.machine import GIB
from wheelfab.records import digest, file_digest, read_json, write_json
from wheelfab.run import Completed, check
from wheelfab.store import Store
from wheelfab.toolchain import pip, torch_facts

KIND = "torch"
PYPI = "pypi"
_RECORD = "torch-tree.json"
_NEEDED_DISK = 3 * GIB  # measured: 0.8 GB of wheel, twice for a moment, and 1.7 GB unpacked
_PLATFORMS = ("manylinux_2_28", "manylinux_2_27", "manylinux2014", "linux")
_NO_ANSWER = re.compile(
    r"Could not fetch URL (?!.*\b404 Client Error)|Retrying \(|connection broken|ConnectionError"
)
_ERROR_CLASS = "_ZN3c105ErrorC"  # constructors of c10::Error, which take a std::string


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchTree:
    """An unpacked torch wheel. ``root`` holds the whole wheel, ``path`` its ``torch`` package.

    ``version`` has the local part (``2.4.1+cpu``), ``python`` is the CPython that the wheel is for,
    ``cuda`` the release it was built for, ``source`` says where it came from: ``index <url>`` or
    ``pypi fallback: <reason>``.
    """

    root: Path
    release: str
    version: str
    python: str
    file: str
    sha256: str
    source: str
    cuda: str | None
    cxx11_abi: bool

    @property
    def path(self) -> Path:
        """The folder that holds ``include`` and ``lib``."""
        return self.root / "torch"

    @property
    def include(self) -> Path:
        """The headers; the C++ API's lie below, in ``torch/csrc/api/include``."""
        return self.path / "include"

    @property
    def lib(self) -> Path:
        """The libraries to link against."""
        return self.path / "lib"

    @property
    def fell_back(self) -> bool:
        """Whether it came from somewhere else than the index that was named."""
        return self.source.startswith(FALLBACK)


def torch_tree(
    store: Store,
    *,
    release: Version,
    index: str,
    fallback: str | None = None,
    python: str | None = None,
    locked: LockedTorch | None = None,
) -> TorchTree:
    """The tree of a torch release for one CPython, fetched now unless it is in ``store``.

    ``index`` is asked alone. Where it cannot be reached and ``fallback`` is ``pypi``, the user's
    own pip configuration is asked for the same release, which is then a build for another CUDA
    release; this is said on stderr and in the tree's record.

    ``python``: ``3.11`` or, free-threaded, ``3.13t``; by default the running one if torch has it.

    With ``locked`` the file's hash decides, wherever it comes from, and ``python`` is the lock's.
    A file that was locked from the fallback is said to be so on stderr, once, and in the record.

    Raises ``ToolchainError`` when the release cannot be had or is not what it says.
    """
    if locked is not None:
        return _locked_tree(store, release, index, fallback, locked)
    chosen = python or choose_python(release)
    key = torch_key(release, index, fallback, chosen)

    def fetch(folder: Path) -> str:
        return _fetch(folder, release, index, fallback, chosen)

    content = store.entry(
        KIND, key, lambda content: _make(content, release, chosen, fetch), needs=_NEEDED_DISK
    )
    return _load(content)


def _locked_tree(
    store: Store, release: Version, index: str, fallback: str | None, locked: LockedTorch
) -> TorchTree:
    """The tree of just that file; an unlocked fetch of the same file is taken as well."""
    usual = torch_key(release, index, fallback, locked.python)
    found = store.find(KIND, usual)
    other = found is not None and _load(found).sha256 != locked.sha256
    key = f"{release.public}-{locked.sha256[:16]}" if other else usual

    def fetch(folder: Path) -> str:
        return _fetch_locked(folder, index, locked)

    content = store.entry(
        KIND, key, lambda content: _make(content, release, locked.python, fetch), needs=_NEEDED_DISK
    )
    tree = _load(content)
    if tree.sha256 != locked.sha256:
        raise ToolchainError(
            f"{tree.file} has SHA-256 {tree.sha256}, the lock says {locked.sha256}",
            where=f"{LOCK}: torch {release}",
            next_step=RENEW,
        )
    if not locked.fell_back:
        return replace(tree, source=locked.source)
    _warn_fallback(tree.version, index)
    return replace(tree, source=f"{FALLBACK}: locked from the fallback index")


@cache
def _warn_fallback(version: str, index: str) -> None:
    """Say once that what is built against is not what the row names."""
    console.warn(
        f"torch {version} is the lock's, from the fallback, not from {index}; "
        "run `wheelfab lock --upgrade` where that answers"
    )


def find_torch_tree(
    store: Store,
    *,
    release: Version,
    index: str,
    fallback: str | None = None,
    python: str | None = None,
) -> TorchTree | None:
    """As ``torch_tree``, but ``None`` when it would have to be fetched."""
    chosen = python or choose_python(release)
    content = store.find(KIND, torch_key(release, index, fallback, chosen))
    return None if content is None else _load(content)


def torch_key(release: Version, index: str, fallback: str | None, python: str) -> str:
    """The key in the store: release and Python for people, and a digest of where it comes from."""
    return f"{release.public}-cp{python.replace('.', '')}-{digest([index, fallback])[:12]}"


def choose_python(release: Version, running: Sequence[int] | None = None) -> str:
    """The CPython to fetch for: the running one if the release has it, else its newest."""
    known = torch_facts(release).pythons
    own = Version(".".join(map(str, running or sys.version_info[:2])))
    return str(own if own in known else max(known))


def _load(content: Path) -> TorchTree:
    return TorchTree(root=content, **read_json(content / _RECORD))


def _make(content: Path, release: Version, python: str, fetch: Callable[[Path], str]) -> None:
    """Unpack the one wheel that ``fetch`` leaves in the folder it is given, and describe it."""
    with tempfile.TemporaryDirectory(dir=content.parent) as name:
        folder = Path(name)
        source = fetch(folder)
        wheels = sorted(folder.glob("*.whl"))
        if len(wheels) != 1:
            raise ToolchainError(f"pip left {len(wheels)} wheels for torch {release}")
        wheel = wheels[0]
        sha256 = file_digest(wheel)
        pip.unpack_wheel(wheel, content)
        wheel.unlink()
    version, cuda = read_version(content / "torch" / "version.py")
    if Version(version).public != release.public:
        raise ToolchainError(f"asked for torch {release}, got {version}", where=wheel.name)
    tree = TorchTree(
        root=content,
        release=str(release),
        version=version,
        python=python,
        file=wheel.name,
        sha256=sha256,
        source=source,
        cuda=cuda,
        cxx11_abi=measure_cxx11_abi(content / "torch" / "lib" / "libc10.so"),
    )
    record = {name: value for name, value in asdict(tree).items() if name != "root"}
    write_json(content / _RECORD, record)


def _fetch(folder: Path, release: Version, index: str, fallback: str | None, python: str) -> str:
    """Put the release's wheel into ``folder``; return where it came from."""
    wanted = _arguments(release, python)
    what = f"torch {release} for CPython {python}"
    console.step(f"fetching {what} from {index}")
    named = ("--index-url", index, "--retries", "1", "--timeout", "15", "--no-cache-dir")
    done = pip.download(("-vv", *named, *wanted), into=folder, env=pip.index_environment(folder))
    if done.ok:
        return f"index {index}"
    if not is_unreachable(done) or fallback != PYPI:
        raise ToolchainError(
            f"{index} gave no {what} ({pip.why(done)})",
            where="torch-index",
            next_step='check the index, or allow torch-fallback = "pypi"'
            if fallback != PYPI
            else "name a release that the index has",
        )
    reason = f"{index} cannot be reached"
    console.warn(f"{reason}; taking {what} from pip's own index: a build for another CUDA release")
    done = pip.download((*wanted, "--no-cache-dir"), into=folder, env=pip.user_environment(folder))
    check(
        done,
        ToolchainError,
        doing=f"fetching {what} from pip's own index",
        next_step="check that pip reaches its index",
    )
    return f"{FALLBACK}: {reason}"


def _fetch_locked(folder: Path, index: str, locked: LockedTorch) -> str:
    """As ``_fetch``, but what counts is the hash, so that any place that has the file will do.

    A file with a local version (``+cpu``) is on PyTorch's own index and asked for there first.
    """
    what = f"torch {locked.version} for CPython {locked.python}"
    requirements = folder / "requirements.txt"
    line = f"torch=={locked.version} --hash=sha256:{locked.sha256}\n"
    requirements.write_text(line, encoding="utf-8")
    wanted = (
        *_target(locked.python),
        "--no-cache-dir",
        "--require-hashes",
        "-r",
        str(requirements),
    )
    if Version(locked.version).local:
        console.step(f"fetching {what} from {index}")
        named = ("--index-url", index, "--retries", "1", "--timeout", "15")
        env = pip.index_environment(folder)
        if pip.download((*named, *wanted), into=folder, env=env).ok:
            return locked.source
    console.step(f"fetching {what} from pip's own index")
    done = pip.download(wanted, into=folder, env=pip.user_environment(folder))
    check(
        done,
        ToolchainError,
        doing=f"fetching the locked {what}, SHA-256 {locked.sha256},",
        next_step=f"check that pip reaches its index, or {RENEW}",
    )
    return locked.source


def is_unreachable(done: Completed) -> bool:
    """Whether a failed pip (run with ``-vv``) got no answer; "no such file" is an answer."""
    return bool(_NO_ANSWER.search(done.stdout + done.stderr))


def _arguments(release: Version, python: str) -> tuple[str, ...]:
    """The wheel of one release and one CPython, which need not be the running one."""
    return (*_target(python), f"torch=={release.public}")


def _target(python: str) -> tuple[str, ...]:
    tag = f"cp{python.replace('.', '')}"
    tags = (f"{name}_{platform.machine()}" for name in _PLATFORMS)
    platforms = (arg for name in tags for arg in ("--platform", name))
    interpreter = ("--python-version", python.rstrip("t"), "--implementation", "cp", "--abi", tag)
    return (*interpreter, *platforms)


def read_version(path: Path) -> tuple[str, str | None]:
    """``__version__`` and ``cuda`` of a ``torch/version.py``, read without running it.

    Raises ``ToolchainError`` when there is no version in it.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ToolchainError(f"cannot be read: {error}", where=str(path)) from error
    return parse_version(text, where=str(path))


def parse_version(text: str, *, where: str) -> tuple[str, str | None]:
    """As ``read_version``, from the file's text."""
    found: dict[str, object] = {}
    try:
        statements = ast.parse(text).body
    except (SyntaxError, ValueError) as error:
        raise ToolchainError(f"cannot be read: {error}", where=where) from error
    for statement in statements:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
        elif isinstance(statement, ast.AnnAssign):
            target = statement.target
        else:
            continue
        if isinstance(target, ast.Name) and isinstance(statement.value, ast.Constant):
            found[target.id] = statement.value.value
    version, cuda = found.get("__version__"), found.get("cuda")
    if not isinstance(version, str):
        raise ToolchainError("no __version__", where=where)
    return version, cuda if isinstance(cuda, str) else None


def measure_cxx11_abi(library: Path) -> bool:
    """Whether ``libc10.so`` was built with the C++11 string ABI: its constructors' names tell.

    Raises ``ToolchainError`` when it has none of them, ``FormatError`` when it is no library.
    """
    if not library.is_file():
        raise ToolchainError("no libc10.so in the wheel", where=str(library))
    return cxx11_abi_of(read_elf(library), where=str(library))


def cxx11_abi_of(library: Elf, *, where: str) -> bool:
    """As ``measure_cxx11_abi``, from the facts of the library."""
    names = [symbol.name for symbol in library.defined if symbol.name.startswith(_ERROR_CLASS)]
    if not names:
        raise ToolchainError("no constructor of c10::Error to tell the ABI by", where=where)
    return any("__cxx11" in name for name in names)
