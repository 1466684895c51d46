"""A playbook file → Playbook, strictly: every problem in one pass, nothing ignored."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from console.document.reader import Document, Loc, parse, read_text
from console.document.validate import validate
from console.errors import InvalidFile, Problem, Problems, UsageError
from console.playbook.inputs import InputModel, InputValue, Secret, convert, expected_form, resolve
from console.playbook.interpolate import substitute
from console.playbook.mend import mend
from console.playbook.model import Playbook, PlaybookModel
from console.playbook.rules import check_rules, unbuilt
from console.text import one_line

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
    base: Path | None = None,
    planning: bool = False,
) -> Playbook:
    """Read, fill in and check a playbook.

    `given`: inputs as text, from the command line. `base`: directory for relative paths
    (the playbook's own). `planning`: accept what is not built yet, listed in `.unbuilt`, and
    inputs without a value. Raises InvalidFile (exit 2) with all problems, or UsageError for
    an unknown input.
    """
    text = read_text(path, TITLE)
    document = parse(text, str(path), TITLE)
    if not isinstance(document.data, dict):
        raise InvalidFile(TITLE, [document.problem((), "not a mapping", "schema: …")], HINT)
    problems = Problems(list(document.problems))
    base = (base or path.resolve().parent).absolute()
    models = _input_models(document, problems)
    inputs, secrets = _resolve(document, models, dict(given or {}), base, problems, planning)
    values = _values(inputs, secrets, base)
    filled = {
        key: value if key == "inputs" else substitute(document, value, values, problems, (key,))
        for key, value in document.data.items()
    }
    model, found = validate(PlaybookModel, document, filled)
    for problem in found:
        problems.add(problem)
    later: list[Problem] = []
    if model is None:
        stands, broken = mend(document, filled)
        if stands is not None:
            check_rules(document, stands, site_services, problems, broken)
    else:
        check_rules(document, model, site_services, problems)
        later = unbuilt(document, model)
        if not planning:
            for problem in later:
                problems.add(problem)
    if problems.items or model is None:
        raise InvalidFile(TITLE, problems.sorted(), HINT)
    return Playbook(model, path, base, text, inputs, secrets, tuple(later))


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
    unknown = sorted(set(given) - set(models))
    if unknown:
        known = ", ".join(models) or "none"
        raise UsageError(
            f"unknown input '{one_line(unknown[0], 60)}'",
            f"{document.name} declares: {known}",
            "--input NAME=VALUE",
        )
    for name, model in models.items():
        loc: Loc = ("inputs", name)
        if model.from_ is not None:
            if name in given:
                raise UsageError(f"input '{name}' is a secret and is never given as an argument")
            file = model.from_.file
            file = None if file is None else resolve(base, file)
            secrets[name] = Secret(name, model.from_.env, file)
            continue
        value = given.get(name, model.default)
        if value is None:
            inputs[name] = model.choices[0] if model.choices else _PLACEHOLDER[model.type]
            if model.required and not planning:
                problems.add(
                    document.problem(
                        loc, f"input '{name}' has no value", expected_form(model),
                        f"--input {name}=…",
                    )
                )  # fmt: skip
            elif not model.required:
                problems.add(
                    document.problem(
                        loc, f"input '{name}' has no default", "a default, or required: true"
                    )
                )
            continue
        try:
            inputs[name] = convert(name, model, value, base)
        except ValueError as error:
            where = "given" if name in given else "default"
            if planning and model.must_exist and "exists" in str(error):
                inputs[name] = resolve(base, str(value))
                continue
            problems.add(
                document.problem(
                    (*loc, "default") if where == "default" else loc,
                    f"input '{name}' {where} is {one_line(repr(value), 80)}",
                    str(error),
                )
            )
            inputs[name] = _PLACEHOLDER.get(model.type, "x")
    return inputs, secrets
