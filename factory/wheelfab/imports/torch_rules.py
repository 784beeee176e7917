"""Which calls into torch touch the driver.

Sources: ``torch/cuda``, ``torch/amp``, ``torch/backends/cudnn`` and ``utils/cpp_extension.py`` of
torch 2.4.1 and 2.13.0, read, and run with a counted ``torch._C._cuda_getDeviceCount``. November
2026.
"""

from __future__ import annotations

from wheelfab.imports.facts import Arguments, Event
from wheelfab.imports.record import Context, Level, Rule
from wheelfab.imports.touch import Touch

# Calls under torch.cuda that wait for the first real use, or ask only what was compiled in.
LAZY = frozenset(
    [
        "is_initialized",
        "manual_seed",
        "manual_seed_all",
        "seed",
        "seed_all",
        "set_rng_state",
        "set_rng_state_all",
        "empty_cache",
        "memory_allocated",
        "max_memory_allocated",
        "memory_reserved",
        "max_memory_reserved",
        "memory_cached",
        "max_memory_cached",
        "memory_stats",
        "memory_stats_as_nested_dict",
        "memory_summary",
        "host_memory_stats_as_nested_dict",
        "get_allocator_backend",
        "caching_allocator_enable",
        "check_error",
        "graph_pool_handle",
        "is_built",
        "Event",
        "device",
        "device_of",
        "StreamContext",
        "CUDAPluggableAllocator",
        "change_current_allocator",
        "OutOfMemoryError",
        "CudaError",
        "DeferredCudaCallError",
        "AcceleratorError",
        "cudaStatus",
    ]
)
BY_RELEASE = frozenset({"get_arch_list", "get_gencode_flags"})
_LAZY_PARTS = frozenset({"nvtx", "tunable", "nccl", "jiterator", "amp", "sparse", "gds"})
_SAME_PARTS = frozenset({"memory", "random", "streams", "graphs"})  # re-exported by torch.cuda
_PRIVATE = frozenset({"_lazy_init", "_sleep", "_exchange_device", "_check_capability"})
_ACCELERATOR_LAZY = frozenset({"empty_cache", "memory_allocated", "memory_stats", "device_index"})
FACTORIES = frozenset(
    [
        "tensor",
        "as_tensor",
        "asarray",
        "zeros",
        "zeros_like",
        "ones",
        "ones_like",
        "empty",
        "empty_like",
        "empty_strided",
        "full",
        "full_like",
        "arange",
        "range",
        "linspace",
        "logspace",
        "eye",
        "rand",
        "rand_like",
        "randn",
        "randn_like",
        "randint",
        "randint_like",
        "randperm",
        "scalar_tensor",
        "from_numpy",
        "frombuffer",
        "sparse_coo_tensor",
        "Generator",
        "Stream",
        "normal",
        "hann_window",
        "hamming_window",
        "tril_indices",
        "triu_indices",
        "load",
    ]
)


_IS_AVAILABLE = Touch(
    rule=Rule.IS_AVAILABLE,
    why="is_available() calls cudaGetDeviceCount, which runs cuInit (unless "
    "PYTORCH_NVML_BASED_CUDA_CHECK=1): a guard touches what it guards against, a child forked "
    "later cannot use CUDA, and a broken driver kills the import",
)
_DEVICE_COUNT = Touch(
    rule=Rule.DEVICE_COUNT,
    why="device_count() starts NVML, which opens /dev/nvidiactl, and runs cuInit where NVML fails; "
    "it also freezes CUDA_VISIBLE_DEVICES as it is now",
)
_TORCH_CUDA = Touch(rule=Rule.TORCH_CUDA, why="initialises CUDA: cuInit, and most often a context")
_BF16 = Touch(rule=Rule.TORCH_CUDA, why="asks is_available() first, and so runs cuInit")
PINS_OR_MOVES = Touch(
    rule=Rule.TENSOR,
    why="puts data on a CUDA device (or pins memory), which creates a context on import",
)


def judge_torch(name: str, event: Event) -> Touch | None:  # noqa: PLR0911 (a rule a return)
    """What calling ``name``, something of torch, does to the driver."""
    part, _, rest = name.removeprefix("torch.").partition(".")
    if part == "cuda":
        return _torch_cuda(rest, event)
    if part == "accelerator" and rest:
        return _accelerator(rest, event)
    if part == "_C" and rest.startswith("_cuda_"):
        quiet = rest.removeprefix("_cuda_").startswith(
            ("getCompiled", "getArch", "isInBad", "set_", "tunableop", "cudaCachingAllocator")
        )
        return None if quiet else _TORCH_CUDA
    if name in ("torch.autocast", "torch.amp.autocast", "torch.amp.GradScaler"):
        return _autocast(name, event)
    if name in ("torch.amp.autocast_mode.autocast", "torch.amp.grad_scaler.GradScaler"):
        return _autocast(name, event)
    if name in ("torch.backends.cudnn.version", "torch.backends.cudnn.is_acceptable"):
        return Touch(
            rule=Rule.TORCH_RELEASE,
            level=Level.WARNING,
            why="asks is_available() and the capability of every device in torch 2.13, "
            "not yet in 2.4",
            only=(("torch", ">=2.5"),),
        )
    if name == "torch.random.fork_rng" and "cpu" not in event.arguments.literals:
        return _DEVICE_COUNT
    if name.startswith("torch.utils.cpp_extension.load") and _has_cuda_source(event.arguments):
        return Touch(
            rule=Rule.TORCH_RELEASE,
            level=Level.WARNING,
            why="compiles CUDA on import, and asks each device for its capability where "
            "TORCH_CUDA_ARCH_LIST is not set",
        )
    return _tensor(name, event)


def _has_cuda_source(arguments: Arguments) -> bool:
    named = "cuda_sources" in arguments.keywords or "with_cuda" in arguments.true
    return named or any(text.endswith(".cu") for text in arguments.literals)


def _torch_cuda(rest: str, event: Event) -> Touch | None:  # noqa: C901, PLR0911 (a rule a return)
    head, _, tail = rest.partition(".")
    if head in _SAME_PARTS and tail:
        head, tail = tail, ""
    if head == "amp" and tail.split(".")[-1] in ("autocast", "GradScaler"):
        return _autocast(rest, event)
    if not head or head in _LAZY_PARTS or head in LAZY:
        entered = head in ("device", "device_of") and event.context is Context.WITH
        return _TORCH_CUDA if entered else None
    if head in ("comm", "profiler"):
        return _TORCH_CUDA if tail else None
    if tail:  # a method of a class or of an unknown part
        return None
    if head == "is_available":
        return _IS_AVAILABLE
    if head == "device_count":
        return _DEVICE_COUNT
    if head in ("is_bf16_supported", "is_tf32_supported"):
        return _BF16
    if head in BY_RELEASE:
        return Touch(
            rule=Rule.TORCH_RELEASE,
            level=Level.WARNING,
            why="asks is_available() in torch 2.4, no longer in 2.13",
            only=(("torch", "<2.13"),),
        )
    if head.startswith("_") and head not in _PRIVATE:
        return None
    return _TORCH_CUDA


def _autocast(name: str, event: Event) -> Touch | None:
    arguments = event.arguments
    if "enabled" in arguments.false:
        return None
    implied = name.startswith("amp.") or (name.endswith("GradScaler") and not arguments.count)
    if not implied and not arguments.cuda:
        return None
    return Touch(
        rule=Rule.AUTOCAST,
        why="its constructor asks torch.cuda.is_available(), which runs cuInit; as a decorator it "
        "is constructed on import",
        next_step="enter it inside the function: `with torch.autocast(...)`",
    )


def _accelerator(rest: str, event: Event) -> Touch | None:
    if rest in _ACCELERATOR_LAZY or "." in rest:
        return None
    if rest == "current_accelerator" and "check_available" not in event.arguments.true:
        return None
    return Touch(
        rule=Rule.ACCELERATOR,
        why="asks the accelerator's own module: with a CUDA torch this is torch.cuda and cuInit",
    )


def _tensor(name: str, event: Event) -> Touch | None:
    arguments = event.arguments
    plain = name.removeprefix("torch.")
    makes = plain in FACTORIES or name == "torch.jit.load"
    makes = makes or (name.startswith("torch.nn.") and plain.split(".")[-1][:1].isupper())
    pinned = "pin_memory" in arguments.true and plain in FACTORIES
    on_device = arguments.cuda and (
        "device" in arguments.keywords
        or "map_location" in arguments.keywords
        or plain in ("Generator", "Stream")
    )
    return PINS_OR_MOVES if pinned or (makes and on_device) else None
