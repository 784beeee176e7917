"""Wheels for the audit's rules: for each rule at least one that breaks it and one that does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.factory.elfmaker import make_library
from tests.factory.wheelmaker import make_wheel
from wheelfab.audit import Audit, Policy, Severity, audit_all
from wheelfab.audit.engine import AuditOptions

NEEDED = ("libc.so.6",)
VERSION = "0.1.0+cpu.torch2.4"


@dataclass(frozen=True, kw_only=True)
class Case:
    """A bad and a good wheel for ``rule``, as switches of ``make_wheel``.

    ``found`` is a part of what the finding says, ``subject`` its subject; ``policy`` is for both.
    """

    rule: str
    name: str
    bad: Mapping[str, Any]
    found: str
    subject: str | None = None
    severity: Severity = Severity.ERROR
    good: Mapping[str, Any] = field(default_factory=dict)
    policy: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.rule}: {self.name}"


def library(**switches: Any) -> bytes:
    """A shared library that no rule objects to, but for ``switches`` of ``make_library``."""
    usual: dict[str, Any] = {"needed": NEEDED, "relro": True}
    return make_library(**(usual | switches))


def audited(folder: Path, *, policy: Mapping[str, Any] | None = None, **switches: Any) -> Audit:
    """The audit of the wheel that ``switches`` make."""
    path = make_wheel(folder, **({"version": VERSION} | switches))
    options = AuditOptions(policy=Policy.model_validate(policy or {}))
    return audit_all([path], options)[0]


def finds(case: Case, folder: Path) -> None:
    """Want ``case``'s finding, and no other severity, of its bad wheel."""
    found = audited(folder, policy=case.policy, **case.bad)
    own = [finding for finding in found.findings if finding.rule == case.rule]
    assert any(case.found in finding.found for finding in own), found.findings
    assert {finding.severity for finding in own} == {case.severity}
    assert all(finding.next_step and finding.allowed for finding in own)
    if case.subject is not None:
        assert case.subject in {finding.subject for finding in own}


def keeps(case: Case, folder: Path) -> None:
    """Want nothing of ``case``'s rule of its good wheel, and that it could be checked."""
    found = audited(folder, policy=case.policy, **case.good)
    assert [one for one in found.findings if one.rule == case.rule] == []
    assert case.rule not in {one.rule for one in found.unchecked}
