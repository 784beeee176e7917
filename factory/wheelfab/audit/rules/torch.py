"""Which torch a wheel's libraries load on, against what its METADATA requires."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from wheelfab.atlas import Kind, Verdict
from wheelfab.atlas.demangle import demangle
from wheelfab.audit.facts import WheelFacts
from wheelfab.audit.operators import named_operators
from wheelfab.audit.policy import Policy
from wheelfab.audit.record import Severity
from wheelfab.audit.rules.elf import hosts
from wheelfab.audit.rules.registry import Broken, Outcome, Unknown, rule
from wheelfab.audit.torchside import Binding, Together, bindings, requirement, together
from wheelfab.versions import series

_SHOWN = 2
_REGISTERS = re.compile(r"_ZN5torch7LibraryC[12]E.*|aoti_torch_library_init_(def|fragment)")


@rule(
    "torch-string-abi",
    severity=Severity.ERROR,
    about="""All libraries of a wheel use one C++ string ABI, and it is the one that the build
    record names: `__cxx11` in a symbol, or `Ss`. The version of torch may fit and a symbol be
    missing all the same (B03). Read from the symbols, never from a table of releases.""",
    next_step="build all of them against the headers of the same torch",
)
def _string_abi(facts: WheelFacts, _: Policy) -> Iterator[Outcome]:
    found = {one.name: one.cxx11_abi for one in bindings(facts) if one.cxx11_abi is not None}
    declared = _declared_abi(facts)
    for name, flag in found.items():
        if declared is not None and flag is not declared:
            text = f"_GLIBCXX_USE_CXX11_ABI={int(flag)}"
            yield Broken(subject=name, found=text, allowed=f"{int(declared)}, as the record says")
    if declared is None and len(set(found.values())) > 1:
        text = ", ".join(f"{name}: {int(flag)}" for name, flag in found.items())
        yield Broken(subject=facts.file, found=text, allowed="one string ABI")


def _declared_abi(facts: WheelFacts) -> bool | None:
    torch = facts.build.get("torch") if facts.build is not None else None
    flag = torch.get("cxx11_abi") if isinstance(torch, dict) else None
    return flag if isinstance(flag, bool) else None


@rule(
    "torch-symbols",
    severity=Severity.ERROR,
    about="""There is a torch release that METADATA allows and on which every library loads: all
    undefined symbols of torch's are exported by the libraries that it needs, and the dispatch keys
    it registers kernels under mean what was compiled. Asked of the atlas, which is exact for the
    build of each release that PyPI has. A wheel that was built against another torch than it says
    fails here (B01, B03, B08).""",
    next_step="build it against a torch that it requires; wheelfab compat shows every release",
)
def _symbols(facts: WheelFacts, _: Policy) -> Iterator[Outcome]:
    found = bindings(facts)
    allowed = requirement(facts)
    rows = _allowed(together(found), allowed if allowed is not None else SpecifierSet())
    if not found or any(row.verdict is Verdict.LOADS for row in rows):
        return
    text = f"torch{allowed}" if allowed is not None else "any torch"
    unknown = [row for row in rows if row.verdict is Verdict.UNKNOWN]
    if not rows:
        yield Unknown(subject=facts.file, reason=f"the atlas has no release that {text} allows")
    elif unknown:
        row = unknown[-1]
        yield Unknown(subject=facts.file, reason=f"{row.release.build}: {row.reason}")
    else:
        yield Broken(
            subject=facts.file,
            found=_why(rows[-1], found),
            allowed=f"a release of {text} on which it loads",
        )


def _why(row: Together, found: tuple[Binding, ...]) -> str:
    """Why not on a release, with the first missing symbols as people write them."""
    missing = sorted(
        {
            name
            for binding in found
            for item in binding.answers
            if item.release.version == row.release.version
            for name in item.missing
        }
    )
    names = "; ".join(demangle(name) for name in missing[:_SHOWN])
    return f"fails on {row.release.build}: {row.reason}" + (f" ({names})" if names else "")


def _allowed(rows: Iterable[Together], wanted: SpecifierSet) -> list[Together]:
    return [row for row in rows if wanted.contains(row.release.version, prereleases=True)]


@rule(
    "torch-requirement-missing",
    severity=Severity.ERROR,
    about="""A wheel whose libraries want torch's symbols requires torch: without it, any torch or
    none is installed beside it, and the import ends with a missing symbol (B12).""",
    next_step="add Requires-Dist: torch with the range that wheelfab compat shows",
)
def _missing(facts: WheelFacts, _: Policy) -> Iterator[Outcome]:
    found = bindings(facts)
    if found and requirement(facts) is None:
        loads = [
            str(row.release.version) for row in together(found) if row.verdict is Verdict.LOADS
        ]
        where = f"; it loads on {_range(loads)}" if loads else ""
        text = f"no requirement of torch, for {len(found)} libraries{where}"
        yield Broken(subject=facts.file, found=text, allowed="a requirement that holds")


@rule(
    "torch-requirement-loose",
    severity=Severity.ERROR,
    about="""METADATA allows no torch release on which a library fails by its symbols or its
    dispatch keys: an installer takes what it allows. A classic binding holds for one or two series
    (B01, B08, B12). Where some libraries load and some fail it is a warning: they may be
    alternatives, one of which is loaded. Releases newer than the atlas are not judged.""",
    next_step="narrow Requires-Dist to the releases that wheelfab compat shows",
)
def _loose(facts: WheelFacts, _: Policy) -> Iterator[Outcome]:
    found, wanted = bindings(facts), requirement(facts)
    rows = _allowed(together(found), wanted) if wanted is not None else []
    failing = [row for row in rows if row.verdict is Verdict.FAILS]
    if failing and len(failing) < len(rows):
        versions = _range([str(row.release.version) for row in failing])
        yield Broken(
            subject=facts.file,
            found=f"torch{wanted} allows {versions}: {_why(failing[0], found)}",
            allowed=_range([str(row.release.version) for row in rows if row not in failing]),
        )
    apart = [row for row in rows if row.disagree]
    if apart:
        versions = _range([str(row.release.version) for row in apart])
        yield Broken(
            subject=facts.file,
            found=f"torch{wanted} allows {versions}, where {apart[0].reason}",
            allowed="releases on which every library loads",
            severity=Severity.WARNING,
        )


@rule(
    "torch-requirement-tight",
    severity=Severity.NOTE,
    about="""Releases on which all libraries load by the atlas and which METADATA leaves out: of a
    series that it does not allow, or of one that it does, above the oldest. A requirement that
    allows one release alone of a series of which it loads on more is a warning (B12): nothing else
    can be installed beside it. Symbols are not everything: a range may be narrower because only
    that was tried, or because of the Python code. Of a stable binding it is most often just an old
    upper bound.""",
    next_step="try the releases, and widen Requires-Dist",
)
def _tight(facts: WheelFacts, _: Policy) -> Iterator[Outcome]:
    found, wanted = bindings(facts), requirement(facts)
    if wanted is None:
        return
    rows = together(found)
    own = [row.release.version for row in _allowed(rows, wanted)]
    exact = any(one.operator in ("==", "===") and not one.version.endswith("*") for one in wanted)
    more = [
        row.release.version
        for row in rows
        if row.verdict is Verdict.LOADS and _left_out(row.release.version, own, exact=exact)
    ]
    if more:
        kinds = "stable" if all(one.kind is Kind.STABLE for one in found) else "classic"
        text = f"loads by its symbols on {_range(list(map(str, more)))} too ({kinds} binding)"
        same = exact and {series(one) for one in more} & {series(one) for one in own}
        yield Broken(
            subject=facts.file,
            found=text,
            allowed=f"torch{wanted}",
            severity=Severity.WARNING if same else None,
        )


def _left_out(version: Version, own: list[Version], *, exact: bool) -> bool:
    """Whether a release is not among the ``own`` ones, nor just older than those of its series."""
    if version in own:
        return False
    beside = [one for one in own if series(one) == series(version)]
    return exact or not beside or version > min(beside)


@rule(
    "torch-operators",
    severity=Severity.ERROR,
    about="""The namespaces and operators that the policy names (`torch.operators`) are named by a
    library that registers any: a build without a GPU's compiler leaves the sources of some out, and
    the wheel imports all the same (B20). Read from the strings of the file: that a name is not
    there is certain, that it is registered is not.""",
    next_step="see in the build's log which sources were left out",
)
def _operators(facts: WheelFacts, policy: Policy) -> Iterator[Outcome]:
    wanted = policy.torch.operators
    if not wanted:
        return
    libraries = [
        library.name
        for library, elf in hosts(facts)
        if any(_REGISTERS.fullmatch(symbol.name) for symbol in elf.undefined)
    ]
    found = named_operators(facts.path, libraries, wanted)
    missing = [one for one in wanted if one not in found]
    if missing:
        where = f" in {', '.join(libraries)}" if libraries else ": no library registers operators"
        text = f"nothing names {', '.join(missing)}{where}"
        yield Broken(subject=facts.file, found=text, allowed="all of torch.operators")


def _range(versions: list[str]) -> str:
    """The ends of a list of releases, and how many they are."""
    if len(versions) < 3:
        return " and ".join(versions)
    return f"{versions[0]} to {versions[-1]} ({len(versions)} releases)"
