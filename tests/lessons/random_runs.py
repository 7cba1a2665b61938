"""Random settings that a lesson's experiment accepts, for runs that are over soon."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, Final

from engine.settings import Setting, Settings, SettingsError
from lessons.lesson import AnyLesson
from tests.lessons.test_variable_scope_fix import random_operations

# How many runs of a lesson: clusters and training take seconds, the others a fraction of one.
COUNT: Final = 16
COUNTS: Final = {"aggregation": 24, "variable_scope": 24, "scaling": 4, "placement": 3, "sync_replicas": 3}
ALL: Final = 5  # times as many where everything is tested
KEPT: Final = 0.5  # how often a setting stays at its default
Draw = Callable[[random.Random], Any]


def _one_of(*values: Any) -> Draw:
    return lambda chance: chance.choice(values)


# In place of any value that is accepted: few steps, and rates with which rounding stays rounding.
DRAWN: Final[Mapping[str, Mapping[str, Draw]]] = {
    "aggregation": {
        "steps": _one_of(1, 1, 2, 3), "learning_rate": _one_of(0.1, 0.5, 1, 2, 2.5), "clipnorm": _one_of(None, None, 1),
        "devices": _one_of("cpu"),
    },
    "scaling": {
        "steps": _one_of(4, 8, 12), "warmup": _one_of(1, 4, 20), "learning_rate": _one_of(0.01, 0.03, 0.1),
        "per_replica_batch": _one_of(1, 2, 5, 8, 16), "last_batch": _one_of("drop", "keep", "keep_counted"),
    },
    "scope_placement": {"steps": _one_of(1, 2, 3), "replicas": _one_of(1, 2, 3), "learning_rate": _one_of(0.1, 0.5)},
    "sync_replicas": {
        "steps": _one_of(1, 2, 4), "learning_rate": _one_of(0.1), "momentum": _one_of(0.0),
        "kill_worker": _one_of(None, None, 0, 1), "kill_step": _one_of(1, 2),
    },
    "variable_scope": {"operations": random_operations},
}  # fmt: skip


def random_settings(lesson: AnyLesson, chance: random.Random) -> Settings:
    """Each setting at its default, or at any value it accepts, as often; what does not go together is drawn again."""
    model = lesson.experiment.settings
    draws = {setting.name: _draw(lesson, setting) for setting in model.declared()}
    always = {"operations", "steps"}
    while True:
        drawn = {
            name: draw(chance) for name, draw in draws.items() if draw and (name in always or chance.random() > KEPT)
        }
        try:
            settings: Settings = model.parse(drawn)
        except SettingsError:
            continue
        return settings


def _draw(lesson: AnyLesson, setting: Setting) -> Draw | None:
    own = DRAWN.get(lesson.name, {}).get(setting.name)
    if own is not None or setting.kind in ("numbers", "words"):
        return own
    if setting.kind == "choice":
        return _one_of(*setting.choices)
    low, high = setting.minimum or 0, setting.maximum or 0
    if setting.kind == "integer":
        return lambda chance: chance.randint(int(low), int(high))
    return lambda chance: round(chance.uniform(low, high), 3)
