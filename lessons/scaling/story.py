"""What happened and why, in a few sentences, written from the trace."""

from __future__ import annotations

from lessons.language import Texts, number
from lessons.scaling.figure import small
from lessons.scaling.reading import ROUNDING, Reading, Step, close


def what_happened(reading: Reading, texts: Texts) -> list[str]:
    """Three to seven short sentences in Markdown: the first step by number, why it has that length, where the
    rate went, what is apart besides, and what came of it all."""
    sentences = []
    if reading.steps:
        first = reading.steps[0]
        sentences += [_first(reading, first, texts), *_why(reading, first, texts), *_besides(reading, texts)]
    sentences += _end(reading, texts)
    return sentences


def _first(reading: Reading, first: Step, texts: Texts) -> str:
    comma = texts("language.between_items")
    return texts(
        "story.first_one" if reading.replicas == 1 else "story.first",
        gradients=comma.join(number(round(value, 4)) for value in first.gradients),
        merged=number(round(first.merged, 4)),
        rate=number(first.rate),
        update=number(round(first.update, 4)),
        reference=number(round(first.reference_update, 4)),
        factor=number(round(first.factor, 3)),
    )


def _why(reading: Reading, first: Step, texts: Texts) -> list[str]:
    """Why the first step is as long as it is: loss, merge, rule, optimizer."""
    settings, replicas = reading.settings, reading.replicas
    values = {
        "replicas": replicas,
        "share": settings["per_replica_batch"],
        "batch": reading.global_batch,
        "rate": number(settings["learning_rate"]),
        "effective": number(round(settings["learning_rate"] * reading.loss_factor * reading.rule_factor, 6)),
        "scaled": number(round(settings["learning_rate"] * reading.rule_factor, 6)),
        "factor": number(round(reading.loss_factor, 4)),
        "warmup": settings["warmup"],
        "first": number(first.rate),
        "last": number(round(reading.steps[-1].rate, 6)),
    }
    sentences = []
    if replicas > 1:
        sentences.append(texts(f"story.loss.{settings['loss']}", **values))
        if settings["gradient"] != "sum":
            sentences.append(texts(f"story.gradient.{settings['gradient']}", **values))
        if settings["rule"] != "none":
            sentences.append(texts(f"story.rule.{settings['rule']}", **values))
        if settings["optimizer"] == "adam" and reading.loss_factor != 1:
            sentences.append(texts("story.adam", **values))
        elif reading.loss_factor != 1:
            sentences.append(texts("story.effective", **values))
    elif settings["loss"] == "sum":
        sentences.append(texts("story.loss.sum", **values))
    return sentences


def _besides(reading: Reading, texts: Texts) -> list[str]:
    """What no factor of the first step says: normalisation, and batches that are not full."""
    settings, sentences = reading.settings, []
    if settings["normalization"] != "none" and reading.replicas > 1:
        values = {"share": settings["per_replica_batch"], "batch": reading.global_batch}
        sentences.append(texts(f"story.normalization.{settings['normalization']}", **values))
    uneven = next((step for step in reading.steps if sum(step.examples) != reading.global_batch), None)
    if uneven is not None:
        sentences.append(
            texts(
                f"story.uneven.{settings['last_batch'] if settings['loss'] == 'global_mean' else settings['loss']}",
                step=uneven.number,
                examples=texts.items(map(str, uneven.examples)),
                present=sum(uneven.examples),
                batch=reading.global_batch,
                factor=number(round(sum(uneven.examples) / reading.global_batch, 3)),
            )
        )
    return sentences


def _end(reading: Reading, texts: Texts) -> list[str]:
    outcome = reading.outcome
    if outcome == "raised":
        return [texts("story.error.line", kind=f"`{reading.error}`", line=reading.line or "?")]
    if outcome in ("stopped", "nothing", "running"):
        return [texts("story.stopped", finished=len(reading.steps), steps=reading.settings["steps"])]
    last = reading.steps[-1]
    key: str = outcome
    if outcome in ("scaled", "apart"):
        key = "small_batches" if reading.small_batches else "apart"
    sentences = [
        texts(
            f"story.end.{key}",
            steps=last.number,
            distance=small(last.distance),
            farthest=small(reading.farthest),
            rounding=small(ROUNDING * 0.999),
            since=next((step.number for step in reading.steps if not step.distance < ROUNDING), last.number),
            iterations=reading.iterations.get("iterations", last.number),
            reference_iterations=reading.iterations.get("reference", last.number),
        )
    ]
    mine, other = reading.results.get("replicas"), reading.results.get("reference")
    if mine is not None and other is not None:
        same = close(mine.loss, other.loss) and mine.correct == other.correct
        sentences.append(
            texts(
                "story.result_same" if same else "story.result",
                loss=number(round(mine.loss, 4)),
                reference=number(round(other.loss, 4)),
                correct=mine.correct,
                reference_correct=other.correct,
            )
        )
    return sentences
