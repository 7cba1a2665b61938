"""What happened and why, in a few sentences, written from the trace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lessons.language import Texts, number
from lessons.sync_replicas.fix import suggested_fix
from lessons.sync_replicas.reading import CausedFailure, Deadlock, Reading, close


def what_happened(reading: Reading, texts: Texts) -> list[str]:
    """Short sentences in Markdown: what was pushed, averaged and dropped, what global_step says of it, what the tokens
    did, why nothing moves any more or what an error means, and the smallest change that fixes it."""
    return _Story(reading, texts).sentences()


class _Story:
    def __init__(self, reading: Reading, texts: Texts) -> None:
        self.reading = reading
        self.texts = texts

    def sentences(self) -> list[str]:
        """The whole story."""
        reading, texts = self.reading, self.texts
        if reading.outcome == "running":
            return []
        if reading.failure:
            sentences = self._failure(reading.failure)
        elif not reading.sync:
            sentences = [*self._asynchronous(), *self._killed(), *self._rates()]
        else:
            sentences = [*self._killed(), *self._pushes(), *self._dropped()]
            if reading.deadlock:
                sentences += self._deadlock(reading.deadlock)
            else:
                sentences += [*self._counted(), *self._rates(), *self._moving_averages(), *self._tokens()]
        if change := suggested_fix(reading):
            sentences.append(texts("story.change", change=self._change(change)))
        return sentences

    # ---- what was pushed ----

    def _pushes(self) -> list[str]:
        reading, fates = self.reading, self.reading.fates
        if not reading.pushes:
            return []
        per = "many" if len(reading.variables) > 1 else "one"
        if not reading.averages:
            per = "none"
        sentences = [
            self.texts(
                f"story.pushes.{per}",
                workers=self._workers(len(reading.workers)),
                pushed=len(reading.pushes),
                averages=self._averages(len(reading.averages)),
                taken=fates["taken"],
                needed=reading.needed,
            )
        ]
        twice = next(
            (each for each in reading.averages if len({task for task, _ in each.pushes}) < len(each.pushes)), None
        )
        if twice is not None:
            task = next(task for task, _ in twice.pushes if sum(other == task for other, _ in twice.pushes) > 1)
            sentences.append(self.texts("story.pushes.twice", worker=task))
        return sentences

    def _dropped(self) -> list[str]:
        """Which gradients were lost, and why."""
        reading, texts = self.reading, self.texts
        if not reading.lost:
            return []
        lost = [texts("story.dropped.of", worker=name, count=count) for name, count in reading.lost.items()]
        sentences = [texts("story.dropped.why", count=reading.fates["dropped"], lost=self._list(lost))]
        for worker in reading.workers:
            fates = [push.fate for push in worker.pushes]
            if len(fates) > 1 and set(fates) == {"dropped"}:
                sentences.append(texts("story.dropped.all", worker=worker.name, count=len(fates)))
        # A worker begins with local step 0, and a first token, which carries step 0, leaves it there.
        if any(push.fate == "dropped" and push.local_step == 0 and push.step > 1 for push in reading.pushes):
            sentences.append(texts("story.dropped.first_tokens", tokens=reading.first_tokens))
        return sentences

    def _asynchronous(self) -> list[str]:
        reading = self.reading
        composite = len(reading.variables) > 1 and reading.settings["global_step"] == "composite"
        return [
            self.texts(
                "story.asynchronous_composite" if composite else "story.asynchronous",
                workers=self._workers(len(reading.workers)),
                pushed=len(reading.pushes),
                step=reading.global_step(),
            )
        ]

    # ---- what was counted ----

    def _counted(self) -> list[str]:
        reading, updates = self.reading, self.reading.updates()
        step, fewest = reading.global_step(), min(updates.values())
        kind: str = reading.settings["global_step"]
        key = "right" if reading.counted_right else "wrong"
        if reading.optimizers > 1 and kind in ("shared", "own"):
            key += f"_{kind}"
        elif len(reading.variables) > 1 and kind == "composite":
            key += "_composite"
        return [
            self.texts(
                f"story.counted.{key}",
                step=step,
                updates=fewest,
                variables=self._list([f"`{variable}`" for variable in reading.variables]),
                optimizers=reading.optimizers,
            )
        ]

    def _rates(self) -> list[str]:
        """Whether each variable moved by its own learning rate."""
        reading = self.reading
        if not reading.averages or not reading.weights:
            return []
        if not reading.sync and reading.settings["momentum"]:
            return []  # with momentum it depends on the order in which they were applied, which nobody tells
        weights = [
            self.texts("story.rates.weight", variable=variable, rate=number(reading.rate(variable)),
                       value=number(reading.weights[variable]))
            for variable in reading.variables
        ]  # fmt: skip
        if len(weights) == 1 and reading.own_rates:
            return []
        key = "own" if reading.own_rates else "other"
        should = [number(reading.moved(variable)) for variable in reading.variables]
        return [self.texts(f"story.rates.{key}", weights=self._list(weights), should=self._list(should))]

    def _moving_averages(self) -> list[str]:
        """Whether each moving average was moved once an update."""
        reading = self.reading
        if not reading.moving_averages or not reading.averages:
            return []
        right = all(
            close(reading.moving_averages[variable], reading.averaged(variable)) for variable in reading.variables
        )
        found = [f"`{name}` {number(value)}" for name, value in reading.moving_averages.items()]
        should = [number(reading.averaged(variable)) for variable in reading.variables]
        key = "once" if right else "more"
        return [self.texts(f"story.moving.{key}", found=self._list(found), should=self._list(should))]

    # ---- tokens ----

    def _tokens(self) -> list[str]:
        reading, tokens = self.reading, self.reading.settings["tokens"]
        alone = reading.needed * reading.optimizers
        if tokens == "twice":
            return [self.texts("story.tokens.twice", tokens=reading.first_tokens, alone=alone)]
        if tokens == "zero":
            return [self.texts("story.tokens.zero")]
        if tokens == "hook" and reading.first_tokens:
            return [self.texts("story.tokens.hook", tokens=reading.first_tokens)]
        return []

    # ---- deaths and deadlocks ----

    def _killed(self) -> list[str]:
        """Who was killed, and whether training went on."""
        reading, sentences = self.reading, []
        for worker in reading.dead:
            key = "chief" if worker.chief else "worker"
            sentences.append(self.texts(f"story.killed.{key}", worker=worker.name, step=worker.steps[-1].number))
            if not reading.deadlock and not reading.failure:
                alive = len(reading.workers) - len(reading.dead)
                key = "goes_on" if reading.sync else "goes_on_asynchronously"
                sentences.append(self.texts(f"story.killed.{key}", alive=self._workers(alive), needed=reading.needed))
        return sentences

    def _deadlock(self, deadlock: Deadlock) -> list[str]:
        reading, texts = self.reading, self.texts
        sentences = [
            texts(
                "story.deadlock.quiet",
                seconds=number(round(deadlock.waited, 1)),
                updates=self._updates(max(reading.updates().values())),
            )
        ]
        for task, missing in deadlock.stuck.items():
            if reading.optimizers == 1:
                continue
            has = deadlock.has.get(task, ())
            sentences.append(
                texts(
                    f"story.deadlock.{'holds_one' if has else 'has_none'}",
                    worker=task,
                    has=self._optimizers(has),
                    missing=self._optimizers(missing),
                )
            )
        if reading.optimizers == 1 and deadlock.stuck:
            sentences.append(
                texts("story.deadlock.waiting", workers=self._list(list(deadlock.stuck)), tokens=deadlock.tokens)
            )
        for variable, count in deadlock.held.items():
            if 0 < count < deadlock.needed:
                missing_count = deadlock.needed - count
                sentences.append(
                    texts("story.deadlock.short", variable=variable, count=count, needed=deadlock.needed,
                          missing=missing_count)
                )  # fmt: skip
            elif count >= deadlock.needed:
                sentences.append(texts("story.deadlock.full", variable=variable, count=count, needed=deadlock.needed))
        sentences.append(texts(f"story.deadlock.why.{reading.lock}"))
        return sentences

    # ---- errors ----

    def _failure(self, failure: CausedFailure) -> list[str]:
        reading, texts = self.reading, self.texts
        if not failure.raised:
            done = max(reading.updates().values())
            return [texts(f"story.stopped.{failure.kind}", updates=self._updates(done))]
        return [
            texts("story.where", kind=f"`{failure.kind}`", line=failure.at_line),
            texts(f"story.error.{failure.cause}", message=failure.quoted),
        ]

    # ---- words ----

    def _change(self, change: Mapping[str, str]) -> str:
        return self._list([f"`{name}={value}`" for name, value in change.items()])

    def _optimizers(self, numbers: Iterable[int]) -> str:
        return self._list([f"`{self.reading.variables[number]}`" for number in numbers])

    def _workers(self, count: int) -> str:
        return self.texts("count.workers", count=count)

    def _averages(self, count: int) -> str:
        return self.texts("count.averages", count=count)

    def _updates(self, count: int) -> str:
        return self.texts("count.updates", count=count)

    def _list(self, parts: Sequence[str]) -> str:
        return self.texts.list(parts)
