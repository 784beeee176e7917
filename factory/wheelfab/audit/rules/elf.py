"""How each library was linked: stack, relocations, run path, what it tells of its builder."""

from __future__ import annotations

import re
from collections.abc import Iterator

from wheelfab.audit.facts import WheelFacts
from wheelfab.audit.instructions import Newest
from wheelfab.audit.library import LibraryFacts
from wheelfab.audit.manylinux import MACHINES
from wheelfab.audit.needs import Origin, folders, neighbours, origin_of, run_path
from wheelfab.audit.policy import Policy
from wheelfab.audit.record import Severity
from wheelfab.audit.rules.registry import Broken, Outcome, Unknown, rule
from wheelfab.elf import Elf, Relro
from wheelfab.requires import machine_of

_ORDER = (Relro.NONE, Relro.PARTIAL, Relro.FULL)
_ORIGIN = re.compile(r"\$(?:ORIGIN|\{ORIGIN\})(?:/|$)")
_FILE = re.compile(r"\.so(?:\.[\d.]+)?/?$")
_SHOWN = 3
_ET_DYN = 3
_DEVICES = (224, 247)  # e_machine of AMD's GPUs and of BPF


def hosts(facts: WheelFacts) -> Iterator[tuple[LibraryFacts, Elf]]:
    """The libraries and programs that a loader loads, each with its ELF facts."""
    for library in facts.libraries:
        if library.host is not None:
            yield library, library.host


@rule(
    "elf-readable",
    severity=Severity.ERROR,
    about="""Every file that begins as an ELF file can be read as one: tables inside the file,
    counts within bounds, 64 bits, little-endian.""",
    next_step="build it again; strip before the repair, never after it",
)
def _readable(facts: WheelFacts, _: Policy) -> Iterator[Outcome]:
    for library in facts.libraries:
        if library.problem:
            yield Broken(subject=library.name, found=library.problem, allowed="a sound ELF file")


@rule(
    "elf-machine",
    severity=Severity.ERROR,
    about="""Every library and program is for the machine that the platform tag names: one that was
    cross-compiled, or copied out of another build, is installed and cannot be opened. Cubins, and
    code for AMD's GPUs and for BPF, are no such files; tags of other systems than Linux are not
    judged.""",
    next_step="build it for the machine of the tag, or correct the tag",
)
def _machine(facts: WheelFacts, _: Policy) -> Iterator[Outcome]:
    platforms = {tag.platform for tag in facts.name.tags} if facts.name else set()
    promised = sorted({name for one in platforms if (name := machine_of(one)) is not None})
    for library, elf in hosts(facts):
        own = MACHINES.get(elf.machine, f"e_machine {elf.machine}")
        if elf.machine not in _DEVICES and any(one != own for one in promised):
            allowed = " and ".join(promised)
            yield Broken(subject=library.name, found=f"is for {own}", allowed=f"code for {allowed}")


@rule(
    "elf-executable-stack",
    severity=Severity.ERROR,
    about="""No library asks for an executable stack, by a flag or by leaving out the header that
    says otherwise. glibc 2.41 refuses to load one (B41); before it, one such library makes the
    stack of the whole process executable. One assembler file without `.note.GNU-stack` does it.""",
    next_step="link with -z noexecstack and add .note.GNU-stack to the assembler files",
)
def _stack(facts: WheelFacts, _: Policy) -> Iterator[Outcome]:
    for library, elf in hosts(facts):
        if elf.executable_stack:
            found = "an executable stack"
            yield Broken(subject=library.name, found=found, allowed="a stack that is data")


@rule(
    "elf-text-relocations",
    severity=Severity.ERROR,
    about="""No library has relocations in its code: the loader would have to make code writable,
    which hardened systems refuse, and the pages are shared by no two processes.""",
    next_step="compile every object with -fPIC",
)
def _text(facts: WheelFacts, _: Policy) -> Iterator[Outcome]:
    for library, elf in hosts(facts):
        if elf.text_relocations:
            found = "relocations in its code"
            yield Broken(subject=library.name, found=found, allowed="position-independent code")


@rule(
    "elf-relro",
    severity=Severity.WARNING,
    about="""The loader makes its own tables read-only once it has relocated a library: in part by
    default, in full where all symbols are bound at load. `elf.relro` says the least.""",
    next_step="link with -z relro, and -z now for all of it",
)
def _relro(facts: WheelFacts, policy: Policy) -> Iterator[Outcome]:
    least = policy.elf.relro
    for library, elf in hosts(facts):
        if elf.type == _ET_DYN and _ORDER.index(elf.relro) < _ORDER.index(least):
            found = f"RELRO: {elf.relro}"
            yield Broken(subject=library.name, found=found, allowed=f"at least {least}")


@rule(
    "elf-run-path",
    severity=Severity.ERROR,
    about="""Every element of RUNPATH and RPATH is a folder below `$ORIGIN`. An absolute one is the
    builder's own folder, which another user may own here; an empty or relative one is whatever
    folder the process stands in; a `stubs` folder holds a driver that does nothing (B33); and a
    file's name where a folder should stand is what old patchelf leaves (B42).""",
    next_step="link with SKIP_BUILD_RPATH and set $ORIGIN-relative folders, or none",
)
def _run_path(facts: WheelFacts, _: Policy) -> Iterator[Outcome]:
    for library, elf in hosts(facts):
        flaws = [
            f"{element or 'an empty element'}: {flaw}"
            for element in run_path(elf)
            if (flaw := _element_flaw(element))
        ]
        if flaws:
            allowed = "folders below $ORIGIN"
            yield Broken(subject=library.name, found="; ".join(flaws), allowed=allowed)


def _element_flaw(element: str) -> str:
    if "stubs" in element.split("/"):
        return "stubs of the driver"
    if not _ORIGIN.match(element):
        return "an absolute folder" if element.startswith("/") else "below the current folder"
    return "a file, not a folder" if _FILE.search(element) else ""


@rule(
    "elf-reach",
    severity=Severity.WARNING,
    about="""A needed library that lies in the wheel is found: in a folder that the run path leads
    to. Otherwise loading works only where something else has loaded it before (B42).""",
    next_step="add the folder to the run path, relative to $ORIGIN",
)
def _reach(facts: WheelFacts, _: Policy) -> Iterator[Outcome]:
    others = neighbours(facts)
    for library, elf in hosts(facts):
        reached = set(folders(library, elf))
        for name in elf.needed:
            if origin_of(name, elf, others) is not Origin.OWN:
                continue
            other = others.by_name[name]
            if other.name.rpartition("/")[0] not in reached or other.file != name:
                found = f"needs {name}, which lies at {other.name}"
                allowed = f"in {', '.join(sorted(reached)) or 'a run path, and there is none'}"
                yield Broken(subject=library.name, found=found, allowed=allowed)


@rule(
    "elf-builder-paths",
    severity=Severity.WARNING,
    about="""Strings and debug information name no folder of the machine that built them: source
    files by their whole path (from `assert` and `__FILE__`), site-packages of a build environment.
    They tell strangers about the builder, and two builds in two folders differ by them. Folders of
    the system (`/usr/include`) are left out; at most 1 GiB of a file is looked through.""",
    next_step="compile with -ffile-prefix-map=FOLDER=src",
)
def _paths(facts: WheelFacts, _: Policy) -> Iterator[Outcome]:
    for library, _elf in hosts(facts):
        paths = library.traces.paths
        if paths:
            more = library.traces.path_count - _SHOWN
            text = ", ".join(paths[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
            yield Broken(subject=library.name, found=text, allowed="no folder of the builder's")


@rule(
    "elf-debug",
    severity=Severity.WARNING,
    about="""A wheel for users has no debug information: it is often most of the size, and names
    every source file. The policy can want more: `elf.stripped`, the table of all symbols gone, or
    kept for debuggers.""",
    next_step="strip the library before it is packed, or say elf.stripped = false",
)
def _debug(facts: WheelFacts, policy: Policy) -> Iterator[Outcome]:
    wanted = policy.elf.stripped
    for library, elf in hosts(facts):
        if wanted is not False and elf.debug:
            size = sum(one.size for one in elf.sections if one.name.startswith(".debug_"))
            found = f"{size:,} bytes of debug information"
            yield Broken(subject=library.name, found=found, allowed="none")
        if wanted is not None and elf.stripped is not wanted:
            found = "is stripped" if elf.stripped else "has the table of all symbols"
            allowed = "stripped" if wanted else "the table of all symbols"
            yield Broken(subject=library.name, found=found, allowed=allowed)


_REGISTERS = re.compile(r"_ZN5torch7LibraryC[12]E.*|aoti_torch_library_init_def")


@rule(
    "elf-operator-namespace",
    severity=Severity.WARNING,
    about="""No two files of a wheel define the same namespace of operators: `TORCH_LIBRARY(name)`
    may run once in a process, and the second to be loaded fails. A file that is not stripped tells
    its namespaces exactly, by the local function that the macro leaves; a stripped one does not, so
    that two stripped files that register operators are neither passed nor failed. A warning: files
    that are alternatives to each other, one of which is loaded, may well share a name.""",
    next_step="use TORCH_LIBRARY_FRAGMENT in all files but one, or load only one of them",
)
def _namespace(facts: WheelFacts, _: Policy) -> Iterator[Outcome]:
    defined: dict[str, list[str]] = {}
    silent = []
    for library, elf in hosts(facts):
        if library.traces.defines is None:
            if any(_REGISTERS.fullmatch(symbol.name) for symbol in elf.undefined):
                silent.append(library.name)
            continue
        for name in library.traces.defines:
            defined.setdefault(name, []).append(library.name)
    for name, files in defined.items():
        if len(files) > 1:
            found = f"{name} is defined by {' and '.join(files)}"
            yield Broken(subject=files[1], found=found, allowed="one file a namespace")
    if len(silent) + bool(defined) > 1:
        reason = f"stripped, like {len(silent) - 1} more" if len(silent) > 1 else "stripped"
        yield Unknown(subject=silent[0], reason=f"registers operators and is {reason}")


@rule(
    "elf-cpu-level",
    severity=Severity.ERROR,
    about="""No library has instructions beyond the level of x86-64 that the policy names
    (`elf.cpu-level`, 1 by default, as the platform tag promises), but in functions that are
    dispatched: every way to them, from what can be called from outside through calls, jumps and
    pointers in the data, passes a function that asks what the processor is (`cpuid`, `xgetbv`),
    that calls one which does, or that reads what it wrote. Where something in the file asks and a
    function is reached by another way, it may still be called only where it fits: that is neither
    passed nor failed. `-march=native` on the builder ends in an illegal instruction elsewhere. Read
    by capstone, in a linear sweep over each function.""",
    next_step="compile without -march=native; dispatch what is for newer processors",
    deep=True,
)
def _cpu(facts: WheelFacts, policy: Policy) -> Iterator[Outcome]:
    allowed = policy.elf.cpu_level
    for library, _elf in hosts(facts):
        found = library.instructions
        if found is None or found.problem:
            yield Unknown(subject=library.name, reason=found.problem if found else "not read")
        elif not found.asks and found.newest.level > allowed:
            level = f"x86-64-v{allowed}" if allowed > 1 else "x86-64"
            yield Broken(
                subject=library.name, found=_newer(found.newest), allowed=f"{level} and no dispatch"
            )
        elif found.open.level > allowed:
            reason = "the file asks what the processor is, but not on every way to them"
            yield Unknown(subject=library.name, reason=f"{_newer(found.open)}; {reason}")


def _newer(found: Newest) -> str:
    return f"{found.count} instructions of x86-64-v{found.level}, such as {found.example}"
