"""CUDA_VISIBLE_DEVICES in all its forms, against NVIDIA's rules for it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freewheel.device.visible import Finding, Visible, visible_devices

A = "GPU-aaaa1111-0000-0000-0000-000000000001"
B = "GPU-aaaa2222-0000-0000-0000-000000000002"
MIG = "MIG-bbbb1111-0000-0000-0000-000000000003"
OLD_MIG = f"MIG-{A}/1/0"
DEVICES = ((A,), (B,), (MIG, OLD_MIG))


@pytest.mark.parametrize(
    ("value", "finding", "ordinals", "entry"),
    [
        (None, Finding.ALL, None, None),
        ("", Finding.EMPTY, (), None),
        ("  ", Finding.EMPTY, (), None),
        ("-1", Finding.MINUS_ONE, (), "-1"),
        ("-1,0", Finding.MINUS_ONE, (), "-1"),
        ("0", Finding.LISTED, (0,), None),
        ("1,0", Finding.LISTED, (1, 0), None),
        (" 1 , 0 ", Finding.LISTED, (1, 0), None),
        ("0x", Finding.LISTED, (0,), None),  # strtol stops at the x
        ("0,-1,1", Finding.ENDS_EARLY, (0,), "-1"),
        ("0,7,1", Finding.ENDS_EARLY, (0,), "7"),
        ("7", Finding.ENDS_EARLY, (), "7"),
        ("0,,1", Finding.ENDS_EARLY, (0,), ""),
        ("none", Finding.ENDS_EARLY, (), "none"),
        ("NoDevFiles", Finding.ENDS_EARLY, (), "NoDevFiles"),
        ("99999999999999999999", Finding.ENDS_EARLY, (), "99999999999999999999"),
        ("0,1,0", Finding.DUPLICATE, (), "0"),
        (A, Finding.LISTED, (0,), None),
        ("GPU-aaaa2", Finding.LISTED, (1,), None),  # shortened, and still one device's
        (f"{B},GPU-aaaa1", Finding.LISTED, (1, 0), None),
        ("GPU-aaaa", Finding.ENDS_EARLY, (), "GPU-aaaa"),  # shortened too far: two devices'
        ("GPU-", Finding.ENDS_EARLY, (), "GPU-"),
        (f"{A},GPU-aaaa1", Finding.DUPLICATE, (), "GPU-aaaa1"),
        (f"{A},1", Finding.ENDS_EARLY, (0,), "1"),  # forms do not mix
        (f"0,{A}", Finding.ENDS_EARLY, (0,), A),
        (MIG, Finding.LISTED, (2,), None),
        (OLD_MIG, Finding.LISTED, (2,), None),
        (MIG[:-1], Finding.ENDS_EARLY, (), MIG[:-1]),  # a MIG name is never shortened
        (f"MIG-{A}/2/0", Finding.ENDS_EARLY, (), f"MIG-{A}/2/0"),
    ],
)
def test_every_form(
    value: str | None, finding: Finding, ordinals: tuple[int, ...] | None, entry: str | None
) -> None:
    assert visible_devices(value, DEVICES) == Visible(finding, ordinals, entry)


@pytest.mark.parametrize(
    ("value", "finding", "hides_all"),
    [
        (None, Finding.ALL, False),
        ("7", Finding.LISTED, False),
        ("7,7", Finding.DUPLICATE, True),
        ("GPU-f", Finding.LISTED, False),
        ("GPU-f,GPU-e", Finding.LISTED, False),
        ("GPU-f,GPU-f", Finding.DUPLICATE, True),
        ("none", Finding.ENDS_EARLY, True),
    ],
)
def test_without_knowing_the_devices(
    value: str | None, finding: Finding, *, hides_all: bool
) -> None:
    seen = visible_devices(value)
    assert (seen.finding, seen.hides_all) == (finding, hides_all)


@given(st.text(alphabet="0123456789-,GPUMI/ax ", max_size=24))
def test_any_value_gives_distinct_devices_that_exist(value: str) -> None:
    seen = visible_devices(value, DEVICES)
    assert seen.ordinals is not None
    assert len(set(seen.ordinals)) == len(seen.ordinals)
    assert set(seen.ordinals) <= {0, 1, 2}
    said = seen.sentence(value)
    assert bool(said) == (seen.finding not in (Finding.ALL, Finding.LISTED))


@given(st.lists(st.integers(0, 2), unique=True, min_size=1))
def test_a_list_of_indices_is_taken_in_its_order(order: list[int]) -> None:
    assert visible_devices(",".join(map(str, order)), DEVICES).ordinals == tuple(order)
