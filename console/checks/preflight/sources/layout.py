"""Where a source tree lies inside the image that a Dockerfile builds, and which parts of it are
built there."""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from console.checks.lint import dockerfile, vocabulary
from console.checks.lint.unit import Command, Copy, Unit, Where
from console.checks.preflight.sources import builds
from console.checks.preflight.sources.tree import SourceTree, inside

_PACKAGE = re.compile(r"(?!.*\.(?:deb|rpm)$)[^$`*?^/]+(?:/[\w.-]+)?")
"""A package that is named as it is: no variable, no pattern, no file."""
_OTHER_PACKAGES = frozenset({"conda", "mamba", "micromamba", "dpkg", "nala", "brew", "spack",
                             "vcpkg", "pixi", "gdebi"})  # fmt: skip
"""Programs whose packages have other names, or bring libraries that they do not name."""
_SCRIPTED = frozenset({"make", "just", "nox", "tox", "invoke", "task", "conda", "mamba",
                       "micromamba", "pixi", "hatch", "rye", "pipx"})  # fmt: skip
"""Programs that may install what their line does not say."""


@dataclass(frozen=True, slots=True)
class Place:
    """A folder of the image that has the tree's `part` ("": all of it), and the command that cloned
    it, None if it was copied."""

    folder: str
    part: str
    clone: Command | None = None


@dataclass(frozen=True, slots=True)
class Site:
    """A folder of the tree that is built, by a command of the Dockerfile; None on this machine.
    `given`: what it defines for CMake; `all_given`: whether nothing else defines more;
    `packs`: it only makes a wheel."""

    part: str
    command: Command | None = None
    isolated: bool = False
    given: Mapping[str, str] = field(default_factory=dict)
    all_given: bool = True
    packs: bool = False


@dataclass(slots=True)
class Layout:
    """The stages that a target needs, as one unit; `scope` is the target."""

    unit: Unit
    scope: str
    places: list[Place] = field(default_factory=list)
    sites: list[Site] = field(default_factory=list)
    absent: list[tuple[str, Command]] = field(default_factory=list)
    """What is built and is not in the tree."""
    pieces: list[Site] = field(default_factory=list)
    """What is installed from a folder of which only some parts are known to be of the tree."""
    others: list[Layout] = field(default_factory=list)
    """Of the stages from which something is copied."""

    @property
    def commands(self) -> list[Command]:
        return list(self.unit.within(self.scope))

    def every(self) -> list[Layout]:
        """The layouts of all stages that this one needs, itself the last."""
        layouts = {
            stage_layout.scope: stage_layout
            for other in self.others
            for stage_layout in other.every()
        }
        return [*layouts.values(), self]

    @property
    def installed(self) -> list[Site]:
        """What is built and installed, in whichever stage."""
        files = any(map(builds.installs_files, self.unit.commands))
        every = (site for made in self.every() for site in (*made.sites, *made.pieces))
        return [site for site in every if files or not site.packs]

    @property
    def closed(self) -> bool:
        """Whether everything that gets into the image is a command that is read here."""
        stage = self.unit.stage(self.scope)
        commands = [command for command in self.commands if command.where is Where.BUILD]
        values = self.unit.values
        unknown = any(
            "$" in dockerfile.expanded(word.text, values) or vocabulary.is_archive(word.text)
            for command in commands for word in vocabulary.pip_words(command)
        )  # fmt: skip
        scripts = any(
            builds.fetches(command)
            or command.name.endswith((".sh", ".bash"))
            or command.name in _SCRIPTED
            or any(word.text.endswith(".sh") for word in command.words[:3])
            for command in commands
        )
        names = {other.scope for other in self.others}
        mine = stage is not None and vocabulary.is_plain(stage.base) and not any(
            _from(copy) and _from(copy) not in names
            for copy in self.unit.copies if copy.scope in self.unit.scopes(self.scope)
        )  # fmt: skip
        return mine and not unknown and not scripts and all(other.closed for other in self.others)

    @property
    def sure(self) -> bool:
        """Whether every package of the image is named: a plain base, no script of its own."""
        stage = self.unit.stage(self.scope)
        if stage is None or not vocabulary.is_plain(stage.base):
            return False
        commands = [command for command in self.commands if command.where is Where.BUILD]
        named = all(_PACKAGE.fullmatch(w.text) for c in commands for w in vocabulary.packages(c))
        return named and not any(map(_brings_more, commands)) and not self._from_others()

    def _from_others(self) -> bool:
        scopes = self.unit.scopes(self.scope)
        return any(
            copy.scope in scopes and word.startswith("--from")
            for copy in self.unit.copies for word in copy.words
        )  # fmt: skip

    def settings(self, command: Command | None, name: str) -> str | None:
        """The value of a variable where a command runs; None if nothing sets it."""
        if command is None:
            return None
        setting_values = [setting.value for setting in self.unit.settings(command, name)]
        values = self.unit.values
        own = [variable.value for variable in command.env if variable.name == name]
        chosen = (own or setting_values)[-1:]
        return dockerfile.expanded(chosen[0], values) if chosen else None

    def modules(self) -> list[str]:
        """Modules that the image's command, or a check of its health, imports."""
        return [
            name
            for command in self.commands
            if command.where is not Where.BUILD
            for name in _of(command)
        ]

    def in_path(self) -> list[str]:
        """Parts of the tree that Python finds without an installation: where the image starts."""
        folders = {
            _short(command.folder) for command in self.commands if command.where is Where.START
        }  # fmt: skip
        folders |= {
            _short(part) for variable in self.unit.variables if variable.name == "PYTHONPATH"
            for part in variable.value.split(":") if part.startswith("/")
        }  # fmt: skip
        for place in self.places:
            if (above := posixpath.dirname(place.folder)).endswith(
                ("/site-packages", "/dist-packages")
            ):
                folders.add(above)
        parts = (self.part_of(folder) for folder in sorted(folders))
        around = (self.around(folder) for folder in sorted(folders))
        return [part for part in (*parts, *around) if part is not None]

    def around(self, folder: str) -> str | None:
        """The part of the tree of which a folder of the image has a piece at the same path."""
        for place in self.places:
            rest = place.folder.removeprefix(f"{folder.rstrip('/')}/")
            if rest != place.folder and f"/{place.part}".endswith(f"/{rest}"):
                return place.part[: -len(rest)].rstrip("/")
        return None

    def files(self, command: Command) -> Iterator[str]:
        """The files of the tree that a command gives to pip as lists of requirements."""
        values = self.unit.values
        for name in vocabulary.pip_files(builds.read(command, values)):
            if path := self.part_of(_short(posixpath.join(command.folder, name))):
                yield path

    def part_of(self, folder: str) -> str | None:
        """The part of the tree that a folder of the image is; None if it is none."""
        for place in sorted(self.places, key=lambda candidate: -len(candidate.folder)):
            if folder == place.folder or folder.startswith(f"{place.folder.rstrip('/')}/"):
                rest = folder[len(place.folder) :].strip("/")
                return inside(posixpath.join(place.part, rest))
        return None


def _of(command: Command) -> Iterator[str]:
    if name := vocabulary.module(command):
        yield name
    code = vocabulary.python_code(command)
    for node in ast.walk(code[0]) if code else ():
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def _brings_more(command: Command) -> bool:
    """Whether a command may install packages that it does not name."""
    texts = {word.text for word in command.args}
    return (
        command.name.endswith((".sh", ".bash"))
        or "xargs" in command.wrappers
        or (command.name in _OTHER_PACKAGES and bool(texts & {"install", "create", "env", "update",
                                                              "-i", "add"}))
        or (command.name in ("apt-get", "apt", "aptitude") and "build-dep" in texts)
    )  # fmt: skip


def _short(folder: str) -> str:
    """A folder in its shortest form: POSIX keeps two slashes at the beginning as they are."""
    return posixpath.normpath("/" + folder.strip().lstrip("/"))


def of_target(unit: Unit, target: str) -> tuple[Unit, str]:
    """The unit without the stages that the target does not need, and the target's name."""
    names = [stage.name for stage in unit.stages]
    scope = next((name for name in names if name.lower() == target.lower()), "") if target else ""
    if target.isdecimal() and int(target) < len(names):
        scope = names[int(target)]
    scope = scope or (names[-1] if names and not target else "")
    if not scope:
        return unit, ""
    wanted, todo = set[str](), [scope]
    while todo:
        stage_name = todo.pop()
        if stage_name not in wanted:
            wanted.add(stage_name)
            todo += [*unit.scopes(stage_name), *_copied_from(unit, stage_name, names)]
    lines = _lines(unit, wanted)
    kept = {"", *wanted}
    return replace(
        unit,
        commands=[command for command in unit.commands if command.scope in kept],
        variables=[variable for variable in unit.variables if variable.scope in kept],
        images=[image for image in unit.images if image.scope in kept],
        healths=[health_check for health_check in unit.healths if health_check.scope in kept],
        stages=[stage for stage in unit.stages if stage.name in wanted],
        copies=[_by_name(copy, names) for copy in unit.copies if copy.scope in kept],
        mounts=[_by_name(mount, names) for mount in unit.mounts if mount.scope in kept],
        comments=[comment for comment in unit.comments if lines(comment.place.line)],
        packages={},
    ), scope


def _by_name(copy: Copy, names: Sequence[str]) -> Copy:
    """The copy with the name of its stage instead of its number."""
    number = _from(copy)
    if not number.isdecimal() or int(number) >= len(names):
        return copy
    words = (w for w in copy.words if not w.startswith("--from="))
    return replace(copy, words=(f"--from={names[int(number)]}", *words))


def _from(copy: Copy) -> str:
    """The stage or image of which something is copied, "" for the context."""
    sources = (w.removeprefix("--from=") for w in copy.words if w.startswith("--from="))
    return next(sources, "")


def _copied_from(unit: Unit, scope: str, names: Sequence[str]) -> Iterator[str]:
    for copy in (*unit.copies, *unit.mounts):
        name = _from(_by_name(copy, names))
        if copy.scope == scope and name in names:
            yield name


def _lines(unit: Unit, wanted: set[str]) -> Callable[[int], bool]:
    """Whether a line of the file belongs to the wanted stages, or stands before all of them."""
    starts = [(stage.place.line, stage.name) for stage in unit.stages]

    def within(line: int) -> bool:
        owner = next((name for at, name in reversed(starts) if at <= line), None)
        return owner is None or owner in wanted

    return within


def layout(unit: Unit, scope: str, context: SourceTree | None, source: SourceTree | None) -> Layout:
    """Find where the tree lies and what is built of it. `source`: what the Dockerfile clones, as
    it lies here; without it the build's context is the tree."""
    tree = source or context
    if tree is None:
        return Layout(unit, scope)
    copied = source is None or (context is not None and source.root == context.root)
    made: dict[str, Layout] = {}
    names = [stage.name for stage in unit.stages]
    for name in names[: names.index(scope) + 1] if scope in names else [scope]:
        every = (
            other
            for base_scope in unit.scopes(name)
            for other in _copied_from(unit, base_scope, names)
        )
        others = [made[stage_name] for stage_name in dict.fromkeys(every) if stage_name in made]
        made[name] = Layout(unit, name, others=others)
        _find(made[name], tree, copied=copied, cloned=source is not None)
    return made[scope]


def _find(made: Layout, tree: SourceTree, *, copied: bool, cloned: bool) -> None:
    """Where the tree lies in one stage, and what is built there."""
    values = made.unit.values
    made.places += _copies(made, tree, values, copied)
    if cloned:
        made.places += _clones(made.commands, tree, values)
    for command in made.commands:
        read = builds.read(command, values)
        for build in builds.builds(read) if command.where is Where.BUILD else ():
            part = made.part_of(_short(build.folder))
            piece = made.around(_short(build.folder)) if part is None else None
            if piece is not None:
                made.pieces.append(Site(piece, command, packs=build.packs))
            if part is not None and part not in tree.folders:
                made.absent.append((part, command))
            elif part is not None:
                given, whole = builds.defined(read, partial(made.settings, command))
                given = builds.of_project(tree, part) | given
                made.sites.append(Site(part, command, build.isolated, given, whole, build.packs))


def _copies(
    made: Layout, tree: SourceTree, values: Mapping[str, str], copied: bool
) -> Iterator[Place]:
    """What is copied or mounted; `copied`: whether the context is the tree."""
    unit, scopes = made.unit, made.unit.scopes(made.scope)
    for copy in (*unit.copies, *unit.mounts):
        if copy.scope not in scopes:
            continue
        words = [dockerfile.expanded(w, dict(values)) for w in copy.words if not w.startswith("--")]
        into = _short(posixpath.join(copy.folder or "/", *words[-1:]))
        other = next((o for o in made.others if o.scope == _from(copy)), None)
        for word in words[:-1]:
            part = inside(word.lstrip("/"))
            if other is not None:
                yield from _again(other, _short(word), into)
            elif copied and not _from(copy) and part is not None and part in tree.folders:
                yield Place(into, part)


def _again(other: Layout, folder: str, into: str) -> Iterator[Place]:
    """The places of another stage that a copy of one of its folders brings."""
    part = other.part_of(folder)
    if part is not None:
        yield Place(
            into,
            part,
            next((source_place.clone for source_place in other.places if source_place.clone), None),
        )
        return
    for place in other.places:
        if place.folder.startswith(f"{folder.rstrip('/')}/"):
            yield replace(place, folder=_short(f"{into}/{place.folder[len(folder) :]}"))


def _clones(
    commands: Sequence[Command], tree: SourceTree, values: Mapping[str, str]
) -> list[Place]:
    clones = [
        (place, name) for command in commands for place, name in [_clone(command, values)] if place
    ]  # fmt: skip
    mine = [place for place, name in clones if name.lower() == tree.root.name.lower()]
    return mine or ([place for place, _ in clones] if len(clones) == 1 else [])


def _clone(command: Command, values: Mapping[str, str]) -> tuple[Place | None, str]:
    """Where `git clone` puts a repository, and the repository's name."""
    if command.name != "git" or command.where is not Where.BUILD:
        return None, ""
    plain = [word.text for word in vocabulary.plain(
        command.args, ("-C", "-c", "-b", "--branch", "--depth", "-j", "--jobs", "-o", "--origin",
                       "--reference", "--filter", "--shallow-since", "--config"),
    )]  # fmt: skip
    if plain[:1] != ["clone"] or len(plain) < 2:
        return None, ""
    url = dockerfile.expanded(plain[1], dict(values))
    name = url.rstrip("/").rsplit("/", 1)[-1].removesuffix(".git")
    into = dockerfile.expanded(plain[2], dict(values)) if len(plain) > 2 else name
    return Place(_short(posixpath.join(command.folder or "/", into)), "", command), name
