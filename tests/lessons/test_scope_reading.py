"""What a trace of `scope_placement` says. Every expected number is arithmetic on the gradients, written here."""

from __future__ import annotations

from typing import Any

import pytest

from engine.trace import Event, Trace
from lessons.scope_placement.reading import Update, read
from tests.lessons.scope_traces import APPLY, MIRRORED, PLAIN, scope_trace
from tests.lessons.traces import cut

# Two replicas with gradients 1 and 2, rate 0.1, momentum 0.9: the first step is -0.1 * 3 = -0.3, the second
# 0.9 * -0.3 - 0.3 = -0.57. The weight goes from 1 to 0.7 to 0.13.
SUMMED = [[0.7, 0.7], [0.13, 0.13]]
# The same with their mean, 1.5: -0.15 and 0.9 * -0.15 - 0.15 = -0.285.
AVERAGED = [[0.85, 0.85], [0.565, 0.565]]
# One gradient of 1 a step: -0.1, then -0.19, then -0.271.
ALONE = [0.9, 0.71, 0.439]
DIRECT: dict[str, Any] = {"step": "direct", "apply_scope": "out", "steps": 3, "gradients": [1.0]}


def test_trained_as_one() -> None:
    reading = read(scope_trace(*SUMMED))
    assert reading.outcome == "trained"
    assert reading.merges == ("sum",)
    assert [step.after for step in reading.steps] == [(0.7, 0.7), (0.13, 0.13)]
    assert [step.before for step in reading.steps] == [(1.0, 1.0), (0.7, 0.7)]
    assert reading.failure is None
    assert reading.counted_right


def test_fit_takes_the_mean() -> None:
    assert read(scope_trace(*AVERAGED, loop="fit")).merges == ("mean",)
    assert read(scope_trace(*AVERAGED, loop="fit")).outcome == "trained"
    assert read(scope_trace(*SUMMED, loop="fit")).outcome == "odd"  # doubled, as Keras 3.5 to 3.7 did
    assert read(scope_trace(*AVERAGED)).outcome == "odd"
    assert read(scope_trace(*AVERAGED)).merges == ("mean",)


def test_the_sign_of_an_absolute_error() -> None:
    """|w * x| falls by the mean of |x| = 1.5 until w is below 0, and rises after: 1, -0.5, 1."""
    settings: dict[str, Any] = {"loop": "fit", "loss": "mean_absolute_error", "optimizer": "sgd", "learning_rate": 1}
    assert read(scope_trace([-0.5, -0.5], [1.0, 1.0], **settings)).outcome == "trained"
    assert read(scope_trace([-0.5, -0.5], [-2.0, -2.0], **settings)).outcome == "odd"


@pytest.mark.parametrize(
    ("copies", "trace", "outcome"),
    [
        ([[each, 1.0] for each in ALONE], {}, "one_replica"),
        ([[each, each] for each in ALONE], {}, "one_input"),
        ([[each] for each in ALONE], {"weight": PLAIN}, "plain"),
        ([[0.9, 0.81], [0.629, 0.385]], {}, "diverged"),
        ([[0.9, 1.1]], {}, "diverged"),
        ([[0.4, 0.4]], {}, "odd"),
        ([], {}, "nothing"),
    ],
)
def test_what_the_copies_show(copies: list[list[float]], trace: dict[str, Any], outcome: str) -> None:
    assert read(scope_trace(*copies, **DIRECT, **trace)).outcome == outcome


def test_one_replica_is_no_accident_of_the_last_step() -> None:
    """The second copy went away and came back: it did not stay where it was."""
    assert read(scope_trace([0.7, 1.2], [0.4, 1.0])).outcome == "diverged"


def test_iterations_that_every_replica_raises() -> None:
    """0.1 * 3 a step with SGD: 0.7, 0.4; but a plain counter says 2 and 4."""
    reading = read(scope_trace([0.7, 0.7], [0.4, 0.4], optimizer="sgd", counter=PLAIN, counts=[[2], [4]]))
    assert reading.outcome == "miscounted"
    assert not reading.counted_right


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
def test_a_first_step_that_tells_no_sum_from_a_mean(optimizer: str) -> None:
    """Adam's first step is the rate, whatever the gradient; RMSprop's is rate / sqrt(0.1)."""
    step = 0.1 if optimizer == "adam" else 0.1 / 0.1**0.5
    events: list[Event] = [
        {**event, "settings": {**event["settings"], "optimizer": optimizer}} if event["event"] == "run" else event
        for event in scope_trace([1 - step, 1 - step], slots=None, steps=1).events
    ]
    reading = read(Trace(tuple(events)))
    assert reading.merges == ("sum", "mean", "first")
    assert reading.outcome == "trained"


@pytest.mark.parametrize(
    ("optimizer", "moves"),
    [
        ("sgd", [-0.3, -0.3]),
        ("momentum", [-0.3, -0.57]),
        ("adam", [-0.1, -0.1]),  # m / sqrt(v) of an unchanging gradient is its sign
        ("adagrad", [-0.3 / 9.1**0.5, -0.3 / 18.1**0.5]),  # it begins with 0.1, and adds 9 a step
        ("rmsprop", [-0.3 / 0.9**0.5, -0.3 / 1.71**0.5]),  # 0.1 * 9, then 0.9 * 0.9 + 0.1 * 9
    ],
)
@pytest.mark.parametrize("era", ["legacy", "keras2", "keras3"])
def test_the_optimizers_arithmetic(optimizer: str, moves: list[float], era: Any) -> None:
    update = Update(optimizer, 0.1, era)
    assert [update(3.0), update(3.0)] == pytest.approx(moves, abs=1e-6)


def test_births_in_order() -> None:
    reading = read(scope_trace(*SUMMED, optimizer_scope="out", counter=PLAIN))
    assert [(birth.name, birth.part, birth.moment, birth.owner) for birth in reading.births] == [
        ("weight", "model", "construction", MIRRORED),
        ("iterations", "optimizer", "construction", PLAIN),
        ("learning_rate", "optimizer", "construction", PLAIN),
        ("momentum", "step", "first_apply", MIRRORED),
    ]
    assert reading.weight is not None
    assert reading.weight.devices == ("CPU:0", "CPU:1")
    assert [birth.devices for birth in reading.births[1:2]] == [("CPU:0",)]


@pytest.mark.parametrize(
    ("variable", "short"),
    [
        ("sgd/dense_kernel_momentum", "momentum"),
        ("SGD/dense/kernel/momentum", "momentum"),
        ("SGD/m/dense/kernel", "m"),
        ("m/dense/kernel", "m"),
        ("Adam/dense/kernel/v", "v"),
        ("adam/dense_kernel_velocity", "velocity"),
        ("dense/kernel", "dense/kernel"),
    ],
)
def test_slots_have_short_names(variable: str, short: str) -> None:
    run = scope_trace(*SUMMED)
    events: list[Event] = [
        {**event, "variable": variable} if event.get("role") == "slot" else event for event in run.events
    ]
    (slot,) = read(Trace(tuple(events))).slots
    assert slot.name == short


def test_where_each_part_is_and_what_enters_the_scope() -> None:
    reading = read(scope_trace(*SUMMED, optimizer_scope="out", apply_scope="out", dummy_call="in_replica"))
    assert reading.parts == ("model", "dummy_call", "optimizer", "step")
    assert [reading.place(part) for part in reading.parts] == ["in", "out", "out", "out"]
    assert [reading.enters(part) for part in reading.parts] == [False, True, False, True]
    assert not read(scope_trace(**DIRECT)).enters("step")
    assert not read(scope_trace(loop="fit", model_scope="out", weight=PLAIN)).enters("step")


@pytest.mark.parametrize(
    ("tensorflow", "settings", "era"),
    [
        ("2.4.1", {}, "legacy"),
        ("2.5.0", {}, "legacy"),
        ("2.15.1", {}, "keras2"),
        ("2.21.0", {}, "keras3"),
        ("2.21.0", {"keras": "tf_keras"}, "keras2"),
    ],
)
def test_which_optimizers_these_are(tensorflow: str, settings: dict[str, Any], era: str) -> None:
    assert read(scope_trace(tensorflow=tensorflow, **settings)).era == era


# Messages as runs raised them.
MESSAGES: dict[str, tuple[str, str]] = {
    "mixing": ("RuntimeError", "Mixing different tf.distribute.Strategy objects: <A object> is not <B object>"),
    "needs_scope": ("RuntimeError", 'Need to be inside "with strategy.scope()" for <A object>'),
    "colocate": (
        "ValueError",
        "`colocate_vars_with` must only be passed a variable created in this tf.distribute.Strategy.scope(), not: <w>",
    ),
    "slot_scope": (
        "ValueError",
        "Trying to create optimizer slot variable under the scope for tf.distribute.Strategy (<A>), which is different "
        "from the scope used for the original variable (<w>). Make sure ...",
    ),
    "no_handle": (
        "ValueError",
        "`handle` is not available outside the replica context or a `tf.distribute.Strategy.update()` call.",
    ),
    "cross_replica": (
        "RuntimeError",
        "`apply_gradients() cannot be called in cross-replica context. Use `tf.distribute.Strategy.run` to enter "
        "replica context.",
    ),
    "placeholder": (
        "InvalidArgumentError",
        "Graph execution error: ... You must feed a value for placeholder tensor 'cond/Placeholder_1' with dtype int32",
    ),
    "compile": ("ValueError", "Variable (<w>) was not created in the distribution strategy scope of (<A>). ..."),
    "metric": (
        "ValueError",
        "SyncOnReadVariable does not support `assign_add` in cross-replica context when aggregation is set to "
        "`tf.VariableAggregation.SUM`.",
    ),
    "loss_reduction": (
        "ValueError",
        "Please use `tf.keras.losses.Reduction.SUM` or `tf.keras.losses.Reduction.NONE` for loss reduction when losses "
        "are used with `tf.distribute.Strategy` outside of the built-in training loops. ...",
    ),
    "no_build": ("AttributeError", "'SGD' object has no attribute 'build'"),
    "build_early": ("ValueError", "Unknown variable: <Variable path=dense/kernel>. This optimizer can only be ..."),
    "assertion": ("AssertionError", ""),
    "other": ("ValueError", "something new"),
}


@pytest.mark.parametrize("cause", MESSAGES)
def test_an_error_is_known_by_its_words(cause: str) -> None:
    reading = read(scope_trace(error=MESSAGES[cause], slots=None))
    assert reading.failure is not None
    assert reading.failure.cause == cause
    assert reading.failure.code == APPLY
    assert (reading.failure.part, reading.failure.moment, reading.failure.step) == ("step", "first_apply", 1)
    assert reading.outcome == "raised"


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        ("tuple indices must be integers or slices, not MirroredVariable", "no_handle"),
        ("'NoneType' object has no attribute 'merge_call'", "cross_replica"),
        ("Weights for model 'sequential' have not yet been created. Weights are created when ...", "build_early"),
        ("'The optimizer cannot recognize variable line/dense/kernel:0. This usually means ...'", "build_early"),
    ],
)
def test_the_same_mistake_has_other_words_on_other_versions(message: str, cause: str) -> None:
    reading = read(scope_trace(error=("Error", message)))
    assert reading.failure is not None
    assert reading.failure.cause == cause


@pytest.mark.parametrize(
    ("at", "step", "settings", "part", "moment"),
    [
        ("optimizer.build(model.trainable_variables)", 0, {"optimizer_build": "yes"}, "optimizer", "build"),
        ("model.compile(optimizer, loss=output_itself, run_eagerly=True)", 0, {"loop": "fit"}, "optimizer", "compile"),
        ("y = model(x)", 1, {}, "step", "first_call"),
        ("gradients = tape.gradient(loss, weights)", 1, {}, "step", "first_call"),
        (APPLY, 2, {}, "step", "run"),
        ("gradient = distributed_step(x)", 1, {"mode": "function"}, "step", "run"),
        ("model(tf.ones([1, 1]))", 0, {"dummy_call": "in_scope"}, "dummy_call", "dummy_call"),
        ("outputs = dense(inputs)", 0, {}, "model", "construction"),
        ("optimizer = tf.keras.optimizers.SGD(learning_rate=0.1, momentum=0.9)", 0, {}, "optimizer", "construction"),
    ],
)
def test_where_an_error_struck(at: str, step: int, settings: dict[str, Any], part: str, moment: str) -> None:
    reading = read(scope_trace(error=("ValueError", "?"), at=at, error_step=step, **settings))
    assert reading.failure is not None
    assert (reading.failure.part, reading.failure.moment) == (part, moment)
    assert reading.failure.code == at


def test_a_trace_of_settings_that_are_no_more_is_read_without_its_program() -> None:
    run = scope_trace(error=MESSAGES["mixing"])
    start: Event = {**run.events[0], "settings": {**run.events[0]["settings"], "gone": 1}}
    reading = read(Trace((start, *run.events[1:])))
    assert reading.failure is not None
    assert reading.failure.code is None
    assert reading.failure.cause == "mixing"


@pytest.mark.parametrize("status", ["killed", "timeout", "cancelled"])
@pytest.mark.parametrize("settings", [{}, {"loop": "fit"}, {"model": "subclassed", "dummy_call": "in_scope"}])
def test_a_run_that_was_cut_off_anywhere_can_be_read(status: str, settings: dict[str, Any]) -> None:
    whole = scope_trace(*SUMMED, **settings)
    finished = 0
    for length in range(1, len(whole.events)):
        reading = read(cut(whole, length, status))
        assert reading.outcome == "stopped"
        assert reading.failure is not None
        assert not reading.failure.raised
        assert len(reading.steps) >= finished
        finished = len(reading.steps)
    assert finished == 2
