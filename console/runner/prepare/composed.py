"""A compose service as compose reads it, for the questions that a container is asked before step 1.

Only the plugin knows what its files come to (variables, anchors, `extends`, profiles), and it tells
without an engine. Without the plugin the files are judged as lint does, and variables that they
require are looked for; whether compose takes the rest is unknown, and that is said.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from console.checks.lint import compose_keys, compose_model, files, yaml_tree
from console.checks.lint.unit import Severity
from console.common.errors import EngineError, Problem, ServiceError
from console.common.text import one_line
from console.config.yaml import Document, Loc
from console.runner.prepare.mounts import FILES
from console.runtime.spec import ComposeSpec, ContainerSpec, Mount, ServiceSpec

BESIDE = {
    f"{stem}.{end}": tuple(f"{stem}.override.{other}" for other in ("yaml", "yml"))
    for stem in ("compose", "docker-compose")
    for end in ("yaml", "yml")
}
"""What compose reads beside a file of a usual name, when no file is named to it."""
_NAMED = re.compile(r"services[.\[]([\w.-]+?)\]?((?:\.[\w-]+)*)(?=[:\s'\"]|\.\[|$)")
_REQUIRED = re.compile(r"(?<!\$)(?:\$\$)*\$\{([A-Za-z_]\w*)(:?)\?")
_FILLED = re.compile(r"(?<!\$)\$(?:\{([A-Za-z_]\w*)(?:(:?)([-+])([^{}$]*))?\}|([A-Za-z_]\w*))")
"""A variable: in brackets with what counts in its place, or bare."""
_ASSIGNED = re.compile(r"^[ \t]*(?:export[ \t]+)?([A-Za-z_]\w*)[ \t]*=(.*)$", re.MULTILINE)
MAX_SAID = 20
"""Problems of one service that are said without compose."""
_LINE = re.compile(r"\bline (\d+)")


@dataclass(frozen=True)
class Composed:
    """`spec` is the service as a container would be declared, or None; `document` has the places of
    its keys in the compose file. `refused`: why compose does not take it; `unknown`: why compose
    could not be asked, in words."""

    document: Document
    spec: ServiceSpec | None = None
    made: tuple[Path, ...] = ()
    """Paths on this machine that the engine makes as directories where they are missing."""
    needed: tuple[Path, ...] = ()
    """Those without which the engine refuses the service."""
    refused: tuple[Problem, ...] = ()
    unknown: str = ""


def read(spec: ServiceSpec) -> Composed:
    """Ask compose what the service comes to."""
    from console.runtime.docker.client import engine_host
    from console.runtime.docker.compose import configured, service_of

    runs = spec.runs
    assert isinstance(runs, ComposeSpec)
    document = _document(runs, spec.name)
    try:
        service = service_of(configured(runs, engine_host(), lambda words: None), runs)
    except EngineError as error:
        refused = tuple(islice(_without_compose(runs, spec.name), MAX_SAID))
        return Composed(document, refused=refused, unknown=str(error))
    except ServiceError as error:
        return Composed(document, refused=(_refused(runs, spec.name, error),))
    binds = [volume for volume in service.get("volumes") or () if volume.get("type") == "bind"]
    sources = [(Path(str(bind.get("source"))), _is_made(bind)) for bind in binds]
    container = replace(spec, runs=_container(service, binds))
    return Composed(
        document,
        container,
        tuple(path for path, is_made in sources if is_made),
        tuple(path for path, is_made in sources if not is_made),
    )


def _without_compose(runs: ComposeSpec, name: str) -> Iterator[Problem]:
    """What is surely refused of the files, without the plugin that would say so."""
    given = _given(runs)
    for file in runs.files:
        try:
            tree = yaml_tree.parse(files.read(file))
        except files.Unreadable as error:
            if file.exists():  # one that is missing is warned of wherever it may be needed
                yield Problem(str(file), 0, 0, f"service '{name}': its compose file {error}")
            continue
        except yaml_tree.NotYaml as error:
            what = f"service '{name}': its compose file is not YAML: {one_line(str(error), 200)}"
            yield Problem(str(file), error.place.line, error.place.column, what)
            continue
        hits = list(compose_keys.refused(tree, sure=True))
        if len(runs.files) == 1:  # one of several may lean on another
            hits += compose_model.refused(tree.root, file)
        for hit in hits:
            if hit.severity in (None, Severity.ERROR):
                what = f"service '{name}': compose refuses its file: {one_line(hit.what, 300)}"
                yield Problem(str(file), hit.place.line, hit.place.column, what, "", hit.fix)
        yield from _ungiven(tree.root, file, name, given)
        if len(runs.files) == 1:
            yield from _without_image(tree.root, file, name, given)


def _without_image(
    root: yaml_tree.Node, file: Path, name: str, given: Mapping[str, str]
) -> Iterator[Problem]:
    """Services whose image is nothing once its variables are filled in, and that build none."""
    services = root.get("services")
    for own, service in services.pairs() if services is not None else ():
        image = service.get("image")
        others = (service.get(key) for key in ("build", "extends", "provider", "profiles"))
        if image is None or not image.text or any(other is not None for other in others):
            continue
        if not _FILLED.sub(lambda match: _value(match, given), image.text):
            what = f"service '{name}': compose refuses its file: services.{own}.image is empty"
            hint = (
                f"`{one_line(image.text, 60)}`: set it under `env:`, or in `.env` beside the file"
            )
            yield Problem(str(file), image.place.line, image.place.column, what, "", hint)


def _value(match: re.Match[str], given: Mapping[str, str]) -> str:
    """What compose puts in the place of a variable."""
    value = given.get(match[1] or match[5])
    is_given = bool(value) if match[2] else value is not None
    if match[3] == "+":
        return match[4] if is_given else ""
    return match[4] if match[3] == "-" and not is_given else value or ""


def _ungiven(
    root: yaml_tree.Node, file: Path, name: str, given: Mapping[str, str]
) -> Iterator[Problem]:
    """Variables that the file requires, and that nobody gives."""
    for node in root.walk():
        for match in _REQUIRED.finditer(node.text or ""):
            variable, filled = match[1], match[2] == ":"
            if not given.get(variable) if filled else variable not in given:
                what = f"service '{name}': its compose file requires the variable {variable}"
                hint = f"set {variable} under `env:`, or in `.env` beside the file"
                yield Problem(str(file), node.place.line, node.place.column, what, "", hint)


def _given(runs: ComposeSpec) -> dict[str, str]:
    """The variables that compose is given: those of the environment that are handed on, those of
    `.env` beside the first file, and the playbook's."""
    from console.runtime.docker.compose import ALLOWED

    try:
        beside = files.read(runs.files[0].parent / ".env")
    except files.Unreadable:
        beside = ""
    own = {key: os.environ[key] for key in ALLOWED if key in os.environ}
    kept = {match[1]: match[2].strip(" \t'\"") for match in _ASSIGNED.finditer(beside)}
    return {**kept, **own, **dict(runs.env)}


def unread(runs: ComposeSpec) -> Iterator[Path]:
    """Override files beside a compose file of a usual name: compose reads them when it is called
    without a name, and not for a file that is named."""
    for file in runs.files:
        for name in BESIDE.get(file.name, ()):
            other = file.with_name(name)
            if other not in runs.files and other.is_file():
                yield other


def missing(composition: Composed, name: str) -> Iterator[tuple[Problem, Path]]:
    """Mounts whose source is not there: the engine refuses one, or makes a directory where a file
    was meant."""
    for path in composition.needed:
        if not path.exists():
            what = f"service '{name}': there is no {one_line(str(path), 300)} to mount"
            hint = "without `create_host_path` the engine makes none"
            yield _at_volumes(composition, name, what, hint), path
    for path in composition.made:
        if path.suffix.lower() in FILES and not path.exists():
            what = f"service '{name}': there is no file {one_line(str(path), 300)} to mount"
            yield (
                _at_volumes(composition, name, what, "the engine would make a directory of it"),
                path,
            )


def _at_volumes(composition: Composed, name: str, what: str, hint: str) -> Problem:
    return composition.document.problem(("services", name, "volumes"), what, "", hint)


def limits(composition: Composed, name: str) -> Iterator[Problem]:
    """Processors that this machine does not have: the engine refuses to make the container."""
    runs, there = composition.spec.runs if composition.spec else None, os.cpu_count()
    if isinstance(runs, ContainerSpec) and runs.cpus and there and runs.cpus > there:
        what = f"service '{name}' asks for {runs.cpus:g} CPUs, and this machine has {there}"
        yield composition.document.problem(("services", name, "cpus"), what, f"at most {there}")


def _is_made(mount: Mapping[str, Any]) -> bool:
    return bool((mount.get("bind") or {}).get("create_host_path"))


def _container(service: Mapping[str, Any], binds: Sequence[Mapping[str, Any]]) -> ContainerSpec:
    """What of a resolved service a declared container has, too."""
    limits = ((service.get("deploy") or {}).get("resources") or {}).get("limits") or {}
    return ContainerSpec(
        image=str(service.get("image") or ""),
        command=_words(service.get("command")),
        entrypoint=_words(service.get("entrypoint")),
        env=tuple(_environment(service)),
        ports=tuple(_ports(service.get("ports") or ())),
        mounts=tuple(
            Mount(str(bind.get("source")), str(bind.get("target")), bool(bind.get("read_only")))
            for bind in binds
        ),
        cpus=_number(service.get("cpus")) or _number(limits.get("cpus")),
        network=str(service.get("network_mode") or ""),
    )


def _words(value: object) -> tuple[str, ...]:
    """Compose prints a `$` that stands for itself twice."""
    words = value if isinstance(value, list) else []
    return tuple(str(word).replace("$$", "$") for word in words)


def _environment(service: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    given = service.get("environment")
    for name, value in given.items() if isinstance(given, dict) else ():
        if value is not None:  # else it is the environment's own
            yield str(name), str(value).replace("$$", "$")


def _ports(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, int]]:
    """(port of this machine, port of the container) of TCP; none for one that the engine picks."""
    for row in rows:
        target, published = row.get("target"), str(row.get("published") or "")
        if row.get("protocol", "tcp") == "tcp" and isinstance(target, int) and published.isdigit():
            yield int(published), target


def _number(value: object) -> float | None:
    try:
        return float(str(value))
    except ValueError:
        return None


def _refused(runs: ComposeSpec, name: str, error: ServiceError) -> Problem:
    """What compose says, where its words name a line or a key; else at the service."""
    file, line, column = _place(runs, error.detail)
    shown = " ".join(f"-f {one_line(str(compose_file), 200)}" for compose_file in runs.files)
    hint = error.hint or f"docker compose {shown} config -q"
    what = f"service '{name}': {one_line(str(error), 400)}"
    return Problem(file, line, column, what, "", hint)


def _place(runs: ComposeSpec, text: str) -> tuple[str, int, int]:
    trees = list(_trees(runs))
    if (match := _LINE.search(text)) is not None:
        file = next(
            (compose_file for compose_file in runs.files if str(compose_file) in text),
            runs.files[0],
        )
        return str(file), int(match[1]), 1
    keys = [runs.service]
    if (named := _NAMED.search(text)) is not None:
        keys = [named[1], *filter(None, named[2].split("."))]
    while keys:
        for file, root in reversed(trees):
            parent = root.get("services", *keys[:-1])
            if parent is not None and keys[-1] in parent.keys:
                place = parent.keys[keys[-1]]
                return str(file), place.line, place.column
        keys.pop()
    return str(runs.files[0]), 0, 0


def _trees(runs: ComposeSpec) -> Iterator[tuple[Path, yaml_tree.Node]]:
    for file in runs.files:
        try:
            yield file, yaml_tree.parse(files.read(file)).root
        except (files.Unreadable, yaml_tree.NotYaml):
            continue


_KEYS: Mapping[tuple[str, ...], Loc] = {
    ("command",): ("container", "command"),
    ("entrypoint",): ("container", "entrypoint"),
    ("ports",): ("url",),
    ("volumes",): ("volumes",),
    ("cpus",): ("cpus",),
    ("deploy", "resources", "limits", "cpus"): ("cpus",),
}
"""Keys of a compose service, and those of a playbook's service that mean the same."""


def _document(runs: ComposeSpec, name: str) -> Document:
    """Where the values of the service stand in the last file that has them."""
    document = Document(str(runs.files[0]), places={(): (0, 0)})
    for file, root in _trees(runs):
        service = root.get("services", runs.service)
        if service is None:
            continue
        document.name = str(file)
        at: Loc = ("services", name)
        document.places[at] = (service.place.line, service.place.column)
        for keys, loc in _KEYS.items():
            if (value := service.get(*keys)) is not None:
                document.places[(*at, *loc)] = (value.place.line, value.place.column)
    return document
