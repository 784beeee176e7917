"""freewheel: paged attention whose native part loads on any machine, GPU or not.

``import freewheel`` costs next to nothing: it imports neither torch nor a native library. Both come
with the first use of ``freewheel.ops``, or with ``freewheel.load()``. A library that cannot be
loaded raises an ``ImportError`` that says why and what to install; a CUDA operation without a
usable driver raises ``RuntimeError``.

Environment:

``FREEWHEEL_ISA``
    ``x86-64-v2``, ``avx2`` or ``avx512``: the CPU kernels to use, instead of the best ones that the
    machine runs. Read once, at the first operation. An instruction set that the machine lacks is an
    error at that operation.
``FREEWHEEL_PROBE_TIMEOUT``
    Seconds that the NVIDIA driver may take to answer ``freewheel.device.state()``, 30 unless given.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as type checkers take it; importing typing would cost a fifth of the budget
if TYPE_CHECKING:
    from typing import Any

    from freewheel import device as device
    from freewheel import ops as ops
    from freewheel._native import build as build
    from freewheel._native import load as load
    from freewheel._native import warm_up as warm_up
    from freewheel.capability import capabilities as capabilities

    __version__: str

__all__ = ["__version__", "build", "capabilities", "device", "load", "ops", "warm_up"]

_NATIVE = frozenset({"build", "load", "warm_up"})
_MODULES = frozenset({"device", "ops"})

if not TYPE_CHECKING:  # a type checker would take any name for one of ours

    def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public name
        """Import a public name's module at its first use."""
        if name in _NATIVE or name == "__version__":
            from freewheel import _native

            value = _native.version() if name == "__version__" else getattr(_native, name)
        elif name == "capabilities":
            from freewheel.capability import capabilities as value
        elif name in _MODULES:
            from importlib import import_module

            value = import_module(f"freewheel.{name}")
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
