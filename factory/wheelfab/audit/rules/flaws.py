"""Flaws that reading the wheel found, as what a rule found."""

from __future__ import annotations

from collections.abc import Iterator

from wheelfab.archive import FlawKind
from wheelfab.audit.facts import WheelFacts
from wheelfab.audit.rules.registry import Broken


def broken_by(facts: WheelFacts, allowed: str, *kinds: FlawKind) -> Iterator[Broken]:
    """The flaws of those kinds; ``allowed`` says what would be right."""
    for flaw in facts.flaws:
        if flaw.kind in kinds:
            yield Broken(subject=flaw.where or facts.file, found=flaw.what, allowed=allowed)
