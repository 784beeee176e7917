"""Which calls touch the driver, and why.

Sources: ``torch/cuda``, ``torch/amp``, ``torch/backends/cudnn`` and ``torch/utils/cpp_extension.py`` of
torch 2.4.1 and 2.13.0, read, and run with a counted ``torch._C._cuda_getDeviceCount``; ``autotuner.py``
and ``driver.py`` of triton 3.3.1, 3.4.0 and 3.9.0, read. November 2026.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from wheelfab.imports.facts import Event, Kind
from wheelfab.imports.record import Context, Level, Rule

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
        "make_graphed_callables",
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
_CTYPES_LOADS = frozenset({"CDLL", "PyDLL", "cdll.LoadLibrary", "pydll.LoadLibrary"})
_DRIVER_LIBRARY = re.compile(r"(^|/)lib(cuda|cudart|nvidia-ml)\b")
_PROCESSES = re.compile(
    r"subprocess\.(run|Popen|call|check_call|check_output|getoutput|getstatusoutput)"
    r"|os\.(system|popen|posix_spawnp?|exec\w+|spawn\w+)"
)
_CUPY_LAZY = re.compile(
    r"(RawKernel|RawModule|ElementwiseKernel|ReductionKernel|fuse|memoize|dtype|get_default_\w+"
    r"|show_config|u?int\d+|float\d+|complex\d+|bool_?|ndim|isscalar|errstate|\w+Error)$"
)
_NUMBA = re.compile(
    r"(is_available|detect|current_context|get_current_device|select_device|list_devices|to_device"
    r"|device_array\w*|pinned_array\w*|managed_array\w*|mapped_array\w*|synchronize|stream"
    r"|default_stream|event|close|gpus\.\w+)$"
)
_TRITON_TESTING = frozenset(
    [
        "do_bench",
        "do_bench_cudagraph",
        "get_dram_gbps",
        "get_max_tensorcore_tflops",
        "get_max_simd_tflops",
    ]
)
_LATER = "move it into the function that needs it, or behind a getter with functools.cache"


@dataclass(frozen=True, kw_only=True, slots=True)
class Touch:
    """A rule that holds for a call: how sure, why it matters, what to do."""

    rule: Rule
    why: str
    next_step: str = _LATER
    level: Level = Level.ERROR
    only: tuple[tuple[str, str], ...] = ()  # holds only with these releases: (package, range)


def judge(name: str, event: Event) -> Touch | None:
    """What ``event`` does to the driver when ``name``, fully resolved, is what it calls or imports."""
    if event.kind is Kind.IMPORT:
        return _IMPORTS.get(name)
    if event.kind is Kind.LOAD:
        return _triton_active(name)
    if name.startswith("."):
        return _method(name, event)
    root = name.split(".", maxsplit=1)[0]
    judge_root = _BY_ROOT.get(root)
    return judge_root(name, event) if judge_root is not None else None


_IS_AVAILABLE = Touch(
    rule=Rule.IS_AVAILABLE,
    why="is_available() calls cudaGetDeviceCount, which runs cuInit (unless "
    "PYTORCH_NVML_BASED_CUDA_CHECK=1): a guard touches what it guards against, a child forked later "
    "cannot use CUDA, and a broken driver kills the import",
)
_DEVICE_COUNT = Touch(
    rule=Rule.DEVICE_COUNT,
    why="device_count() starts NVML, which opens /dev/nvidiactl, and runs cuInit where NVML fails; "
    "it also freezes CUDA_VISIBLE_DEVICES as it is now",
)
_TORCH_CUDA = Touch(rule=Rule.TORCH_CUDA, why="initialises CUDA: cuInit, and most often a context")
_BF16 = Touch(rule=Rule.TORCH_CUDA, why="asks is_available() first, and so runs cuInit")
_TENSOR = Touch(
    rule=Rule.TENSOR,
    why="puts data on a CUDA device (or pins memory), which creates a context on import",
)
_NVML_TOUCH = Touch(
    rule=Rule.NVML, why="NVML opens /dev/nvidiactl and fails where no driver is loaded"
)


def _torch(name: str, event: Event) -> Touch | None:
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
    if name.startswith("torch.utils.cpp_extension.load"):
        return Touch(
            rule=Rule.TORCH_RELEASE,
            level=Level.WARNING,
            why="compiles on import, and asks each device for its capability where "
            "TORCH_CUDA_ARCH_LIST is not set",
        )
    return _tensor(name, event)


def _torch_cuda(rest: str, event: Event) -> Touch | None:
    head, _, tail = rest.partition(".")
    if head in _SAME_PARTS and tail:
        head, tail = tail, ""
    if head in ("amp",) and tail.split(".")[-1] in ("autocast", "GradScaler"):
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
        why="its constructor asks torch.cuda.is_available(), which runs cuInit; as a decorator it is "
        "constructed on import",
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
    return _TENSOR if pinned or (makes and on_device) else None


def _method(name: str, event: Event) -> Touch | None:
    arguments = event.arguments
    if re.fullmatch(r"\.nvml[A-Z]\w*", name):
        return _NVML_TOUCH
    if name == ".cuInit":
        return Touch(rule=Rule.CTYPES, why="initialises the CUDA driver")
    if name == ".LoadLibrary":
        return _ctypes("ctypes.cdll.LoadLibrary", event)
    moved = name == ".cuda" and arguments.count <= 1 and not arguments.literals
    moved = moved or (name == ".to" and (arguments.first_cuda or arguments.cuda))
    moved = moved or (name == ".pin_memory" and not arguments.count)
    return _TENSOR if moved else None


def _nvml(name: str, event: Event) -> Touch | None:
    called = name.rsplit(".", maxsplit=1)[-1]
    return _NVML_TOUCH if re.match(r"nvml[A-Z]", called) and "Error" not in called else None


def _cuda_python(name: str, event: Event) -> Touch | None:
    called = name.rsplit(".", maxsplit=1)[-1]
    function = re.match(r"(cu|cuda)[A-Z]\w*$", called) and not called.endswith("_t")
    spoken = "GetErrorString" in called or "GetErrorName" in called
    core = re.match(r"cuda\.core\.(experimental\.)?(Device|system\.\w+)$", name)
    if not core and (not function or spoken):
        return None
    return Touch(
        rule=Rule.CUDA_PYTHON, why="loads libcuda and calls the driver or the CUDA runtime"
    )


def _cupy(name: str, event: Event) -> Touch | None:
    parts = name.split(".")
    if parts[0] == "cupyx" or len(parts) < 2 or _CUPY_LAZY.match(parts[-1]):
        return None
    return Touch(rule=Rule.ARRAYS, why="CuPy calls the driver, and creates a context for an array")


def _numba(name: str, event: Event) -> Touch | None:
    if not name.startswith("numba.cuda.") or not _NUMBA.match(name.removeprefix("numba.cuda.")):
        return None
    return Touch(rule=Rule.ARRAYS, why="numba.cuda initialises the driver")


def _pycuda(name: str, event: Event) -> Touch | None:
    quiet = "error" in name.lower() or name.count(".") < 2
    return None if quiet else Touch(rule=Rule.ARRAYS, why="PyCUDA initialises the driver")


def _triton_active(name: str) -> Touch | None:
    if not re.match(r"triton\.runtime\.(driver\.)?driver\.active(\.|$)", name):
        return None
    return Touch(
        rule=Rule.TRITON_DRIVER,
        why="triton.runtime.driver.active looks for a usable driver: it loads libcuda and runs "
        "cuInit, and raises '0 active drivers' where there is none",
    )


def _triton(name: str, event: Event) -> Touch | None:
    if touch := _triton_active(name):
        return touch
    if name.startswith("triton.testing.") and name.rsplit(".", maxsplit=1)[-1] in _TRITON_TESTING:
        return Touch(rule=Rule.TRITON_DRIVER, why="times or asks the active device")
    if name in ("triton.autotune", "triton.runtime.autotune", "triton.runtime.autotuner.autotune"):
        if "do_bench" in event.arguments.keywords:
            return None
        return Touch(
            rule=Rule.TRITON_AUTOTUNE,
            level=Level.WARNING,
            why="triton 3.2 and 3.3 (torch 2.6 and 2.7) ask driver.active for its benchmark as they "
            "decorate: cuInit, and '0 active drivers' without a GPU (triton's issue 6150); lazy since "
            "3.4. triton.jit and triton.heuristics ask nothing",
            next_step="require triton >= 3.4 (torch >= 2.8), or give do_bench=",
            only=(("triton", ">=3.2,<3.4"), ("torch", ">=2.6,<2.8")),
        )
    return None


def _ctypes(name: str, event: Event) -> Touch | None:
    if name.removeprefix("ctypes.") not in _CTYPES_LOADS:
        return None
    if not any(_DRIVER_LIBRARY.search(literal) for literal in event.arguments.literals):
        return None
    return Touch(
        rule=Rule.CTYPES,
        why="loads NVIDIA's library: its constructors run, and a broken one kills the import",
    )


def _process(name: str, event: Event) -> Touch | None:
    if not _PROCESSES.fullmatch(name):
        return None
    if not any("nvidia-smi" in literal for literal in event.arguments.literals):
        return None
    return Touch(rule=Rule.NVIDIA_SMI, why="starts nvidia-smi, which asks the driver, on import")


_BY_ROOT: dict[str, Callable[[str, Event], Touch | None]] = {
    "torch": _torch,
    "triton": _triton,
    "cuda": _cuda_python,
    "pynvml": _nvml,
    "py3nvml": _nvml,
    "nvidia_smi": _nvml,
    "cupy": _cupy,
    "cupyx": _cupy,
    "numba": _numba,
    "pycuda": _pycuda,
    "ctypes": _ctypes,
    "subprocess": _process,
    "os": _process,
}
_IMPORTS: dict[str, Touch] = {
    "pycuda.autoinit": Touch(rule=Rule.IMPORT, why="makes a CUDA context as it is imported"),
    "torch.testing._internal.common_cuda": Touch(
        rule=Rule.IMPORT, why="asks torch.cuda.is_available() as it is imported"
    ),
    "torch.utils.cpp_extension": Touch(
        rule=Rule.IMPORT,
        level=Level.WARNING,
        why="a CUDA torch asks torch.cuda.is_available() as this module is imported, on machines "
        "with a CUDA toolkit (CUDA_HOME, nvcc on the PATH or /usr/local/cuda)",
        next_step="import it inside the function that compiles",
    ),
}
