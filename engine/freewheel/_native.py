"""Finds and loads the native libraries, once, and keeps the failure with its reason."""

from __future__ import annotations

import operator
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from freewheel.errors import (
    InterpreterError,
    LibraryError,
    LoadError,
    NotBuiltError,
    TorchMismatchError,
    TorchMissingError,
    TorchNotFoundError,
)

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Mapping
    from types import ModuleType

    import torch

_FOLDER = Path(__file__).parent
_BOUNDS = {">=": operator.ge, "<": operator.lt, "==": operator.eq}


class Native:
    """The libraries of one folder: their record, and whether they are loaded."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._record: dict[str, Any] | None = None
        self._loaded = False
        self._failure: LoadError | None = None

    def build(self) -> dict[str, Any]:
        """The build record, ``_build.json``; raises ``NotBuiltError`` without one."""
        if self._record is None:
            self._record = _read_record(self._folder / "_build.json")
        return self._record

    def load(self) -> None:
        """Load both libraries and join them; the first failure is raised again by every later call.

        Raises ``LoadError`` (an ``ImportError``): see its subclasses in ``freewheel.errors``.
        """
        with self._lock:
            if self._loaded:
                return
            if self._failure is not None:
                raise self._failure.with_traceback(None)
            try:
                self._load()
            except LoadError as failure:
                self._failure = failure
                raise
            self._loaded = True

    @property
    def outcome(self) -> bool | LoadError:
        """``True`` when loaded, ``False`` before the first try, the failure after one."""
        return self._failure or self._loaded

    def _load(self) -> None:
        record = self.build()
        _refuse_subinterpreter(record)
        torch = _import_torch(record)
        check_torch(record, torch.__version__)
        kernels, binding = self._folder / "_kernels.so", self._folder / "_torch.so"
        table = _kernel_table(kernels)
        try:
            torch.ops.load_library(str(binding))
        except (OSError, AttributeError) as error:
            raise LibraryError(
                f"{binding}, built for torch{record['torch']['requirement']} (with "
                f"{record['torch']['headers']}), does not load beside torch "
                f"{torch.__version__}: {error}",
                next_step=_install_line(record, torch.__version__),
            ) from error
        _bind(binding, table)


def _read_record(path: Path) -> dict[str, Any]:
    import json

    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NotBuiltError(
            f"freewheel in {path.parent} has no native libraries",
            next_step="install a wheel, or build one: pip wheel --no-build-isolation .",
        ) from None
    except (OSError, ValueError) as error:
        raise NotBuiltError(
            f"{path} cannot be read: {error}", next_step="install freewheel again"
        ) from error
    if not isinstance(record, dict) or not isinstance(record.get("torch"), dict):
        raise NotBuiltError(f"{path} is not a build record", next_step="install freewheel again")
    return record


def _refuse_subinterpreter(record: Mapping[str, Any]) -> None:
    """Before torch is imported: in a second interpreter that ends the process."""
    try:
        from freewheel import _C
    except ImportError:
        return  # a broken wheel: what is loaded next says it better
    if _C.interpreter() != 0:
        raise InterpreterError(
            f"freewheel {record['version']} and torch work in the main interpreter only, and this "
            f"is interpreter {_C.interpreter()}",
            next_step="load it in the main interpreter, or use processes",
        )


def _import_torch(record: Mapping[str, Any]) -> ModuleType:
    wanted = record["torch"]["requirement"]
    error: BaseException | None = None
    missing = False
    try:
        import torch
    except (Exception, SystemExit) as caught:  # noqa: BLE001 - a broken one raises anything
        error = caught
        missing = isinstance(caught, ModuleNotFoundError) and caught.name == "torch"
        kind = "" if isinstance(caught, ImportError) else f"{type(caught).__name__}: "
        what = "torch is not installed" if missing else f"torch does not import: {kind}{caught}"
    else:
        module: ModuleType = torch
        if isinstance(getattr(module, "__version__", None), str):
            return module
        where = getattr(module, "__file__", None) or list(getattr(module, "__path__", ()))
        what = f"{where} is no torch"
    kind_of_error = TorchNotFoundError if missing else TorchMissingError
    raise kind_of_error(
        f"freewheel {record['version']} needs torch{wanted}, but {what}",
        next_step=f'pip install "torch{wanted}"',
    ) from error


def check_torch(record: Mapping[str, Any], found: str) -> None:
    """Raise ``TorchMismatchError`` unless torch ``found`` is one that the wheel was built for."""
    wanted = record["torch"]["requirement"]
    if not satisfies(found, wanted):
        raise TorchMismatchError(
            f"freewheel {record['version']} was built for torch{wanted} "
            f"(with {record['torch']['headers']}), but torch {found} is installed",
            next_step=_install_line(record, found),
        )


def _install_line(record: Mapping[str, Any], found: str) -> str:
    series = ".".join(str(part) for part in release(found)[:2])
    return (
        f'pip install "torch{record["torch"]["requirement"]}", '
        f"or a freewheel wheel whose torch pin takes torch {series}"
    )


def release(version: str) -> tuple[int, ...]:
    """The release numbers of a version: ``2.10.0a0+git1`` gives ``(2, 10, 0)``."""
    numbers: list[int] = []
    for part in version.split("+", 1)[0].split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
        if digits != part:
            break
    while len(numbers) < 3:
        numbers.append(0)
    return tuple(numbers)


def satisfies(version: str, requirement: str) -> bool:
    """Whether ``version`` meets ``>=a``, ``<b`` and ``==c``, joined by commas.

    Only release numbers count, so that a vendor's ``2.5.0a0+x`` passes as 2.5.0: what loads is
    decided by the symbols in its libraries, not by the label.
    """
    found = release(version)
    for bound in requirement.split(","):
        for sign, holds in _BOUNDS.items():
            if bound.strip().startswith(sign):
                if not holds(found, release(bound.strip()[len(sign) :].strip())):
                    return False
                break
        else:
            raise ValueError(f"cannot read the requirement {requirement!r}")
    return True


def _kernel_table(library: Path) -> ctypes.c_void_p:
    import ctypes
    import os

    try:
        kernels = ctypes.CDLL(str(library), mode=os.RTLD_NOW | os.RTLD_LOCAL)
        entry = kernels.freewheel_kernels
    except (OSError, AttributeError) as error:
        raise LibraryError(
            f"{library} does not load: {error}", next_step="install freewheel again"
        ) from error
    entry.restype = ctypes.c_void_p
    return ctypes.c_void_p(entry())


def _bind(library: Path, table: ctypes.c_void_p) -> None:
    import ctypes

    bind = ctypes.CDLL(str(library)).freewheel_bind
    bind.restype = ctypes.c_char_p
    refusal = bind(table)
    if refusal is not None:
        raise LibraryError(refusal.decode(), next_step="install both from one wheel")


_native = Native(_FOLDER)


def load() -> None:
    """Load torch (if it is not) and the native libraries; cheap when they are loaded already.

    Raises ``freewheel.errors.LoadError``, an ``ImportError``, with the reason; once it has failed
    it fails the same way again without trying.
    """
    _native.load()


def outcome() -> bool | LoadError:
    """What came of loading: ``True``, the failure that is kept, ``False`` before the first try."""
    return _native.outcome


def driver_process() -> int:
    """The process in which the loaded libraries opened the driver, 0 if they did not."""
    if _native.outcome is not True:
        return 0
    from freewheel import _C

    return _C.driver_process()


def build() -> dict[str, Any]:
    """How this wheel was built: variant, profile, device archs, torch pin, compilers, commit.

    Raises ``freewheel.errors.NotBuiltError`` in a source tree.
    """
    return _native.build()


def version() -> str:
    """The package's version: from the build record, else from the installed metadata."""
    try:
        recorded = _native.build().get("version")
    except NotBuiltError:
        recorded = None
    if isinstance(recorded, str):
        return recorded
    from importlib import metadata

    try:
        return metadata.version("freewheel")
    except metadata.PackageNotFoundError:
        return "0+unknown"


def warm_up(device: int | str | torch.device) -> None:
    """Load every device image of a CUDA device now, so that a later stream capture loads nothing.

    ``device`` is an ordinal, ``"cuda"``, ``"cuda:1"`` or a ``torch.device``; ``"cpu"`` chooses the
    instruction set. Raises ``RuntimeError`` with the reason when the device cannot be used.
    """
    load()
    import torch

    if isinstance(device, int):
        ordinal = device
    else:
        target = torch.device(device)
        if target.type not in ("cpu", "cuda"):
            raise RuntimeError(f"warm_up: device must be cpu or cuda, not {target}")
        if target.type == "cpu":
            ordinal = -1
        else:
            ordinal = torch.cuda.current_device() if target.index is None else target.index
    torch.ops.freewheel.warm_up(ordinal)
