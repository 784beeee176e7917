"""The import loop: each wheel loaded again and again, and every load judged by stage."""

from __future__ import annotations

from wheelfab.loops.cell import LoopOptions, loop_cell, show_reports
from wheelfab.loops.report import LoopReport

__all__ = ["LoopOptions", "LoopReport", "loop_cell", "show_reports"]
