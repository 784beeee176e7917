"""The loop's numbers against known ones: exact binomial bounds, numpy's percentiles."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wheelfab.loops.statistics import at_most, failure_bound, percentile, spread


@pytest.mark.parametrize(
    ("failures", "count", "bound"),
    [
        # Beta quantiles qbeta(0.95, k + 1, n - k), checked with exact fractions.
        (0, 1, 0.95),
        (0, 100, 0.02951305),
        (0, 1000, 0.00299125),
        (1, 10, 0.39416330),
        (5, 10, 0.77755890),
        (2, 20, 0.28261852),
        (1, 100, 0.04655981),
        (3, 1000, 0.00773524),
        (10, 10, 1.0),
    ],
)
def test_the_bound_is_clopper_and_pearsons(failures: int, count: int, bound: float) -> None:
    assert failure_bound(failures, count) == pytest.approx(bound, abs=5e-9)


def test_without_a_failure_the_bound_has_a_closed_form() -> None:
    assert failure_bound(0, 100) == pytest.approx(1 - 0.05 ** (1 / 100), rel=1e-12)


@given(st.integers(1, 60).flatmap(lambda n: st.tuples(st.integers(0, n - 1), st.just(n))))
def test_at_the_bound_so_few_failures_have_a_chance_of_five_percent(pair: tuple[int, int]) -> None:
    failures, count = pair
    rate = Fraction(failure_bound(failures, count))
    exact = sum(
        math.comb(count, k) * rate**k * (1 - rate) ** (count - k) for k in range(failures + 1)
    )
    assert float(exact) == pytest.approx(0.05, rel=1e-6)


@pytest.mark.parametrize(("failures", "count"), [(0, 0), (-1, 5), (6, 5)])
def test_a_bound_of_nothing_is_refused(failures: int, count: int) -> None:
    with pytest.raises(ValueError, match="failures of"):
        failure_bound(failures, count)


def test_the_ends_of_the_binomial() -> None:
    assert at_most(3, 10, 0.0) == 1.0
    assert at_most(3, 10, 1.0) == 0.0
    assert at_most(10, 10, 1.0) == 1.0


def test_percentiles_are_numpys() -> None:
    # numpy.percentile([15, 20, 35, 40, 50], [50, 99, 40]) -> 35.0, 49.6, 29.0
    values = [50.0, 15.0, 40.0, 20.0, 35.0]
    assert percentile(values, 0.50) == 35.0
    assert percentile(values, 0.99) == pytest.approx(49.6)
    assert percentile(values, 0.40) == pytest.approx(29.0)


def test_the_spread_of_known_values() -> None:
    found = spread([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0])
    assert found is not None
    assert found.mean == 5.0
    assert found.sd == pytest.approx(math.sqrt(32 / 7))
    assert found.p50 == 4.5


def test_the_spread_of_one_value_and_of_none() -> None:
    one = spread([3.0])
    assert one is not None
    assert (one.mean, one.sd, one.p50, one.p99) == (3.0, 0.0, 3.0, 3.0)
    assert spread([]) is None
