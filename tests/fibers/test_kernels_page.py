"""docs/kernels.md against the sources and the emulation, and the readers behind it."""

from __future__ import annotations

import pytest

from tests.drivers import cubin

from .accuracy import measure
from .cubin_facts import toolkit, wide_loads
from .emulation import Emulation
from .kernel_source import ALL_KERNELS
from .kernels_page import read_page


def test_the_page_has_every_kernel() -> None:
    assert list(read_page()) == list(ALL_KERNELS)


@pytest.mark.parametrize("kernel", ALL_KERNELS)
def test_the_page_has_what_is_measured(emulation: Emulation, kernel: str) -> None:
    """Nearly: mathematical libraries differ in the last place of an exponential."""
    row, measured = read_page()[kernel], measure(emulation, kernel)
    assert row.error == pytest.approx(measured.error, rel=0.2)
    assert row.torch_error == pytest.approx(measured.torch_error, rel=0.2)
    assert row.stack == 0


def test_the_release_of_a_cubin() -> None:
    assert toolkit(cubin.cubin(80, {}, toolkit=118)) == "11.8"
    assert toolkit(cubin.cubin(80, {}, toolkit=121)) == "12.1"


def test_wide_loads_are_counted_by_kernel() -> None:
    text = """
.visible .entry first(
  ld.global.nc.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1];
  ld.global.v2.u64 {%rd1, %rd2}, [%rd1];
  ld.global.v2.u32 {%r1, %r2}, [%rd1];
  ld.shared.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1];
.entry second(
  ld.global.f32 %f1, [%rd1];
"""
    assert wide_loads(text) == {"first": 2, "second": 0}
