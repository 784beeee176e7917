"""The numbers of dispatch keys, from a header and from machine code."""

from __future__ import annotations

import pytest

from wheelfab.atlas.dispatch import read_dispatch_keys
from wheelfab.errors import FormatError

from .atlasmaker import HEADER, HEADER_KEYS


def test_the_keys_of_a_header_by_number() -> None:
    assert read_dispatch_keys(HEADER) == HEADER_KEYS


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("enum class DispatchKey", "enum class Other", "no list of dispatch keys"),
        ("C10_FORALL_FUNCTIONALITY_KEYS(DEFINE_PER_BACKEND_KEYS)", "", "no keys by backend"),
        ("CatchAll = Undefined", "CatchAll = Nothing", "not a key before it"),
        ("Dense, /*", "Dense = 9, /*", "leaves numbers out"),
    ],
)
def test_another_layout_is_not_guessed_at(old: str, new: str, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        read_dispatch_keys(HEADER.replace(old, new))
