"""Driver libraries for tests: one that answers without a GPU, and those that are no driver at all.

Each function makes a folder for ``LD_LIBRARY_PATH``, compiled by g++ the first time and found again
after that. How the fake driver behaves is up to the environment of the process that loads it
(``docs/drivers.md``): which devices it has, what it answers, where it dies.

Nothing outside the standard library is imported, so that any Python from 3.11 on can make them:
that of somebody's tests, too.
"""

from __future__ import annotations

from wheelfab.drivers.entries import entry_points
from wheelfab.drivers.fakes import DriverKind, make_driver, make_management
from wheelfab.drivers.library import INCLUDE
from wheelfab.drivers.pollution import Pollution, make_pollution

__all__ = [
    "INCLUDE",
    "DriverKind",
    "Pollution",
    "entry_points",
    "make_driver",
    "make_management",
    "make_pollution",
]
