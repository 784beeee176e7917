"""The numbers of a loop: spread of its times, and how sure one can be that it does not fail."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """Mean, sample standard deviation (0 for one value), median and 99th percentile, in seconds."""

    mean: float
    sd: float
    p50: float
    p99: float


def spread(values: Sequence[float]) -> Spread | None:
    """The spread of ``values``, ``None`` where there are none."""
    if not values:
        return None
    mean = math.fsum(values) / len(values)
    squares = math.fsum((value - mean) ** 2 for value in values)
    return Spread(
        mean=mean,
        sd=math.sqrt(squares / (len(values) - 1)) if len(values) > 1 else 0.0,
        p50=percentile(values, 0.50),
        p99=percentile(values, 0.99),
    )


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which ``share`` of ``values`` lies, linear between two (Hyndman-Fan 7).

    The definition that numpy and R use unless told otherwise. ``values`` must not be empty.
    """
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def failure_bound(failures: int, count: int, confidence: float = CONFIDENCE) -> float:
    """The one-sided Clopper-Pearson upper bound of the failure rate.

    The largest rate at which so few failures in ``count`` independent loads still have a chance of
    ``1 - confidence``. Without a failure that is ``1 - (1 - confidence) ** (1 / count)``: 0.0295
    for 100 loads. Raises ``ValueError`` unless ``0 <= failures <= count`` and ``count >= 1``.
    """
    if count < 1 or not 0 <= failures <= count:
        raise ValueError(f"{failures} failures of {count} loads")
    if failures == count:
        return 1.0
    chance = 1.0 - confidence
    if failures == 0:
        return -math.expm1(math.log(chance) / count)
    low, high = failures / count, 1.0
    while high - low > 1e-12:
        rate = (low + high) / 2
        if at_most(failures, count, rate) > chance:
            low = rate
        else:
            high = rate
    return (low + high) / 2


def at_most(failures: int, count: int, rate: float) -> float:
    """The chance of at most ``failures`` in ``count`` loads that each fail with chance ``rate``."""
    if rate <= 0.0:
        return 1.0
    if rate >= 1.0:
        return 1.0 if failures >= count else 0.0
    fails, passes = math.log(rate), math.log1p(-rate)
    return math.fsum(
        math.exp(_log_choose(count, k) + k * fails + (count - k) * passes)
        for k in range(failures + 1)
    )


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
