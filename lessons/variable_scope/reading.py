"""What the trace of a `variable_scope` run says: each operation's full name, which names are one object, what each
variable held, and where TensorFlow refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from engine.experiments.variable_scope import Statement, VariableScopeSettings, statements
from engine.trace import Event, Status, Trace
from lessons.failure import Failure, cause_of, failure_of

Cause = Literal[
    "exists", "missing", "other_shape", "no_shape", "no_attribute", "not_partitioned", "partitioned", "other"
]  # fmt: skip

# Part of a message -> why it was raised (tensorflow/python/ops/variable_scope.py, but for the last).
CAUSES: Final[tuple[tuple[str, Cause], ...]] = (
    ("already exists", "exists"),
    ("does not exist, or was not created with tf.get_variable", "missing"),
    ("but specified shape", "other_shape"),
    ("must be specified", "no_shape"),
    ("should be fully defined", "no_shape"),
    ("must be fully defined", "no_shape"),
    ("an unpartitioned version of the variable was found", "not_partitioned"),
    ("a partitioned version of the variable was found", "partitioned"),
    ("has no attribute", "no_attribute"),
)


@dataclass(frozen=True)
class Item:
    """One operation, and what was reported of it; nothing where it was not reached."""

    statement: Statement
    event: Event | None

    def field(self, name: str) -> Any:
        """What was reported under that name; None where nothing was."""
        fields: Mapping[str, Any] = self.event or {}
        return fields.get(name)

    @property
    def name(self) -> str:
        """The full name; "" where it has none."""
        return str(self.field("name") or "")

    @property
    def plain_name(self) -> str:
        """The full name without the number of the output, which is :0 for a whole variable."""
        return self.name.removesuffix(":0")

    @property
    def is_numbered(self) -> bool:
        """True where the name asked for was taken in the graph, and _1 or the like stands after it."""
        return bool(re.fullmatch(rf"{self.statement.operation.name}_\d+", self.plain_name.rpartition("/")[2]))

    @property
    def prefix(self) -> str:
        """For a block: what get_variable puts before a name in it."""
        scope = self.field("variable_scope")
        return f"{scope}/" if scope else ""

    @property
    def name_scope(self) -> str:
        """For a block: the name scope in it, without its last /; "" for none, and where there is no graph to ask."""
        return str(self.field("name_scope") or "")

    @property
    def parts(self) -> tuple[str, ...]:
        """The variables that stand behind the name: a partitioner makes several."""
        return tuple(self.field("parts") or [self.name])

    @property
    def count(self) -> int:
        """How many these are."""
        return len(self.parts)

    @property
    def root(self) -> str:
        """For a variable: the name that its object had first in the program."""
        return str(self.field("same_as") or self.statement.variable)

    @property
    def shared(self) -> bool:
        """True for a variable that was there before."""
        return bool(self.field("same_as"))


@dataclass(frozen=True)
class OperationFailure(Failure):
    """`place` is the operation's, None where it came after all."""

    cause: Cause
    place: int | None

    @property
    def attribute(self) -> str:
        """What tf no longer has; "" for any other cause."""
        found = re.search(r"has no attribute '(\w+)'", self.message)
        return f"tf.{found[1]}" if found else ""


@dataclass(frozen=True)
class Reading:
    """A whole run. `values` has what each variable held, by its name in the program: at first, and after the write."""

    settings: VariableScopeSettings
    tensorflow: str
    items: tuple[Item, ...]
    values: tuple[Mapping[str, Any], ...]
    collections: Mapping[str, tuple[str, ...]]
    devices: tuple[str, ...]
    status: Status
    failure: OperationFailure | None

    @property
    def eager(self) -> bool:
        return self.settings.mode == "eager"

    @property
    def variables(self) -> tuple[Item, ...]:
        """What was made or returned."""
        return tuple(item for item in self.items if item.event and item.statement.operation.makes_variable)

    @property
    def calls(self) -> tuple[Item, ...]:
        """Those of them that get_variable made or returned."""
        return tuple(item for item in self.variables if item.statement.operation.kind == "get")

    @property
    def objects(self) -> Mapping[str, tuple[Item, ...]]:
        """The variables that there are, by their first names, each with all that it is called."""
        return {
            item.root: tuple(other for other in self.variables if other.root == item.root) for item in self.variables
        }

    @property
    def count(self) -> int:
        """How many variables there are, each part by itself."""
        return sum(items[0].count for items in self.objects.values())

    @property
    def scopes(self) -> tuple[Item, ...]:
        """The variable scopes that were entered; none where this TensorFlow has none."""
        return tuple(item for item in self.items if item.statement.operation.kind == "scope" and item.prefix)

    def around(self, item: Item) -> tuple[Item, ...]:
        """The blocks in which an operation stands, the innermost last."""
        opened: list[Item] = []
        for other in self.items[: item.statement.number - 1]:
            opened = opened[: other.statement.depth]
            if other.statement.operation.is_block:
                opened.append(other)
        return tuple(opened[: item.statement.depth])

    def full_name(self, item: Item) -> str:
        """The name under which get_variable looks for a variable: the prefix and what the call says."""
        around = [other.prefix for other in self.around(item) if other in self.scopes]
        return f"{around[-1] if around else ''}{item.statement.operation.name}"

    @property
    def written(self) -> str | None:
        """The name in the program that 10 was written to."""
        if len(self.values) < 2 or not self.variables:
            return None
        return self.variables[0 if self.settings.assign == "first" else -1].statement.variable

    def device(self, item: Item) -> str:
        """The device that the variable asks for; "" where it asks for none."""
        return str(item.field("device") or "")


def read(trace: Trace) -> Reading:
    """Read a trace of `variable_scope`."""
    settings = VariableScopeSettings.parse(trace.start["settings"])
    reported = [event for event in trace.events if event["event"] in ("scope", "placement", "op")]
    made = list(statements(settings.parsed))
    items = [
        Item(statement, reported[place] if place < len(reported) else None) for place, statement in enumerate(made)
    ]
    values: dict[int, dict[str, Any]] = {}
    for event in trace.of("variable"):
        values.setdefault(event["step"], {})[event["variable"]] = event["value"]
    sessions = trace.of("session")
    devices = {event["device"]: None for event in trace.of("placement") if event["device"]}
    return Reading(
        settings,
        str(trace.start["tensorflow"]),
        tuple(items),
        tuple(values[step] for step in sorted(values)),
        {event["collection"]: tuple(event["names"]) for event in trace.of("collection")},
        tuple(sessions[0]["devices"] if sessions else devices),
        trace.status,
        _failure(trace, len(reported), len(made)),
    )


def _failure(trace: Trace, reached: int, all_of_them: int) -> OperationFailure | None:
    found = failure_of(trace)
    if found is None:
        return None
    place = reached if reached < all_of_them else None
    return OperationFailure(**vars(found), cause=cause_of(found, CAUSES, "other"), place=place)


def short(device: str) -> str:
    """ "/job:localhost/replica:0/task:0/device:CPU:0" as "CPU:0"."""
    return device.rpartition("device:")[2]
