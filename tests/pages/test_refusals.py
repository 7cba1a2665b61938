"""Refusals: each rule of an experiment is told in every language, and nothing that was given becomes Markdown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from engine.experiments import EXPERIMENTS
from engine.experiments.multi_worker import MULTI_WORKER
from engine.program import render
from engine.settings import Problem, SettingsError
from engine.versions import Versions
from lessons import COMPARISONS, LESSONS
from lessons.language import LANGUAGES, Language, Texts
from pages.parts.address import problem_text
from pages.parts.markdown import code
from tests.pages.test_app import app

ENGINE = Path(__file__).parents[2] / "engine"
OLD = Versions("2.4.1", "2.4.0")  # without tf_keras, and ParameterServerStrategy only as an experiment
# Rule -> experiment and settings that break it.
BROKEN: dict[str, tuple[str, Mapping[str, str]]] = {
    "count": ("aggregation", {"gradients": "1,2,3"}),
    "whole": ("aggregation", {"dtype": "int32", "gradients": "1,2.5"}),
    "fit_calls_run": ("scope_placement", {"loop": "fit", "step": "direct"}),
    "no_tf_keras": ("fit", {"keras": "tf_keras"}),
    "one_of_the_workers": ("sync_replicas", {"workers": "2", "kill_worker": "3"}),
    "no_parameter_server": ("multi_worker", {"strategy": "parameter_server"}),
    "kind": ("variable_scope", {"operations": "scope:s,make:v"}),
    "bare_close": ("variable_scope", {"operations": "scope:s,close:s"}),
    "name": ("variable_scope", {"operations": "scope:x"}),
    "options": ("variable_scope", {"operations": "op:v:shape=1"}),
    "depth": ("variable_scope", {"operations": "scope:s,scope:s,scope:s,scope:s"}),
    "nothing_open": ("variable_scope", {"operations": "op:v,close"}),
    "not_captured": ("variable_scope", {"operations": "scope:@s"}),
    "operations": ("variable_scope", {"operations": ",".join(["op:v"] * 9)}),
}
EVIL = "![](//evil.example/a.png) <b>x</b> [y](//evil.example) $z$ `` ` \n\n# heading"


def problem_of(experiment: str, given: Mapping[str, str]) -> Problem:
    model: Any = EXPERIMENTS[experiment].settings
    with pytest.raises(SettingsError) as caught:
        render(EXPERIMENTS[experiment], model.parse(given), OLD)
    (problem,) = caught.value.problems
    return problem


def texts_of(experiment: str, language: Language) -> Texts:
    """Of who shows that experiment: a lesson, or Versions; MULTI_WORKER is a tab of a lesson."""
    if experiment == MULTI_WORKER.name:
        experiment = "sync_replicas"
    return next(each for each in (*LESSONS, *COMPARISONS) if each.experiment.name == experiment).texts(language)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("rule", BROKEN)
def test_a_rule_is_told_in_every_language(rule: str, language: Language) -> None:
    experiment, given = BROKEN[rule]
    problem = problem_of(experiment, given)
    assert problem.rule == rule
    said = problem_text(problem, EXPERIMENTS[experiment].settings, texts_of(experiment, language))
    assert problem.setting in said
    assert problem.allowed not in said  # which is for the command line
    assert bool(re.search("[\u4e00-\u9fff]", said)) == (language == "zh")


def test_every_rule_is_among_these() -> None:
    """Read from the source: a rule is named where it is raised."""
    source = "".join(file.read_text() for file in [ENGINE / "settings.py", *(ENGINE / "experiments").glob("*.py")])
    named = re.findall(r'RuleError\([^,()]+(?:\.name)?, "(\w+)"', source) + re.findall(r'_refused\("(\w+)"', source)
    named += re.findall(r'allowed, "(\w+)", values\)', source)
    assert set(named) == set(BROKEN)


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_setting_says_what_it_accepts_in_every_language(experiment: str) -> None:
    model = EXPERIMENTS[experiment].settings
    for setting in model.declared():
        for language in LANGUAGES:
            problem = Problem(setting.name, EVIL, setting.allowed)
            assert "{" not in problem_text(problem, model, texts_of(experiment, language))


def outside_code(markdown: str) -> str:
    return "".join(markdown.split("`")[::2])


@pytest.mark.parametrize("text", [EVIL, "", " ", "`", "a`b", "\n"])
def test_code_can_not_be_left(text: str) -> None:
    written = code(text)
    assert written.count("`") == 2
    assert outside_code(written) == ""
    assert "\n" not in written
    assert written.strip("`")


@pytest.mark.usefixtures("pages_engine")
@pytest.mark.parametrize(
    ("page", "query"),
    [
        ("aggregation", {"replicas": EVIL, "gradients": EVIL, "hide": EVIL, "tf": EVIL, "held": f"steps={EVIL}"}),
        ("variable_scope", {"operations": f"op:v,{EVIL}", "lang": EVIL, "tf_with_keras": EVIL}),
    ],
)
def test_what_an_address_says_never_becomes_markdown(page: str, query: dict[str, str]) -> None:
    test = app(f"pages/{page}.py", **query)
    said = [each.value for each in [*test.warning, *test.error]]
    assert len(said) >= len(query) - 1  # `lang` is told once, on the way through Home
    for text in said:
        assert not set("<>[]!$") & set(outside_code(text)), text
        assert "\n" not in text
