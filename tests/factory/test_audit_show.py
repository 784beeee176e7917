"""An audit as a table, as annotations and as JSON that keeps to its schema."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from tests.factory.auditmaker import audited, library
from wheelfab.audit import Audit, Verdict, documents, report, show_annotations, show_audits
from wheelfab.audit.engine import find_rule
from wheelfab.audit.record import Finding, Severity, Unchecked
from wheelfab.audit.rules import RULES
from wheelfab.audit.show import annotation_lines, overall, show_rule
from wheelfab.records import to_plain

DOCS = Path(__file__).parents[2] / "docs"


def an_audit(*findings: Finding, file: str = "a-1-py3-none-any.whl") -> Audit:
    """An audit that found these."""
    return Audit(file=file, sha256="0", size=1000, facts=None, findings=findings, seconds=0.5)


def a_finding(
    severity: Severity = Severity.ERROR, subject: str = "a.so", found: str = "x"
) -> Finding:
    """A finding."""
    return Finding(
        rule="r", subject=subject, found=found, allowed="y", severity=severity, next_step="mend"
    )


def test_the_table_has_findings_by_severity_and_ends_with_the_verdict(
    capsys: pytest.CaptureFixture[str],
) -> None:
    audit = an_audit(a_finding(Severity.NOTE), a_finding(Severity.ERROR), a_finding())
    show_audits([audit])
    out = capsys.readouterr().out
    assert out.index("error") < out.index("note")
    assert out.splitlines()[-1] == (
        "a-1-py3-none-any.whl: fail (1,000 bytes, 0.50 s): 2 errors, 1 note"
    )


def test_what_was_not_checked_is_told_by_subject_and_reason(
    capsys: pytest.CaptureFixture[str],
) -> None:
    same = [Unchecked(rule=f"r{at}", subject="a", reason="why") for at in range(4)]
    many = [Unchecked(rule="r", subject=f"b{at}", reason="why") for at in range(12)]
    show_audits([dataclasses.replace(an_audit(), unchecked=(*same, *many))])
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["not checked: 4 rules in a: why", "not checked: r in b0: why"]
    assert lines[-2] == "not checked: 3 more"
    assert lines[-1].startswith("a-1-py3-none-any.whl: unchecked (")


def test_what_a_file_says_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    show_audits([an_audit(a_finding(subject="\x1b[31mred\x07[bold]", found="line\nbreak"))])
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\x07" not in out
    assert "[bold]" in out
    assert r"line\nbreak" in out


def test_annotations_are_escaped_as_github_wants() -> None:
    finding = a_finding(subject="50%", found="two\r\nlines: a,b")
    (line,) = annotation_lines(an_audit(finding, file="a,b:c%.whl"))
    assert line == (
        "::error title=a%2Cb%3Ac%25.whl%3A r::50%25: two%0D%0Alines: a,b; allowed: y; next: mend"
    )


def test_annotations_have_the_severity(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    audit = an_audit(a_finding(Severity.WARNING), a_finding(Severity.NOTE), a_finding())
    kinds = [line.split()[0] for line in annotation_lines(audit)]
    assert kinds == ["::error", "::warning", "::notice"]
    show_annotations([an_audit()])
    assert capsys.readouterr().out == "no findings\n"
    unread = audited(tmp_path, files={"freewheel/_C.abi3.so": b"\x7fELF and no more"})
    assert any("not checked" in line for line in annotation_lines(unread))


def test_the_worst_verdict_is_that_of_all() -> None:
    good, bad = an_audit(), an_audit(a_finding())
    assert overall([good, good]) is Verdict.PASS
    assert overall([good, bad]) is Verdict.FAIL


def test_json_keeps_to_its_schema(tmp_path: Path) -> None:
    files = {"freewheel/_C.abi3.so": library(soname="x"), "freewheel/a.o": b""}
    audit = audited(tmp_path, files=files)
    document = json.loads(json.dumps(to_plain(report([audit]))))
    schema = json.loads(documents()["audit.schema.json"])
    assert set(document) == set(schema["properties"]) == set(schema["required"])
    (wheel,) = document["wheels"]
    assert set(wheel) == set(schema["$defs"]["Audit"]["required"])
    assert wheel.pop("verdict") == "fail"
    assert TypeAdapter(Audit).validate_json(json.dumps(wheel)) == audit


def test_a_rule_is_explained_in_a_paragraph(capsys: pytest.CaptureFixture[str]) -> None:
    show_rule(find_rule("archive-zip"))
    head, about, next_step = capsys.readouterr().out.strip().split("\n\n")
    assert head == "archive-zip (error)"
    assert " ".join(about.split()) == " ".join(RULES["archive-zip"].about.split())
    assert next_step == "Next: build or download it again."


@pytest.mark.parametrize("name", documents())
def test_what_is_checked_in_is_what_is_generated(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == documents()[name]


def test_the_reference_has_every_rule() -> None:
    text = documents()["audit.md"]
    assert [rule for rule in RULES if f"| `{rule}` |" not in text] == []
