"""The experiment `scope_placement`: whose a model's and an optimizer's variables are, and whether they then train."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, model_validator

from engine.experiments.base import Experiment
from engine.settings import Problem, RuleError, Settings, SettingsError, is_left_out
from engine.versions import Versions

Model = Literal["functional", "sequential_built", "sequential_deferred", "subclassed"]
Place = Literal["in", "out"]
Input = Annotated[float, Field(ge=-100, le=100)]


class ScopePlacementSettings(Settings):
    """y = weight * x: a Dense(1) without bias, weight 1 at first, under MirroredStrategy; each replica has its own x.

    `model_scope`, `optimizer_scope` and `apply_scope` say whether that was done inside strategy.scope(): making the
    model, making (and building) the optimizer, and calling the training step. The loss is y itself, so that a
    replica's gradient is its x; an optimizer sums the gradients, and loop=fit, which averages over the batch of one x
    a replica, takes their mean. step=direct calls the step without strategy.run, once, with the first x.
    """

    model: Model = "functional"
    model_scope: Place = "in"
    optimizer_scope: Place = "in"
    apply_scope: Place = "in"
    dummy_call: Literal["none", "in_scope", "out_of_scope", "in_replica"] = "none"
    optimizer_build: Literal["no", "yes"] = "no"
    optimizer: Literal["sgd", "momentum", "adam", "adagrad", "rmsprop"] = "momentum"
    mode: Literal["eager", "function"] = "eager"
    loop: Literal["custom", "fit"] = "custom"
    loss: Literal["output", "mean_absolute_error"] = "output"
    step: Literal["strategy_run", "direct"] = "strategy_run"
    keras: Literal["bundled", "tf_keras"] = "bundled"
    cross_device: Literal["default", "reduction_to_one", "hierarchical_copy"] = "default"
    replicas: int = Field(default=2, ge=1, le=8)
    steps: int = Field(default=2, ge=1, le=20)
    inputs: tuple[Input, ...] | None = None
    learning_rate: float = Field(default=0.1, ge=0.001, le=100)

    @model_validator(mode="before")
    @classmethod
    def _default_inputs(cls, data: dict[str, object]) -> dict[str, object]:
        """1, 2, 3, ... one per replica."""
        count = cls.count_of("replicas", data)
        if count is None or not is_left_out(data.get("inputs")):
            return data
        return {**data, "inputs": tuple(float(i + 1) for i in range(count))}

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.loop == "fit" and self.step == "direct":
            raise RuleError("step", "fit_calls_run", "strategy_run, as loop=fit (fit calls strategy.run itself)")
        return self


KERAS_2 = (2, 15)  # tf_keras has had the numbers of TensorFlow since then, but is what Keras 2.15 was
OPTIMIZERS = {
    "sgd": "SGD(learning_rate={rate})",
    "momentum": "SGD(learning_rate={rate}, momentum=0.9)",
    "adam": "Adam(learning_rate={rate})",
    "adagrad": "Adagrad(learning_rate={rate})",
    "rmsprop": "RMSprop(learning_rate={rate})",
}


def keras_names(flavour: str, versions: Versions) -> dict[str, Any]:
    """How a Keras is called, and what it calls its variables; `flavour` is the setting `keras`.

    Raises SettingsError where there is no tf_keras beside this TensorFlow.
    """
    if flavour == "bundled":
        module, numbers = "tf.keras", versions.keras_numbers
    elif versions.tf_keras is None:
        allowed = f"bundled, as there is no tf_keras beside TensorFlow {versions.tensorflow}"
        values = {"version": versions.tensorflow}
        raise SettingsError([Problem("keras", flavour, allowed, "no_tf_keras", values)])
    else:
        module, numbers = "tf_keras", KERAS_2
    return {
        "k": module,
        "optimizer_variables": "optimizer.variables()" if numbers < (2, 11) else "optimizer.variables",
        "hyperparameters": _hyperparameters(numbers),
        # Keras 3 has variables of its own, each around one of TensorFlow's.
        "name": "{}.path" if numbers >= (3, 0) else '{}.name.split(":")[0]',
        "native": "{}.value" if numbers >= (3, 0) else "{}",
    }


def _hyperparameters(numbers: tuple[int, ...]) -> str:
    """How to get the variables of an optimizer's hyperparameters, where `variables` leaves them out; "" where it has
    them."""
    if numbers < (2, 11):
        # Until the first apply_gradients they are numbers; asking for optimizer.learning_rate would make variables.
        return "[\n        v for v in optimizer._hyper.values() if isinstance(v, tf.Variable)\n    ]"
    return "[optimizer.learning_rate]" if numbers < (3, 0) else ""


def names(settings: ScopePlacementSettings, versions: Versions) -> dict[str, Any]:
    """What differs between versions, and the optimizer as it is written."""
    call = OPTIMIZERS[settings.optimizer].format(rate=settings.learning_rate)
    return {"optimizer_call": call, **keras_names(settings.keras, versions)}


def logical_devices(settings: ScopePlacementSettings) -> list[str]:
    """One per replica, in TensorFlow's short form."""
    return [f"CPU:{replica}" for replica in range(settings.replicas)]


MODELS = get_args(Model)
PLACES: dict[str, Sequence[Any]] = {"model_scope": get_args(Place), "optimizer_scope": get_args(Place)}
MODES, KERAS = ("eager", "function"), ("bundled", "tf_keras")

SCOPE_PLACEMENT = Experiment(
    name="scope_placement",
    template="scope_placement.py.jinja",
    settings=ScopePlacementSettings,
    devices=logical_devices,
    context=names,
    seconds=60,  # loop=fit: see engine/experiments/fit.py
    recorded=(
        {"model": MODELS, **PLACES, "apply_scope": get_args(Place), "mode": MODES, "keras": KERAS},
        {"model": MODELS, **PLACES, "optimizer": ("sgd", "adam"), "mode": MODES, "keras": KERAS},
        {
            "model": MODELS,
            "optimizer": ("sgd", "momentum", "adam"),
            "apply_scope": get_args(Place),
            "mode": MODES,
            "step": ("direct",),
            "steps": (2, 3),
            "keras": KERAS,
        },
        {"model": MODELS, **PLACES, "apply_scope": get_args(Place), "loop": ("fit",), "mode": MODES, "keras": KERAS},
        {"model": MODELS, **PLACES, "optimizer_build": ("yes",), "mode": MODES, "keras": KERAS},
        {
            "model": ("functional", "sequential_deferred"),
            **PLACES,
            "dummy_call": ("in_scope", "out_of_scope", "in_replica"),
            "keras": KERAS,
        },
        {"loss": ("mean_absolute_error",), "loop": ("custom", "fit"), "optimizer": ("sgd", "momentum"), "keras": KERAS},
        {"model": MODELS, "cross_device": ("reduction_to_one", "hierarchical_copy"), "mode": MODES, "keras": KERAS},
        {"model": MODELS, "replicas": (1, 4), "keras": KERAS},
        {"model": MODELS, "steps": (1, 3), "keras": KERAS},
    ),
)
