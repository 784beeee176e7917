"""What METADATA requires where a wheel is installed, by lines with markers."""

from __future__ import annotations

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import parse_tag

from wheelfab.requires import machine_of, required

TAG = "cp310-abi3-manylinux_2_28_x86_64"


@pytest.mark.parametrize(
    ("lines", "torch"),
    [
        (["torch>=2.4", "torch<2.7"], ">=2.4,<2.7"),
        (["torch<2.3; sys_platform == 'darwin'", "torch>=2.4"], ">=2.4"),
        (["torch<2.3; platform_machine == 'aarch64'", "torch>=2.4"], ">=2.4"),
        (["torch>=2.4; platform_system == 'Linux'", "Torch!=2.5.0"], ">=2.4,!=2.5.0"),
        (["torch<2.5; python_version < '3.11'", "torch>=2.6; python_version >= '3.11'"], "<2.5"),
        (["torch<2.5; python_full_version < '3.10.5'", "torch>=2.6"], ">=2.6"),
        (["torch>=2.4; extra == 'gpu'"], None),
        (["torch>=2.4; extra != 'cpu'"], ">=2.4"),
        (["torchvision>=0.19"], None),
        (["torch @ https://example.org/torch.whl"], ""),
    ],
)
def test_lines_that_apply_hold_together(lines: list[str], torch: str | None) -> None:
    found = required(map(Requirement, lines), parse_tag(TAG)).get("torch")
    assert found == (SpecifierSet(torch) if torch is not None else None)


@pytest.mark.parametrize(
    ("tag", "names"),
    [
        ("cp310.cp39-abi3-linux_x86_64", {"old", "same", "x86"}),
        ("cp313-cp313-manylinux_2_28_aarch64", {"new", "same"}),
        ("py3-none-any", {"new", "same", "x86"}),
        ("", {"new", "same", "x86"}),
    ],
)
def test_the_oldest_python_and_the_machine_are_the_tags(tag: str, names: set[str]) -> None:
    lines = [
        "old; python_version < '3.10'",
        "new; python_version >= '3.10'",
        "same; implementation_name == 'cpython'",
        "x86; platform_machine == 'x86_64'",
    ]
    assert set(required(map(Requirement, lines), parse_tag(tag) if tag else ())) == names


@pytest.mark.parametrize(
    ("tag", "machine"),
    [
        ("manylinux2014_x86_64", "x86_64"),
        ("manylinux_2_28_aarch64", "aarch64"),
        ("musllinux_1_2_ppc64le", "ppc64le"),
        ("linux_armv7l", "armv7l"),
        ("macosx_11_0_arm64", None),
        ("any", None),
    ],
)
def test_the_machine_of_a_tag(tag: str, machine: str | None) -> None:
    assert machine_of(tag) == machine
