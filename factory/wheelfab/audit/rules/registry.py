"""The registry of rules: each a function over facts and policy, with what ``--explain`` says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from wheelfab.audit.facts import WheelFacts
from wheelfab.audit.policy import Policy
from wheelfab.audit.record import Severity


@dataclass(frozen=True, kw_only=True, slots=True)
class Broken:
    """What a rule found: where, what, and what would be right.

    An empty ``next_step`` and a ``severity`` of ``None`` are the rule's own.
    """

    subject: str
    found: str
    allowed: str
    next_step: str = ""
    severity: Severity | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Unknown:
    """What a rule could not look at, and why."""

    subject: str
    reason: str


Outcome = Broken | Unknown
Check = Callable[[WheelFacts, Policy], Iterator[Outcome]]
SiblingCheck = Callable[[tuple[WheelFacts, ...], Policy], Iterator[tuple[WheelFacts, Outcome]]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """One rule. ``about`` is the paragraph of ``--explain``, ``family`` the module it stands in.

    ``unsound``: also asked of an archive that is not sound. ``deep``: only with ``--deep``.
    """

    id: str
    family: str
    severity: Severity
    about: str
    next_step: str
    deep: bool = False
    unsound: bool = False
    check: Check | None = None
    siblings: SiblingCheck | None = None


RULES: dict[str, Rule] = {}


def rule(
    name: str,
    *,
    severity: Severity,
    about: str,
    next_step: str,
    deep: bool = False,
    unsound: bool = False,
) -> Callable[[Check], Check]:
    """Register a function that looks at one wheel as the rule ``name``."""

    def register(check: Check) -> Check:
        _add(
            Rule(
                id=name,
                family=_family(check),
                severity=severity,
                about=about,
                next_step=next_step,
                deep=deep,
                unsound=unsound,
                check=check,
            )
        )
        return check

    return register


def sibling_rule(
    name: str, *, severity: Severity, about: str, next_step: str
) -> Callable[[SiblingCheck], SiblingCheck]:
    """Register a function that looks at all wheels together; their facts are without libraries."""

    def register(check: SiblingCheck) -> SiblingCheck:
        _add(
            Rule(
                id=name,
                family=_family(check),
                severity=severity,
                about=about,
                next_step=next_step,
                siblings=check,
            )
        )
        return check

    return register


def _family(check: Callable[..., object]) -> str:
    return check.__module__.rpartition(".")[2]


def _add(new: Rule) -> None:
    if new.id in RULES:
        raise ValueError(f"two rules are named {new.id}")
    RULES[new.id] = new
