"""Puts the package's sources on the path; no test here loads a library."""

from __future__ import annotations

import sys
from pathlib import Path

ENGINE = Path(__file__).resolve().parents[2] / "engine"

if str(ENGINE) not in sys.path:
    sys.path.insert(0, str(ENGINE))
