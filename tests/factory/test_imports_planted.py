"""Every planted offender is found, at its line and by its rule, and none of their good twins."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from wheelfab.imports import ImportReport, LintOptions, lint
from wheelfab.imports.record import Rule

PACKAGES = Path(__file__).parents[1] / "integration" / "lint_packages"
SEEN = {
    Rule.DRIVER_CALLED,
    Rule.DEVICE_OPENED,
    Rule.THREAD,
    Rule.PROCESS,
    Rule.RAISED,
    Rule.CRASHED,
    Rule.HUNG,
    Rule.OVER_BUDGET,
}


def check(name: str) -> ImportReport:
    return lint(PACKAGES / name / name, LintOptions(dynamic=False))


@pytest.fixture(scope="module")
def planted() -> ImportReport:
    return check("planted")


def wanted() -> Counter[tuple[str, int, str]]:
    """The marks in the planted files: file, line, rule."""
    marks: Counter[tuple[str, int, str]] = Counter()
    root = PACKAGES / "planted"
    for path in sorted(root.rglob("*.py")):
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            mark = re.search(r"# bad: (.+)$", line)
            for rule in mark[1].split() if mark else ():
                marks[path.relative_to(root).as_posix(), number, rule] += 1
    return marks


def test_row_59_every_mark_is_found_and_nothing_else(planted: ImportReport) -> None:
    found = Counter((one.place.file, one.place.line, str(one.rule)) for one in planted.findings)
    assert found == wanted()


def test_every_static_rule_is_planted() -> None:
    assert {rule for _, _, rule in wanted()} == {str(rule) for rule in set(Rule) - SEEN}


def test_the_clean_package_has_no_finding() -> None:
    report = check("clean")
    assert report.findings == ()
    assert report.passed
    assert report.unchecked == ()


def test_a_finding_names_the_chain_from_the_top_level(planted: ImportReport) -> None:
    finding = next(one for one in planted.findings if one.text == "cuda.device_count() > 1"[:-4])
    assert [(step.place.file, step.function) for step in finding.chain] == [
        ("planted/callers.py", "<module>"),
        ("planted/helpers.py", "guarded"),
        ("planted/helpers.py", "deeper"),
    ]
    assert finding.chain[0].call == "guarded()"


def test_an_attribute_made_on_demand_is_followed(planted: ImportReport) -> None:
    finding = next(one for one in planted.findings if one.place.file == "planted/lazy.py")
    assert [(step.place.file, step.function) for step in finding.chain] == [
        ("planted/uses_lazy.py", "<module>"),
        ("planted/lazy.py", "__getattr__('platform')"),
        ("planted/lazy.py", "_resolve"),
    ]


def test_conditions_around_a_call_are_told(planted: ImportReport) -> None:
    guarded = next(one for one in planted.findings if one.text == "torch.cuda.get_device_name(0)")
    assert guarded.when == ("torch.cuda.is_available()",)


def test_the_context_of_a_call_is_told(planted: ImportReport) -> None:
    contexts = {one.context for one in planted.findings if one.place.file == "planted/places.py"}
    assert contexts == {
        "decorator",
        "default argument",
        "annotation",
        "class body",
        "comprehension",
        "f-string",
        "statement",
    }
