"""One item ahead: order, errors, how far ahead, and what is left when the user of it stops."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event, current_thread

import pytest

from wheelfab.ahead import ahead


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_items_come_in_order(count: int) -> None:
    assert list(ahead(iter(range(count)))) == list(range(count))


def test_the_next_is_made_while_one_is_used_and_no_more() -> None:
    made, second = [], Event()

    def items() -> Iterator[int]:
        for number in range(5):
            made.append((number, current_thread()))
            if number == 1:
                second.set()
            yield number

    used = ahead(items())
    assert next(used) == 0
    assert second.wait(30)
    assert [number for number, _ in made] == [0, 1]
    assert current_thread() not in {thread for _, thread in made}
    assert list(used) == [1, 2, 3, 4]


def test_an_error_comes_where_its_item_would_have() -> None:
    def items() -> Iterator[int]:
        yield 1
        yield 2
        raise ValueError("the third")

    used = ahead(items())
    assert [next(used), next(used)] == [1, 2]
    with pytest.raises(ValueError, match="the third"):
        next(used)


def test_a_user_that_stops_leaves_no_thread_at_work() -> None:
    threads = set()

    def items() -> Iterator[int]:
        for number in range(1000):
            threads.add(current_thread())
            yield number

    used = ahead(items())
    next(used)
    used.close()  # type: ignore[attr-defined]  # a generator
    assert [thread.is_alive() for thread in threads] == [False]
