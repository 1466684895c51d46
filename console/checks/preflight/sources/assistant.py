"""The build assistant: every fault that can be known before a build of hours, listed at once.

It reads the Dockerfile with the linter's rules, the source tree, and the disk of the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from console.checks.lint import dockerfile, files, run
from console.checks.lint.rule import Facts
from console.checks.lint.rule import rules as lint_rules
from console.checks.lint.unit import Command, Kind, Severity, Source, Unit
from console.checks.preflight import Finding, Level
from console.checks.preflight.sources import builds, disk, imports, requirements, torch
from console.checks.preflight.sources.layout import Layout, Site, layout, of_target
from console.checks.preflight.sources.needs import Needs, submodules
from console.checks.preflight.sources.tree import SourceTree
from console.common.text import one_line
from console.config.lessons.use import bearing

if TYPE_CHECKING:
    import docker

_LEVELS = {Severity.ERROR: Level.FAIL, Severity.WARNING: Level.WARN, Severity.INFO: Level.OK}
SIGNS = ("setup.py", "pyproject.toml", "CMakeLists.txt")
"""What the directory of a project has."""
MAX_FOLDERS = 500
MAX_FINDINGS = 200
_REMOTE = ("://", "git@")


@dataclass(frozen=True, slots=True)
class BuildAsk:
    """What is to be built. `context` and `dockerfile` as `docker build` takes them; without a
    Dockerfile `source` is built on this machine. `source`: the tree that the Dockerfile clones, as
    it lies here. `modules`: what the image is asked to import later. `judged`: ids of lint's rules
    that somebody has overridden, with a reason."""

    context: str = ""
    dockerfile: Path | None = None
    target: str = ""
    args: Mapping[str, str] = field(default_factory=dict)
    source: Path | None = None
    modules: tuple[str, ...] = ()
    judged: frozenset[str] = frozenset()


def of_directory(
    tree: Path, dockerfile: Path | None, target: str, args: Mapping[str, str],
    modules: tuple[str, ...],
) -> BuildAsk:  # fmt: skip
    """A directory that is the context of a Dockerfile, and the sources too if it looks like them;
    without a Dockerfile it is built on this machine."""
    try:
        folders = [entry for entry in islice(tree.iterdir(), MAX_FOLDERS) if entry.is_dir()]
    except OSError:
        folders = []  # what cannot be listed is a finding later
    sources = dockerfile is None or any(
        (place / name).is_file() for place in (tree, *folders) for name in SIGNS
    )
    context = str(tree) if dockerfile is not None else ""
    return BuildAsk(context, dockerfile, target, args, tree if sources else None, modules)


def findings(
    ask: BuildAsk, facts: Facts, connect: Callable[[], docker.DockerClient] | None = None
) -> list[Finding]:
    """Every fault, the worst first; what is no fault comes last. `connect`: the engine that would
    keep the layers; without it no disk is asked."""
    all_findings = sorted(
        _findings(ask, facts, connect), key=lambda finding: -_GRAVE[finding.level]
    )
    if (more := len(all_findings) - MAX_FINDINGS) > 0:
        all_findings[MAX_FINDINGS:] = [
            Finding(all_findings[MAX_FINDINGS].level, "more", f"and {more} more")
        ]
    return all_findings


_GRAVE = {Level.FAIL: 3, Level.UNKNOWN: 2, Level.WARN: 1, Level.OK: 0}


def _findings(
    ask: BuildAsk, facts: Facts, connect: Callable[[], docker.DockerClient] | None
) -> Iterator[Finding]:
    context = source = None
    if ask.context and any(sign in ask.context for sign in _REMOTE):
        words = f"{one_line(ask.context, 100)} is not on this machine, so it was not read"
        yield Finding(Level.OK, "build context", words)
    elif ask.context:
        context = _tree(Path(ask.context))
    if ask.source is not None:
        source = context if context and _same(context, ask.source) else _tree(ask.source)
    for where in dict.fromkeys((ask.context, str(ask.source or ""))):
        if where and not any(s in where for s in _REMOTE) and not Path(where).is_dir():
            words = f"{one_line(where, 200)} is no directory"
            yield Finding(Level.FAIL, "build context", words, "correct the path, or clone it first")
    if ask.dockerfile is None:
        tree = source or context
        if tree is not None:
            yield from _on_host(tree, ask)
            yield from tree.findings()
        return
    try:
        unit = _unit(ask.dockerfile, ask.args)
    except files.Unreadable as error:
        hint = "correct dockerfile: or the context"
        yield Finding(Level.FAIL, "Dockerfile", str(error), hint, place=str(ask.dockerfile))
        return
    yield from _in_image(unit, ask, facts, context, source, connect)


def _once(faults: Iterable[Finding]) -> Iterator[Finding]:
    """Each fault once, as grave as it is said, also where two commands build the same sources."""
    keys = set[tuple[str, str]]()
    for fault in sorted(faults, key=lambda finding: -_GRAVE[finding.level]):
        key = fault.title, fault.place if fault.title.startswith("package ") else fault.words
        if key not in keys:
            keys.add(key)
            yield fault


def _same(tree: SourceTree, path: Path) -> bool:
    return tree.root == Path(path).resolve()


def _tree(path: Path) -> SourceTree | None:
    return SourceTree.at(path) if path.is_dir() else None


def _unit(path: Path, args: Mapping[str, str]) -> Unit:
    return dockerfile.unit_of(Source(path, files.read(path), Kind.DOCKERFILE), args)


def _in_image(
    unit: Unit, ask: BuildAsk, facts: Facts, context: SourceTree | None,
    source: SourceTree | None, connect: Callable[[], docker.DockerClient] | None,
) -> Iterator[Finding]:  # fmt: skip
    name, whole = unit.source.path.name, unit
    unit, scope = of_target(unit, ask.target)
    if not scope:
        stages = ", ".join(stage.name for stage in unit.stages) or "none"
        words = f"it has no stage {one_line(ask.target, 60)}: there are {stages}"
        yield Finding(Level.FAIL, "target", words, "correct target:", place=name)
        return
    yield from _linted(unit, facts, ask.judged)
    made = layout(unit, scope, context, source)
    tree = source or context
    if tree is not None:
        if source is not None and not made.places:
            yield from _left_out(whole, source, context, closed=made.closed)
        yield from _once(_of_tree(tree, made, ask))
    yield from _once(finding for stage in made.every() for finding in _of_torch(tree, stage, name))
    yield from _known(unit, name)
    for source_tree in {id(t): t for t in (context, source) if t}.values():
        yield from source_tree.findings()
    if connect is not None:
        yield from disk.findings(unit, scope, context, connect)


def _linted(unit: Unit, facts: Facts, judged: Iterable[str]) -> Iterator[Finding]:
    """The linter's findings, without those that a comment or an override explains."""
    for lint_finding in run.of_unit(unit, facts):
        if (
            lint_finding.suppressed
            or lint_finding.rule in judged
            or lint_finding.rule.startswith("suppression")
        ):
            continue
        known = lint_rules().get(lint_finding.rule)
        title = known.title if known is not None else lint_finding.rule
        place = f"{unit.source.path.name}:{lint_finding.line}"
        level = _LEVELS[lint_finding.severity]
        yield Finding(
            level, title, lint_finding.what, lint_finding.fix, lint_finding.lessons, place=place
        )


def _left_out(
    whole: Unit, source: SourceTree, context: SourceTree | None, *, closed: bool
) -> Iterator[Finding]:
    """A tree that no stage of the Dockerfile copies or clones."""
    if any(layout(whole, stage.name, context, source).places for stage in whole.stages):
        return
    words = f"nothing of {source.root.name} gets into the image: neither copied nor cloned"
    hint = "a phase 1 image without its engine? Clone or COPY it, and install it"
    place = whole.source.path.name
    level = Level.FAIL if closed else Level.WARN
    yield Finding(level, "source tree", words, hint, ("F-011",), place=place)


def _of_tree(tree: SourceTree, made: Layout, ask: BuildAsk) -> Iterator[Finding]:
    earlier: list[Needs] = []
    for stage_layout in made.every():
        if stage_layout.places:
            yield from submodules(tree, stage_layout)
        needs = Needs(tree, stage_layout)
        yield from needs.absent()
        for site in stage_layout.sites:
            yield from needs.of_site(site)
        earlier.append(needs)
    for other in earlier[:-1]:
        needs.pips |= other.pips
        needs.built = {**other.built, **needs.built}
    entries = [*dict.fromkeys((*ask.modules, *made.modules()))]
    yield from imports.findings(needs, entries, _declared(tree, made.installed))


def _declared(tree: SourceTree, sites: Iterable[Site]) -> dict[str, str]:
    every = (requirement for site in sites for requirement in requirements.to_run(tree, site.part))
    return {requirements.name(text): place for text, place in every}


def _of_torch(tree: SourceTree | None, made: Layout, name: str) -> Iterator[Finding]:
    """PyTorch in one stage."""

    def listed(command: Command) -> list[str]:
        files = made.files(command) if tree is not None else ()
        return [text for path in files if tree for text, _ in requirements.listed(tree, path)]

    compiled = list(_compiled(tree, made))
    yield from torch.findings(made.unit, made.scope, compiled, name, listed)


def _compiled(tree: SourceTree | None, made: Layout) -> Iterator[torch.Compiled]:
    for site in made.sites if tree is not None else ():
        if site.command is not None and tree is not None:
            yield torch.Compiled(
                site.command,
                requirements.of_torch(requirements.to_run(tree, site.part)),
                requirements.of_torch(requirements.to_build(tree, site.part)),
                site.isolated,
            )


def _known(unit: Unit, name: str) -> Iterator[Finding]:
    """Lessons about what the Dockerfile does; they are read before, and stop nothing."""
    texts = [part.line for part in unit.commands] + [part.ref for part in unit.images]
    for lesson in bearing("build", texts, acts=True):
        words = f"{lesson.title.removeprefix(lesson.lesson).strip()} – {lesson.because}"
        hint = f"omni-console lessons {lesson.lesson} has what happened"
        yield Finding(Level.OK, "lesson", words, hint, (lesson.lesson,), place=name)


def _on_host(tree: SourceTree, ask: BuildAsk) -> Iterator[Finding]:
    """A build of the tree itself, with what this machine has."""
    yield from submodules(tree, None)
    needs = Needs(tree, None)
    yield from needs.of_site(Site("", given=builds.of_project(tree, "")))
    if ask.modules:
        yield from imports.findings(needs, list(ask.modules), _declared(tree, [Site("")]))
