"""What the sources import on every way, against what their build and the image bring."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping

from console.checks.preflight import Finding, Level
from console.checks.preflight.image import CHAIN, NOT_INSTALLED, SCHED_EXT
from console.checks.preflight.sources import modules, requirements
from console.checks.preflight.sources.layout import Site
from console.checks.preflight.sources.needs import Needs
from console.checks.preflight.sources.packages import BRINGS, PROVIDES
from console.checks.preflight.sources.tree import SourceTree

_ONLY_HERE = frozenset({"sched_ext"})
"""Modules that no package brings: only the sources that import them build them."""
_MADE = ("version", "_pb2", "_pb2_grpc")
"""Ends of modules that a build writes itself."""


def findings(needs: Needs, entries: list[str], declared: Mapping[str, str]) -> Iterator[Finding]:
    """Follow the imports from the entries; without any, from every package, which is only said.

    `declared`: projects that the sources require, by name, with their places."""
    sites = needs.layout.installed if needs.layout else [Site("")]
    parts = [site.part for site in sites]
    parts += needs.layout.in_path() if needs.layout else []
    sources = modules.Sources(needs.tree, parts)
    yield from _absent(needs, entries, sources)
    mine = [
        entry for entry in entries if sources.has(entry) or sources.has(entry.partition(".")[0])
    ]
    level = Level.FAIL if mine else Level.WARN
    walk = sources.walk(mine or [] if entries else sources.packages())
    unknown: dict[str, modules.Import] = {}
    titles: set[str] = set()
    inner = (inner_import for inner_import in walk.inner if inner_import.module in needs.built)
    for statement in (
        *walk.out,
        *(inner_import for inner_import in inner if not sources.names(inner_import.module)),
    ):
        top, last = statement.module.partition(".")[0], statement.module.rpartition(".")[2]
        if modules.in_library(top) or (statement.maybe and last not in {*needs.built, *_ONLY_HERE}):
            continue
        own = last in needs.built or last in _ONLY_HERE
        finding = _module(needs, statement, last if own else top, level)
        if finding is not None:
            if finding.title not in titles:
                titles.add(finding.title)
                yield finding
        elif sources.has(top) and not statement.maybe and not last.endswith(_MADE):
            unknown.setdefault(statement.module, statement)
        elif top not in needs.built and not sources.has(top) and not _brought(needs,
            top, declared
        ):  # fmt: skip
            unknown.setdefault(top, statement)
    if walk.unread:
        words = f"the imports of {len(walk.unread)} files could not be read"
        place = needs.tree.place(walk.unread[0])
        yield Finding(Level.WARN, "imports", words, "look at it by hand", CHAIN, place=place)
    if unknown and needs.layout is not None:
        first = next(iter(unknown.values()))
        words = f"imported on every way, and named by no requirement: {', '.join(unknown)}"
        hint = "install what brings them, if nothing else that is installed does"
        place = needs.tree.place(first.path, first.line)
        yield Finding(Level.WARN, "imports", words, hint, CHAIN, place=place)


def _module(needs: Needs, statement: modules.Import, name: str, level: Level) -> Finding | None:
    """A module that the sources build themselves, or nobody brings."""
    path, gate = needs.built.get(name, ("", None))
    command = next(
        (s.command for s in (needs.layout.installed if needs.layout else ())
         if s.part == "" or path.startswith(f"{s.part}/")), None,
    )  # fmt: skip
    if name in needs.built and (gate is None or needs.is_on(gate, command)):
        return None
    if name not in needs.built and name not in _ONLY_HERE:
        return None
    chain = " → ".join([*dict.fromkeys(statement.chain[-4:]), name])
    words = f"imported unconditionally ({chain}), and "
    if gate is not None:
        value = gate.value or "1"
        words += f"built only with {gate.name}={value} (setup.py, line {gate.line})"
        hint = f"ARG or ENV {gate.name}={value} before the build"
    else:
        words += "nothing here builds it: no package brings it"
        hint = "build it from its C++ sources, or serve with what does without it"
    lessons = SCHED_EXT if name in _ONLY_HERE else CHAIN
    place = needs.tree.place(statement.path, statement.line)
    return Finding(level, f"import {name}", words, hint, lessons, place=place)


def _absent(needs: Needs, entries: list[str], sources: modules.Sources) -> Iterator[Finding]:
    """An entry whose package is in the tree and which nothing installs."""
    if needs.layout is None:
        return
    everywhere = modules.Sources(needs.tree, _homes(needs.tree))
    for top in dict.fromkeys(entry.partition(".")[0] for entry in entries):
        home = everywhere.file(top)
        if sources.has(top) or not home or requirements.name(top) in needs.pips:
            continue
        words = f"{top} is started or asked for, and nothing installs it from this tree"
        hint = f"RUN pip install of the directory that has {needs.tree.place(home)}"
        where = needs.layout.unit.source.path.name
        level = Level.FAIL if needs.layout.closed else Level.WARN
        yield Finding(level, f"import {top}", words, hint, NOT_INSTALLED, place=where)


def _brought(needs: Needs, top: str, declared: Mapping[str, str]) -> bool:
    names = {requirements.name(top), PROVIDES.get(top.lower(), requirements.name(top))}
    there = needs.pips | set(declared)
    there |= {more for project in there for more in BRINGS.get(project, "").split()}
    if {name.lower() for name in names} & there:
        return True
    return any(f"python3-{name}" in needs.there for name in names)


def _homes(tree: SourceTree) -> list[str]:
    """The directories with a setup.py or pyproject.toml, and the tree itself."""
    ends = ("setup.py", "pyproject.toml")
    folders = {posixpath.dirname(path) for path in tree.files if posixpath.basename(path) in ends}
    return ["", *sorted(folders - {""})[:200]]
