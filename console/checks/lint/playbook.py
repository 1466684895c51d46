"""A playbook → a unit: what its steps run on the host and in containers, and its services."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from console.checks.lint import wrapper
from console.checks.lint.commands import Scene, add_argv, add_script, joined
from console.checks.lint.files import SHELL_ENDS
from console.checks.lint.snippet import spot
from console.checks.lint.unit import (
    Command,
    Container,
    Image,
    PlaybookStep,
    Source,
    Unit,
    Variable,
    Where,
    Word,
)
from console.checks.lint.yaml_tree import Node, Tree

_INPUT = re.compile(r"\$\{\{\s*inputs\.([\w-]+)\s*\}\}")
_KINDS = (
    "run", "script", "build", "check", "service", "benchmark", "gate", "approval", "manual", "note",
    "report", "checkpoint", "gguf", "host", "imports", "download", "soak", "cutover",
)  # fmt: skip


_COMPOSE = ("compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml")


def unit_of(source: Source, tree: Tree, given: Mapping[str, str] | None = None) -> Unit:
    """`given`: inputs of a run; without them their defaults stand in."""
    return _Build(source, tree, dict(given or {})).unit


class _Build:
    def __init__(self, source: Source, tree: Tree, given: dict[str, str]) -> None:
        self.unit = Unit(source, comments=list(tree.comments), spans=list(tree.spans))
        self.values = {**_defaults(tree.root), **given}
        self.images: dict[str, str] = {}
        for name, service in _pairs(tree.root.get("services")):
            self._service(name, service)
        steps: list[PlaybookStep] = []
        for step in _steps(tree.root):
            steps += self._step(step)
        self.unit.steps = tuple(steps)
        for command in self.unit.commands:
            if command.where is Where.HOST:
                self.unit.files += [joined(command.folder, one) for one in _named(command)]

    def fill(self, text: str) -> str:
        """Inputs in their places; one that has no value stays as it is written."""
        return _INPUT.sub(lambda match: self.values.get(match[1], match[0]), text)

    def words(self, node: Node | None) -> tuple[Word, ...]:
        return tuple(self.word(one) for one in (node.words() if node is not None else ()))

    def word(self, word: Word) -> Word:
        text = self.fill(word.text)
        return word if text == word.text else Word(text, word.place, spot(text, word.place))

    def _variables(self, node: Node | None, scope: str) -> tuple[Variable, ...]:
        return tuple(
            Variable(name, self.fill(value.text or ""), value.place, scope)
            for name, value in _pairs(node)
        )

    def _service(self, name: str, service: Node) -> None:
        container, process = service.get("container"), service.get("process")
        if container is not None:
            image = self.fill(container.said("image"))
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
        kind = next((one for one in _KINDS if step.get(one) is not None), "")
        body = step.get(kind) if kind else None
        if body is None:
            return
        name = step.said("id")
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
        file = f"{body.said('context') or '.'}/{body.said('dockerfile') or 'Dockerfile'}"
        self.unit.files.append(self.fill(file))
        if (tag := body.get("tag")) is not None:
            ref = self.fill(tag.text or "")
            self.unit.images.append(Image(ref, tag.place, name, made=True))

    def _scene(self, step: Node, name: str) -> Scene:
        image = self.fill(step.said("where", "image"))
        service = step.said("where", "service")
        if image and (ref := step.get("where", "image")) is not None:
            self.unit.images.append(Image(image, ref.place, name, by="playbook"))
        if image or service:
            return Scene(Where.START, name, image or self.images.get(service, ""))
        return Scene(Where.HOST, name, folder=self.fill(step.said("cwd")))


def _pairs(node: Node | None) -> Iterator[tuple[str, Node]]:
    return node.pairs() if node is not None else iter(())


def _defaults(root: Node) -> dict[str, str]:
    return {
        name: one.said("default")
        for name, one in _pairs(root.get("inputs"))
        if one.get("default") is not None
    }


def _steps(root: Node) -> Iterator[Node]:
    phases = root.get("phases")
    for phase in phases.each() if phases is not None else ():
        steps = phase.get("steps")
        yield from steps.each() if steps is not None else ()
    last = root.get("finally")
    yield from last.each() if last is not None else ()


def _named(command: Command) -> Iterator[str]:
    """Files of a kind that lint knows which a command reads or runs."""
    call = wrapper.engine_call(command.words)
    if call is not None:
        given = [value for value, _ in call.values("-f", "--file")]
        if call.compose:
            yield from given or _COMPOSE
        elif call.verb == "build" and call.rest:
            yield given[0] if given else f"{call.rest[-1].text}/Dockerfile"
        return
    words = command.words
    if command.name in (*wrapper.SHELLS, "source", ".") and wrapper.shell_text(words) is None:
        words = tuple(one for one in command.args if not one.text.startswith("-"))
    elif "/" not in words[0].text:
        return
    if words and (not words[0].text.startswith("/") or words[0].text.endswith(SHELL_ENDS)):
        yield words[0].text
