"""The input of rules: a file as commands, variables, images and containers, each with its place.

Dockerfile, compose file, playbook and shell script all become a `Unit`, so a rule is written once.
It reports each fault as a `Finding`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from console.common.text import one_line

if TYPE_CHECKING:
    from console.checks.lint.yaml_tree import Node


Segment = tuple[int, int, int]
"""From this offset of the text on, characters are at (line, column) and to its right."""

WORDS_LIMIT = 400
BLOCKER = "known-blocker"
"""Id of the question that a run asks about lessons its playbook names; no rule on text."""


@dataclass(frozen=True, slots=True)
class Snippet:
    """A text inside a file, and where each of its characters is there. `segments` are in the order
    of their offsets; the first is at 0. `exact` is False if a quoted form hides the places:
    everything is then reported at its beginning."""

    text: str
    segments: Sequence[Segment]
    exact: bool = True

    def at(self, offset: int) -> Place:
        start, line, column = self.segments[bisect_right(self.segments, (offset, 1 << 60, 0)) - 1]
        return Place(line, column + (offset - start if self.exact else 0))

    def part(self, start: int, end: int) -> Snippet:
        """The text from `start` to `end`, as a snippet of its own."""
        first = bisect_right(self.segments, (start, 1 << 60, 0))
        inside = self.segments[first : bisect_left(self.segments, (end, 0, 0))]
        place = self.at(start)
        moved = [(at - start, line, column) for at, line, column in inside]
        return Snippet(self.text[start:end], [(0, place.line, place.column), *moved], self.exact)


def whole(text: str) -> Snippet:
    """A snippet of a whole file."""
    starts = accumulate((len(line) + 1 for line in text.split("\n")[:-1]), initial=0)
    return Snippet(text, [(at, number, 1) for number, at in enumerate(starts, 1)])


def spot(text: str, place: Place) -> Snippet:
    """A text whose single characters cannot be located in the file."""
    return Snippet(text, [(0, place.line, place.column)], exact=False)


class Severity(StrEnum):
    """`error` stops a run, `warning` is shown before it, `info` is good to know."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


RANK = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.INFO: 2}


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands in a file; both from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Hit:
    """What a rule found: `what` about this very place; None leaves severity and fix to the rule."""

    place: Place
    what: str
    severity: Severity | None = None
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """A hit of a rule in a file, every text one clean line. `suppressed` is the reason from a
    comment, "" without one."""

    file: str
    line: int
    column: int
    rule: str
    severity: Severity
    what: str
    fix: str = ""
    lessons: tuple[str, ...] = ()
    suppressed: str = ""
    overdue: tuple[str, ...] = ()
    """Those of the lessons whose day of review is past, with that day."""
    page: str = ""
    """The vendor's page that says it."""

    def __post_init__(self) -> None:
        for name in ("file", "what", "fix", "suppressed"):
            object.__setattr__(self, name, one_line(getattr(self, name), WORDS_LIMIT))

    @property
    def order(self) -> tuple[str, int, int, str, str]:
        return self.file, self.line, self.column, self.rule, self.what

    @property
    def text(self) -> str:
        """`file:line:column: severity: what [rule F-003]`, and what of it is due for a review."""
        cited = " ".join(filter(None, (self.rule, *self.lessons, self.page)))
        text = f"{self.file}:{self.line}:{self.column}: {self.severity}: {self.what} [{cited}]"
        return f"{text}; to be reviewed since {', '.join(self.overdue)}" if self.overdue else text


class Kind(StrEnum):
    DOCKERFILE = "Dockerfile"
    COMPOSE = "compose file"
    PLAYBOOK = "playbook"
    SHELL = "shell script"


@dataclass(frozen=True, slots=True)
class Source:
    path: Path
    text: str
    kind: Kind


class Where(StrEnum):
    HOST = "host"
    BUILD = "image build"
    START = "container"
    HEALTH = "health check"


@dataclass(frozen=True, slots=True)
class Word:
    """One element of an argv, without its quotes; `inner` is its text with places."""

    text: str
    place: Place
    inner: Snippet

    @classmethod
    def made(cls, text: str, place: Place) -> Word:
        """A word whose characters cannot be located in the file."""
        return cls(text, place, spot(text, place))


@dataclass(frozen=True, slots=True)
class Variable:
    """An environment variable, a build argument or a shell variable that is set."""

    name: str
    value: str
    place: Place
    scope: str = ""
    branched: bool = False
    """Whether it is set on one of several ways only: which value it has is then not known."""


def dashed(name: str) -> str:
    """A long option with dashes between its words."""
    return name.replace("_", "-") if name.startswith("--") else name


@dataclass(frozen=True, slots=True)
class Command:
    """A simple command. `words[0]` is the program after sudo, env, timeout and their like, which
    are in `wrappers`. `script` numbers the text it came from: commands of one script share it.
    `scope` names the stage, service or step; `env` is set for this command alone."""

    words: tuple[Word, ...]
    where: Where
    scope: str = ""
    script: int = 0
    image: str = ""
    env: tuple[Variable, ...] = ()
    wrappers: tuple[str, ...] = ()
    looped: bool = False
    tolerated: bool = False
    """Whether its failure ends nothing, because `|| …` follows or it is a condition."""
    stdin: Snippet | None = None
    folder: str = ""
    """Where `cd` and WORKDIR led to before it."""
    branched: bool = False
    """Whether it runs on one of several ways only."""

    @property
    def place(self) -> Place:
        return self.words[0].place

    @property
    def name(self) -> str:
        return self.words[0].text.rsplit("/", 1)[-1]

    @property
    def args(self) -> tuple[Word, ...]:
        """All words after the program; all words if an image's entrypoint is the program."""
        return self.words if self.words[0].text.startswith("-") else self.words[1:]

    @property
    def line(self) -> str:
        return " ".join(word.text for word in self.words)

    def has(self, *options: str) -> bool:
        return any(True for _ in self.options(*options))

    def options(self, *names: str) -> Iterator[tuple[str, Word]]:
        """(value, place) of every `--name value`, `--name=value` or `"--name value"`; the value of
        a flag at the end is "". A name is the same with `_` for `-`, as engines have it."""
        wanted = frozenset(map(dashed, names))
        for at, word in enumerate(self.args):
            name, sign, value = word.text.partition("=")
            if dashed(name) in wanted and sign:
                yield value, word
            elif dashed(word.text) in wanted:
                after = self.args[at + 1] if at + 1 < len(self.args) else None
                yield (after.text if after else "", word)
            elif " " in word.text and dashed(word.text.partition(" ")[0]) in wanted:
                yield word.text.partition(" ")[2].strip(), word


@dataclass(frozen=True, slots=True)
class Image:
    """An image that is used or made here; `made`: it is built under this name."""

    ref: str
    place: Place
    scope: str = ""
    made: bool = False
    by: str = ""


@dataclass(frozen=True, slots=True)
class Container:
    """A container as a compose service, a `docker run` or a playbook's service sets it up. `gpus`
    and `runtime` are the places that set them, or None."""

    name: str
    place: Place
    image: str = ""
    runtime: str = ""
    runtime_place: Place | None = None
    gpus: Place | None = None
    env: tuple[Variable, ...] = ()
    mounts: tuple[Word, ...] = ()
    dockerfile: str = ""
    """Path of the Dockerfile it is built from, relative to the file, else ""."""


@dataclass(frozen=True, slots=True)
class Health:
    """A health check: in a shell (`CMD-SHELL`, a plain string) or as an argv."""

    place: Place
    image: str
    shell: bool
    programs: tuple[Word, ...]
    scope: str = ""
    built: str = ""
    """Dockerfile of the image, if it is built."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of a Dockerfile. `roots` are the stages it is built upon, the nearest last; `base` is
    the image below all of them. `shell_form`: places of CMD and ENTRYPOINT that need a shell."""

    name: str
    base: str
    place: Place
    roots: tuple[str, ...] = ()
    shell_form: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True)
class Copy:
    """The words of a COPY or ADD, its flags first, and the directory in which it stands."""

    words: tuple[str, ...]
    scope: str
    folder: str

    @classmethod
    def mounted(cls, flag: str, scope: str, folder: str) -> Copy | None:
        """What `RUN --mount=type=bind,…` shows to one command, as if it were copied."""
        given = dict(
            option.partition("=")[::2] for option in flag.removeprefix("--mount=").split(",")
        )
        target = given.get("target") or given.get("dst") or given.get("destination")
        if not flag.startswith("--mount=") or given.get("type", "bind") != "bind" or not target:
            return None
        source = given.get("source") or given.get("src") or "."
        stage = (f"--from={given['from']}",) if "from" in given else ()
        return cls((*stage, source, target), scope, folder)


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment with its `#`. `own`: nothing else is on its line."""

    text: str
    place: Place
    own: bool


@dataclass
class Unit:
    """One file, read. `spans` are (first, last) lines that a comment above the first covers."""

    source: Source
    commands: list[Command] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    images: list[Image] = field(default_factory=list)
    containers: list[Container] = field(default_factory=list)
    healths: list[Health] = field(default_factory=list)
    stages: list[Stage] = field(default_factory=list)
    comments: list[Comment] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)
    steps: Sequence[PlaybookStep] = ()
    files: list[str] = field(default_factory=list)
    """Files that a playbook builds from, composes with and runs, relative to it."""
    scripts: int = 0
    cut: bool = False
    """Whether a text in it was too long to be read to its end."""
    broken: list[Hit] = field(default_factory=list)
    """Where a text cannot be understood, and why."""
    refused: list[Hit] = field(default_factory=list)
    """What compose refuses of a compose file for its form."""
    copies: list[Copy] = field(default_factory=list)
    mounts: list[Copy] = field(default_factory=list)
    packages: dict[str, frozenset[str]] = field(default_factory=dict)
    """What the commands of a scope install; cached by console.checks.lint.vocabulary."""

    def finding(
        self, place: Place, rule: str, severity: Severity, what: str, fix: str,
        lessons: tuple[str, ...] = (),
    ) -> Finding:  # fmt: skip
        name = str(self.source.path)
        return Finding(name, place.line, place.column, rule, severity, what, fix, lessons)

    @property
    def values(self) -> dict[str, str]:
        """The last value of each variable, without those whose value depends on a branch."""
        last_values: dict[str, str] = {}
        for variable in self.variables:
            if variable.branched:
                last_values.pop(variable.name, None)
            else:
                last_values[variable.name] = variable.value
        return last_values

    def next_script(self) -> int:
        self.scripts += 1
        return self.scripts

    def stage(self, name: str) -> Stage | None:
        return next((stage for stage in self.stages if stage.name == name), None)

    def scopes(self, scope: str) -> tuple[str, ...]:
        """The stages whose files a stage has, including itself; else the scope alone."""
        stage = self.stage(scope)
        return (*stage.roots, scope) if stage else (scope,)

    def within(self, scope: str) -> Iterator[Command]:
        """Commands that worked on the same file system."""
        scopes = self.scopes(scope)
        return (command for command in self.commands if command.scope in scopes)

    def settings(self, command: Command, name: str) -> Iterator[Variable]:
        """Values of a variable for a command: from its own line, else from the file."""
        scopes = (*self.scopes(command.scope), "")
        yield from (variable for variable in command.env if variable.name == name)
        yield from (
            variable
            for variable in self.variables
            if variable.name == name and variable.scope in scopes
        )


@dataclass(frozen=True, slots=True)
class PlaybookStep:
    """What rules need of a step: its kind, its place, and whether it sets a timeout."""

    id: str
    kind: str
    place: Place
    timed: bool
    data: Node
