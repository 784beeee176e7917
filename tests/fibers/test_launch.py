"""launch.h: names, records and shapes."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

import pytest

from .dtypes import DType
from .emulation import Emulation
from .kernel_source import ALL_KERNELS, kernels, sources
from .records import records

_RECORDS = {
    "rms_norm": ("FwRmsNormArgs", {"tokens": 3, "hidden": 4096}),
    "fused_add_rms_norm": ("FwFusedAddRmsNormArgs", {"tokens": 3, "hidden": 4096}),
    "silu_and_mul": ("FwSiluAndMulArgs", {"tokens": 3, "size": 5000}),
    "rotary_embedding": (
        "FwRotaryEmbeddingArgs",
        {"tokens": 3, "query_heads": 4, "rotary_size": 64},
    ),
    "reshape_and_cache": ("FwReshapeAndCacheArgs", {"tokens": 3, "kv_heads": 2, "head_size": 64}),
    "paged_attention": (
        "FwPagedAttentionArgs",
        {"tokens": 3, "heads": 4, "head_size": 80, "splits": 2},
    ),
    "paged_attention_reduce": (
        "FwPagedAttentionArgs",
        {"tokens": 3, "heads": 4, "head_size": 80, "splits": 2},
    ),
}


def _record(operation: str, **changes: int) -> ctypes.Structure:
    name, fields = _RECORDS[operation]
    return records()[name](**{**fields, **changes})


def test_the_list_of_each_image_is_what_its_source_makes(emulation: Emulation) -> None:
    declared = {path.stem: set(kernels(path)) for path in sources()}
    listed = emulation.images()
    assert {image: set(names) for image, names in listed.items()} == declared
    assert sum(map(len, listed.values())) == len(ALL_KERNELS) == 33


@pytest.mark.parametrize("kernel", ALL_KERNELS)
def test_a_kernel_takes_its_record_by_value(emulation: Emulation, kernel: str) -> None:
    described = emulation.kernel(kernel)
    assert described.param_count == 1
    assert described.param_sizes[0] == ctypes.sizeof(records()[ALL_KERNELS[kernel]])


@pytest.mark.parametrize("dtype", DType)
@pytest.mark.parametrize("operation", _RECORDS)
def test_the_kernel_is_in_the_image_that_launch_h_names(
    emulation: Emulation, operation: str, dtype: DType
) -> None:
    shape = emulation.shape(operation, _record(operation, dtype=dtype))
    kernel, image = shape.kernel.decode(), shape.image.decode()
    assert kernel in emulation.images()[image]
    assert kernel.startswith(f"fw_{operation}")
    assert kernel.endswith(f"_{dtype.suffix}")
    assert ALL_KERNELS[kernel] == _RECORDS[operation][0]
    assert shape.shared_bytes == 0


@pytest.mark.parametrize(
    ("operation", "changes", "grid", "block"),
    [
        ("rms_norm", {}, [3, 1, 1], [512, 1, 1]),
        ("rms_norm", {"hidden": 100}, [3, 1, 1], [32, 1, 1]),
        ("rms_norm", {"hidden": 1}, [3, 1, 1], [32, 1, 1]),
        ("fused_add_rms_norm", {"hidden": 2048, "dtype": 1}, [3, 1, 1], [256, 1, 1]),
        ("silu_and_mul", {}, [3, 5, 1], [256, 1, 1]),
        ("silu_and_mul", {"dtype": 2}, [3, 3, 1], [256, 1, 1]),
        ("silu_and_mul", {"size": 1 << 40}, [3, 65535, 1], [256, 1, 1]),
        ("rotary_embedding", {}, [3, 1, 1], [32, 8, 1]),
        ("reshape_and_cache", {}, [3, 1, 1], [16, 16, 1]),
        ("paged_attention", {}, [12, 2, 1], [128, 1, 1]),
        ("paged_attention", {"tokens": 100_000}, [400_000, 2, 1], [128, 1, 1]),
        ("paged_attention_reduce", {}, [12, 1, 1], [128, 1, 1]),
    ],
)
def test_shapes(
    emulation: Emulation,
    operation: str,
    changes: Mapping[str, int],
    grid: list[int],
    block: list[int],
) -> None:
    shape = emulation.shape(operation, _record(operation, **changes))
    assert (shape.grid[:], shape.block[:]) == (grid, block)


@pytest.mark.parametrize(
    ("operation", "empty"),
    [
        ("rms_norm", "tokens"),
        ("rms_norm", "hidden"),
        ("fused_add_rms_norm", "tokens"),
        ("fused_add_rms_norm", "hidden"),
        ("silu_and_mul", "tokens"),
        ("silu_and_mul", "size"),
        ("rotary_embedding", "tokens"),
        ("rotary_embedding", "rotary_size"),
        ("rotary_embedding", "query_heads"),
        ("reshape_and_cache", "tokens"),
        ("reshape_and_cache", "kv_heads"),
        ("paged_attention", "tokens"),
        ("paged_attention", "heads"),
        ("paged_attention_reduce", "tokens"),
    ],
)
def test_nothing_to_do_is_an_empty_grid(emulation: Emulation, operation: str, empty: str) -> None:
    assert 0 in emulation.shape(operation, _record(operation, **{empty: 0})).grid[:]


@pytest.mark.parametrize("operation", _RECORDS)
def test_too_many_tokens_are_not_cut_short(emulation: Emulation, operation: str) -> None:
    for tokens in (1 << 32, (1 << 32) + 1, (1 << 63) - 1):
        shape = emulation.shape(operation, _record(operation, tokens=tokens))
        assert shape.grid[0] == (1 << 32) - 1


@pytest.mark.parametrize("dtype", [-1, 3])
@pytest.mark.parametrize("operation", _RECORDS)
def test_an_unknown_dtype_has_no_kernel(emulation: Emulation, operation: str, dtype: int) -> None:
    assert emulation.shape(operation, _record(operation, dtype=dtype)).kernel is None


@pytest.mark.parametrize("head_size", [0, 32, 72, 112, 512])
def test_an_unknown_head_size_has_no_kernel(emulation: Emulation, head_size: int) -> None:
    assert (
        emulation.shape("paged_attention", _record("paged_attention", head_size=head_size)).kernel
        is None
    )


@pytest.mark.parametrize(
    ("rows", "longest", "processors", "splits"),
    [
        (0, 100_000, 100, 1),
        (32, 255, 108, 1),
        (32, 1024, 108, 4),
        (32, 100_000, 108, 14),
        (8, 100_000, 132, 32),
        (1000, 100_000, 108, 1),
    ],
)
def test_splits_fill_the_device_but_keep_256_tokens_each(
    emulation: Emulation, rows: int, longest: int, processors: int, splits: int
) -> None:
    assert emulation.splits(rows, longest, processors) == splits


def test_unaligned_caches_are_named(emulation: Emulation) -> None:
    def named(key: int, value: int) -> str | None:
        return emulation.misaligned(_record("paged_attention", key_cache=key, value_cache=value))

    assert named(4096, 8192) is None
    assert named(4104, 8192) == "key_cache"
    assert named(4096, 8194) == "value_cache"
