"""A playbook file → Playbook, strictly: every problem in one pass, nothing ignored.

Old service names are replaced by current ones before the check. The intact parts of a broken
playbook are checked too, so that one pass reports every problem.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from console.common.errors import InvalidFile, Problem, UsageError
from console.common.redact import Known
from console.common.text import one_line
from console.config.playbook.inputs import (
    NO_OFFERS,
    InputModel,
    InputValue,
    Offers,
    Secret,
    convert,
    expected_form,
    resolve,
    substitute,
)
from console.config.playbook.playbook import Playbook, PlaybookModel
from console.config.playbook.rules import check_lessons, check_rules, guard_limits
from console.config.playbook.steps import KINDS, Step
from console.config.site.guard import GuardModel
from console.config.validation import validate, validated
from console.config.yaml import Document, Loc, parse, read_text

BASELINE = "baseline"
_NAMED = {kind.name: kind.services for kind in KINDS.values()} | {"where": ("service",)}
"""Where a step names a service."""

_HARMLESS = {"metric": "host.ram_available", "below": "1GiB"}
_STAND_IN = {"process": {"argv": ["x"]}, "url": "http://127.0.0.1:1"}

TITLE = "the playbook cannot be used"
HINT = (
    "docs/reference/playbooks.md describes the format; `omni-console schema` prints the JSON Schema"
)

_PLACEHOLDER: dict[str, InputValue] = {
    "string": "x", "int": 1, "float": 1.0, "bool": True, "path": "x", "duration": "1s",
    "bytes": "1GiB", "words": "",
}  # fmt: skip


def resolved(aliases: Mapping[str, str], known: Set[str]) -> dict[str, str]:
    """Old names of `known` services, with the current name of each. The baseline's container counts
    as the baseline, and an alias may lead to it."""
    current_names = {}
    for old, new in aliases.items():
        today = new if new in known else aliases.get(new, new)
        if today in known:
            current_names[old] = today
    return current_names


def rename(
    data: dict[str, Any], aliases: Mapping[str, str], site_services: Set[str] = frozenset()
) -> tuple[str, ...]:
    """Put current names into a document, in place; return the replacements, a line each.

    A service that the playbook itself declares under the old name keeps it. A compose file's
    service has no such protection, because the site says that the old name is gone. A name that
    leads to no service stays as written.
    """
    declared = _table(data.get("services"))
    known = resolved(aliases, {*declared, *site_services, BASELINE})
    current_names = {old: new for old, new in known.items() if old not in declared}
    composed = {old: new for old, new in aliases.items() if new != BASELINE}
    notes: dict[str, None] = {}
    for table, key in _tables_of_steps(data):
        _replace(table, key, current_names, notes)
    for guard in _list(data.get("guards")):
        for key in ("log", "of"):
            _replace(_table(guard), key, current_names, notes)
    for service in declared.values():
        _replace(_table(_table(service).get("compose")), "service", composed, notes)
    return tuple(notes)


def _tables_of_steps(data: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Every table of a step that names a service, and the key that names it."""
    phases = [_table(phase).get("steps") for phase in _list(data.get("phases"))]
    for steps in (*phases, data.get("finally")):
        for step in _list(steps):
            for kind, keys in _NAMED.items():
                for key in keys:
                    yield _table(_table(step).get(kind)), key


def _replace(
    table: dict[str, Any], key: str, names: Mapping[str, str], notes: dict[str, None]
) -> None:
    old = table.get(key)
    if isinstance(old, str) and old in names:
        table[key] = names[old]
        notes[f"{one_line(old, 60)} is called {one_line(names[old], 60)} on this site"] = None


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def mend(document: Document, data: dict[str, Any]) -> tuple[PlaybookModel | None, frozenset[str]]:
    """A model with the same steps and services at the same places, and the ids of broken steps.

    A broken step becomes a note with its id, a broken service a placeholder; parts that no rule
    examines are dropped.
    """
    broken: set[str] = set()

    def step(given: Any) -> Any:
        if validate(Step, document, given)[0] is not None:
            return given
        note = {"id": given.get("id") if isinstance(given, dict) else None, "note": "broken"}
        if validate(Step, document, note)[0] is None:
            note["id"] = f"broken-{len(broken)}"
        broken.add(str(note["id"]))
        return note

    parts = {
        "schema": "omni.playbook/v1", "name": "x", "title": "x",
        "services": _services(document, data.get("services")),
        "guards": [
            guard if validate(GuardModel, document, guard)[0] is not None else _HARMLESS
            for guard in _list(data.get("guards"))
        ],
        "phases": [
            {"title": "x", "steps": [step(s) for s in _list(_table(phase).get("steps")) or [None]]}
            for phase in _list(data.get("phases"))
        ],
        "finally": [step(final_step) for final_step in _list(data.get("finally"))],
    }  # fmt: skip
    return validate(PlaybookModel, document, parts)[0], frozenset(broken)


def _services(document: Document, given: Any) -> dict[str, Any]:
    services: dict[str, Any] = {}
    for name, data in given.items() if isinstance(given, dict) else ():
        for service in (data, _STAND_IN):
            if _is_playbook(document, {name: service}):
                services[name] = service
                break
    return services


def _is_playbook(document: Document, services: dict[str, Any]) -> bool:
    phases = [{"title": "x", "steps": [{"id": "x", "note": "x"}]}]
    parts = {"schema": "omni.playbook/v1", "name": "x", "title": "x", "phases": phases}
    return validate(PlaybookModel, document, {**parts, "services": services})[0] is not None


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
    offers: Offers = NO_OFFERS,
) -> Playbook:
    """Read, fill in and check a playbook.

    `given`: inputs as text. `aliases`: old names of services, reported in `.notes`. `base`: what
    paths are relative to. `planning`: accept inputs without a value. `pinned`: a run's own copy,
    whose lessons may be gone. `rewrite`: changes the filled-in document before it is checked.
    `offers`: what the site has for inputs that are not given.
    Raises InvalidFile (exit 2), UsageError.
    """
    text, document = _read(path)
    if not pinned:
        check_lessons(document)
    base = (base or path.resolve().parent).absolute()
    models = _input_models(document)
    called = document.data.get("name")
    offered = {name: offers.default(called, name, model) for name, model in models.items()}
    inputs, secrets = _resolve(document, models, dict(given or {}), offered, base, planning)
    values = _values(inputs, secrets, base)
    filled = {
        key: value if key == "inputs" else substitute(document, value, values, (key,))
        for key, value in document.data.items()
    }
    notes = rename(filled, aliases or {}, site_services)
    if rewrite is not None and not document.problems:
        filled = rewrite(filled, base)
    model = validated(PlaybookModel, document, filled)
    stands, broken = (model, frozenset[str]()) if model is not None else mend(document, filled)
    missing = {
        n for n, m in models.items() if m.required and n not in (given or {}) and offered[n] is None
    }
    if stands is not None:  # what single values do not show, as far as the document stands
        check_rules(document, stands, site_services, broken, guessed=bool(missing))
    defaults = {name: input_model.default for name, input_model in models.items()}
    known = Known.of(document.data, filled, defaults, {**offered}, {**(given or {})}, inputs)
    if document.problems or model is None:
        raise InvalidFile(
            TITLE, [problem.map_words(known.text) for problem in sorted(document.problems)], HINT
        )
    guards = guard_limits(document, model, site_services)
    unset = tuple(missing & set(inputs))
    return Playbook(model, path, base, text, inputs, secrets, unset, guards, notes, known)


def _read(path: Path) -> tuple[str, Document]:
    text = read_text(path, TITLE)
    document = parse(text, str(path), TITLE)
    if not isinstance(document.data, dict):
        raise InvalidFile(TITLE, [document.problem((), "not a mapping", "schema: …")], HINT)
    return text, document


def _values(
    inputs: dict[str, InputValue], secrets: dict[str, Secret], base: Path
) -> dict[str, Any]:
    values: dict[str, Any] = {f"inputs.{name}": value for name, value in inputs.items()}
    values |= {f"inputs.{name}": secret for name, secret in secrets.items()}
    values["playbook.dir"] = str(base)
    return values


def _input_models(document: Document) -> dict[str, InputModel]:
    declared = document.data.get("inputs", {})
    if not isinstance(declared, dict):
        return {}  # the model as a whole reports it

    class _Declaration(BaseModel):
        inputs: dict[str, InputModel]

    models: dict[str, InputModel] = {}
    for name, data in declared.items():
        declaration = validated(_Declaration, document, {"inputs": {name: data}})
        if declaration is not None:
            models[name] = declaration.inputs[name]
    return models


def _resolve(
    document: Document, models: dict[str, InputModel], given: dict[str, str],
    offered: Mapping[str, InputValue | None], base: Path, planning: bool,
) -> tuple[dict[str, InputValue], dict[str, Secret]]:  # fmt: skip
    inputs: dict[str, InputValue] = {}
    secrets: dict[str, Secret] = {}
    _check_names(document, models, given)
    for name, model in models.items():
        if model.from_ is not None:
            env, file = model.from_.env, model.from_.file
            secrets[name] = Secret(name, env, None if file is None else resolve(base, file))
            continue
        try:
            inputs[name] = _value(model, given.get(name, offered[name]), base, planning)
        except ValueError as error:
            document.add(_wrong(document, name, model, given, offered[name], str(error)))
            inputs[name] = _stand_in(model)
    return inputs, secrets


def _check_names(document: Document, models: dict[str, InputModel], given: dict[str, str]) -> None:
    """Check the names of inputs from the command line. Raises UsageError."""
    unknown = sorted(set(given) - set(models))
    if unknown:
        known = ", ".join(models) or "none"
        what, declared = one_line(unknown[0], 60), f"{document.name} declares: {known}"
        raise UsageError(f"unknown input '{what}'", declared, "--input NAME=VALUE")
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
    document: Document, name: str, model: InputModel, given: dict[str, str],
    offered: InputValue | None, expected: str,
) -> Problem:  # fmt: skip
    """What is wrong with an input's value, placed at its default or its declaration."""
    loc: Loc = ("inputs", name)
    if name in given:
        what = f"input '{name}' given is {one_line(repr(given[name]), 80)}"
        return document.problem(loc, what, expected)
    if offered is not None and offered != model.default:
        what = f"input '{name}' of the site is {one_line(repr(offered), 80)}"
        return document.problem(loc, what, expected, "defaults: or baseline: of the site file")
    if model.default is not None:
        what = f"input '{name}' default is {one_line(repr(model.default), 80)}"
        return document.problem((*loc, "default"), what, expected)
    if model.required:
        return document.problem(loc, f"input '{name}' has no value", expected, f"--input {name}=…")
    return document.problem(loc, f"input '{name}' has no default", "a default, or required: true")
