"""Turns pydantic's findings into file:line:column problems in an operator's words."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    StringConstraints,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from console.common import units
from console.common.errors import InvalidFile, Problem
from console.common.text import one_line
from console.config.yaml import Document, Loc, parse, read_text


class Refused(ValueError):
    """A value that is refused: what is expected in its place, and what to do instead."""

    def __init__(self, expected: str, hint: str) -> None:
        super().__init__(expected)
        self.hint = hint


class Strict(BaseModel):
    """Unknown keys refused, no coercion, immutable. Built at first use, because most of the hundred
    models are parts of a larger one, and no command reads all."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


class OneOf(Strict):
    """A mapping that has exactly one of the keys `ONE_OF`; `REFUSED` says so where it has not."""

    ONE_OF: ClassVar[tuple[str, ...]]
    REFUSED: ClassVar[str]

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if sum(getattr(self, key) is not None for key in self.ONE_OF) != 1:
            raise ValueError(f"!{self.REFUSED}")
        return self


def _duration(value: Any) -> float:
    if not isinstance(value, str):
        raise ValueError(units.DURATION_FORM)
    seconds = units.parse_duration(value)
    if seconds > LONGEST_S:
        raise ValueError("at most 30d")
    return seconds


def _bytes(value: Any) -> int:
    if not isinstance(value, str):
        raise ValueError(units.BYTES_FORM)
    return units.parse_bytes(value)


def _regex(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("a regular expression in quotes")
    try:
        re.compile(value)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"a valid regular expression ({error})") from error
    return value


def _no_nul(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("text; put it in quotes")
    if unusable := unusable_text(value):
        raise ValueError(unusable)
    return value


def argument(value: Any) -> str:
    """Accept text or a number: an input that fills the whole element keeps its type until here."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return _no_nul(str(value) if number else value)


def unusable_text(value: str) -> str:
    """Why text cannot be an argv element or an environment value, as the expected form; or ""."""
    if "\0" in value:
        return "text without a NUL byte"
    if any("\ud800" <= c <= "\udfff" for c in value):
        return "text without half a surrogate pair"
    return ""


Duration = Annotated[
    float, BeforeValidator(_duration), WithJsonSchema({"type": "string", "examples": ["15m"]})
]
"""Seconds, written `90s`, `15m`, `1h30m`."""
ByteCount = Annotated[
    int, BeforeValidator(_bytes), WithJsonSchema({"type": "string", "examples": ["24GiB"]})
]
"""Bytes, written `24GiB` or `117GB`."""
Pattern = Annotated[str, BeforeValidator(_regex), WithJsonSchema({"type": "string"})]
Text = Annotated[str, BeforeValidator(_no_nul), WithJsonSchema({"type": "string"})]
"""Text that can be an argv element or an environment value."""

Arg = Annotated[str, BeforeValidator(argument), WithJsonSchema({"type": ["string", "number"]})]
"""An argv element or an environment value; a number is taken as it is written."""

Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]*$", max_length=60)]
"""A name that becomes part of another: a metric, an environment variable."""

LONGEST_S = 30 * 86400.0

_Model = TypeVar("_Model", bound=BaseModel)

_OTHERS = {"cmd": "argv", "command": "argv", "environment": "env", "directory": "cwd",
           "workdir": "cwd", "working_directory": "cwd", "depends_on": "requires", "if": "when",
           "volumes": "mounts", "healthcheck": "ready", "message": "prompt"}  # fmt: skip
"""Keys with the same meaning in other formats, which look like a different key here."""

_EXPECTED = {
    "string_type": "text; put it in quotes",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "float_type": "a number",
    "too_short": "at least one",
    "string_unicode": "text without half a surrogate pair",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping (key: value)",
    "model_type": "a mapping (key: value)",
    "model_attributes_type": "a mapping (key: value)",
}


def json_schema(model: type[BaseModel], title: str) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a file's model, for editors."""
    schema = model.model_json_schema(by_alias=True)
    return {**schema, "$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}


def validate(
    model: type[_Model], document: Document, data: Any
) -> tuple[_Model | None, list[Problem]]:
    """Data → model, or every problem pydantic finds, each with its place in the document."""
    try:
        return model.model_validate(data), []
    except ValidationError as error:
        problems = [_problem(model, document, dict(item)) for item in error.errors()]
        return None, problems


def validated(model: type[_Model], document: Document, data: Any) -> _Model | None:
    """The model, or None with its problems added to the document."""
    instance, problems = validate(model, document, data)
    document.add(*problems)
    return instance


def load(model: type[_Model], path: Path, title: str, hint: str) -> _Model:
    """Load a file that is a single model. Raises InvalidFile with every problem in it."""
    document = parse(read_text(path, title), path.name, title)
    instance = validated(model, document, document.data)
    if instance is None or document.problems:
        raise InvalidFile(title, sorted(document.problems), hint)
    return instance


def _problem(model: type[BaseModel], document: Document, item: dict[str, Any]) -> Problem:
    kind, loc = item["type"], _without_union_tags(document, item["loc"])
    on_key = item["loc"][-1:] == ("[key]",)
    written = item["loc"][:-1] if on_key else item["loc"]
    name = one_line(str(written[-1]), 60) if written else "file"
    if kind == "extra_forbidden":
        known = _siblings(model)
        here = _keys_at(model, item["loc"][:-1]) or known
        near = [_OTHERS[name]] if _OTHERS.get(name) in here else []
        near = near or difflib.get_close_matches(name, here, 1)
        hint = f"did you mean '{near[0]}'?" if near else ""
        if near == [name] or (not near and name in known):
            hint = "it belongs to another part of the file"
        return document.problem(loc, f"unknown key '{name}'", hint=hint, key=True)
    if kind == "missing":
        return document.problem(loc, f"missing key '{name}'")
    given = item.get("input")
    value = "empty" if given is None else one_line(repr(given), 60)
    if loc and not on_key:  # the last of pydantic's path may be the tag of a union
        name = one_line(str(loc[-1]), 60)
    if kind == "value_error":
        error = item["ctx"]["error"]
        expected, hint = str(error), getattr(error, "hint", "")
        if expected.startswith("!"):  # a rule between keys: the sentence stands alone
            return document.problem(loc, expected[1:])
        what = f"name '{name}'" if on_key else f"'{name}' is {value}"
        return document.problem(loc, what, expected, hint, key=on_key)
    if kind == "too_long":
        count = len(given) if given is not None else 0
        most = f"at most {item['ctx']['max_length']}"
        return document.problem(loc, f"'{name}' has {count} entries", most)
    expected = _EXPECTED.get(kind) or _own_words(item["msg"])
    hint = "YAML 1.2 has only true and false" if kind == "bool_type" else ""
    if given is None and loc and kind.startswith("model"):
        hint = f"{name}: {{}} is a mapping without keys"
    return document.problem(loc, f"'{name}' is {value}", expected, hint)


def _own_words(message: str) -> str:
    """pydantic's sentence as the form it asks for: `Input should be X` → `X`."""
    message = message.removeprefix("Input should be ")
    return one_line(message.replace("String should match", "text that matches"))


def _without_union_tags(document: Document, loc: Loc) -> Loc:
    """pydantic's path without the union tags that are no key of the file."""
    known: Loc = ()
    for part in loc:
        if (*known, part) in document.places:
            known = (*known, part)
    return known


def _siblings(model: type[BaseModel]) -> list[str]:
    """Every key that is known somewhere in the file: a wide net."""
    seen: set[type[BaseModel]] = set()
    names: list[str] = []
    todo = [model]
    while todo:
        current = todo.pop()
        if current in seen:
            continue
        seen.add(current)
        for key, info in current.model_fields.items():
            names.append(info.alias or key)
            todo += _models_in(info.annotation)
    return names


def _keys_at(model: type[BaseModel], loc: Loc) -> list[str]:
    """The keys that are known at a place of the file; empty if the place is not understood. What
    is no field on the way there is an index, a name of the file's own or a tag of a union."""
    at = [model]
    for part in loc:
        fields = [
            info for model_class in at for key, info in model_class.model_fields.items()
            if part in (key, info.alias)
        ]  # fmt: skip
        if fields:
            at = [model_class for info in fields for model_class in _models_in(info.annotation)]
    return [
        info.alias or key for model_class in at for key, info in model_class.model_fields.items()
    ]


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    models: list[type[BaseModel]] = []
    for part in getattr(annotation, "__args__", ()):
        models += _models_in(part)
    return models
