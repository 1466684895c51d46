"""Typed inputs: declared in the playbook, given on the command line, refused if invalid.

`${{ inputs.x }}` is filled in inside one value, after splitting: never in a shell, and never as a
second word, except for an input of type `words`, which is a list of words and says so.
"""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from console.common.text import one_line, one_of
from console.common.units import BYTES_FORM, DURATION_FORM, parse_bytes, parse_duration
from console.config.validation import OneOf, Pattern, Strict, unusable_text
from console.config.yaml import Document, Loc
from console.host.matching import TooSlow, quick

InputValue = str | int | float | bool


class SecretSource(OneOf):
    ONE_OF = ("env", "file")
    REFUSED = "a secret comes from exactly one of env or file"

    env: str | None = None
    file: str | None = None


_HOLE = re.compile(r"\$\{\{\s*([^{}]*?)\s*\}\}")
_BELONGS = {
    "min": ("int", "float"), "max": ("int", "float"), "choices": ("choice",),
    "must_exist": ("path",), "from_": ("secret",),
    "pattern": ("string", "path", "duration", "bytes"),
}  # fmt: skip
"""Keys that belong to one type; with another they are refused instead of ignored."""


FACTS = ("url", "port", "container", "protected", "tok_s", "least_tok_s", "compute", "cards")
"""What `site_default` can name of a site, as `${{ site.NAME }}`."""


class InputModel(Strict):
    """One declared input. `path` is resolved against the playbook's directory; `words` are split as
    a shell splits them, with nothing expanded, and fill as many elements of a list. `site_default`:
    the default on a site that has what it names, instead of `default`."""

    type: Literal[
        "string", "int", "float", "bool", "path", "choice", "duration", "bytes", "secret", "words"
    ]
    title: str = ""
    default: InputValue | None = None
    site_default: str = ""
    required: bool = False
    min: float | None = None
    max: float | None = None
    pattern: Pattern | None = None
    choices: list[str] = []
    must_exist: bool = False
    from_: Annotated[SecretSource | None, Field(alias="from")] = None

    @model_validator(mode="after")
    def _coherent(self) -> InputModel:
        if self.type == "choice" and not self.choices:
            raise ValueError("!a choice input needs choices: [a, b]")
        if self.type == "secret" and self.from_ is None:
            raise ValueError("!a secret input needs from: {env: NAME} or from: {file: PATH}")
        if self.type == "secret" and (self.default is not None or self.site_default):
            raise ValueError("!a secret input has no default")
        named = _HOLE.findall(self.site_default)
        if wrong := [hole for hole in named if hole.removeprefix("site.") not in FACTS]:
            known = ", ".join(f"site.{fact}" for fact in FACTS)
            raise ValueError(f"!site_default knows no '{one_line(wrong[0], 40)}', only {known}")
        for key, types in _BELONGS.items():
            if key in self.model_fields_set and self.type not in types:
                name = key.rstrip("_")
                raise ValueError(f"!{name} belongs to inputs of type {one_of(list(types))}")
        return self


@dataclass(frozen=True, slots=True)
class Offers:
    """What a site has for inputs that are not given: `facts` for their `site_default`, and
    `defaults`, by the name of an input (of any playbook) or as `PLAYBOOK.INPUT`, which win over
    everything that a playbook says."""

    facts: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, InputValue] = field(default_factory=dict)

    def default(self, playbook: object, name: str, model: InputModel) -> InputValue | None:
        """The value of a playbook's input that is not given; None if there is none."""
        for key in (f"{playbook}.{name}", name):
            if key in self.defaults and model.type != "secret":
                return self.defaults[key]
        named = [hole.removeprefix("site.") for hole in _HOLE.findall(model.site_default)]
        if not model.site_default or not all(self.facts.get(fact) for fact in named):
            return model.default
        return _HOLE.sub(lambda hole: self.facts[hole[1].removeprefix("site.")], model.site_default)


NO_OFFERS = Offers()


class Words(str):
    """An input of type `words`: text with every word quoted, and the words themselves."""

    __slots__ = ()

    @classmethod
    def split_from(cls, text: str) -> Words:
        """Words as a shell would split them. Raises ValueError with the expected form."""
        try:
            return cls(shlex.join(shlex.split(text)))
        except ValueError as error:
            open_end = "quotation" in str(error)
            what = "a quotation mark is not closed" if open_end else "nothing follows the last \\"
            raise ValueError(f"{WORDS_FORM}; {what}") from error

    @property
    def elements(self) -> list[str]:
        return shlex.split(self)


WORDS_FORM = "words as for a shell, which expands nothing in them"


@dataclass(frozen=True, slots=True)
class Secret:
    """A reference to a secret; its value is read only when a step needs it."""

    name: str
    env: str | None
    file: str | None

    def read(self) -> str:
        """The secret's value. Raises ValueError in words; no message contains the value."""
        if self.env is not None:
            value = os.environ.get(self.env, "")
            where = f"environment variable {self.env}"
        else:
            where = f"file {self.file}"
            try:
                value = Path(str(self.file)).expanduser().read_text("utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise ValueError(f"{where} cannot be read") from error
        if len(value) < 8:
            raise ValueError(f"{where} is not set or shorter than 8 characters")
        return value

    def __str__(self) -> str:
        return f"<secret {self.name}>"


def convert(model: InputModel, given: Any, base: Path) -> InputValue:
    """A given or default value → the typed one. Raises ValueError with the expected form."""
    if isinstance(given, str) and unusable_text(given):
        raise ValueError(unusable_text(given))
    if model.type == "choice":
        if given not in model.choices:
            raise ValueError(f"one of {', '.join(model.choices)}")
        return str(given)
    if model.type == "bool":
        return _bool(given)
    if model.type in ("int", "float"):
        return _number(model, given)
    if not isinstance(given, str):
        raise ValueError("text; put it in quotes")
    if model.type == "words":
        return Words.split_from(given)
    if model.type == "duration":
        parse_duration(given)
    if model.type == "bytes":
        parse_bytes(given)
    if model.pattern is not None and not _fits(model.pattern, given):
        raise ValueError(f"text matching {model.pattern}")
    if model.type == "path":
        path = resolve(base, given)
        if model.must_exist and not os.path.exists(path):
            raise ValueError(f"a path that exists; {one_line(path)} does not")
        return path
    return given


def _fits(pattern: str, given: str) -> bool:
    try:
        return quick(pattern, [given], whole=True) != [None]
    except TooSlow as error:
        raise ValueError(f"a pattern that ends: {error}") from error


def resolve(base: Path, text: str) -> str:
    """A path as written → absolute; `~` is kept as written if there is no home."""
    return str(base / os.path.expanduser(text))


def _bool(given: Any) -> bool:
    if isinstance(given, bool):
        return given
    if given in ("true", "false"):
        return bool(given == "true")
    raise ValueError("true or false")


def _number(model: InputModel, given: Any) -> int | float:
    form = "a whole number" if model.type == "int" else "a number"
    pattern = r"-?(0|[1-9][0-9]*)"
    pattern += "" if model.type == "int" else r"(\.[0-9]+)?([eE]-?[0-9]+)?"
    if isinstance(given, str) and re.fullmatch(pattern, given) and len(given) < 20:
        given = int(given) if model.type == "int" else float(given)
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise ValueError(form)
    if not math.isfinite(given) or (model.type == "int" and not isinstance(given, int)):
        raise ValueError(form)
    if model.min is not None and given < model.min:
        raise ValueError(f"{form} of at least {plain(model.min)}")
    if model.max is not None and given > model.max:
        raise ValueError(f"{form} of at most {plain(model.max)}")
    return given


def plain(bound: float) -> str:
    """A bound as it was written: 1048576, not 1.04858e+06."""
    return str(int(bound)) if bound.is_integer() else repr(bound)


def expected_form(model: InputModel) -> str:
    """The expected form in one line, for a form or a help text."""
    forms = {"duration": DURATION_FORM, "bytes": BYTES_FORM, "bool": "true or false",
             "words": WORDS_FORM}  # fmt: skip
    if model.type == "choice":
        return f"one of {', '.join(model.choices)}"
    return forms.get(model.type, model.type)


Values = Mapping[str, Any]
"""`inputs.x`, `playbook.dir` → value; a Secret stands for itself."""


def substitute(document: Document, data: Any, values: Values, loc: Loc) -> Any:
    """A copy of `data` with every `${{ }}` hole filled.

    A value that is one hole takes the input's type; inside longer text it becomes text. An element
    of a list that is one hole for words becomes as many elements. Refused: an unknown name, a hole
    in a script body, a secret anywhere but as a whole environment value, words anywhere but as an
    element of a list, an unclosed hole.
    """
    if isinstance(data, dict):
        for key in data:
            if "${{" in key:
                where = (*loc, key)
                document.refuse(where, "${{ in a key", "a plain key", key=True)
        return {k: substitute(document, v, values, (*loc, k)) for k, v in data.items()}
    if isinstance(data, list):
        filled = [substitute(document, v, values, (*loc, i)) for i, v in enumerate(data)]
        return [
            element for v in filled for element in (v.elements if isinstance(v, Words) else [v])
        ]
    if not isinstance(data, str) or "${{" not in data:
        return data
    if len(loc) > 1 and loc[-1] == "script" and isinstance(loc[-2], int):
        expected = "environment variables, like $OMNI_INPUT_PORT"
        hint = "inputs reach a script as OMNI_INPUT_<NAME>"
        document.refuse(loc, "${{ inside a script body", expected, hint)
        return data
    return _fill(document, data, values, loc)


def names_input(data: Any, name: str) -> bool:
    """Whether a value that is not filled in yet has a hole for this input, or a script's variable
    of it, anywhere."""
    if isinstance(data, dict):
        return any(names_input(value, name) for value in data.values())
    if isinstance(data, list):
        return any(names_input(value, name) for value in data)
    if not isinstance(data, str):
        return False
    return f"inputs.{name}" in _HOLE.findall(data) or variable_of(name) in data


def variable_of(name: str) -> str:
    """The variable in which a step's own program finds an input."""
    return f"OMNI_INPUT_{name.upper().replace('-', '_')}"


def _fill(document: Document, text: str, values: Values, loc: Loc) -> Any:
    whole = _HOLE.fullmatch(text)
    if whole:
        value = _look_up(document, whole[1], values, loc)
        if isinstance(value, Secret) and not (len(loc) >= 2 and loc[-2] == "env"):
            document.refuse(loc, "a secret here", "a secret only under env:")
            return text
        if isinstance(value, Words) and not isinstance(loc[-1], int):
            document.refuse(loc, *_STRAY_WORDS)
            return text
        return value

    def replacement(match: re.Match[str]) -> str:
        value = _look_up(document, match[1], values, loc)
        if isinstance(value, Secret):
            document.refuse(loc, "a secret inside text", "a whole value under env:")
            return ""
        if isinstance(value, Words):
            document.refuse(loc, *_STRAY_WORDS)
            return ""
        if isinstance(value, bool):
            return "true" if value else "false"
        return str(value)

    filled = _HOLE.sub(replacement, text)
    if "${{" in _HOLE.sub("", text):
        document.refuse(loc, "an unclosed ${{", "${{ inputs.name }}")
    return filled


_STRAY_WORDS = ("words here", "an element of a list, like run: [program, '${{ inputs.name }}']")


def _look_up(document: Document, name: str, values: Values, loc: Loc) -> Any:
    if name in values:
        return values[name]
    known = ", ".join(sorted(values)) or "none are declared"
    document.refuse(loc, f"unknown name '{name}' in ${{{{ }}}}", f"one of: {known}")
    return ""
