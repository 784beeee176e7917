"""The rules of an audit, a module a family; importing this registers them all."""

from wheelfab.audit.rules import archive, contents, metadata, python_abi, record, siblings
from wheelfab.audit.rules.registry import RULES, Broken, Outcome, Rule, Unknown

FAMILIES = (
    archive,
    record,
    metadata,
    contents,
    python_abi,
    siblings,
)

__all__ = ["FAMILIES", "RULES", "Broken", "Outcome", "Rule", "Unknown"]
