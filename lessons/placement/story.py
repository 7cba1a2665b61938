"""What happened in a run of `placement`, a sentence each, written from its trace."""

from __future__ import annotations

from lessons.language import Texts, number
from lessons.placement.reading import Process, Reading


def what_happened(reading: Reading, texts: Texts) -> list[str]:
    """The story of one run, as Markdown."""
    if reading.error is not None:
        key = "article" if "task_index" in str(reading.error["message"]) else "line"
        fields = {"kind": reading.error["type"], "line": reading.error["line"]}
        return [texts(f"story.error.{key}", **fields)]
    sentences = [*_placement(reading, texts), *_sharing(reading, texts)]
    if reading.operation is not None and reading.operation[0] == "worker" and reading.placed:
        sentences.append(texts("story.operation", worker=reading.operation[1]))
    return sentences


def _placement(reading: Reading, texts: Texts) -> list[str]:
    setter = reading.settings["device_setter"]
    sentences = []
    if setter == "used":
        sentences.append(texts(f"story.used.{'merged' if reading.placed else 'not_merged'}"))
    else:
        sentences.append(texts(f"story.{setter}"))
    holders = {copy.process for copy in reading.copies}
    if reading.placed:
        sentences.append(texts(f"story.strategy.{reading.settings['strategy']}"))
    elif all(job == "worker" for job, _ in holders):
        sentences.append(texts("story.unplaced.local"))
    else:
        sentences.append(texts("story.unplaced.by_name", version=reading.tensorflow))
    loads = texts.items(
        texts("story.load", process=name(process, texts), bytes=size(reading.bytes_on(process)))
        for process in reading.processes
        if process in holders or process[0] == "ps"
    )
    sentences.append(texts("story.loads", loads=loads))
    return sentences


def _sharing(reading: Reading, texts: Texts) -> list[str]:
    if reading.outcome not in ("shared", "own", "mixed"):
        return [texts("story.alone")] if reading.outcome == "alone" else []
    values = sorted({value for seen in reading.read.values() for value in seen.values()})
    return [
        texts(
            f"story.{reading.outcome}",
            workers=texts.items(name(("worker", worker), texts) for worker in reading.read),
            written=number(max(reading.written.values())),
            values=texts.items(number(value) for value in values),
        )
    ]


def name(process: Process, texts: Texts) -> str:
    """A process as people call it."""
    return texts(f"figure.{process[0]}", index=process[1])


def size(count: int) -> str:
    """Bytes with a unit: 400 kB."""
    for unit, factor in (("MB", 1_000_000), ("kB", 1_000)):
        if count >= factor:
            return f"{number(round(count / factor, 1))} {unit}"
    return f"{count} B"
