"""What the story says: the right branch, with numbers computed here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from engine.trace import Event, Trace
from lessons.aggregation.reading import read
from lessons.aggregation.story import ERRORS, explanation, what_happened
from lessons.language import LANGUAGES, Language, Texts
from tests.lessons.traces import cut, trace

LESSON = Path(__file__).parents[2] / "lessons" / "aggregation"


def sentences_of(run: Trace, language: Language = "en") -> list[str]:
    return what_happened(read(run), run, Texts(LESSON, language))


def test_mean() -> None:
    assert sentences_of(trace([1.15, 1.15], aggregation="MEAN")) == [
        "The 2 replicas contribute 0.1 and 0.2.",
        "`aggregation=MEAN` averages them, so every copy gets 0.15.",
        "`weight.assign_add` takes every copy from 1 to 1.15.",
        "The SUM counter says 2 after 1 step, because each of the 2 replicas adds 1 in every step: as a step "
        "count it is wrong, while MEAN and ONLY_FIRST_REPLICA are right.",
    ]


def test_mean_in_chinese() -> None:
    sentences = sentences_of(trace([1.15, 1.15], aggregation="MEAN"), "zh")
    assert sentences[0] == "2 个副本分别贡献 0.1 和 0.2。"
    assert "0.15" in sentences[1]
    assert "从 1 变为 1.15" in sentences[2]


def test_none_drifts_and_nothing_is_raised() -> None:
    sentences = sentences_of(trace([1.1, 1.2], [1.2, 1.4], steps=2))
    assert "in each of 2 steps" in sentences[0]
    assert "nothing is merged" in sentences[1]
    assert sentences[2] == "The copies now differ, 1.2 and 1.4, and TensorFlow raises no error."
    assert sentences[-1] == "Smallest change: `aggregation=SUM`."


def test_first_names_what_is_not_used() -> None:
    sentences = sentences_of(trace([1.1] * 3, gradients=[0.1, 0.2, 0.3], aggregation="ONLY_FIRST_REPLICA"))
    assert sentences[1].endswith("takes replica 0's 0.1 for every copy and does not use 0.2 and 0.3.")


def test_an_optimizer_sums_and_says_why() -> None:
    # 0.1 + 0.2 = 0.3; 1 - 0.5 * 0.3 = 0.85
    sentences = sentences_of(trace([0.85, 0.85], route="optimizer", learning_rate=0.5, aggregation="MEAN"))
    assert sentences[1] == "SGD adds the gradients to 0.3 and moves every copy by −0.5 × 0.3 = −0.15."
    assert sentences[2].startswith("`aggregation=MEAN` was not asked")
    assert "all_reduce(ReduceOp.SUM)" in sentences[2]
    assert sentences[3] == "`optimizer.apply_gradients` takes every copy from 1 to 0.85."
    assert "`optimizer.iterations` are right" in sentences[4]


def test_ambiguous_numbers_are_called_so() -> None:
    sentences = sentences_of(trace([1.2, 1.2], gradients=[0.2, 0.2], aggregation="MEAN"))
    assert "the mean, the first and each one's own alike" in sentences[1]
    assert "cannot tell" in sentences[1]


def test_a_read_adds_what_an_optimizer_kept_equal() -> None:
    settings: dict[str, Any] = {"route": "optimizer", "synchronization": "ON_READ", "aggregation": "SUM"}
    sentences = sentences_of(trace([0.7, 0.7], reads=[1.4], **settings))
    assert any("adds the copies and gives 1.4" in sentence for sentence in sentences)
    assert not any("was not asked" in sentence for sentence in sentences)


def test_outside_the_replicas() -> None:
    sentences = sentences_of(trace([1.1, 1.2], route="cross_replica", aggregation="SUM"))
    assert "hands each device's copy the number of its own replica" in sentences[1]
    assert "The counters say 1" in sentences[3]


def test_a_plain_number_of_a_call_outside_the_replicas_is_passed_once() -> None:
    run = trace([1.1, 1.1], gradients=[0.1, 0.1], route="cross_replica", value="python")
    assert sentences_of(run)[:2] == [
        "One call outside the replicas passes the plain Python number 0.1.",
        "There `aggregation` is not asked: every copy gets 0.1 as it is.",
    ]
    assert not any("replica passes" in sentence for sentence in sentences_of(run))


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_sum_that_is_cut_is_told_with_what_a_read_gives(language: Language) -> None:
    """3 / 2 = 1.5, cut to 1; 1 + 1 = 2."""
    settings: dict[str, Any] = {"route": "cross_replica", "update": "assign", "synchronization": "ON_READ"}
    settings |= {"aggregation": "SUM", "dtype": "int32", "value": "python", "gradients": [3.0, 3.0]}
    story = sentences_of(trace([1, 1], reads=[2], **settings), language)
    for part in ("on_read_assign_cross_replica", "1.5", "int32"):
        assert part in story[1]
    assert ("a read gives 2, not 3" if language == "en" else "读取时得到 2，而不是 3") in story[1]
    assert ("leaves every copy at 1" if language == "en" else "每份拷贝仍是 1") in story[2]
    assert "`dtype=float32`" in story[-1]


@pytest.mark.parametrize(
    ("gradients", "steps", "told"),
    [
        ([0.1, 0.2, 0.4], 1, "The 3 replicas contribute 0.1, 0.2 and 0.4."),
        ([0.2, 0.2], 1, "Each of the 2 replicas contributes 0.2."),
        ([0.2], 1, "The one replica contributes 0.2."),
        ([0.1, 0.2], 2, "The 2 replicas contribute 0.1 and 0.2. It happens in each of 2 steps."),
    ],
)
def test_who_sent_what_follows_counts(gradients: list[float], steps: int, told: str) -> None:
    copies = [[1 + step * sum(gradients)] * len(gradients) for step in range(1, steps + 1)]
    assert sentences_of(trace(*copies, gradients=gradients, steps=steps, aggregation="SUM"))[0] == told


def test_the_lost_replica() -> None:
    run = trace([0.7] * 3, gradients=[0.1, 0.2, 0.3], route="optimizer", cross_device="hierarchical_copy")
    sentence = sentences_of(run)[1]
    assert "0.6, and gets 0.3" in sentence
    assert "two groups of 1" in sentence
    assert "the last, with 0.3" in sentence


def test_odd_counters_are_told() -> None:
    run = trace([1.15, 1.15], aggregation="MEAN")
    events: list[Event] = [{**event, "value": 7.0} if event.get("counter") == "MEAN" else event for event in run.events]
    assert sentences_of(Trace(tuple(events)))[3] == (
        "The counters do not say what was expected: MEAN 7/7 instead of 1."
    )


# Messages of TensorFlow 2.21 and Keras 3.15, as runs raised them.
MESSAGES = {
    "python_sum": "A non-DistributedValues value 0.1 cannot be reduced with the given reduce op ReduceOp.SUM.",
    "python_zero": "'float' object has no attribute 'shape'",
    "python_optimizer": "'float' object has no attribute 'dtype'",
    "cross_mirrored": "Expected value to be mirrored across replicas: PerReplica:{ 0: tf.Tensor(0.1, shape=()",
    "mean_int": "creating distributed tf.Variable with aggregation=MEAN and a non-floating dtype is not "
    "supported, please use a different aggregation or dtype",
    "read_none": "Could not convert from `tf.VariableAggregation` VariableAggregationV2.NONE to"
    "`tf.distribute.ReduceOp` type",
    "cross_sum": "SyncOnReadVariable does not support `assign_add` in cross-replica context when aggregation "
    "is set to `tf.VariableAggregation.SUM`.",
    "cross_values": "'PerReplica' object has no attribute 'dtype'",
    "unsummed": "BaseOptimizer.apply_gradients() got an unexpected keyword argument 'skip_gradients_aggregation'",
    "whole_norm": "Value for attr 'T' of int32 is not in the list of allowed values: bfloat16, half, float, double, "
    "complex64, complex128\n\t; NodeDef: {{node Sqrt}}; Op<name=Sqrt; signature=x:T -> y:T;",
    "no_kernel": "No registered 'ResourceApplyGradientDescent' OpKernel for 'CPU' devices compatible with node",
    "no_gpu": "tf.config.list_physical_devices finds no GPU on this machine",
}


def test_every_explanation_has_a_message_here() -> None:
    assert set(MESSAGES) == {name for _, name in ERRORS}


# Settings with which each was raised, and the least that helps.
FIXES: dict[str, tuple[dict[str, Any], str]] = {
    "python_sum": ({"aggregation": "SUM", "value": "python"}, "`value=tensor`"),
    "python_zero": ({"aggregation": "MEAN", "value": "python", "gradients": [0.0, 0.1]}, "`value=tensor`"),
    "python_optimizer": ({"route": "optimizer", "value": "python"}, "`value=tensor`"),
    "mean_int": ({"aggregation": "MEAN", "dtype": "int32", "gradients": [1.0, 2.0]}, "`dtype=float32`"),
    "read_none": ({"synchronization": "ON_READ"}, "`aggregation=SUM`"),
    "cross_sum": (
        {"route": "cross_replica", "update": "assign_sub", "synchronization": "ON_READ", "aggregation": "SUM"},
        "`route=assign_sub`",
    ),
    "cross_values": (
        {"route": "cross_replica", "update": "assign", "synchronization": "ON_READ"},
        "{route} and {aggregation}",
    ),
    "cross_mirrored": ({"route": "cross_replica", "aggregation": "MEAN"}, "`route=assign_add`"),
    "unsummed": ({"route": "optimizer_unsummed"}, "`route=optimizer`"),
    "whole_norm": ({"route": "optimizer", "dtype": "int32", "gradients": [1, 2], "clipnorm": 1.0}, "`dtype=float32`"),
    "no_kernel": ({"route": "optimizer", "dtype": "int32", "gradients": [1.0, 2.0]}, "`dtype=float32`"),
    "no_gpu": ({"devices": "gpu", "aggregation": "SUM"}, "`devices=cpu`"),
}


@pytest.mark.parametrize(("name", "message"), MESSAGES.items())
@pytest.mark.parametrize("language", LANGUAGES)
def test_an_error_is_explained_and_fixed(name: str, message: str, language: Language) -> None:
    assert explanation(message) == name
    settings, fix = FIXES[name]
    run = trace(error=("ValueError", message), **settings)
    sentences = sentences_of(run, language)
    assert len(sentences) == 4  # what was sent, where, why, the change
    assert "`ValueError`" in sentences[1]
    assert "41" in sentences[1]
    both = {"en": "`aggregation=SUM` and `route=assign`", "zh": "`aggregation=SUM` 和 `route=assign`"}[language]
    change = both if "{" in fix else fix
    assert sentences[3] == {"en": f"Smallest change: {change}.", "zh": f"最小的改动：{change}。"}[language]


def test_division_of_a_value_per_replica_is_the_same_mistake() -> None:
    assert explanation("unsupported operand type(s) for /: 'PerReplica' and 'int'") == "cross_values"
    assert explanation(
        "Cannot convert `input_tensor` to a `PerReplica` object because it doesn't have device set."
    ) == ("python_optimizer")
    assert explanation("Attempt to convert a value (PerReplica:{ 0: <tf.Tensor: shape=()") == "cross_values"


def test_a_failed_read_says_that_the_copies_changed() -> None:
    run = trace([1.1, 1.2], reads=[], error=("ValueError", MESSAGES["read_none"]), synchronization="ON_READ")
    assert "The copies changed, but the read failed" in sentences_of(run)[-2]
    # raised inside the call itself, before any copy was reported
    run = trace(error=("ValueError", MESSAGES["read_none"]), synchronization="ON_READ", route="cross_replica")
    assert "The call ends with a read" in sentences_of(run)[-2]


def test_an_unknown_error_is_quoted_as_code_and_not_too_long() -> None:
    sentence = sentences_of(trace(error=("RuntimeError", "a `tick`\nand " + "x" * 1000)))[2]
    assert sentence.startswith("TensorFlow's own words: `a 'tick' and xxx")
    assert sentence.endswith("…`")
    assert len(sentence) < 300


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("status", ["timeout", "killed", "cancelled"])
def test_a_stopped_run_says_how_far_it_came(status: str, language: Language) -> None:
    whole = trace([1.1, 1.2], [1.2, 1.4], steps=20)
    for length in range(1, len(whole.events)):
        sentences = sentences_of(cut(whole, length, status), language)
        assert 1 <= len(sentences) <= 5
    assert re.search(r"\b2\b.*\b20\b|20 步中完成了 2 步", sentences[-1])


GRID: list[tuple[list[list[float]], dict[str, Any]]] = [
    ([[1.1, 1.2]], {}),
    ([[1.3, 1.3]], {"aggregation": "SUM"}),
    ([[1.1]], {"gradients": [0.1]}),
    ([[1.1, 1.1]], {"gradients": [0.1, 0.1], "value": "python", "aggregation": "MEAN"}),
    ([[1.6, 1.7]], {}),
    ([[1.6, 1.6]], {}),
    ([[0.7, 0.7], [0.4, 0.4]], {"route": "optimizer", "steps": 2}),
    ([[0.9, 0.8]], {"route": "optimizer_unsummed"}),
    ([[0.9]], {"route": "optimizer", "gradients": [0.1]}),
    ([[0.8, 0.8]], {"route": "optimizer", "gradients": [0.2, 0.0]}),
    ([[-0.5, -0.5]], {"route": "optimizer", "gradients": [3.0, 0.5], "clipnorm": 1.0}),
    ([[0.0, 0.0]], {"route": "optimizer", "gradients": [3.0, 0.5], "clipnorm": 1.0}),
    ([[0.0]], {"route": "optimizer", "gradients": [3.0], "clipnorm": 1.0}),
    ([[-4.0, -4.0]], {"route": "optimizer", "gradients": [3.0, 0.5], "clipnorm": 1.0}),
    ([[-4.0, -7.0]], {"route": "optimizer"}),
    ([[1, 1]], {"route": "optimizer", "gradients": [1, 2], "learning_rate": 0.1, "dtype": "int32"}),
    ([[-5, -5]], {"route": "optimizer", "gradients": [1, 2], "learning_rate": 2.5, "dtype": "int32"}),
    ([[1.1, 1.1]], {"route": "cross_replica", "gradients": [0.1, 0.1], "value": "python"}),
    ([[1.9, 1.9]], {"route": "cross_replica"}),
    ([[1.1, 1.2]], {"synchronization": "ON_READ"}),
    ([[1.1, 1.1]], {"synchronization": "ON_READ", "gradients": [0.1, 0.1]}),
    ([[1.1]], {"synchronization": "ON_READ", "gradients": [0.1]}),
    ([[1.3, 1.3]], {"synchronization": "ON_READ"}),
    ([[1.1, 1.1]], {"synchronization": "ON_READ", "gradients": [0.1, 0.1], "route": "cross_replica"}),
    (
        [[0.05, 0.05]],
        {"synchronization": "ON_READ", "gradients": [0.1, 0.1], "route": "cross_replica", "update": "assign"},
    ),
]


@pytest.mark.parametrize(("copies", "settings"), GRID)
@pytest.mark.parametrize("language", LANGUAGES)
def test_every_branch_has_its_words_and_keeps_short(
    copies: list[list[float]], settings: dict[str, Any], language: Language
) -> None:
    for read_value in (copies[-1][0], sum(copies[-1]), sum(copies[-1]) / len(copies[-1]), 99.0):
        sentences = sentences_of(trace(*copies, reads=[read_value] * len(copies), **settings), language)
        assert 2 <= len(sentences) <= 6
        for sentence in sentences:
            assert "{" not in sentence
            assert "None" not in sentence
            assert sentence.endswith("." if language == "en" else "。")
            assert sentence.count("`") % 2 == 0
