"""What happened and why, in a few sentences, written from the trace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lessons.language import Texts, number
from lessons.variable_scope.fix import TO_GRAPH, suggested_fix
from lessons.variable_scope.reading import Item, Reading, short


def what_happened(reading: Reading, texts: Texts) -> list[str]:
    """A few short sentences in Markdown: what is one object and what isn't, what the names come from, where it lives,
    or what an error means."""
    sentences = [sentence for part in (_sharing, _reuse, _entering, _names) for sentence in part(reading, texts)]
    if reading.failure:
        sentences += _failure(reading, texts)
    else:
        sentences += [*_writing(reading, texts), *_device(reading, texts)]
    return sentences


def _sharing(reading: Reading, texts: Texts) -> Iterator[str]:
    for items in reading.objects.values():
        if len(items) > 1:
            yield texts("story.same", names=_variables(items, texts), name=f"`{items[0].name}`")
    by_name: dict[str, list[Item]] = {}
    for items in reading.objects.values():
        # In a graph a name of parts, which has no :0, may be beside that of a whole variable.
        by_name.setdefault(items[0].plain_name if reading.eager else items[0].name, []).append(items[0])
    apart = [group for group in by_name.values() if len(group) > 1]
    for group in apart:
        name = min((item.name for item in group), key=len)
        yield texts("story.apart", names=_variables(group, texts), name=f"`{name}`")
    kinds = [[item.statement.operation.kind for item in group] for group in apart]
    if any(each.count("get") > 1 for each in kinds):
        yield texts("story.eager")
    if any("variable" in each for each in kinds):
        yield texts("story.eager_variable")


def _reuse(reading: Reading, texts: Texts) -> Iterator[str]:
    """Which scopes have a reuse that they were not given: where False is given, it counts as not given."""
    if reading.eager:
        asked = any(item.statement.operation.options.get("reuse", "False") != "False" for item in reading.scopes)
        apart = len({item.plain_name for item in reading.variables}) < len(reading.variables)
        if asked and not apart and suggested_fix(reading) != TO_GRAPH:  # both are told with a reason of their own
            yield texts("story.reuse.eager")
        return
    found: dict[tuple[str, str], dict[str, None]] = {}
    for item in reading.scopes:
        given, holds = item.statement.operation.options.get("reuse", ""), item.event and item.event.get("reuse")
        if holds and given in ("", "False"):
            key = f"{'not_off' if given else 'left_out'}{'_object' if item.statement.operation.captured else ''}"
            found.setdefault((key, f"`reuse={holds}`"), {})[f"`{item.prefix}`"] = None
    for (key, reuse), prefixes in found.items():
        yield texts(f"story.reuse.{key}", scopes=texts.list(prefixes), reuse=reuse, count=len(prefixes))


def _entering(reading: Reading, texts: Texts) -> Iterator[str]:
    """What came of entering a scope once more, or one whose name was in use: variables and operations differ then."""
    entered: dict[str, None] = {}
    nested = False
    again: dict[tuple[str, str], list[str]] = {}
    for item in reading.scopes:
        operation, around = item.statement.operation, [each for each in reading.around(item) if each in reading.scopes]
        outer = around[-1] if around else None
        scope, name_scope = f"`{item.prefix}`", f"`{item.name_scope}/`"
        new = item.prefix not in entered
        entered[item.prefix] = None
        if new and outer and not operation.captured and outer.statement.operation.name == operation.name:
            nested = True
            call = f'`variable_scope("{operation.name}")`'
            yield texts("story.nested", call=call, outer=f"`{outer.prefix}`", scope=scope)
        if not item.name_scope or operation.options.get("auxiliary_name_scope") == "False":
            continue  # executed eagerly there is none, and without the auxiliary one it is that around it
        if not new:
            inside = any(each.prefix == item.prefix for each in around)
            key = "inside" if inside else "by_object" if operation.captured else "again"
            again.setdefault((key, scope), []).append(name_scope)
        elif item.name_scope.rpartition("/")[2] != operation.name:
            plain = f"`{item.name_scope.rpartition('_')[0]}/`"
            yield texts("story.taken", plain=plain, scope=scope, name_scope=name_scope)
    if nested:
        yield texts("story.back")
    for (key, scope), name_scopes in again.items():
        yield texts(f"story.{key}", scope=scope, name_scopes=texts.list(name_scopes), count=len(name_scopes))
    bare = {
        f"`{item.prefix}`": None
        for item in reading.scopes
        if item.statement.operation.options.get("auxiliary_name_scope") == "False"
    }
    if bare:
        yield texts("story.no_name_scope", scopes=texts.list(bare), count=len(bare))


def _names(reading: Reading, texts: Texts) -> Iterator[str]:
    in_name_scope = [
        item
        for item in reading.calls
        if any(each.statement.operation.kind == "name_scope" for each in reading.around(item))
    ]
    if in_name_scope:
        yield texts("story.ignored", name=f"`{in_name_scope[0].name}`")
    numbered = [item for item in reading.items if item.is_numbered and not item.shared]
    if numbered:
        names = texts.list(f"`{item.name}`" for item in numbered)
        yield texts("story.numbered", names=names, count=len(numbered))
    if found := [item for item in numbered if item in reading.calls]:
        names = texts.list(f"`{reading.full_name(item)}`" for item in found)
        yield texts("story.known_as", names=names, count=len(found))
    for item in reading.calls:
        if item.statement.operation.options.get("partitioner") and not item.shared:
            parts = texts.list(f"`{part}`" for part in item.parts)
            key = "parts" if item.count > 1 else "one_part"
            yield texts(f"story.{key}", variable=f"`{item.statement.variable}`", parts=parts)
    losses = reading.collections.get("regularization_losses", ())
    if losses:
        yield texts("story.losses", count=len(losses))


def _writing(reading: Reading, texts: Texts) -> Iterator[str]:
    written = reading.written
    if written is None:
        return
    root = next(item.root for item in reading.variables if item.statement.variable == written)
    others = [item for item in reading.objects[root] if item.statement.variable != written]
    key = "written_shared" if others else "written"
    yield texts(f"story.{key}", variable=f"`{written}`", others=_variables(others, texts), count=len(others))


def _device(reading: Reading, texts: Texts) -> Iterator[str]:
    if not reading.variables:
        return
    device = next((short(each) for each in reading.devices), "CPU:0")
    key = "eager_device" if reading.device(reading.variables[0]) else "device"
    yield texts(f"story.{key}", device=device, count=reading.count)


def _failure(reading: Reading, texts: Texts) -> list[str]:
    failure = reading.failure
    assert failure is not None
    if not failure.raised:
        return [texts(f"story.stopped.{failure.kind}")]
    where = texts("story.error.line", kind=f"`{failure.kind}`", line=failure.at_line)
    key, name = failure.cause, failure.attribute
    if failure.place is not None and key != "no_attribute":
        item = reading.items[failure.place]
        name = reading.full_name(item)
        if key == "exists" and not any(each in reading.scopes for each in reading.around(item)):
            made = next(each for each in reading.calls if reading.full_name(each) == name)
            return [where, texts("story.error.exists_outside", variable=f"`{made.statement.variable}`")]
        if key == "missing" and any(each.plain_name == name for each in reading.variables):
            return [where, texts("story.error.missing_variable", name=f"`{name}`")]
        if key == "no_shape" and reading.eager and suggested_fix(reading) == TO_GRAPH:
            return [where, texts("story.error.no_shape_eager")]
    return [where, texts(f"story.error.{key}", version=reading.tensorflow, message=failure.quoted, name=f"`{name}`")]


def _variables(items: Iterable[Item], texts: Texts) -> str:
    """The names that they have in the program, as a list."""
    return texts.list(f"`{item.statement.variable}`" for item in items)


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
