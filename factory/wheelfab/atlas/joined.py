"""One answer of the several libraries of a wheel, on one release of torch."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from wheelfab.atlas.answer import Answer, Verdict

_WORST_FIRST = (Verdict.FAILS, Verdict.UNKNOWN, Verdict.LOADS)


@dataclass(frozen=True, kw_only=True, slots=True)
class Joined:
    """The verdict, and the answers that made it, by library."""

    verdict: Verdict
    by: Mapping[str, Answer]

    @property
    def disagree(self) -> bool:
        """Whether some load and some fail: they may be alternatives, one of which is loaded."""
        return len({item.verdict for item in self.by.values()}) > 1

    @property
    def reason(self) -> str:
        """Why: of each verdict, the library that lacks most, and how many others say so too."""
        return ("its libraries disagree: " if self.disagree else "") + _reasons(self.by)


def join(answers: Mapping[str, Answer], mute: Collection[str] = ()) -> Joined:
    """The answer of the worst, or where some load and some fail, that nothing tells.

    ``mute`` ones want no symbol: that they would load says nothing beside others.
    """
    telling = {
        name: item
        for name, item in answers.items()
        if name not in mute or item.verdict is not Verdict.LOADS
    } or dict(answers)
    verdicts = {item.verdict for item in telling.values()}
    if {Verdict.LOADS, Verdict.FAILS} <= verdicts:
        return Joined(verdict=Verdict.UNKNOWN, by=telling)
    worst = next(one for one in _WORST_FIRST if one in verdicts)
    return Joined(
        verdict=worst,
        by={name: item for name, item in telling.items() if item.verdict is worst},
    )


def _reasons(answers: Mapping[str, Answer]) -> str:
    if len({item.reason for item in answers.values()}) == 1:
        return next(iter(answers.values())).reason
    parts = []
    for verdict in sorted({item.verdict for item in answers.values()}):
        same = {name: item for name, item in answers.items() if item.verdict is verdict}
        name = max(same, key=lambda name: len(same[name].missing))
        others = f" and {len(same) - 1} more" if len(same) > 1 else ""
        parts.append(f"{name}{others}: {same[name].reason}")
    return "; ".join(parts)
