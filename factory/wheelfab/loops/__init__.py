"""The import loop: each wheel loaded again and again, and every load judged by stage."""

from __future__ import annotations

from wheelfab.loops.cell import (
    LoopOptions,
    built_wheel,
    loop_cell,
    require_asked,
    show_reports,
    torch_environment,
)
from wheelfab.loops.report import LoopReport

__all__ = [
    "LoopOptions",
    "LoopReport",
    "built_wheel",
    "loop_cell",
    "require_asked",
    "show_reports",
    "torch_environment",
]
