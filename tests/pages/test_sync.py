"""The page of SyncReplicasOptimizer as a script (AppTest): its buttons, what follows from what, and the URL."""

from __future__ import annotations

import re

import pytest
from streamlit.testing.v1 import AppTest

from engine.engine import Engine
from engine.job import Ticket
from engine.request import Request
from lessons.sync_replicas.lesson import SLOW
from tests.pages.test_app import app, drawn

pytestmark = pytest.mark.usefixtures("pages_engine")
PAGE = "pages/sync_replicas.py"
# No run of these is waited for where only controls are looked at: hooks are what fails fastest.
REFUSED = {"optimizers": "2", "global_step": "article"}
ALIKE = "-1.5,-1.5"  # whose gradients an average has does not matter then


def sync_app(locale: str = "en-US", **query: str | list[str]) -> AppTest:
    return app(PAGE, locale, **query)


def queried(test: AppTest) -> dict[str, str]:
    return {name: test.query_params[name] for name in test.query_params if name != "lang"}


@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
def test_a_run_is_shown_and_told(locale: str) -> None:
    test = sync_app(locale, steps="2", tokens="zero", gradients=ALIKE)
    figure = drawn(test)
    # Two updates of 0.1 times 1.5.
    assert "= 0.3" in figure
    assert "worker:1" in figure
    said = " ".join(each.value for each in test.markdown)
    assert "global_step" in said


def opened(test: AppTest, tab: str) -> AppTest:
    test.session_state["tab"] = tab
    test.run(timeout=180)
    assert not test.exception, test.exception
    return test


def column(test: AppTest, name: str) -> list[str]:
    """The cells of the table under this heading."""
    (table,) = test.table
    return [str(cell) for cell in table.value[name]]


@pytest.mark.parametrize(
    ("locale", "tab", "now", "before", "steps"),
    [
        ("en-US", "What replaced it", "conv, today: gradients Σ sum → value",
         "conv, SyncReplicas: gradients ⌀ average → value", "2 steps used all 4 gradients"),
        ("zh-CN", "现在怎么写", "conv，现在：梯度 Σ 总和 → 值",
         "conv，SyncReplicas：梯度 ⌀ 平均 → 值", "2 步用上了全部 4 个梯度"),
    ],
)  # fmt: skip
def test_what_replaced_it_tells_what_was_applied(locale: str, tab: str, now: str, before: str, steps: str) -> None:
    """Of 2 workers each divides its loss by 2: gradients of -1 and -2 are applied as -0.5 and -1, at a rate of 0.1."""
    test = opened(sync_app(locale, steps="2", tokens="zero"), tab)
    applied = [-1 / 2, -2 / 2]
    weights = [0.1 * -sum(applied) * step for step in (1, 2)]
    minus = "\u2212"
    assert column(test, now) == [f"{minus}0.5, {minus}1 Σ {minus}1.5 → {weight:g}" for weight in weights]
    assert len(column(test, before)) == 2
    assert steps in " ".join(each.value for each in test.markdown)
    programs = [re.sub(r"<[^>]+>", "", each.proto.body) for each in test.get("html")]
    assert any("strategy = tf.distribute.MultiWorkerMirroredStrategy()" in program for program in programs)


def test_what_replaced_it_can_be_the_other_strategy_beside_asynchronous_training() -> None:
    test = opened(sync_app(steps="3", workers="1", sync="no"), "What replaced it")
    test.segmented_control(key="successor").set_value("parameter_server").run(timeout=180)
    assert not test.exception, test.exception
    # One worker: each gradient is -1, and moves conv by 0.1; of the other's values only the last is seen.
    assert column(test, "conv, today: gradient → value") == ["\u22121 → –", "\u22121 → –", "\u22121 → 0.3"]
    assert column(test, "conv, asynchronous: gradient → value")[-1] == "\u22121 → 0.3"
    told = " ".join(each.value for each in test.markdown)
    assert "A chief hands out 3 steps" in told
    assert "nothing averaged, nothing dropped" in told


def test_a_fix_of_two_changes_makes_both() -> None:
    test = sync_app(steps="1", tokens="none", optimizers="2", global_step="article")
    assert "ValueError" in drawn(test)
    test.button(key="fix").click().run(timeout=120)
    assert queried(test) == {"steps": "1", "optimizers": "2", "global_step": "composite"}  # the hook is the default
    assert "✓ 1 update, and global_step is 1" in drawn(test)


def test_the_usual_recipe_is_refused_and_mended() -> None:
    test = sync_app(steps="2", gradients=ALIKE, **REFUSED)
    assert "ValueError" in drawn(test)
    assert any("Global step is required to check staleness" in code.value for code in test.code)
    test.button(key="fix").click().run()
    assert queried(test) == {"steps": "2", "gradients": ALIKE, "optimizers": "2", "global_step": "composite"}
    # Two rounds: conv by 0.1, fc_w by 1, each times 1.5; the first tokens' round is lost.
    assert "= 0.3" in drawn(test)
    assert "= 3" in drawn(test)


def test_with_fewer_workers_nothing_is_said_of_one_that_is_gone() -> None:
    test = sync_app(workers="3", kill_worker="2", **REFUSED)
    test.slider(key="workers").set_value(2).run()
    assert not test.exception
    assert not test.error
    assert test.query_params.get("kill_worker") is None
    assert test.slider(key="replicas_to_aggregate").value == 2
    assert "ValueError" in drawn(test)


def test_what_was_left_out_follows_the_workers_and_what_was_chosen_stays() -> None:
    test = sync_app(**REFUSED)
    test.slider(key="workers").set_value(3).run()
    assert test.slider(key="replicas_to_aggregate").value == 3
    assert test.slider(key="total_num_replicas").value == 3
    assert test.query_params["workers"] == "3"
    assert "replicas_to_aggregate" not in test.query_params
    test.slider(key="replicas_to_aggregate").set_value(2).run()  # the default of two workers, but not of three
    assert test.query_params["replicas_to_aggregate"] == "2"
    test.slider(key="workers").set_value(4).run()
    assert test.slider(key="replicas_to_aggregate").value == 2
    assert test.slider(key="total_num_replicas").value == 4
    again = sync_app(**queried(test))
    assert again.slider(key="replicas_to_aggregate").value == 2
    assert again.slider(key="total_num_replicas").value == 4


def test_one_click_slows_a_worker_and_one_kills_it() -> None:
    test = sync_app(**REFUSED)
    test.button(key="action-slow-worker:1").click().run()
    assert test.query_params["delays"] == f"0.05,{SLOW}"
    test.button(key="action-kill-worker:0").click().run()
    assert test.query_params["kill_worker"] == "0"
    test.button(key="action-usual-worker:1").click().run()
    assert "delays" not in test.query_params
    test.button(key="action-spare-worker:0").click().run()
    assert queried(test) == REFUSED


def test_a_list_of_delays_is_cut_to_the_workers() -> None:
    test = sync_app(workers="3", delays="0.05,0.1,0.3", **REFUSED)
    test.slider(key="workers").set_value(2).run()
    assert test.text_input(key="delays").value == "0.05, 0.1"
    assert not test.error


def test_nonsense_in_the_url_is_told_and_the_page_goes_on() -> None:
    test = sync_app(workers="9", kill_worker="x", delays="1,2,3", **REFUSED)
    said = " ".join(each.value for each in [*test.warning, *test.error])
    for name in ("workers", "kill_worker", "delays"):
        assert name in said


def test_a_prediction_covers_the_run() -> None:
    test = sync_app(predict="first", **REFUSED)
    assert not test.get("plotly_chart")
    test.button(key="predict-right").click().run()
    assert "ValueError" in drawn(test)
    assert test.warning


def test_a_run_stays_until_it_is_run_again(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run is another, so what only looks elsewhere (a tab, another language) does not start one."""
    asked: list[Request] = []
    submit = engine.submit

    def counted(request: Request, session: str = "") -> Ticket:
        asked.append(request)
        return submit(request, session)

    monkeypatch.setattr(engine, "submit", counted)
    test = sync_app(**REFUSED)
    begun = len(asked)
    test.run()
    assert len(asked) == begun
    test.button(key="run-again").click().run()
    assert len(asked) == begun + 1
    test.slider(key="steps").set_value(2).run()
    assert len(asked) == begun + 2
