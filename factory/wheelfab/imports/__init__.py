"""What importing a package does to the GPU: read from its source, and seen when it is imported."""

from __future__ import annotations

from wheelfab.imports.fix import Fixed, Refused, fix
from wheelfab.imports.lint import lint
from wheelfab.imports.record import ImportReport, LintOptions
from wheelfab.imports.show import show_fixes, show_report

__all__ = [
    "Fixed",
    "ImportReport",
    "LintOptions",
    "Refused",
    "fix",
    "lint",
    "show_fixes",
    "show_report",
]
