"""The archive is sound, and RECORD, METADATA and WHEEL say what is in it."""

from __future__ import annotations

from collections.abc import Iterator

from wheelfab.archive import Flaw, FlawKind
from wheelfab.audit.facts import WheelFacts
from wheelfab.audit.policy import Policy
from wheelfab.audit.record import Severity
from wheelfab.audit.rules.registry import Broken, Outcome, rule

_BUILD_AGAIN = "build it again; a wheel is never renamed or edited after it was built"


def _of(facts: WheelFacts, allowed: str, *kinds: FlawKind) -> Iterator[Outcome]:
    for flaw in facts.flaws:
        if flaw.kind in kinds:
            yield _broken(facts, flaw, allowed)


def _broken(facts: WheelFacts, flaw: Flaw, allowed: str) -> Broken:
    return Broken(subject=flaw.where or facts.file, found=flaw.what, allowed=allowed)


@rule(
    "archive-zip",
    severity=Severity.ERROR,
    about="""A wheel is one whole zip archive of stored or deflated members, with no bytes before,
    after or between them. A file that was cut off while it was copied, or damaged on its way, is
    found here: every member is unpacked and its checksum compared.""",
    next_step="build or download it again",
    unsound=True,
)
def _zip(facts: WheelFacts, _: Policy) -> Iterator[Outcome]:
    kinds = FlawKind.NOT_A_ZIP, FlawKind.TRUNCATED, FlawKind.STRAY_BYTES
    yield from _of(facts, "a whole zip archive", *kinds, FlawKind.UNREADABLE, FlawKind.DAMAGED)
