"""The entry points of the driver API that the fake and the stub export, from ``entry_points.h``."""

from __future__ import annotations

import re
from functools import cache

from wheelfab.drivers.library import INCLUDE

_ENTRY = re.compile(r"\bX\((cu\w+)\)")
_REFUSED = "WHEELFAB_REFUSED"


@cache
def entry_points(*, refused: bool = True) -> tuple[str, ...]:
    """All names; without ``refused``, those alone that the fake answers as a driver does."""
    text = (INCLUDE / "entry_points.h").read_text(encoding="utf-8")
    return tuple(_ENTRY.findall(text if refused else text.partition(_REFUSED)[0]))
