"""A policy is read whole or refused with everything that is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from wheelfab.audit import Severity, load_policy
from wheelfab.audit.kind import WheelKind
from wheelfab.audit.policy import Policy, tables
from wheelfab.errors import UsageError

GOOD = """\
kind = "cpu"
required = ["python-*"]

[severity]
contents-packages = "error"

[[ignore]]
rule = "metadata-valid"
subject = "*/METADATA"
reason = "known"

[contents]
budget = "40 MB"
packages = ["x"]
"""


def written(folder: Path, text: str) -> Path:
    """A policy file of that text."""
    path = folder / "policy.toml"
    path.write_text(text, encoding="utf-8")
    return path


def refused(folder: Path, text: str) -> list[str]:
    """The lines of the error that a policy of that text gives."""
    with pytest.raises(UsageError) as caught:
        load_policy(written(folder, text))
    return str(caught.value).splitlines()


def test_a_policy_is_read(tmp_path: Path) -> None:
    policy = load_policy(written(tmp_path, GOOD))
    assert policy.kind is WheelKind.CPU
    assert policy.severity == {"contents-packages": Severity.ERROR}
    assert policy.ignore[0].reason == "known"
    assert policy.contents.budget == 40_000_000
    assert load_policy(written(tmp_path, "")) == Policy()


def test_all_errors_are_told_at_once_with_what_was_meant(tmp_path: Path) -> None:
    text = """
        kid = "cpu"
        kind = "cpuu"
        [severity]
        archive-zip = "eror"
        [contents]
        budgt = "1 MB"
        budget = "much"
        [[ignore]]
        rule = "archive-zip"
        reasn = "x"
    """
    assert sorted(refused(tmp_path, text)) == [
        "policy.toml: contents.budget: 'much' is not a size; write a size such as 40 MB or 64 MiB",
        "policy.toml: contents.budgt: unknown key; did you mean 'budget'?",
        "policy.toml: ignore[0].reasn: unknown key; did you mean 'reason'?",
        "policy.toml: ignore[0].reason: is missing",
        "policy.toml: kid: unknown key; did you mean 'kind'?",
        "policy.toml: kind: unknown value; did you mean 'cpu'?",
        "policy.toml: severity.archive-zip: unknown value; did you mean 'error'?",
    ]


def test_rules_that_do_not_exist_are_told(tmp_path: Path) -> None:
    text = """
        required = ["archive-zp", "elephant-*"]
        severity = {python-abi = "note"}
        ignore = [{rule = "record-hsh", reason = "x"}]
    """
    lines = refused(tmp_path, text)
    assert lines[0] == "policy.toml: severity: no rule 'python-abi'; did you mean 'python-abi3'?"
    assert lines[1] == "policy.toml: required: no rule 'archive-zp'; did you mean 'archive-zip'?"
    assert lines[2].startswith("policy.toml: required: no rule 'elephant-*'; known: ")
    assert lines[3].startswith("policy.toml: ignore[0].rule: no rule 'record-hsh'; did you mean")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("x = ", "not TOML"),
        ("contents = {budget = 0}", "contents.budget: Input should be greater than 0"),
        ("a = 1\n" * 100_000, "longer than 256 KiB"),
        ("required = 3", "required: Input should be a valid tuple"),
        ("ignore = [{rule = 'x', reason = ''}]", "ignore[0].reason"),
        (
            "torch = {operators = ['mine::add', 'a b']}",
            "torch.operators[1]: no operator 'a b'; write a namespace, or namespace::name",
        ),
    ],
)
def test_what_is_no_policy_is_refused(text: str, what: str, tmp_path: Path) -> None:
    assert what in refused(tmp_path, text)[0]


def test_gpus_are_compute_capabilities(tmp_path: Path) -> None:
    assert load_policy(written(tmp_path, 'device = {gpus = ["9.0", "12.1"]}')).device.gpus == (
        "9.0",
        "12.1",
    )
    text = 'device = {gpus = ["9.0", "9", "sm_90", "9.0a", "\u00b2.0", "9.0\\n"]}'
    step = "write a compute capability such as 9.0"
    assert refused(tmp_path, text) == [
        f"policy.toml: device.gpus[{at}]: unknown GPU {gpu}; {step}"
        for at, gpu in enumerate(("'9'", "'sm_90'", "'9.0a'", "'\u00b2.0'", "'9.0\\n'"), start=1)
    ]


def test_a_policy_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        load_policy(tmp_path / "none.toml")


def test_every_key_is_explained() -> None:
    for table in tables().values():
        assert all(field.description for field in table.model_fields.values())
