"""What happened and why, in a few sentences, written from the trace."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from lessons.language import Texts, number
from lessons.scaling.figure import small
from lessons.scaling.reading import ROUNDING, Reading, Step, close


def what_happened(reading: Reading, texts: Texts) -> list[str]:
    """Three to ten short sentences in Markdown: the first step by number, why it has that length, where the
    rate went, what is apart besides, and what came of it all."""
    if not reading.steps:
        return _end(reading, texts)
    return [
        *_first(reading, reading.steps[0], texts),
        *_why(reading, texts),
        *_normalization(reading, texts),
        *_uneven(reading, texts),
        *_end(reading, texts),
    ]


def _first(reading: Reading, first: Step, texts: Texts) -> list[str]:
    key = "one" if reading.replicas == 1 else reading.settings["gradient"]
    lengths = texts(
        f"story.first.{key}",
        gradients=_numbers(first.gradients, texts),
        merged=_rounded(first.merged),
        replicas=reading.replicas,
    )
    moves = texts(
        f"story.moves.{'small_batches' if reading.small_batches else 'global_batch'}",
        replicas=reading.replicas,
        rate=number(first.rate),
        update=_rounded(first.update),
        reference=_rounded(first.reference_update),
        factor=number(round(first.factor, 3)),
    )
    return [lengths, moves]


def _why(reading: Reading, texts: Texts) -> list[str]:
    """Why a step is as long as it is: loss, merge, rule, optimizer."""
    settings, replicas = reading.settings, reading.replicas
    rate, loss, merge, rule = (settings[name] for name in ("learning_rate", "loss", "gradient", "rule"))
    effective, meant = (rate * factor for factor in (reading.loss_factor * reading.rule_factor, reading.meant_factor))
    values: dict[str, Any] = {
        "replicas": replicas,
        "count": settings["per_replica_batch"],
        "batch": reading.global_batch,
        "rate": number(rate),
        "effective": number(round(effective, 6)),
        "meant": number(round(meant, 6)),
        "scaled": number(round(rate * reading.rule_factor, 6)),
        "factor": number(round(reading.loss_factor, 4)),
    }
    sentences = []
    if replicas > 1 or (loss == "sum" and reading.global_batch > 1):
        sentences.append(texts(f"story.loss.{loss}", **values))
    if replicas > 1:
        if merge != "sum":
            sentences.append(texts(f"story.gradient.{loss if merge == 'mean' else merge}", **values))
        if rule == "linear_warmup":
            last = reading.steps[-1]
            warm = {**values, "count": settings["warmup"], "step": last.number, "last": number(round(last.rate, 6))}
            sentences.append(texts("story.rule.linear_warmup", **warm))
        elif rule != "none":
            sentences.append(texts(f"story.rule.{rule}", **values))
    if settings["optimizer"] == "adam":
        if reading.loss_factor != 1:
            sentences.append(texts("story.adam", **values))
    elif reading.small_batches:
        right = math.isclose(effective, meant)
        sentences.append(texts(f"story.effective.{'as_small_steps' if right else 'not_as_small_steps'}", **values))
    elif not math.isclose(reading.loss_factor, 1):
        right = math.isclose(effective, meant)
        sentences.append(texts(f"story.effective.{'as_meant' if right else 'not_as_meant'}", **values))
    return sentences


def _normalization(reading: Reading, texts: Texts) -> list[str]:
    kind = reading.settings["normalization"]
    if kind == "none" or reading.replicas == 1:
        return []
    key = f"{kind}_small_batches" if reading.small_batches else kind
    share = texts("count.flowers", count=reading.settings["per_replica_batch"])
    return [texts(f"story.normalization.{key}", share=share, batch=reading.global_batch)]


def _uneven(reading: Reading, texts: Texts) -> list[str]:
    """The first batch that is not full: who got what, what their losses are divided by, what came of a share of none,
    and, where the two were one until then, what that step did."""
    step = reading.uneven
    if step is None:
        return []
    loss, kept = reading.settings["loss"], reading.settings["last_batch"]
    present = sum(step.examples)
    shares = [count for count in step.examples if count]
    key = kept if loss == "global_mean" else loss
    if key == "per_replica_mean":
        key += "_fewer" if step.empty else "_alike" if len(set(shares)) == 1 else ""
    sentences = [
        texts(
            "story.uneven.shares_one" if reading.replicas == 1 else "story.uneven.shares",
            step=step.number,
            count=present,
            examples=texts.list(map(str, step.examples)),
        ),
        texts(
            f"story.uneven.{key}",
            count=present,
            batch=reading.global_batch,
            factor=number(round(present / reading.global_batch, 3)),
            having=len(shares),
            replicas=reading.replicas,
        ),
        *_empty(step, texts),
    ]
    place = reading.steps.index(step)
    together = all(earlier.distance < ROUNDING for earlier in reading.steps[:place])
    if together and step.finite and not reading.small_batches:
        divided_away = abs(step.factor - 1) < abs(present / reading.global_batch - 1)
        wrong = "apart_adam" if reading.settings["optimizer"] == "adam" and divided_away else "apart"
        sentences.append(
            texts(
                f"story.uneven.{'together' if step.distance < ROUNDING else wrong}",
                update=_rounded(step.update),
                reference=_rounded(step.reference_update),
                factor=number(round(step.factor, 3)),
            )
        )
    return sentences


def _empty(step: Step, texts: Texts) -> list[str]:
    """What a replica without flowers computed: a loss, a gradient, or what is no number."""
    if not step.empty:
        return []
    losses = [step.losses[replica] for replica in step.empty]
    norms = [step.gradients[replica] for replica in step.empty]
    if all(map(math.isnan, norms)):
        key = "gradient"
    elif any(norms):
        return []
    else:
        key = "loss" if any(losses) else "zero"
    replicas = texts.list(map(str, step.empty))
    return [texts(f"story.uneven.empty_{key}", count=len(step.empty), replicas=replicas)]


def _end(reading: Reading, texts: Texts) -> list[str]:
    outcome = reading.outcome
    if outcome == "raised":
        return [texts("story.error.line", kind=f"`{reading.error}`", line=reading.line or "?")]
    if outcome in ("stopped", "nothing", "running"):
        return [texts("story.stopped", finished=len(reading.steps), count=reading.settings["steps"])]
    first, last = reading.steps[0], reading.steps[-1]
    key: str = outcome
    if outcome in ("scaled", "apart"):
        key = "small_batches" if reading.small_batches else "apart"
    elif outcome == "amplified" and reading.has_idle_bias:
        key = "amplified_bias"
    broken = reading.broken or last
    iterations = texts("count.steps", count=reading.iterations.get("iterations", last.number))
    sentences = [
        texts(
            f"story.end.{key}",
            count=reading.iterations.get("reference", last.number) if key == "small_batches" else last.number,
            distance=small(last.distance),
            farthest=small(reading.farthest),
            first=small(first.distance),
            since=next((step.number for step in reading.steps if not step.distance < ROUNDING), last.number),
            step=broken.number,
            replicas=texts.list(map(str, broken.empty)),
            iterations=iterations,
        )
    ]
    mine, other = reading.results.get("replicas"), reading.results.get("reference")
    if mine is not None and other is not None:
        same = close(mine.loss, other.loss) and mine.correct == other.correct
        sentences.append(
            texts(
                f"story.result.{'same' if same else 'other' if math.isfinite(mine.loss) else 'no_number'}",
                loss=number(round(mine.loss, 4)),
                reference=number(round(other.loss, 4)),
                correct=mine.correct,
                reference_correct=other.correct,
            )
        )
    return sentences


def _numbers(values: Iterable[float], texts: Texts) -> str:
    return texts.list(_rounded(value) for value in values)


def _rounded(value: float) -> str:
    """A length; one too small for four decimals keeps its digits."""
    return number(round(value, 4) if value >= 0.01 else value)
