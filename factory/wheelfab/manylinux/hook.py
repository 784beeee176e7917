"""The PEP 517 backend that cibuildwheel meets in the container: it compiles and packs one cell."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from wheelfab import console
from wheelfab.diagnosis import count_compiles
from wheelfab.errors import FactoryError
from wheelfab.maker import pack_raw
from wheelfab.manylinux.config import COMPILED, OBJECTS
from wheelfab.manylinux.order import read_order
from wheelfab.records import canonical_json
from wheelfab.store import Store, default_root


def build_wheel(
    wheel_directory: str,
    config_settings: Mapping[str, object] | None = None,  # noqa: ARG001 (PEP 517's own)
    metadata_directory: str | None = None,  # noqa: ARG001
) -> str:
    """Leave the cell's raw wheel in ``wheel_directory`` and return its name."""
    try:
        return _build(Path(wheel_directory))
    except FactoryError as error:
        console.error(str(error))
        sys.exit(error.exit_code)


def _build(folder: Path) -> str:
    plan, cell = read_order()
    raw = pack_raw(plan, cell, Store(default_root()), Store(Path(OBJECTS)), folder)
    console.result(COMPILED + canonical_json(count_compiles(plan.source.root / "build" / "logs")))
    return raw.name
