"""The target of a check, never imported: a file, a folder, a wheel, an sdist, a package."""

from __future__ import annotations

import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from email.parser import HeaderParser
from importlib.machinery import PathFinder
from importlib.metadata import distributions
from pathlib import Path

from packaging.utils import canonicalize_name

from wheelfab.errors import UsageError
from wheelfab.imports.package import MODULE_LIMIT
from wheelfab.imports.unpack import is_archive, unpack_sources

_SKIPPED = frozenset(
    [
        "tests",
        "test",
        "testing",
        "docs",
        "doc",
        "examples",
        "example",
        "benchmarks",
        "benchmark",
        "scripts",
        "tools",
        "build",
        "dist",
        "site-packages",
        "node_modules",
        "csrc",
        "third_party",
        "vendor",
    ]
)
_LOOSE = frozenset({"setup", "conftest", "noxfile", "fabfile", "tasks"})
_HOMES = ("", "src", "python")
_TEXT_LIMIT = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """What is checked: the modules, by name, and the folder that they are imported from."""

    shown: str
    root: Path
    modules: tuple[tuple[str, Path], ...]
    editable: bool
    importable: bool  # lies where its own dependencies and compiled parts may be
    version: str | None = None
    requirements: tuple[str, ...] = ()

    @property
    def tops(self) -> frozenset[str]:
        """The top-level packages and modules."""
        return frozenset(name.split(".")[0] for name, _ in self.modules)


def is_test(name: str) -> bool:
    """Whether a module is a test by its name, or lies in a folder of tests."""
    parts = name.split(".")[1:] or [""]
    last = parts[-1]
    return (
        "test" in parts
        or "tests" in parts
        or last == "conftest"
        or last.startswith("test_")
        or last.endswith("_test")
    )


@contextmanager
def open_target(target: Path | str, search: Sequence[str]) -> Iterator[Target]:
    """The target that ``target`` means; an archive is unpacked for as long as the block lasts.

    ``search`` is the path that installed packages are looked for on. Raises ``UsageError`` when
    there is no such thing or no Python in it, ``FormatError`` for a broken archive.
    """
    path = Path(target)
    if path.is_file() and is_archive(path):
        with tempfile.TemporaryDirectory(prefix="wheelfab-imports-") as folder:
            unpack_sources(path, Path(folder))
            yield _folder(Path(folder), shown=path.name, editable=False, importable=False)
    elif path.is_file() and path.suffix == ".py":
        yield _single(path)
    elif path.is_dir():
        yield _folder(path.resolve(), shown=str(target), editable=True, importable=True)
    else:
        yield _installed(str(target), search)


def _single(path: Path) -> Target:
    path = path.resolve()
    top = path.parent
    while (top / "__init__.py").exists():
        top = top.parent
    return Target(
        shown=path.name,
        root=top,
        modules=((_name(path, top), path),),
        editable=True,
        importable=True,
    )


def _folder(folder: Path, *, shown: str, editable: bool, importable: bool) -> Target:
    if (folder / "__init__.py").exists():
        return Target(
            shown=shown,
            root=folder.parent,
            modules=_modules(folder, folder.parent),
            editable=editable,
            importable=importable,
        )
    # an sdist has one folder in it
    inside = [item for item in folder.iterdir() if item.is_dir()]
    lone = len(inside) == 1 and not any(folder.glob("*.py"))
    project = inside[0] if lone and not (inside[0] / "__init__.py").exists() else folder
    version, requirements = _metadata(project)
    for home in _HOMES:
        root = project / home
        modules = _modules_below(root, _declared(project)) if root.is_dir() else ()
        if modules:
            return Target(
                shown=shown,
                root=root,
                modules=modules,
                editable=editable,
                importable=importable,
                version=version,
                requirements=requirements,
            )
    raise UsageError("no Python package in it", where=shown, next_step="name a package's folder")


def _installed(name: str, search: Sequence[str]) -> Target:
    spec = PathFinder.find_spec(name, list(search)) if name.isidentifier() else None
    wanted = canonicalize_name(name)
    found = next(
        (one for one in distributions(path=list(search)) if _is_named(one.name, wanted)), None
    )
    if spec is None and found is not None:
        tops = (found.read_text("top_level.txt") or "").split() or [name.replace("-", "_")]
        spec = next(filter(None, (PathFinder.find_spec(top, list(search)) for top in tops)), None)
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    origin = spec.origin if spec is not None else None
    version = found.version if found is not None else None
    requirements = tuple(found.requires or ()) if found is not None else ()
    if places:
        folder = Path(places[0])
        modules, root = _modules(folder, folder.parent), folder.parent
    elif origin is not None and origin.endswith(".py"):
        root = Path(origin).parent
        modules = ((Path(origin).stem, Path(origin)),)
    else:
        raise UsageError(
            f"neither a file, a folder nor an installed package: {name!r}",
            next_step="give a path, or choose the interpreter that has it installed",
        )
    return Target(
        shown=name,
        root=root,
        modules=modules,
        editable=False,
        importable=True,
        version=version,
        requirements=requirements,
    )


def _is_named(name: str | None, wanted: str) -> bool:
    return name is not None and canonicalize_name(name) == wanted


def _declared(project: Path) -> frozenset[str]:
    """The top-level names that the project's built metadata lists."""
    names: set[str] = set()
    for listing in [*project.glob("*.egg-info/top_level.txt"), *project.glob("*/top_level.txt")]:
        names.update(_text(listing).split())
    return frozenset(names)


def _metadata(project: Path) -> tuple[str | None, tuple[str, ...]]:
    for file in [project / "PKG-INFO", *sorted(project.glob("*.dist-info/METADATA"))]:
        if file.is_file():
            headers = HeaderParser().parsestr(_text(file))
            return headers.get("Version"), tuple(headers.get_all("Requires-Dist") or ())
    file = project / "pyproject.toml"
    if file.is_file():
        try:
            table = tomllib.loads(_text(file)).get("project", {})
        except tomllib.TOMLDecodeError:
            return None, ()
        return table.get("version"), tuple(map(str, table.get("dependencies", ())))
    return None, ()


def _text(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_TEXT_LIMIT).decode(errors="replace")


def _modules_below(root: Path, declared: frozenset[str]) -> tuple[tuple[str, Path], ...]:
    found: list[tuple[str, Path]] = []
    for item in sorted(root.iterdir()):
        if declared and item.name.removesuffix(".py") not in declared:
            continue
        wanted = item.name in declared or item.name not in _SKIPPED
        if item.is_dir() and wanted and (item / "__init__.py").exists():
            found.extend(_modules(item, root))
        elif item.suffix == ".py" and item.stem.isidentifier() and item.stem not in _LOOSE:
            found.append((item.stem, item))
    return tuple(found)


def _modules(package: Path, root: Path) -> tuple[tuple[str, Path], ...]:
    found: list[tuple[str, Path]] = []
    for path in sorted(package.rglob("*.py")):
        relative = path.relative_to(root)
        if not all(part.isidentifier() for part in relative.with_suffix("").parts):
            continue
        if path.is_symlink() and not path.resolve().is_relative_to(root.resolve()):
            continue
        found.append((_name(path, root), path))
        if len(found) > MODULE_LIMIT:
            raise UsageError(f"more than {MODULE_LIMIT} modules", where=str(package))
    return tuple(found)


def _name(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
