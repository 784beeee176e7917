"""What a wheel built without the factory requires: the torch series it is compiled against.

scikit-build-core calls this (``[[tool.dynamic-metadata]]`` in pyproject.toml). torch is found,
never imported. The factory sets its own requirement and does not come here.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_STABLE = (2, 10)  # the oldest release with the stable interface that the binding uses
_VERSION = re.compile(r"""^__version__\s*=\s*['"]((\d+)\.(\d+)[^'"]*)['"]""", re.MULTILINE)

_NO_TORCH = """\
freewheel is compiled against the torch that it will run with, and there is none in this build \
environment. Either
  install torch first and build beside it:  pip install torch && \
pip install --no-build-isolation .
  or install a finished wheel from the index of your torch release (README.md,
  "Installing a published wheel")."""


class TorchRequirement:
    """Provides ``dependencies``: torch of the series found; for the stable ABI, any later one."""

    def __init__(self) -> None:
        self._state = "wheel"

    def build_state(self, state: str) -> None:
        """Remember what is built: a source archive needs no torch, a wheel does."""
        self._state = state

    def dynamic_metadata(
        self, settings: Mapping[str, Any], project: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The torch requirement; ends the build with a sentence when a wheel has no torch."""
        del settings
        if "dependencies" not in project.get("dynamic", ()):
            return {}
        if self._state == "sdist":
            return {"dependencies": []}
        version = torch_version()
        if version is None:
            raise SystemExit(_NO_TORCH)
        return {"dependencies": [f"torch{requirement(version)}"]}

    def dynamic_wheel(self, settings: Mapping[str, Any]) -> dict[str, bool]:
        """Wheels of one source archive differ in what they require."""
        del settings
        return {"dependencies": True}


def torch_version() -> str | None:
    """The version of the torch that this Python would import, or None."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    match = _VERSION.search(text)
    return None if match is None else match[1]


def requirement(version: str) -> str:
    """``2.13.0+cpu`` gives ``>=2.10`` (stable ABI); ``2.4.1`` gives ``>=2.4.1,<2.5``."""
    match = re.match(r"(\d+)\.(\d+)(?:\.\d+)?((?:a|b|rc)\d+)?", version)
    if match is None:
        raise SystemExit(f"torch {version}: cannot read this version")
    major, minor = int(match[1]), int(match[2])
    if (major, minor) >= _STABLE:
        return f">={_STABLE[0]}.{_STABLE[1]}"
    return f">={match[0]},<{major}.{minor + 1}"
