"""What happened and why, in a few sentences, written from the trace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lessons.language import Texts, number, numbers_apart
from lessons.scope_placement.fix import beyond_fixing, keras_needed, suggested_fix
from lessons.scope_placement.reading import Birth, PartFailure, Reading, Role, Step, batch_gradients


def what_happened(reading: Reading, texts: Texts) -> list[str]:
    """Two to six short sentences in Markdown: whose weight, slots and iterations are, what training did to each copy or
    what an error means, and the smallest change that fixes it."""
    return _Story(reading, texts).sentences()


def change_in_words(change: Mapping[str, str], texts: Texts, *, code: bool = True) -> str:
    """Settings as they are written everywhere: `model_scope=in` and `optimizer_scope=in`."""
    mark = "`" if code else ""
    return texts.list([f"{mark}{name}={value}{mark}" for name, value in change.items()])


class _Story:
    def __init__(self, reading: Reading, texts: Texts) -> None:
        self.reading = reading
        self.texts = texts

    def sentences(self) -> list[str]:
        """The whole story."""
        sentences = [*self._weight(), *self._optimizer()]
        failure, last = self.reading.failure, self.reading.last
        if failure:
            sentences += self._failure(failure)
        elif last:
            sentences += self._training(self.reading.steps[0], last)
        if needed := keras_needed(self.reading):
            sentences.append(self.texts("story.other_keras", needed=needed))
        if change := suggested_fix(self.reading):
            sentences.append(self.texts("story.change", change=change_in_words(change, self.texts)))
        return sentences

    # ---- births ----

    def _weight(self) -> list[str]:
        weight = self.reading.weight
        if weight is None:
            return []
        owner = "mirrored" if weight.owner == "MirroredStrategy" else "plain"
        key = f"{weight.moment}_{owner}"
        if key == "first_call_mirrored":
            key += "_scope" if self.reading.direct else "_run"
        devices = self._list(weight.devices)
        copies = self.texts("story.copies", devices=devices, count=len(weight.devices))
        sentences = [self.texts(f"story.weight.{key}", line=weight.line, devices=devices, copies=copies)]
        if weight.moment == "construction" and self.reading.settings["dummy_call"] != "none":
            sentences.append(self.texts("story.weight.not_moved"))
        return sentences

    def _optimizer(self) -> list[str]:
        """A sentence for each moment at which the optimizer's variables came into being, and each owner."""
        groups: dict[str, list[Birth]] = {}
        for birth in self.reading.births:
            if birth.role != "weight":
                owner = "mirrored" if birth.owner == "MirroredStrategy" else "plain"
                groups.setdefault(f"{birth.moment}_{owner}", []).append(birth)
        return [
            self.texts(f"story.optimizer.{key}", names=self._names(births), line=births[0].line, count=len(births))
            for key, births in groups.items()
        ]

    def _names(self, births: Iterable[Birth]) -> str:
        by_role: dict[Role, list[str]] = {}
        for birth in births:
            by_role.setdefault(birth.role, []).append(f"`{birth.name}`")
        names = by_role.get("iterations", [])
        if slots := by_role.get("slot"):
            names.append(self.texts("story.slots", names=self._list(slots), count=len(slots)))
        if not (others := by_role.get("other")):
            return self._list(names)
        hyperparameters = self.texts("story.hyperparameters", names=self._list(others), count=len(others))
        if len(names) < 2:
            return self._list([*names, hyperparameters])
        return self.texts("story.and_hyperparameters", names=self._list(names), hyperparameters=hyperparameters)

    # ---- training ----

    def _training(self, first: Step, last: Step) -> list[str]:
        reading, outcome = self.reading, self.reading.outcome
        weight = reading.weight
        slots = [slot for slot in reading.slots if slot.owner == "default"]
        key: str = outcome
        if outcome == "trained" or outcome == "miscounted":
            key = self._merged_key()
        elif outcome == "diverged" and slots and weight is not None and weight.owner != "default":
            key = "diverged_shared"
        elif outcome == "diverged" and beyond_fixing(reading):
            key = "diverged_keras"
        elif outcome == "plain" and reading.fit:
            key = "plain_fit"
        elif outcome == "odd" and beyond_fixing(reading) and "first" in reading.merges:
            key = "odd_own"
        elif outcome == "odd" and reading.fit:
            key = "odd_fit_sum" if "sum" in reading.merges else "odd_fit"
        inputs = [float(x) for x in reading.settings["inputs"]]
        gradients = batch_gradients(reading, first.before[0]) if reading.fit else first.gradients
        after = number(last.after[0])
        sentences = [
            self.texts(
                f"story.training.{key}",
                gradients=self._numbers(gradients),
                total=number(sum(gradients)),
                mean=number(sum(gradients) / len(gradients)),
                unused=self.texts("story.training.unused", inputs=self._numbers(inputs[1:]), count=len(inputs) - 1),
                replicas=reading.replicas,
                keras=reading.keras,
                before=number(first.before[0]),
                first=number(first.after[0]),
                after=after,
                rest=self.texts("story.training.rest", value=number(last.after[-1]), count=len(last.after) - 1),
                copies=self._list(numbers_apart(last.after)),
                device=weight.devices[0] if weight else "",
                shared=self.texts("story.training.shared", slots=self._names(slots), count=len(slots)),
                steps=self._steps(last.number),
            )
        ]
        if outcome in ("trained", "miscounted") and last.number > 1:
            key = "after_one" if reading.replicas == 1 else "after"
            sentences.append(self.texts(f"story.training.{key}", steps=self._steps(last.number), after=after))
        if outcome == "one_replica" and reading.direct and reading.era == "legacy":
            sentences.append(self.texts("story.training.why_one_replica", version=reading.tensorflow))
        if outcome == "miscounted":
            sentences.append(
                self.texts(
                    "story.training.miscounted", count=number(max(last.iterations)), steps=self._steps(last.number)
                )
            )
        return sentences

    def _merged_key(self) -> str:
        if self.reading.replicas == 1:
            return "trained_one"
        if self.reading.fit:
            return "trained_fit" if self.reading.merges == ("mean",) else "trained_fit_unsure"
        return "trained" if self.reading.merges == ("sum",) else "trained_unsure"

    def _steps(self, steps: int) -> str:
        return self.texts("count.steps", count=steps)

    # ---- errors ----

    def _failure(self, failure: PartFailure) -> list[str]:
        reading, texts = self.reading, self.texts
        if not failure.raised:
            done = reading.last.number if reading.last else 0
            return [texts(f"story.stopped.{failure.kind}", finished=done, steps=reading.settings["steps"])]
        where = texts(
            f"story.where.{'step' if failure.step else 'building'}",
            kind=f"`{failure.kind}`",
            line=failure.at_line,
            code="" if failure.code is None else texts("story.where.code", code=failure.code.replace("`", "'")),
            step=failure.step,
        )
        meaning = texts(
            f"story.error.{error_key(reading)}",
            version=reading.tensorflow,
            message=failure.quoted,
        )
        return [where, meaning]

    # ---- words ----

    def _list(self, parts: Sequence[str]) -> str:
        return self.texts.list(parts)

    def _numbers(self, values: Iterable[float]) -> str:
        return self._list([number(value) for value in values])


def error_key(reading: Reading) -> str:
    """The name of the text that explains this run's error."""
    failure, weight = reading.failure, reading.weight
    assert failure is not None
    cause: str = failure.cause
    mirrored = weight is not None and weight.owner == "MirroredStrategy"
    if cause == "slot_scope" and mirrored:
        # The optimizer's own strategy, which 2.5.0 enters, may be the default one too.
        bound = reading.tensorflow.startswith("2.4.") or reading.settings["optimizer_scope"] == "in"
        return "slot_scope_active" if bound else "slot_scope_bound"
    if cause == "slot_scope":
        return "slot_scope_own" if reading.direct else "slot_scope"
    if cause == "no_handle":
        return "no_handle_scope" if reading.place("step") == "in" else "no_handle_merge"
    if cause == "placeholder":
        in_the_step = weight is not None and weight.moment == "first_call"
        return (
            "placeholder_both" if in_the_step and reading.has_slots else "placeholder_weight" if in_the_step else cause
        )
    if cause == "needs_scope" and reading.fit:
        return "needs_scope_fit"
    return cause
