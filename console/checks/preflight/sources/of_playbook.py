"""The builds of a playbook, as the build assistant is asked about them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from console.checks.preflight.sources.assistant import BuildAsk
from console.config.playbook.playbook import Playbook, PlaybookModel
from console.config.playbook.steps import Step


def steps_of(model: PlaybookModel) -> Iterator[Step]:
    yield from (step for phase in model.phases for step in phase.steps)
    yield from model.finally_


def ask_of(step: Step, playbook: Playbook, judged: Iterable[str] = ()) -> BuildAsk:
    """What a build step builds, and what later steps want to import of its image."""
    build = step.build
    assert build is not None
    remote = "://" in build.context or build.context.startswith("git@")
    context = build.context if remote else str(_path(playbook, build.context))
    default = None if remote else Path(context) / "Dockerfile"
    wanted = (
        later_step.imports
        for later_step in steps_of(playbook.model)
        if later_step.when and later_step.imports
    )
    return BuildAsk(
        context=context,
        dockerfile=_path(playbook, build.dockerfile) if build.dockerfile else default,
        target=build.target,
        args=dict(build.args),
        source=_path(playbook, build.source) if build.source else None,
        modules=tuple(
            n
            for import_check in wanted
            if import_check.image == build.tag
            for n in import_check.modules
        ),
        judged=frozenset(judged),
    )


def source_ask(playbook: Playbook, source: str) -> BuildAsk:
    """A tree that is built on this machine."""
    return BuildAsk(source=_path(playbook, source))


def asks(playbook: Playbook) -> list[tuple[str, BuildAsk]]:
    """(what, the question) for every build, and for every tree that a host step names."""
    questions = []
    for step in steps_of(playbook.model):
        if step.build is not None and step.when:
            questions.append((f"step {step.id}: {step.build.tag}", ask_of(step, playbook)))
        elif step.host is not None and step.host.source and step.when:
            questions.append((f"step {step.id}", source_ask(playbook, step.host.source)))
    return questions


def _path(playbook: Playbook, text: str) -> Path:
    return playbook.base / Path(text).expanduser()
