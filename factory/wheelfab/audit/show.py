"""Audits as a table for people, as annotations for GitHub, and as plain values for JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import fields

from wheelfab import console
from wheelfab.audit.record import SCHEMA, Audit, Finding, Severity, Unchecked, Verdict
from wheelfab.audit.rules import Rule

_COLUMNS = ("", "rule", "subject", "found", "allowed", "next step")
_UNCHECKED = 10  # lines of what was not checked
_RULES = 3  # named in such a line
_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


def show_audits(audits: Sequence[Audit]) -> None:
    """Print each audit: its findings as a table, what was not checked, and the verdict."""
    for audit in audits:
        rows = [_row(finding) for severity in Severity for finding in audit.of(severity)]
        if rows:
            console.table(_COLUMNS, rows, title=audit.file)
        console.result("\n".join(_below(audit)))


def show_rule(rule: Rule) -> None:
    """Print what a rule is about, how bad a finding of it is, and what to do."""
    about = textwrap.fill(" ".join(rule.about.split()), 88)
    deep = ", with --deep" if rule.deep else ""
    console.result(f"{rule.id} ({rule.severity}{deep})\n\n{about}\n\nNext: {rule.next_step}.")


def show_annotations(audits: Sequence[Audit]) -> None:
    """Print the findings as workflow commands, which GitHub shows beside a change."""
    lines = [line for audit in audits for line in annotation_lines(audit)]
    console.result("\n".join(lines) or "no findings")


def annotation_lines(audit: Audit) -> Iterator[str]:
    """A workflow command for each finding, and a notice for what was not checked."""
    for severity in Severity:
        for finding in audit.of(severity):
            text = (
                f"{finding.subject}: {finding.found}; allowed: {finding.allowed}; "
                f"next: {finding.next_step}"
            )
            yield _command(_COMMANDS[severity], f"{audit.file}: {finding.rule}", text)
    for one in audit.unchecked:
        kind = "error" if one.required else "notice"
        text = f"{one.subject}: not checked: {one.reason}"
        yield _command(kind, f"{audit.file}: {one.rule}", text)


def report(audits: Sequence[Audit]) -> dict[str, object]:
    """What is written as JSON, in the form of ``docs/audit.schema.json``; of records still."""
    parts = fields(Audit)
    return {
        "schema": SCHEMA,
        "verdict": overall(audits),
        "wheels": [
            {"verdict": audit.verdict, **{each.name: getattr(audit, each.name) for each in parts}}
            for audit in audits
        ],
    }


def overall(audits: Sequence[Audit]) -> Verdict:
    """The worst verdict of all."""
    verdicts = {audit.verdict for audit in audits}
    return next((one for one in (Verdict.FAIL, Verdict.UNCHECKED) if one in verdicts), Verdict.PASS)


def _row(finding: Finding) -> tuple[str, ...]:
    words = finding.subject, finding.found, finding.allowed, finding.next_step
    return (str(finding.severity), finding.rule, *(console.printable(word) for word in words))


def _below(audit: Audit) -> Iterator[str]:
    yield from _unchecked_lines(audit.unchecked)
    for one in audit.ignored:
        what = f"{one.finding.rule} in {one.finding.subject}: {one.finding.found}"
        yield f"ignored: {console.printable(what)} ({one.reason})"
    counts = [(len(audit.of(severity)), severity) for severity in Severity]
    found = ", ".join(
        f"{count} {severity}{'s' if count > 1 else ''}" for count, severity in counts if count
    )
    facts = f"{audit.facts.kind}, {audit.facts.members} files, " if audit.facts else ""
    yield (
        f"{audit.file}: {audit.verdict} ({facts}{audit.size:,} bytes, {audit.seconds:.2f} s)"
        f"{': ' if found else ''}{found}"
    )


def _unchecked_lines(unchecked: tuple[Unchecked, ...]) -> Iterator[str]:
    """What was not checked, a line for each subject and reason with the rules that it concerns."""
    groups: dict[tuple[str, str], list[str]] = {}
    for one in unchecked:
        groups.setdefault((one.subject, one.reason), []).append(one.rule)
    for (subject, reason), rules in list(groups.items())[:_UNCHECKED]:
        named = ", ".join(rules) if len(rules) <= _RULES else f"{len(rules)} rules"
        yield console.printable(f"not checked: {named} in {subject}: {reason}")
    if len(groups) > _UNCHECKED:
        yield f"not checked: {len(groups) - _UNCHECKED} more"


def _command(kind: str, title: str, text: str) -> str:
    return f"::{kind} title={_escaped(title, ',:')}::{_escaped(text)}"


def _escaped(text: str, more: str = "") -> str:
    """As the toolkit of GitHub's actions escapes a command's text or, with ``more``, a property."""
    return "".join(f"%{ord(one):02X}" if one in f"%\r\n{more}" else one for one in text)
