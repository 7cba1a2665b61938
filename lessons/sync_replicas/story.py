"""What happened and why, in a few sentences, written from the trace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lessons.language import Texts, number
from lessons.sync_replicas.fix import suggested_fix
from lessons.sync_replicas.reading import CausedFailure, Deadlock, Reading


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
            sentences = [*self._asynchronous(), *self._counted(), *self._killed(), *self._rates()]
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
        reading, texts = self.reading, self.texts
        pushed, taken = len(reading.pushes), reading.fates["taken"]
        if not pushed:
            return []
        gradients = self._count("gradients", pushed)
        if len(reading.variables) > 1:
            gradients = texts("story.pushes.of_each", gradients=gradients)
        used = "some" if taken < pushed else "all"
        sentences = [
            texts(
                f"story.pushes.{used if reading.averages else 'none'}",
                count=pushed,
                workers=self._count("workers", sum(1 for worker in reading.workers if worker.pushes)),
                gradients=gradients,
                averages=self._count("averages", len(reading.averages)),
                taken=taken,
                needed=reading.needed,
            )
        ]
        twice = next(
            (each for each in reading.averages if len({task for task, _ in each.pushes}) < len(each.pushes)), None
        )
        if twice is not None:
            task = next(task for task, _ in twice.pushes if sum(other == task for other, _ in twice.pushes) > 1)
            sentences.append(texts("story.pushes.twice", worker=task))
        return sentences

    def _dropped(self) -> list[str]:
        """Which gradients were lost, and why."""
        reading, texts = self.reading, self.texts
        if not reading.lost:
            return []
        dropped, (worker, *others) = reading.fates["dropped"], reading.lost
        if others:
            lost = [texts("story.dropped.by", worker=name, number=count) for name, count in reading.lost.items()]
            sentences = [texts("story.dropped.of_several", number=dropped, lost=texts.list(lost))]
        else:
            sentences = [texts("story.dropped.of_one", worker=worker, count=dropped)]
        for each in reading.workers:
            fates = [push.fate for push in each.pushes]
            if len(fates) > 1 and set(fates) == {"dropped"}:
                sentences.append(texts("story.dropped.all", worker=each.name))
        # The accumulator's rule: TryApplyGrad in TensorFlow's conditional_accumulator.h.
        sentences.append(texts("story.dropped.why"))
        # A worker begins with local step 0, and a first token, which carries step 0, leaves it there.
        if any(push.fate == "dropped" and push.local_step == 0 and push.step > 1 for push in reading.pushes):
            sentences.append(texts("story.dropped.first_tokens", count=reading.first_tokens))
        return sentences

    def _asynchronous(self) -> list[str]:
        pushed, workers = len(self.reading.pushes), sum(1 for worker in self.reading.workers if worker.pushes)
        return [self.texts("story.asynchronous", count=pushed, workers=self._count("workers", workers))]

    # ---- what was counted ----

    def _counted(self) -> list[str]:
        reading = self.reading
        kind: str = reading.settings["global_step"]
        key = "right" if reading.counted_right else "wrong"
        one_hook = reading.sync and reading.optimizers > 1 and reading.settings["tokens"] == "first_hook_only"
        if len(reading.variables) > 1 and (kind == "shared") != reading.counted_right and not one_hook:
            key += f"_{kind}"
            if kind in ("own", "shared") and not reading.sync:
                key += "_asynchronously"
        sentence = self.texts(
            f"story.counted.{key}",
            step=reading.global_step(),
            steps=self._numbers(reading.steps().values()),
            updated=self._updated(reading.updates()),
            optimizers=len(reading.variables),
        )
        return [sentence, self.texts("story.deadlock.why.first_hook_only")] if one_hook else [sentence]

    def _updated(self, updates: Mapping[str, int]) -> str:
        """How many updates each variable had: "`conv` had 1 update and `fc_w` had none"."""
        counts = set(updates.values())
        if len(updates) > 1 and len(counts) == 1:
            names = self._variables(updates)
            return self.texts("story.updated.each", variables=names, updates=self._count("updates", counts.pop()))
        return self._together(
            self.texts(
                f"story.updated.{'one' if count else 'none'}", variable=variable, updates=self._count("updates", count)
            )
            for variable, count in updates.items()
        )

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
        return [self.texts(f"story.rates.{key}", weights=self._together(weights), should=self.texts.list(should))]

    def _moving_averages(self) -> list[str]:
        """Whether each moving average was moved once an update."""
        reading = self.reading
        if not reading.moving_averages or not reading.averages:
            return []
        found = [f"`{name}` {number(value)}" for name, value in reading.moving_averages.items()]
        should = [number(reading.averaged(variable)) for variable in reading.variables]
        key = "once" if reading.own_averages else "more"
        return [
            self.texts(f"story.moving.{key}", count=len(found), found=self.texts.list(found),
                       should=self.texts.list(should))
        ]  # fmt: skip

    # ---- tokens ----

    def _tokens(self) -> list[str]:
        reading, tokens = self.reading, self.reading.settings["tokens"]
        by_hook = reading.needed * reading.optimizers
        if tokens == "twice":
            return [self.texts("story.tokens.twice", count=by_hook, tokens=reading.first_tokens)]
        if tokens == "zero":
            return [self.texts("story.tokens.zero")]
        if tokens == "hook" and reading.first_tokens:
            return [self.texts("story.tokens.hook", count=reading.first_tokens)]
        return []

    # ---- deaths and deadlocks ----

    def _killed(self) -> list[str]:
        """Who was killed, and whether training went on."""
        reading, texts, sentences = self.reading, self.texts, []
        for worker in reading.dead:
            key = "chief" if worker.chief else "worker"
            sentences.append(texts(f"story.killed.{key}", worker=worker.name, step=worker.steps[-1].number))
            if reading.deadlock or reading.failure:
                continue
            alive = len(reading.workers) - len(reading.dead)
            key = "goes_on" if reading.sync else "goes_on_asynchronously"
            if not any(worker.killed is not None and update.t > worker.killed for update in reading.averages):
                key = "all_done"
            sentences.append(texts(f"story.killed.{key}", alive=self._count("workers", alive), needed=reading.needed))
        return sentences

    def _deadlock(self, deadlock: Deadlock) -> list[str]:
        reading, texts = self.reading, self.texts
        return [
            texts(
                f"story.deadlock.{'quiet' if reading.averages else 'quiet_from_the_start'}",
                seconds=number(round(deadlock.waited, 1)),
                updated=self._updated(reading.updates()),
            ),
            *self._waiting(deadlock),
            *self._held(deadlock),
            self._why(deadlock),
        ]

    def _waiting(self, deadlock: Deadlock) -> list[str]:
        """Who waits for what; those who wait for the same in one sentence."""
        reading, texts = self.reading, self.texts
        alike: dict[tuple[tuple[int, ...], tuple[int, ...]], list[str]] = {}
        for task, missing in deadlock.stuck.items():
            alike.setdefault((deadlock.has.get(task, ()), missing), []).append(task)
        return [
            texts(
                f"story.deadlock.{'waits' if reading.optimizers == 1 else 'holds' if has else 'has_none'}",
                count=len(tasks),
                workers=texts.list(tasks),
                has=self._tokens_for(has),
                missing=self._tokens_for(missing),
            )
            for (has, missing), tasks in alike.items()
        ]

    def _held(self, deadlock: Deadlock) -> list[str]:
        """What lies in the accumulators; those that hold as many in one sentence."""
        alike: dict[int, list[str]] = {}
        for variable, count in deadlock.held.items():
            alike.setdefault(count, []).append(variable)
        sentences = []
        for count, variables in alike.items():
            key = "short" if count < deadlock.needed else "full"
            if count:
                sentences.append(
                    self.texts(
                        f"story.deadlock.{key}_each" if len(variables) > 1 else f"story.deadlock.{key}",
                        variables=self._variables(variables),
                        held=count,
                        gradients=self._count("gradients", count),
                        needed=deadlock.needed,
                    )
                )
        return sentences

    def _why(self, deadlock: Deadlock) -> str:
        reading = self.reading
        key: str = reading.lock
        if key == "worker_dead":
            # Who dies in its first step has not taken a token yet.
            with_token = reading.optimizers == 1 and all(worker.pushes for worker in reading.dead)
            key = "worker_dead_with_token" if with_token else "worker_dead"
        return self.texts(
            f"story.deadlock.why.{key}",
            count=deadlock.needed,
            dead=self.texts.list([worker.name for worker in reading.dead]),
            left=deadlock.needed - 1,
            workers=self._count("workers", len(reading.workers)),
            replicas=reading.settings["total_num_replicas"],
        )

    # ---- errors ----

    def _failure(self, failure: CausedFailure) -> list[str]:
        reading, texts = self.reading, self.texts
        if not failure.raised:
            key = "updated" if reading.averages else "no_update"
            updated = self._updated(reading.updates())
            return [texts(f"story.stopped.{failure.kind}"), texts(f"story.stopped.{key}", updated=updated)]
        needed, replicas = reading.needed, reading.settings["total_num_replicas"]
        return [
            texts(
                f"story.where.{'before' if reading.began is None else 'later'}",
                kind=f"`{failure.kind}`",
                line=failure.at_line,
                tasks=texts.list(failure.tasks),
            ),
            texts(
                f"story.error.{failure.cause}",
                message=failure.quoted,
                count=needed - replicas,
                needed=needed,
                replicas=replicas,
            ),
        ]

    # ---- words ----

    def _change(self, change: Mapping[str, str]) -> str:
        return self.texts.list(f"`{name}={value}`" for name, value in change.items())

    def _together(self, clauses: Iterable[str]) -> str:
        """Clauses, not names, in one sentence."""
        *before, last = clauses
        return self.texts("story.updated.together", before=self.texts.items(before), last=last) if before else last

    def _variables(self, names: Iterable[str]) -> str:
        return self.texts.list(f"`{name}`" for name in names)

    def _tokens_for(self, optimizers: Sequence[int]) -> str:
        variables = [self.reading.variables[number] for number in optimizers]
        return self.texts("story.deadlock.tokens_for", count=len(variables), variables=self._variables(variables))

    def _numbers(self, values: Iterable[int]) -> str:
        """One number where they are equal."""
        return self.texts.list([str(value) for value in dict.fromkeys(values)])

    def _count(self, what: str, count: int) -> str:
        return self.texts(f"count.{what}", count=count)
