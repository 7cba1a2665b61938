"""Which settings of SyncReplicasOptimizer go right, and what fixes the others, against a game of tokens played here."""

from __future__ import annotations

import itertools
import random
from collections import deque
from typing import Any

import pytest

from engine.experiments.sync_replicas import SyncReplicasSettings
from lessons.sync_replicas.fix import goes_right, smallest_change

COUNTS = (1, 2, 3, 4, 8)  # of replicas; workers are at most 4
ORDERS = 40


def given(**settings: Any) -> dict[str, Any]:
    return SyncReplicasSettings.parse(settings).model_dump(mode="json")


def trains(settings: dict[str, Any], order: random.Random) -> bool:
    """One run of one SyncReplicasOptimizer, as its source has it, in this order of events: False where it is refused,
    or nothing can move any more before the last step."""
    workers, needed = settings["workers"], settings["replicas_to_aggregate"]
    replicas, dies = settings["total_num_replicas"], (settings["kill_worker"], settings["kill_step"])
    if settings["tokens"] == "zero" and needed > replicas:
        return False
    tokens = deque([0] * {"hook": needed, "zero": 0, "twice": 2 * needed, "none": 0}[settings["tokens"]])
    updates = held = 0
    local_steps, made = [0] * workers, [0] * workers
    pushing, waiting = set(range(workers)), set[int]()
    haste = [order.random() ** 3 for _ in range(workers)]
    while updates < settings["steps"]:
        movable = sorted(pushing | (waiting if tokens else set()))
        update = held >= needed and settings["tokens"] != "none" and (0 in pushing | waiting)
        if not movable and not update:
            return False
        if update and (not movable or order.random() < 0.5):
            updates, held = updates + 1, 0
            tokens.extend([updates] * max(needed, replicas))
            continue
        if not movable:
            continue
        (worker,) = order.choices(movable, [haste[each] for each in movable])
        if worker in waiting:
            local_steps[worker] = tokens.popleft()
            waiting.remove(worker)
            pushing.add(worker)
            continue
        pushing.remove(worker)
        made[worker] += 1
        if (worker, made[worker]) != dies:
            held += local_steps[worker] >= updates
            waiting.add(worker)
    return True


def grid() -> list[dict[str, Any]]:
    found = []
    for workers, needed, replicas, tokens in itertools.product(
        range(1, 5), COUNTS, COUNTS, ("hook", "zero", "twice", "none")
    ):
        killed: list[dict[str, Any]] = [{}]
        killed += [{"kill_worker": workers - 1, "kill_step": step} for step in (1, 2, 3)]
        found += [
            given(workers=workers, replicas_to_aggregate=needed, total_num_replicas=replicas, tokens=tokens, **kill)
            for kill in killed
        ]
    return found


GRID = grid()


def test_what_goes_right_goes_right_in_every_order_and_the_rest_in_some_does_not() -> None:
    for settings in GRID:
        orders = [trains(settings, random.Random(number)) for number in range(ORDERS)]
        if goes_right(settings):
            assert all(orders), settings
        else:
            assert not all(orders), settings


def test_a_change_that_is_offered_makes_it_go_right_in_every_order() -> None:
    offered = 0
    for settings in GRID:
        change = smallest_change(settings)
        if change is None:
            assert settings["kill_worker"] == 0, settings  # nobody takes a dead chief's place
        elif change:
            offered += 1
            changed = given(**{**settings, **change})
            assert all(trains(changed, random.Random(number)) for number in range(ORDERS)), (settings, change)
            for name in change:  # no part of it is too much
                assert not goes_right({**settings, **{key: change[key] for key in change if key != name}})
    assert offered > 100


@pytest.mark.parametrize(
    ("settings", "change"),
    [
        ({}, {}),
        ({"workers": 1, "tokens": "zero", "replicas_to_aggregate": 2, "total_num_replicas": 2}, {"tokens": "hook"}),
        ({"tokens": "zero", "total_num_replicas": 1}, {"tokens": "hook"}),
        ({"tokens": "none"}, {"tokens": "hook"}),
        ({"kill_worker": 0}, None),
        ({"workers": 3, "kill_worker": 2}, {"replicas_to_aggregate": 2}),
        # One of 3 workers may die where 2 are needed; but not where an update puts in 2 tokens, and one goes with it.
        (
            {"workers": 3, "kill_worker": 2, "replicas_to_aggregate": 2, "total_num_replicas": 2},
            {"total_num_replicas": 3},
        ),
        ({"workers": 3, "kill_worker": 2, "total_num_replicas": 2}, {"total_num_replicas": 4}),
        ({"optimizers": 2}, {"global_step": "composite"}),
        ({"optimizers": 2, "tokens": "none"}, {"tokens": "hook", "global_step": "composite"}),
        ({"optimizers": 2, "tokens": "first_hook_only"}, {"global_step": "composite"}),
        (
            {"optimizers": 2, "global_step": "own", "kill_worker": 1},
            {"replicas_to_aggregate": 1, "global_step": "composite"},
        ),
        ({"sync": "no", "optimizers": 2}, {"global_step": "composite"}),
        ({"sync": "no", "optimizers": 2, "global_step": "article", "kill_worker": 0, "tokens": "none"}, {}),
    ],
    ids=str,
)
def test_what_is_offered(settings: dict[str, Any], change: dict[str, Any] | None) -> None:
    assert smallest_change(given(**settings)) == change
