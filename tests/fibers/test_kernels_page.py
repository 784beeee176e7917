"""docs/kernels.md against the sources and the emulation, and the readers behind it."""

from __future__ import annotations

import pytest

from tests.drivers import cubin

from .accuracy import measure
from .cubin_facts import Wide, toolkit, wide_accesses
from .emulation import Emulation
from .kernel_source import ALL_KERNELS
from .kernels_page import read_page


def test_the_page_has_every_kernel() -> None:
    assert list(read_page()) == list(ALL_KERNELS)


@pytest.mark.parametrize("kernel", ALL_KERNELS)
def test_the_page_has_what_is_measured(emulation: Emulation, kernel: str) -> None:
    """Nearly: mathematical libraries differ in the last place of an exponential.

    torch's own error differs by more: it has other code for each instruction set.
    """
    row, measured = read_page()[kernel], measure(emulation, kernel)
    assert row.error == pytest.approx(measured.error, rel=0.2)
    assert row.torch_error == pytest.approx(measured.torch_error, rel=0.5)
    assert row.stack == 0


def test_the_release_of_a_cubin() -> None:
    assert toolkit(cubin.cubin(80, {}, toolkit=118)) == "11.8"
    assert toolkit(cubin.cubin(80, {}, toolkit=121)) == "12.1"


def test_wide_accesses_are_counted_by_kernel() -> None:
    text = """
	.headerflags	@"EF_CUDA_SM90"
//--------------------- .text.first --------------------------
	.section	.text.first,"ax",@progbits
first:
        /*0130*/                   LDG.E.128.CONSTANT R4, [R4.64] ;
        /*0140*/              @!P0 LDG.E.128 R8, desc[UR4][R2.64] ;
        /*0150*/                   LDG.E.64 R8, [R2.64] ;
        /*0160*/                   LDS.128 R8, [R2] ;
        /*0170*/                   STG.E.128 [R2.64], R4 ;
//--------------------- .text.second    --------------------------
second:
        /*0000*/                   LDG.E.U16 R4, [R2.64+0x128] ;
"""
    assert wide_accesses(text) == {"first": Wide(2, 1), "second": Wide(0, 0)}
