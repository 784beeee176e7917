"""What the wheel's tags promise of Python, against what its libraries ask of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from abi3info import DATAS, FUNCTIONS
from abi3info.models import PyVersion, Symbol

from wheelfab.archive import FlawKind
from wheelfab.audit.facts import WheelFacts
from wheelfab.audit.library import LibraryFacts
from wheelfab.audit.policy import Policy
from wheelfab.audit.record import Severity
from wheelfab.audit.rules.flaws import broken_by
from wheelfab.audit.rules.registry import Broken, Outcome, Unknown, rule

_C_API = re.compile(r"(?!PyInit_)_?Py[A-Z_]\w*")
_CPYTHON = re.compile(r"cp3(?P<minor>\d+)")
_FREE_THREADED = frozenset({"_Py_DecRefShared", "_Py_MergeZeroLocalRefcount"})
_SHOWN = 5


@rule(
    "python-suffix",
    severity=Severity.ERROR,
    about="""Every Python that the tags promise finds each extension module: `.cpython-312-….so` is
    found by 3.12 alone, so it has no place in an abi3 wheel or in one for another Python; such a
    wheel installs and its module is missing (B43). A library without a `PyInit_` function is no
    module, opened by its path if at all: for it the name is a warning. A wheel for any platform has
    no library.""",
    next_step="build the module for the wheel's tag; with abi3, name it NAME.abi3.so",
)
def _suffix(facts: WheelFacts, _: Policy) -> Iterator[Outcome]:
    allowed = "a name that each promised Python finds"
    platforms = {tag.platform for tag in facts.name.tags} if facts.name else set()
    plain = {library.name for library in facts.libraries if not _is_module(library)}
    for broken in broken_by(facts, allowed, FlawKind.LIBRARY_TAG):
        harmless = broken.subject in plain and "any" not in platforms
        yield replace(broken, severity=Severity.WARNING if harmless else None)


@rule(
    "python-abi3",
    severity=Severity.ERROR,
    about="""A library under an abi3 tag, or with `.abi3.` in its name, uses only functions and data
    of CPython's stable ABI, and none that is newer than the lowest Python promised. A build tool's
    option changes the name alone; what was compiled is seen in the symbols (B43). The list is
    abi3info's, as abi3audit uses it.""",
    next_step="define Py_LIMITED_API as the lowest Python while compiling, or drop the abi3 tag",
)
def _abi3(facts: WheelFacts, _: Policy) -> Iterator[Outcome]:
    if facts.name is None:
        yield Unknown(subject=facts.file, reason="the file name cannot be read")
        return
    tagged = any(tag.abi == "abi3" for tag in facts.name.tags)
    floor = _floor(facts)
    for library in facts.libraries:
        if not (tagged or ".abi3." in library.file):
            continue
        if library.elf is None:
            yield Unknown(subject=library.name, reason=library.problem)
        elif floor is None:
            yield Unknown(subject=library.name, reason="no tag names a lowest Python")
        else:
            yield from _kept(library, floor)


def _kept(library: LibraryFacts, floor: PyVersion) -> Iterator[Outcome]:
    foreign, newer = [], []
    for name in c_api(library):
        entry = FUNCTIONS.get(Symbol(name)) or DATAS.get(Symbol(name))
        if entry is None:
            foreign.append(name)
        elif entry.added > floor:
            newer.append(f"{name} ({entry.added})")
    if foreign:
        found = f"uses {_listed(foreign)}, not of the stable ABI"
        yield Broken(subject=library.name, found=found, allowed="the stable ABI alone")
    if newer:
        found = f"uses {_listed(newer)}"
        yield Broken(subject=library.name, found=found, allowed=f"the stable ABI of {floor}")


@rule(
    "python-tag",
    severity=Severity.ERROR,
    about="""A library in a wheel whose tags promise any Python (`py3-none`) uses nothing of
    Python's C interface: without abi3 that interface holds for one minor release.""",
    next_step="tag the wheel for its Python, or build the library for abi3",
)
def _tag(facts: WheelFacts, _: Policy) -> Iterator[Outcome]:
    if facts.name is None or not any(tag.abi == "none" for tag in facts.name.tags):
        return
    for library in facts.libraries:
        if used := c_api(library):
            found = f"uses {_listed(list(used))}"
            yield Broken(subject=library.name, found=found, allowed="nothing of Python's own")


@rule(
    "python-free-threaded",
    severity=Severity.ERROR,
    about="""Free-threaded Python (`cp313t`) has another ABI: no abi3, and reference counts by
    functions that other Pythons lack. A library that asks for these belongs in a wheel with a `t`
    tag, and a `t` tag on a library of the other kind, or beside abi3, is wrong.""",
    next_step="build it with the Python that the tag names",
)
def _free_threaded(facts: WheelFacts, _: Policy) -> Iterator[Outcome]:
    if facts.name is None:
        yield Unknown(subject=facts.file, reason="the file name cannot be read")
        return
    abis = {tag.abi for tag in facts.name.tags}
    threaded = {abi for abi in abis if re.fullmatch(r"cp3\d+t", abi)}
    if threaded and "abi3" in abis:
        found = f"tags for {', '.join(sorted(abis))}"
        yield Broken(subject=facts.file, found=found, allowed="one of the two ABIs")
    for library in facts.libraries:
        asks = _FREE_THREADED.intersection(c_api(library))
        if asks and not threaded:
            found = f"uses {_listed(sorted(asks))}, of a free-threaded Python"
            yield Broken(subject=library.name, found=found, allowed="a wheel with a t tag")
        if threaded and ".abi3." in library.file:
            found = "an abi3 module, which free-threaded Python has none of"
            yield Broken(subject=library.name, found=found, allowed="a module of one Python")


def _is_module(library: LibraryFacts) -> bool:
    """Whether Python can import it; one that cannot be read may be anything."""
    elf = library.elf
    return elf is None or any(symbol.name.startswith("PyInit_") for symbol in elf.defined)


def c_api(library: LibraryFacts) -> tuple[str, ...]:
    """The names of Python's C interface that a library leaves undefined, sorted."""
    if library.elf is None:
        return ()
    names = {symbol.name for symbol in library.elf.undefined if not symbol.weak}
    return tuple(sorted(name for name in names if _C_API.fullmatch(name)))


def _floor(facts: WheelFacts) -> PyVersion | None:
    """The lowest CPython that the tags promise."""
    if facts.name is None:
        return None
    found = [_CPYTHON.fullmatch(tag.interpreter) for tag in facts.name.tags]
    minors = [int(match["minor"]) for match in found if match]
    return PyVersion(3, min(minors)) if minors else None


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
