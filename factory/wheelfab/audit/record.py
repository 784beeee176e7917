"""What an audit says of a wheel: findings, what could not be checked, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from wheelfab.audit.summary import WheelSummary

SCHEMA = 1


class Severity(StrEnum):
    """How bad a finding is; only an error makes a wheel fail."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Verdict(StrEnum):
    """The sum of an audit: an error fails; else whatever could not be checked is said so."""

    PASS = "pass"  # noqa: S105 (no password)
    FAIL = "fail"
    UNCHECKED = "unchecked"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing that a rule found: in which member or field, what, and what would be right."""

    rule: str
    subject: str
    found: str
    allowed: str
    severity: Severity
    next_step: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Ignored:
    """A finding that the policy lets pass, with the policy's reason."""

    finding: Finding
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Unchecked:
    """Something that a rule could not look at; ``required`` where the policy wants it looked at."""

    rule: str
    subject: str
    reason: str
    required: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Audit:
    """The audit of one wheel. ``size`` in bytes, ``skipped`` the rules that only ``--deep`` runs.

    ``facts`` are there where the archive is sound.
    """

    schema: int = SCHEMA
    file: str
    sha256: str
    size: int
    facts: WheelSummary | None
    findings: tuple[Finding, ...]
    ignored: tuple[Ignored, ...] = ()
    unchecked: tuple[Unchecked, ...] = ()
    skipped: tuple[str, ...] = ()
    seconds: float

    @property
    def verdict(self) -> Verdict:
        """Fail where there is an error, unchecked where a rule could not look, else pass."""
        if self.of(Severity.ERROR):
            return Verdict.FAIL
        return Verdict.UNCHECKED if self.unchecked else Verdict.PASS

    def of(self, severity: Severity) -> tuple[Finding, ...]:
        """The findings of that severity."""
        return tuple(finding for finding in self.findings if finding.severity is severity)
