"""Audit a wheel: facts from its file, rules over the facts, and words for what they found."""

from wheelfab.audit.cells import cell_policy
from wheelfab.audit.engine import AuditOptions, audit, audit_all, find_rule, load_policy, raise_for
from wheelfab.audit.loading import require_python
from wheelfab.audit.pages import documents
from wheelfab.audit.policy import Policy
from wheelfab.audit.record import Audit, Finding, Severity, Unchecked, Verdict
from wheelfab.audit.show import report, show_annotations, show_audits, show_rule

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
    "cell_policy",
    "documents",
    "find_rule",
    "load_policy",
    "raise_for",
    "report",
    "require_python",
    "show_annotations",
    "show_audits",
    "show_rule",
]
