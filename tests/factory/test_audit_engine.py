"""Verdicts: what the policy changes, lets pass and requires, and the exit code of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.factory.auditmaker import audited, library
from wheelfab.audit import Severity, Verdict, audit, raise_for
from wheelfab.audit.engine import find_rule
from wheelfab.audit.rules import RULES
from wheelfab.errors import AuditError, UncheckedError, UsageError, WheelError

BROKEN = {"freewheel/_C.abi3.so": b"\x7fELF and no more"}
CPU = "0.1.0+cpu.torch2.4"
OBJECT = {"freewheel/a.o": b""}
LONG = "9" * 5000


def test_a_good_wheel_passes(tmp_path: Path) -> None:
    found = audited(tmp_path, files={"freewheel/_C.abi3.so": library()}, version=CPU)
    assert found.verdict is Verdict.PASS
    assert (found.findings, found.unchecked, found.ignored) == ((), (), ())
    raise_for([found])


def test_an_error_fails(tmp_path: Path) -> None:
    found = audited(tmp_path, files=OBJECT)
    assert found.verdict is Verdict.FAIL
    with pytest.raises(AuditError, match="1 of 1 wheels fail: freewheel-") as caught:
        raise_for([found])
    assert caught.value.exit_code == 1


def test_a_policy_sets_severities(tmp_path: Path) -> None:
    found = audited(tmp_path, files=OBJECT, policy={"severity": {"contents-build": "note"}})
    assert [one.severity for one in found.findings] == [Severity.NOTE]
    assert found.verdict is Verdict.PASS


def test_a_policy_lets_pass_with_a_reason(tmp_path: Path) -> None:
    entry = {"rule": "contents-*", "subject": "*/a.o", "reason": "data"}
    found = audited(tmp_path, files=OBJECT | {"freewheel/b.o": b""}, policy={"ignore": [entry]})
    assert [one.finding.subject for one in found.ignored] == ["freewheel/a.o"]
    assert found.ignored[0].reason == "data"
    assert [one.subject for one in found.findings] == ["freewheel/b.o"]


def test_what_could_not_be_checked_is_neither_passed_nor_failed(tmp_path: Path) -> None:
    lenient = {"severity": {one: "note" for one in RULES if one.startswith("elf")}}
    found = audited(tmp_path, files=BROKEN, policy=lenient, version=CPU)
    assert found.verdict is Verdict.UNCHECKED
    assert ("python-abi3", "freewheel/_C.abi3.so") in {
        (one.rule, one.subject) for one in found.unchecked
    }
    raise_for([found])


def test_what_a_rule_cannot_read_is_unchecked(tmp_path: Path) -> None:
    found = audited(tmp_path, name="x", files={"x/lib/a.py": b"1"}, omit_init=True)
    assert found.verdict is Verdict.UNCHECKED
    assert {one.rule for one in found.unchecked} == {"imports-python"}


def test_what_the_policy_requires_must_be_checked(tmp_path: Path) -> None:
    lenient = {"severity": {one: "note" for one in RULES if one.startswith("elf")}}
    policy = {"required": ["python-*"], **lenient}
    found = audited(tmp_path, files=BROKEN, policy=policy, version=CPU)
    with pytest.raises(UncheckedError, match="required and not checked: python-abi3") as caught:
        raise_for([found])
    assert caught.value.exit_code == 14


def test_a_rule_is_found_or_a_near_one_named() -> None:
    assert find_rule("archive-zip").id == "archive-zip"
    with pytest.raises(UsageError, match="did you mean 'archive-zip'"):
        find_rule("archive-zipp")


def with_library(**switches: Any) -> dict[str, Any]:
    """Switches for a wheel with one library."""
    return {"files": {"freewheel/_C.abi3.so": library(**switches)}}


@pytest.mark.parametrize(
    ("switches", "found"),
    [
        ({"build": {"version": CPU, "cuda": "cu121x"}}, set()),
        ({"build": {"version": CPU, "cuda": "\u00b2"}, **with_library()}, set()),
        ({"build": {"version": CPU, "archs": [90]}}, set()),
        ({"metadata_version": LONG}, {"metadata-valid"}),
        ({"requires_dist": (f"torch<{LONG}",)}, {"metadata-valid"}),
        ({"wheel_extra": f"Tag: {'.'.join('a' * 9000)}-{'.'.join('b' * 9000)}-c"}, {"wheel-file"}),
        (
            with_library(undefined=(f"_ZN5torch{LONG}",), needed=("libtorch.so",)),
            {"torch-symbols"},
        ),
        (with_library(versions={"libc.so.6": (f"GLIBC_{LONG}",)}), {"needs-platform"}),
    ],
    ids=["cuda", "digit", "archs", "version", "requirement", "tags", "symbol", "need"],
)
def test_what_others_write_gives_findings_and_no_traceback(
    switches: dict[str, Any], found: set[str], tmp_path: Path
) -> None:
    report = audited(tmp_path, version=CPU, **switches)
    assert {one.rule for one in report.of(Severity.ERROR)} == found


def test_a_wheel_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(WheelError, match="no such file"):
        audit(tmp_path / "none.whl")


def test_every_rule_is_explained() -> None:
    for rule in RULES.values():
        assert len(rule.about.split()) > 10, rule.id
        assert rule.about.rstrip().endswith((".", ")"))
        assert rule.next_step
