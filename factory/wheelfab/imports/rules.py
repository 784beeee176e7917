"""Which calls touch the driver, and why.

Sources: ``triton/runtime/autotuner.py`` and ``driver.py`` of triton 3.3.1, 3.4.0 and 3.9.0, read;
torch's are in ``torch_rules.py``. November 2026.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from wheelfab.imports.facts import Event, Kind
from wheelfab.imports.record import Level, Rule
from wheelfab.imports.torch_rules import PINS_OR_MOVES, judge_torch
from wheelfab.imports.touch import Touch

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


def judge(name: str, event: Event) -> Touch | None:
    """What ``event`` does to the driver when ``name``, fully resolved, is what it names."""
    if event.kind is Kind.IMPORT:
        return _IMPORTS.get(name)
    if event.kind is Kind.LOAD:
        return _triton_active(name)
    if name.startswith("."):
        return _method(name, event)
    root = name.split(".", maxsplit=1)[0]
    judge_root = _BY_ROOT.get(root)
    return judge_root(name, event) if judge_root is not None else None


_NVML_TOUCH = Touch(
    rule=Rule.NVML, why="NVML opens /dev/nvidiactl and fails where no driver is loaded"
)


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
    return PINS_OR_MOVES if moved else None


def _nvml(name: str, _event: Event) -> Touch | None:
    called = name.rsplit(".", maxsplit=1)[-1]
    return _NVML_TOUCH if re.match(r"nvml[A-Z]", called) and "Error" not in called else None


def _cuda_python(name: str, _event: Event) -> Touch | None:
    called = name.rsplit(".", maxsplit=1)[-1]
    function = re.match(r"(cu|cuda)[A-Z]\w*$", called) and not called.endswith("_t")
    spoken = "GetErrorString" in called or "GetErrorName" in called
    core = re.match(r"cuda\.core\.(experimental\.)?(Device|system\.\w+)$", name)
    if not core and (not function or spoken):
        return None
    return Touch(
        rule=Rule.CUDA_PYTHON, why="loads libcuda and calls the driver or the CUDA runtime"
    )


def _cupy(name: str, _event: Event) -> Touch | None:
    parts = name.split(".")
    if parts[0] == "cupyx" or len(parts) < 2 or _CUPY_LAZY.match(parts[-1]):
        return None
    return Touch(rule=Rule.ARRAYS, why="CuPy calls the driver, and creates a context for an array")


def _numba(name: str, _event: Event) -> Touch | None:
    if not name.startswith("numba.cuda.") or not _NUMBA.match(name.removeprefix("numba.cuda.")):
        return None
    return Touch(rule=Rule.ARRAYS, why="numba.cuda initialises the driver")


def _pycuda(name: str, _event: Event) -> Touch | None:
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
            why="triton 3.2 and 3.3 (torch 2.6 and 2.7) ask driver.active for its benchmark as "
            "they decorate: cuInit, '0 active drivers' without a GPU (triton's issue 6150); lazy "
            "since 3.4. triton.jit and triton.heuristics ask nothing",
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
    "torch": judge_torch,
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
