"""One item ahead: what is slow and lets go of the GIL runs beside what is done with it.

Inflating, hashing and reading files do; a second core is then of use without a second process.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")


def ahead(items: Iterator[Item]) -> Iterator[Item]:
    """The same items; each is made in a second thread while the one before it is being used.

    What ``items`` raises is raised where its item would have come. At most one item is waiting.
    """
    with ThreadPoolExecutor(max_workers=1) as worker:
        coming = worker.submit(_next, items)
        while found := coming.result():
            coming = worker.submit(_next, items)
            yield from found


def _next(items: Iterator[Item]) -> tuple[Item, ...]:
    """The next one in a tuple, an empty one at the end."""
    for item in items:
        return (item,)
    return ()
