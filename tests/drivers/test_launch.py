"""Launches: what reaches the driver, what the fake refuses, and numbers through the emulation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.drivers import build, cubin
from tests.drivers.child import Run, calls
from tests.drivers.cubin import Kernel

Kernels = Mapping[str, Mapping[str, Kernel]]

# out = rms_norm(x) over 3 tokens of 64 float32; gives out and the same computed here.
RMS_NORM = """
import array, ctypes, math
tokens, hidden = 3, 64
x = array.array("f", [math.sin(1 + i) for i in range(tokens * hidden)])
weight = array.array("f", [1 + i / hidden for i in range(hidden)])
out = array.array("f", [math.nan] * (tokens * hidden))
def address(data):
    return data.buffer_info()[0]
args = records["FwRmsNormArgs"](
    out=address(out), x=address(x), weight=address(weight), tokens=tokens, hidden=hidden,
    out_stride=hidden, x_stride=hidden, eps=1e-6, dtype=0)
expected = []
for t in range(tokens):
    row = x[t * hidden : (t + 1) * hidden]
    scale = 1 / math.sqrt(sum(v * v for v in row) / hidden + 1e-6)
    expected += [v * scale * w for v, w in zip(row, weight)]
def worst():
    return max(abs(a - b) for a, b in zip(out, expected))
"""

# One query token over a context of 600, one head of 64, in as many splits as asked for.
ATTENTION = """
import array, ctypes, math
length, size, block = 600, 64, 16
blocks = 38
query = array.array("f", [math.cos(i) for i in range(size)])
keys = array.array("f", [math.sin(i * 0.7) for i in range(blocks * block * size)])
values = array.array("f", [math.cos(i * 0.3) for i in range(blocks * block * size)])
out = array.array("f", [math.nan] * size)
table = array.array("i", [(7 * i + 3) % blocks for i in range(blocks)])
lens, starts = array.array("i", [length]), array.array("i", [0, 1])
def address(data):
    return data.buffer_info()[0]
args = records["FwPagedAttentionArgs"](
    out=address(out), query=address(query), key_cache=address(keys), value_cache=address(values),
    block_table=address(table), seq_lens=address(lens), query_start_loc=address(starts),
    tokens=1, sequences=1, heads=1, kv_heads=1, head_size=size, blocks=blocks, max_blocks=blocks,
    block_table_stride=blocks, query_stride=size, query_head_stride=size, out_stride=size,
    out_head_stride=size, window=0, scale=0.125, block_size_log2=4, splits=1, dtype=0)
rows = [(table[p // block] * block + p % block) * size for p in range(length)]
scores = [0.125 * sum(query[i] * keys[row + i] for i in range(size)) for row in rows]
top = max(scores)
weights = [math.exp(score - top) for score in scores]
expected = [sum(w * values[row + i] for w, row in zip(weights, rows)) / sum(weights)
            for i in range(size)]
def worst():
    return max(abs(a - b) for a, b in zip(out, expected))
"""


def test_a_launch_computes(run: Run) -> None:
    error, worst = run(
        RMS_NORM + "error = harness.call('rms_norm', args); result = [error, worst()]"
    )
    assert error == ""
    assert worst < 2e-6


def test_without_the_emulation_nothing_is_written(run: Run) -> None:
    code = RMS_NORM + "error = harness.call('rms_norm', args)\nresult = [error, out[0] == out[0]]"
    assert run(code, kernels="") == ["", False]


@pytest.mark.parametrize("splits", [1, 4])
def test_attention_in_splits(run: Run, splits: int) -> None:
    code = (
        ATTENTION
        + f"""\
splits = {splits}
partial = [array.array("f", [math.nan] * (splits * n)) for n in (size, 1, 1)]
args.splits = splits
args.partial_out, args.partial_max, args.partial_sum = map(address, partial)
driver = fake()
error = harness.call("paged_attention", args)
result = [error, worst(), driver.count("launches"), driver.last("kernel")]
"""
    )
    error, worst, launches, kernel = run(code)
    assert error == ""
    assert worst < 2e-6
    assert launches == (1 if splits == 1 else 2)
    assert kernel == f"fw_paged_attention_{'64' if splits == 1 else 'reduce'}_f32"


def test_the_stream_is_passed_on_and_the_thread_is_left_as_it_was(run: Run) -> None:
    code = (
        RMS_NORM
        + """\
driver = fake()
harness.call("rms_norm", args)
first = driver.last_stream()
context, stream = ctypes.c_void_p(), ctypes.c_void_p()
driver.library.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
driver.library.cuCtxPushCurrent_v2(context)
driver.library.cuStreamCreate(ctypes.byref(stream), 0)
error = harness.call("rms_norm", args, stream=stream.value)
result = [error, first, driver.last_stream() == stream.value, driver.count("current_contexts")]
"""
    )
    assert run(code) == ["", None, True, 1]


def test_a_failing_launch_leaves_no_context_behind(run: Run) -> None:
    code = (
        RMS_NORM
        + """\
driver = fake()
result = [harness.call("rms_norm", args), driver.count("current_contexts")]
"""
    )
    error, contexts = run(code, fail="cuLaunchKernel=700", devices="9.0")
    assert error == (
        "rms_norm: cuLaunchKernel of fw_rms_norm_f32, grid 3x1x1, block 32x1x1, 0 bytes of dynamic "
        "shared memory, on CUDA device 0 (Fake H100, capability 9.0) returned 700 "
        "(CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered)"
    )
    assert contexts == 0


def test_each_device_has_its_own_context_and_modules(run: Run, log: Path) -> None:
    code = (
        RMS_NORM
        + """\
errors = [harness.call("rms_norm", args, device=device) for device in (1, 0, 1)]
result = [errors, worst()]
"""
    )
    errors, worst = run(code, devices="8.6,12.0")
    assert errors == [""] * 3
    assert worst < 2e-6
    assert len(calls(log, "cuModuleLoadData")) == 2
    assert len(calls(log, "cuDevicePrimaryCtxRetain")) == 2


@pytest.mark.parametrize("operation", ["rms_norm", "paged_attention"])
def test_a_device_that_no_image_fits(run: Run, operation: str) -> None:
    code = (RMS_NORM if operation == "rms_norm" else ATTENTION) + (
        f"result = harness.call({operation!r}, args)"
    )
    text = run(code, devices="7.5")
    assert text.startswith(f"{operation}: CUDA device 0 (Fake T4, capability 7.5) can run no image")
    assert "archs inside: 8.0 8.6 8.9 9.0 9.0+PTX" in text
    assert "install a freewheel variant whose archs include 7.5" in text


def test_ptx_runs_on_a_newer_device_and_needs_a_new_enough_driver(run: Run) -> None:
    code = RMS_NORM + "result = [harness.call('rms_norm', args), worst()]"
    error, worst = run(code, devices="12.0", version="12010")
    assert (error, worst < 2e-6) == ("", True)
    error, _ = run(code, devices="12.0", version="12000")
    assert "the driver implements CUDA 12.0 and those that fit need 12.1 or newer" in error


def test_compressed_ptx_is_unpacked_by_the_driver(
    run: Run, build_folder: Path, kernels: Kernels
) -> None:
    containers = {}
    for image, named in kernels.items():
        text = cubin.ptx(90, named, isa=(8, 1))
        containers[image] = cubin.container(
            [cubin.packed(cubin.Entry(arch=90, ptx=True, payload=text))]
        )
    packed = build.build_kernels(build_folder, build.Images(containers=containers))
    code = RMS_NORM + "result = [harness.call('rms_norm', args), worst()]"
    error, worst = run(code, devices="10.0", library=packed)
    assert (error, worst < 2e-6) == ("", True)


def test_warm_up_leaves_nothing_to_load_during_a_capture(run: Run, log: Path) -> None:
    code = (
        RMS_NORM
        + """\
driver = fake()
context, stream, graph = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
driver.library.cuInit(0)
driver.library.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
driver.library.cuCtxPushCurrent_v2(context)
driver.library.cuStreamCreate(ctypes.byref(stream), 0)
driver.library.cuStreamBeginCapture_v2(stream, 0)
cold = harness.call("rms_norm", args, stream=stream.value)
driver.library.cuStreamEndCapture(stream, ctypes.byref(graph))
warm_up = harness.call("warm_up")
driver.library.cuStreamBeginCapture_v2(stream, 0)
warm = harness.call("rms_norm", args, stream=stream.value)
result = [cold, warm_up, warm, driver.count("captured")]
"""
    )
    cold, warm_up, warm, captured = run(code)
    assert "returned 900 (CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED" in cold
    assert (warm_up, warm, captured) == ("", "", 1)
    assert len(calls(log, "cuModuleLoadData")) == 6


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda kernel: replace(kernel, params=[kernel.params[0] + 8]), "bytes in the image"),
        (lambda kernel: replace(kernel, params=[*kernel.params, 4]), "2 parameters in the image"),
        (lambda kernel: replace(kernel, params=[]), "0 parameters in the image"),
        (None, "the image has no kernel fw_rms_norm_f32"),
    ],
)
@pytest.mark.parametrize("archs", [("80",), ("80+PTX",)])
def test_an_image_of_another_source_is_refused(
    run: Run,
    build_folder: Path,
    kernels: Kernels,
    *,
    change: object,
    reason: str,
    archs: tuple[str, ...],
) -> None:
    """The cubin is older than the kernel's record, or the other way round."""
    mutated = {image: dict(named) for image, named in kernels.items()}
    if change is None:
        del mutated["rms_norm"]["fw_rms_norm_f32"]
    else:
        kernel = mutated["rms_norm"]["fw_rms_norm_f32"]
        mutated["rms_norm"]["fw_rms_norm_f32"] = change(kernel)  # type: ignore[operator]
    containers = {image: cubin.images(named, archs) for image, named in mutated.items()}
    library = build.build_kernels(build_folder, build.Images(containers=containers))
    code = (
        RMS_NORM
        + """\
driver = fake()
result = [harness.call("rms_norm", args), driver.last("refusal")]
"""
    )
    error, refusal = run(code, library=library)
    assert error.startswith("rms_norm: cuModuleGetFunction of fw_rms_norm_f32 in rms_norm on CUDA")
    assert reason in refusal


@pytest.fixture(scope="session")
def greedy(build_folder: Path, kernels: Kernels) -> Path:
    """A library whose kernels take all registers, 1 KiB of shared memory and 384 threads."""
    containers = {
        image: cubin.images(
            {
                name: replace(kernel, registers=255, max_threads=384, static_shared=1024)
                for name, kernel in named.items()
            },
            cubin.ARCHS,
        )
        for image, named in kernels.items()
    }
    return build.build_kernels(build_folder, build.Images(containers=containers))


@pytest.mark.parametrize(
    ("launch", "result", "reason"),
    [
        ("grid=(0, 1, 1)", 1, "grid[0] is 0"),
        ("grid=(1, 65536, 1)", 1, "grid[1] is 65536"),
        ("grid=(2**31, 1, 1)", 1, "grid[0] is 2147483648"),
        ("block=(0, 1, 1)", 1, "block[0] is 0"),
        ("block=(32, 1, 65)", 1, "block[2] is 65"),
        ("block=(1024, 2, 1)", 1, "a block of 2048 threads"),
        ("block=(512, 1, 1)", 1, "a block of 512 threads"),  # its launch bounds are 384
        ("block=(288, 1, 1)", 701, "255 registers a thread for 288 threads"),
        ("shared_bytes=48 * 1024", 1, "50176 bytes of shared memory without cuFuncSetAttribute"),
        ("stream=0x1000", 400, "no such stream"),
    ],
)
def test_launches_that_a_device_would_refuse(
    run: Run, greedy: Path, launch: str, result: int, reason: str
) -> None:
    code = (
        RMS_NORM
        + f"""\
driver = fake()
error = harness.launch("rms_norm", "fw_rms_norm_f32", args, {launch})
result = [error, driver.last("refusal"), driver.count("launches")]
"""
    )
    error, refusal, launches = run(code, library=greedy)
    assert f"returned {result} (" in error
    assert refusal == reason
    assert launches == 0


def test_shared_memory_beyond_48_kb_is_asked_for_once(run: Run, log: Path) -> None:
    code = (
        RMS_NORM
        + """\
sizes = (48 * 1024, 64 * 1024, 64 * 1024, 60 * 1024, 96 * 1024, 99 * 1024, 100 * 1024)
result = [harness.launch("rms_norm", "fw_rms_norm_f32", args, grid=(3, 1, 1), shared_bytes=size)
          for size in sizes]
"""
    )
    errors = run(code, devices="8.6")
    assert errors[:6] == [""] * 6
    assert errors[6] == (
        "fw_rms_norm_f32 needs 102400 bytes of shared memory a block; CUDA device 0 (Fake A10, "
        "capability 8.6) has 101376"
    )
    assert len(calls(log, "cuFuncSetAttribute")) == 3


def test_no_current_context_is_refused(run: Run) -> None:
    code = """
import ctypes
driver = fake()
driver.library.cuInit(0)
module = ctypes.c_void_p()
error = driver.library.cuModuleLoadData(ctypes.byref(module), b"\\x7fELF")
result = [error, driver.last("refusal")]
"""
    assert run(code) == [201, "no context is current"]


def test_nothing_answers_before_cuinit(run: Run) -> None:
    code = """
import ctypes
driver = fake()
number = ctypes.c_int()
before = driver.library.cuDeviceGetCount(ctypes.byref(number))
version = driver.library.cuDriverGetVersion(ctypes.byref(number))
driver.library.cuInit(0)
result = [before, version, number.value, driver.library.cuDeviceGetCount(ctypes.byref(number))]
"""
    assert run(code, version="12020") == [3, 0, 12020, 0]


@pytest.mark.parametrize(
    ("operation", "field", "value", "reason"),
    [
        ("rms_norm", "dtype", 7, "rms_norm: no CUDA kernel for dtype 7"),
        ("rms_norm", "dtype", -1, "rms_norm: no CUDA kernel for dtype -1"),
        (
            "paged_attention",
            "head_size",
            72,
            "no CUDA kernel for head size 72, only for 64 80 96 128 256",
        ),
        ("paged_attention", "key_cache", 8, "key_cache must start at a multiple of 16 bytes"),
    ],
)
def test_what_has_no_kernel_asks_no_driver(
    run: Run, log: Path, *, operation: str, field: str, value: int, reason: str
) -> None:
    code = (RMS_NORM if operation == "rms_norm" else ATTENTION) + (
        f"args.{field} = {value}\nresult = harness.call({operation!r}, args)"
    )
    assert reason in run(code)
    assert not log.exists()


def test_splits_fill_the_device(run: Run) -> None:
    code = """
def splits(tokens, heads, longest, window=0, device=0):
    args = records["FwPagedAttentionArgs"](tokens=tokens, heads=heads, window=window)
    return harness.splits(args, longest, device=device)
result = [splits(1, 8, 32768), splits(1, 8, 32768, device=1), splits(4096, 32, 32768),
          splits(1, 8, 200), splits(1, 8, 32768, window=600), splits(0, 8, 32768)]
"""
    large, small, many, short, window, none = run(code, devices="9.0,8.7")
    assert large > small > 1  # 132 multiprocessors, 16
    assert (many, short, none) == (1, 1, 1)
    assert 1 < window < large


def test_splits_without_a_driver_leave_the_reason_to_the_operation(run: Run) -> None:
    code = (
        ATTENTION
        + """\
result = [harness.splits(args, 32768), harness.call("paged_attention", args)]
"""
    )
    splits, error = run(code, driver=None)
    assert splits == 1
    assert "no NVIDIA driver" in error


def test_a_malformed_image_is_named(
    run: Run, build_folder: Path, containers: Mapping[str, bytes]
) -> None:
    damaged = {**containers, "rms_norm": containers["rms_norm"][:-8]}
    library = build.build_kernels(build_folder, build.Images(containers=damaged))
    code = RMS_NORM + "result = [harness.call('rms_norm', args), harness.archs()]"
    error, archs = run(code, library=library)
    assert error == (
        "rms_norm: device image rms_norm: malformed fatbin: the container runs past its end"
    )
    assert archs == ""


def test_archs_are_those_of_every_image(
    run: Run, build_folder: Path, kernels: Kernels, containers: Mapping[str, bytes]
) -> None:
    some = {**containers, "cache": cubin.images(kernels["cache"], ("80", "90+PTX"))}
    library = build.build_kernels(build_folder, build.Images(containers=some))
    assert run("result = harness.archs()", library=library) == "8.0 9.0+PTX"
