"""The report as a person reads it, on stdout."""

from __future__ import annotations

from collections.abc import Iterator

from wheelfab import console
from wheelfab.imports.fix import Fixed, Refused
from wheelfab.imports.record import Finding, ImportReport, Level, Unchecked

_CHAIN = 8  # steps of a chain shown
_UNCHECKED = 10


def show_report(report: ImportReport) -> None:
    """Print findings with their chains, what could not be checked, and the verdict."""
    console.result("\n".join(report_lines(report)))


def show_fixes(fixed: tuple[Fixed, ...], refused: tuple[Refused, ...]) -> None:
    """Print what ``fix`` changed and what it left alone, with the reasons."""
    lines = [
        f"{one.file}:{one.first}: {one.name} is now {one.getter}(), {one.uses} "
        f"{'use' if one.uses == 1 else 'uses'} changed"
        for one in fixed
    ]
    lines += [f"{_where(one.finding)}: left alone: {one.reason}" for one in refused]
    console.result("\n".join(lines) or "nothing to fix")


def report_lines(report: ImportReport) -> Iterator[str]:
    """The lines of the report."""
    for level in Level:
        for finding in report.findings:
            if finding.level is level:
                yield from _finding_lines(finding)
    if report.why is not None:
        yield f"why {report.why.wanted}:"
        yield from (f"  {step}" for step in report.why.steps)
        yield f"  = {report.why.answer}"
    yield from _unchecked_lines(report.unchecked)
    version = f" {report.version}" if report.version else ""
    errors = len(report.errors)
    yield (
        f"{report.target}{version}: {report.modules} modules read, {len(report.runs)} imported; "
        f"{errors} errors, {len(report.findings) - errors} warnings"
    )


def _finding_lines(finding: Finding) -> Iterator[str]:
    yield f"{_where(finding)}: {finding.level} [{finding.rule}] {finding.text}"
    skipped = len(finding.chain) - _CHAIN
    for number, step in enumerate(finding.chain):
        if skipped > 0 and number == _CHAIN // 2:
            yield f"    … {skipped} more …"
        if skipped <= 0 or not _CHAIN // 2 <= number < _CHAIN // 2 + skipped:
            yield f"    {step}" if step.call else f"    {step.place} in {step.function}"
    if finding.when:
        yield f"    only if: {' and '.join(finding.when)}"
    many = finding.reached_from > 1
    many = finding.reached_from > 1
    others = f"on import of {finding.reached_from} modules: " if many else ""
    where = "" if finding.call.startswith("import ") else f"in a {finding.context}, "
    yield f"    {where}{others}{finding.why}"
    if finding.next_step:
        yield f"    next: {finding.next_step}"


def _where(finding: Finding) -> str:
    return str(finding.place) if finding.place.line else finding.place.file or finding.module


def _unchecked_lines(unchecked: tuple[Unchecked, ...]) -> Iterator[str]:
    for one in unchecked[:_UNCHECKED]:
        yield f"not checked: {one.what}: {one.reason}"
    if len(unchecked) > _UNCHECKED:
        yield f"not checked: {len(unchecked) - _UNCHECKED} more"
