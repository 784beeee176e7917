"""Which functions of a library run without the processor having been asked what it is.

From what can be called from outside we follow every reference: a function's calls, jumps and the
addresses that it names, and from data what the loader writes into it. A function that asks is not
followed: what only such functions lead to, a table of kernels as well as a function that is called
behind a test, is dispatched.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from wheelfab.audit.layout import Layout


@dataclass(kw_only=True, slots=True)
class Function:
    """A function from ``start`` to ``end``, and what a sweep over it found.

    ``counts`` and ``examples``: of its instructions, by level from 2 on. ``refers``: the addresses
    that it names; ``writes``: those of them that it writes to. ``asks``: by ``cpuid``, ``xgetbv``.
    """

    start: int
    end: int
    counts: dict[int, int] = field(default_factory=dict)
    examples: dict[int, str] = field(default_factory=dict)
    refers: set[int] = field(default_factory=set)
    writes: set[int] = field(default_factory=set)
    asks: bool = False


def open_functions(functions: Sequence[Function], layout: Layout) -> Iterator[Function]:
    """The functions that are reached by a way on which none asks; ``functions`` are in order.

    Data have no borders in a stripped file: what is named by an address is taken to reach to the
    next address that anything names.
    """
    graph = _Graph(functions, layout)
    asking = graph.asking()
    seen: set[int] = set()
    left = list(layout.roots)
    while left:
        address = left.pop()
        function = graph.at(address)
        here = function.start if function else address
        if here in seen:
            continue
        seen.add(here)
        if function is None:
            left += graph.written(address)
        elif here not in asking:
            left += function.refers
    return (one for one in functions if one.start in seen)


class _Graph:
    def __init__(self, functions: Sequence[Function], layout: Layout) -> None:
        self.functions, self.layout = functions, layout
        self._starts = [one.start for one in functions]
        named = {place for one in functions for place in one.refers}
        named |= {target for _, target in layout.slots} | layout.roots
        self._bases = sorted(place for place in named if self.at(place) is None)

    def at(self, address: int) -> Function | None:
        """The function that the address lies in."""
        number = bisect.bisect_right(self._starts, address) - 1
        if number < 0 or address >= self.functions[number].end:
            return None
        return self.functions[number]

    def written(self, address: int) -> Iterator[int]:
        """What the loader writes into the data that begin at ``address``."""
        following = bisect.bisect_right(self._bases, address)
        end = self._bases[following] if following < len(self._bases) else 1 << 64
        slots = self.layout.slots
        first, last = (bisect.bisect_left(slots, (place,)) for place in (address, end))
        return (target for _, target in slots[first:last])

    def asking(self) -> set[int]:
        """The starts of the functions that ask, that call one that does, or read its answer."""
        asked = {one.start for one in self.functions if one.asks}
        answers = {
            place
            for one in self.functions
            if one.asks
            for place in one.writes
            if any(start <= place < end for start, end in self.layout.variables)
        }
        return asked | {
            one.start
            for one in self.functions
            if not asked.isdisjoint(one.refers) or not answers.isdisjoint(one.refers - one.writes)
        }
