"""Reads shell text into simple commands, assignments and comments, by tree-sitter's bash grammar.

If the grammar does not understand a text, bash itself decides (`complaint`).
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING

from console.checks.lint.unit import Comment, Place, Segment, Snippet, Variable, Word
from console.host import children

if TYPE_CHECKING:
    from tree_sitter import Node, Parser


MAX_NODES = 200_000
"""Nodes of one text that are read; the rest is ignored."""

MAX_COMMANDS = 20_000

_INPUT = re.compile(r"\$\{\{[^{}\n]*\}\}")
"""A playbook's input, which is filled in before any shell reads it."""
_CONDITIONS = ("if_statement", "elif_clause", "while_statement")
_LOOPS = ("while_statement", "until_statement", "for_statement", "c_style_for_statement")
_BRANCHES = ("case_item", "elif_clause", "else_clause", "function_definition")
_QUIET = ("heredoc_redirect", "file_redirect", "herestring_redirect")

LIMIT_S = 5.0


@dataclass(frozen=True, slots=True)
class Simple:
    """A command as written: its words, variables set before it, what it reads."""

    words: tuple[Word, ...]
    env: tuple[Variable, ...]
    looped: bool
    tolerated: bool
    stdin: Snippet | None
    branched: bool = False
    """Whether it runs only on one of several ways: an arm of `if` or `case`, a function, `||`."""


@dataclass(frozen=True, slots=True)
class _Way:
    """How the walk came to a node."""

    looped: bool = False
    tolerated: bool = False
    branched: bool = False


@dataclass(slots=True)
class Script:
    """Everything in a text, in order. `cut`: the text was too long to be read to its end."""

    commands: list[Simple] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    comments: list[Comment] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)
    cut: bool = False
    wrong: Place | None = None
    """Where the grammar first fails to understand it; it does not know all of bash."""


@cache
def _parser() -> Parser:
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def parse(snippet: Snippet) -> Script:
    """Parse a text; never fails: what the grammar does not understand is skipped."""
    masked = _INPUT.sub(lambda match: "x" * len(match[0]), snippet.text)
    data = masked.encode("utf-8", "replace")
    root = _parser().parse(data).root_node
    reader = _Reader(snippet, data)
    read = reader.read(root)
    read.wrong = reader.wrong(root) if root.has_error else None
    return read


class _Reader:
    def __init__(self, snippet: Snippet, data: bytes) -> None:
        self.snippet = snippet
        self.data = data
        self.plain = snippet.text.isascii()
        self.script = Script()
        self.stdin: dict[int, Snippet] = {}

    def read(self, root: Node) -> Script:
        """Walk the tree without recursion, in the order of the text."""
        stack: list[tuple[Node, str, _Way]] = [(root, "", _Way())]
        seen = 0
        while stack:
            node, above, way = stack.pop()
            seen += 1
            if seen > MAX_NODES or len(self.script.commands) >= MAX_COMMANDS:
                self.script.cut = True
                break
            self._take(node, above, way)
            way = replace(
                way, looped=way.looped or node.type in _LOOPS,
                branched=way.branched or node.type in _BRANCHES,
            )  # fmt: skip
            if node.type not in ("raw_string", "word", "string_content", "heredoc_body"):
                below = [(child, node.type, inner) for child, inner in _children_of(node, way)]
                stack += reversed(below)
        return self.script

    def _take(self, node: Node, above: str, way: _Way) -> None:
        if node.type == "command":
            self._command(node, way)
        elif node.type == "comment":
            self._comment(node)
        elif node.type == "redirected_statement":
            self._redirected(node)
        elif node.type == "variable_assignment" and above != "command":
            unsure = way.branched or way.looped
            self.script.variables += [
                replace(variable, branched=unsure) for variable in self._variable(node)
            ]

    def _command(self, node: Node, way: _Way) -> None:
        env: list[Variable] = []
        words: list[Word] = []
        for child in node.children:
            if child.type == "variable_assignment":
                env += self._variable(child)
            elif child.type == "command_name":
                words += [self.word(name_node) for name_node in child.children[:1]]
            elif child.type not in _QUIET and child.is_named:
                words.append(self.word(child))
        if words:
            stdin = self.stdin.get(node.id)
            self.script.commands.append(
                Simple(tuple(words), tuple(env), way.looped, way.tolerated, stdin, way.branched)
            )
            last = self.snippet.at(max(self._at(node.end_byte) - 1, 0)).line
            self.script.spans.append((self._place(node).line, last))

    def _redirected(self, node: Node) -> None:
        """Assign what `<<EOF` brings to the command before it and those it is piped to."""
        for redirect in node.children_by_field_name("redirect"):
            body = next((c for c in redirect.children if c.type == "heredoc_body"), None)
            if body is None:
                continue
            text = self.snippet.part(self._at(body.start_byte), self._at(body.end_byte))
            readers = [node.child_by_field_name("body")]
            for child in redirect.children:
                readers += [child, *child.children]
            for reader in readers:
                if reader is not None and reader.type == "command":
                    self.stdin[reader.id] = text

    def _variable(self, node: Node) -> Iterator[Variable]:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is None or value is None or name.type != "variable_name":
            return
        nodes = value.children if value.type == "array" else [value]
        for value_node in nodes:
            if value_node.is_named:
                word = self.word(value_node)
                yield Variable(self._text(name), word.text, word.place)

    def _comment(self, node: Node) -> None:
        text = self._text(node)
        start = self._at(node.start_byte)
        before = self.snippet.text[self.snippet.text.rfind("\n", 0, start) + 1 : start]
        self.script.comments.append(Comment(text, self.snippet.at(start), not before.strip()))

    def wrong(self, root: Node) -> Place:
        """The first node that the grammar made up or could not place."""
        stack, node = [root], root
        while stack:
            node = stack.pop()
            if node.is_error or node.is_missing:
                break
            stack += reversed(
                [child for child in node.children if child.has_error or child.is_missing]
            )
        last = max(len(self.snippet.text.rstrip()) - 1, 0)
        return self.snippet.at(min(self._at(node.start_byte), last))

    # words

    def word(self, node: Node) -> Word:
        """An argv element without its quotes; expansions stay as written."""
        pieces = list(self._pieces(node))
        text, segments = "", list[Segment]()
        for start, end in pieces:
            part = self.snippet.part(start, end)
            segments += [(at + len(text), line, column) for at, line, column in part.segments]
            text += part.text
        place = self._place(node)
        inner = Snippet(text, segments or [(0, place.line, place.column)], self.snippet.exact)
        return Word(text, place, inner)

    def _pieces(self, node: Node) -> Iterator[tuple[int, int]]:
        """The (start, end) of what is left of a node without its quotes."""
        if node.type == "concatenation":
            for child in node.children:
                yield from self._pieces(child)
            return
        start, end = self._at(node.start_byte), self._at(node.end_byte)
        if node.type == "raw_string":
            yield start + 1, end - 1
        elif node.type == "ansi_c_string":
            yield start + 2, end - 1
        elif node.type == "string":
            yield from self._unescaped(start + 1, end - 1, '"\\$`\n')
        elif node.type == "word":
            yield from self._unescaped(start, end, "")
        else:
            yield start, end

    def _unescaped(self, start: int, end: int, only: str) -> Iterator[tuple[int, int]]:
        """Stretches between backslashes; `only` are the escapable characters ("": all)."""
        text, at = self.snippet.text, start
        while (slash := text.find("\\", at, end)) >= 0:
            after = text[slash + 1 : slash + 2]
            if slash + 1 < end and (not only or after in only):
                if slash > start:
                    yield start, slash
                start = slash + 2 if after == "\n" else slash + 1
            at = slash + 2
        if start < end:
            yield start, end

    # places

    def _at(self, byte: int) -> int:
        return byte if self.plain else len(self.data[:byte].decode("utf-8", "replace"))

    def _place(self, node: Node) -> Place:
        return self.snippet.at(self._at(node.start_byte))

    def _text(self, node: Node) -> str:
        return (node.text or b"").decode("utf-8", "replace")


def _children_of(parent: Node, way: _Way) -> Iterator[tuple[Node, _Way]]:
    """Children, whether the script handles their failure (`|| …`, a condition), and whether they
    are passed by."""
    children = parent.children
    if parent.type == "list":
        yield from _of_list(children, way)
    elif parent.type in _CONDITIONS:
        inside = True
        for child in children:
            inside = inside and child.type not in ("then", "do_group")
            arm = not inside and parent.type != "while_statement"
            yield child, replace(way, tolerated=inside, branched=way.branched or arm)
    else:
        through = ("pipeline", "redirected_statement", "negated_command")
        kept = replace(way, tolerated=way.tolerated and parent.type in through)
        yield from ((child, kept) for child in children)


def _of_list(children: list[Node], way: _Way) -> Iterator[tuple[Node, _Way]]:
    """`a && b || c`: only the first one runs for sure; with `&&` alone all do, if the first is no
    test, or nothing after it is built."""
    handled = any(part.type == "||" for part in children)
    arms, after = handled, handled
    asks = bool(children) and _is_test(children[0])
    for at, child in enumerate(children):
        after = after and child.type != "||"
        passed = at > 0 and (arms or asks)
        nested = at == 0 and handled and child.type == "list"  # the `b` of `a && b || c`
        yield (
            child,
            replace(
                way, tolerated=way.tolerated or after, branched=way.branched or passed or nested
            ),
        )


def _is_test(node: Node) -> bool:
    if node.type in ("list", "negated_command") and node.children:
        return _is_test(node.children[0] if node.type == "list" else node.children[-1])
    return node.type == "test_command" or (node.text or b"").startswith((b"[ ", b"test ", b"[["))


def complaint(text: str) -> str:
    """Why bash cannot read a text, "" if it can or there is no bash. Nothing is run."""
    bash = shutil.which("bash")
    if bash is None:
        return ""
    argv = [bash, "--norc", "-n", "-c", text]
    try:
        code, _, error = children.run(argv, LIMIT_S, env={"LC_ALL": "C"})
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return ""
    words = error.decode("utf-8", "replace").split("\n", 1)[0]
    return re.sub(r"^.*?: line \d+: ", "", words) if code else ""
