"""A playbook: typed inputs, services, phases of steps, what always runs at the end; its schema, and
the format as Markdown, made from the same models that check a playbook.

The rules around a cutover depend on the order of the steps (`cutover_problems`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from console.common.errors import Problem
from console.common.redact import NONE, Known
from console.config.playbook.inputs import InputModel, InputValue, Secret
from console.config.playbook.steps import Step
from console.config.site.guard import LEASE, GuardModel
from console.config.site.service import ServiceModel, ServiceName, one_of_services
from console.config.validation import Duration, Name, Strict, json_schema
from console.config.yaml import Document, Loc
from console.recovery.guard.config import Limit
from console.runtime.spec import ServiceSpec


class Phase(Strict):
    title: str
    steps: list[Step] = Field(min_length=1)


class PlaybookModel(Strict):
    schema_: Literal["omni.playbook/v1"] = Field(alias="schema")
    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,60}$")
    title: str
    objective: str = ""
    example_of: str = ""
    lessons: list[str] = []
    inputs: dict[Name, InputModel] = {}
    services: dict[ServiceName, ServiceModel] = {}
    lease: Annotated[Duration | None, LEASE] = None
    guards: list[GuardModel] = []
    phases: list[Phase] = Field(min_length=1)
    finally_: list[Step] = Field([], alias="finally")


@dataclass(frozen=True)
class Playbook:
    """A loaded playbook with its inputs filled in."""

    model: PlaybookModel
    path: Path
    base: Path
    text: str
    inputs: dict[str, InputValue]
    secrets: dict[str, Secret]
    missing: tuple[str, ...] = ()
    """Required inputs without a value in a plan; placeholders take their place."""
    guards: tuple[Limit, ...] = ()
    """Limits that it adds to those of the site and the console, each with its line."""
    notes: tuple[str, ...] = ()
    """Old names that the site's aliases replaced, in words."""
    known: Known = NONE
    """Secrets in its text, and values of inputs whose names are those of secrets, to be hidden."""

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def digest(self) -> str:
        """sha256 of the text: a run is pinned to it."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def services(self) -> dict[str, ServiceSpec]:
        return {n: m.spec(n, self.base) for n, m in self.model.services.items()}

    def steps(self) -> Iterator[tuple[str, Step]]:
        """(phase title, step) in order, without `finally`."""
        for phase in self.model.phases:
            for step in phase.steps:
                yield phase.title, step


def cutover_problems(
    document: Document, model: PlaybookModel, services: frozenset[str]
) -> Iterator[Problem]:
    """Breaches of the cutover's rules: clients get only a service started before; the way back
    stops it; a cutover that stays is the last one, and no later step stops its service."""
    up: set[str] = set()
    ended: dict[str, str] = {}
    stays = ""
    for p, phase in enumerate(model.phases):
        for s, step in enumerate(phase.steps):
            loc: Loc = ("phases", p, "steps", s)
            if not step.when:
                continue
            used = _used(step)
            if used in ended and used not in up:
                what = f"'{used}' was stopped by the way back of cutover '{ended[used]}'"
                yield document.problem(loc, what, f"service: {{start: {used}}} before it")
            content = step.content
            if content.starts:
                up.add(content.starts)
            if content.stops:
                up.discard(content.stops)
                if content.stops == stays:
                    what = f"by then clients reach '{stays}', and the baseline is down"
                    yield document.problem((*loc, "service"), what, "cutover with then: back")
            if step.cutover is None:
                continue
            yield from _target(document, loc, step, up, services, stays)
            if step.cutover.stays:
                stays = step.cutover.to
            else:
                ended |= dict.fromkeys(up, step.id)
                up.clear()


def _target(
    document: Document, loc: Loc, step: Step, up: set[str], services: frozenset[str], stays: str
) -> Iterator[Problem]:
    assert step.cutover is not None
    to, where = step.cutover.to, (*loc, "cutover", "to")
    if to not in services:
        yield document.problem(where, f"unknown service '{to}'", one_of_services(services))
    elif to not in up:
        what = f"'{to}' is not running when clients are to reach it"
        yield document.problem(where, what, f"service: {{start: {to}}} before it")
    if stays:
        expected = "then: stay only at the last one"
        yield document.problem(where, f"clients stay at '{stays}' already", expected)


def _used(step: Step) -> str:
    """The service that a step needs alive; "" for none."""
    where = step.where.service if step.where is not None else None
    return step.content.uses or where or ""


def playbook_schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of `omni.playbook/v1`, for editors (`# yaml-language-server: $schema=…`);
    a `${{ }}` hole is text anywhere."""
    return json_schema(PlaybookModel, "omni-console playbook")


Schema = dict[str, Any]
STEP = "phases[].steps[]"
HEAD = """\
# The format of a playbook

Written by `omni-console schema --markdown` from the models that check a file; `omni-console schema`
prints the same as a JSON Schema for editors. [playbooks.md](playbooks.md) says what the parts mean
together.

A key that is not listed is refused. `${{ inputs.NAME }}` may stand for any value.
"""


def reference() -> str:
    """Every part of a playbook with its keys, their form and their default."""
    schema = playbook_schema()
    known = dict(_parts(schema))
    titles = {name: title for title, (name, _) in known.items() if name}
    sections = [HEAD]
    for title, (_, part) in known.items():
        sections += ["", f"## {title}", "", *_section(part, titles)]
    return "\n".join(sections) + "\n"


def _parts(schema: Schema) -> Iterator[tuple[str, tuple[str, Schema]]]:
    """(title, (definition, schema)), each definition once, a part before its own parts."""
    todo: list[tuple[str, str, Schema]] = [("playbook", "", schema)]
    seen: set[str] = set()
    while todo:
        title, name, part = todo.pop(0)
        if name in seen:
            continue
        seen.add(name)
        yield title, (name, part)
        met = []
        for key, value in part.get("properties", {}).items():
            if key == "finally":  # steps as in a phase
                continue
            for where, definition in _references(value):
                path = key + where if title == "playbook" else f"{title}.{key}{where}"
                met.append((path.replace(STEP, "step"), definition, schema["$defs"][definition]))
        todo = met + todo


def _references(value: Schema) -> Iterator[tuple[str, str]]:
    """The definitions in a value: (`[]` or `.NAME` or nothing, definition)."""
    if "$ref" in value:
        yield "", value["$ref"].rpartition("/")[2]
    for alternative in value.get("anyOf", ()):
        yield from _references(alternative)
    if isinstance(value.get("items"), dict):
        yield from (("[]" + where, name) for where, name in _references(value["items"]))
    for inner in _values(value):
        yield from ((".NAME" + where, name) for where, name in _references(inner))


def _values(value: Schema) -> list[Schema]:
    """The schema of a mapping's values, whatever the pattern of its names."""
    schemas = [value.get("additionalProperties"), *value.get("patternProperties", {}).values()]
    return [schema for schema in schemas if isinstance(schema, dict)]


def _section(part: Schema, titles: dict[str, str]) -> Iterator[str]:
    if part.get("description"):
        yield " ".join(part["description"].split())
        yield ""
    yield "| key | form | default |"
    yield "|---|---|---|"
    required = set(part.get("required", ()))
    for key, value in part.get("properties", {}).items():
        form = f"{_form(value, titles)}{_bounds(value)}"
        default = "required" if key in required else _default(value)
        yield f"| `{key}` | {form} | {default} |".replace("|  |", "| |")


def _form(value: Schema, titles: dict[str, str]) -> str:
    """A value's form in words."""
    if "$ref" in value:
        title = titles[value["$ref"].rpartition("/")[2]]
        return f"[{title}](#{_slug(title)})"
    if "anyOf" in value:
        forms = [
            _form(alternative, titles)
            for alternative in value["anyOf"]
            if alternative.get("type") != "null"
        ]
        return " or ".join(dict.fromkeys(forms))
    if "const" in value:
        return f"`{value['const']}`"
    if "enum" in value:
        return ", ".join(f"`{choice}`" for choice in value["enum"])
    return _plain(value, titles)


def _plain(value: Schema, titles: dict[str, str]) -> str:
    kinds = value.get("type")
    if isinstance(kinds, list):
        words = " or ".join("list" if kind == "array" else _WORDS[kind] for kind in kinds)
    elif kinds == "array":
        items = value.get("items") or {}
        words = f"list of {_form(items, titles)}" if items else "list"
    elif kinds == "object":
        inner = _values(value)
        words = f"mapping to {_form(inner[0], titles)}" if inner else "mapping"
    else:
        words = _WORDS.get(str(kinds), "any value")
    examples = value.get("examples", [])
    words = _SPECIAL.get(str(examples[0]), words) if len(examples) == 1 else words
    return words + (
        f" like {', '.join(f'`{example}`' for example in examples)}" if examples else ""
    )


_SPECIAL = {"15m": "duration", "24GiB": "bytes"}
_WORDS = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
}


def _bounds(value: Schema) -> str:
    inner = next(
        (
            alternative
            for alternative in value.get("anyOf", ())
            if alternative.get("type") != "null"
        ),
        value,
    )
    words = [
        f"{word} {inner[key]:,}".removesuffix(".0")
        for key, word in (
            ("minimum", "at least"), ("exclusiveMinimum", "above"),
            ("maximum", "at most"), ("exclusiveMaximum", "below"),
        )
        if key in inner
    ]  # fmt: skip
    return f", {', '.join(words)}" if words else ""


def _default(value: Schema) -> str:
    default = value.get("default")
    if default is None or default == "" or isinstance(default, dict | list):
        return ""
    if "duration" in _form(value, _Anything()) and isinstance(default, int | float):
        return f"`{_duration(float(default))}`"
    if isinstance(default, bool):
        return f"`{str(default).lower()}`"
    return f"`{default}`".replace("|", "\\|")


class _Anything(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return key


def _duration(seconds: float) -> str:
    """A duration as it would be written: 5400 → 1h30m."""
    left, words = int(seconds), ""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        if left >= size:
            words += f"{left // size}{unit}"
            left %= size
    return words or "0s"


def _slug(title: str) -> str:
    """The anchor of a heading."""
    return re.sub(r"[^a-z0-9 _-]", "", title.lower()).replace(" ", "-")
