"""Strict YAML 1.2 from a file the operator wrote: plain data plus the place of every value.

No aliases, anchors or tags, no duplicate keys, bounded size, depth and node count: an alias bomb, a
100 MB file or 5,000 brackets cost a message, not a machine.
"""

from __future__ import annotations

import math
import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from console.common.errors import InvalidFile, Problem
from console.common.text import decode, one_line
from console.config.mistakes import mistake

MAX_BYTES = 256 * 1024
MAX_DEPTH = 20
MAX_NODES = 10_000
MAX_PROBLEMS = 100

Loc = tuple[str | int, ...]

_INT = re.compile(r"[-+]?[0-9]+")
_OCTAL_HEX = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")


@dataclass
class Document:
    """A parsed file. `places` and `keys` map a path of keys and indexes to the (line, column)
    of the value and of its key, both from 1."""

    name: str
    data: Any = None
    places: dict[Loc, tuple[int, int]] = field(default_factory=dict)
    keys: dict[Loc, tuple[int, int]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    """What is wrong with it: the file is refused, and one pass reports everything."""

    def place(self, loc: Loc) -> tuple[int, int]:
        """The nearest known place of a path: its own, else its parent's."""
        while loc:
            if loc in self.places:
                return self.places[loc]
            loc = loc[:-1]
        return self.places.get((), (1, 1))

    def problem(
        self, loc: Loc, what: str, expected: str = "", hint: str = "", *, key: bool = False
    ) -> Problem:
        """A finding at a value, or at its key (`key=True`)."""
        line, column = self.keys.get(loc, self.place(loc)) if key else self.place(loc)
        return Problem(self.name, line, column, what, expected, hint)

    def add(self, *problems: Problem) -> None:
        """Keep findings, each once."""
        self.problems += [
            problem for problem in dict.fromkeys(problems) if problem not in self.problems
        ]

    def refuse(
        self, loc: Loc, what: str, expected: str = "", hint: str = "", *, key: bool = False
    ) -> None:
        """Keep a finding at a value, or at its key."""
        self.add(self.problem(loc, what, expected, hint, key=key))


def read_text(path: Path, title: str) -> str:
    """The text of a regular UTF-8 file of at most MAX_BYTES.

    Raises InvalidFile: missing, a directory, a FIFO or device, too large, not UTF-8. Never blocks.
    """

    def refuse(what: str, expected: str = "", hint: str = "") -> InvalidFile:
        return InvalidFile(title, [Problem(str(path), 0, 0, what, expected, hint)])

    try:
        # O_NONBLOCK: opening a FIFO nobody writes to must not hang the console
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        words = error.strerror if isinstance(error, OSError) else str(error)
        raise refuse(f"cannot be read: {words}", hint="check the path") from error
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            kind = "a directory" if stat.S_ISDIR(info.st_mode) else "not a regular file"
            raise refuse(kind, expected="a YAML file")
        if info.st_size > MAX_BYTES:
            raise refuse(f"{info.st_size} bytes", expected=f"at most {MAX_BYTES} bytes")
        data = os.read(fd, MAX_BYTES + 1)
    finally:
        os.close(fd)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidFile(
            title,
            [Problem(str(path), line, 1, "not UTF-8", "UTF-8 text", "save the file as UTF-8")],
        ) from error


def parse(text: str, name: str, title: str) -> Document:
    """Text → Document; raises InvalidFile where reading on makes no sense."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    document = Document(name)
    builder = _Builder(document)
    fatal = True
    try:
        fatal = not all(builder.feed(e) for e in YAML(typ="safe", pure=True).parse(text))
    except MarkedYAMLError as error:
        syntax_error = mistake(text, error, builder.last)
        what, hint = f"not YAML: {one_line(syntax_error.what)}", one_line(syntax_error.hint)
        document.add(Problem(name, syntax_error.line, syntax_error.column, what, hint=hint))
    except (YAMLError, ValueError, OverflowError) as error:
        document.add(Problem(name, 1, 1, f"not YAML: {one_line(decode(str(error).encode()))}"))
    if fatal:
        raise InvalidFile(title, sorted(document.problems))
    return document


def scalar(text: str) -> Any:
    """A plain scalar by the YAML 1.2 core schema: `no` and `22:30` are strings."""
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if text in ("true", "True", "TRUE"):
        return True
    if text in ("false", "False", "FALSE"):
        return False
    if _INT.fullmatch(text) and len(text) < 20:
        return int(text)
    if _OCTAL_HEX.fullmatch(text) and len(text) < 20:
        return int(text, 0)
    if _FLOAT.fullmatch(text) and len(text) < 40:
        number = float(text)
        return number if math.isfinite(number) else text
    return text


class _Frame:
    """A mapping or sequence that is being filled."""

    __slots__ = ("key", "loc", "value")

    def __init__(self, value: dict[str, Any] | list[Any], loc: Loc) -> None:
        self.value = value
        self.loc = loc
        self.key: str | None = None


class _Builder:
    """Turns the parser's events into data without recursion, recording places and problems."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.stack: list[_Frame] = []
        self.nodes = 0
        self.documents = 0
        self.last: Any = None

    def feed(self, event: Any) -> bool:
        """Take one event; False when reading on makes no sense."""
        kind, self.last = type(event).__name__, event
        line, column = event.start_mark.line + 1, event.start_mark.column + 1
        if kind == "DocumentStartEvent":
            self.documents += 1
            if self.documents > 1:
                return self._fatal(line, column, "a second document", "one document a file")
        if len(self.document.problems) >= MAX_PROBLEMS:
            return self._fatal(line, column, "too many problems to read on", "a playbook or site")
        if kind == "AliasEvent":
            return self._fatal(line, column, "an alias", "no aliases: write the value out")
        if getattr(event, "anchor", None):
            return self._fatal(line, column, "an anchor", "no anchors: write the value out")
        if kind in ("ScalarEvent", "MappingStartEvent", "SequenceStartEvent"):
            return self._node(kind, event, line, column)
        if kind in ("MappingEndEvent", "SequenceEndEvent"):
            self.stack.pop()
        return True

    def _node(self, kind: str, event: Any, line: int, column: int) -> bool:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            return self._fatal(line, column, "too many values", f"at most {MAX_NODES}")
        if getattr(event, "tag", None):
            return self._fatal(line, column, f"a tag ({one_line(str(event.tag), 40)})", "no tags")
        if kind == "ScalarEvent":
            return self._scalar(event, line, column)
        top = self.stack[-1] if self.stack else None
        if top is not None and isinstance(top.value, dict) and top.key is None:
            return self._fatal(line, column, "a list or mapping as a key", "a plain word as a key")
        value: dict[str, Any] | list[Any] = {} if kind == "MappingStartEvent" else []
        loc = self._place(value, line, column)
        self.stack.append(_Frame(value, loc))
        if len(self.stack) > MAX_DEPTH:
            return self._fatal(line, column, "nested too deep", f"at most {MAX_DEPTH} levels")
        return True

    def _scalar(self, event: Any, line: int, column: int) -> bool:
        if any("\ud800" <= c <= "\udfff" for c in event.value):
            return self._fatal(line, column, "half a surrogate pair", "the character itself")
        top = self.stack[-1] if self.stack else None
        if top is not None and isinstance(top.value, dict) and top.key is None:
            self._key(top, str(event.value), line, column)
            return True
        plain = event.style is None
        if plain and not event.value and top is not None and isinstance(top.value, dict):
            # the parser's place of nothing is that of whatever comes next
            line, column = self.document.keys[(*top.loc, str(top.key))]
        value = scalar(event.value) if plain else event.value
        if plain and re.fullmatch(r"[-+]?0[0-9]+", event.value):
            expected = "a number without it, or a quoted string"
            self._say(line, column, f"{event.value} has a leading zero", expected)
        self._place(value, line, column)
        return True

    def _key(self, top: _Frame, key: str, line: int, column: int) -> None:
        assert isinstance(top.value, dict)
        if key in top.value:
            hint = f"first at line {self.document.keys[(*top.loc, key)][0]}"
            self._say(line, column, f"duplicate key '{one_line(key, 60)}'", hint=hint)
        top.key = key
        top.value[key] = None
        self.document.keys[(*top.loc, key)] = (line, column)

    def _place(self, value: Any, line: int, column: int) -> Loc:
        """Attach a value to its parent and record its place."""
        loc: Loc = ()
        top = self.stack[-1] if self.stack else None
        if top is None:
            self.document.data = value
        elif isinstance(top.value, list):
            loc = (*top.loc, len(top.value))
            top.value.append(value)
        else:
            assert top.key is not None
            loc = (*top.loc, top.key)
            top.value[top.key] = value
            top.key = None
        self.document.places[loc] = (line, column)
        return loc

    def _say(self, line: int, column: int, what: str, expected: str = "", hint: str = "") -> None:
        self.document.add(Problem(self.document.name, line, column, what, expected, hint))

    def _fatal(self, line: int, column: int, what: str, expected: str) -> bool:
        self._say(line, column, what, expected)
        return False
