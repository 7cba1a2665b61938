"""The fair queue by itself: no engine, no process."""

from __future__ import annotations

import itertools
import random

from engine.fair_queue import FairQueue


def queue_of(**lines: str) -> FairQueue[str]:
    """A queue with a letter an item; the lines in the order of their sessions' first words."""
    queue: FairQueue[str] = FairQueue()
    for session, items in lines.items():
        for item in items:
            queue.add(session, item)
    return queue


def taken(queue: FairQueue[str]) -> str:
    """All of it, in the order in which it is taken."""
    items = ""
    while (item := queue.first(lambda _: True)) is not None:
        queue.take(item)
        items += item
    return items


def test_sessions_take_turns_each_in_its_own_order() -> None:
    assert taken(queue_of(greedy="abcd", modest="x")) == "axbcd"
    assert taken(queue_of(one="ab", two="xyz", three="k")) == "axkbyz"


def test_the_order_is_told_before_it_comes() -> None:
    for seed in range(50):
        chance = random.Random(seed)
        items = iter("abcdefghijklmnop")
        lines = {str(number): "".join(itertools.islice(items, chance.randint(0, 4))) for number in range(4)}
        queue = queue_of(**lines)
        assert "".join(queue.order()) == taken(queue)


def test_what_two_sessions_wait_for_is_taken_once_at_the_earlier_place() -> None:
    queue = queue_of(one="abs", two="s")
    assert queue.order() == ["a", "s", "b"]
    assert (queue.length(), queue.length("one"), queue.length("two"), queue.length("three")) == (4, 3, 1, 0)
    assert taken(queue) == "asb"
    assert queue.length() == 0


def test_leaving_one_line_or_all() -> None:
    queue = queue_of(one="as", two="s")
    queue.remove("s", "two")
    assert queue.order() == ["a", "s"]
    queue.remove("s")
    queue.remove("s")
    assert taken(queue) == "a"


def test_one_that_begins_again_is_the_next_of_its_session() -> None:
    queue = queue_of(one="ab", two="x")
    queue.add("two", "again", first=True)
    queue.add("two", "x")  # it is there already
    assert taken(queue) == "aagainbx"


def test_what_is_not_ready_lets_others_pass_and_keeps_its_turn() -> None:
    queue = queue_of(one="ab", two="x")
    assert queue.first(lambda item: item != "a") == "b"  # of the same session
    assert queue.first(lambda item: item not in "ab") == "x"
    assert queue.first(lambda _: False) is None
    assert queue.order() == ["a", "x", "b"]  # nothing was taken
    queue.take("b")
    assert taken(queue) == "xa"
