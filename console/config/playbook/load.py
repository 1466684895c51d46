"""A playbook file → Playbook, strictly: every problem in one pass, nothing ignored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from console.common.errors import InvalidFile, Problem, Problems, UsageError
from console.common.redact import Known
from console.common.text import one_line
from console.config.playbook.alias import rename
from console.config.playbook.inputs import (
    InputModel,
    InputValue,
    Secret,
    convert,
    expected_form,
    resolve,
)
from console.config.playbook.interpolate import substitute
from console.config.playbook.mend import mend
from console.config.playbook.playbook import Playbook, PlaybookModel
from console.config.playbook.rules import check_rules, guard_limits, unknown_lessons
from console.config.validation import validate
from console.config.yaml import Document, Loc, parse, read_text

TITLE = "the playbook cannot be used"
HINT = "docs/playbooks.md describes the format; `omni-console schema` prints the JSON Schema"

_PLACEHOLDER: dict[str, InputValue] = {
    "string": "x", "int": 1, "float": 1.0, "bool": True, "path": "x", "duration": "1s",
    "bytes": "1GiB",
}  # fmt: skip


def load_playbook(
    path: Path,
    given: Mapping[str, str] | None = None,
    *,
    site_services: frozenset[str] = frozenset(),
    aliases: Mapping[str, str] | None = None,
    base: Path | None = None,
    planning: bool = False,
    pinned: bool = False,
    rewrite: Callable[[dict[str, Any], Path], dict[str, Any]] | None = None,
) -> Playbook:
    """Read, fill in and check a playbook.

    `given`: inputs as text. `aliases`: old names of services, told in `.notes`. `base`: what paths
    are relative to. `planning`: accept inputs without a value. `pinned`: a run's own copy; its
    lessons may have gone since. `rewrite`: changes the filled-in document before it is checked.
    Raises InvalidFile (exit 2), UsageError.
    """
    text, document = _read(path)
    problems = Problems([*document.problems, *(() if pinned else unknown_lessons(document))])
    base = (base or path.resolve().parent).absolute()
    models = _input_models(document, problems)
    inputs, secrets = _resolve(document, models, dict(given or {}), base, problems, planning)
    values = _values(inputs, secrets, base)
    filled = {
        key: value if key == "inputs" else substitute(document, value, values, problems, (key,))
        for key, value in document.data.items()
    }
    notes = rename(filled, aliases or {}, site_services)
    if rewrite is not None and not problems.items:
        filled = rewrite(filled, base)
    model = _validated(document, filled, problems)
    missing = {n for n, m in models.items() if m.required and n not in (given or {})}
    _ruled(document, model, filled, site_services, problems, guessed=bool(missing))
    known = Known.of(document.data, filled)
    if problems.items or model is None:
        raise InvalidFile(TITLE, [one.told(known.text) for one in problems.sorted()], HINT)
    return Playbook(
        model, path, base, text, inputs, secrets, tuple(missing & set(inputs)),
        guard_limits(document, model, site_services)[0], notes, known,
    )  # fmt: skip


def _read(path: Path) -> tuple[str, Document]:
    text = read_text(path, TITLE)
    document = parse(text, str(path), TITLE)
    if not isinstance(document.data, dict):
        raise InvalidFile(TITLE, [document.problem((), "not a mapping", "schema: …")], HINT)
    return text, document


def _validated(document: Document, filled: Any, problems: Problems) -> PlaybookModel | None:
    model, found = validate(PlaybookModel, document, filled)
    for problem in found:
        problems.add(problem)
    return model


def _ruled(
    document: Document, model: PlaybookModel | None, filled: Any, site_services: frozenset[str],
    problems: Problems, *, guessed: bool,
) -> None:  # fmt: skip
    """Check what single values do not show, as far as the document stands."""
    if model is not None:
        check_rules(document, model, site_services, problems, guessed=guessed)
        return
    stands, broken = mend(document, filled)
    if stands is not None:
        check_rules(document, stands, site_services, problems, broken, guessed=guessed)


def _values(
    inputs: dict[str, InputValue], secrets: dict[str, Secret], base: Path
) -> dict[str, Any]:
    values: dict[str, Any] = {f"inputs.{name}": value for name, value in inputs.items()}
    values |= {f"inputs.{name}": secret for name, secret in secrets.items()}
    values["playbook.dir"] = str(base)
    return values


def _input_models(document: Document, problems: Problems) -> dict[str, InputModel]:
    declared = document.data.get("inputs", {})
    if not isinstance(declared, dict):
        return {}  # the model as a whole reports it

    class _One(BaseModel):
        inputs: dict[str, InputModel]

    models: dict[str, InputModel] = {}
    for name, data in declared.items():
        one, found = validate(_One, document, {"inputs": {name: data}})
        for problem in found:
            problems.add(problem)
        if one is not None:
            models[name] = one.inputs[name]
    return models


def _resolve(
    document: Document,
    models: dict[str, InputModel],
    given: dict[str, str],
    base: Path,
    problems: Problems,
    planning: bool,
) -> tuple[dict[str, InputValue], dict[str, Secret]]:
    inputs: dict[str, InputValue] = {}
    secrets: dict[str, Secret] = {}
    _check_names(document, models, given)
    for name, model in models.items():
        if model.from_ is not None:
            file = model.from_.file
            secrets[name] = Secret(
                name, model.from_.env, None if file is None else resolve(base, file)
            )
            continue
        try:
            inputs[name] = _value(model, given.get(name, model.default), base, planning)
        except ValueError as error:
            problems.add(_wrong(document, name, model, given, str(error)))
            inputs[name] = _stand_in(model)
    return inputs, secrets


def _check_names(document: Document, models: dict[str, InputModel], given: dict[str, str]) -> None:
    """Raises UsageError for what is given on the command line and cannot be."""
    unknown = sorted(set(given) - set(models))
    if unknown:
        known = ", ".join(models) or "none"
        raise UsageError(
            f"unknown input '{one_line(unknown[0], 60)}'",
            f"{document.name} declares: {known}",
            "--input NAME=VALUE",
        )
    for name in given:
        if models[name].from_ is not None:
            raise UsageError(f"input '{name}' is a secret and is never given as an argument")


def _value(model: InputModel, value: InputValue | None, base: Path, planning: bool) -> InputValue:
    """The typed value of an input; a plan may lack a value or a path. Raises ValueError."""
    if value is None:
        if planning and model.required:
            return _stand_in(model)
        raise ValueError(expected_form(model))
    if planning and model.must_exist:
        model = model.model_copy(update={"must_exist": False})
    return convert(model, value, base)


def _stand_in(model: InputModel) -> InputValue:
    return model.choices[0] if model.choices else _PLACEHOLDER[model.type]


def _wrong(
    document: Document, name: str, model: InputModel, given: dict[str, str], expected: str
) -> Problem:
    """What is wrong with an input's value, at its default or at its declaration."""
    loc: Loc = ("inputs", name)
    if name in given:
        what = f"input '{name}' given is {one_line(repr(given[name]), 80)}"
        return document.problem(loc, what, expected)
    if model.default is not None:
        what = f"input '{name}' default is {one_line(repr(model.default), 80)}"
        return document.problem((*loc, "default"), what, expected)
    if model.required:
        return document.problem(loc, f"input '{name}' has no value", expected, f"--input {name}=…")
    return document.problem(loc, f"input '{name}' has no default", "a default, or required: true")
