"""What each library needs from outside: libraries, symbols, versions of glibc."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from wheelfab.atlas import is_torch
from wheelfab.audit.facts import WheelFacts
from wheelfab.audit.library import LibraryFacts
from wheelfab.audit.manylinux import MACHINES, Level, floors, kept, level_of
from wheelfab.audit.needs import (
    Neighbours,
    Origin,
    brings,
    cuda_library,
    cuda_majors,
    declared_cuda,
    declares_cpu,
    neighbours,
    origin_of,
    required,
)
from wheelfab.audit.policy import Policy
from wheelfab.audit.record import Severity
from wheelfab.audit.rules.elf import hosts
from wheelfab.audit.rules.registry import Broken, Outcome, Unknown, rule
from wheelfab.elf import Elf, Symbol
from wheelfab.requires import machine_of

_PYTHON = re.compile(r"_?Py[A-Z_]\w*|_Py\w+")
_RUNTIME = re.compile(
    r"GOMP_\w+|omp_\w+|__kmpc_\w+|_ITM_\w+|__gmon_start__|__cxa_finalize|__tls_get_addr"
)
# Of libstdc++ without a version: devtoolset links them from its own archive or from torch.
_STANDARD = re.compile(
    r"_Z(?:N[KVOR]*S[tabsiod]|St|T[ISVT](?:N[KVO]*)?S[tabsiod]|n[wa]|d[la])\w*"
    r"|_ZT[ISV]\w*__cxxabiv1\w*|__cxa_\w+|__gxx_personality_v0|__dynamic_cast"
)
_DRIVER = re.compile(r"cu[A-Z]\w+|nvml[A-Z]\w+")
_TORCH_OF_CUDA = re.compile(r"lib(c10_cuda|torch_cuda\w*)\.so")
_COPIES = re.compile(
    r"lib(torch\w*|c10\w*|caffe2\w*|cuda|nvidia-[-\w]+?|cudart\w*|cublas\w*|cudnn\w*|nvrtc[-\w]*?|nccl"
    r"|cufft\w*|curand|cusolver\w*|cusparse\w*|nvJitLink|nvToolsExt|cupti|cufile\w*|nvshmem\w*)"
    r"(-[0-9a-f]{6,})?\.so(\.[\d.]+)?"
)
_VERSIONED = ("ld-linux", "libc.so.", "libm.so.")  # all that they define has a version
_SHOWN = 5


@rule(
    "needs-driver",
    severity=Severity.ERROR,
    about="""No library needs the driver at load: `libcuda.so.1` and `libnvidia-*.so` are not there
    on a machine without a GPU, where the import then ends with a missing library (B05). Open it at
    run time by name instead.""",
    next_step="open libcuda.so.1 with dlopen when the first GPU is asked for",
)
def _driver(facts: WheelFacts, policy: Policy) -> Iterator[Outcome]:
    for library, elf, name, origin in _needs(facts, policy):
        if origin is Origin.DRIVER:
            used = sum(1 for one in elf.undefined if _DRIVER.fullmatch(one.name))
            yield Broken(
                subject=library.name,
                found=f"needs {name}" + (f", for {used} symbols" if used else ", for no symbol"),
                allowed="no library of the driver",
            )


@rule(
    "needs-cpu",
    severity=Severity.ERROR,
    about="""A wheel that says it is for the CPU, by its build record or as `+cpu`, needs no library
    of CUDA's and none of torch's for CUDA: it would load on no CPU build of torch.""",
    next_step="link libtorch_cpu and libc10 alone",
)
def _cpu(facts: WheelFacts, policy: Policy) -> Iterator[Outcome]:
    if not declares_cpu(facts):
        return
    for library, _, name, origin in _needs(facts, policy):
        if origin is Origin.CUDA or _TORCH_OF_CUDA.fullmatch(name):
            yield Broken(subject=library.name, found=f"needs {name}", allowed="nothing of CUDA's")


@rule(
    "needs-cuda-release",
    severity=Severity.ERROR,
    about="""All libraries of CUDA's that one file needs fit one CUDA release, and it is the one
    that the wheel names (build record, or `+cu121`). A wheel may hold a file for each of several
    releases. Each library's own numbers decide: `libcufft.so.11` belongs to CUDA 12.""",
    next_step="link the file with one toolkit, the wheel's own",
)
def _cuda(facts: WheelFacts, _: Policy) -> Iterator[Outcome]:
    declared = declared_cuda(facts)
    for library, elf in hosts(facts):
        majors = cuda_majors(elf)
        common = set.intersection(*map(set, majors.values())) if majors else set()
        listed = ", ".join(sorted(majors))
        if majors and not common:
            yield Broken(subject=library.name, found=f"needs {listed}", allowed="one CUDA release")
        elif majors and declared is not None and declared not in common:
            yield Broken(
                subject=library.name,
                found=f"needs {listed}, of CUDA {' or '.join(map(str, sorted(common)))}",
                allowed=f"CUDA {declared}",
            )


@rule(
    "needs-library",
    severity=Severity.ERROR,
    about="""Whatever a library needs is explained: it is on the list of what every system has
    (PEP 600), lies in the wheel, is torch's and torch is required, is CUDA's and its wheel or torch
    is required, or the policy names it (`elf.needs`).""",
    next_step="require the wheel that brings it, bundle it, or name it in elf.needs",
)
def _library(facts: WheelFacts, policy: Policy) -> Iterator[Outcome]:
    distributions = required(facts)
    torch = "torch" in distributions or (facts.name is not None and facts.name.name == "torch")
    missing: dict[tuple[str, str], list[str]] = {}
    for library, _, name, origin in _needs(facts, policy):
        own = cuda_library(name)
        match origin:
            case Origin.UNKNOWN:
                allowed = "the system's, the wheel's own, or a required wheel's"
            case Origin.TORCH if not torch:
                allowed = "with torch required"
            case Origin.CUDA if not torch and own and not brings(own, distributions):
                allowed = f"with {own.distribution} or torch required"
            case _:
                continue
        missing.setdefault((library.name, allowed), []).append(name)
    for (subject, allowed), names in missing.items():
        yield Broken(subject=subject, found=f"needs {', '.join(names)}", allowed=allowed)


def _needs(facts: WheelFacts, policy: Policy) -> Iterator[tuple[LibraryFacts, Elf, str, Origin]]:
    others = neighbours(facts)
    for library, elf in hosts(facts):
        for name in elf.needed:
            if not any(fnmatchcase(name, pattern) for pattern in policy.elf.needs):
                yield library, elf, name, origin_of(name, elf, others)


@rule(
    "needs-bundled",
    severity=Severity.ERROR,
    about="""No copy of torch, CUDA or the driver lies in the wheel, whatever a repair tool named it
    (`libcuda-984fdb42.so.570`): a second libtorch has its own registry of operators, a driver fits
    its own machine alone, and CUDA's libraries are hundreds of megabytes that torch brings (B40).
    A wheel of torch's or NVIDIA's own is what it is.""",
    next_step="exclude it from the repair by pattern: auditwheel repair --exclude 'libcuda*'",
)
def _bundled(facts: WheelFacts, policy: Policy) -> Iterator[Outcome]:
    name = facts.name.name if facts.name else ""
    for member in facts.members:
        file = member.name.rpartition("/")[2]
        if not (match := _COPIES.fullmatch(file)) or _is_own(name, match[1]):
            continue
        if not any(fnmatchcase(member.name, pattern) for pattern in policy.elf.bundles):
            found = f"a copy of lib{match[1]}, {member.size:,} bytes"
            yield Broken(subject=member.name, found=found, allowed="no copy of it")


def _is_own(wheel: str, library: str) -> bool:
    if library.startswith(("torch", "c10", "caffe2")):
        return wheel == "torch"
    return wheel.startswith("nvidia-")


@rule(
    "needs-version",
    severity=Severity.ERROR,
    about="""Every library whose symbol versions are asked for is needed by name. A repair that
    renamed the one and not the other leaves a file that the loader gives up on (B40, B42).""",
    next_step="repair again from the unrepaired wheel, with patchelf 0.17 or newer",
)
def _version(facts: WheelFacts, _: Policy) -> Iterator[Outcome]:
    for library, elf in hosts(facts):
        for name in sorted(set(elf.version_needs) - set(elf.needed)):
            versions = ", ".join(elf.version_needs[name][:_SHOWN])
            found = f"asks {name} for {versions}, and does not need it"
            yield Broken(subject=library.name, found=found, allowed="a need for each")


@rule(
    "needs-symbols",
    severity=Severity.ERROR,
    about="""Every undefined symbol is explained: it has a version of a library outside the wheel,
    is defined (in its version, if it has one) by a library of the wheel that is needed too, over
    however many steps, is Python's, torch's (the torch rules look for it in the atlas) or OpenMP's,
    or has a name such as a needed library of CUDA's defines. One that another file of the wheel
    defines, without being needed, is a warning: it works where that file was loaded before, for all
    to see. Where a needed library of which nothing is known here could define the rest, that is
    said and nothing is judged.""",
    next_step="link the library that defines it; c++filt shows what it is",
)
def _symbols(facts: WheelFacts, policy: Policy) -> Iterator[Outcome]:
    others = neighbours(facts)
    defined = {library.name: _definitions(elf) for library, elf in hosts(facts)}
    for library, elf in hosts(facts):
        left = _unexplained(library, elf, others, defined, policy)
        elsewhere = {one for one in left if any(each.has(one) for each in defined.values())}
        if elsewhere:
            yield Broken(
                subject=library.name,
                found=f"{_listed(elsewhere)}, which a file defines that it does not need",
                allowed="a need for it",
                severity=Severity.WARNING,
            )
        outside = [name for name in elf.needed if _may_define(name, elf, others)]
        maybe = {one for one in left - elsewhere if one.version is None and outside}
        nowhere = left - elsewhere - maybe
        if maybe:
            reason = f"{_listed(maybe)} may come from {', '.join(outside)}, not in the wheel"
            yield Unknown(subject=library.name, reason=reason)
        if nowhere:
            found = f"{_listed(nowhere)}: undefined, and nothing defines it"
            yield Broken(subject=library.name, found=found, allowed="symbols that a need explains")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Definitions:
    """What a library defines: names, and each as ``name@version``, or alone where it has none."""

    names: frozenset[str]
    exact: frozenset[str]

    def has(self, symbol: Symbol) -> bool:
        """Whether the loader takes what is here: without a version it fits any."""
        if symbol.version is None:
            return symbol.name in self.names
        return str(symbol) in self.exact or symbol.name in self.exact


def _definitions(elf: Elf) -> _Definitions:
    return _Definitions(
        names=frozenset(symbol.name for symbol in elf.defined),
        exact=frozenset(map(str, elf.defined)),
    )


def _unexplained(
    library: LibraryFacts,
    elf: Elf,
    others: Neighbours,
    defined: dict[str, _Definitions],
    policy: Policy,
) -> set[Symbol]:
    closure = others.closure(library)
    needed = {name for other in closure if other.host for name in other.host.needed}
    brought = [one for name in needed if (one := cuda_library(name)) is not None]
    known = [_PYTHON, _RUNTIME, *(re.compile(one.symbols) for one in brought)]
    if any(name.startswith("libstdc++.so") for name in needed):
        known.append(_STANDARD)
    if any(origin_of(name, elf, others) is Origin.DRIVER for name in needed):
        known.append(_DRIVER)
    return {
        one
        for one in elf.undefined
        if not (one.weak or _is_outside(one, others))
        and not any(defined[other.name].has(one) for other in closure)
        and not (one.version is None and _is_known(one.name, known))
        and not any(fnmatchcase(one.name, pattern) for pattern in policy.elf.undefined)
    }


def _is_outside(symbol: Symbol, others: Neighbours) -> bool:
    """Whether it is wanted, by its version, from a library that does not lie in the wheel."""
    return symbol.version is not None and symbol.library not in others.by_name


def _is_known(name: str, known: list[re.Pattern[str]]) -> bool:
    return is_torch(name) or any(pattern.fullmatch(name) for pattern in known)


def _may_define(name: str, elf: Elf, others: Neighbours) -> bool:
    """Whether a needed library is outside the wheel, without versions, and nothing is known of it.

    Of CUDA's libraries the names are known.
    """
    origin = origin_of(name, elf, others)
    if origin is Origin.SYSTEM:
        return name not in elf.version_needs and not name.startswith(_VERSIONED)
    return origin is Origin.UNKNOWN


def _listed(symbols: set[Symbol]) -> str:
    more = f" and {len(symbols) - _SHOWN} more" if len(symbols) > _SHOWN else ""
    return ", ".join(sorted(map(str, symbols))[:_SHOWN]) + more


@rule(
    "needs-platform",
    severity=Severity.ERROR,
    about="""The platform tag is a promise of the oldest glibc and libstdc++ (PEP 600), and every
    library keeps it: no symbol version that this level has not. A wheel that asks for more is
    installed on an older system and does not load there (B17, B45). The levels are auditwheel's.
    A plain `linux_x86_64` promises nothing, so that an installer refuses nothing. `musllinux`
    promises a system without glibc; what its own library lacks shows in no version, and is not
    judged.""",
    next_step="build in the container of the level, or take the tag that holds",
)
def _platform(facts: WheelFacts, _: Policy) -> Iterator[Outcome]:
    for platform in sorted({tag.platform for tag in facts.name.tags} if facts.name else ()):
        machine = machine_of(platform)
        elves = [item for item in hosts(facts) if MACHINES.get(item[1].machine) == machine]
        if machine is None or not elves:
            continue
        holds = kept((elf for _, elf in elves), machine)
        truth = holds.name if holds else "no policy"
        if platform.startswith("linux_"):
            yield Broken(
                subject=facts.file,
                found=f"{platform}, where {truth} holds",
                allowed="a manylinux tag",
                severity=Severity.WARNING,
            )
        elif platform.startswith("musllinux_"):
            yield from _musl(elves, platform)
        elif (level := level_of(platform)) is not None:
            yield from _promised(elves, level, truth)
        else:
            yield Unknown(subject=facts.file, reason=f"auditwheel knows no policy {platform}")


def _musl(elves: list[tuple[LibraryFacts, Elf]], platform: str) -> Iterator[Outcome]:
    for library, elf in elves:
        if "libc.so.6" in elf.needed:
            found = "needs libc.so.6, which is glibc's"
            yield Broken(subject=library.name, found=found, allowed=f"what {platform} has")
        else:
            reason = f"musl gives its symbols no versions: nothing tells if {platform} has them all"
            yield Unknown(subject=library.name, reason=reason)


def _promised(elves: list[tuple[LibraryFacts, Elf]], level: Level, truth: str) -> Iterator[Outcome]:
    for library, elf in elves:
        refused = level.refused(elf)
        if refused:
            floor = ", ".join(f"{name} {version}" for name, version in floors([elf]).items())
            yield Broken(
                subject=library.name,
                found=f"wants {', '.join(refused[:_SHOWN])} ({floor}); {truth} holds",
                allowed=f"what {level.name} has",
            )
