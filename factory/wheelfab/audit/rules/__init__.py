"""The rules of an audit, a module a family; importing this registers them all."""

from wheelfab.audit.rules import (
    archive,
    contents,
    device,
    elf,
    imports,
    metadata,
    needs,
    python_abi,
    record,
    siblings,
    torch,
)
from wheelfab.audit.rules.registry import RULES, Broken, Outcome, Rule, Unknown

FAMILIES = (
    archive,
    record,
    metadata,
    contents,
    python_abi,
    elf,
    needs,
    device,
    torch,
    imports,
    siblings,
)

__all__ = ["FAMILIES", "RULES", "Broken", "Outcome", "Rule", "Unknown"]
