"""What a rule says of a call that touches the driver."""

from __future__ import annotations

from dataclasses import dataclass

from wheelfab.imports.record import Level, Rule

LATER = "move it into the function that needs it, or behind a getter with functools.cache"


@dataclass(frozen=True, kw_only=True, slots=True)
class Touch:
    """A rule that holds for a call: how sure, why it matters, what to do."""

    rule: Rule
    why: str
    next_step: str = LATER
    level: Level = Level.ERROR
    only: tuple[tuple[str, str], ...] = ()  # holds only with these releases: (package, range)
