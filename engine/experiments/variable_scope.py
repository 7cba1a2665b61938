"""The experiment `variable_scope`: what names a graph's variables and operations get, and which of them are the same.

A run is a short sequence of operations, each a word from a closed set: `scope:s,get:v:shape=1,close,op:c`. A word is a
kind, a name, and options of that kind, with colons between them. `close` leaves the block that was entered last; blocks
that are still open at the end are left there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Self, get_args

from pydantic import Field, field_validator

from engine.experiments.base import Experiment
from engine.settings import NONE, RuleError, Settings
from engine.versions import Versions

Kind = Literal["scope", "name_scope", "get", "variable", "op", "close"]
ScopeName = Literal["my_variable_scope", "s", "t", "n"]
Name = Literal["var1", "var2", "v", "w"]

SCOPES: Final = get_args(ScopeName)
NAMES: Final = get_args(Name)
BLOCKS: Final = ("scope", "name_scope")  # the kinds that are entered, and left by `close`
MAKERS: Final = ("get", "variable")  # the kinds that give a variable
# The options of each kind, and what each may be. An option that is left out is left out in the call too.
OPTIONS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "scope": {"reuse": ("False", "True", "AUTO_REUSE"), "auxiliary_name_scope": ("False",)},
    "name_scope": {},
    "get": {
        "shape": ("1", "2", "4x2"),
        "initializer": ("1.0", "2.0", "zeros"),
        "partitioner": ("fixed_size_2",),
        "regularizer": ("l2_loss",),
    },
    "variable": {"initial_value": ("1.0", "2.0")},
    "op": {},
    "close": {},
}
CAPTURED: Final = "@"  # before the name of a scope: by the object that it was when last opened by its name
MAX_OPERATIONS, MAX_DEPTH = 8, 3  # operations, `close` not counted; blocks in one another

ARTICLE: Final = (
    "scope:my_variable_scope",
    "get:var1:shape=1:initializer=1.0",
    "get:var2:shape=1:initializer=2.0",
    "close",
    "scope:my_variable_scope:reuse=True",
    "get:var1",
    "get:var2",
)

# Sequences worth a look.
PRESETS: Final[Mapping[str, str]] = {
    "article": ",".join(ARTICLE),
    "without_reuse": "scope:s,get:v:shape=1:initializer=1.0,close,scope:s,get:v:shape=1:initializer=1.0",
    "reuse_new": "scope:s:reuse=True,get:v:shape=1:initializer=1.0",
    "auto_reuse": "scope:s:reuse=AUTO_REUSE,get:v:shape=1:initializer=1.0,close,"
    "scope:s:reuse=AUTO_REUSE,get:v:shape=1:initializer=2.0",
    "entered_again": "scope:s,get:v:shape=1:initializer=1.0,variable:w,close,scope:s:reuse=True,get:v,variable:w,op:w",
    "name_scope": "name_scope:n,get:v:shape=1:initializer=1.0,variable:w,op:w",
    "captured": "scope:s,get:v:shape=1:initializer=1.0,close,scope:t,scope:@s:reuse=True,get:v",
    "partitioned": "scope:s,get:v:shape=4x2:initializer=1.0:partitioner=fixed_size_2:regularizer=l2_loss",
}

_CODE: Final[Mapping[tuple[str, str], str]] = {
    ("reuse", "AUTO_REUSE"): "tf.AUTO_REUSE",
    ("shape", "1"): "[1]",
    ("shape", "2"): "[2]",
    ("shape", "4x2"): "[4, 2]",
    ("initializer", "1.0"): "tf.constant_initializer(1.0)",
    ("initializer", "2.0"): "tf.constant_initializer(2.0)",
    ("initializer", "zeros"): "tf.zeros_initializer()",
    ("partitioner", "fixed_size_2"): "tf.fixed_size_partitioner(2)",
    ("regularizer", "l2_loss"): "tf.nn.l2_loss",
}
_WIDTH: Final = 88  # of a line of a program


def _refused(rule: str, allowed: str, **values: object) -> RuleError:
    return RuleError("operations", rule, allowed, **values)


@dataclass(frozen=True)
class Operation:
    """One operation: its kind, the name it gives, and its options by name. `captured` says that a variable_scope is
    opened by its object, not by its name. `close` has no name."""

    kind: str
    name: str = ""
    captured: bool = False
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, word: str) -> Self:
        """The operation that a word stands for. Raises RuleError, which says what is allowed in its place."""
        kind, *rest = word.split(":")
        if kind not in OPTIONS:
            raise _refused("kind", f"one of {', '.join(OPTIONS)}, and what belongs to it", kinds=tuple(OPTIONS))
        if kind == "close":
            if rest:
                raise _refused("bare_close", "close, with nothing after it")
            return cls(kind)
        given, options = rest[0] if rest else "", rest[1:]
        captured = kind == "scope" and given.startswith(CAPTURED)
        name = given[len(CAPTURED) :] if captured else given
        names = SCOPES if kind in BLOCKS else NAMES
        if name not in names:
            forms = [f"{kind}:NAME", *([f"{kind}:{CAPTURED}NAME"] if kind == "scope" else [])]
            allowed = f"{' or '.join(forms)}, the name one of {', '.join(names)}"
            raise _refused("name", allowed, forms=tuple(forms), names=names)
        chosen: dict[str, str] = {}
        for option in options:
            key, _, value = option.partition("=")
            if value not in OPTIONS[kind].get(key, ()) or key in chosen:
                forms = [f"{key}={'|'.join(values)}" for key, values in OPTIONS[kind].items()]
                allowed = f"after {kind}:{given}, each once: {', '.join(forms) or 'nothing'}"
                raise _refused("options", allowed, after=f"{kind}:{given}", options=tuple(forms) or (NONE,))
            chosen[key] = value
        return cls(kind, name, captured, {key: chosen[key] for key in OPTIONS[kind] if key in chosen})

    @property
    def word(self) -> str:
        """The word that stands for it, options in the order of their declaration."""
        name = [f"{CAPTURED if self.captured else ''}{self.name}"] if self.name else []
        return ":".join([self.kind, *name, *(f"{key}={value}" for key, value in self.options.items())])

    @property
    def is_block(self) -> bool:
        return self.kind in BLOCKS

    @property
    def makes_variable(self) -> bool:
        return self.kind in MAKERS


def parse_operations(words: Iterable[str]) -> tuple[Operation, ...]:
    """The operations that these words stand for, less each `close` at the end, where every block is left anyway.

    Raises RuleError, which says of the first word that isn't accepted what is allowed in its place.
    """
    operations: list[Operation] = []
    opened: list[str] = []
    by_name: set[str] = set()
    for number, word in enumerate(words, 1):
        try:
            operation = Operation.parse(word)
            if operation.is_block and len(opened) == MAX_DEPTH:
                raise _refused("depth", f"at most {MAX_DEPTH} blocks in one another", most=MAX_DEPTH)
            if operation.kind == "close" and not opened:
                raise _refused("nothing_open", "close only where a block is open")
            if operation.captured and operation.name not in by_name:
                allowed = f"{operation.word} only after scope:{operation.name}, whose object it is"
                raise _refused("not_captured", allowed, operation=operation.word, before=f"scope:{operation.name}")
        except RuleError as error:
            allowed, values = f"as word {number}, in place of {word[:40]!r}: {error}", error.values
            raise _refused(error.rule, allowed, **values, number=number, word=word[:40]) from None
        if operation.kind == "close":
            opened.pop()
        elif operation.is_block:
            opened.append(operation.name)
            if operation.kind == "scope" and not operation.captured:
                by_name.add(operation.name)
        operations.append(operation)
    while operations and operations[-1].kind == "close":
        operations.pop()
    count = sum(operation.kind != "close" for operation in operations)
    if not 1 <= count <= MAX_OPERATIONS:
        allowed = f"1 to {MAX_OPERATIONS} operations, close not counted (there are {count})"
        raise _refused("operations", allowed, most=MAX_OPERATIONS, count=count)
    return tuple(operations)


class VariableScopeSettings(Settings):
    """A sequence of operations, in a graph (then run in a tf.Session) or executed eagerly.

    `api` is what is imported as `tf`: tensorflow.compat.v1, or tensorflow itself. `assign` writes 10 into the variable
    that was made or returned first, or last, after all were read; then all are read again.
    """

    operations: tuple[str, ...] = Field(
        default=ARTICLE,
        description=(
            f"1 to {MAX_OPERATIONS} operations with commas between them, such as scope:s,get:v:shape=1,close,op:v; "
            "each is scope:NAME, name_scope:NAME, get:NAME, variable:NAME, op:NAME (options after colons) or close"
        ),
    )
    mode: Literal["graph", "eager"] = "graph"
    api: Literal["compat.v1", "tf"] = "compat.v1"
    assign: Literal["first", "last", "none"] = "first"

    @field_validator("operations", mode="before")
    @classmethod
    def _in_one_form(cls, words: Any) -> Any:
        if not isinstance(words, Sequence) or not all(isinstance(word, str) for word in words):
            return words
        return tuple(operation.word for operation in parse_operations(words))

    @property
    def parsed(self) -> tuple[Operation, ...]:
        """The operations themselves."""
        return parse_operations(self.operations)


# -------------------------------------------------------------------------------------------------------- the program


@dataclass(frozen=True)
class Statement:
    """One operation as the program has it: how deep in blocks, its lines (not indented), and for what it makes, the
    name that it has in the program. `number` counts operations from 1, `close` not among them."""

    number: int
    operation: Operation
    depth: int
    lines: tuple[str, ...]
    variable: str = ""


def statements(operations: Sequence[Operation]) -> Iterator[Statement]:
    """Each operation as Python."""
    depth = number = variables = constants = 0
    for place, operation in enumerate(operations):
        if operation.kind == "close":
            depth -= 1
            continue
        number += 1
        name = ""
        if operation.makes_variable:
            variables += 1
            name = f"var{variables}"
        elif operation.kind == "op":
            constants += 1
            name = f"const{constants}"
        captured = not operation.captured and operation.kind == "scope" and _is_captured(operation, operations[place:])
        room = _WIDTH - 4 * depth
        yield Statement(number, operation, depth, tuple(_lines(operation, name, captured, room)), name)
        depth += operation.is_block


def _is_captured(operation: Operation, following: Sequence[Operation]) -> bool:
    """True where the object of this scope, the first of `following`, is used before it is opened by name again."""
    for other in following[1:]:
        if other.kind == "scope" and other.name == operation.name:
            return other.captured
    return False


def _lines(operation: Operation, name: str, captured: bool, room: int) -> list[str]:
    options = [f"{key}={_CODE.get((key, value), value)}" for key, value in operation.options.items()]
    quoted = f'"{operation.name}"'
    if operation.kind == "scope":
        first = _object(operation.name) if operation.captured else quoted
        end = f" as {_object(operation.name)}:" if captured else ":"
        return _call("with tf.variable_scope", [first, *options], end, room)
    if operation.kind == "name_scope":
        return [f"with tf.name_scope({quoted}):"]
    if operation.kind == "get":
        return _call(f"{name} = tf.get_variable", [f"name={quoted}", *options], "", room)
    if operation.kind == "variable":
        return [f"{name} = tf.Variable([{operation.options.get('initial_value', '1.0')}], name={quoted})"]
    return [f"{name} = tf.constant(3.0, name={quoted})"]


def _object(scope: str) -> str:
    """The name of a scope's object in the program."""
    return scope if scope.endswith("_scope") else f"{scope}_scope"


def _call(before: str, arguments: Sequence[str], after: str, room: int) -> list[str]:
    """A call in one line, in three, or with a line for each argument: as formatters do it."""
    inside = ", ".join(arguments)
    if len(line := f"{before}({inside}){after}") <= room:
        return [line]
    if len(inside) + 4 <= room:
        return [f"{before}(", f"    {inside}", f"){after}"]
    return [f"{before}(", *(f"    {argument}," for argument in arguments), f"){after}"]


def body(operations: Sequence[Operation]) -> str:
    """The part of the program that does the operations: nested blocks, each thing reported as it comes."""
    lines: list[str] = []
    for statement in statements(operations):
        operation, indent = statement.operation, "    " * statement.depth
        begins = operation.is_block and not (statement.depth and lines[-1].endswith("entered()"))
        if lines and (begins or (statement.depth == 0 and lines[-1].startswith(" "))):
            lines.append("")
        lines += [indent + line for line in statement.lines]
        if operation.is_block:
            lines.append(f"{indent}    entered()")
        elif operation.makes_variable:
            lines.append(f'{indent}made("{statement.variable}", {statement.variable})')
        else:
            lines.append(f'{indent}added("{statement.variable}", {statement.variable})')
    return "\n".join(lines)


def context(settings: VariableScopeSettings, versions: Versions) -> dict[str, Any]:
    """What the template needs: the operations as Python, what they are made of, and how this TensorFlow is told to
    execute in that mode."""
    operations = settings.parsed
    made = [statement.variable for statement in statements(operations) if statement.operation.makes_variable]
    kinds = {operation.kind for operation in operations}
    second = versions.tensorflow_numbers >= (2, 0)
    switch = ""
    if not second and settings.mode == "eager":
        switch = "tf.enable_eager_execution()"
    elif second and settings.mode == "graph" and settings.api == "compat.v1":
        switch = "tf.disable_v2_behavior()"
    seed = ""
    # Without an initializer it is glorot_uniform's random numbers, where the call makes a variable at all.
    if any("shape" in each.options and "initializer" not in each.options for each in operations):
        seed = "tf.random.set_seed(1)" if second and settings.api == "tf" else "tf.set_random_seed(1)"
    return {
        "body": body(operations),
        "variables": made,
        "target": {"first": made[:1], "last": made[-1:], "none": []}[settings.assign],
        "blocks": bool(kinds & set(BLOCKS)),
        "constants": "op" in kinds,
        "partitioned": any("partitioner" in each.options for each in operations),
        "regularized": any("regularizer" in each.options for each in operations),
        # Without compat.v1, TensorFlow 2 knows no variable scopes, and executes eagerly whatever is wanted.
        "plain": second and settings.api == "tf",
        "switch": switch,
        "seed": seed,
    }


def logical_devices(_: VariableScopeSettings) -> list[str]:
    """The one device of this process that a run uses."""
    return ["CPU:0"]


VARIABLE_SCOPE = Experiment(
    name="variable_scope",
    template="variable_scope.py.jinja",
    settings=VariableScopeSettings,
    devices=logical_devices,
    context=context,
    runs_on=lambda versions: True,
    recorded=(
        {"operations": tuple(words.split(",") for words in PRESETS.values()), "mode": ("graph", "eager")},
        {"operations": tuple(words.split(",") for words in PRESETS.values()), "api": ("tf",)},
        {"assign": ("last", "none")},
    ),
)
