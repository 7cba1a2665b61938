"""What happened and why, in a few sentences, written from the trace."""

from __future__ import annotations

from collections.abc import Iterator

from lessons.language import Texts, number
from lessons.variable_scope.reading import Item, Reading, short


def what_happened(reading: Reading, texts: Texts) -> list[str]:
    """A few short sentences in Markdown: what is one object and what isn't, what the names come from, where it lives,
    or what an error means."""
    sentences = [*_sharing(reading, texts), *_names(reading, texts)]
    if reading.failure:
        sentences += _failure(reading, texts)
    else:
        sentences += [*_writing(reading, texts), *_device(reading, texts)]
    return sentences


def _sharing(reading: Reading, texts: Texts) -> Iterator[str]:
    for root, items in reading.objects.items():
        if len(items) > 1:
            others = [f"`{item.statement.variable}`" for item in items[1:]]
            yield texts("story.same", names=texts.list(others), root=f"`{root}`", name=f"`{items[0].name}`")
    by_name: dict[str, list[str]] = {}
    for root, items in reading.objects.items():
        by_name.setdefault(items[0].name, []).append(f"`{root}`")
    for name, roots in by_name.items():
        if len(roots) > 1:
            yield texts("story.apart", names=texts.list(roots), name=f"`{name}`")
    if any(len(roots) > 1 for roots in by_name.values()):
        yield texts("story.eager")


def _names(reading: Reading, texts: Texts) -> Iterator[str]:
    again, ignored = set(), False
    open_name_scope = ""
    for item in reading.items:
        event, operation = item.event or {}, item.statement.operation
        if operation.kind in ("scope", "name_scope") and item.event:
            open_name_scope = event.get("name_scope", "")
            scope = str(event.get("variable_scope", ""))
            plain = scope.rpartition("/")[2]
            last = open_name_scope.rpartition("/")[2]
            renumbered = last.startswith(f"{plain}_") and last[len(plain) + 1 :].isdigit()
            if operation.kind == "scope" and renumbered and scope not in again:
                again.add(scope)
                yield texts("story.again", scope=f"`{scope}/`", name_scope=f"`{open_name_scope}/`")
            if operation.kind == "scope" and operation.options.get("auxiliary_name_scope") == "False":
                yield texts("story.no_name_scope", scope=f"`{scope}/`")
        around = any(other.statement.operation.kind == "name_scope" for other in _around(reading, item))
        if operation.kind == "get" and item.event and around and not ignored:
            ignored = True
            yield texts("story.ignored", name=f"`{item.name}`")
        if operation.kind == "get" and item.event and len(event["parts"]) > 1 and not item.shared:
            parts = [f"`{part}`" for part in event["parts"]]
            yield texts("story.parts", variable=f"`{item.statement.variable}`", parts=texts.list(parts))
    losses = reading.collections.get("regularization_losses", ())
    if losses:
        yield texts("story.losses", count=len(losses))


def _around(reading: Reading, item: Item) -> list[Item]:
    """The blocks that an operation stands in."""
    opened: list[Item] = []
    for other in reading.items:
        while opened and opened[-1].statement.depth >= other.statement.depth:
            opened.pop()
        if other is item:
            return opened
        if other.statement.operation.is_block:
            opened.append(other)
    return opened


def _writing(reading: Reading, texts: Texts) -> Iterator[str]:
    written = reading.written
    if written is None:
        return
    root = next(item.root for item in reading.variables if item.statement.variable == written)
    others = [f"`{i.statement.variable}`" for i in reading.objects[root] if i.statement.variable != written]
    key = "written_shared" if others else "written"
    yield texts(f"story.{key}", variable=f"`{written}`", others=texts.list(others))


def _device(reading: Reading, texts: Texts) -> Iterator[str]:
    if not reading.variables:
        return
    device = next((short(each) for each in reading.devices), "CPU:0")
    yield texts("story.eager_device" if reading.device(reading.variables[0]) else "story.device", device=device)


def _failure(reading: Reading, texts: Texts) -> list[str]:
    failure = reading.failure
    assert failure is not None
    if not failure.raised:
        return [texts(f"story.stopped.{failure.kind}")]
    key = failure.cause
    where = texts("story.where", kind=f"`{failure.kind}`", line=failure.at_line)
    eager = "_eager" if reading.eager and key == "no_shape" else ""
    return [where, texts(f"story.error.{key}{eager}", version=reading.tensorflow, message=failure.quoted)]


def value_in_words(value: object) -> str:
    """A value in few letters: a list of one as its number, a longer one by its first number, in brackets."""
    flat = list(_flat(value))
    return number(round(flat[0], 2)) if len(flat) == 1 else f"[{number(round(flat[0], 2))}, …]"


def _flat(value: object) -> Iterator[float]:
    if isinstance(value, list):
        for part in value:
            yield from _flat(part)
    else:
        assert isinstance(value, (int, float))
        yield float(value)
