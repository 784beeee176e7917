"""What a module's source says, as plain facts: names it binds, calls and imports that run."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from wheelfab.imports.record import Context

# Roots of outside names that a rule may judge; calls into anything else outside are not kept.
ROOTS = frozenset(
    {
        "torch",
        "triton",
        "cuda",
        "pynvml",
        "py3nvml",
        "nvidia_smi",
        "cupy",
        "cupyx",
        "numba",
        "pycuda",
        "ctypes",
        "subprocess",
        "os",
        "importlib",
    }
)
METHODS = frozenset({"cuda", "to", "pin_memory", "cuInit", "LoadLibrary"})  # whatever the receiver


@dataclass(frozen=True, kw_only=True, slots=True)
class Arguments:
    """What the rules need of a call's arguments."""

    literals: tuple[str, ...] = ()  # strings in them, also through constants and loops
    keywords: tuple[str, ...] = ()
    true: tuple[str, ...] = ()  # keywords given as True
    false: tuple[str, ...] = ()
    cuda: bool = False  # a device argument is, or may be, a CUDA device
    first_cuda: bool = False
    count: int = 0


class Span(NamedTuple):
    """Where a piece of source lies, as ``ast`` counts: lines from 1, columns in bytes from 0."""

    line: int
    column: int
    end_line: int
    end_column: int


class Kind(StrEnum):
    """What an event is."""

    CALL = "call"
    LOAD = "load"  # the use of an attribute: it may be a property
    IMPORT = "import"


class Condition(NamedTuple):
    """A condition that must hold, or with ``negated`` must not, for something to run.

    ``needs`` are the names in it that can be told apart from the rest: each has to be true or false
    as given, or the condition fails.
    """

    test: Span
    negated: bool
    needs: tuple[tuple[str, bool], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """Something that runs: a call, an import, or the use of an attribute."""

    name: str  # qualified by the module's own imports; ``.cuda`` for a method of who knows what
    span: Span
    kind: Kind = Kind.CALL
    context: Context = Context.STATEMENT
    when: tuple[Condition, ...] = ()
    arguments: Arguments = Arguments()
    iterated: bool = False  # what it returns is run through at once
    applied: bool = False  # a decorator's call: what it returns is called too
    only_for: frozenset[str] | None = None  # in a module's __getattr__: the names it is for


@dataclass(frozen=True, kw_only=True, slots=True)
class FunctionFacts:
    """What runs when a function is called, and the inner functions that it returns."""

    events: tuple[Event, ...]
    returned: tuple[str, ...] = ()
    late: bool = False  # a generator or a coroutine: calling it runs nothing yet
    value: bool | str | None = None  # what it always returns, or the name of what it returns


@dataclass(kw_only=True, slots=True)
class Names:
    """What a module binds at its top level, as far as it can be told without running it."""

    module: str
    package: str  # what a relative import starts from
    aliases: dict[str, str] = field(default_factory=dict)
    functions: set[str] = field(default_factory=set)  # with methods, ``Class.method``
    classes: dict[str, tuple[str, ...]] = field(default_factory=dict)  # bases
    instances: dict[str, str] = field(default_factory=dict)  # name -> what was called to make it
    dispatch: dict[str, tuple[str, ...]] = field(default_factory=dict)  # tables of functions
    flags: dict[str, bool | str] = field(default_factory=dict)  # truth, or the name that has it
    fickle: set[str] = field(default_factory=set)  # bound to more than one such thing
    bound: set[str] = field(default_factory=set)
    stars: list[str] = field(default_factory=list)
    lazy_annotations: bool = False
    exported: frozenset[str] | None = None  # ``__all__`` where it is written as a display


@dataclass(frozen=True, kw_only=True, slots=True)
class ModuleFacts:
    """A module: where it lies, what it binds, what runs when it is imported."""

    name: str
    file: str
    names: Names
    events: tuple[Event, ...]
