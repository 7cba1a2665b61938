"""Settings: what is accepted is what is declared, in every form, and what is not is told clearly."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.experiments import EXPERIMENTS, UnknownExperimentError, find_experiment
from engine.experiments.aggregation import AggregationSettings
from engine.settings import Problem, Setting, Settings, SettingsError


def values_of(setting: Setting) -> st.SearchStrategy[Any]:
    if setting.kind == "choice":
        return st.sampled_from(setting.choices)
    assert setting.minimum is not None
    assert setting.maximum is not None
    if setting.kind == "integer":
        return st.integers(int(setting.minimum), int(setting.maximum))
    number = st.floats(setting.minimum, setting.maximum)
    return st.none() | number if setting.optional else number


@st.composite
def accepted(draw: st.DrawFn) -> dict[str, Any]:
    """Any choice of settings of `aggregation` that must be accepted."""
    chosen = {
        setting.name: draw(values_of(setting))
        for setting in AggregationSettings.declared()
        if setting.kind != "numbers" and draw(st.booleans())
    }
    if draw(st.booleans()):
        numbers = st.integers(-1000, 1000).map(float) if chosen.get("dtype") == "int32" else st.floats(-1000, 1000)
        replicas = chosen.get("replicas", 2)
        chosen["gradients"] = draw(st.lists(numbers, min_size=replicas, max_size=replicas))
    return chosen


@given(accepted())
@settings(deadline=None)
def test_every_form_gives_the_same_settings(chosen: dict[str, Any]) -> None:
    """Python values, the words of the command line and the URL, and only those that were changed."""
    settings = AggregationSettings.parse(chosen)
    assert AggregationSettings.parse(settings.to_words()) == settings
    assert AggregationSettings.parse(settings.to_words(changed_only=True)) == settings
    assert AggregationSettings.parse(settings.model_dump(mode="json")) == settings


@given(
    st.dictionaries(st.sampled_from([*AggregationSettings.model_fields, "x", ""]), st.text() | st.floats() | st.none())
)
@settings(deadline=None)
def test_nonsense_is_refused_or_valid_but_never_crashes(nonsense: dict[str, Any]) -> None:
    problems: tuple[Problem, ...] = ()
    try:
        settings = AggregationSettings.parse(nonsense)
        assert AggregationSettings.parse(settings.to_words()) == settings
    except SettingsError as error:
        problems = error.problems
    assert all(problem.setting in nonsense or problem.setting == "gradients" for problem in problems)
    assert all(problem.allowed for problem in problems)


@pytest.mark.parametrize(
    ("given_settings", "message"),
    [
        ({"replicas": "99"}, "replicas: '99' was given; allowed: a whole number 1-8"),
        ({"replicas": "0"}, "replicas: '0' was given; allowed: a whole number 1-8"),
        ({"replicas": "two"}, "replicas: 'two' was given; allowed: a whole number 1-8"),
        ({"replicas": "2.5"}, "replicas: '2.5' was given; allowed: a whole number 1-8"),
        ({"aggregation": "median"}, "aggregation: 'median' was given; allowed: NONE, SUM, MEAN, ONLY_FIRST_REPLICA"),
        ({"aggregation": ""}, "aggregation: '' was given; allowed: NONE, SUM, MEAN, ONLY_FIRST_REPLICA"),
        ({"learning_rate": "nan"}, "learning_rate: 'nan' was given; allowed: a number from 0.001 to 100"),
        ({"learning_rate": "none"}, "learning_rate: 'none' was given; allowed: a number from 0.001 to 100"),
        ({"clipnorm": "0"}, "clipnorm: '0' was given; allowed: a number from 0.001 to 1000, or none"),
        ({"\udcff": "1"}, "\udcff: '1' was given; allowed: the settings aggregation, route,"),
        ({"gradients": "1,2,3"}, "gradients: '1,2,3' was given; allowed: 2 numbers, one per replica, as replicas=2"),
        (
            {"replicas": "3", "gradients": "1"},
            "gradients: '1' was given; allowed: 3 numbers, one per replica, as replicas=3",
        ),
        (
            {"dtype": "int32", "gradients": "1,2.5"},
            "gradients: '1,2.5' was given; allowed: whole numbers, as dtype=int32",
        ),
        ({"gradients": "1,x"}, "gradients: '1,x' was given; allowed: numbers from -1000 to 1000, separated"),
        ({"gradients": "1,1001"}, "gradients: '1,1001' was given; allowed: numbers from -1000 to 1000, separated"),
        ({"colour": "red"}, "colour: 'red' was given; allowed: the settings aggregation, route,"),
    ],
)
def test_a_refusal_names_the_setting_what_was_given_and_what_is_allowed(
    given_settings: dict[str, str], message: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        AggregationSettings.parse(given_settings)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("word", ["SUM", "sum", "Sum", " sum "])
def test_an_option_is_understood_in_any_case(word: str) -> None:
    assert AggregationSettings.parse({"aggregation": word}).aggregation == "SUM"
    assert AggregationSettings.parse({"aggregation": "none"}).aggregation == "NONE"
    with pytest.raises(SettingsError):
        AggregationSettings.parse({"clipnorm": word})


class Colliding(Settings):
    """A setting with two options that differ by case only."""

    letter: Literal["a", "A", "b"] = "b"


def test_options_that_differ_by_case_only_are_taken_exactly() -> None:
    assert [Colliding.parse({"letter": word}).letter for word in ("a", "A", "b", "B")] == ["a", "A", "b", "b"]


def test_every_problem_is_told_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        AggregationSettings.parse({"replicas": "9", "steps": "0", "aggregation": "X"})
    assert {problem.setting for problem in caught.value.problems} == {"replicas", "steps", "aggregation"}


def test_a_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(SettingsError) as caught:
        AggregationSettings.parse({"replicas": "9" * 10_000})
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_defaults_are_accepted_and_need_no_words(experiment: Any) -> None:
    settings: Settings = experiment.settings()
    assert settings.to_words(changed_only=True) == {}
    assert list(settings.to_words()) == [setting.name for setting in experiment.settings.declared()]
    for setting in experiment.settings.declared():
        assert setting.allowed


def test_an_unknown_experiment_is_refused() -> None:
    with pytest.raises(UnknownExperimentError, match="'nope' was given; allowed: aggregation"):
        find_experiment("nope")


@pytest.mark.parametrize("nothing", ["", " ", "none", "None", " NONE ", None])
def test_a_list_that_is_left_out_follows_from_the_others(nothing: str | None) -> None:
    assert AggregationSettings.parse({"gradients": nothing, "replicas": 3}).gradients == (0.1, 0.2, 0.3)
