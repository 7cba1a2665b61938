"""Settings: the declared, validated choices of one experiment, and their forms as words and in a URL.

A setting is declared once, as a field of a `Settings` model. Its widget, its URL form, its command line form and its
validation all come from that declaration.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import PydanticUndefined

NONE = "none"  # how an absent value is written


@dataclass(frozen=True)
class Problem:
    """One setting that was not accepted: its name, what was given, and what is allowed, in English.

    Where that is more than the setting's own declaration says, `rule` names what was broken, and `values` are what a
    text about it in another language needs.
    """

    setting: str
    given: str
    allowed: str
    rule: str = ""
    values: Mapping[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.setting}: {self.given!r} was given; allowed: {self.allowed}"


class RuleError(ValueError):
    """Raised by a check of several settings, or of a list: which setting it refuses, by which rule, and what is allowed
    in English; `values` as in `Problem`."""

    def __init__(self, setting: str, rule: str, allowed: str, **values: object) -> None:
        super().__init__(allowed)
        self.setting = setting
        self.rule = rule
        self.values = values


class SettingsError(ValueError):
    """Settings that were not accepted, with each problem."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(str(problem) for problem in self.problems))


@dataclass(frozen=True)
class Setting:
    """What one setting accepts, read off its declaration.

    `kind` is "choice" (one of `choices`), "integer" or "number" (from `minimum` to `maximum`), "numbers" (a list of
    such numbers), or "words" (a list of words from a closed set, which `form` describes; the settings' own check says
    more of what is wrong with one). `optional` settings also accept `none`. `default` is None where it follows from
    other settings.

    A list of numbers has one for each replica, or whatever `each` says: as many as the setting of that name in the
    plural (`replicas`), or where there is none, from `shortest` to `longest`. `whole` numbers have no fraction.
    """

    name: str
    kind: Literal["choice", "integer", "number", "numbers", "words"]
    default: Any
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    optional: bool = False
    each: str = ""
    shortest: int | None = None
    longest: int | None = None
    whole: bool = False
    form: str = ""

    @property
    def counted_by(self) -> str:
        """The setting that says how many numbers this list has, if there is one of that name."""
        return f"{self.each}s"

    @property
    def allowed(self) -> str:
        """What is accepted, in words."""
        if self.kind == "choice":
            return ", ".join(self.choices)
        if self.kind == "words":
            return self.form
        bounds = f"{self.minimum:g} to {self.maximum:g}" if self.kind != "integer" else f"{self.minimum}-{self.maximum}"
        words = {"integer": "a whole number ", "number": "a number from ", "numbers": "numbers from "}[
            self.kind
        ] + bounds
        if self.kind == "numbers":
            if self.longest is not None:
                words = f"{self.shortest} to {self.longest} {'whole ' if self.whole else ''}{words}"
            words += f", separated by commas, one per {self.each}"
        elif self.optional:
            words += f", or {NONE}"
        return words


class Settings(BaseModel):
    """The base of every experiment's settings: immutable, complete, and nothing but what is declared."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _read_words(cls, data: Any) -> Any:
        """Take the forms of the command line and the URL: `none`, and lists with commas."""
        if not isinstance(data, Mapping):
            return data
        declared = {setting.name: setting for setting in cls.declared()}
        return {name: _from_words(value, declared.get(name)) for name, value in data.items()}

    @model_validator(mode="after")
    def _lists_are_as_long_as_others_say(self) -> Self:
        for setting in self.declared():
            if setting.kind == "numbers" and setting.counted_by in type(self).model_fields:
                count = getattr(self, setting.counted_by)
                if len(getattr(self, setting.name)) != count:
                    allowed = f"{count} numbers, one per {setting.each}, as {setting.counted_by}={count}"
                    raise RuleError(setting.name, "count", allowed, count=count, each=setting.each)
        return self

    @classmethod
    def count_of(cls, name: str, data: Mapping[str, object]) -> int | None:
        """How many of something `data` asks for, brought into that setting's range, for what follows from it. None
        where that is no whole number: then that setting itself will be refused."""
        (setting,) = (each for each in cls.declared() if each.name == name)
        try:
            count = int(str(data.get(name, setting.default)))
        except ValueError:
            return None
        return max(int(setting.minimum or 0), min(count, int(setting.maximum or 0)))

    @classmethod
    def declared(cls) -> tuple[Setting, ...]:
        """Every setting, in the order of its declaration."""
        return tuple(_setting(name, field) for name, field in cls.model_fields.items())

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Self:
        """Validate what was given; what was not is filled in. Raises SettingsError, which names each problem."""
        unknown = [name for name in given if name not in cls.model_fields]
        if unknown:
            allowed = "the settings " + ", ".join(cls.model_fields)
            problems = [Problem(name, as_words(given[name])[:80], allowed) for name in unknown]
            try:
                cls.parse({name: value for name, value in given.items() if name in cls.model_fields})
            except SettingsError as error:
                problems += error.problems
            raise SettingsError(problems)
        try:
            return cls.model_validate(dict(given))
        except ValidationError as error:
            raise SettingsError(cls._problems(error, given)) from None

    @classmethod
    def _problems(cls, error: ValidationError, given: Mapping[str, Any]) -> list[Problem]:
        declared = {setting.name: setting for setting in cls.declared()}
        problems: dict[str, Problem] = {}
        for detail in error.errors(include_url=False):
            broken = detail.get("ctx", {}).get("error")
            name = broken.setting if isinstance(broken, RuleError) else str(detail["loc"][0])
            value = as_words(given.get(name, cls.model_fields[name].default))[:80]
            if isinstance(broken, RuleError):
                problem = Problem(name, value, str(broken), broken.rule, broken.values)
            else:
                problem = Problem(name, value, declared[name].allowed)
            problems.setdefault(name, problem)
        return list(problems.values())

    def to_words(self, *, changed_only: bool = False) -> dict[str, str]:
        """Each setting as the command line and the URL write it; `changed_only` leaves out what is at its default."""
        values = self.model_dump()
        if changed_only:
            # A default may follow from other settings, so compare with what leaving this one out would give.
            values = {name: value for name, value in values.items() if value != self._value_left_out(name, values)}
        return {name: as_words(value) for name, value in values.items()}

    def _value_left_out(self, name: str, values: Mapping[str, Any]) -> Any:
        others = {key: value for key, value in values.items() if key != name}
        try:
            return getattr(type(self).model_validate(others), name)
        except ValidationError:
            return None  # this setting is what makes the others acceptable


def _setting(name: str, field: Any) -> Setting:
    annotation, optional = field.annotation, False
    default = None if field.default is PydanticUndefined else field.default
    if get_origin(annotation) in (Union, types.UnionType):
        optional = type(None) in get_args(annotation)
        (annotation,) = (part for part in get_args(annotation) if part is not type(None))
    if get_origin(annotation) is Literal:
        return Setting(name, "choice", default, choices=get_args(annotation), optional=optional)
    if get_origin(annotation) is tuple and get_args(annotation)[0] is str:
        return Setting(name, "words", default, form=field.description or "")
    bounds = {}
    metadata = list(field.metadata)
    kind: Literal["integer", "number", "numbers"] = "integer" if annotation is int else "number"
    if get_origin(annotation) is tuple:
        kind = "numbers"
        metadata = list(get_args(get_args(annotation)[0])[1:])
    # The bounds are annotated types of their own (Ge, Le) or gathered in one FieldInfo.
    for item in metadata:
        for part in [item, *getattr(item, "metadata", [])]:
            if hasattr(part, "ge"):
                bounds["minimum"] = part.ge
            if hasattr(part, "le"):
                bounds["maximum"] = part.le
    if kind != "numbers":
        return Setting(name, kind, default, optional=optional, **bounds)
    lengths = {key: getattr(item, key) for item in field.metadata for key in ("min_length", "max_length")
               if hasattr(item, key)}  # fmt: skip
    return Setting(
        name,
        kind,
        default,
        optional=optional,
        each=field.description or "replica",
        shortest=lengths.get("min_length"),
        longest=lengths.get("max_length"),
        whole=get_args(get_args(annotation)[0])[0] is int,
        **bounds,
    )


def _from_words(value: Any, setting: Setting | None) -> Any:
    if not isinstance(value, str):
        return value
    value = value.strip()
    if setting is not None and setting.choices:
        # "none" too, where it is one of them; "sum" for SUM, where it can mean no other.
        alike = [choice for choice in setting.choices if choice.lower() == value.lower()]
        if value in alike or len(alike) == 1:
            return value if value in alike else alike[0]
    if value.lower() == NONE and value != "NONE":
        return None
    if setting is not None and setting.kind == "numbers":
        return [part.strip() for part in value.split(",")] if value else None
    if setting is not None and setting.kind == "words":
        return [part.strip() for part in value.split(",")]
    return value


def is_left_out(value: Any) -> bool:
    """True for what leaves a setting to its default: nothing, an empty word, or `none` however it is written."""
    return value is None or (isinstance(value, str) and value.strip().lower() in ("", NONE))


def as_words(value: Any) -> str:
    """A value as the command line and the URL write it."""
    if value is None:
        return NONE
    if isinstance(value, (list, tuple)):
        return ",".join(as_words(item) for item in value)
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
