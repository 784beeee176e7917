"""The rules of an audit, a module a family; importing this registers them all."""

from wheelfab.audit.rules import archive
from wheelfab.audit.rules.registry import RULES, Broken, Outcome, Rule, Unknown

FAMILIES = (archive,)

__all__ = ["FAMILIES", "RULES", "Broken", "Outcome", "Rule", "Unknown"]
