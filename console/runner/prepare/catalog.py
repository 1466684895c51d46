"""The playbooks to choose from, their inputs as a form, and the plan before anything is started.

Parsers are imported inside the functions, because the first frame needs none of them. Everything
here reads files, so call nothing of it on the UI loop.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from console.common import paths
from console.common.errors import ConsoleError, InvalidFile
from console.common.text import clean, one_line
from console.config.locate import services, shipped, site_file, site_name

if TYPE_CHECKING:
    from console.config.playbook.inputs import InputModel
    from console.config.playbook.playbook import Playbook
    from console.config.site.site import Site

MARK = b"omni.playbook/"
HEAD = 2048
ENDINGS = (".yaml", ".yml")
EXAMPLE = "example"


@dataclass(frozen=True, slots=True)
class Entry:
    """One playbook file; texts are clean. `source`: shipped, yours, site, here, or `example`: it is
    written for another site than this.

    `problem`: why it cannot be used, its first error; "" when it can.
    """

    path: Path
    name: str
    title: str = ""
    objective: str = ""
    lessons: tuple[str, ...] = ()
    source: str = ""
    problem: str = ""
    read_first: tuple[str, ...] = ()
    """Its lessons with their titles."""


@dataclass(frozen=True, slots=True)
class Field:
    """One input of a form; texts are clean. `default` as it would be typed, "" for none.

    `expected`: what may be typed. `secret_from`: where a secret is read from; it is never typed.
    `check_value` judges by `model` and `base` (the playbook's directory).
    """

    name: str
    type: str
    model: InputModel = field(repr=False, compare=False)
    base: Path = field(repr=False, compare=False)
    title: str = ""
    default: str = ""
    required: bool = False
    choices: tuple[str, ...] = ()
    expected: str = ""
    secret_from: str = ""


@dataclass(frozen=True, slots=True)
class Preview:
    """A plan with exactly the lines of `omni-console plan`. `missing`: required inputs filled with
    a placeholder. `digest`: of the files the plan was made from."""

    lines: list[str]
    missing: tuple[str, ...] = ()
    digest: str = ""
    lessons: tuple[str, ...] = ()


def entries(*, site: str | None) -> list[Entry]:
    """All playbooks found, the shipped ones first; each file once. Never raises for a bad one.

    `site` is the one from the command line: its directory is searched, and its services count as
    declared.
    """
    try:
        known, name = services(site), site_name(site)
    except (ConsoleError, OSError):
        known, name = frozenset(), ""
    seen: set[str] = set()
    playbooks: list[Entry] = []
    for source, directory in _places(site):
        for path in _playbooks(directory):
            real = os.path.realpath(path)
            if real not in seen:
                seen.add(real)
                playbooks.append(_entry(path, source, known, name))
    playbooks.sort(key=lambda entry: entry.source == EXAMPLE)
    if "fast" in known:
        return playbooks
    # the shipped demo beside a site of one's own: nothing is wrong with it, `omni-console demo`
    # runs it
    return [e for e in playbooks if not (e.problem and (e.source, e.name) == ("shipped", "demo"))]


def load(path: Path, inputs: dict[str, str], site: Site) -> Playbook:
    """Load the playbook exactly as `run` would. Raises InvalidFile or UsageError."""
    from console.config.playbook.load import load_playbook

    known, names = frozenset(site.model.services), site.model.names
    return load_playbook(path, inputs, site_services=known, aliases=names, offers=site.offers)


def form(path: Path, site: Site) -> list[Field]:
    """The inputs that a playbook declares, in its order. Raises InvalidFile."""
    from console.config.playbook.load import load_playbook

    base, known = path.resolve().parent, frozenset(site.model.services)
    playbook = load_playbook(path, planning=True, site_services=known, aliases=site.model.names)
    offered = {
        name: model.model_copy(update={"default": site.offers.default(playbook.name, name, model)})
        for name, model in playbook.model.inputs.items()
    }
    return [_field(name, model, base) for name, model in offered.items()]


def check_value(field: Field, text: str) -> str:
    """What is wrong with a value typed for this field of `form`, or ""; empty text means the
    default.

    Reads no file (only checks that a required path exists) and never raises.
    """
    from console.config.playbook.inputs import convert, expected_form

    model = field.model
    if model.type == "secret":
        return "a secret is never typed" if text else ""
    if not text and model.default is not None:
        return ""
    if not text and model.type not in ("string",):
        return f"a value is needed: {expected_form(model)}"
    try:
        convert(model, text, field.base)
    except (ValueError, OverflowError, OSError, RecursionError) as error:
        return f"expected {one_line(str(error))}"
    return "a value is needed" if model.required and not text else ""


def preview(path: Path, inputs: dict[str, str], site: Site) -> Preview:
    """The plan for these inputs; missing ones are no error here. Raises InvalidFile, UsageError."""
    from console.checks.lint.rule import facts_of
    from console.config.playbook.load import load_playbook
    from console.journal.history import usual
    from console.runner.prepare import plan_text, startable
    from console.runner.prepare.admission import plan_findings
    from console.runner.prepare.baseline import restore_time
    from console.runner.prepare.plan import make_plan

    known = frozenset(site.model.services)
    playbook = load_playbook(
        path, inputs, planning=True, site_services=known, aliases=site.model.names,
        offers=site.offers,
    )  # fmt: skip
    past = usual(playbook.name, site.name)
    made = make_plan(playbook, site, restore_time(site.name), history=past)
    return Preview(
        lines=plan_text.lines(
            made, plan_findings(playbook, facts_of(site)), startable.look(playbook, site)
        ),
        missing=playbook.missing,
        digest=digest(playbook, site),
        lessons=(
            *made.playbook.model.lessons,
            *(x.split()[0] for s in made.steps for x in s.lessons),
        ),
    )


def digest(playbook: Playbook, site: Site) -> str:
    """Identifies a plan, to tell whether the plan that was shown is still what would run."""
    return hashlib.sha256(f"{playbook.text}\0{site.text}".encode("utf-8", "replace")).hexdigest()


def _places(site: str | None) -> Iterator[tuple[str, Path]]:
    """Directories to search; the operator's own come first."""
    yield "yours", paths.config_dir() / "playbooks"
    file = site_file(site)
    if file is not None:
        yield "site", file.absolute().parent
    yield "here", Path(".").absolute()
    yield "shipped", shipped()


def _playbooks(directory: Path) -> list[Path]:
    """YAML files whose beginning declares them to be playbooks."""
    try:
        names = sorted(os.listdir(directory))
    except OSError:
        return []
    files = [directory / name for name in names if name.endswith(ENDINGS)]
    return [path for path in files if path.is_file() and _is_playbook(path)]


def _is_playbook(path: Path) -> bool:
    with contextlib.suppress(OSError), path.open("rb") as file:
        return MARK in file.read(HEAD)
    return False


def _entry(path: Path, source: str, known: frozenset[str], site: str) -> Entry:
    from console.config.lessons.registry import titles
    from console.config.playbook.load import load_playbook

    try:
        model = load_playbook(path, planning=True, site_services=known).model
    except (ConsoleError, OSError) as error:
        name, title = _names(path)
        return Entry(path, name, title, source=source, problem=_first(error))
    if model.example_of not in ("", site):
        source = EXAMPLE
    return Entry(
        path, model.name, clean(model.title, 200), clean(model.objective, 400),
        tuple(clean(lesson, 80) for lesson in model.lessons), source,
        read_first=tuple(clean(title) for title in titles(model.lessons)),
    )  # fmt: skip


def _first(error: ConsoleError | OSError) -> str:
    if isinstance(error, InvalidFile) and error.problems:
        problem = error.problems[0]
        expected = f"; expected {problem.expected}" if problem.expected else ""
        where = f"line {problem.line}: " if problem.line else ""
        return one_line(f"{where}{problem.what}{expected}", 300)
    return one_line(str(error), 300)


def _names(path: Path) -> tuple[str, str]:
    """Name and title of a playbook that does not load, as far as they can be read."""
    from console.config.yaml import parse, read_text

    try:
        data = parse(read_text(path, ""), str(path), "").data
    except (ConsoleError, OSError):
        data = None
    table = data if isinstance(data, dict) else {}
    name, title = table.get("name"), table.get("title")
    name = one_line(name if isinstance(name, str) else path.stem, 60)
    return name, one_line(title) if isinstance(title, str) else ""


def _field(name: str, model: InputModel, base: Path) -> Field:
    from console.config.playbook.inputs import expected_form

    default = str(model.default).lower() if isinstance(model.default, bool) else model.default
    secret = ""
    if model.from_ is not None:
        env, file = model.from_.env, model.from_.file
        secret = f"environment variable {env}" if env is not None else f"file {file}"
    return Field(
        name=clean(name, 60),
        type=model.type,
        title=clean(model.title, 200),
        default="" if default is None else clean(str(default)),
        required=model.required,
        choices=tuple(clean(choice, 200) for choice in model.choices),
        expected=_expected(expected_form(model), model),
        secret_from=clean(secret, 200),
        model=model,
        base=base,
    )


def _expected(form_words: str, model: InputModel) -> str:
    """What may be typed into a field, with its bounds."""
    from console.config.playbook.inputs import plain

    words = [form_words]
    words += [f"at least {plain(model.min)}"] if model.min is not None else []
    words += [f"at most {plain(model.max)}"] if model.max is not None else []
    words += [f"matching {model.pattern}"] if model.pattern is not None else []
    return one_line(", ".join(words))
