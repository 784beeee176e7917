"""What ``python -m freewheel doctor`` finds. Standard library only; a child imports torch."""

from __future__ import annotations

from freewheel.doctor.render import render
from freewheel.doctor.report import BROKEN, CPU_ONLY, READY, Report, examine

__all__ = ["BROKEN", "CPU_ONLY", "READY", "Report", "examine", "render"]
