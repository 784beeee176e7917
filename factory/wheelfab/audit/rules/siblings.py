"""Wheels of one project beside each other: what must be the same in all, and their order."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from packaging.utils import canonicalize_name
from packaging.version import Version

from wheelfab.audit.facts import WheelFacts
from wheelfab.audit.localversion import natural, skeleton
from wheelfab.audit.policy import Policy
from wheelfab.audit.record import Severity
from wheelfab.audit.rules.registry import Broken, Outcome, Unknown, sibling_rule

_FIELDS = ("summary", "license", "license_expression", "provides_extra")
_VARIANT = ("torch", "triton", "nvidia", "cuda", "pytorch")


@sibling_rule(
    "siblings-metadata",
    severity=Severity.ERROR,
    about="""Wheels of one project and public version have the same METADATA, but for what a variant
    explains: where the local versions differ, the requirements on torch, triton and NVIDIA's
    packages may, and with torch's the Pythons that there is such a torch for. Installers and lock
    files read one wheel's METADATA and take it for all of its version.""",
    next_step="build all variants from one source with one build tool",
)
def _metadata(wheels: tuple[WheelFacts, ...], _: Policy) -> Iterator[tuple[WheelFacts, Outcome]]:
    for group in _groups(wheels):
        first = next((one for one in group if one.metadata is not None), None)
        for one in group:
            if one.metadata is None:
                yield one, Unknown(subject=one.file, reason="METADATA cannot be read")
            elif first is not None and one is not first:
                for broken in _differences(first, one):
                    yield one, broken


@sibling_rule(
    "siblings-order",
    severity=Severity.ERROR,
    about="""Of two wheels whose local versions differ in numbers alone, installers take the one
    with the higher numbers for the newer one. Where a part with a letter in it is compared as text
    they do not: `+cu92` is above `+cu118` (B52).""",
    next_step="write a dot before each number: +cu118.torch2.9",
)
def _order(wheels: tuple[WheelFacts, ...], _: Policy) -> Iterator[tuple[WheelFacts, Outcome]]:
    for group in _groups(wheels):
        for one, other in itertools.combinations(group, 2):
            low, high = sorted((one, other), key=lambda facts: natural(_local(facts)))
            if skeleton(_local(low)) == skeleton(_local(high)) and _version(low) > _version(high):
                found = f"+{_local(low)} is above +{_local(high)}"
                allowed = "an order by number"
                yield low, Broken(subject=f"+{_local(low)}", found=found, allowed=allowed)


def _groups(wheels: tuple[WheelFacts, ...]) -> Iterator[tuple[WheelFacts, ...]]:
    """The wheels of one project and public version, in the order given, where there are several."""
    groups: dict[tuple[str, str], list[WheelFacts]] = {}
    for one in wheels:
        if one.sound and one.name is not None:
            groups.setdefault((one.name.name, one.name.version.public), []).append(one)
    yield from (tuple(group) for group in groups.values() if len(group) > 1)


def _local(facts: WheelFacts) -> str | None:
    return facts.name.version.local if facts.name else None


def _version(facts: WheelFacts) -> Version:
    return facts.name.version if facts.name else Version("0")


def _differences(first: WheelFacts, one: WheelFacts) -> Iterator[Broken]:
    variants = _local(first) != _local(one)
    torches = variants and _torch(first) != _torch(one)
    for field in _FIELDS if torches else (*_FIELDS, "requires_python"):
        wanted, found = (str(getattr(facts.metadata, field)) for facts in (first, one))
        if wanted != found:
            yield _difference(first, field.replace("_", "-").title(), found, wanted)
    wanted_needs, needs = (_requirements(facts, variants=variants) for facts in (first, one))
    for need in sorted(needs - wanted_needs):
        yield _difference(first, "Requires-Dist", need, "not there")
    for need in sorted(wanted_needs - needs):
        yield _difference(first, "Requires-Dist", "not there", need)


def _difference(first: WheelFacts, field: str, found: str, wanted: str) -> Broken:
    return Broken(subject=field, found=found, allowed=f"{wanted}, as in {first.file}")


def _torch(facts: WheelFacts) -> frozenset[str]:
    return frozenset(
        str(need.specifier)
        for need in facts.requires_dist
        if canonicalize_name(need.name) == "torch"
    )


def _requirements(facts: WheelFacts, *, variants: bool) -> frozenset[str]:
    """What the wheel requires, without what its variant explains."""
    return frozenset(
        str(need)
        for need in facts.requires_dist
        if not (variants and canonicalize_name(need.name).split("-")[0] in _VARIANT)
    )
