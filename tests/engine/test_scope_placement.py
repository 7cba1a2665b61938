"""The experiment `scope_placement`, on every TensorFlow that it is about, against arithmetic.

What raises and what trains, for every place of model, optimizer and first step, and why: the sources named here are
those of the packages themselves (tensorflow 2.4.1, 2.5.0 and 2.15.1, tf_keras 2.21, keras 3.15 and older).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from engine.engine import Engine
from engine.job import Ticket
from engine.program import render
from engine.request import Request
from engine.settings import SettingsError
from engine.trace import Event, Trace
from tests.conftest import Sample

Submit = Callable[..., Ticket]
Run = Callable[..., Trace]

# A flavour is a TensorFlow with one of its Kerases: its version, and the settings that choose the Keras.
FLAVOURS: dict[str, tuple[str, dict[str, str]]] = {
    "2.4.1": ("2.4.1", {}),
    "2.5.0": ("2.5.0", {}),
    "2.15.1": ("2.15.1", {}),
    "tf_keras": ("2.21", {"keras": "tf_keras"}),
    "keras3": ("2.21", {}),
}
LEGACY = ("2.4.1", "2.5.0")  # Keras's optimizer_v2; the others have the optimizers that came with 2.11
MODELS = ("functional", "sequential_built", "sequential_deferred", "subclassed")
BUILT = ("functional", "sequential_built")  # have their weights when they are made, not when they are called
PLACES = ("in", "out")
REPLICAS = 2
RATE = 0.1

SLOT = "Trying to create optimizer slot variable under the scope for tf.distribute.Strategy"
COLOCATE = "`colocate_vars_with` must only be passed a variable created in this tf.distribute.Strategy.scope()"
MIXING = "Mixing different tf.distribute.Strategy objects"
NEEDS_SCOPE = 'Need to be inside "with strategy.scope()"'
HANDLE = "is not available outside the replica context or a `tf.distribute.Strategy.update()` call"
PLACEHOLDER = "You must feed a value for placeholder tensor"


class Oracle:
    """One optimizer's update by arithmetic, with the slots of one weight: what Keras's documentation says."""

    def __init__(self, optimizer: str, rate: float = RATE) -> None:
        self.optimizer, self.rate = optimizer, rate
        self.m = 0.0
        self.v = 0.1 if optimizer == "adagrad" else 0.0

    def step(self, gradient: float, t: int) -> float:
        """By how much the weight changes in step t (from 1)."""
        if self.optimizer == "sgd":
            return -self.rate * gradient
        if self.optimizer == "momentum":
            self.m = 0.9 * self.m - self.rate * gradient
            return self.m
        if self.optimizer == "adam":
            self.m = 0.9 * self.m + 0.1 * gradient
            self.v = 0.999 * self.v + 0.001 * gradient**2
            rate = self.rate * np.sqrt(1 - 0.999**t) / (1 - 0.9**t)
            return float(-rate * self.m / (np.sqrt(self.v) + 1e-7))
        if self.optimizer == "adagrad":
            self.v += gradient**2
            return float(-self.rate * gradient / np.sqrt(self.v + 1e-7))
        assert self.optimizer == "rmsprop"
        self.v = 0.9 * self.v + 0.1 * gradient**2
        return float(-self.rate * gradient / np.sqrt(self.v + 1e-7))


def trained(optimizer: str, gradient: float, steps: int, rate: float = RATE) -> list[float]:
    """The weight, 1 at first, after each step with that gradient."""
    oracle, weight, after = Oracle(optimizer, rate), 1.0, []
    for t in range(1, steps + 1):
        weight += oracle.step(gradient, t)
        after.append(weight)
    return after


def sharing_slots(optimizer: str, gradients: list[float], steps: int) -> list[list[float]]:
    """Each copy of the weight in turn, updated by its own gradient through slots that all of them share."""
    oracle, copies, after = Oracle(optimizer), [1.0] * len(gradients), []
    for t in range(1, steps + 1):
        copies = [weight + oracle.step(gradient, t) for weight, gradient in zip(copies, gradients, strict=True)]
        after.append(copies)
    return after


def weights(trace: Trace, step: int) -> list[float]:
    """What each copy of the weight holds after a step."""
    return [event["value"] for event in trace.of("variable") if event["step"] == step]


def iterations(trace: Trace, step: int) -> list[int]:
    return [event["value"] for event in trace.of("counter") if event["step"] == step]


def births(trace: Trace, role: str) -> list[Event]:
    return [event for event in trace.of("birth") if event["role"] == role]


def owners(trace: Trace, role: str) -> set[str]:
    return {event["strategy"] for event in births(trace, role)}


def line_of(trace: Trace, engine: Engine, number: int) -> str:
    """A line of the program that gave this trace."""
    start = trace.start
    request = Request.of(start["experiment"], start["settings"])
    keras = None if start["keras"].startswith("2") or not start["tensorflow"].startswith("2.21") else start["keras"]
    program = render(request.experiment, request.settings, engine.runtime(start["tensorflow"], keras).versions)
    return program.splitlines()[number - 1].strip()


def assert_trains(
    trace: Trace, optimizer: str = "momentum", replicas: int = REPLICAS, gradient: float | None = None
) -> None:
    """Every copy is where the sum of all gradients (1, 2, ...) takes it, step by step, and every copy counts."""
    assert trace.status == "ok", trace.error or (trace.end, trace.stderr[-2000:])
    steps = trace.start["settings"]["steps"]
    total = sum(range(1, replicas + 1)) if gradient is None else gradient
    for step, weight in enumerate(trained(optimizer, total, steps), 1):
        assert weights(trace, step) == pytest.approx([weight] * replicas, abs=1e-5)
        assert set(iterations(trace, step)) == {step}
    assert owners(trace, "weight") == {"MirroredStrategy"}
    devices = [f"CPU:{replica}" for replica in range(replicas)]
    for event in births(trace, "weight") + births(trace, "slot"):
        assert event["kind"] == "MirroredVariable"
        assert [device[-5:] for device in event["devices"]] == devices


def assert_raises(trace: Trace, kind: str, words: str, step: int = 1) -> None:
    assert trace.error is not None, f"it trained: {trace.events}"
    assert trace.error["type"] == kind, trace.error
    assert words in trace.error["message"]
    assert trace.error["step"] == step


# ------------------------------------------------------------------------------------------- every place, every version


def expected(flavour: str, model: str, model_scope: str, optimizer_scope: str) -> tuple[str, str] | None:
    """What raises with momentum, or None where it trains. Where the first step is called never matters: strategy.run
    enters the strategy's scope by itself."""
    if flavour == "keras3" and optimizer_scope == "out":
        # TFOptimizer.__init__ keeps tf.distribute.get_strategy() and always makes slots with it
        # (keras/src/backend/tensorflow/optimizer.py, add_variable_from_reference).
        return "RuntimeError", MIXING
    if model in BUILT and model_scope == "out":
        # Only here is there a weight that is not the strategy's when the step is called in it. Legacy optimizers
        # look at the weight themselves (optimizer_v2.py, add_slot), later ones leave it to colocate_vars_with.
        return "ValueError", SLOT if flavour in LEGACY else COLOCATE
    return None


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_every_place(submit_on: Submit, engine: Engine, sample: Sample, flavour: str) -> None:
    """4 models x in or out for model, optimizer and first step: the outcome, whose each variable is, and the line."""
    version, settings = FLAVOURS[flavour]
    grid = sample(itertools.product(MODELS, PLACES, PLACES, PLACES), 1 / 4, by=lambda case: case[0])
    tickets = [
        submit_on(
            version,
            "scope_placement",
            model=model,
            model_scope=model_scope,
            optimizer_scope=optimizer_scope,
            apply_scope=apply_scope,
            **settings,
        )
        for model, model_scope, optimizer_scope, apply_scope in grid
    ]
    for (model, model_scope, optimizer_scope, _), ticket in zip(grid, tickets, strict=True):
        trace = ticket.result(240)
        raises = expected(flavour, model, model_scope, optimizer_scope)
        weight_is_ours = model not in BUILT or model_scope == "in"
        assert owners(trace, "weight") == {"MirroredStrategy" if weight_is_ours else "default"}
        # Legacy optimizers make even `iterations` at the first apply, in the replica; later ones when they are made.
        counted = "MirroredStrategy" if optimizer_scope == "in" or flavour in LEGACY else "default"
        if raises is None:
            assert owners(trace, "slot") == {"MirroredStrategy"}
            assert owners(trace, "iterations") == {counted}
            assert_trains(trace)
        else:
            assert_raises(trace, *raises)
            assert trace.error is not None
            assert not births(trace, "slot")
            assert not trace.of("variable")
            at = line_of(trace, engine, trace.error["line"])
            assert at == "optimizer.apply_gradients(zip(gradients, weights))"


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_when_variables_are_born(submit_on: Submit, engine: Engine, flavour: str) -> None:
    """A functional model has its weight when its layer is called on an Input, which is before Model(inputs, outputs);
    slots come with the first apply_gradients, or with optimizer.build."""
    version, settings = FLAVOURS[flavour]
    tickets = {model: submit_on(version, "scope_placement", model=model, **settings) for model in MODELS}
    weight_lines = {
        "functional": ("construction", "outputs = dense(inputs)"),
        "sequential_built": ("construction", "model = {k}.Sequential([{k}.Input([1]), dense])"),
        "sequential_deferred": ("first_call", "y = model(x)"),
        "subclassed": ("first_call", "y = model(x)"),
    }
    for model, ticket in tickets.items():
        trace = ticket.result(240)
        moment, line = weight_lines[model]
        (weight,) = births(trace, "weight")
        assert weight["moment"] == moment
        keras = "tf_keras" if flavour == "tf_keras" else "tf.keras"
        assert line_of(trace, engine, weight["line"]) == line.replace("{k}", keras)
        (slot,) = births(trace, "slot")
        assert slot["moment"] == "first_apply"
        assert line_of(trace, engine, slot["line"]) == "optimizer.apply_gradients(zip(gradients, weights))"
        (counter,) = births(trace, "iterations")
        assert counter["moment"] == ("first_apply" if flavour in LEGACY else "construction")


# What optimizer.variables leaves out: legacy optimizers make a variable of each hyperparameter in their first step
# (optimizer_v2.py, _create_hypers), Keras 2.11 to 2.15 one of the learning rate when they are made.
HYPERPARAMETERS = {
    "momentum": ["SGD/learning_rate", "SGD/decay", "SGD/momentum"],
    "adam": ["Adam/learning_rate", "Adam/decay", "Adam/beta_1", "Adam/beta_2"],
}


@pytest.mark.parametrize("optimizer", HYPERPARAMETERS)
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_an_optimizers_hyperparameters_are_variables_too(submit_on: Submit, flavour: str, optimizer: str) -> None:
    version, settings = FLAVOURS[flavour]
    tickets = {
        place: submit_on(version, "scope_placement", optimizer=optimizer, optimizer_scope=place, **settings)
        for place in PLACES
    }
    for place, ticket in tickets.items():
        found = births(ticket.result(240), "other")
        if flavour in LEGACY:
            assert [event["variable"] for event in found] == HYPERPARAMETERS[optimizer]
            expected = {("first_apply", "MirroredStrategy", 2)}
        else:
            name = (
                "learning_rate"
                if flavour != "keras3"
                else f"{'sgd' if optimizer == 'momentum' else 'adam'}/learning_rate"
            )
            assert [event["variable"] for event in found] == [name]
            expected = {("construction", "MirroredStrategy", 2) if place == "in" else ("construction", "default", 1)}
        assert {(event["moment"], event["strategy"], len(event["devices"])) for event in found} == expected


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_what_came_into_being_before_an_error_is_reported(submit_on: Submit, engine: Engine, flavour: str) -> None:
    """A plain weight: legacy optimizers make iterations and hyperparameters before add_slot refuses it; Keras 2.15
    makes the slots of a weight that no strategy had, then fails to update it. And the weight that fit made."""
    version, settings = FLAVOURS[flavour]
    refused = submit_on(version, "scope_placement", model_scope="out", **settings)
    direct = submit_on(
        version, "scope_placement", model="subclassed", step="direct", apply_scope="out", optimizer="adam", **settings
    )
    fit = submit_on(
        version, "scope_placement", model="subclassed", model_scope="out", apply_scope="out", loop="fit", **settings
    )
    trace = refused.result(240)
    assert trace.error is not None
    assert len(births(trace, "iterations")) == 1
    assert len(births(trace, "other")) == (3 if flavour in LEGACY else 1)
    if flavour in LEGACY:
        for event in births(trace, "iterations") + births(trace, "other"):
            assert event["line"] == trace.error["line"]
            assert line_of(trace, engine, event["line"]) == "optimizer.apply_gradients(zip(gradients, weights))"
    if flavour in ("2.15.1", "tf_keras"):
        trace = direct.result(240)
        assert trace.error is not None
        assert [event["variable"].split("/")[1] for event in births(trace, "slot")] == ["m", "v"]
    trace = fit.result(240)
    assert trace.error is not None
    (weight,) = births(trace, "weight")
    assert (weight["moment"], weight["strategy"], weight["line"]) == ("first_fit", "default", trace.error["line"])


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_2_4_1_and_2_5_0_are_alike_with_strategy_run(submit_on: Submit, sample: Sample, optimizer: str) -> None:
    """In every place, in tf.function: the same events, by the same lines (test_every_place has eager mode)."""
    grid = sample(itertools.product(MODELS, PLACES, PLACES, PLACES), 1 / 4, by=lambda case: case[0])
    names = ("model", "model_scope", "optimizer_scope", "apply_scope")
    tickets = {
        (version, place): submit_on(
            version,
            "scope_placement",
            mode="function",
            optimizer=optimizer,
            **dict(zip(names, place, strict=True)),
        )
        for place in grid
        for version in LEGACY
    }
    for place in grid:
        old, new = (tickets[version, place].result(240) for version in LEGACY)
        assert events_of(old) == events_of(new), place
        if place[0] in BUILT and place[1] == "out":
            # Plain SGD has no slots: there it is the update of the weight that colocate_vars_with stops.
            assert_raises(old, "ValueError", COLOCATE if optimizer == "sgd" else SLOT)
        else:
            assert_trains(old, optimizer)


def events_of(trace: Trace) -> list[dict[str, Any]]:
    """The events less times, versions, and the addresses that objects have in messages."""
    return [without_addresses(event) for event in trace.without_times()[1:]]


def without_addresses(event: Mapping[str, Any]) -> dict[str, Any]:
    return {key: re.sub(r"0x[0-9a-f]+", "0x", value) if key == "message" else value for key, value in event.items()}


# ----------------------------------------------------------------------------------------------- without strategy.run

# Model and optimizer made in the scope, @tf.function step called outside it: x = 1, so each gradient is 1.
DIRECT_STEPS = 3
HANDLE_241 = ("ValueError", HANDLE)
DIRECT: dict[tuple[str, str], dict[str, Any]] = {
    # 2.4.1: add_slot looks at the strategy it is called in, the default one, and refuses the mirrored weight. With no
    # slot, merge_call takes the step to cross-replica context, where a mirrored variable has no handle.
    # 2.5.0: add_slot enters the optimizer's own strategy first (_distribution_strategy_scope). And apply_gradients
    # no longer uses merge_call where the strategy needs none (optimizer_v2/utils.py, strategy_supports_no_merge_call),
    # so the step stays in the default strategy's replica 0: there `handle` is that of the copy on CPU:0.
    # 2.15.1 and tf_keras: the update goes to both copies, by the optimizer's own strategy; but slots are made in the
    # strategy they are called in (optimizer.py, add_variable_from_reference), so both copies share a plain one.
    # Keras 3: the same update; slots are always made with the optimizer's own strategy, which wants to be in scope.
    ("functional", "sgd"): {
        "2.4.1": HANDLE_241,
        "2.5.0": "first copy only",
        "2.15.1": "both copies",
        "tf_keras": "both copies",
        "keras3": "both copies",
    },
    ("functional", "momentum"): {
        "2.4.1": ("ValueError", SLOT),
        "2.5.0": "first copy only",
        "2.15.1": "shared slots",
        "tf_keras": "shared slots",
        "keras3": ("RuntimeError", NEEDS_SCOPE),
    },
    # A deferred model makes its weight in the step, where there is no strategy: a plain variable. Later optimizers
    # hand it to MirroredStrategy's update, which asserts that it is a distributed one.
    ("sequential_deferred", "sgd"): {
        "2.4.1": "plain",
        "2.5.0": "plain",
        "2.15.1": ("AssertionError", ""),
        "tf_keras": ("AssertionError", ""),
        "keras3": ("AssertionError", ""),
    },
    ("sequential_deferred", "momentum"): {
        "2.4.1": "plain",
        "2.5.0": ("ValueError", SLOT),
        "2.15.1": ("AssertionError", ""),
        "tf_keras": ("AssertionError", ""),
        "keras3": ("RuntimeError", NEEDS_SCOPE),
    },
}
for kind in ("functional", "sequential_deferred"):
    DIRECT[kind, "adam"] = DIRECT[kind, "momentum"]  # any optimizer with slots is alike
for optimizer in ("sgd", "momentum", "adam"):
    DIRECT["sequential_built", optimizer] = DIRECT["functional", optimizer]
    DIRECT["subclassed", optimizer] = DIRECT["sequential_deferred", optimizer]


@pytest.mark.parametrize("mode", ["function", "eager"])
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_step_without_strategy_run(submit_on: Submit, flavour: str, mode: str) -> None:
    version, settings = FLAVOURS[flavour]
    tickets = {
        (model, optimizer): submit_on(
            version,
            "scope_placement",
            model=model,
            optimizer=optimizer,
            mode=mode,
            step="direct",
            apply_scope="out",
            steps=DIRECT_STEPS,
            **settings,
        )
        for model, optimizer in DIRECT
    }
    for (model, optimizer), ticket in tickets.items():
        trace, outcome = ticket.result(240), DIRECT[model, optimizer][flavour]
        if isinstance(outcome, tuple):
            if mode == "eager" and outcome == HANDLE_241:
                # gradient_descent.py asks for the weight's device first. That is looked up with the weight that is
                # being updated, where the default strategy puts the weight itself in the place of a replica's number.
                outcome = ("TypeError", "tuple indices must be integers or slices, not MirroredVariable")
            assert_raises(trace, *outcome)
            continue
        assert trace.status == "ok", (model, optimizer, trace.error)
        (alone,) = trained(optimizer, 1, DIRECT_STEPS)[-1:]
        copies = {
            "first copy only": [alone, 1.0],
            "both copies": [alone, alone],
            "shared slots": sharing_slots(optimizer, [1, 1], DIRECT_STEPS)[-1],
            "plain": [alone],
        }[outcome]
        assert weights(trace, DIRECT_STEPS) == pytest.approx(copies, abs=1e-5)
        assert owners(trace, "weight") == {"default" if outcome == "plain" else "MirroredStrategy"}
        if outcome == "shared slots":
            assert owners(trace, "slot") == {"default"}
        assert set(iterations(trace, DIRECT_STEPS)) == {DIRECT_STEPS}


def test_the_numbers_of_the_lesson(run_on: Run) -> None:
    """0.7 and 1.0; 0.666 and 0.615: what the page tells of the step without strategy.run."""
    direct = {"step": "direct", "apply_scope": "out", "steps": 3, "mode": "function"}
    assert weights(run_on("2.5.0", "scope_placement", optimizer="sgd", **direct), 3) == [0.7, 1.0]
    diverged = weights(run_on("2.15.1", "scope_placement", optimizer="adam", **direct), 3)
    assert [round(weight, 3) for weight in diverged] == [0.666, 0.615]


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_step_without_strategy_run_but_in_scope(submit_on: Submit, flavour: str) -> None:
    """In the scope but outside strategy.run is cross-replica context: a mirrored variable has no one handle there."""
    version, settings = FLAVOURS[flavour]
    tickets = [
        submit_on(
            version, "scope_placement", model=model, optimizer=optimizer, mode="function", step="direct", **settings
        )
        for model, optimizer in itertools.product(MODELS, ("sgd", "adam"))
    ]
    for ticket in tickets:
        assert_raises(ticket.result(240), "ValueError", HANDLE)


# ------------------------------------------------------------------------------- tf.function, and Keras 3's first step


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam", "adagrad", "rmsprop"])
def test_keras_3_in_a_function(submit_on: Submit, optimizer: str) -> None:
    """Keras 3 makes slots where apply_gradients is traced, without tf.init_scope (base_optimizer.py, apply; Keras 2
    has it, optimizer.py, apply_gradients). The second copy's first value is read from the first copy, so tf.function
    can't lift it out and falls back to a tf.cond (polymorphic_function.py, fn_with_cond). In there the default
    collectives' instance keys, which are to be fed when the function is called (cross_device_utils.py,
    _next_instance_key), are fed by nobody."""
    ask = {"optimizer": optimizer, "mode": "function"}
    default = submit_on("2.21", "scope_placement", **ask)
    others = [
        submit_on("2.21", "scope_placement", **ask, **more)
        for more in (
            {"optimizer_build": "yes"},
            {"cross_device": "reduction_to_one"},
            {"cross_device": "hierarchical_copy"},
            {"keras": "tf_keras"},
        )
    ]
    if optimizer == "sgd":  # no slots
        assert_trains(default.result(240), optimizer)
    else:
        assert_raises(default.result(240), "InvalidArgumentError", PLACEHOLDER)
    for ticket in others:
        assert_trains(ticket.result(240), optimizer)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_optimizer_build(submit_on: Submit, engine: Engine, flavour: str) -> None:
    version, settings = FLAVOURS[flavour]
    built = submit_on(version, "scope_placement", optimizer_build="yes", **settings)
    deferred = submit_on(version, "scope_placement", optimizer_build="yes", model="sequential_deferred", **settings)
    if flavour in LEGACY:
        assert_raises(built.result(240), "AttributeError", "'SGD' object has no attribute 'build'", step=0)
        return
    trace = built.result(240)
    assert_trains(trace)
    (slot,) = births(trace, "slot")
    assert slot["moment"] == "build"
    assert line_of(trace, engine, slot["line"]) == "optimizer.build(model.trainable_variables)"
    # A model without weights has nothing to build slots for.
    if flavour == "keras3":
        assert_raises(deferred.result(240), "ValueError", "Unknown variable")
    else:
        assert_raises(deferred.result(240), "ValueError", "have not yet been created", step=0)


@pytest.mark.parametrize("mode", ["eager", "function"])
@pytest.mark.parametrize("flavour", ["2.15.1", "tf_keras", "keras3"])
def test_an_optimizer_built_outside_trains_apart_in_silence(run_on: Run, flavour: str, mode: str) -> None:
    """Built outside the scope its slots are plain variables, which the copies share: each is moved by a momentum into
    which the other's gradient went too, and no two are equal. There is no error. Optimizers of Keras 2 still sum the
    gradients over the replicas; the one of Keras 3 does too, and counts each replica's step."""
    version, settings = FLAVOURS[flavour]
    trace = run_on(version, "scope_placement", optimizer_scope="out", optimizer_build="yes", mode=mode, **settings)
    assert trace.status == "ok"
    assert owners(trace, "slot") == owners(trace, "iterations") == {"default"}
    for step, copies in enumerate(sharing_slots("momentum", [3, 3], 2), 1):
        assert weights(trace, step) == pytest.approx(copies, abs=1e-5)
        assert iterations(trace, step) == [step * REPLICAS if flavour == "keras3" else step]


# ------------------------------------------------------------------------------------------------------ a dummy call


@pytest.mark.parametrize("optimizer_scope", PLACES)
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_dummy_call(submit_on: Submit, sample: Sample, flavour: str, optimizer_scope: str) -> None:
    """A dummy call moves no variable, on any version: what a functional model made outside has stays where it is. It
    decides only where a model that has no weights yet gets them."""
    version, settings = FLAVOURS[flavour]
    kinds = ("functional", "sequential_deferred")
    grid = sample(
        itertools.product(kinds, PLACES, ("in_scope", "out_of_scope", "in_replica")), 1 / 3, by=lambda case: case[0]
    )
    tickets = [
        submit_on(
            version,
            "scope_placement",
            model=model,
            model_scope=model_scope,
            optimizer_scope=optimizer_scope,
            dummy_call=dummy_call,
            **settings,
        )
        for model, model_scope, dummy_call in grid
    ]
    for (model, model_scope, dummy_call), ticket in zip(grid, tickets, strict=True):
        trace = ticket.result(240)
        decides = model_scope if model in BUILT else "out" if dummy_call == "out_of_scope" else "in"
        # As if a model with weights had been made in that place.
        raises = expected(flavour, "functional", decides, optimizer_scope)
        if raises is None:
            assert_trains(trace)
        else:
            assert_raises(trace, *raises)
        (weight,) = births(trace, "weight")
        assert weight["strategy"] == ("MirroredStrategy" if decides == "in" else "default")
        assert weight["moment"] == ("construction" if model in BUILT else "dummy_call")


# -------------------------------------------------------------------------------------------------------- fit, losses

NOT_CREATED = "was not created in the distribution strategy scope"
ON_READ = "SyncOnReadVariable does not support `assign_add` in cross-replica context"

Outcome = tuple[str, str, int] | int


def expected_of_fit(flavour: str, model: str, model_scope: str, optimizer_scope: str, apply_scope: str) -> Outcome:
    """What raises with momentum in tf.function, and in which step; or how many copies of the weight there are, which
    then train. A model made outside and fitted outside belongs to no strategy: it trains on one device, in silence."""
    if flavour == "keras3":
        if model_scope == apply_scope == "out":
            return 1 if optimizer_scope == "out" else ("RuntimeError", NEEDS_SCOPE, 1)
        if optimizer_scope == "out":
            return "RuntimeError", MIXING, 1
        if model_scope == "in":
            return 2
        # A model that was made outside a scope does not build its optimizer before the step is traced (trainer.py,
        # _maybe_symbolic_build), so here is what test_keras_3_in_a_function is about.
        return ("ValueError", COLOCATE, 1) if model in BUILT else ("InvalidArgumentError", PLACEHOLDER, 1)
    if model_scope == "in":
        return 2
    if model in BUILT and optimizer_scope == "in":
        return "ValueError", NOT_CREATED, 0  # by model.compile, which is called where the optimizer is made
    if apply_scope == "out":
        # compile has made the loss's metric in the scope; one that is not in the scope can't update it.
        return ("ValueError", ON_READ, 1) if optimizer_scope == "in" else 1
    if model in BUILT:
        return "ValueError", SLOT if flavour in LEGACY else COLOCATE, 1
    return 2


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_fit(submit_on: Submit, sample: Sample, flavour: str) -> None:
    version, settings = FLAVOURS[flavour]
    kinds = ("functional", "sequential_deferred")
    grid = sample(itertools.product(kinds, PLACES, PLACES, PLACES), 1 / 4, by=lambda case: case[0])
    tickets = [
        submit_on(
            version,
            "scope_placement",
            loop="fit",
            mode="function",
            model=model,
            model_scope=model_scope,
            optimizer_scope=optimizer_scope,
            apply_scope=apply_scope,
            **settings,
        )
        for model, model_scope, optimizer_scope, apply_scope in grid
    ]
    for place, ticket in zip(grid, tickets, strict=True):
        trace, outcome = ticket.result(240), expected_of_fit(flavour, *place)
        if isinstance(outcome, tuple):
            assert_raises(trace, *outcome)
            continue
        assert trace.status == "ok", (place, trace.error)
        mean = 1.5  # of the batch of 1 and 2, which is what fit takes
        after = trained("momentum", mean, 2)
        for step in (1, 2):
            assert weights(trace, step) == pytest.approx([after[step - 1]] * outcome, abs=1e-5)
        # The loss is the mean of weight * x before the step.
        assert [event["value"] for event in trace.of("loss")] == pytest.approx([mean, mean * after[0]], abs=1e-5)
        assert owners(trace, "weight") == {"MirroredStrategy" if outcome == 2 else "default"}


@pytest.mark.parametrize("mode", ["eager", "function"])
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_loss_of_keras(submit_on: Submit, flavour: str, mode: str) -> None:
    """In a step of one's own, Keras 2 refuses a loss that averages over a batch which it takes to be the whole one.
    Keras 3 silently divides it by the number of replicas (losses/loss.py, scale_loss_for_distribution)."""
    version, settings = FLAVOURS[flavour]
    ask = {"loss": "mean_absolute_error", "mode": mode, "optimizer": "sgd", **settings}
    own, fit = (submit_on(version, "scope_placement", loop=loop, **ask).result(240) for loop in ("custom", "fit"))
    if flavour == "keras3":
        assert [event["value"] for event in own.of("gradient")] == [1 / REPLICAS, 2 / REPLICAS] * 2
        assert_trains(own, "sgd", gradient=(1 + 2) / REPLICAS)
    else:
        assert_raises(
            own, "ValueError", "Please use `tf.keras.losses.Reduction.SUM` or `tf.keras.losses.Reduction.NONE`"
        )
    assert_trains(fit, "sgd", gradient=(1 + 2) / REPLICAS)


# -------------------------------------------------------------------------------------------- arithmetic, and the form


@pytest.mark.parametrize("mode", ["eager", "function"])
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam", "adagrad", "rmsprop"])
def test_arithmetic(submit_on: Submit, optimizer: str, mode: str) -> None:
    """Each optimizer takes the sum of the gradients, which are each replica's x, whatever the number of replicas."""
    ask = {"optimizer": optimizer, "mode": mode, "steps": 3, "optimizer_build": "yes"}
    tickets = {replicas: submit_on(None, "scope_placement", replicas=replicas, **ask) for replicas in (1, 2, 3, 8)}
    for replicas, ticket in tickets.items():
        trace = ticket.result(240)
        assert_trains(trace, optimizer, replicas)
        gradients = [event["value"] for event in trace.of("gradient")]
        assert gradients == [1 + replica for replica in range(replicas)] * 3
    trace = submit_on(None, "scope_placement", inputs="-1,0.25", learning_rate=0.5, **ask).result(240)
    assert weights(trace, 3) == pytest.approx([trained(optimizer, -0.75, 3, rate=0.5)[-1]] * 2, abs=1e-4)


@pytest.mark.parametrize(
    ("given", "setting", "allowed"),
    [
        ({"loop": "fit", "step": "direct"}, "step", "strategy_run, as loop=fit (fit calls strategy.run itself)"),
        ({"inputs": "1,2,3"}, "inputs", "2 numbers, one per replica, as replicas=2"),
        ({"replicas": "9"}, "replicas", "a whole number 1-8"),
        ({"dummy_call": "always"}, "dummy_call", "none, in_scope, out_of_scope, in_replica"),
    ],
)
def test_refused(given: dict[str, str], setting: str, allowed: str) -> None:
    with pytest.raises(SettingsError) as caught:
        Request.of("scope_placement", given)
    (problem,) = caught.value.problems
    assert (problem.setting, problem.allowed) == (setting, allowed)


def test_tf_keras_is_asked_for_only_where_it_is(submit_on: Submit) -> None:
    with pytest.raises(SettingsError, match=r"bundled, as there is no tf_keras beside TensorFlow 2\.15\.1"):
        submit_on("2.15.1", "scope_placement", keras="tf_keras")
