"""Audit a wheel: facts from its file, rules over the facts, and words for what they found."""

from wheelfab.audit.engine import AuditOptions, audit, audit_all
from wheelfab.audit.policy import Policy
from wheelfab.audit.record import Audit, Finding, Severity, Unchecked, Verdict

__all__ = [
    "Audit",
    "AuditOptions",
    "Finding",
    "Policy",
    "Severity",
    "Unchecked",
    "Verdict",
    "audit",
    "audit_all",
]
