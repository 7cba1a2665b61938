"""What happened in a run of `placement`, a sentence each, written from its trace."""

from __future__ import annotations

from collections.abc import Iterator

from lessons.language import Texts, number
from lessons.placement.reading import Process, Reading


def what_happened(reading: Reading, texts: Texts) -> list[str]:
    """The story of one run, as Markdown."""
    failure = reading.failure
    if failure is not None and failure.raised:
        key = "article" if "task_index" in failure.message else "other"
        fields = {"kind": f"`{failure.kind}`", "line": failure.at_line, "message": failure.quoted}
        return [texts(f"story.error.{key}", count=reading.settings["workers"], **fields)]
    sentences = [texts("story.stopped")] if failure else []
    if reading.devices:
        sentences += [
            *_device(reading, texts),
            *_parts(reading, texts),
            *_process(reading, texts),
            *_sharing(reading, texts),
        ]
    return sentences


def _device(reading: Reading, texts: Texts) -> Iterator[str]:
    """What was said of where variables go, and which device they have in the graph for it."""
    setter, inner = reading.settings["device_setter"], reading.settings["inner_device"] != "none"
    variable, device = next(iter(reading.devices.items()))
    if setter == "used":
        setter += "_merged" if reading.placed else "_not_merged"
    key = f"story.device.{setter}{'_inner' if inner and setter != 'used_not_merged' else ''}"
    yield texts(key, variable=f"`{variable}`", device=f"`{device}`")


def _parts(reading: Reading, texts: Texts) -> Iterator[str]:
    servers, parts = reading.settings["ps"], reading.parts
    if not parts:
        return
    if servers == 1:
        yield texts("story.parts.one", part=f"`{next(iter(parts.values()))[0]}`")
        return
    whole, most = max(parts.items(), key=lambda item: len(item[1]))
    if len(most) > 1:
        names = texts.list(f"`{part}`" for part in most)
        yield texts("story.parts.cut", servers=servers, variable=f"`{whole}`", parts=names)
    fewer = [f"`{variable}`" for variable, names in parts.items() if len(names) < servers]
    if fewer:
        yield texts("story.parts.fewer", variables=texts.list(fewer), count=len(fewer))


def _process(reading: Reading, texts: Texts) -> Iterator[str]:
    """Which process each variable is on therefore."""
    holders, count = {copy.process for copy in reading.copies}, len(reading.devices)
    if not reading.placed:
        local = all(job == "worker" for job, _ in holders)
        yield texts(f"story.unplaced.{'local' if local else 'by_name'}", version=reading.tensorflow)
    elif reading.settings["ps"] == 1:
        yield texts("story.strategy.only", count=count)
    else:
        yield texts(f"story.strategy.{reading.settings['strategy']}", count=count)
    loads = texts.items(
        texts("story.load", process=name(process, texts), bytes=size(reading.bytes_on(process)))
        for process in reading.processes
        if process in holders or process[0] == "ps"
    )
    yield texts("story.loads", loads=loads)


def _sharing(reading: Reading, texts: Texts) -> Iterator[str]:
    if reading.outcome == "alone":
        yield texts("story.alone")
    elif reading.read:
        values = sorted({value for seen in reading.read.values() for value in seen.values()})
        yield texts(
            f"story.{reading.outcome}",
            workers=texts.list(name(("worker", worker), texts) for worker in reading.read),
            written=number(max(reading.written.values())),
            values=texts.list(number(value) for value in values),
            processes=texts.list(name(each, texts) for each in reading.processes if each in reading.uses[0].values()),
            count=len(reading.written),
        )
    if reading.operation is not None and reading.operation[0] == "ps":
        yield texts("story.operation_away", process=name(reading.operation, texts))
    elif reading.operation is not None and reading.placed:
        yield texts("story.operation", worker=reading.operation[1])


def name(process: Process, texts: Texts) -> str:
    """A process as people call it."""
    return texts(f"figure.{process[0]}", index=process[1])


def size(count: int) -> str:
    """Bytes with a unit: 400 kB."""
    for unit, factor in (("MB", 1_000_000), ("kB", 1_000)):
        if count >= factor:
            return f"{number(round(count / factor, 1))} {unit}"
    return f"{count} B"
