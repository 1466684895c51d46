"""The format as Markdown, made from the very models that check a playbook."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from console.config.playbook.playbook import playbook_schema

Schema = dict[str, Any]
STEP = "phases[].steps[]"
HEAD = """\
# The format of a playbook

Written by `omni-console schema --markdown` from the models that check a file; `omni-console schema`
prints the same as a JSON Schema for editors. What the parts mean together stands in
[playbooks.md](playbooks.md).

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
    """(title, (definition, schema)), each definition once, a part before the parts of it."""
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
            for where, found in _references(value):
                path = key + where if title == "playbook" else f"{title}.{key}{where}"
                met.append((path.replace(STEP, "step"), found, schema["$defs"][found]))
        todo = met + todo


def _references(value: Schema) -> Iterator[tuple[str, str]]:
    """What a value is made of: (`[]` or `.NAME` or nothing, definition)."""
    if "$ref" in value:
        yield "", value["$ref"].rpartition("/")[2]
    for one in value.get("anyOf", ()):
        yield from _references(one)
    if isinstance(value.get("items"), dict):
        yield from (("[]" + where, name) for where, name in _references(value["items"]))
    for inner in _values(value):
        yield from ((".NAME" + where, name) for where, name in _references(inner))


def _values(value: Schema) -> list[Schema]:
    """What a mapping's values are, whatever its names have to look like."""
    found = [value.get("additionalProperties"), *value.get("patternProperties", {}).values()]
    return [one for one in found if isinstance(one, dict)]


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
        forms = [_form(one, titles) for one in value["anyOf"] if one.get("type") != "null"]
        return " or ".join(dict.fromkeys(forms))
    if "const" in value:
        return f"`{value['const']}`"
    if "enum" in value:
        return ", ".join(f"`{one}`" for one in value["enum"])
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
    return words + (f" like {', '.join(f'`{one}`' for one in examples)}" if examples else "")


_SPECIAL = {"15m": "duration", "24GiB": "bytes"}
_WORDS = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
}


def _bounds(value: Schema) -> str:
    inner = next((one for one in value.get("anyOf", ()) if one.get("type") != "null"), value)
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
    """As it would be written: 5400 → 1h30m."""
    left, words = int(seconds), ""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        if left >= size:
            words += f"{left // size}{unit}"
            left %= size
    return words or "0s"


def _slug(title: str) -> str:
    """The anchor that a heading gets."""
    return re.sub(r"[^a-z0-9 _-]", "", title.lower()).replace(" ", "-")
