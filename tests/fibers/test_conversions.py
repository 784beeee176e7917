"""The stand-ins for CUDA's half and bfloat16 headers, and numpy's lack of bfloat16."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from .dtypes import DType, decode, encode, ulp
from .emulation import Emulation

_ALL_BITS = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)


def _hard_floats() -> np.ndarray:
    """Every 16-bit number of both kinds, the midpoints between them, and their neighbours."""
    halves = _ALL_BITS.view(np.float16).astype(np.float32)
    brains = (_ALL_BITS.astype(np.uint32) << 16).view(np.float32)
    middles = ((_ALL_BITS.astype(np.uint32) << 16) | 0x8000).view(np.float32)
    finite = np.unique(halves[np.isfinite(halves)]).astype(np.float64)
    half_middles = ((finite[1:] + finite[:-1]) / 2).astype(np.float32)
    limits = np.array([65519.99, 65520, 65521, 3.4e38, np.inf, -np.inf, np.nan], np.float32)
    exact = np.concatenate([halves, brains, middles, half_middles, limits])
    with np.errstate(invalid="ignore"):  # signalling NaNs are among them
        up, down = (np.nextafter(exact, np.float32(end)) for end in (np.inf, -np.inf))
    return np.concatenate([exact, up, down])


def _convert(
    emulation: Emulation, function: str, values: np.ndarray, storage: type[np.generic]
) -> np.ndarray:
    values, target = np.ascontiguousarray(values), np.zeros(len(values), storage)
    emulation.convert(function, values.ctypes.data, target.ctypes.data, len(values))
    return target


def test_every_half_becomes_the_float_that_numpy_makes(emulation: Emulation) -> None:
    got = _convert(emulation, "fw_convert_from_half", _ALL_BITS, np.float32)
    np.testing.assert_array_equal(got, _ALL_BITS.view(np.float16).astype(np.float32))


def test_every_bfloat16_becomes_the_float_that_torch_makes(emulation: Emulation) -> None:
    got = _convert(emulation, "fw_convert_from_bfloat16", _ALL_BITS, np.float32)
    expected = torch.from_numpy(_ALL_BITS.view(np.int16)).view(torch.bfloat16).float().numpy()
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("function", "kind"),
    [("fw_convert_to_half", torch.float16), ("fw_convert_to_bfloat16", torch.bfloat16)],
)
def test_floats_round_as_in_torch(emulation: Emulation, function: str, kind: torch.dtype) -> None:
    values = _hard_floats()
    got = _convert(emulation, function, values, np.uint16)
    expected = torch.from_numpy(values).to(kind).view(torch.int16).numpy().view(np.uint16)
    number = ~np.isnan(values)
    np.testing.assert_array_equal(got[number], expected[number])
    assert set(got[~number].tolist()) == {0x7FFF}


def test_encode_rounds_to_bfloat16_as_torch_does() -> None:
    values = _hard_floats()
    expected = torch.from_numpy(values).to(torch.bfloat16).view(torch.int16).numpy()
    number = ~np.isnan(values)
    got = encode(values, DType.BF16)
    np.testing.assert_array_equal(got[number], expected.view(np.uint16)[number])
    assert np.isnan(decode(got[~number], DType.BF16)).all()


@pytest.mark.parametrize("dtype", DType)
def test_ulp_is_the_distance_to_the_next_number(dtype: DType) -> None:
    values = encode(np.array([1.0, 1.5, 2.0, 3.0, 1000.0, 0.125]), dtype)
    following = (values.view(f"u{values.itemsize}") + 1).view(values.dtype)
    distance = decode(following, dtype) - decode(values, dtype)
    np.testing.assert_array_equal(ulp(decode(values, dtype), dtype), distance)
