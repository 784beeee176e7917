"""Every kernel against float64, and the same bytes in whatever order its threads run."""

from __future__ import annotations

import pytest

from .accuracy import measure, run
from .emulation import ORDERS, Emulation, fiber_order
from .kernel_source import ALL_KERNELS


@pytest.mark.parametrize("kernel", ALL_KERNELS)
def test_the_error_is_at_most_twice_torchs(emulation: Emulation, kernel: str) -> None:
    measurement = measure(emulation, kernel)
    assert measurement.used <= 1.0, measurement


@pytest.mark.parametrize("kernel", ALL_KERNELS)
def test_every_order_of_threads_gives_the_same_bytes(emulation: Emulation, kernel: str) -> None:
    results = set()
    for order in ORDERS:
        with fiber_order(order):
            results.add(run(emulation, kernel).got.tobytes())
    assert len(results) == 1
