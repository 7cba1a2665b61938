"""Versions: what a program is written for."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property


@dataclass(frozen=True)
class Versions:
    """What a program is written for. TensorFlow's own names differ in places from one version to another.

    `tf_keras` is Keras 2 beside TensorFlow's own Keras 3, where it is installed; `plotly` comes with real data.
    """

    tensorflow: str
    keras: str
    tf_keras: str | None = None
    plotly: str | None = field(default=None, compare=False)  # the same versions, whether there is data beside them

    @cached_property
    def keras_numbers(self) -> tuple[int, int]:
        """Keras's major and minor version: (3, 15)."""
        return _numbers(self.keras)

    @cached_property
    def tensorflow_numbers(self) -> tuple[int, int]:
        """TensorFlow's major and minor version: (2, 21)."""
        return _numbers(self.tensorflow)


def _numbers(version: str) -> tuple[int, int]:
    major, minor = re.findall(r"\d+", version)[:2]
    return int(major), int(minor)
