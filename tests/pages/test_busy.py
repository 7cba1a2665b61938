"""What a page says where the server has no room, or was started with a limit that is none (AppTest)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from engine.engine import Engine
from engine.request import Request
from engine.warm import WarmState
from lessons.language import SHARED, Language, Texts
from pages.parts import engine as shared
from pages.parts import running

ROOT = Path(__file__).parents[2]


def test_a_limit_that_is_none_is_told_to_whoever_opens_the_app(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPLICA_LAB_SLOTS", "many")
    monkeypatch.setattr(shared, "shared_engine", Engine)
    test = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60).run()
    assert not test.exception
    (error,) = test.error
    assert error.value == r"REPLICA\_LAB\_SLOTS: 'many' was given; allowed: a whole number from 1 to 1024"


@pytest.mark.parametrize(
    ("waits_for", "language", "text"),
    [
        ("slots", "en", "Waiting for a free core: 2 before you."),
        ("memory", "en", "Waiting for memory: the runs under way hold what this server has. 2 before you."),
        ("memory", "zh", "正在等待内存：正在进行的运行占满了服务器可用的内存。前面还有 2 个。"),
    ],
)
def test_a_run_that_waits_says_for_what(waits_for: str, language: Language, text: str) -> None:
    """A run that has two others before it."""
    engine: Any = SimpleNamespace(state=lambda *_: WarmState("ready"))
    ticket: Any = SimpleNamespace(place=2, waits_for=waits_for)
    said, _, _ = running._notice(engine, ticket, Request.of("aggregation", {}), Texts(SHARED, language))
    assert said == text
