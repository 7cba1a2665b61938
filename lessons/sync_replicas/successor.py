"""What replaced SyncReplicasOptimizer, beside it: the same model and gradients, update by update."""

from __future__ import annotations

from engine.experiments.sync_replicas import SyncReplicasSettings
from engine.trace import Trace
from lessons.language import Texts, number
from lessons.sync_replicas.reading import Reading, read

SAME = ("workers", "steps", "optimizers", "gradients", "learning_rate", "momentum")  # settings that both have


def settings(chosen: SyncReplicasSettings) -> dict[str, object]:
    """The settings of `multi_worker` for the same model and gradients."""
    return {name: getattr(chosen, name) for name in SAME}


def table(before: Trace, now: Trace, texts: Texts) -> dict[str, list[str]]:
    """Columns of equal length, one row an update: of each variable what was averaged, or applied asynchronously, and
    what the variable then was; and the same under the strategy, which sums. "–" is what was not seen."""
    reading = read(before)
    replaced = _updates(now)
    columns: dict[str, list[str]] = {}
    keys = ("before" if reading.sync else "before_asynchronous", f"now.{now.start['settings']['strategy']}")
    length = max([0, *reading.updates().values(), *(len(replaced[name]) for name in reading.variables)])
    columns[texts("successor.update")] = [str(row + 1) for row in range(length)]
    for variable in reading.variables:
        for key, cells in zip(keys, (_averages(reading, variable), replaced[variable]), strict=True):
            columns[texts(f"successor.{key}", variable=variable)] = [*cells, *["–"] * (length - len(cells))]
    return columns


def sentences(before: Trace, now: Trace, texts: Texts) -> list[str]:
    """How the two differ, from the traces."""
    reading = read(before)
    if not now.answered or now.error is not None:
        return []
    chosen = now.start["settings"]
    end = {event["variable"]: f"`{event['variable']}` {number(event['value'])}" for event in now.of("variable")}
    sentences = [
        texts(
            f"successor.{chosen['strategy']}",
            count=chosen["workers"],
            gradients=texts("count.gradients", count=len(now.of("gradient"))),
            steps=texts("count.steps", count=chosen["steps"]),
            weights=texts.list(list(end.values())),
        )
    ]
    if reading.sync and reading.fates["taken"] < len(reading.pushes):
        sentences.append(texts("successor.unused", pushed=len(reading.pushes), taken=reading.fates["taken"]))
    return sentences


def _averages(reading: Reading, variable: str) -> list[str]:
    """Each update of the variable: its gradients, their average (asynchronously it is one gradient), and what the
    variable was before the next one."""
    averages = [average for average in reading.averages if average.variable == variable]
    ends = [average.t for average in averages[1:]] + [float("inf")]
    gradient = {worker.name: worker.gradient for worker in reading.workers}
    cells = []
    for average, end in zip(averages, ends, strict=True):
        seen = [look.weights[variable] for look in reading.looks if look.weights and average.t < look.t < end]
        after = number(seen[-1]) if seen else "–"
        gradients = _numbers([gradient[task] for task, _ in average.pushes])
        cells.append(f"{gradients} ⌀ {number(average.value)} → {after}" if reading.sync else f"{gradients} → {after}")
    return cells


def _updates(now: Trace) -> dict[str, list[str]]:
    """Of each variable, each step: the gradients that were applied, the sum of those of several workers, and what the
    variable then was."""
    summed = now.start["settings"]["strategy"] == "multi_worker"
    found: dict[str, list[str]] = {}
    names = dict.fromkeys(event["variable"] for event in now.of("gradient"))
    for variable in (*names, *("conv", "fc_w", "fc_b")):
        found.setdefault(variable, [])
    for variable in names:
        for step in sorted({event["step"] for event in now.of("gradient")}):
            of = [event for event in now.events if event.get("step") == step and event.get("variable") == variable]
            gradients = {
                (event.get("task"), event.get("worker")): float(event["value"])
                for event in sorted(of, key=lambda event: str(event.get("task")))
                if event["event"] == "gradient"
            }
            values = [float(event["value"]) for event in of if event["event"] == "variable"]
            after = number(values[-1]) if values else "–"
            total = f" Σ {number(round(sum(gradients.values()), 5))}" if summed else ""
            found[variable].append(f"{_numbers(list(gradients.values()))}{total} → {after}")
    return found


def _numbers(values: list[float]) -> str:
    return ", ".join(number(value) for value in values)
