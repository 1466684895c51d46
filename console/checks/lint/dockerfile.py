"""A Dockerfile → its instructions with the place of every character, and then a unit.

Continued lines, comments between them, here-documents, the escape directive and the JSON form are
read as BuildKit reads them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]
from typing import ClassVar

from console.checks.lint import shell
from console.checks.lint.commands import Scene, add_argv, add_script, joined
from console.checks.lint.unit import (
    Comment,
    Copy,
    Health,
    Hit,
    Image,
    Place,
    Segment,
    Snippet,
    Source,
    Stage,
    Unit,
    Variable,
    Where,
    Word,
    whole,
)

_KEYWORD = re.compile(r"\s*(\S*)(?:\s+|$)")
_FLAG = re.compile(r"\s*(--[a-z-]+(?:=\S*)?)(?:\s+|$)")
_HEREDOC = re.compile(r"<<(-|[ \t]+)?(['\"]?)([A-Za-z_][A-Za-z0-9_]*)\2")
"""Only some builders accept a space, and `$((1 << N))` is none, so its end must exist."""
_DIRECTIVE = re.compile(r"#\s*([a-z]+)\s*=\s*(\S+)\s*$")
_REFERENCE = re.compile(r"\$(?:\{(\w+)(?::?-([^}]*))?\}|(\w+))")
LONGEST = 4096
"""Most characters of an expanded value; a longer one stays as written."""
_PASSED = frozenset({"EXPOSE", "LABEL", "MAINTAINER", "ONBUILD", "STOPSIGNAL", "USER", "VOLUME"})
"""Instructions that no rule needs."""
_HALF_LIST = re.compile(r"\[(?!\[|\s+\S)|\[\s+([\"'])[^\"']*\1\s*,")
"""The beginning of a list, not of the shell's `[ … ]`."""
_TEMPLATE = ("{", "<%", "@@")
"""How a line of a template language begins."""


@dataclass(slots=True)
class Instruction:
    """One instruction. `args` is the text after the keyword and its flags, on one line."""

    keyword: str
    place: Place
    args: Snippet
    flags: tuple[str, ...]
    heredocs: list[Snippet] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    last_line: int = 0
    closed: bool = True
    """Whether every here-document ends."""


def instructions(text: str) -> tuple[list[Instruction], list[Comment], str]:
    """Return (instructions, comments, escape character)."""
    lines = text.split("\n")
    instruction_list: list[Instruction] = []
    comments: list[Comment] = []
    escape, at = _escape(lines), 0
    source = whole(text)
    starts = [segment[0] for segment in source.segments]
    while at < len(lines):
        stripped = lines[at].strip()
        if stripped.startswith("#"):
            comments.append(_comment(lines[at], at))
        if not stripped or stripped.startswith("#"):
            at += 1
            continue
        flat, last = _joined(lines, at, escape, comments)
        made = _instruction(flat)
        if made.keyword in ("RUN", "COPY", "ADD"):
            for how, name in _heredocs(made.args.text):
                begin, dash = last + 1, how == "-"
                if how.isspace() and name not in (line.rstrip("\r") for line in lines[begin:]):
                    continue
                made.names.append(name)
                while last + 1 < len(lines) and not _ends(lines[last + 1], name, dash):
                    last += 1
                made.closed = made.closed and last + 1 < len(lines)
                if begin < len(lines):
                    end = starts[last] + len(lines[last]) + 1 if last >= begin else starts[begin]
                    made.heredocs.append(source.part(starts[begin], min(end, len(text))))
                last += 1
        made.last_line = min(last + 1, len(lines))
        instruction_list.append(made)
        at = last + 1
    return instruction_list, comments, escape


def _escape(lines: list[str]) -> str:
    for line in lines:
        directive = _DIRECTIVE.match(line.strip())
        if directive is None:
            return "\\"
        if directive[1] == "escape":
            return directive[2][:1]
    return "\\"


def _comment(line: str, at: int) -> Comment:
    column = len(line) - len(line.lstrip()) + 1
    return Comment(line.strip(), Place(at + 1, column), own=True)


def _joined(lines: list[str], at: int, escape: str, comments: list[Comment]) -> tuple[Snippet, int]:
    """The logical line that begins at `at`, and the index of its last physical line."""
    parts: list[str] = []
    segments: list[Segment] = []
    length, first = 0, at
    while at < len(lines):
        line = lines[at].rstrip("\r")
        skipped = at > first and (not line.strip() or line.lstrip().startswith("#"))
        if skipped and line.strip():
            comments.append(_comment(line, at))
        goes_on = line.rstrip(" \t").endswith(escape)
        if not skipped:
            kept = line.rstrip(" \t")[:-1] if goes_on else line
            segments.append((length, at + 1, 1))
            parts.append(kept)
            length += len(kept)
        if not goes_on and not skipped:
            break
        at += 1
    return Snippet("".join(parts), segments), min(at, len(lines) - 1)


def _instruction(flat: Snippet) -> Instruction:
    keyword = _KEYWORD.match(flat.text)
    assert keyword is not None  # a line with something in it
    place, at = flat.at(keyword.start(1)), keyword.end()
    flags: list[str] = []
    name = keyword[1].upper()
    while name != "CMD" and (flag := _FLAG.match(flat.text, at)):
        flags.append(flag[1])
        at = flag.end()
    return Instruction(name, place, flat.part(at, len(flat.text)), tuple(flags))


def _heredocs(text: str) -> Iterator[tuple[str, str]]:
    """(dash, space or nothing; name) of every `<<NAME` outside quotes."""
    quote, at = "", 0
    while at < len(text):
        char = text[at]
        if quote:
            at += 2 if char == "\\" and quote == '"' else 1
            quote = "" if char == quote else quote
            continue
        if char in "'\"":
            quote = char
        elif char == "\\":
            at += 1
        elif text.startswith("<<<", at):
            at += 2
        elif (match := _HEREDOC.match(text, at)) is not None and _begins_word(text, at):
            yield match[1] or "", match[3]
            at = match.end()
            continue
        at += 1


def _begins_word(text: str, at: int) -> bool:
    """Whether `<<` begins a word, unlike in `$((1<<N))`: only a descriptor may precede it."""
    before = text[max(0, at - 3) : at].rstrip("0123456789")
    return not before or before[-1] in " \t"


def _ends(line: str, name: str, dash: bool) -> bool:
    return (line.lstrip("\t") if dash else line).rstrip("\r") == name


def json_words(snippet: Snippet) -> tuple[Word, ...] | None:
    """The elements of `["a", "b"]`; None if it is not a list of strings."""
    text, words = snippet.text.rstrip(), list[Word]()
    at = len(text) - len(text.lstrip()) + 1
    if not text.lstrip().startswith("[") or not text.endswith("]"):
        return None
    while at < len(text) - 1:
        if text[at] in " \t,":
            at += 1
            continue
        if text[at] != '"':
            return None
        try:
            value, end = scanstring(text, at + 1)
        except JSONDecodeError:
            return None
        plain = "\\" not in text[at + 1 : end - 1]
        inner = snippet.part(at + 1, end - 1)
        place = snippet.at(at)
        inner = inner if plain else Snippet(value, [(0, place.line, place.column)], False)
        words.append(Word(value, place, inner))
        at = end
    return tuple(words)


def expanded(text: str, values: dict[str, str]) -> str:
    """Replace `$NAME`, `${NAME}` and `${NAME:-default}` if the value is known."""

    def value(match: re.Match[str]) -> str:
        known = values.get(match[1] or match[3])
        return known if known is not None else match[2] if match[2] is not None else match[0]

    expansion = _REFERENCE.sub(value, text)
    return expansion if len(expansion) <= LONGEST else text


def unit_of(source: Source, given: Mapping[str, str] | None = None) -> Unit:
    """The unit of a Dockerfile; `given`: build arguments, which win over the defaults of ARG."""
    return _Build(source, given or {}).unit


def _broken(instruction_list: list[Instruction]) -> Iterator[Hit]:
    """Errors that every builder refuses: the first of a kind, as others may follow from it."""
    known = _Build.TAKEN.keys() | _PASSED
    first = next((candidate for candidate in instruction_list if candidate.keyword != "ARG"), None)
    if first is None:
        yield Hit(Place(1, 1), "no FROM: this is no Dockerfile")
    for instruction in instruction_list:
        if not instruction.keyword or instruction.keyword.startswith(_TEMPLATE):
            continue
        if instruction.keyword not in known:
            yield Hit(
                instruction.place, f"{instruction.keyword} is not an instruction of a Dockerfile"
            )
            return
        if wrong := _wrong(instruction):
            yield Hit(instruction.place, f"{instruction.keyword} {wrong}")
    if first is not None and first.keyword in known - {"FROM"}:
        yield Hit(first.place, f"{first.keyword} before any FROM")


def _wrong(instruction: Instruction) -> str:
    """Why an instruction is invalid, "" if it is valid."""
    text = instruction.args.text.strip()
    if not text and instruction.keyword not in ("SHELL", "CMD", "ENTRYPOINT"):
        return "without anything after it"
    if instruction.keyword == "FROM" and len(text.split()) not in (1, 3):
        return "wants IMAGE, or IMAGE AS NAME, and nothing else"
    if not instruction.closed:
        return "with a here-document that does not end"
    if instruction.keyword == "HEALTHCHECK":
        text = re.sub(r"CMD\s+", "", text, count=1, flags=re.IGNORECASE)
    listed = instruction.keyword in ("RUN", "CMD", "ENTRYPOINT", "HEALTHCHECK")
    if listed and _HALF_LIST.match(text) and json_words(whole(text)) is None:
        return "with a list that is not JSON: double quotes, commas and both brackets"
    if instruction.keyword == "SHELL" and json_words(whole(text)) is None:
        return 'wants a list, like ["/bin/bash", "-c"]'
    return ""


class _Build:
    """Walks the instructions and tracks stage, directory and known values."""

    def __init__(self, source: Source, given: Mapping[str, str]) -> None:
        self.unit = Unit(source)
        self.given = given
        self.values: dict[str, str] = {}
        self.scope = self.folder = ""
        self.base = ""
        self.folders: dict[str, str] = {}
        self.shell = True
        instruction_list, comments, escape = instructions(source.text)
        self.unit.comments += comments
        self.shell_at_all = escape == "\\"
        self.unit.broken += _broken(instruction_list)
        for instruction in instruction_list:
            self.unit.spans.append((instruction.place.line, instruction.last_line))
            if instruction.keyword in self.TAKEN:
                self.TAKEN[instruction.keyword](self, instruction)

    def _scene(self, where: Where, instruction: Instruction | None = None) -> Scene:
        device = instruction is not None and any(
            flag.startswith("--device") for flag in instruction.flags
        )
        return Scene(where, self.scope, self.base, self.folder, wrappers=("device",) * device)

    def _from(self, instruction: Instruction) -> None:
        parts = instruction.args.text.split()
        if not parts:
            return
        ref = expanded(parts[0], self.values)
        name = parts[2] if len(parts) > 2 and parts[1].lower() == "as" else ""
        below = self.unit.stage(ref)
        self.scope = name or f"stage {len(self.unit.stages)}"
        self.base = below.base if below else ref
        self.folder, self.shell = self.folders.get(below.name, "") if below else "", True
        roots = (*below.roots, below.name) if below else ()
        place = instruction.args.at(instruction.args.text.find(parts[0]))
        self.unit.stages.append(Stage(self.scope, self.base, place, roots))
        self.folders[self.scope] = self.folder
        if below is None:
            self.unit.images.append(Image(ref, place, self.scope, by="FROM"))

    def _set(self, instruction: Instruction) -> None:
        text = instruction.args.text
        first = text.split(None, 1)
        if first and "=" not in first[0] and len(first) == 2 and instruction.keyword == "ENV":
            place = instruction.args.at(text.find(first[1], len(first[0])))
            variables = [Variable(first[0], first[1].strip(), place)]
        else:
            variables = shell.parse(instruction.args).variables
        if instruction.keyword == "ARG":
            for at, name in ((m.start(), m[0]) for m in re.finditer(r"\S+", text)):
                if name in self.given:  # without a default the shell's grammar sees no variable
                    variables.append(Variable(name, "", instruction.args.at(at)))
        for variable in variables:
            value = expanded(variable.value, self.values)
            if instruction.keyword == "ARG":
                value = self.given.get(variable.name, value)
            self.values[variable.name] = value
            self.unit.variables.append(Variable(variable.name, value, variable.place, self.scope))

    def _copy(self, instruction: Instruction) -> None:
        listed = json_words(instruction.args)
        words = [word.text for word in listed] if listed else instruction.args.text.split()
        words = [expanded(word, self.values) for word in words]
        self.unit.copies.append(Copy((*instruction.flags, *words), self.scope, self.folder))

    def _workdir(self, instruction: Instruction) -> None:
        self.folder = joined(self.folder, expanded(instruction.args.text.strip(), self.values))
        self.folders[self.scope] = self.folder

    def _shell(self, instruction: Instruction) -> None:
        words = json_words(instruction.args) or ()
        self.shell = bool(words) and words[0].text.rsplit("/", 1)[-1] in (
            "sh", "bash", "ash", "dash", "zsh",
        )  # fmt: skip

    def _run(self, instruction: Instruction) -> None:
        scene = self._scene(Where.BUILD, instruction)
        mounts = (Copy.mounted(flag, self.scope, self.folder) for flag in instruction.flags)
        self.unit.mounts += [mount for mount in mounts if mount is not None]
        if (words := json_words(instruction.args)) is not None:
            add_argv(self.unit, words, scene)
            return
        if not (self.shell and self.shell_at_all):
            return
        if not instruction.heredocs:
            add_script(self.unit, instruction.args, scene)  # a `cd` ends with its RUN
        elif _HEREDOC.fullmatch(instruction.args.text.strip()):
            self._body(instruction.heredocs[0], scene)
        else:
            self._with_stdin(instruction, scene)

    def _body(self, body: Snippet, scene: Scene) -> None:
        first = body.text.split("\n", 1)[0]
        if not first.startswith("#!") or re.search(r"\b(ba|da|z)?sh\b", first):
            add_script(self.unit, body, scene)

    def _with_stdin(self, instruction: Instruction, scene: Scene) -> None:
        """`RUN python3 <<EOF`: command and here-documents as the shell gets them."""
        text, segments = instruction.args.text + "\n", list(instruction.args.segments)
        for body, name in zip(instruction.heredocs, instruction.names, strict=False):
            segments += [(at + len(text), line, column) for at, line, column in body.segments]
            text += body.text + ("" if body.text.endswith("\n") else "\n") + name + "\n"
        add_script(self.unit, Snippet(text, segments), scene)

    def _start(self, instruction: Instruction) -> None:
        scene = self._scene(Where.START)
        words = json_words(instruction.args)
        if words is not None:
            add_argv(self.unit, words, scene)
            return
        if self.unit.stages:
            stage = self.unit.stages[-1]
            shell_form = (*stage.shell_form, instruction.place)
            self.unit.stages[-1] = replace(stage, shell_form=shell_form)
        if self.shell and self.shell_at_all:
            add_script(self.unit, instruction.args, scene)

    def _healthcheck(self, instruction: Instruction) -> None:
        match = re.match(r"CMD\s+", instruction.args.text, re.IGNORECASE)
        if match is None:
            return
        args = instruction.args.part(match.end(), len(instruction.args.text))
        words = json_words(args)
        before = len(self.unit.commands)
        scene = self._scene(Where.HEALTH)
        if words is not None:
            add_argv(self.unit, words, scene)
        else:
            add_script(self.unit, args, scene)
        programs = tuple(command.words[0] for command in self.unit.commands[before:])
        self.unit.healths.append(
            Health(instruction.place, self.base, words is None, programs, self.scope)
        )

    TAKEN: ClassVar[dict[str, Callable[[_Build, Instruction], None]]] = {
        "FROM": _from, "ARG": _set, "ENV": _set, "COPY": _copy, "ADD": _copy, "RUN": _run,
        "WORKDIR": _workdir, "SHELL": _shell, "CMD": _start, "ENTRYPOINT": _start,
        "HEALTHCHECK": _healthcheck,
    }  # fmt: skip
