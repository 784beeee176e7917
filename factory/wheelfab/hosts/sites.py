"""The environments that hosts load from: a wheel beside its torch, another one, or none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from wheelfab.errors import FactoryError
from wheelfab.facts import AbiKind, torch_release
from wheelfab.host import TorchChoice
from wheelfab.loops.environment import clean_environment
from wheelfab.loops.interpreter import Interpreter, find_interpreter
from wheelfab.loops.report import Libraries
from wheelfab.loops.site import torch_site
from wheelfab.model import Matrix, Pin
from wheelfab.store import Store
from wheelfab.toolchain.torch import torch_tree
from wheelfab.variant import Cell
from wheelfab.versions import allowed_pythons
from wheelfab.versions import series as series_of
from wheelfab.wheel import Wheel

PYTHON_HOME = "/opt/python/cp311-cp311/bin"  # of the images
_CONTAINER_SERIES = Version("3.11")


@dataclass(frozen=True, kw_only=True, slots=True)
class Site:
    """An environment: ``root`` is seen at the same path everywhere.

    ``overlays`` are what a container sees there instead, so that the image's Python runs it.
    ``torch`` is the release in it, ``None`` without one.
    """

    cell: str
    torch: Version | None
    libraries: Libraries
    root: Path
    python: Path
    packages: Path
    overlays: Mapping[str, Path]


@dataclass(slots=True)
class Sites:
    """Makes environments when they are first asked for, and keeps them until the end."""

    matrix: Matrix
    store: Store
    stack: ExitStack
    known: dict[tuple[str, TorchChoice], Site | str]

    def get(self, cell: Cell, wheel: Wheel, choice: TorchChoice) -> Site | str:
        """The environment of a cell's wheel, or why there is none."""
        key = (cell.id, choice)
        if key not in self.known:
            try:
                self.known[key] = self._make(cell, wheel, choice)
            except FactoryError as error:
                self.known[key] = str(error)
        return self.known[key]

    def _make(self, cell: Cell, wheel: Wheel, choice: TorchChoice) -> Site | str:
        pin = self._pin(cell, choice)
        release = host_torch(pin) if pin is not None else None
        known = torch_release(release) if release is not None else None
        allowed = allowed_pythons(cell.requires_python, known.pythons if known else _ALL_PYTHONS)
        interpreter = find_interpreter([_CONTAINER_SERIES] if _CONTAINER_SERIES in allowed else [])
        interpreter = interpreter or find_interpreter(allowed)
        if interpreter is None:
            return f"none of its Pythons on this machine ({', '.join(map(str, allowed))})"
        return self._with(cell, wheel, release, interpreter, whole=choice is TorchChoice.OWN)

    def _pin(self, cell: Cell, choice: TorchChoice) -> Pin | None:
        if choice is TorchChoice.NONE:
            return None
        if choice is TorchChoice.OWN:
            return cell.pin
        return next(pin for pin in self.matrix.pins.values() if pin != cell.pin)

    def _with(
        self,
        cell: Cell,
        wheel: Wheel,
        release: Version | None,
        interpreter: Interpreter,
        *,
        whole: bool,
    ) -> Site:
        torch = None
        if release is not None:
            tree = torch_tree(
                self.store,
                release=release,
                index=cell.variant.torch_index,
                fallback=cell.variant.torch_fallback,
                python=str(series_of(interpreter.version)),
            )
            torch = torch_site(self.store, tree, interpreter, full=True)
        environment = self.stack.enter_context(
            clean_environment(self.store, wheel, torch, interpreter, whole=whole)
        )
        environment.root.chmod(0o755)
        return Site(
            cell=cell.id,
            torch=release,
            libraries=torch.libraries if torch else Libraries.NONE,
            root=environment.root,
            python=environment.python,
            packages=next(environment.root.glob("lib/python*/site-packages")),
            overlays=_overlays(environment.root, interpreter),
        )


_ALL_PYTHONS = tuple(Version(f"3.{minor}") for minor in range(10, 16))


@contextmanager
def open_sites(matrix: Matrix, store: Store) -> Iterator[Sites]:
    """Environments of the matrix's wheels, removed at the end."""
    with ExitStack() as stack:
        yield Sites(matrix=matrix, store=store, stack=stack, known={})


def host_torch(pin: Pin) -> Version:
    """The release that hosts load a pin's wheels with: the one of its headers."""
    return pin.headers if pin.kind is AbiKind.STABLE else pin.lowest


def _overlays(root: Path, interpreter: Interpreter) -> dict[str, Path]:
    """``bin`` and ``pyvenv.cfg`` for a container, whose Python lies elsewhere."""
    folder = root / ".container"
    programs = folder / "bin"
    programs.mkdir(parents=True)
    for name in ("python", "python3", "python3.11"):
        (programs / name).symlink_to(f"{PYTHON_HOME}/python3.11")
    config = folder / "pyvenv.cfg"
    version = series_of(interpreter.version)
    config.write_text(f"home = {PYTHON_HOME}\nversion = {version}\n", encoding="utf-8")
    return {str(root / "bin"): programs, str(root / "pyvenv.cfg"): config}
