"""The lesson on SyncReplicasOptimizer, as pages know it."""

from __future__ import annotations

from collections.abc import Iterator

from engine.experiments.multi_worker import MULTI_WORKER
from engine.experiments.sync_replicas import SYNC_REPLICAS, USUAL_DELAY, SyncReplicasSettings
from engine.settings import as_words
from engine.trace import Trace
from lessons.language import Texts, number
from lessons.lesson import Action, Lesson, Link, Prediction, Successor
from lessons.outcome import Outcome, raised
from lessons.sync_replicas import successor
from lessons.sync_replicas.figure import alternative, figure
from lessons.sync_replicas.fix import suggested_fix
from lessons.sync_replicas.reading import in_short, read
from lessons.sync_replicas.story import what_happened

# Does not always lock itself: it is a race, which many fast workers lose more often.
OWN = {
    "workers": "4",
    "optimizers": "3",
    "global_step": "own",
    "steps": "20",
    "delays": "0,0,0,0",
    "barrier": "no",
}
SLOW = 0.3  # seconds a step: some steps of the others


def unused(settings: SyncReplicasSettings) -> frozenset[str]:
    """The settings that change nothing, as things are."""
    names = set()
    if settings.sync == "no":
        names |= {"replicas_to_aggregate", "total_num_replicas", "tokens", "moving_average"}
    if settings.optimizers == 1:
        names.add("global_step")
    if settings.kill_worker is None:
        names.add("kill_step")
    return frozenset(names)


def actions(settings: SyncReplicasSettings) -> Iterator[Action]:
    """To slow a worker down, or kill it; and back."""
    assert settings.delays is not None  # filled in by the settings
    for worker, delay in enumerate(settings.delays):
        subject = f"worker:{worker}"
        slow = delay >= SLOW
        delays = list(settings.delays)
        delays[worker] = USUAL_DELAY if slow else SLOW
        usual = all(each == USUAL_DELAY for each in delays)
        yield Action(
            "usual" if slow else "slow",
            subject,
            {"delays": "" if usual else as_words(tuple(delays))},
            {"delay": number(SLOW), "usual": number(USUAL_DELAY)},
        )
        killed = settings.kill_worker == worker
        yield Action(
            "spare" if killed else "kill",
            subject,
            {"kill_worker": None if killed else worker},
            {"step": str(settings.kill_step)},
        )


def answers(trace: Trace) -> frozenset[str]:
    """Whether it goes right, miscounts, locks itself, or is refused."""
    outcome = read(trace).outcome
    return frozenset({"error" if outcome == "raised" else outcome})


def outcome(trace: Trace, texts: Texts) -> Outcome:
    """What became of training, and of the counting; not how many gradients were dropped, which differs from run to
    run."""
    reading = read(trace)
    if reading.failure:
        cause = reading.failure.cause
        return raised(reading.failure.kind, None if cause == "other" else cause, texts)
    head = texts(f"outcome.{reading.outcome}")
    if reading.outcome == "deadlock":
        return Outcome("odd", head)
    counts = texts("outcome.counts", updates=in_short(reading.updates()), step=in_short(reading.steps()))
    return Outcome("right" if reading.outcome == "right" else "odd", head, counts)


LESSON = Lesson(
    name="sync_replicas",
    experiment=SYNC_REPLICAS,
    first=("workers", "replicas_to_aggregate", "optimizers", "global_step", "tokens"),
    unused=unused,
    figure=lambda trace, texts: figure(read(trace), texts),
    alternative=lambda trace, texts: alternative(read(trace), texts),
    story=lambda trace, texts: what_happened(read(trace), texts),
    outcome=outcome,
    fix=lambda trace: suggested_fix(read(trace)),
    prediction=Prediction(("right", "miscounted", "deadlock", "error"), answers),
    guide=(
        Link("usual", {}),
        Link("article", {"optimizers": "2", "global_step": "article"}),
        Link("shared", {"optimizers": "2"}),
        Link("composite", {"optimizers": "3", "global_step": "composite"}),
        Link("own", OWN),
        Link("backup", {"workers": "3", "replicas_to_aggregate": "2", "delays": "0.05,0.05,0.3"}),
        Link("killed_on", {"workers": "3", "replicas_to_aggregate": "2", "kill_worker": "2"}),
        Link("killed_stop", {"workers": "3", "kill_worker": "2"}),
        Link("chief_killed", {"kill_worker": "0"}),
        Link("zero", {"tokens": "zero"}),
        Link("twice", {"tokens": "twice"}),
        Link("none", {"tokens": "none"}),
    ),
    actions=actions,
    live=True,
    successor=Successor(MULTI_WORKER, "strategy", successor.settings, successor.table, successor.sentences),
)
