"""What holds of every story, of recorded runs and of runs with random settings: no sentence twice, forms that fit
their counts and lists, and every number that is called a sum, a mean or a length is one, by arithmetic on the trace."""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pytest

from engine.recordings import Recordings
from engine.trace import Trace
from lessons import LESSONS
from lessons.aggregation.lesson import LESSON as AGGREGATION
from lessons.language import LANGUAGES, MINUS, Language
from lessons.lesson import AnyLesson
from tests.conftest import Sample
from tests.lessons.traces import trace as aggregation_trace

RECORDINGS = Recordings()
RECORDED = [lesson for lesson in LESSONS if RECORDINGS.made_with(lesson.experiment)]
each_recorded = pytest.mark.parametrize("lesson", RECORDED, ids=lambda lesson: lesson.name)
each_lesson = pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)


@each_recorded
def test_stories_of_recorded_runs(lesson: AnyLesson, sample: Sample) -> None:
    traces = (
        recording.trace
        for runtime in RECORDINGS.made_with(lesson.experiment)
        for recording in RECORDINGS.all(lesson.experiment, runtime)
    )
    check(lesson, sample(traces, 1 / 4))


@each_lesson
def test_stories_of_random_runs(lesson: AnyLesson, random_runs: Callable[[AnyLesson], list[Trace]]) -> None:
    check(lesson, random_runs(lesson))


def check(lesson: AnyLesson, traces: Iterable[Trace]) -> None:
    for trace in traces:
        at = lesson.experiment.settings.parse(trace.start["settings"]).to_words(changed_only=True)
        for language in LANGUAGES:
            texts = lesson.texts(language)
            story = lesson.story(trace, texts)
            # What the figure shows may well show the same twice.
            problems = [
                *said_twice(story, language),
                *wrong_words([*story, lesson.alternative(trace, texts)], language),
            ]
            assert not problems, (at, trace.start["tensorflow"], problems)
        story = lesson.story(trace, lesson.texts("en"))
        assert not wrong_numbers(lesson.name, story, trace), (at, trace.start["tensorflow"])


# ------------------------------------------------------------------------------------------------------------- words

_ITEM = rf"(?:`[^`]+`|{MINUS}?\d[\d.]*)"
_NOUNS = (
    "averages|copies|flowers|gradients|losses|means|names|objects|optimizers|parts|places|processes|pushes|replicas|"
    "scopes|shares|slots|steps|tokens|updates|variables|workers|writes"
)
PROBLEMS: Final[Mapping[Language, Mapping[str, str]]] = {
    "en": {
        "and after and": rf"{_ITEM} and {_ITEM} and {_ITEM}",
        "one of many": rf"(?<![\w.,:/{MINUS}])(?<!worker )(?<!replica )(?<!step )1 (?:{_NOUNS})\b",
        "singular of several": r"(?:^|[.;:] )(?:`[^`]+`, )*`[^`]+` and `[^`]+` (?:is|has|was|does|holds|reads|gets)\b",
        "plural of one": r"(?:^|[.;:] )`[^`]+` (?:are|have|were|do|hold|read|get)\b",
        "no value": r"\bNone\b|\?\?|\bnan\b",
        "spaces": r"  | [.,;:](?=\s|$)|\.\.(?!\.)|,,",
    },
    "zh": {
        "和 after 和": rf"{_ITEM} ?和 ?{_ITEM} ?和 ?{_ITEM}",
        "no value": r"\bNone\b|\bnan\b",
        "punctuation": r"[\u4e00-\u9fff][,;:?!]|[。，；：]{2}",
    },
}


def wrong_words(story: Sequence[str], language: Language) -> list[str]:
    """What is wrong with these sentences, as far as a pattern can see it. Code is left as TensorFlow wrote it."""
    problems: list[str] = []
    for sentence in story:
        bare = re.sub(r"`[^`]*`", "`x`", sentence)
        problems += [f"{name}: {sentence}" for name, form in PROBLEMS[language].items() if re.search(form, bare)]
        problems += [f"placeholder: {sentence}"] * ("{" in bare)
        problems += [f"end: {sentence}"] * (not sentence.endswith((".", "`") if language == "en" else ("。", "`")))
    return problems


def said_twice(story: Sequence[str], language: Language) -> list[str]:
    return [f"twice: {sentence}" for sentence, count in Counter(split(story, language)).items() if count > 1]


def split(story: Sequence[str], language: Language) -> Iterator[str]:
    """Single sentences."""
    for part in story:
        yield from re.split(r"(?<=[.?!])\s+(?=[A-Z`*])", part) if language == "en" else re.findall("[^。]+。", part)


@pytest.mark.parametrize(
    ("story", "problem"),
    [
        (["`a` and `b` and `c` are one."], "and after and"),
        (["The copies hold 1 and 2 and 3."], "and after and"),
        (["Of 1 tokens none is left."], "one of many"),
        (["`var2` and `var3` is one object."], "singular of several"),
        (["The end. `a`, `b` and `c` reads it."], "singular of several"),
        (["`a` are one object."], "plural of one"),
        (["It holds {value}."], "placeholder"),
        (["It holds None."], "no value"),
        (["It holds"], "end"),
        (["It ends .."], "spaces"),
    ],
)
def test_what_is_wrong_is_seen(story: list[str], problem: str) -> None:
    assert [found.split(":")[0] for found in wrong_words(story, "en")][:1] == [problem]
    assert said_twice([*story, "B. A.", "C. A."], "en") == ["twice: A."]


def test_what_is_right_is_let_through() -> None:
    story = ["`a`, `b` and `c` are one; worker 1 pushes.", "In step 1 `a` is read, after 21 tokens.", "It holds `{}`."]
    assert not wrong_words(story, "en")
    assert not wrong_words(["`a`、`b` 和 `c` 是 1 个对象。"], "zh")
    assert wrong_words(["`a` 和 `b` 和 `c` 是 1 个对象。"], "zh")


# ----------------------------------------------------------------------------------------------------------- numbers

_NUMBER = rf"{MINUS}?\d+(?:\.\d+)?"
_LIST = rf"{_NUMBER}(?:(?:, {_NUMBER})* and {_NUMBER})?"
# A sentence with one of these and a number claims something that arithmetic can check.
_CLAIMS: Final = re.compile(
    r"\b(?:sums?|summed|adds?|added|adding|means?|averages?|averaged|averaging|lengths?)\b", re.IGNORECASE
)


def value(words: str) -> float:
    return float(words.replace(MINUS, "-"))


def values(words: str) -> list[float]:
    return [value(number) for number in re.findall(_NUMBER, words)]


def near(told: float, expected: float) -> bool:
    """As far as four decimals, or four digits, tell."""
    return abs(told - expected) <= 6e-5 + 2e-4 * abs(expected)


@dataclass(frozen=True)
class Claim:
    """A sentence's form, and what its numbers have to be. N stands for a number, L for a list of numbers, W for words,
    * for anything else; `holds` gets those but the last."""

    form: str
    holds: Callable[..., bool]

    def of(self, sentence: str) -> list[Any] | None:
        """The numbers, lists and words, where a sentence has this form."""
        kinds = re.findall(r"\b[NLW]\b", self.form)
        parts = {"N": f"({_NUMBER})", "L": f"({_LIST})", "W": "(.+?)", "*": ".*?"}
        pattern = "".join(parts.get(part, re.escape(part)) for part in re.split(r"(\b[NLW]\b|\*)", self.form))
        found = re.search(pattern, sentence)
        read: dict[str, Callable[[str], Any]] = {"N": value, "L": values, "W": str}
        if found is None:
            return None
        return [read[kind](group) for kind, group in zip(kinds, found.groups(), strict=True)]


def rules(words: str, numbers: Sequence[float]) -> bool:
    """Whether all rules named there give the same number, which is the first of these; the others were merged."""
    told, merged = numbers[0], numbers[1:]
    expected = {"the sum": sum(merged), "the mean": statistics.fmean(merged), "the first": merged[0]}
    own = "each one's own" not in words or all(near(told, each) for each in merged)
    return own and all(near(told, number) for rule, number in expected.items() if rule in words)


def wrong_numbers(name: str, story: Sequence[str], trace: Trace) -> list[str]:
    """Sentences that name a sum, a mean or a length which arithmetic does not give, or in a form nobody checks."""
    known = CLAIMS[name](trace) if name in CLAIMS else []
    problems = []
    for sentence in split(story, "en"):
        bare = re.sub(r"`[^`]*`", "`x`", sentence)
        if not _CLAIMS.search(bare) or not re.search(r"(?<!\w)\d", bare):
            continue
        claims = [(claim, found) for claim in known if (found := claim.of(sentence)) is not None]
        problems += [f"nobody checks: {sentence}"] * (not claims)
        problems += [f"wrong: {sentence}" for claim, found in claims if not claim.holds(*found)]
    return problems


def aggregation_claims(trace: Trace) -> list[Claim]:
    settings = trace.start["settings"]
    sent, replicas, limit = settings["gradients"], settings["replicas"], settings["clipnorm"]
    if settings["value"] == "python":
        sent = [sent[0]] * replicas
    total, mean, rate = sum(sent), sum(sent) / replicas, -settings["learning_rate"]
    rate = float(math.trunc(rate)) if settings["dtype"] == "int32" else rate
    clipped = sum(math.copysign(min(abs(each), limit), each) for each in sent) if limit else total
    rows: dict[int, list[float]] = {}
    for event in trace.of("variable"):
        rows.setdefault(event["step"], []).append(event["value"])
    # The copies of the last step that all of them reported on.
    last = rows[max(step for step, row in rows.items() if len(row) == replicas)] if rows else []
    copies = sum(last)

    def moves(merged: float, factor: float, again: float, moved: float) -> bool:
        return near(merged, again) and near(factor, rate) and near(moved, factor * merged)

    return [
        Claim("adds them, so every copy gets N.", lambda told: near(told, total)),
        Claim("averages them, so every copy gets N.", lambda told: near(told, mean)),
        Claim("SGD adds the gradients to N and moves every copy by N × N = N.", lambda told, factor, merged, moved:
              near(told, total) and moves(told, factor, merged, moved)),
        Claim("nothing to add: SGD moves the copy by N × N = N.", lambda factor, merged, moved: moves(merged, factor,
              total, moved)),
        Claim("SGD moves every copy by N × N = N; N is W alike", lambda factor, merged, moved, told, words:
              moves(told, factor, merged, moved) and rules(words, [told, *sent])),
        Claim("SGD does not sum over replicas here: each copy moves by N ×", lambda told: near(told, rate)),
        Claim("the sum of the gradients is N, N away", lambda told, _: near(told, total)),
        Claim("very copy gets N, which is W alike", lambda told, words: rules(words, [told, *sent])),
        Claim("very copy got N, which is neither the sum nor the mean", lambda told, *_: not near(told, total)
              and not near(told, mean)),
        Claim("first clips each gradient to at most N and then adds what is left to N; without clipping it would be N.",
              lambda most, told, whole: most == limit and near(told, clipped) and near(whole, total)),
        Claim("first adds the gradients to N and then clips the sum to N.", lambda told, cut: near(told, total)
              and near(abs(cut), limit)),
        Claim("the sum of the gradients, N, and gets N", lambda told, got: near(told, total)
              and near(got, total - sent[-1])),
        Claim("the sum of the clipped gradients, N, and gets N", lambda told, got: near(told, clipped) and got != told),
        Claim("it adds the copies and gives N.", lambda told: near(told, copies)),
        Claim("it averages the copies and gives N.", lambda told: near(told, copies / replicas)),
        Claim("it gives N, which is W of the copies alike", lambda told, words: rules(words, [told, *last])),
        Claim("counter says N after N step*, because each of the N replicas adds N", lambda told, steps, each, one:
              told == steps * each and each == replicas and one == 1),
        Claim("count it once or N times", lambda count: count == replicas),
        Claim("would count N times in the sum of the copies", lambda count: count == replicas),
        Claim("takes N as what a read shall give, so each of the N copies is set to its share, N.",
              lambda whole, count, share: near(whole, count * share)),
        Claim("in Keras 3 `apply_gradients` takes gradients and variables and always sums", lambda: True),
    ]  # fmt: skip


def scaling_claims(trace: Trace) -> list[Claim]:
    settings, steps = trace.start["settings"], trace.of("step")
    if not steps:
        return []
    first, replicas, share = steps[0], settings["replicas"], settings["per_replica_batch"]
    uneven = next((step for step in steps if sum(step["examples"]) != replicas * share), first)
    having = sum(count > 0 for count in uneven["examples"])
    multiple = {"global_mean": 1, "per_replica_mean": replicas, "sum": replicas * share}[settings["loss"]]
    averaged = settings["gradient"] == "mean"
    # The reference's step over its rate is the mean gradient over all flowers, where both compute the same function.
    same = settings["reference"] == "global_batch" and settings["optimizer"] != "adam" and (
        settings["normalization"] != "per_replica" or replicas == 1
    )  # fmt: skip
    mean = first["reference_update"] / settings["learning_rate"]

    def length(told: float) -> bool:
        expected = multiple * mean / (replicas if averaged else 1)
        longest = sum(first["gradients"]) / (replicas if averaged else 1)  # no sum of vectors is longer
        return told <= longest * 1.001 and (not same or abs(told - expected) <= 1e-3 * expected + 1e-4)

    return [
        Claim("gradients have the lengths L.", lambda told: len(told) == replicas
              and all(near(each, norm) for each, norm in zip(told, first["gradients"], strict=True))),
        Claim("the gradient has the length N.", length),
        Claim("adds them as vectors, and their sum has the length N.", lambda told: not averaged and length(told)),
        Claim("divided by N and then added as a vector, so the optimizer gets their mean, which has the length N.",
              lambda count, told: averaged and count == replicas and length(told)),
        Claim("gets N times their mean, which is their sum as vectors and has the length N.", lambda count, told:
              count == replicas and length(told)),
        Claim("divides its N loss* by the global batch of N, and adding N such parts gives the mean",
              lambda own, batch, parts: batch == own * parts and parts == replicas),
        Claim("by N, not by N, so its gradient is N times as large as its part of the global mean",
              lambda own, batch, count: batch == own * count and count == replicas),
        Claim("the gradient is N times the mean’s", lambda told: told == replicas * share),
        Claim("Dividing each gradient by N before they are added makes up", lambda count: count == replicas),
        Claim("Dividing each gradient by N before they are added leaves N times the mean’s", lambda count, told:
              count == replicas and told == share),
        Claim("adds these N equal means again", lambda count: count == replicas),
        Claim("only N of N have one: N mean* are added, where usually there are N.", lambda some, count, means, usual:
              some == means == having and count == usual == replicas),
        Claim("takes a mean over nothing there, 0/0", lambda: having < replicas),
        Claim("mean and variance of its own N flower", lambda told: told == share),
        Claim("adds sums and counts over the replicas", lambda: replicas > 1),
        Claim("Replica* have none: their loss, a mean over nothing, is NaN", lambda: having < replicas),
        Claim("Replica* has none: its loss, a mean over nothing, is NaN", lambda: having == replicas - 1),
        Claim("adds these NaN to all other gradients", lambda: having < replicas),
    ]  # fmt: skip


def scope_claims(trace: Trace) -> list[Claim]:
    sent = {(event["step"], event["replica"]): event["value"] for event in trace.of("gradient")}
    last = max((step for step, _ in sent), default=0)
    steps = [[number for (at, _), number in sent.items() if at == step] for step in range(1, last + 1)]
    replicas, each = trace.start["settings"]["replicas"], trace.start["settings"]["inputs"]

    def of_some_step(told: Sequence[float], merged: float, merge: Callable[[Sequence[float]], float]) -> bool:
        rows = steps or [each]
        return near(merged, merge(told)) and any(
            all(near(one, other) for one, other in zip(told, row, strict=False)) for row in rows
        )

    def total(merged: float) -> bool:
        return any(near(merged, sum(row)) for row in [*steps, each])

    def mean(merged: float) -> bool:
        return any(near(merged, statistics.fmean(row)) for row in [*steps, each])

    return [
        Claim("the gradients L add up to N,", lambda told, merged: of_some_step(told, merged, sum)),
        Claim("the mean of the batch's gradients L, which is N,", lambda told, merged: of_some_step(told, merged,
              statistics.fmean)),
        Claim("their sum can't be told from their mean", lambda: True),
        Claim("the sum of the gradients, N, does not account for", total),
        Claim("the mean of the batch's gradients, N, does not account for", mean),
        Claim("by the sum of the batch's gradients, N, where their mean is N", lambda told, other: total(told)
              and mean(other)),
        Claim("each replica adds N to it", lambda one: one == 1),
        Claim("and N of N are added", lambda some, count: some <= count == replicas),
        Claim("A loss of Keras 2 takes the mean over the examples it gets", lambda: True),
        Claim("Keras 3.5 sums them", lambda: True),
        Claim("Keras 3.8 takes the mean", lambda: True),
    ]  # fmt: skip


def sync_claims(trace: Trace) -> list[Claim]:
    settings, pushed, averages = trace.start["settings"], trace.of("push"), trace.of("average")
    needed, optimizers, replicas = (
        settings[name] for name in ("replicas_to_aggregate", "optimizers", "total_num_replicas")
    )
    each = [len(average["pushes"]) for average in averages]

    def is_needed(told: float) -> bool:
        return told == needed and (settings["sync"] == "no" or all(count >= needed for count in each))

    def is_from_one_worker(worker: float) -> bool:
        names = [[task for task, _ in average["pushes"]] for average in averages]
        return any(tasks.count(f"worker:{worker:g}") > 1 for tasks in names)

    return [
        # Without synchronization a report of what was applied has one gradient, and no average is made.
        Claim("nothing is averaged: each of the N gradients", lambda told: told == len(each) and set(each) == {1}),
        Claim("nothing is averaged: the one gradient of N worker", lambda _: each == [1]),
        Claim("pushed N gradient* and none was ever averaged", lambda told: told == len(pushed) and not averages),
        Claim("pushed N gradient* and it was never averaged", lambda told: told == len(pushed) == 1 and not averages),
        Claim("pushed N gradient* and N average* took N of them (an average takes at least N)", lambda told, count,
              took, least: (told, count, took) == (len(pushed), len(averages), sum(each)) and is_needed(least)),
        Claim("pushed N gradient* and N average* took all of them (an average takes at least N)", lambda told, count,
              least: (told, count) == (len(pushed), len(averages)) and told == sum(each) and is_needed(least)),
        Claim("pushed N gradient* and N average* took it", lambda told, count: told == count == sum(each) == 1),
        Claim("each of the N optimizers adds N ", lambda count, one: count == optimizers and one == 1),
        Claim("an average takes N,", is_needed),
        Claim("hold* N* of the N gradients that an average takes", lambda held, told: held < told == needed),
        Claim("hold* enough for an average (N)", is_needed),
        Claim("can't bring the N gradients that an average takes", is_needed),
        Claim("an average takes N: one first token is missing", lambda told: told == needed == replicas + 1),
        Claim("an average takes N: N first tokens are missing", lambda told, missing: told == needed
              and missing == needed - replicas),
        Claim("An average counts gradients, not workers: some hold more than one from worker:N.", is_from_one_worker),
        Claim("The moving average", lambda: settings["moving_average"] != "none"),
        Claim("so * pushed once more with local step 0: too late, after the first average", lambda: bool(averages)),
        Claim("there was no token before the first average", lambda: settings["tokens"] == "zero"),
    ]  # fmt: skip


CLAIMS: Final[Mapping[str, Callable[[Trace], list[Claim]]]] = {
    "aggregation": aggregation_claims,
    "scaling": scaling_claims,
    "scope_placement": scope_claims,
    "sync_replicas": sync_claims,
}


def test_a_wrong_number_and_a_new_claim_are_seen() -> None:
    """1 + (0.1 + 0.2), and 1 + 0.15."""
    summed = aggregation_trace([1.3, 1.3], aggregation="SUM")
    story = AGGREGATION.story(summed, AGGREGATION.texts("en"))
    assert not wrong_numbers("aggregation", story, summed)
    assert wrong_numbers("aggregation", [sentence.replace("gets 0.3", "gets 0.15") for sentence in story], summed)
    assert wrong_numbers("aggregation", ["`x` averages them, so every copy gets 0.3."], summed)
    assert not wrong_numbers("aggregation", ["`x` averages them, so every copy gets 0.15."], summed)
    assert wrong_numbers("aggregation", ["The sum is, as it were, 0.3."], summed) == [
        "nobody checks: The sum is, as it were, 0.3."
    ]
