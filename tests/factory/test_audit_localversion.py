"""Parts of local versions that sort as text where they should sort as numbers."""

from __future__ import annotations

import pytest
from packaging.version import Version

from wheelfab.audit.localversion import misordered, natural, skeleton


@pytest.mark.parametrize(
    "local",
    [
        "cpu",
        "cu118",
        "cu12",
        "cu121.torch2.10",
        "cu12torch2.9",
        "cu128.pt2.9",
        "1a2b3c4d5",
        "g1a2b3c4",
        "d20261130",
        "5",
    ],
)
def test_local_versions_that_last(local: str) -> None:
    assert list(misordered(local)) == []


@pytest.mark.parametrize(
    ("local", "part", "above"),
    [
        ("cu92", "cu92", "cu100"),
        ("pt29", "pt29", "pt100"),
        ("cu118pt24", "cu118pt24", "cu118pt100"),
        ("rocm7.0", "rocm7", "rocm10"),
        ("cu12torch2.4cxx11abifalse", "4cxx11abifalse", "10cxx11abifalse"),
    ],
)
def test_b52_local_versions_that_do_not(local: str, part: str, above: str) -> None:
    found = list(misordered(local))
    assert found == [(part, f"is compared as text, so that {above} is below it")]
    assert Version(f"1+{above}") < Version(f"1+{part}")  # by the standard's own reference


def test_numbers_count_as_numbers_in_the_natural_order() -> None:
    assert natural("cu92") < natural("cu118")
    assert natural("cu121.torch2.4") < natural("cu121.torch2.10")
    assert skeleton("cu92") == skeleton("cu118") != skeleton("cpu")
