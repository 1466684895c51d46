"""Compose files and playbooks as units: what they run, with what, and how they check health."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace

from console.checks.lint import commands, compose_keys, compose_model, shell
from console.checks.lint.commands import Scene, add_argv, add_script, joined
from console.checks.lint.dockerfile import expanded
from console.checks.lint.files import SHELL_ENDS
from console.checks.lint.unit import (
    Command,
    Container,
    Health,
    Image,
    Place,
    PlaybookStep,
    Source,
    Unit,
    Variable,
    Where,
    Word,
)
from console.checks.lint.yaml_tree import Node, Tree

_INPUT = re.compile(r"\$\{\{\s*inputs\.([\w-]+)\s*\}\}")

_COMPOSE = ("compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml")


def looks_like_one(root: Node, name: str) -> bool:
    """Whether this is a mapping with `services:` that is for compose: by the file's usual name, or
    because one of them has a key of compose's."""
    services = root.get("services")
    if services is None or services.fields is None or root.get("schema") is not None:
        return False
    known = {"image", "build", "command", "extends", "environment", "deploy", "volumes", "ports"}
    return name in _COMPOSE or any(
        known & set(service.fields or {}) for _, service in services.pairs()
    )


def compose_unit(source: Source, tree: Tree) -> Unit:
    """What each service runs, with what, and how its health is checked."""
    unit = Unit(source, comments=list(tree.comments), spans=list(tree.spans))
    named = any(word in source.path.name.lower() for word in ("compose", "stack"))
    unit.refused += compose_keys.refused(tree, sure=named)
    if compose_keys.is_for_compose(tree):
        unit.refused += compose_model.refused(tree.root, source.path)
    services = tree.root.get("services")
    for name, service in _pairs(services):
        if service.fields is not None:
            _service(unit, name, _extended(services, service), service.place)
    return unit


def _extended(services: Node | None, service: Node) -> Node:
    """A service merged with what it `extends` in the same file."""
    base = service.text_at("extends", "service") or service.text_at("extends")
    other = services.get(base) if services is not None and base else None
    if other is None or service.get("extends", "file") is not None or other is service:
        return service
    fields = {**(other.fields or {}), **(service.fields or {})}
    return Node(service.place, fields=fields, keys={**other.keys, **service.keys})


def _service(unit: Unit, name: str, service: Node, place: Place) -> None:
    image = expanded(service.text_at("image"), {})
    variables = tuple(_environment(service.get("environment"), name))
    unit.variables += variables
    built = _dockerfile(service.get("build"))
    if (ref := service.get("image")) is not None:
        made = service.get("build") is not None
        unit.images.append(Image(image, ref.place, name, made=made, by="compose"))
    runtime = service.get("runtime")
    unit.containers.append(
        Container(
            name, place, image, dockerfile=built,
            runtime=service.text_at("runtime"), runtime_place=runtime.place if runtime else None,
            gpus=_gpus(service), env=variables, mounts=_mounts(service.get("volumes")),
        )
    )  # fmt: skip
    words = (*_argv(service.get("entrypoint")), *_argv(service.get("command")))
    add_argv(unit, words, Scene(Where.START, name, image))
    _health(unit, service.get("healthcheck", "test"), name, image, built)


def _argv(node: Node | None) -> tuple[Word, ...]:
    """A list as it is; a text split as compose splits it, without a shell."""
    if node is None:
        return ()
    if node.text is None:
        return node.words()
    read = shell.parse(node.word.inner)
    return tuple(word for command in read.commands[:1] for word in command.words)


def _health(unit: Unit, test: Node | None, name: str, image: str, built: str) -> None:
    if test is None:
        return
    before = len(unit.commands)
    scene = Scene(Where.HEALTH, name, image)
    words = test.words()
    shell = test.text is not None or (bool(words) and words[0].text == "CMD-SHELL")
    if test.text is not None:
        add_script(unit, test.word.inner, scene)
    elif words and words[0].text == "CMD":
        add_argv(unit, words[1:], scene)
    elif shell and len(words) > 1:
        add_script(unit, words[1].inner, scene)
    else:
        return
    programs = tuple(command.words[0] for command in unit.commands[before:])
    unit.healths.append(Health(test.place, image, shell, programs, name, built))


def _environment(node: Node | None, scope: str) -> Iterator[Variable]:
    if node is None:
        return
    for name, value in node.pairs():
        yield Variable(name, value.text or "", value.place, scope)
    for word in node.words():
        name, sign, text = word.text.partition("=")
        if sign:
            yield Variable(name, text, word.place, scope)


def _dockerfile(build: Node | None) -> str:
    """The path of the Dockerfile, "" if nothing is built, "?" if it is inline."""
    if build is None:
        return ""
    if build.text is not None:
        return f"{build.text or '.'}/Dockerfile"
    if build.get("dockerfile_inline") is not None:
        return "?"
    context = build.text_at("context") or "."
    return f"{context}/{build.text_at('dockerfile') or 'Dockerfile'}"


def _gpus(service: Node) -> Place | None:
    if (gpus := service.get("gpus")) is not None:
        return gpus.place
    devices = service.get("deploy", "resources", "reservations", "devices")
    for device in _each(devices):
        capabilities = [word.text for word in (device.get("capabilities") or device).words()]
        if device.text_at("driver") == "nvidia" or "gpu" in capabilities:
            return device.place
    for device in _each(service.get("devices")):
        if "/dev/nvidia" in (device.text or "") or "nvidia.com/gpu" in (device.text or ""):
            return device.place
    return None


def _mounts(volumes: Node | None) -> tuple[Word, ...]:
    """Short forms as they are, long ones as source:target."""
    mounts: list[Word] = []
    for volume in _each(volumes):
        if volume.text is not None:
            mounts.append(volume.word)
        elif (target := volume.get("target")) is not None:
            word = target.word
            mounts.append(Word(f"{volume.text_at('source')}:{word.text}", target.place, word.inner))
    return tuple(mounts)


def playbook_unit(source: Source, tree: Tree, given: Mapping[str, str] | None) -> Unit:
    """What the steps run on the host and in containers, and the services. `given`: inputs of a run;
    without them their defaults are used."""
    return _Build(source, tree, dict(given or {})).unit


class _Build:
    def __init__(self, source: Source, tree: Tree, given: dict[str, str]) -> None:
        self.unit = Unit(source, comments=list(tree.comments), spans=list(tree.spans))
        self.values = {**_defaults(tree.root), **given}
        self.lists = {name for name, input_node in _pairs(tree.root.get("inputs"))
                      if input_node.text_at("type") == "words"}  # fmt: skip
        self.images: dict[str, str] = {}
        for name, service in _pairs(tree.root.get("services")):
            self._service(name, service)
        steps: list[PlaybookStep] = []
        for step in _steps(tree.root):
            steps += self._step(step)
        self.unit.steps = tuple(steps)
        for command in self.unit.commands:
            if command.where is Where.HOST:
                self.unit.files += [
                    joined(command.folder, file_name) for file_name in _named(command)
                ]

    def fill(self, text: str) -> str:
        """Fill in inputs; one without a value stays as written."""
        return _INPUT.sub(lambda match: self.values.get(match[1], match[0]), text)

    def words(self, node: Node | None) -> tuple[Word, ...]:
        given = node.words() if node is not None else ()
        return tuple(word for template in given for word in self._filled(template))

    def _filled(self, word: Word) -> list[Word]:
        """The words that one becomes: as many as an input of type `words` holds, else one."""
        text, whole = self.fill(word.text), _INPUT.fullmatch(word.text)
        if whole is not None and whole[1] in self.lists and text != word.text:
            with contextlib.suppress(ValueError):
                return [Word.made(part, word.place) for part in shlex.split(text)]
        return [word if text == word.text else Word.made(text, word.place)]

    def _variables(self, node: Node | None, scope: str) -> tuple[Variable, ...]:
        return tuple(
            Variable(name, self.fill(value.text or ""), value.place, scope)
            for name, value in _pairs(node)
        )

    def _service(self, name: str, service: Node) -> None:
        container, process = service.get("container"), service.get("process")
        if container is not None:
            image = self.fill(container.text_at("image"))
            self.images[name] = image
            env = self._variables(container.get("env"), name)
            self.unit.variables += env
            if (ref := container.get("image")) is not None:
                self.unit.images.append(Image(image, ref.place, name, by="playbook"))
            gpus = container.get("gpus")
            self.unit.containers.append(
                Container(
                    name, container.place, image, gpus=gpus.place if gpus else None, env=env,
                    mounts=self.words(container.get("mounts")),
                )
            )  # fmt: skip
            scene = Scene(Where.START, name, image)
            entry, command = container.get("entrypoint"), container.get("command")
            add_argv(self.unit, (*self.words(entry), *self.words(command)), scene)
        if (file := service.get("compose", "file")) is not None:
            self.unit.files.append(self.fill(file.text or ""))
        if process is not None:
            self.unit.variables += self._variables(process.get("env"), name)
            add_argv(self.unit, self.words(process.get("argv")), Scene(Where.HOST, name))

    def _step(self, step: Node) -> Iterator[PlaybookStep]:
        from console.config.playbook.steps import WRITTEN  # no other file needs the models

        kind = next((key for key in WRITTEN if step.get(key) is not None), "")
        body = step.get(kind) if kind else None
        if body is None:
            return
        name = step.text_at("id")
        yield PlaybookStep(
            name, kind, step.keys.get(kind, step.place), step.get("timeout") is not None, body
        )
        scene = self._scene(step, name)
        env = self._variables(step.get("env"), name)
        self.unit.variables += env
        if kind == "run":
            add_argv(self.unit, self.words(body), replace(scene, env=env))
        elif kind == "script":
            add_script(self.unit, body.word.inner, scene)
        elif kind == "build":
            self._build(body, name)
        for path in (("check", "output"), ("unless", "run"), ("manual", "verify", "output")):
            add_argv(self.unit, self.words(step.get(*path)), scene)

    def _build(self, body: Node, name: str) -> None:
        file = f"{body.text_at('context') or '.'}/{body.text_at('dockerfile') or 'Dockerfile'}"
        self.unit.files.append(self.fill(file))
        if (tag := body.get("tag")) is not None:
            ref = self.fill(tag.text or "")
            self.unit.images.append(Image(ref, tag.place, name, made=True))

    def _scene(self, step: Node, name: str) -> Scene:
        image = self.fill(step.text_at("where", "image"))
        service = step.text_at("where", "service")
        if image and (ref := step.get("where", "image")) is not None:
            self.unit.images.append(Image(image, ref.place, name, by="playbook"))
        if image or service:
            return Scene(Where.START, name, image or self.images.get(service, ""))
        return Scene(Where.HOST, name, folder=self.fill(step.text_at("cwd")))


def _each(node: Node | None) -> Iterator[Node]:
    return node.each() if node is not None else iter(())


def _pairs(node: Node | None) -> Iterator[tuple[str, Node]]:
    return node.pairs() if node is not None else iter(())


def _defaults(root: Node) -> dict[str, str]:
    return {
        name: input_node.text_at("default")
        for name, input_node in _pairs(root.get("inputs"))
        if input_node.get("default") is not None
    }


def _steps(root: Node) -> Iterator[Node]:
    for phase in _each(root.get("phases")):
        yield from _each(phase.get("steps"))
    yield from _each(root.get("finally"))


def _named(command: Command) -> Iterator[str]:
    """Files of a kind known to lint that a command reads or runs."""
    call = commands.engine_call(command.words)
    if call is not None:
        given = [value for value, _ in call.values("-f", "--file")]
        if call.compose:
            yield from given or _COMPOSE
        elif call.verb == "build" and call.rest:
            yield given[0] if given else f"{call.rest[-1].text}/Dockerfile"
        return
    words = command.words
    if command.name in (*commands.SHELLS, "source", ".") and commands.shell_text(words) is None:
        words = tuple(argument for argument in command.args if not argument.text.startswith("-"))
    elif "/" not in words[0].text:
        return
    if words and (not words[0].text.startswith("/") or words[0].text.endswith(SHELL_ENDS)):
        yield words[0].text
