"""The atlas and the audit, asked of a wheel, in the words of the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wheelfab.atlas import Atlas, Verdict
from wheelfab.atlas.demangle import demangle
from wheelfab.atlas.wheels import WheelAnswer, ask
from wheelfab.audit import AuditOptions, Policy, Severity, audit, cell_policy
from wheelfab.compat.evidence import Sources, Spoken
from wheelfab.compat.record import AuditEntry
from wheelfab.wheel import Wheel

if TYPE_CHECKING:
    from wheelfab.model import Project
    from wheelfab.variant import Cell

_LOADS = {Verdict.LOADS: True, Verdict.FAILS: False, Verdict.UNKNOWN: None}


def ask_both(atlas: Atlas, project: Project) -> Sources:
    """What ``atlas`` and an audit by the cell's own policy say of each wheel."""

    def spoken(wheel: Wheel) -> tuple[Spoken, ...]:
        return tuple(_spoken(item) for item in ask(atlas, wheel.path).answers)

    def audited(cell: Cell, wheel: Wheel) -> AuditEntry:
        policy = cell_policy(cell, project, Policy())
        found = audit(wheel.path, AuditOptions(policy=policy))
        errors = (f"{item.rule}: {item.found}" for item in found.of(Severity.ERROR))
        return AuditEntry(verdict=str(found.verdict), errors=tuple(errors))

    return Sources(atlas=spoken, audit=audited)


def _spoken(item: WheelAnswer) -> Spoken:
    """A release's answer; of missing symbols the first is named."""
    reason = item.reason
    if item.missing:
        reason += f", first {demangle(item.missing[0])}"
    return Spoken(
        torch=item.release.version,
        build=item.release.build,
        loads=_LOADS[item.verdict],
        reason=reason,
    )
