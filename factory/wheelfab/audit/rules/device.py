"""Device code: for which GPUs, the same kernels for all of them, and what the driver can load."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from packaging.version import Version

from wheelfab import facts as known
from wheelfab.arch import code_for, parse_arch_list
from wheelfab.audit.device import DeviceFacts, Image, archs_of
from wheelfab.audit.facts import WheelFacts
from wheelfab.audit.kind import WheelKind
from wheelfab.audit.library import LibraryFacts
from wheelfab.audit.policy import Policy
from wheelfab.audit.record import Severity
from wheelfab.audit.rules.registry import Broken, Outcome, Unknown, rule
from wheelfab.fatbin import RELOCATABLE_SECTION, ImageKind

_LOCAL_CUDA = re.compile(r"(?:^|[._-])cu(\d{2})(\d)(?:[._-]|$)")
_SHOWN = 3


@rule(
    "device-readable",
    severity=Severity.ERROR,
    about="""Every container of device code can be read: entries inside it, each image whole, a
    cubin for the arch that its entry says. What is too large to expand is said and not judged.""",
    next_step="build it again; nothing may be cut out of .nv_fatbin",
)
def _readable(facts: WheelFacts, _: Policy) -> Iterator[Outcome]:
    for library in facts.libraries:
        if library.device.problem:
            found = library.device.problem
            yield Broken(subject=library.name, found=found, allowed="sound containers")
        for image in library.device.images:
            if image.problem.startswith("not expanded"):
                yield Unknown(subject=library.name, reason=f"{image.target}: {image.problem}")
            elif image.problem:
                found = f"{image.target}: {image.problem}"
                yield Broken(subject=library.name, found=found, allowed="whole images")


@rule(
    "device-absent",
    severity=Severity.ERROR,
    about="""A wheel that says it is for CUDA, by its build record, as `+cu121` or by the policy,
    has device code that a driver can load. A build machine without a GPU makes a CPU-only extension
    quietly, or no extension at all, with a green build (B20).""",
    next_step="set TORCH_CUDA_ARCH_LIST and FORCE_CUDA=1, exported, where it is built",
)
def _absent(facts: WheelFacts, policy: Policy) -> Iterator[Outcome]:
    by_policy = policy.kind in (WheelKind.CUDA_DRIVER, WheelKind.CUDA_RUNTIME)
    release = cuda_release(facts, policy)
    declared = release is not None or by_policy or policy.device.archs is not None
    if declared and not any(library.device.targets for library in facts.libraries):
        what = f"CUDA {release}" if release else "CUDA"
        found = f"a wheel for {what} without device code"
        yield Broken(subject=facts.file, found=found, allowed="device code")


@rule(
    "device-archs",
    severity=Severity.ERROR,
    about="""Each file with device code holds just the archs that were asked for, with their
    suffix: by the policy (`device.archs`) or the wheel's build record. `9.0a` is another target
    than `9.0`: the two differ by one bit, and a build that drops the letter is green (B02, B22).
    What was asked for is never taken for what is there.""",
    next_step="look in the build's log for what it made of the arch list",
)
def _archs(facts: WheelFacts, policy: Policy) -> Iterator[Outcome]:
    wanted = declared_targets(facts, policy)
    for library in facts.libraries:
        found = set(library.device.targets)
        if wanted is None or not found or found == wanted:
            continue
        missing, more = sorted(wanted - found), sorted(found - wanted)
        parts = [f"none for {', '.join(missing)}"] * bool(missing)
        parts += [f"code for {', '.join(more)}, not asked for"] * bool(more)
        allowed = " ".join(sorted(wanted)) or "no device code"
        yield Broken(subject=library.name, found="; ".join(parts), allowed=allowed)


@rule(
    "device-kernels",
    severity=Severity.WARNING,
    about="""A kernel that a file has for one arch it has for all: the archs of its container, and
    those that the policy or the build record names (an error then). Build helpers that overwrite
    one arch entry with another leave a group of kernels out for some GPUs, with an info line (B23).
    Where nothing names the archs, a container that has nothing for a GPU that another of the file
    is for is a note: kernels may be meant for one arch alone. `device.kernels` names those that
    must be there for all; say what is meant with an ignore of the policy.""",
    next_step="compare the arch lists of the source files; name what is meant in ignore",
)
def _kernels(facts: WheelFacts, policy: Policy) -> Iterator[Outcome]:
    wanted = declared_targets(facts, policy)
    for library in facts.libraries:
        gaps: dict[str, set[str]] = {}
        for images in library.device.containers():
            for name, missing in _gaps(images, wanted):
                gaps.setdefault(name, set()).update(missing)
        if wanted is None:
            yield from _behind(library)
        if not gaps:
            continue
        name = min(gaps, key=lambda one: (len(one), one))
        rest = f" and {len(gaps) - 1} more kernels" if len(gaps) > 1 else ""
        yield Broken(
            subject=library.name,
            found=f"{name} is not there for {', '.join(sorted(gaps[name]))}{rest}",
            allowed="every kernel for every arch",
            severity=Severity.ERROR if wanted else None,
        )


def _gaps(images: tuple[Image, ...], wanted: set[str] | None) -> Iterator[tuple[str, set[str]]]:
    """The kernels of one container that lack a target, with the targets."""
    by_target = _kernels_of(images)
    names = set().union(*by_target.values()) if by_target else set()
    targets = wanted if wanted is not None else set(by_target)
    for name in names:
        missing = {one for one in targets if name not in by_target.get(one, ())}
        if missing:
            yield name, missing


def _behind(library: LibraryFacts) -> Iterator[Outcome]:
    """The containers with nothing for a GPU that another container of the file is for."""
    groups = [
        tuple(one for one in images if one.entry.loadable and one.kernels)
        for images in library.device.containers()
        if not any(one.problem for one in images)
    ]
    archs = [archs_of(DeviceFacts(images=images)) for images in groups if images]
    gpus = sorted({(arch.major, arch.minor) for one in archs for arch in one})
    short = [
        (images, missing)
        for images, one in zip(filter(None, groups), archs, strict=True)
        if (missing := [gpu for gpu in gpus if code_for(one, gpu) is None])
    ]
    if short:
        images, missing = max(short, key=lambda one: len(one[1]))
        name = min(name for image in images for name in image.kernels)
        without = ", ".join(f"{major}.{minor}" for major, minor in missing)
        yield Broken(
            subject=library.name,
            found=f"{len(short)} of {len(archs)} containers have nothing for a GPU that another is"
            f" for: {name} is there for none of {without}",
            allowed="every kernel for every GPU of the file",
            severity=Severity.NOTE,
        )


@rule(
    "device-kernels-named",
    severity=Severity.ERROR,
    about="""The kernels that the policy names (`device.kernels`) are there, each for every arch
    that the policy or the build record asks for, else for every one that some file of the wheel is
    for. An arch that is there says nothing of a group of kernels that its build left out (B20,
    B23).""",
    next_step="see in the build's log which sources were left out, and for which archs",
)
def _named(facts: WheelFacts, policy: Policy) -> Iterator[Outcome]:
    if not policy.device.kernels:
        return
    images = [one for library in facts.libraries for one in library.device.images]
    by_target = _kernels_of(images)
    targets = declared_targets(facts, policy) or set(by_target)
    unread = [f"{one.target}: {one.problem}" for one in images if one.problem]
    for pattern in policy.device.kernels:
        found = _not_there(pattern, targets, by_target)
        if found and unread:
            yield Unknown(subject=facts.file, reason=f"{found}; {unread[0]}")
        elif found:
            yield Broken(subject=facts.file, found=found, allowed="it for every arch")


def _not_there(pattern: str, targets: set[str], by_target: dict[str, set[str]]) -> str:
    """What is missing of the kernels of a pattern; empty: nothing."""
    names = {name for each in by_target.values() for name in each if fnmatchcase(name, pattern)}
    if not names:
        return f"no kernel {pattern}"
    for name in sorted(names):
        missing = sorted(one for one in targets if name not in by_target.get(one, ()))
        if missing:
            return f"{name} is not there for {', '.join(missing)}"
    return ""


def _kernels_of(images: Iterable[Image]) -> dict[str, set[str]]:
    """The kernels that a driver can load, by target."""
    found: dict[str, set[str]] = {}
    for image in images:
        if image.entry.loadable and not image.problem:
            found.setdefault(image.target, set()).update(image.kernels)
    return found


@rule(
    "device-empty",
    severity=Severity.NOTE,
    about="""A source file without a kernel still gives an image for an arch, which an audit of
    archs alone takes for support. A file whose images hold no kernel at all is a warning, and an
    error where the policy or the build record says for which archs it is.""",
    next_step="compile it with the host compiler, or see why its kernels were left out",
)
def _empty(facts: WheelFacts, policy: Policy) -> Iterator[Outcome]:
    whole = Severity.ERROR if declared_targets(facts, policy) else Severity.WARNING
    for library in facts.libraries:
        groups = [
            [one for one in images if one.entry.loadable] for images in library.device.containers()
        ]
        groups = [images for images in groups if images and not any(i.problem for i in images)]
        empty = [images for images in groups if not any(one.kernels for one in images)]
        if empty:
            archs = ", ".join(sorted({one.target for images in empty for one in images}))
            yield Broken(
                subject=library.name,
                found=f"{len(empty)} of {len(groups)} containers without a kernel, for {archs}",
                allowed="kernels in each",
                severity=whole if len(empty) == len(groups) else None,
            )


@rule(
    "device-linkable",
    severity=Severity.WARNING,
    about="""Relocatable code and LTO IR are for nvlink: the driver never sees them. Beside what
    was linked they are left over, often most of the file; alone they are an error.""",
    next_step="link with -dlink and drop the objects' own fatbins, or build without -rdc",
)
def _linkable(facts: WheelFacts, _: Policy) -> Iterator[Outcome]:
    for library in facts.libraries:
        left = [one.entry for one in library.device.images if not one.entry.loadable]
        if not left:
            continue
        size = sum(one.stored for one in left)
        relocatable = any(one.section == RELOCATABLE_SECTION for one in left)
        what = "relocatable code" if relocatable else "LTO IR"
        alone = not library.device.targets
        yield Broken(
            subject=library.name,
            found=f"{size:,} bytes of {what} that no driver loads"
            + (", and nothing else" if alone else ""),
            allowed="linked code",
            severity=Severity.ERROR if alone else None,
        )


@rule(
    "device-ptx",
    severity=Severity.ERROR,
    about="""No PTX is of a newer version than the wheel's CUDA release writes (by the policy, the
    build record or `+cu121`): a driver that the release promises cannot read it, which is the one
    thing that PTX is kept for. The version of PTX tells the compiler: 8.1 is CUDA 12.1's.""",
    next_step="compile the PTX with the wheel's own CUDA release",
)
def _ptx(facts: WheelFacts, policy: Policy) -> Iterator[Outcome]:
    release = cuda_release(facts, policy)
    for library in facts.libraries:
        found = {
            one.entry.isa
            for one in library.device.images
            if one.entry.kind is ImageKind.PTX and one.entry.loadable and one.entry.isa
        }
        for isa in sorted(found):
            own = known.ptx_releases().get(isa)
            text = f"PTX {isa[0]}.{isa[1]}"
            if own is None:
                yield Unknown(subject=library.name, reason=f"{text}: of no CUDA release known here")
            elif release is not None and own > release:
                found_text = f"{text}, of CUDA {own}"
                yield Broken(subject=library.name, found=found_text, allowed=f"CUDA {release}'s")


@rule(
    "device-arch-known",
    severity=Severity.WARNING,
    about="""Every image is for an arch that some CUDA release compiles for, and that is called the
    same today: 10.1 became 11.0 with CUDA 13 (B67).""",
    next_step="see facts/cuda.toml, and mend it where it is behind",
)
def _known(facts: WheelFacts, _: Policy) -> Iterator[Outcome]:
    for library in facts.libraries:
        archs = {one.entry.arch for one in library.device.images}
        for arch in sorted(archs):
            newer = known.renamed_archs().get(arch.rstrip("af"))
            if newer:
                found = f"{arch}, which CUDA 13 and later call {newer}"
                yield Broken(subject=library.name, found=found, allowed=f"code for {newer}, too")
            elif arch not in known.known_archs():
                found = f"{arch}, which no CUDA release known here compiles for"
                yield Broken(subject=library.name, found=found, allowed="a known arch")


@rule(
    "device-gpus",
    severity=Severity.ERROR,
    about="""Each GPU that the policy names (`device.gpus`, by compute capability) runs something of
    each file with device code: a cubin of its major number, or PTX of none newer. Else torch works
    there until the first kernel of this file, which ends with 'no kernel image' (B02).""",
    next_step="add the arch, or +PTX to the newest one",
)
def _gpus(facts: WheelFacts, policy: Policy) -> Iterator[Outcome]:
    for library in facts.libraries:
        archs = archs_of(library.device)
        for capability in policy.device.gpus if archs else ():
            major, _, minor = capability.partition(".")
            if code_for(archs, (int(major), int(minor))) is None:
                gpu = known.gpus().get(capability)
                names = f" ({', '.join(gpu.examples[:2])})" if gpu else ""
                found = f"nothing that runs on {capability}{names}"
                yield Broken(subject=library.name, found=found, allowed="code for it")


def declared_targets(facts: WheelFacts, policy: Policy) -> set[str] | None:
    """What each file with device code must hold: by the policy, else by the build record."""
    text = policy.device.archs
    if text is None:
        if facts.build is None or not isinstance(facts.build.get("archs"), list):
            return None
        entries = [entry for entry in facts.build["archs"] if isinstance(entry, str)]
        if not entries:
            return set()
        text = ";".join(entries)
    found = set()
    for arch in parse_arch_list(text, where="archs"):
        found.add(arch.target)
        if arch.ptx:
            found.add(f"{arch.target}+PTX")
    return found


def cuda_release(facts: WheelFacts, policy: Policy) -> Version | None:
    """The CUDA release of the wheel: by the policy, its build record, or its local version."""
    if policy.device.cuda is not None:
        return Version(policy.device.cuda)
    if facts.build is not None and isinstance(facts.build.get("cuda"), str):
        return Version(facts.build["cuda"])
    local = facts.name.version.local if facts.name else None
    found = _LOCAL_CUDA.search(local or "")
    return Version(f"{found[1]}.{found[2]}") if found else None
