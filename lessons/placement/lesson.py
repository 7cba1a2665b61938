"""The lesson on placement, as pages know it."""

from __future__ import annotations

from engine.experiments.placement import PLACEMENT, PlacementSettings
from engine.trace import Trace
from lessons.language import Texts
from lessons.lesson import OWN, Lesson, Link, Prediction
from lessons.outcome import Outcome, raised
from lessons.placement.figure import alternative, figure
from lessons.placement.reading import Reading, read
from lessons.placement.story import what_happened


def unused(settings: PlacementSettings) -> frozenset[str]:
    """The settings that change nothing: what is said of a graph that isn't built, of a setter that is not used, or of
    which server is next where there is one."""
    if settings.device_setter == "article":
        return frozenset({"strategy", "sizes", "partitioner", "inner_device", "merge_devices"})
    found = set()
    if settings.device_setter != "used":
        found |= {"strategy", "merge_devices"}
    elif settings.inner_device == "none":
        found |= {"merge_devices"}
    elif settings.merge_devices == "no":
        found |= {"strategy"}
    if settings.ps == 1:
        found |= {"strategy"}
    return frozenset(found)


def suggested_fix(reading: Reading) -> dict[str, str] | None:
    """Setting -> the value that fixes the run: the setter, without its task_index, is given to tf.device, and adds to
    an inner device what that leaves open. None where there is nobody to share with."""
    raised = reading.failure is not None and reading.failure.raised
    if reading.placed if not raised else reading.settings["device_setter"] != "article":
        return None
    if reading.settings["workers"] == 1 and not raised:
        return None
    wanted = {"device_setter": "used"}
    if reading.settings["inner_device"] != "none":
        wanted["merge_devices"] = "yes"
    return {name: value for name, value in wanted.items() if reading.settings[name] != value}


def answers(trace: Trace) -> frozenset[str]:
    """Whether worker 0's write arrives, doesn't, or is never made. With one worker there is nothing to predict."""
    outcome = read(trace).outcome
    return frozenset({{"shared": "one", "own": "two", "raised": "error"}.get(outcome, outcome)})


def outcome(trace: Trace, texts: Texts) -> Outcome:
    """Whether a write arrives at the other workers, and on which processes the variables are."""
    reading = read(trace)
    if reading.failure is not None and reading.failure.raised:
        cause = "task_index" if "task_index" in reading.failure.message else None
        return raised(reading.failure.kind, cause, texts)
    homes: dict[str, list[str]] = {}
    for job, index in reading.uses.get(0, {}).values():
        homes.setdefault(job, []).append(str(index))
    detail = " · ".join(f"{job} {texts.items(indices)}" for job, indices in homes.items())
    right = reading.outcome in ("shared", "alone")
    return Outcome("right" if right else "odd", texts(f"outcome.{reading.outcome}"), detail)


LESSON = Lesson(
    name="placement",
    experiment=PLACEMENT,
    first=("device_setter", "strategy", "ps", "workers", "sizes"),
    unused=unused,
    figure=lambda trace, texts: figure(read(trace), texts),
    alternative=lambda trace, texts: alternative(read(trace), texts),
    story=lambda trace, texts: what_happened(read(trace), texts),
    outcome=outcome,
    fix=lambda trace: suggested_fix(read(trace)),
    prediction=Prediction(("one", "two", "error"), answers),
    guide=(
        Link("used", {}),
        Link("greedy", {"strategy": "greedy"}),
        Link("article", {"device_setter": "article"}),
        Link("unused", {"device_setter": "unused"}),
        Link("none", {"device_setter": "none"}, tensorflow=OWN),
        Link("old", {"device_setter": "none"}, tensorflow="1.15.5"),
        Link("parts", {"partitioner": "fixed_size"}),
    ),
)
