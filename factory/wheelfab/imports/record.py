"""What the check of imports finds: places, call chains, findings, imports that were run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path


class Level(StrEnum):
    """How sure a finding is: an error happens whenever the line runs."""

    ERROR = "error"
    WARNING = "warning"  # only with some releases of torch or triton, or on some machines


class Rule(StrEnum):
    """What a line does while its module is imported; each has a bad and a good twin in tests."""

    IS_AVAILABLE = "is-available"
    DEVICE_COUNT = "device-count"
    TORCH_CUDA = "torch-cuda"
    TENSOR = "tensor-on-cuda"
    AUTOCAST = "autocast"
    ACCELERATOR = "torch-accelerator"
    TORCH_RELEASE = "torch-release"
    NVML = "nvml"
    CUDA_PYTHON = "cuda-python"
    ARRAYS = "cuda-arrays"
    TRITON_DRIVER = "triton-driver"
    TRITON_AUTOTUNE = "triton-autotune"
    CTYPES = "ctypes-driver"
    NVIDIA_SMI = "nvidia-smi"
    IMPORT = "import-touches"
    DRIVER_CALLED = "driver-called"
    DEVICE_OPENED = "device-opened"
    THREAD = "thread-started"
    PROCESS = "process-started"
    RAISED = "import-raised"
    CRASHED = "import-crashed"
    HUNG = "import-hung"
    OVER_BUDGET = "over-budget"


class Context(StrEnum):
    """Where in a statement a call stands; all of these run when the statement does."""

    STATEMENT = "statement"
    DECORATOR = "decorator"
    DEFAULT = "default argument"
    CLASS_BODY = "class body"
    COMPREHENSION = "comprehension"
    F_STRING = "f-string"
    ANNOTATION = "annotation"
    WITH = "with item"


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Place:
    """A position in a source file; ``column`` counts from 1, 0 where unknown."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" + (f":{self.column}" if self.column else "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One call on the way from a module's top level to the line that touches CUDA."""

    place: Place
    function: str  # the function whose body the call is in; ``<module>`` at the top level
    call: str

    def __str__(self) -> str:
        return f"{self.place} in {self.function}: {self.call}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A line that runs on import and touches CUDA, or an import that was seen to do so."""

    rule: Rule
    level: Level
    module: str
    place: Place
    call: str  # the qualified name, ``torch.cuda.is_available``
    text: str  # the call as it is written, or what was seen
    why: str
    next_step: str
    context: Context = Context.STATEMENT
    when: tuple[str, ...] = ()  # the conditions around it, outermost first
    chain: tuple[Step, ...] = ()  # from the top level of a module down to the call itself
    reached_from: int = 1  # modules whose import can run this line


@dataclass(frozen=True, kw_only=True, slots=True)
class Unchecked:
    """Something that could not be looked at: neither passed nor failed."""

    what: str
    reason: str


class Ending(StrEnum):
    """How an import in a fresh process ended."""

    DONE = "done"
    RAISED = "raised"
    MISSING = "missing"  # a third-party module is not installed: says nothing about the package
    DIED = "died"
    HUNG = "hung"


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportRun:
    """One module imported in a fresh process under the counting driver library."""

    module: str
    ending: Ending
    detail: str  # the exception, the signal, the time limit
    milliseconds: float | None
    driver_calls: Mapping[str, int] = field(default_factory=dict)
    driver_stack: tuple[str, ...] = ()  # Python frames at the first driver call, outermost first
    end_stack: tuple[str, ...] = ()  # and where it died or hung
    devices: tuple[str, ...] = ()  # paths under /dev/nvidia* that were opened
    threads: tuple[str, ...] = ()  # Python threads alive afterwards
    native_threads: int = 0
    processes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Why:
    """The chain of imports from the package to the first line that reaches a module."""

    wanted: str
    steps: tuple[str, ...]
    answer: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LintOptions:
    """What to check and how long it may take; times are in seconds."""

    dynamic: bool | None = None  # None: run the imports unless the target is an archive
    python: Path | None = None  # the interpreter to import with, and whose packages are meant
    why: str | None = None
    budget: Path | None = None
    tests: bool = False  # also the test modules that a package ships
    depth: int = 10  # calls followed from the top level of a module
    limit: float = 60.0  # for one import
    total: float = 900.0  # for all imports
    modules: int = 500  # imports run at most
    jobs: int = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportReport:
    """All that was found out about the imports of a package."""

    target: str
    version: str | None
    root: Path  # the folder that the files' names start from
    editable: bool  # the files are the target's own, not an unpacked copy
    packages: tuple[str, ...]
    modules: int
    findings: tuple[Finding, ...]
    unchecked: tuple[Unchecked, ...] = ()
    runs: tuple[ImportRun, ...] = ()
    why: Why | None = None

    @property
    def errors(self) -> tuple[Finding, ...]:
        """The findings that are sure."""
        return tuple(finding for finding in self.findings if finding.level is Level.ERROR)

    @property
    def passed(self) -> bool:
        """No import is sure to touch CUDA, to die, to hang or to be over its budget."""
        return not self.errors
