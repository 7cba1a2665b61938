"""Versions on the pages (AppTest): where only the app's own TensorFlow is, recordings are shown, and say so."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from engine.engine import Engine
from engine.experiments import EXPERIMENTS
from engine.experiments.aggregation import AGGREGATION
from engine.recordings import Recordings
from engine.runtimes import Runtime
from lessons.language import LANGUAGES
from tests.engine.processes import until
from tests.pages.conftest import pages_get
from tests.pages.test_app import app, copies, drawn

pytestmark = pytest.mark.usefixtures("pages_engine")
MISSING = ("2.4.1", "2.5.0", "2.15.1")


@pytest.fixture(scope="module")
def alone(engine: Engine, tensorflow: Runtime) -> Iterator[Engine]:
    """An engine as on a fresh clone: nothing but the app's own TensorFlow."""
    if list(engine.runtimes) == [tensorflow.name]:
        yield engine
        return
    with Engine({tensorflow.name: tensorflow}) as other:
        other.warm_up()
        yield other


@pytest.fixture
def pages_engine(alone: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """What the pages of this file get."""
    yield from pages_get(alone, monkeypatch)


def open_tab(test: AppTest, name: str) -> AppTest:
    test.session_state["tab"] = name
    test.run()
    assert not test.exception, test.exception
    return test


def texts(test: AppTest) -> str:
    """All that a page says in Markdown, captions, badges and tables."""
    said = [element.value for element in (*test.markdown, *test.caption, *test.info, *test.warning)]
    tables = [cell for table in test.table for column in table.value.to_dict("list").values() for cell in column]
    return "\n".join([*said, *map(str, tables)])


def grid(test: AppTest) -> str:
    (found,) = [element.proto.body for element in test.get("html") if 'class="grid"' in element.proto.body]
    return str(found)


@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
@pytest.mark.parametrize(
    ("page", "query"),
    [
        ("pages/aggregation.py", {"tf": "2.4.1"}),
        ("pages/scope_placement.py", {"tf": "2.5.0", "step": "direct", "apply_scope": "out"}),
        ("pages/scope_placement.py", {"tf": "2.15.1", "model_scope": "out"}),
        ("pages/versions.py", {}),
        ("pages/versions.py", {"view": "direct"}),
        ("pages/versions.py", {"view": "timeline"}),
        ("pages/versions.py", {"view": "choice"}),
        ("pages/versions.py", {"view": "choice", "experiment": "fit"}),
        ("pages/status.py", {}),
    ],
)
def test_every_page_works_without_any_other_version(locale: str, page: str, query: dict[str, str]) -> None:
    test = app(page, locale, **query)
    assert not test.error
    said = texts(test) + "".join(element.proto.body for element in test.get("html"))
    if "tf" in query:
        made = Recordings().made_with(EXPERIMENTS[Path(page).stem])[query["tf"]]
        assert f"{made.date}" in said
    elif page == "pages/versions.py":
        assert {"en-US": "recorded", "zh-CN": "录制"}[locale] in said
    else:
        assert all(version in said for version in MISSING)


# ------------------------------------------------------------------------------------------------- a lesson


@pytest.mark.parametrize("version", MISSING)
def test_a_recording_says_that_it_is_one(version: str) -> None:
    test = app(tf=version, aggregation="MEAN")
    assert copies(test) == ["1.15", "1.15"]
    provenance = Recordings().made_with(AGGREGATION)[version]
    said = texts(test)
    assert f"recorded {provenance.date}, {provenance.platform}" in said
    assert f"TensorFlow {version}" in said
    assert f"`python -m engine runtimes install {version}`" in said
    assert "ran live" not in said


def test_the_own_version_runs_live() -> None:
    said = texts(app(aggregation="MEAN"))
    assert "ran live" in said
    assert "recorded" not in said


def test_what_was_not_recorded_is_not_guessed() -> None:
    test = app(tf="2.4.1", gradients="0.1,0.7")
    assert not test.get("plotly_chart")
    (info,) = test.info
    assert "`python -m engine runtimes install 2.4.1`" in info.value
    assert "2.4.1" in info.value


def test_the_program_is_the_recorded_one() -> None:
    """Keras's way to tell an optimizer that gradients are summed already was another one."""
    new, old = (
        next(
            element.proto.body
            for element in app(route="optimizer_unsummed", **more).get("html")
            if "program" in element.proto.body
        )
        for more in ({}, {"tf": "2.4.1"})
    )
    assert "skip_gradients_aggregation" in new
    assert "experimental_aggregate_gradients" in old


def test_the_control_is_the_url() -> None:
    test = app(aggregation="SUM")
    control = test.segmented_control(key="version")
    assert [option.split()[0] for option in control.options][:3] == list(MISSING)
    own = control.value
    control.set_value("2.5.0").run()
    assert (test.query_params["tf"], test.query_params["aggregation"]) == ("2.5.0", "SUM")
    assert copies(test) == ["1.3", "1.3"]
    test.segmented_control(key="aggregation").set_value("MEAN").run()
    assert test.query_params["tf"] == "2.5.0"
    test.segmented_control(key="version").set_value(own).run()
    assert "tf" not in test.query_params
    test.segmented_control(key="version").set_value("2.4.1").run()
    next(button for button in test.button if button.label == "Reset").click().run()
    assert "tf" not in test.query_params
    assert test.segmented_control(key="version").value == own


@pytest.mark.parametrize(("tf", "shown"), [("2.4", "2.4.1"), ("2.15.1", "2.15.1"), ("2.21", None)])
def test_the_beginning_of_a_version_will_do(tf: str, shown: str | None) -> None:
    test = app(tf=tf)
    assert not test.warning
    assert shown is None or test.segmented_control(key="version").value == shown


@pytest.mark.parametrize(
    "query", [{"tf": "2.9"}, {"tf": "nonsense"}, {"tf_with_keras": "2.1"}, {"tf": "2.4.1", "tf_with_keras": "3.4.1"}]
)
def test_a_version_that_is_not_there_is_told(query: dict[str, str]) -> None:
    test = app(**query)
    (warning,) = test.warning
    assert list(query.values())[-1] in warning.value
    assert "`2.4.1`" in warning.value
    assert copies(test) == ["1.1", "1.2"]


def test_a_held_run_keeps_its_version() -> None:
    test = app("pages/scope_placement.py", tf="2.4.1", model_scope="out")
    test.toggle(key="compare").set_value(True).run()
    assert test.query_params["held"] == "model_scope=out&tf=2.4.1"
    test.segmented_control(key="version").set_value("2.15.1").run()
    assert "`tf=2.4.1`" in texts(test)
    assert "`tf=2.15.1`" in texts(test)
    assert "ValueError" in drawn(test, "figure-held")


def test_an_experiment_that_a_version_cannot_run_says_so() -> None:
    """tf_keras stands beside the newest TensorFlow only."""
    test = app("pages/scope_placement.py", tf="2.15.1", keras="tf_keras")
    assert test.info or test.error
    assert not test.exception


# ------------------------------------------------------------------------------------------------- side by side


def rows(test: AppTest) -> list[dict[str, str]]:
    (table,) = test.table
    found: list[dict[str, str]] = table.value.to_dict("records")
    return found


def test_the_versions_tab_runs_only_when_it_is_looked_at() -> None:
    test = app("pages/scope_placement.py", model_scope="out")
    assert not test.table
    open_tab(test, "Versions")
    found = rows(test)
    assert [re.sub(r"\[([\d.]+)\].*", r"\1", row["TensorFlow"]) for row in found][:3] == list(MISSING)
    assert all("ValueError" in row["Outcome"] for row in found)
    (shown,) = [row for row in found if "shown here" in row.values()]
    (beside,) = [name for name in shown if name.startswith("Compared with ")]
    assert ["differs" in row[beside] for row in found] == [True, True, False, False, False]
    assert ["recorded" in row["Where it ran"] for row in found] == [True, True, True, False, False]
    assert "scope_placement?model_scope=out&tf=2.4.1" in found[0]["TensorFlow"]


def test_side_by_side_what_was_not_recorded_says_how_to_get_it() -> None:
    test = open_tab(app(gradients="0.1,0.7"), "Versions")
    found = rows(test)
    assert "not recorded" in found[0]["Outcome"]
    assert "python -m engine runtimes install 2.4.1" in found[0]["Where it ran"]
    assert "1.1, 1.7" in found[-1]["Outcome"]


@pytest.mark.parametrize("name", ["variable_scope", "placement", "sync_replicas"])
def test_one_choice_of_any_experiment(name: str) -> None:
    """As they are by default, these come to the same on every version, wherever it ran."""
    found = rows(app("pages/versions.py", view="choice", experiment=name))
    assert "2.21" in found[-1]["TensorFlow"]
    assert len({row["Outcome"] for row in found if "not recorded" not in row["Outcome"]}) == 1


def test_one_choice() -> None:
    test = app("pages/versions.py", view="choice", step="direct", apply_scope="out", optimizer="sgd", mode="function")
    heads = [row["Outcome"] for row in rows(test)]
    assert "no handle" in heads[0]
    assert "one replica only" in heads[1]
    test.segmented_control(key="choice-experiment").set_value("fit").run()
    assert not test.exception
    assert "step" not in test.query_params
    found = rows(test)
    assert len(found) > 8
    assert (
        "weight 0.8574, 0.4219 after epoch 3, not 0.6141"
        in next(row for row in found if "3.4.1" in row["Keras"])["Outcome"]
    )
    test.slider(key="epochs").set_value(1).run()
    assert test.query_params["epochs"] == "1"
    test.segmented_control(key="choice-experiment").set_value("aggregation").run()
    assert "epochs" not in test.query_params
    assert not test.exception


# ------------------------------------------------------------------------------------------------- matrices, time line


def test_the_matrix() -> None:
    test = app("pages/versions.py")
    found = grid(test)
    assert found.count("<a href=") == 80
    assert found.count('class="mark"') == 48  # three of five versions are recorded
    link = "scope_placement?model=sequential_deferred&amp;model_scope=out&amp;optimizer_scope=out&amp;tf=2.4.1"
    assert link in found
    # Before Keras 3 the two models that have their weights at once raise, made outside; Keras 3 raises wherever its
    # optimizer is outside, and for these two models inside.
    assert found.count('class="raised"') == 4 * 4 + 8 + 2
    test.segmented_control(key="choice-mode").set_value("function").run()
    assert test.query_params["mode"] == "function"
    assert "Placeholder not fed" in grid(test)
    test.segmented_control(key="choice-view").set_value("direct").run()
    assert dict(test.query_params) == {"view": "direct"}
    direct = grid(test)
    assert direct.count("<a href=") == 60
    assert "one replica only" in direct
    assert 'class="right"' not in direct


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_link_of_the_matrix_keeps_the_language(language: str) -> None:
    assert f"lang={language}" in grid(app("pages/versions.py", lang=language))


def test_the_time_line_is_drawn_from_recordings() -> None:
    test = app("pages/versions.py", view="timeline")
    assert "0.8574" in drawn(test, "timeline")
    assert "3.4.1" in texts(test)
    assert "replica 0’s share alone" in texts(test)


def test_status(alone: Engine) -> None:
    assert until(lambda: alone.state().name == "ready", 120)
    test = app("pages/status.py")
    values = {metric.label: metric.value for metric in test.metric}
    assert values["Limit"] == str(alone.slots)
    parents, versions = test.table
    assert len(parents.value) == 1
    assert "MiB" in str(parents.value.to_dict("records"))
    (state,) = alone.parents()
    assert state.info is not None
    network = {"loopback": "Runs have no network but loopback", "host": "Runs share this machine's network"}
    assert any(caption.value.startswith(network[state.info.network]) for caption in test.caption)
    said = str(versions.value.to_dict("records"))
    for version in (*MISSING, "1.15.5", "2.21.0+keras-3.4.1"):
        assert version in said
