"""The lesson on learning rate and replicas, as pages know it."""

from __future__ import annotations

from engine.experiments.scaling import SCALING, ScalingSettings
from engine.trace import Trace
from lessons.language import Texts
from lessons.lesson import Lesson, Link, Prediction, Sweep
from lessons.outcome import Kind, Outcome, raised, values
from lessons.scaling import sweep
from lessons.scaling.figure import alternative, figure
from lessons.scaling.fix import suggested_fix
from lessons.scaling.reading import close, read
from lessons.scaling.story import what_happened


def unused(settings: ScalingSettings) -> frozenset[str]:
    """The settings that change nothing."""
    return frozenset(() if settings.rule == "linear_warmup" else {"warmup"})


def answers(trace: Trace) -> frozenset[str]:
    """How long the first step was beside the reference's; with one replica, N times as long is equal."""
    reading = read(trace)
    if reading.error is not None or not reading.steps:
        return frozenset({"error"})
    factor = reading.steps[0].factor
    right = {name for name, value in (("equal", 1), ("n_times", reading.replicas)) if close(factor, value)}
    return frozenset(right or {"longer" if factor > 1 else "shorter"})


def outcome(trace: Trace, texts: Texts) -> Outcome:
    """Whether the replicas keep to the reference, or their steps are worth as much as its, and the loss of both."""
    reading = read(trace)
    if reading.error is not None:
        return raised(reading.error, None, texts)
    kind: Kind = "right" if reading.as_meant else "odd"
    head = "small_batches" if reading.as_meant and reading.small_batches else kind
    return Outcome(kind, texts(f"outcome.{head}"), values([result.loss for result in reading.results.values()], texts))


LESSON = Lesson(
    name="scaling",
    experiment=SCALING,
    first=("replicas", "loss", "gradient", "rule", "learning_rate", "optimizer"),
    unused=unused,
    figure=lambda trace, texts: figure(read(trace), texts),
    alternative=lambda trace, texts: alternative(read(trace), texts),
    story=lambda trace, texts: what_happened(read(trace), texts),
    outcome=outcome,
    in_versions=False,
    fix=lambda trace: suggested_fix(read(trace)),
    prediction=Prediction(("equal", "n_times", "longer", "shorter", "error"), answers),
    guide=(
        Link("right", {}),
        Link("mistake", {"loss": "per_replica_mean"}),
        Link("mean", {"loss": "per_replica_mean", "gradient": "mean"}),
        Link("all_reduce", {"gradient": "all_reduce_mean"}),
        Link("linear", {"rule": "linear", "reference": "small_batches"}),
        Link("twice", {"loss": "per_replica_mean", "rule": "linear", "reference": "small_batches"}),
        Link("adam", {"loss": "per_replica_mean", "optimizer": "adam", "learning_rate": "0.01"}),
        Link("normalization", {"normalization": "per_replica"}),
    ),
    live=True,
    sweep=Sweep(sweep.settings_of, sweep.figure, sweep.alternative),
)
