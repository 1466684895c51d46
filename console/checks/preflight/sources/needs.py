"""What the sources need, against what the image or this machine has: packages, programs, paths,
submodules."""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator

from console.checks.lint import vocabulary
from console.checks.lint.unit import Command
from console.checks.preflight import Finding, Level
from console.checks.preflight.image import SCHED_EXT
from console.checks.preflight.sources import builds, cmake, modules, requirements
from console.checks.preflight.sources.layout import Layout, Site
from console.checks.preflight.sources.packages import (
    ALWAYS,
    BRINGS,
    DEPENDS,
    FROM_PIP,
    LIBRARIES,
    key,
)
from console.checks.preflight.sources.tree import SourceTree
from console.common.text import decode, one_line
from console.host import children

MISSING_PACKAGE = ("F-015",)
CMAKE = ("F-016",)
MOVED = ("F-017",)
SHALLOW = ("F-013",)
DPKG_S = 20.0
_APART = ("third_party/", "tests/", "test/", "examples/", "build/", "extern/", "external/", "docs/")
KT = "kvcache-ai/ktransformers"
"""Where the operator met it."""
MAKES = ("cp", "mv", "ln", "mkdir", "git", "tar", "unzip")
"""Programs whose last word names what they make."""


def submodules(tree: SourceTree, layout: Layout | None) -> Iterator[Finding]:
    """Whether the declared submodules are where the build looks for them."""
    declared = tree.submodules()
    if not declared:
        return
    names = ", ".join(declaration.path for declaration in declared[:4]) + (
        " …" if len(declared) > 4 else ""
    )
    commands = layout.commands if layout else []
    places = layout.places if layout else []
    clones = [
        tree_place.clone
        for tree_place in places
        if tree_place.clone is not None and tree_place.clone in commands
    ]
    for clone in clones:
        name = layout.unit.source.path.name if layout else ""
        place = f"{name}:{clone.place.line}"
        what = f"it has {len(declared)} submodules ({names})"
        level, url = Level.FAIL, " ".join(word.text.lower() for word in clone.args)
        if clone.has("--shallow-submodules"):
            words = f"{what}, pinned to commits that a shallow clone lacks"
            if "github.com/" in url and KT not in url:  # it serves any commit
                words, level = f"{what}; only a host that serves any commit has them", Level.WARN
        elif not clone.has("--recursive", "--recurse-submodules") and not _updated(layout, clone):
            words = f"{what}, and nothing fetches them"
        else:
            continue
        hint = "git clone --recursive, without --depth"
        yield Finding(level, "submodules", words, hint, SHALLOW, place=place)
    used = layout is None or any(place.clone is None for place in layout.places)
    for submodule in declared if used else ():
        if submodule.empty:
            words = f"{submodule.path} is declared and nothing is there"
            hint = f"git -C {tree.root} submodule update --init --recursive"
            where = tree.place(".gitmodules", submodule.line)
            yield Finding(Level.FAIL, "submodules", words, hint, SHALLOW, place=where)


def _updated(layout: Layout | None, clone: Command) -> bool:
    commands = layout.commands if layout else []
    return any(
        command.name == "git" and any(word.text == "submodule" for word in command.args)
        for command in commands[commands.index(clone) :]
    )


class Needs:
    """One tree, and where it is built; `layout` None: on this machine."""

    def __init__(self, tree: SourceTree, layout: Layout | None) -> None:
        self.tree = tree
        self.layout = layout
        there = vocabulary.installed(layout.unit, layout.scope) if layout is not None else _debs()
        self.there = there.union(*(DEPENDS[package] for package in there if package in DEPENDS))
        self.pips = {requirements.name(word.text) for command in (layout.commands if layout else ())
                     for word in vocabulary.pip_words(command)}  # fmt: skip
        self.pips |= {name for project in self.pips for name in BRINGS.get(project, "").split()}
        self.listed = any(
            vocabulary.pip_files(command) for command in (layout.commands if layout else ())
        )
        """Whether pip reads what it installs from a file."""
        self.sure = layout.sure if layout is not None else False
        self.built: dict[str, tuple[str, modules.Switch | None]] = {}
        """Python modules that CMake files build → the file, and what switches that on."""

    def absent(self) -> Iterator[Finding]:
        """What the Dockerfile builds of the tree, and the tree does not have."""
        if self.layout is None:
            return
        for part, command in self.layout.absent:
            if self._in_submodule(part) or self._brought(posixpath.basename(part)):
                continue
            words = f"`{one_line(command.line, 60)}` builds {part}, which is not in the tree"
            hint = "another release has another layout: name its tag in git clone --branch"
            place = f"{self.layout.unit.source.path.name}:{command.place.line}"
            yield Finding(Level.FAIL, "source tree", words, hint, CMAKE, place=place)

    def _brought(self, name: str) -> bool:
        """Whether a command of the Dockerfile itself makes a file or folder of that name."""
        assert self.layout is not None
        return any(
            (
                command.name in MAKES
                and command.args
                and posixpath.basename(command.args[-1].text) == name
            )
            or (command.name == "cmake" and name in builds.made_by(command))
            for command in self.layout.commands
        )

    def of_site(self, site: Site) -> Iterator[Finding]:
        """What one part of the tree needs to be built."""
        setup = self.tree.text(posixpath.join(site.part, "setup.py").lstrip("/"))
        gates = modules.switches(setup)
        listed = list(self._lists(site.part, bool(setup)))
        yield from self._program(site, setup, listed)
        findings: dict[str, Finding] = {}
        for path in listed:
            gate = _gate(gates, posixpath.dirname(path)[len(site.part) :].split("/"))
            cmake_needs = cmake.read(self.tree, path, site.given, site.all_given)
            for module in cmake_needs.modules:
                self.built.setdefault(module, (path, gate))
            if gate is not None and not self.is_on(gate, site.command):
                continue
            for finding in sorted(
                self._judge_cmake(cmake_needs), key=lambda fault: fault.level is not Level.FAIL
            ):
                package = finding.title.startswith("package")
                findings.setdefault(
                    finding.hint or finding.title if package else finding.words, finding
                )
        yield from findings.values()
        for name in modules.extensions(setup):
            path = posixpath.join(site.part, "setup.py")
            self.built.setdefault(name, (path, _gate(gates, name.split("."))))

    def _lists(self, part: str, python: bool) -> Iterator[str]:
        """The CMake files where a build begins: the part's own, else the first below it."""
        own = posixpath.join(part, "CMakeLists.txt").lstrip("/")
        if own in self.tree.files:
            yield own
        if not python:
            return
        tops: list[str] = []
        for path in self.tree.below(part):
            inner = path.removeprefix(f"{part}/") if part else path
            if not path.endswith("/CMakeLists.txt") or path == own or inner.startswith(_APART):
                continue
            folder = posixpath.dirname(path)
            if not any(folder.startswith(f"{top}/") for top in tops):
                tops.append(folder)
                yield path
            if len(tops) >= 30:
                return

    def _program(self, site: Site, setup: str | None, listed: list[str]) -> Iterator[Finding]:
        """cmake itself, where the sources call it."""
        project = self.tree.text(posixpath.join(site.part, "pyproject.toml").lstrip("/")) or ""
        calls = setup is not None and "cmake" in setup.lower() and bool(listed)
        if not (calls or (setup is None and listed)):
            return
        alone = site.isolated or self.layout is None
        brings = alone and re.search(r"""["']cmake\b|["']scikit_build_core\.""", project)
        if brings or self._has("cmake", ("cmake",), ("cmake",)):
            return
        where = self._where(site, posixpath.join(site.part, "setup.py") if setup else listed[0])
        sure = self.layout is None or (self.sure and not self._named("cmake"))
        level = Level.FAIL if sure else Level.WARN
        words = f"{site.part or 'the tree'} is built with cmake, and nothing installs it"
        yield Finding(level, "cmake", words, self._hint("cmake"), CMAKE, place=where)

    def _judge_cmake(self, cmake_needs: cmake.CmakeNeeds) -> Iterator[Finding]:
        for package in cmake_needs.wanted:
            finding = self._package(package, cmake_needs.own)
            if finding is not None:
                yield finding
        for lost in cmake_needs.missing:
            beside = self.layout is None and os.path.exists(self.tree.root / lost.target)
            if beside or self._put(lost.target):
                continue
            words = f"{lost.target} is included and is not in the tree"
            top = lost.target.rsplit("/", 1)[0]
            there = next((p for p in sorted(self.tree.folders)
                          if p and lost.target.endswith(f"/{p}")), "")  # fmt: skip
            hint = (
                f"cp -r {there.split('/')[0]} to where CMake looks for it, before the build"
                if there else f"is {top} a submodule, or was it moved?"
            )  # fmt: skip
            place = self.tree.place(lost.path, lost.line)
            yield Finding(Level.FAIL, "path of CMake", words, hint, MOVED, place=place)

    def _in_submodule(self, target: str) -> bool:
        subs = [submodule.path for submodule in self.tree.submodules()]
        return any(target == path or target.startswith(f"{path}/") for path in subs)

    def _put(self, target: str) -> bool:
        """Whether a command puts it there, or a submodule, which the clone brings, is there."""
        if self._in_submodule(target):
            return True
        parts = target.split("/")
        return any(
            command.name in ("cp", "ln", "mv", "rsync")
            and any(set(word.text.strip("/").split("/")) & set(parts) for word in command.args)
            for command in (self.layout.commands if self.layout else ())
        )

    def _package(self, package: cmake.Wanted, own: set[str]) -> Finding | None:
        names = [key(name) for name in package.names]
        if any(name in own or name in ALWAYS for name in names):
            return None
        name = next((n for n in names if n in LIBRARIES or n in FROM_PIP), None)
        place, shown = self.tree.place(package.path, package.line), package.names[0]
        title = f"package {one_line(shown, 40)}"
        if name is None:
            if not package.sure:
                return None
            words = "CMake requires it; which package brings it is not known here"
            return Finding(Level.OK, title, words, place=place)
        debs = LIBRARIES.get(name, ())
        if self._has(name, debs, FROM_PIP.get(name, ())):
            return None
        lessons = SCHED_EXT[:2] if "balance_serve" in package.path else MISSING_PACKAGE
        here = self.layout is None
        level = Level.WARN
        if package.sure:
            level = Level.UNKNOWN if here else Level.WARN
            if self.sure and not self._named(name):
                level = Level.FAIL
        brings = (debs or FROM_PIP.get(name, ()))[0]
        by_pip = not debs
        words = "CMake requires it" + ("" if package.sure else " under some condition")
        words += f", and {'this machine does not have' if here else 'nothing installs'} {brings}"
        hint = self._hint(brings)
        if by_pip:
            hint = f"{'' if here else 'RUN '}pip install {brings}, before the build"
        return Finding(level, title, words, hint, lessons, place=place)

    def _named(self, name: str) -> bool:
        """Whether a command of the image speaks of it: it may be built there from its sources."""
        if self.layout is None:
            return False
        texts = [word.text for command in self.layout.commands if command.name != name
                 if not vocabulary.packages(command) for word in command.args]  # fmt: skip
        texts += [word for copy in self.layout.unit.copies for word in copy.words]
        return any(name in text.lower() for text in texts)

    def _hint(self, package: str) -> str:
        if self.layout is None:
            return f"sudo apt-get install {package}"
        return f"RUN apt-get update && apt-get install -y --no-install-recommends {package}"

    def _where(self, site: Site, path: str) -> str:
        if self.layout is None or site.command is None:
            return self.tree.place(path.lstrip("/"))
        return f"{self.layout.unit.source.path.name}:{site.command.place.line}"

    def _has(self, name: str, debs: Iterable[str], pips: Iterable[str]) -> bool:
        if set(debs) & self.there or set(pips) & self.pips:
            return True
        if set(pips) and (self.listed or (name == "torch" and self._has_torch())):
            return True
        if self.layout is None and name in ("pkgconfig", "cmake", "git"):
            return shutil.which("pkg-config" if name == "pkgconfig" else name) is not None
        return False

    def _has_torch(self) -> bool:
        stage = self.layout.unit.stage(self.layout.scope) if self.layout is not None else None
        return stage is not None and vocabulary.has_torch(stage.base)

    def is_on(self, gate: modules.Switch, command: Command | None) -> bool:
        """Whether a build switch is set so that its part is built."""
        value = self.layout.settings(command, gate.name) if self.layout else None
        value = gate.default if value is None else value
        return value == gate.value if gate.value else vocabulary.truthy(value)


def _gate(gates: list[modules.Switch], words: list[str]) -> modules.Switch | None:
    """The innermost switch of a part: the one with the fewest words of its own."""
    named = {word for word in words if len(word) > 3}
    mine = [gate for gate in gates if gate.words & named]
    return min(mine, key=lambda gate: len(gate.words), default=None)


def _debs() -> frozenset[str]:
    """The packages that are installed on this machine; empty where dpkg is not its tool."""
    argv = ["dpkg-query", "-W", "-f", "${Package}\\n"]
    try:
        _, out, _ = children.run(argv, DPKG_S, env=children.kept())
    except (OSError, subprocess.TimeoutExpired):
        return frozenset()
    return frozenset(decode(out).split())
