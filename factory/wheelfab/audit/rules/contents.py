"""Files that belong in a wheel, and how much they weigh."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from packaging.utils import canonicalize_name

from wheelfab.audit.facts import WheelFacts
from wheelfab.audit.kind import kind_of
from wheelfab.audit.policy import Policy
from wheelfab.audit.record import Severity
from wheelfab.audit.rules.registry import Broken, Outcome, Unknown, rule
from wheelfab.audit.summary import device_bytes, largest_members

_CACHE = re.compile(
    r"(.*/)?(__pycache__|\.(pytest|mypy|ruff)_cache|\.hypothesis|\.ipynb_checkpoints)/.*"
    r"|.*\.py[co]|(.*/)?\.coverage|.*~|(.*/)?\.DS_Store|(.*/)?#[^/]*#"
)
_BUILD = re.compile(
    r"(.*/)?(CMakeFiles|\.git|\.svn|\.tox|\.nox|\.venv|_skbuild|[^/]+\.egg-info)/.*"
    r"|(.*/)?(CMakeCache\.txt|build\.ninja|\.ninja_(log|deps)|compile_commands\.json"
    r"|cmake_install\.cmake|Makefile)|.*\.(o|obj|d|gch|swp|orig|rej)|build/.*|dist/.*"
)
_NO_PACKAGE = re.compile(
    r"tests?|testing|docs?|examples?|benchmarks?|bench|scripts?|tools?|ci|notebooks|csrc|src|cmake"
    r"|third_party|3rdparty|include|lib|utils|licenses?|readme\.\w+"
    r"|(setup|conftest|versioneer|noxfile)\.py"
)
_FOREIGN = re.compile(r".*\.(dll|pyd|dylib)")
_PLAIN_LIMIT = 100 << 20  # bytes; what PyPI takes without being asked
_SHOWN = 5


@rule(
    "contents-build",
    severity=Severity.ERROR,
    about="""No part of a build is shipped: object files, CMake's and Ninja's own files, build
    folders, version control, environments. They show that the wheel was packed from a folder that
    was used before, so that deleted sources may be in it as well (B62).""",
    next_step="build from an empty folder, or leave them out in the build tool's settings",
)
def _build(facts: WheelFacts, policy: Policy) -> Iterator[Outcome]:
    yield from _matching(facts, policy, _BUILD, "no files of a build")


@rule(
    "contents-caches",
    severity=Severity.ERROR,
    about="""No caches are shipped: compiled Python, test and type caches, editors' left-overs.
    Compiled Python is written at install; the builder's own has its paths in it and hides a module
    that was deleted.""",
    next_step="leave them out in the build tool's settings",
)
def _caches(facts: WheelFacts, policy: Policy) -> Iterator[Outcome]:
    yield from _matching(facts, policy, _CACHE, "no caches")


@rule(
    "contents-top-level",
    severity=Severity.ERROR,
    about="""What lies at the top of a wheel lies in site-packages, beside everyone else's. `tests`,
    `docs`, `examples`, `setup.py` and such are not a package's own: the next wheel that brings them
    overwrites these.""",
    next_step="name the packages in the build tool's settings instead of finding them",
)
def _top_level(facts: WheelFacts, policy: Policy) -> Iterator[Outcome]:
    for top, members in _tops(facts, policy).items():
        if _NO_PACKAGE.fullmatch(top.lower()) and not _is_own(top, facts):
            yield _top(top, members, "packages of the project alone")


@rule(
    "contents-packages",
    severity=Severity.WARNING,
    about="""A wheel's packages bear its name: `pkg`, `_pkg`, `pkg_cuda`, `pkg.libs`. Others are
    named in the policy (`contents.packages`), in METADATA (Import-Name) or are a finding: they may
    be another project's.""",
    next_step="name them in contents.packages where they are meant to be there",
)
def _packages(facts: WheelFacts, policy: Policy) -> Iterator[Outcome]:
    if facts.name is None:
        yield Unknown(subject=facts.file, reason="the file name cannot be read")
        return
    for top, members in _tops(facts, policy).items():
        known = _NO_PACKAGE.fullmatch(top.lower()) or top.endswith(".pth")  # other rules' own
        if not known and not _is_own(top, facts):
            yield _top(top, members, f"packages named after {facts.name.name}")


@rule(
    "contents-kind",
    severity=Severity.ERROR,
    about="""The wheel is of the kind that the policy asks for (`kind`): pure without a library; cpu
    with libraries but nothing of CUDA; cuda-driver with device code and no CUDA library among its
    needs; cuda-runtime where its libraries need CUDA's. A builder without a GPU makes a cpu wheel
    of a CUDA variant, and nothing else shows it (B20).""",
    next_step="say in the build what is wanted; never ask the builder's hardware",
)
def _kind(facts: WheelFacts, policy: Policy) -> Iterator[Outcome]:
    found = kind_of(facts)
    if policy.kind is not None and found is not policy.kind:
        yield Broken(subject=facts.file, found=f"a {found} wheel", allowed=f"a {policy.kind} wheel")


@rule(
    "contents-foreign",
    severity=Severity.WARNING,
    about="""Libraries of other systems (`.dll`, `.pyd`, `.dylib`) are of no use in a Linux wheel.
    In a wheel for Windows or macOS they are what matters and are not read here: the verdict says
    unchecked.""",
    next_step="leave them out of this platform's wheel",
)
def _foreign(facts: WheelFacts, policy: Policy) -> Iterator[Outcome]:
    platforms = {tag.platform for tag in facts.name.tags} if facts.name else set()
    elsewhere = any(platform.startswith(("win", "macosx")) for platform in platforms)
    names = [one.name for one in facts.members if _FOREIGN.fullmatch(one.name)]
    if elsewhere:
        yield Unknown(subject=facts.file, reason="only Linux's libraries (ELF) are read")
        return
    for name in names:
        if not _is_meant(name, policy):
            yield Broken(subject=name, found="is shipped", allowed="Linux's own libraries")


@rule(
    "contents-startup",
    severity=Severity.WARNING,
    about="""A `.pth` file at the top of site-packages is read, and its import lines run, whenever
    any Python of that environment starts, whether or not the package is used.""",
    next_step="do the work when the package is imported",
)
def _startup(facts: WheelFacts, policy: Policy) -> Iterator[Outcome]:
    for top in _tops(facts, policy):
        if top.endswith(".pth"):
            yield Broken(subject=top, found="runs at each start of Python", allowed="nothing does")


@rule(
    "contents-size",
    severity=Severity.ERROR,
    about=f"""The file is within its budget (`contents.budget`). Without one, a file of over
    {_PLAIN_LIMIT >> 20} MiB is a warning: PyPI refuses it unless a higher limit was granted (B69).
    The finding names the largest files and the bytes of device code for each arch, which the JSON
    has in full.""",
    next_step="ship fewer archs, compress the device code, or raise the budget",
)
def _size(facts: WheelFacts, policy: Policy) -> Iterator[Outcome]:
    budget = policy.contents.budget
    limit = _PLAIN_LIMIT if budget is None else budget
    if facts.size <= limit:
        return
    largest = ", ".join(f"{one.name} {one.packed:,}" for one in largest_members(facts)[:_SHOWN])
    archs = ", ".join(f"{target} {size:,}" for target, size in device_bytes(facts).items())
    code = f"; device code: {archs}" if archs else ""
    yield Broken(
        subject=facts.file,
        found=f"{facts.size:,} bytes; packed: {largest}{code}",
        allowed=f"{limit:,} bytes",
        severity=Severity.WARNING if budget is None else None,
    )


def _matching(
    facts: WheelFacts, policy: Policy, pattern: re.Pattern[str], allowed: str
) -> Iterator[Outcome]:
    names = [
        member.name
        for member in facts.members
        if pattern.fullmatch(member.name) and not _is_meant(member.name, policy)
    ]
    for name in names[:_SHOWN]:
        yield Broken(subject=name, found="is shipped", allowed=allowed)
    if len(names) > _SHOWN:
        yield Broken(subject=facts.file, found=f"{len(names) - _SHOWN} more", allowed=allowed)


def _is_meant(name: str, policy: Policy) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in policy.contents.files)


def _top(top: str, members: list[str], allowed: str) -> Broken:
    count = f"{len(members)} files" if len(members) > 1 else members[0]
    return Broken(subject=top, found=f"at the top of site-packages ({count})", allowed=allowed)


def _tops(facts: WheelFacts, policy: Policy) -> dict[str, list[str]]:
    """What is installed at the top of site-packages, with the members of each."""
    tops: dict[str, list[str]] = {}
    for member in facts.members:
        parts = member.name.split("/")
        if parts[0].endswith(".data"):
            if len(parts) < 3 or parts[1] not in ("purelib", "platlib"):
                continue  # scripts, headers and data have their own folders
            parts = parts[2:]
        if parts[0].endswith(".dist-info") or _is_meant(member.name, policy):
            continue
        tops.setdefault(parts[0], []).append(member.name)
    return {top: members for top, members in tops.items() if top not in policy.contents.packages}


def _is_own(top: str, facts: WheelFacts) -> bool:
    """Whether a top-level name is the project's: its own name, or one that has it as a part."""
    if facts.name is None:
        return False
    words = {word for word in facts.name.name.split("-") if not _NO_PACKAGE.fullmatch(word)}
    stem = top.removesuffix(".libs").partition(".")[0]
    found = canonicalize_name(stem.strip("_"))
    plain = facts.name.name.replace("-", "")
    named = {name.partition(".")[0] for name in _import_names(facts)}
    return stem in named or bool(words & set(found.split("-"))) or plain in found.replace("-", "")


def _import_names(facts: WheelFacts) -> tuple[str, ...]:
    metadata = facts.metadata
    names = getattr(metadata, "import_names", None) or ()
    spaces = getattr(metadata, "import_namespaces", None) or ()
    return tuple(name.partition(";")[0].strip() for name in (*names, *spaces))
