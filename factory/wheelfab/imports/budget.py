"""Import-time budgets: how many milliseconds each module may take."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from wheelfab.errors import UsageError
from wheelfab.suggest import did_you_mean

_LIMIT = 1 << 20  # bytes of a budget file


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """Milliseconds by module name or pattern (``freewheel.*``); the longest pattern decides."""

    milliseconds: Mapping[str, float]

    def of(self, module: str) -> float | None:
        """What ``module`` may take; ``None`` when nothing says."""
        fitting = [name for name in self.milliseconds if fnmatchcase(module, name)]
        best = max(fitting, key=lambda name: (name == module, len(name)), default=None)
        return None if best is None else self.milliseconds[best]


def load_budget(path: Path, modules: Iterable[str]) -> Budget:
    """Read a TOML file of ``"module" = milliseconds`` under ``[milliseconds]``.

    Raises ``UsageError`` for a file that is none, a module that does not exist, a value that is no
    positive number; all of them at once.
    """
    known = tuple(modules)
    try:
        if path.stat().st_size > _LIMIT:
            raise UsageError(f"larger than {_LIMIT} bytes", where=str(path))
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"no budget: {error}", where=str(path)) from error
    table = document.get("milliseconds")
    if not isinstance(table, dict) or set(document) != {"milliseconds"}:
        raise UsageError("a budget has one table, [milliseconds]", where=str(path))
    errors = [text for name, value in table.items() if (text := _error(name, value, known))]
    if errors:
        raise UsageError("\n".join(errors), where=str(path))
    return Budget(milliseconds={name: float(value) for name, value in table.items()})


def _error(name: str, value: object, known: tuple[str, ...]) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        return f"{name!r}: {value!r} is not a positive number of milliseconds"
    if not any(fnmatchcase(module, name) for module in known):
        return f"no module {name!r}, {did_you_mean(name, known)}"
    return ""
