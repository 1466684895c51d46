"""YAML as a tree in which every value knows its place, anchors and merges resolved.

Compose files use features that playbooks may not; libyaml's events are fast enough for thousands of
files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from console.checks.lint.unit import Comment, Place, Segment, Snippet, Word, spot
from console.config.mistakes import mistake

MAX_NODES = 50_000
DEEPEST = 100


class NotYaml(Exception):
    """The text is not usable YAML; `place` is where reading stopped."""

    def __init__(self, words: str, place: Place) -> None:
        super().__init__(words)
        self.place = place


@dataclass(slots=True)
class Node:
    """A value: text, a list or a mapping. `keys` are the places of a mapping's keys."""

    place: Place
    text: str | None = None
    items: list[Node] | None = None
    fields: dict[str, Node] | None = None
    keys: dict[str, Place] = field(default_factory=dict)
    inner: Snippet | None = None
    last_line: int = 0
    plain: bool = False
    """Whether a text stands without quotes, so that it may be a number, a truth or nothing."""

    def get(self, *path: str) -> Node | None:
        node: Node | None = self
        for key in path:
            node = (node.fields or {}).get(key) if node is not None else None
        return node

    def text_at(self, *path: str) -> str:
        """The text under nested keys, "" if there is none."""
        node = self.get(*path)
        return node.text or "" if node is not None else ""

    def walk(self) -> Iterator[Node]:
        """This node and all below it, each once: anchors may name one in several places."""
        todo, seen = [self], set[int]()
        while todo:
            node = todo.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            yield node
            todo += [*node.each(), *(value for _, value in node.pairs())]

    def each(self) -> Iterator[Node]:
        return iter(self.items or ())

    def pairs(self) -> Iterator[tuple[str, Node]]:
        return iter((self.fields or {}).items())

    @property
    def word(self) -> Word:
        text = self.text or ""
        return Word(text, self.place, self.inner or spot(text, self.place))

    def words(self) -> tuple[Word, ...]:
        return tuple(child.word for child in self.each() if child.text is not None)


@dataclass(slots=True)
class Tree:
    root: Node
    comments: list[Comment]
    spans: list[tuple[int, int]]
    doubled: list[tuple[str, Place, Place]] = field(default_factory=list)
    """Keys that a mapping has twice: where the second one stands, and the one before it. The last
    one counts here, as most readers have it."""


def parse(text: str) -> Tree:
    """The first document of a text. Raises NotYaml."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    builder, last = _Builder(text), None
    try:
        for event in yaml.parse(text, Loader=loader):
            last = event
            if not builder.feed(event):
                break
    except yaml.MarkedYAMLError as error:
        problem = mistake(text, error, last)
        raise NotYaml(problem.what, Place(problem.line, problem.column)) from error
    except (yaml.YAMLError, ValueError) as error:
        raise NotYaml(str(error), Place(1, 1)) from error
    if builder.root is None:
        raise NotYaml("an empty file", Place(1, 1))
    return Tree(builder.root, _comments(text, builder.covered), builder.spans, builder.doubled)


class _Builder:
    def __init__(self, text: str) -> None:
        self.text = text
        self.starts = [0, *accumulate(len(line) + 1 for line in text.split("\n"))]
        self.root: Node | None = None
        self.stack: list[tuple[Node, str | None, Place]] = []
        self.anchors: dict[str, Node] = {}
        self.covered: list[tuple[int, int]] = []
        self.spans: list[tuple[int, int]] = []
        self.doubled: list[tuple[str, Place, Place]] = []
        self.nodes = 0

    def feed(self, event: Any) -> bool:
        """Take one event; False when the first document ends."""
        kind = type(event).__name__
        if kind in ("ScalarEvent", "MappingStartEvent", "SequenceStartEvent", "AliasEvent"):
            self._node(kind, event)
        elif kind in ("MappingEndEvent", "SequenceEndEvent"):
            node, _, opened = self.stack.pop()
            node.last_line = self._last(event, node)
            if node.items is not None and all(child.text is not None for child in node.items):
                self.spans.append((opened.line, node.last_line))
            if node.fields is not None:
                _merge(node)
        return kind != "DocumentEndEvent"

    def _last(self, event: Any, node: Node) -> int:
        below = [child.last_line for child in (node.items or [])]
        below += [child.last_line for child in (node.fields or {}).values()]
        return max(below, default=int(event.start_mark.line) + 1)

    def _node(self, kind: str, event: Any) -> None:
        place = Place(event.start_mark.line + 1, event.start_mark.column + 1)
        self.nodes += 1
        if self.nodes > MAX_NODES or len(self.stack) > DEEPEST:
            raise NotYaml("too many values, or nested too deep", place)
        if kind == "AliasEvent":
            known = self.anchors.get(event.anchor)
            if known is None:
                raise NotYaml("an alias without its anchor", place)
            self._hang(known, place)
            return
        node = Node(place, last_line=place.line)
        if kind == "ScalarEvent":
            start, end = self._extent(event)
            self.covered.append((start, end))
            node.text, node.inner, node.plain = event.value, None, bool(event.implicit[0])
            if not self._is_key():
                node.inner = self._inner(event, start, end, place)
            node.last_line = max(place.line, self.text.count("\n", 0, max(end - 1, 0)) + 1
                                 if event.style in ("|", ">") or "\n" in event.value
                                 else event.end_mark.line + 1)  # fmt: skip
        elif kind == "MappingStartEvent":
            node.fields = {}
        else:
            node.items = []
        if event.anchor:
            self.anchors[event.anchor] = node
        opened = self.stack[-1][2] if self.stack and self.stack[-1][1] is not None else place
        self._hang(node, place)
        if kind != "ScalarEvent":
            self.stack.append((node, None, opened))

    def _is_key(self) -> bool:
        return (
            bool(self.stack) and self.stack[-1][0].fields is not None and self.stack[-1][1] is None
        )

    def _hang(self, node: Node, place: Place) -> None:
        if not self.stack:
            self.root = node
            return
        top, key, key_place = self.stack[-1]
        if top.items is not None:
            top.items.append(node)
            return
        assert top.fields is not None
        if key is None:
            self.stack[-1] = (top, node.text if node.text is not None else "?", place)
            return
        if key in top.fields and key != "?":
            self.doubled.append((key, key_place, top.keys[key]))
        top.fields[key] = node
        top.keys[key] = key_place
        self.stack[-1] = (top, None, place)
        if node.text is not None:
            self.spans.append((key_place.line, node.last_line))

    def _extent(self, event: Any) -> tuple[int, int]:
        """Offsets of a scalar as written, without a block's header line."""
        start = self._offset(event.start_mark)
        end = self._offset(event.end_mark)
        if event.style in ("|", ">"):
            newline = self.text.find("\n", start)
            start = newline + 1 if newline >= 0 else end
        return start, max(start, end)

    def _offset(self, mark: Any) -> int:
        if mark.line >= len(self.starts):
            return len(self.text)
        at: int = self.starts[mark.line] + mark.column
        return min(at, len(self.text))

    def _inner(self, event: Any, start: int, end: int, place: Place) -> Snippet:
        """Locate a scalar's characters in order, since folding and quoting change only blanks. If
        an escape hides them, the whole text is placed at its beginning."""
        value = event.value
        if not value or (event.style == '"' and "\\" in self.text[start:end]):
            return spot(value, place)
        segments: list[Segment] = []
        at = start + (1 if event.style in ("'", '"') else 0)
        offset = 0
        for piece in value.split():
            offset = value.index(piece, offset)
            position = self.text.find(piece, at, end)
            if position < 0:
                return spot(value, place)
            line = self.text.count("\n", at, position)
            base = (
                segments[-1][1]
                if segments
                else place.line + self.text.count("\n", self._offset(event.start_mark), at)
            )
            segments.append((offset, base + line, position - self.text.rfind("\n", 0, position)))
            offset, at = offset + len(piece), position + len(piece)
        if not segments:
            return spot(value, place)
        first = segments[0]
        return Snippet(
            value, [(0, first[1], max(1, first[2] - first[0])), *segments[first[0] == 0 :]]
        )


def _merge(node: Node) -> None:
    """Apply `<<: *defaults`: take keys that are missing from it."""
    assert node.fields is not None
    merged = node.fields.get("<<")
    if merged is None:
        return
    for source in merged.items if merged.items is not None else [merged]:
        for key, value in (source.fields or {}).items():
            if key not in node.fields:
                node.fields[key] = value
                node.keys[key] = source.keys.get(key, value.place)
    del node.fields["<<"]


def _comments(text: str, covered: list[tuple[int, int]]) -> list[Comment]:
    """Every `# …` outside values."""
    comments: list[Comment] = []
    at, next_covered = 0, 0
    line_start, number = 0, 1
    covered = sorted(covered)
    while (hash_at := text.find("#", at)) >= 0:
        number += text.count("\n", line_start, hash_at)
        line_start = max(line_start, text.rfind("\n", 0, hash_at) + 1)
        while next_covered < len(covered) and covered[next_covered][1] <= hash_at:
            next_covered += 1
        inside = next_covered < len(covered) and covered[next_covered][0] <= hash_at
        if inside or (hash_at > line_start and text[hash_at - 1] not in " \t"):
            at = hash_at + 1
            continue
        end = text.find("\n", hash_at)
        end = len(text) if end < 0 else end
        own = not text[line_start:hash_at].strip()
        place = Place(number, hash_at - line_start + 1)
        comments.append(Comment(text[hash_at:end].rstrip(), place, own))
        at = end
    return comments
