"""What happened, in a few sentences, written from the trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from engine.trace import Trace
from lessons.aggregation.fix import NO_GPU, NO_KERNEL, suggested_fix
from lessons.aggregation.reading import Reading, Step, StepFailure, Values
from lessons.language import Texts, number

# Part of what TensorFlow 2.21 and Keras 3.15 say -> the text that explains it. Of several that fit, the first
# is meant.
ERRORS: Final = (
    (
        "cannot be reduced with the given reduce op",
        "python_sum",
    ),  # cross_device_ops.reduce_non_distributed_value
    ("object has no attribute 'shape'", "python_zero"),  # the same, its np.zeros(value.shape)
    ("'PerReplica' object has no attribute", "cross_values"),  # values_util.assign_on_each_device
    ("Attempt to convert a value (PerReplica", "cross_values"),  # the same, of TensorFlow 2.4 and 2.5
    ("unsupported operand type(s) for /: 'PerReplica'", "cross_values"),  # on_read_assign_cross_replica
    ("object has no attribute 'dtype'", "python_optimizer"),  # keras TFOptimizer._all_reduce_sum_gradients
    ("object because it doesn't have device set", "python_optimizer"),  # the same, of TensorFlow 2.4 and 2.5
    ("Expected value to be mirrored across replicas", "cross_mirrored"),  # TensorFlow 2.4, values_util.assert_mirrored
    ("aggregation=MEAN and a non-floating dtype", "mean_int"),  # values.DistributedVariable.__init__
    ("Could not convert from `tf.VariableAggregation`", "read_none"),  # ReduceOp.from_variable_aggregation
    ("SyncOnReadVariable does not support", "cross_sum"),  # values_util.on_read_assign_add_cross_replica
    ("got an unexpected keyword argument", "unsummed"),  # keras BaseOptimizer.apply_gradients
    ("node Sqrt}}; Op<name=Sqrt", "whole_norm"),  # clip_ops.clip_by_norm
    (NO_KERNEL, "no_kernel"),
    (NO_GPU, "no_gpu"),
)


def what_happened(reading: Reading, trace: Trace, texts: Texts) -> list[str]:
    """Two to six short sentences in Markdown: what was sent, how it was merged, what copies, reads and
    counters say, or what an error means, and the smallest change that fixes what went wrong."""
    return _Story(reading, trace, texts).sentences()


def explanation(message: str) -> str:
    """The name of the text that explains this error message; "other" where none does."""
    return next((name for part, name in ERRORS if part in message), "other")


class _Story:
    def __init__(self, reading: Reading, trace: Trace, texts: Texts) -> None:
        self.reading = reading
        self.trace = trace
        self.texts = texts
        self.replicas = reading.replicas

    def sentences(self) -> list[str]:
        """The whole story."""
        reading, step, failure = self.reading, self.reading.last, self.reading.failure
        sentences = []
        if sent := next((each for each in reading.steps if None not in each.gradients), None):
            sentences.append(self._sent(sent))
        if step:
            sentences += self._merge(step)
            at_read = failure is not None and failure.place == "read"
            if not (failure and failure.raised and at_read):  # the error's own text says it
                sentences.append(self._copies(step))
            if reading.on_read and step.read is not None:
                sentences.append(self._read(step))
            if step.counts and not failure:
                sentences.append(self._counters(step))
        if failure:
            sentences += self._failure(failure)
        if change := suggested_fix(reading):
            words = self.texts.list(f"`{name}={value}`" for name, value in change.items())
            sentences.append(self.texts("story.change", change=words))
        return sentences

    def _sent(self, step: Step) -> str:
        """Who brings which numbers, and how often."""
        plain, sent = self.reading.settings["value"] == "python", step.gradients
        if self.reading.route == "cross_replica":
            key = "cross_python" if plain else "cross"
        elif plain:
            key = "python"
        else:
            key = "one" if self.replicas == 1 else "alike" if len(set(sent)) == 1 else "many"
        shown = sent[:1] if plain or key == "alike" else sent
        texts = self.texts
        sentence = texts(f"story.sent.{key}", count=self.replicas, replicas=self.replicas, gradients=self._list(shown))
        steps = len([each for each in self.reading.steps if None not in each.gradients])
        return texts.sentences([sentence, texts("story.sent.steps", count=steps)]) if steps > 1 else sentence

    def _merge(self, step: Step) -> list[str]:
        if self.reading.with_optimizer:
            return self._optimizer(step)
        unexplained = "write.other" if step.merged is not None else "write.differ"
        if self.reading.route == "cross_replica":
            if step.why in ("split", "split_cut"):
                key = f"on_read.{step.why}"
            elif self.reading.asked == "read" and step.merged is not None:
                key = "on_read.cross"
            elif "own" in step.fits:
                key = "cross.same" if step.merged is not None else "cross.own"
            else:
                key = unexplained
        elif self.reading.asked == "read" and step.merge in ("own", "one", "same") and "own" in step.fits:
            key = f"on_read.{step.merge}"
        elif step.merge == "other":
            key = unexplained
        elif step.merge == "same" and self.reading.settings["value"] == "python":
            key = "write.python"
        else:
            key = f"write.{step.merge}"
        return [self._tell(f"story.{key}", step)]

    def _optimizer(self, step: Step) -> list[str]:
        explained: str = step.why or ("other" if step.merged is not None else "differ")
        key: str = explained if step.merge == "other" else str(step.merge)
        if key == "lost" and step.contributions != step.gradients:
            key = "lost_clipped"
        sentences = [self._tell(f"story.optimizer.{key}", step)]
        if step.why == "whole_rate" and step.merge != "other":
            sentences.append(self._tell("story.optimizer.cut_rate", step))
        # A variable that is synchronised on read asks its aggregation after all: the sentence on the read
        # says so.
        elif self.reading.asked == "never" and self.reading.route == "optimizer":
            sentences.append(
                self._tell("story.optimizer.why_one" if self.replicas == 1 else "story.optimizer.why", step)
            )
        return sentences

    def _tell(self, key: str, step: Step) -> str:
        """A text on how a step merged, with all that such a text may want to say."""
        reading = self.reading
        gradients = [value for value in step.gradients if value is not None]
        ignored = tuple(value for value, used in zip(step.contributions, step.used, strict=True) if used is False)
        return self.texts(
            key,
            aggregation=reading.aggregation,
            method=reading.method,
            replicas=self.replicas,
            merged="?" if step.merged is None else number(step.merged),
            applied=self._list(step.applied[:1]),
            reached=self._list(step.reached),
            ignored=self._list(ignored),
            total=number(sum(gradients)),
            gap=number(abs(step.gap or 0.0)),
            value=number(gradients[0]),
            share=number(gradients[0] / self.replicas),
            read="?" if step.read is None else number(step.read),
            full=number(sum(value for value in step.contributions if value is not None)),
            half=self.replicas // 2,
            rules=self._rules(step.fits),
            rate=number(-reading.rate),
            whole_rate=number(reading.rate),
            learning_rate=number(reading.settings["learning_rate"]),
            clipnorm=number(reading.settings["clipnorm"] or 0.0),
        )

    def _copies(self, step: Step) -> str:
        if not step.equal:
            key = "differ_on_read" if self.reading.on_read else "differ"
            return self.texts(f"story.copies.{key}", copies=self._list(step.after))
        key = "equal_steps" if step.number > 1 else "same" if step.before == step.after else "equal"
        return self.texts(
            f"story.copies.{key}" + ("_one" if self.replicas == 1 else ""),
            method="optimizer.apply_gradients" if self.reading.with_optimizer else f"weight.{self.reading.method}",
            before=self._list(step.before[:1]),
            after=self._list(step.after[:1]),
            steps=step.number,
        )

    def _read(self, step: Step) -> str:
        assert step.read is not None
        return self.texts(
            f"story.read.{step.read_merge}",
            aggregation=self.reading.aggregation,
            value=number(step.read),
            rules=self._rules(step.read_fits),
        )

    def _counters(self, step: Step) -> str:
        texts, counts = self.texts, step.counts
        if odd := [count for count in counts if not count.as_expected]:
            return texts(
                "story.counters.odd",
                found=self.texts.list([f"{count.name} {'/'.join(map(number, count.copies))}" for count in odd]),
                expected=self.texts.list([number(count.expected) for count in odd]),
            )
        steps = texts("count.steps", count=step.number)
        if self.reading.route == "cross_replica":
            return texts("story.counters.once", steps=step.number)
        total = step.count("SUM")
        if self.replicas == 1 or total is None:
            return texts("story.counters.one", steps=step.number)
        right = [f"optimizer.{c.name}" if c.name == "iterations" else c.name for c in counts if c is not total]
        return texts(
            "story.counters.each",
            sum=number(total.value),
            steps=steps,
            replicas=self.replicas,
            right=self.texts.list([f"`{name}`" if "." in name else name for name in right]),
        )

    def _failure(self, failure: StepFailure) -> list[str]:
        texts, steps = self.texts, self.reading.settings["steps"]
        if not failure.raised:
            last = self.reading.last
            return [texts(f"story.stopped.{failure.kind}", finished=last.number if last else 0, steps=steps)]
        place = "creation" if failure.step == 0 else "before" if failure.step > 1 else "step"
        where = texts(
            f"story.where.{place}",
            kind=f"`{failure.kind}`",
            line=failure.at_line,
            step=failure.step,
            steps=steps,
        )
        reason = explanation(failure.message)
        if reason == "read_none" and failure.place == "update":
            reason = "read_none_at_write"
        meaning = texts(
            f"story.error.{reason}",
            replicas=self.replicas,
            keras=self.trace.start.get("keras", ""),
            message=failure.quoted,
        )
        return [where, meaning]

    def _list(self, values: Values | Sequence[float]) -> str:
        return self.texts.list(["?" if value is None else number(value) for value in values])

    def _rules(self, rules: Sequence[str]) -> str:
        return self.texts.list(self.texts(f"story.rules.{rule}") for rule in rules)
