"""Rules for torch pins: the releases that they name, and what each kind of pin asks of them."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import Version

from wheelfab import facts
from wheelfab.facts import AbiKind, TorchRelease
from wheelfab.legality.draft import Flaw, PinDraft
from wheelfab.suggest import did_you_mean, joined
from wheelfab.versions import ranged, series


def torch_known(draft: PinDraft) -> Iterator[Flaw]:
    """Rule ``torch-known``."""
    pin = draft.pin
    source = f"torch releases known in {facts.as_of('torch')}"
    if not facts.torch_series(pin.series):
        known = tuple(dict.fromkeys(str(release.series) for release in facts.torch_releases()))
        hint = did_you_mean(str(pin.series), known)
        yield Flaw(
            where=draft.at(), what=f"no torch {pin.series} is known", next_step=hint, source=source
        )
        return
    named = [(draft.at("run-on", at), version) for at, version in enumerate(pin.run_on)]
    if "headers" in draft.own and pin.kind is AbiKind.STABLE:
        named.insert(0, (draft.at("headers"), pin.headers))
    if "lowest" in draft.own and pin.kind is AbiKind.CLASSIC:
        named.insert(0, (draft.at("lowest"), pin.lowest))
    for where, version in named:
        if facts.torch_release(version) is None:
            yield Flaw(
                where=where,
                what=f"no torch {version} is known",
                next_step=_releases_like(version),
                source=source,
            )


def pin_lowest(draft: PinDraft) -> Iterator[Flaw]:
    """Rule ``pin-lowest``."""
    pin = draft.pin
    if series(pin.lowest) != pin.series:
        known = [release.version for release in facts.torch_series(pin.series)]
        closest = known[-1 if pin.lowest > pin.series else 0] if known else f"{pin.series}.0"
        yield Flaw(
            where=draft.at("lowest"),
            what=f"{pin.lowest} is not of the series {pin.series}",
            next_step=f"use {closest}",
        )
    if "headers" in draft.own:
        yield Flaw(
            where=draft.at("headers"),
            what=f"a series is built against its lowest release, here {pin.lowest}",
            next_step="take it out, or change lowest",
        )


def pin_stable(draft: PinDraft) -> Iterator[Flaw]:
    """Rule ``pin-stable``."""
    pin, first = draft.pin, facts.stable_abi_first()
    if pin.series < first:
        yield Flaw(
            where=draft.at(),
            what=f"torch {pin.series} has no stable ABI",
            next_step=f'use "stable >= {first}"',
        )
    if series(pin.headers) < pin.series:
        yield Flaw(
            where=draft.at("headers"),
            what=f"{pin.headers} is older than the target {pin.series}",
            next_step=f"use {pin.lowest}",
        )
    if "lowest" in draft.own:
        yield Flaw(
            where=draft.at("lowest"),
            what=f"a stable pin allows {pin.series} and all later releases",
            next_step="take it out",
        )


def pin_run_on(draft: PinDraft) -> Iterator[Flaw]:
    """Rule ``pin-run-on``."""
    pin = draft.pin
    if series(pin.lowest) != pin.series or facts.torch_release(pin.lowest) is None:
        return
    for at, version in enumerate(pin.run_on):
        if version not in pin.requirement:
            yield Flaw(
                where=draft.at("run-on", at),
                what=f"{version} does not satisfy {ranged(pin.requirement)}",
                next_step=f"use {_nearest_allowed(draft)}",
            )


def _nearest_allowed(draft: PinDraft) -> str:
    allowed = [
        release.version
        for release in facts.torch_releases()
        if release.version in draft.pin.requirement
    ]
    return str(allowed[0] if allowed else draft.pin.lowest)


def _releases_like(version: Version) -> str:
    """The releases of the same series or, where there is none, the newest release."""
    same: tuple[TorchRelease, ...] = facts.torch_series(series(version))
    if same:
        return f"use {joined(str(release.version) for release in same).replace(' and ', ' or ')}"
    return f"the newest known is {facts.torch_releases()[-1].version}"
