"""The error family."""

from __future__ import annotations

import inspect

from freewheel import errors


def test_rendering() -> None:
    """What, then what to do."""
    assert str(errors.FreewheelError("it broke", next_step="mend it")) == "it broke; mend it"
    assert str(errors.FreewheelError("it broke")) == "it broke"


def test_load_errors_are_import_errors() -> None:
    """``except ImportError`` catches whatever keeps the libraries from loading."""
    family = [kind for _, kind in inspect.getmembers(errors, inspect.isclass)]
    assert all(issubclass(kind, errors.FreewheelError) for kind in family)
    loads = [kind for kind in family if issubclass(kind, errors.LoadError)]
    assert len(loads) == 7
    assert all(issubclass(kind, ImportError) for kind in loads)
