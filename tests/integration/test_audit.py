"""``wheelfab audit`` as people call it: its exit codes, its forms, and our own wheels."""

from __future__ import annotations

import json
from pathlib import Path

from tests.factory.auditmaker import VERSION, library
from tests.factory.wheelmaker import cut, make_wheel
from wheelfab.audit.rules import RULES

from .conftest import Wheelfab


def test_our_own_wheels_have_no_finding_and_nothing_is_unchecked(wheelfab: Wheelfab) -> None:
    wheels = [result["wheel"] for result in wheelfab.json("build")]
    for arguments in ((), wheels, ("--deep",)):
        report = wheelfab.json("audit", *arguments)
        assert report["verdict"] == "pass"
        assert len(report["wheels"]) == len(wheels)
        assert [one["findings"] for one in report["wheels"]] == [[]] * len(wheels)
        assert [one["unchecked"] for one in report["wheels"]] == [[]] * len(wheels)
        assert any(one["skipped"] for one in report["wheels"]) == (arguments != ("--deep",))
        assert {one["facts"]["kind"] for one in report["wheels"]} == {"cpu", "cuda-driver"}


def test_each_verdict_has_its_exit_code(wheelfab: Wheelfab, tmp_path: Path) -> None:
    good = make_wheel(tmp_path / "good", version=VERSION)
    bad = make_wheel(tmp_path / "bad", version=VERSION, files={"freewheel/a.o": b""})
    half = make_wheel(tmp_path / "half", version=VERSION)
    cut(half)
    unread = make_wheel(
        tmp_path / "unread", version=VERSION, files={"freewheel/_C.abi3.so": b"\x7fELF and no more"}
    )
    policy = tmp_path / "policy.toml"
    ignored = [one for one in RULES if one.startswith("elf-")]  # that it is no ELF file is meant
    entries = ", ".join(f'{{rule = "{one}", reason = "meant"}}' for one in ignored)
    policy.write_text(f'required = ["python-abi3"]\nignore = [{entries}]')
    wrong = tmp_path / "wrong.toml"
    wrong.write_text('kid = "cpu"')
    assert wheelfab.run("audit", str(good)).returncode == 0
    assert wheelfab.run("audit", str(good), str(bad)).returncode == 1
    assert wheelfab.run("audit", str(half)).returncode == 1
    assert wheelfab.run("audit", str(unread), "--policy", str(policy)).returncode == 14
    assert wheelfab.run("audit", str(good), "--policy", str(wrong)).returncode == 2
    assert wheelfab.run("audit", str(tmp_path / "none.whl")).returncode == 10
    assert wheelfab.run("audit", "--explain", "archive-zip").returncode == 0
    assert wheelfab.run("audit", "--explain", "archive-zp").returncode == 2
    for python in ("nosuch-python", "false"):
        assert wheelfab.run("audit", str(good), "--deep", "--python", python).returncode == 2


def test_the_forms_of_a_report(wheelfab: Wheelfab, tmp_path: Path) -> None:
    path = make_wheel(
        tmp_path, version=VERSION, files={"freewheel/a.o": b"", "freewheel/_C.abi3.so": library()}
    )
    table = wheelfab.run("audit", str(path))
    assert "freewheel/a.o" in table.stdout
    assert ": fail (cpu, 6 files, " in table.stdout
    assert "error: 1 of 1 wheels fail" in table.stderr
    lines = wheelfab.run("audit", "--github", str(path)).stdout.splitlines()
    assert [line for line in lines if line.startswith("::error title=freewheel-0.1.0+cpu")]
    document = json.loads(wheelfab.run("audit", "--json", str(path)).stdout)
    assert document["verdict"] == "fail"
    assert document["wheels"][0]["findings"][0]["rule"] == "contents-build"
