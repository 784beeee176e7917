"""Facts through rules: which are asked, with what severity, and what the policy lets pass."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from wheelfab.audit.facts import WheelFacts, read_facts
from wheelfab.audit.policy import Policy, read_policy
from wheelfab.audit.record import Audit, Finding, Ignored, Unchecked, Verdict
from wheelfab.audit.rules import RULES, Broken, Outcome, Rule, Unknown
from wheelfab.audit.summary import summarise
from wheelfab.errors import AuditError, FormatError, UncheckedError, UsageError
from wheelfab.suggest import did_you_mean


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditOptions:
    """How to audit: by which policy, and whether also what takes longer than seconds.

    ``python``: the interpreter that libraries are loaded in, whose torch is imported before one
    that needs it. What a wheel has of its own, by its path, goes before what all have.
    """

    policy: Policy = field(default_factory=Policy)
    policies: Mapping[Path, Policy] = field(default_factory=dict)
    deep: bool = False
    python: Path = Path(sys.executable)
    pythons: Mapping[Path, Path] = field(default_factory=dict)


DEFAULT = AuditOptions()


def load_policy(path: Path) -> Policy:
    """The policy in a TOML file; raises ``UsageError`` with everything that is wrong with it."""
    return read_policy(path, RULES)


def find_rule(name: str) -> Rule:
    """The rule of that name; raises ``UsageError`` with the nearest one."""
    if name not in RULES:
        raise UsageError(f"no rule {name!r}", next_step=did_you_mean(name, RULES))
    return RULES[name]


def raise_for(audits: Iterable[Audit]) -> None:
    """Raise ``AuditError`` for an error, ``UncheckedError`` for a required check not made."""
    audits = tuple(audits)
    bad = [one.file for one in audits if one.verdict is Verdict.FAIL]
    if bad:
        raise AuditError(
            f"{len(bad)} of {len(audits)} wheels fail: {', '.join(bad)}",
            next_step="wheelfab audit --explain RULE says more of a rule",
        )
    missed = sorted({one.rule for audit in audits for one in audit.unchecked if one.required})
    if missed:
        raise UncheckedError(
            f"required and not checked: {', '.join(missed)}", next_step="see the reasons above"
        )


def audit(path: Path, options: AuditOptions = DEFAULT) -> Audit:
    """The audit of one wheel; raises ``WheelError`` where there is no such file."""
    return audit_all((path,), options)[0]


def audit_all(paths: Iterable[Path], options: AuditOptions = DEFAULT) -> tuple[Audit, ...]:
    """The audits of several wheels, each by itself and beside its siblings."""
    facts, audits = [], []
    for path in paths:
        started = time.monotonic()
        python = options.pythons.get(path, options.python) if options.deep else None
        one = read_facts(path, python=python)
        audits.append(judge(one, options.policies.get(path, options.policy), started=started))
        facts.append(replace(one, libraries=()))  # symbols of many wheels would not fit
    return _with_siblings(tuple(facts), tuple(audits), options.policy)


def judge(facts: WheelFacts, policy: Policy, *, started: float | None = None) -> Audit:
    """The audit of what is known about a wheel, without its siblings."""
    started = time.monotonic() if started is None else started
    rules = [rule for rule in RULES.values() if rule.check is not None]
    asked = [rule for rule in rules if facts.python is not None or not rule.deep]
    outcomes = [(rule, outcome) for rule in asked for outcome in _ask(rule, facts, policy)]
    skipped = [rule for rule in rules if rule not in asked]
    outcomes += [
        (rule, Unknown(subject=facts.file, reason="needs --deep"))
        for rule in skipped
        if _matches(rule.id, policy.required)
    ]
    empty = Audit(
        file=facts.file,
        sha256=facts.sha256,
        size=facts.size,
        facts=summarise(facts),
        findings=(),
        skipped=tuple(rule.id for rule in skipped),
        seconds=0.0,
    )
    done = _add(empty, outcomes, policy)
    return replace(done, seconds=round(time.monotonic() - started, 3))


def _with_siblings(
    facts: tuple[WheelFacts, ...], audits: tuple[Audit, ...], policy: Policy
) -> tuple[Audit, ...]:
    found: dict[int, list[tuple[Rule, Outcome]]] = {id(one): [] for one in facts}
    for rule in RULES.values():
        if rule.siblings is not None and len(facts) > 1:
            for one, outcome in rule.siblings(facts, policy):
                found[id(one)].append((rule, outcome))
    return tuple(
        _add(audit, found[id(one)], policy) for one, audit in zip(facts, audits, strict=True)
    )


def _ask(rule: Rule, facts: WheelFacts, policy: Policy) -> Iterator[Outcome]:
    if not facts.sound and not rule.unsound:
        yield Unknown(subject=facts.file, reason="the archive is not sound")
        return
    if rule.check is None:
        return
    try:
        yield from rule.check(facts, policy)
    except (FormatError, UsageError) as error:  # what it asked could not read the wheel
        yield Unknown(subject=error.where or facts.file, reason=error.what)


def _add(audit: Audit, outcomes: Iterable[tuple[Rule, Outcome]], policy: Policy) -> Audit:
    findings, ignored, unchecked = list(audit.findings), list(audit.ignored), list(audit.unchecked)
    for rule, outcome in outcomes:
        if isinstance(outcome, Unknown):
            required = _matches(rule.id, policy.required)
            unchecked.append(
                Unchecked(
                    rule=rule.id, subject=outcome.subject, reason=outcome.reason, required=required
                )
            )
            continue
        finding = _finding(rule, outcome, policy)
        reason = _reason_to_ignore(finding, policy)
        if reason:
            ignored.append(Ignored(finding=finding, reason=reason))
        else:
            findings.append(finding)
    return replace(
        audit, findings=tuple(findings), ignored=tuple(ignored), unchecked=tuple(unchecked)
    )


def _finding(rule: Rule, broken: Broken, policy: Policy) -> Finding:
    own = broken.severity or rule.severity
    return Finding(
        rule=rule.id,
        subject=broken.subject,
        found=broken.found,
        allowed=broken.allowed,
        severity=policy.severity.get(rule.id, own),
        next_step=broken.next_step or rule.next_step,
    )


def _reason_to_ignore(finding: Finding, policy: Policy) -> str:
    for entry in policy.ignore:
        if fnmatchcase(finding.rule, entry.rule) and fnmatchcase(finding.subject, entry.subject):
            return entry.reason
    return ""


def _matches(rule: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(rule, pattern) for pattern in patterns)
