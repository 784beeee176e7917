"""Versions, series, requirements and drivers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from wheelfab.versions import (
    DriverVersion,
    allowed_pythons,
    next_series,
    plain_version,
    ranged,
    series,
    series_requirement,
)

NUMBERS = st.integers(min_value=0, max_value=9999)


@given(NUMBERS, NUMBERS)
def test_a_plain_version_is_read_as_packaging_reads_it(major: int, minor: int) -> None:
    text = f"{major}.{minor}"
    assert plain_version(text, 2) == Version(text)
    assert plain_version(text, 3) is None


@pytest.mark.parametrize(
    "text", ["", "12", "12.1.0", "v12.1", " 12.1", "12.01", "12.1+cu", "12.", "12.x", "\uff11.1"]
)
def test_other_spellings_are_refused(text: str) -> None:
    assert plain_version(text, 2) is None


def test_a_series_and_the_next() -> None:
    assert series(Version("2.4.1+cpu")) == Version("2.4")
    assert next_series(Version("2.9.1")) == Version("2.10")


def test_the_requirement_of_a_series() -> None:
    requirement = series_requirement(Version("2.4.1"))
    allowed = ["2.4.1", "2.4.1+cu121", "2.4.9"]
    refused = ["2.4.0", "2.5.0", "2.5.0.dev1", "2.3.1"]
    assert [text for text in allowed + refused if text in requirement] == allowed
    assert ranged(requirement) == ">=2.4.1,<2.5"


def test_pythons_of_a_range() -> None:
    pythons = [Version(text) for text in ("3.9", "3.10", "3.11", "3.12")]
    assert allowed_pythons(SpecifierSet(">=3.10.4,<3.12"), pythons) == tuple(pythons[1:3])
    assert allowed_pythons(SpecifierSet(">=3.13"), pythons) == ()


def test_drivers_compare_by_number_and_keep_their_spelling() -> None:
    assert str(DriverVersion("520.61.05")) == "520.61.05"
    assert DriverVersion("450.80.02") < DriverVersion("520.61.05") < DriverVersion("1000.1")
    assert DriverVersion("520.61.05") == DriverVersion("520.61.5")
    assert hash(DriverVersion("520.61.05")) == hash(DriverVersion("520.61.5"))
    assert max(DriverVersion("535.104.05"), DriverVersion("535.54.03")).text == "535.104.05"


@pytest.mark.parametrize("text", ["", "520", "520.61.05.1", "R520", "520.61.05 "])
def test_what_is_no_driver_version_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a driver version"):
        DriverVersion(text)
