"""Suggestions after a slip of the keyboard."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wheelfab.suggest import did_you_mean, joined, listed, nearest


@pytest.mark.parametrize(
    ("text", "choices", "expected"),
    [
        ("12.10", ("11.8", "12.1", "12.4"), "12.1"),
        ("archs", ("arch", "cuda-api", "torch"), "arch"),
        ("ampere", ("Ada", "Ampere", "Ampere+Tegra"), "Ampere"),
        ("cu11", ("cu121", "cu118"), "cu118"),
        ("banana", ("arch", "cuda"), None),
        ("x", (), None),
    ],
)
def test_nearest(text: str, choices: tuple[str, ...], expected: str | None) -> None:
    assert nearest(text, choices) == expected


@given(st.lists(st.text(min_size=1, max_size=8), min_size=1, unique_by=str.casefold))
def test_a_choice_is_nearest_to_itself(choices: list[str]) -> None:
    for choice in choices:
        found = nearest(choice, choices)
        assert found is not None
        assert found.casefold() == choice.casefold()


def test_the_choices_are_listed_where_none_is_alike() -> None:
    assert did_you_mean("banana", ("arch", "cuda")) == "known: arch, cuda"
    assert did_you_mean("arhc", ("arch", "cuda")) == "did you mean 'arch'?"
    assert did_you_mean("banana", ()) == ""


def test_long_lists_are_cut_and_counted() -> None:
    assert listed(str(number) for number in range(14)).endswith("10, 11 and 2 more")
    assert listed(("a", "b")) == "a, b"


@pytest.mark.parametrize(
    ("choices", "expected"),
    [((), ""), (("a",), "a"), (("a", "b"), "a and b"), (("a", "b", "c"), "a, b and c")],
)
def test_joined(choices: tuple[str, ...], expected: str) -> None:
    assert joined(choices) == expected
