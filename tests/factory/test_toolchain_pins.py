"""The pinned wheels: exact, consistent with their release, and known to the rules of legality."""

from __future__ import annotations

import re

import pytest
from packaging.specifiers import SpecifierSet
from packaging.utils import parse_wheel_filename
from packaging.version import Version

from wheelfab import facts
from wheelfab.errors import ToolchainError
from wheelfab.toolchain import toolchain_identity
from wheelfab.toolchain.pins import ToolchainPins, all_pinned, pinned
from wheelfab.toolchain.wheels import toolchain_key


@pytest.mark.parametrize("pins", all_pinned(), ids=lambda pins: pins.name)
def test_every_wheel_is_pinned_to_the_byte(pins: ToolchainPins) -> None:
    for wheel in pins.wheels:
        name, version, _, tags = parse_wheel_filename(wheel.file)
        assert (name, version) == (wheel.package, Version(wheel.version))
        assert {tag.interpreter for tag in tags} == {"py3"}
        assert re.fullmatch(r"[0-9a-f]{64}", wheel.sha256)
        assert wheel.requirement == f"{name}=={wheel.version} --hash=sha256:{wheel.sha256}"
    assert pins.unpacked > sum(wheel.size for wheel in pins.wheels)


@pytest.mark.parametrize("pins", all_pinned(), ids=lambda pins: pins.name)
def test_a_toolchain_is_of_the_release_that_it_is_filed_under(pins: ToolchainPins) -> None:
    compiler = pins.wheels[0]
    assert Version(compiler.version).release[:2] == pins.cuda.release[:2]
    assert ("nvcc" in compiler.package) == (pins.route == "pypi-nvcc")
    assert pins.cuda in SpecifierSet(facts.toolchain_cuda()[pins.route])
    assert facts.cuda_release(pins.cuda) is not None


def test_what_is_not_pinned_is_refused_with_what_is() -> None:
    with pytest.raises(ToolchainError, match=r"pypi-nvcc 12\.1; pinned are pypi-nvrtc 11\.8, "):
        pinned("pypi-nvcc", Version("12.1"))


def test_the_identity_and_the_key_change_with_the_wheels() -> None:
    old, new = pinned("pypi-nvrtc", Version("11.8")), pinned("pypi-nvrtc", Version("12.1"))
    assert toolchain_key(old) != toolchain_key(new)
    assert toolchain_key(old).startswith("pypi-nvrtc-11.8-")
    identity = toolchain_identity("pypi-nvrtc", Version("12.1"))
    assert identity != toolchain_identity("pypi-nvrtc", Version("11.8"))
    assert identity["host"] is None
    assert identity["wheels"] == {f"{w.package} {w.version}": w.sha256 for w in new.wheels}
