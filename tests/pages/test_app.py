"""The pages as scripts (AppTest), always from app.py: what they show for what is chosen, in both languages."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from streamlit.testing.v1 import AppTest

from engine.experiments.aggregation import AggregationSettings
from lessons import LESSONS
from lessons.language import LANGUAGES

ROOT = Path(__file__).parents[2]


pytestmark = pytest.mark.usefixtures("pages_engine")


def app(page: str | None = "pages/aggregation.py", locale: str = "en-US", **query: str | list[str]) -> AppTest:
    """A visit that begins at a page's own link; without one, at Home. Through app.py either way."""
    test = AppTest.from_file(str(ROOT / "app.py"), default_timeout=240)
    if page is not None:
        test.switch_page(page)
    test.context["locale"] = locale
    for name, value in query.items():
        test.query_params[name] = value
    test.run()
    assert not test.exception, test.exception
    return test


def copies(test: AppTest, name: str = "figure-now") -> list[str]:
    """The values that the figure's copies hold at the end, as they are written there."""
    return re.findall(r"→ <b[^>]*>([^<]+)</b>", drawn(test, name))


def drawn(test: AppTest, name: str = "figure-now") -> str:
    """The figure as it is at first, as JSON text."""
    (figure,) = [element for element in test.get("plotly_chart") if f"-{name}" in element.proto.id]
    spec = json.loads(figure.proto.spec)
    spec.pop("frames", None)
    return json.dumps(spec, ensure_ascii=False)


def test_the_web_process_never_imports_tensorflow() -> None:
    """Not with the pages, not with the lessons, not with the engine."""
    script = (
        "import sys\n"
        "from streamlit.testing.v1 import AppTest\n"
        "test = AppTest.from_file('app.py', default_timeout=60).run().switch_page('pages/aggregation.py').run()\n"
        "assert not test.exception, test.exception\n"
        "assert test.get('plotly_chart')\n"
        "print([name for name in ('tensorflow', 'keras', 'streamlit', 'plotly') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "['streamlit', 'plotly']", done.stderr[-2000:]


def test_rooms_do_not_look_into_each_other() -> None:
    """engine/ knows neither Streamlit nor Plotly nor lessons; lessons/ knows no Streamlit."""
    for folder, forbidden in (("engine", "streamlit|plotly|lessons|pages"), ("lessons", "streamlit|pages")):
        for file in (ROOT / folder).rglob("*.py"):
            assert not re.search(rf"^\s*(import|from) ({forbidden})\b", file.read_text(), re.MULTILINE), file


@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
def test_home(locale: str) -> None:
    test = app(page=None, locale=locale)
    assert len(test.title) == 1
    assert len(test.markdown) >= 3
    assert test.get("plotly_chart")
    links = {link.proto.page for link in test.get("page_link")}
    assert links == {*(lesson.name for lesson in LESSONS), "versions"}
    (begin,) = test.button
    begin.click().run()
    assert not test.exception


def test_toggling_aggregation() -> None:
    """1 + 0.1 and 1 + 0.2: own, sum, mean, first."""
    test = app()
    for option, expected in (
        ("NONE", ["1.1", "1.2"]),
        ("SUM", ["1.3", "1.3"]),
        ("MEAN", ["1.15", "1.15"]),
        ("ONLY_FIRST_REPLICA", ["1.1", "1.1"]),
    ):
        test.segmented_control(key="aggregation").set_value(option).run()
        assert not test.exception
        assert copies(test) == expected


@pytest.mark.parametrize(
    ("route", "synchronization", "under_mean"),
    [
        ("assign_add", "AUTO", "What the replicas give is averaged."),
        ("optimizer", "AUTO", "the optimizer adds the gradients"),
        ("cross_replica", "AUTO", "the one call stands outside the replicas"),
        ("optimizer", "ON_READ", "A read outside the replicas averages the copies"),
    ],
)
def test_the_line_under_an_option_follows_the_route(route: str, synchronization: str, under_mean: str) -> None:
    lines = [line.value for line in app(aggregation="MEAN", route=route, synchronization=synchronization).caption]
    assert [under_mean in line for line in lines].count(True) == 1
    assert any("averaged." in line for line in lines) == (route == "assign_add")


def test_every_setting_has_a_control() -> None:
    test = app()
    for setting in AggregationSettings.declared():
        test.get_by_key(setting.name)
    test.slider(key="replicas").set_value(4).run()
    test.selectbox(key="route").set_value("optimizer").run()
    assert copies(test) == ["0"] * 4  # 1 - (0.1 + 0.2 + 0.3 + 0.4)


def test_a_link_reopens_the_page() -> None:
    test = app(aggregation="SUM", replicas="3", gradients="1,2,4", steps="2")
    assert copies(test) == ["15"] * 3  # 1 + 2 * (1 + 2 + 4)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"replicas": "99"}, ["replicas", "99", "1 to 8"]),
        ({"aggregation": "FOO"}, ["aggregation", "FOO", "ONLY_FIRST_REPLICA"]),
        ({"replicas": ["3", "4"]}, ["replicas", "3 & 4", "1 to 8"]),
        ({"held": "replicas=99"}, ["replicas", "99", "1 to 8"]),
    ],
)
def test_nonsense_in_the_url_is_told(query: dict[str, Any], said: list[str]) -> None:
    test = app(**query)
    (warning,) = test.warning
    for part in said:
        assert part in warning.value
    assert copies(test)  # and the page works all the same


def test_what_is_not_of_this_app_is_ignored_and_an_option_understood_in_any_case() -> None:
    test = app(utm_source="list", aggregation="sum", held="aggregation=mean&from=mail")
    assert not test.warning
    assert copies(test, "figure-held") == ["1.15", "1.15"]
    assert copies(test, "figure-now") == ["1.3", "1.3"]


def test_the_warning_goes_with_the_next_choice() -> None:
    test = app(replicas="99")
    assert test.warning
    test.segmented_control(key="aggregation").set_value("SUM").run()
    assert not test.warning


def test_gradients_that_do_not_fit_are_told_and_not_run() -> None:
    test = app()
    test.text_input(key="gradients").set_value("1,2,3").run()
    (error,) = test.error
    assert "1,2,3" in error.value
    assert not test.get("plotly_chart")
    test.text_input(key="gradients").set_value("1,2").run()
    assert copies(test) == ["2", "3"]


@given(
    st.dictionaries(
        st.sampled_from([*AggregationSettings.model_fields, "held", "lang", "hide", "x"]),
        st.text(st.characters(blacklist_categories=["Cs"]), max_size=30)
        | st.sampled_from(["1", "2", "SUM", "none", "0"]),
        max_size=4,
    )
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_url_gives_a_page(query: dict[str, str]) -> None:
    app(**query)  # asserts that no exception is shown


def test_an_error_of_tensorflow_is_a_result() -> None:
    test = app(aggregation="SUM", value="python")
    assert "ValueError" in drawn(test)
    assert not test.error
    assert any("raised" in element.proto.body for element in test.get("html"))


def test_compare_holds_a_run_and_reset_lets_go() -> None:
    test = app(aggregation="SUM")
    test.toggle(key="compare").set_value(True).run()
    test.segmented_control(key="aggregation").set_value("MEAN").run()
    assert copies(test, "figure-held") == ["1.3", "1.3"]
    assert copies(test, "figure-now") == ["1.15", "1.15"]
    assert test.query_params["held"] == "aggregation=SUM"
    next(button for button in test.button if button.label == "Reset").click().run()
    assert "held" not in test.query_params
    assert copies(test) == ["1.1", "1.2"]


def test_the_code_tab_marks_what_the_last_toggle_changed() -> None:
    test = app()
    test.segmented_control(key="aggregation").set_value("MEAN").run()
    (program,) = [element.proto.body for element in test.get("html") if 'class="program"' in element.proto.body]
    (marked,) = re.findall(r'<span class="line changed"[^\n]*?(?=<span class="line"|$)', program)
    assert "VariableAggregation" in marked
    assert "MEAN" in marked


@pytest.mark.parametrize("language", LANGUAGES)
def test_language_by_url_and_by_switch(language: str) -> None:
    """The question of the page in the chosen language, whatever the browser's is, and back."""
    other = next(candidate for candidate in LANGUAGES if candidate != language)
    locale = {"en": "en-GB", "zh": "zh-CN"}
    by_browser = app(locale=locale[language]).title[0].value
    by_url = app(locale=locale[other], lang=language)
    assert by_url.title[0].value == by_browser
    by_url.segmented_control(key="language").set_value(other).run()
    assert by_url.title[0].value != by_browser
    assert by_url.query_params["lang"] == other


def test_a_teacher_can_hide_parts() -> None:
    test = app(hide="controls,tabs,story", aggregation="MEAN")
    assert not test.selectbox
    assert not test.tabs
    assert copies(test) == ["1.15", "1.15"]
