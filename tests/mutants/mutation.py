"""The small faults that a source file can be given, each as one changed stretch of its text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

BOUNDARY: dict[type[ast.AST], tuple[str, ...]] = {
    ast.Lt: ("<", "<=", ">="), ast.LtE: ("<=", "<", ">"),
    ast.Gt: (">", ">=", "<="), ast.GtE: (">=", ">", "<"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="),
    ast.In: ("in", "not in"), ast.NotIn: ("not in", "in"),
    ast.Is: ("is", "is not"), ast.IsNot: ("is not", "is"),
}  # fmt: skip
ARITHMETIC: dict[type[ast.AST], tuple[str, ...]] = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "/"), ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "/"), ast.Mod: ("%", "*"), ast.BitAnd: ("&", "|"),
    ast.And: ("and", "or"), ast.Or: ("or", "and"),
}  # fmt: skip
TYPES = {"cast", "Literal", "TypeVar", "NewType", "Annotated"}
"""What stands inside these is read by the type checker, not by the program."""

Span = tuple[int, int]
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Place(NamedTuple):
    """A function, or a constant of the module: what a fault is put into."""

    name: str
    node: ast.stmt


class Fault(NamedTuple):
    """One fault: the statement (or the head of a compound one) that becomes another text."""

    kind: str
    line: int
    span: Span
    new: str


class Source:
    """A parsed file. Positions are offsets into its bytes, because that is what `ast` counts."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.tree = ast.parse(data)
        self._lines = [0, *(found.end() for found in re.finditer(rb"\n", data))]

    def span(self, first: ast.AST, last: ast.AST | None = None) -> Span:
        """From where one node begins to where it, or another, ends."""
        last = last or first
        begin = self._lines[first.lineno - 1] + first.col_offset  # type: ignore[attr-defined]
        end = self._lines[last.end_lineno - 1] + last.end_col_offset  # type: ignore[attr-defined]
        return begin, end

    def text(self, span: Span) -> str:
        return self.data[span[0] : span[1]].decode()

    def line(self, offset: int) -> int:
        return self.data.count(b"\n", 0, offset) + 1

    def with_(self, span: Span, new: str) -> bytes:
        """The whole file with this one stretch replaced, and every other byte as it was."""
        return self.data[: span[0]] + new.encode() + self.data[span[1] :]

    def places(self) -> Iterator[Place]:
        """Every function by its qualified name, and every constant of the module by its name."""
        for node in self.tree.body:
            match node:
                case (
                    ast.Assign(targets=[ast.Name(id=name)])
                    | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr())
                ) if not name.startswith("__"):
                    yield Place(name, node)
        yield from _functions(self.tree.body, "")

    def readers(self, name: str) -> set[int]:
        """The lines on which a constant of the module is read."""
        return {
            node.lineno
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
        }

    def faults(self, place: Place) -> list[Fault]:
        """All that can be put into one place, without what is put into functions inside it."""
        if isinstance(place.node, Function):
            return list(_Faults(self).of_body(place.node.body))
        return list(_Faults(self).of_simple(place.node, removable=False))


def _functions(body: Sequence[ast.AST], within: str) -> Iterator[Place]:
    for node in body:
        if isinstance(node, Function):
            yield Place(within + node.name, node)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        named = isinstance(node, Function | ast.ClassDef)
        inner = f"{within}{node.name}." if named else within  # type: ignore[attr-defined]
        yield from _functions(list(ast.iter_child_nodes(node)), inner)


class _Faults:
    """Walks statements and their expressions; `unit` is the stretch that a fault replaces."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def _fault(self, kind: str, unit: Span, node: ast.AST, at: Span, new: str) -> Fault:
        source = self.source
        text = source.text((unit[0], at[0])) + new + source.text((at[1], unit[1]))
        return Fault(kind, node.lineno, unit, text)  # type: ignore[attr-defined]

    def of_body(self, body: Sequence[ast.stmt]) -> Iterator[Fault]:
        for node in body:
            yield from self.of_statement(node)

    def of_statement(self, node: ast.stmt) -> Iterator[Fault]:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Assert():
                return
            case ast.If(test=test) | ast.While(test=test):
                unit = self.source.span(node, test)
                yield from self._negated(test, unit)
                yield from self.of_expression(test, unit)
            case ast.For(iter=value) | ast.AsyncFor(iter=value) | ast.Match(subject=value):
                yield from self.of_expression(value, self.source.span(node, value))
            case ast.With(items=items) | ast.AsyncWith(items=items):
                last = items[-1].optional_vars or items[-1].context_expr
                for item in items:
                    yield from self.of_expression(item.context_expr, self.source.span(node, last))
            case ast.Try() | ast.TryStar():
                pass
            case _:
                yield from self.of_simple(node)
                return
        for case in getattr(node, "cases", ()):
            if case.guard is not None:
                unit = self.source.span(case.pattern, case.guard)
                yield from self._negated(case.guard, unit)
                yield from self.of_expression(case.guard, unit)
        for owner in (node, *getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            for part in ("body", "orelse", "finalbody"):
                yield from self.of_body(getattr(owner, part, ()))

    def of_simple(self, node: ast.stmt, removable: bool = True) -> Iterator[Fault]:
        unit = self.source.span(node)
        if removable and (instead := _removed(node)):
            yield self._fault("removed", unit, node, unit, instead)
        if isinstance(node, ast.AugAssign):
            gap = (self.source.span(node.target)[1], self.source.span(node.value)[0])
            yield from self._operator(ARITHMETIC, "arithmetic", node.op, gap, unit, node)
        value = getattr(node, "value", None) or getattr(node, "exc", None)
        if value is not None:
            yield from self.of_expression(value, unit)

    def _negated(self, test: ast.expr, unit: Span) -> Iterator[Fault]:
        """A condition that is turned round; a comparison and a `not` have a kind of their own."""
        plain = isinstance(test, ast.Compare) and len(test.ops) == 1
        if not plain and not (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)):
            at = self.source.span(test)
            yield self._fault("condition", unit, test, at, f"not ({self.source.text(at)})")

    def _operator(
        self, table: dict[type[ast.AST], tuple[str, ...]], kind: str, operator: ast.AST,
        gap: Span, unit: Span, node: ast.AST,
    ) -> Iterator[Fault]:  # fmt: skip
        """`ast` does not say where an operator stands: between its operands it stands alone."""
        words = table.get(type(operator))
        if words is None:
            return
        pattern = re.escape(words[0]).replace(r"\ ", r"\s+")
        found = re.search(pattern, self.source.text(gap))
        if found:
            at = (gap[0] + found.start(), gap[0] + found.end())
            for new in words[1:]:
                yield self._fault(kind, unit, node, at, new)

    def of_expression(self, node: ast.AST, unit: Span, word: bool = False) -> Iterator[Fault]:
        """`word`: a string here is one that the program reads, not one that a person does."""
        span = self.source.span
        match node:
            case ast.JoinedStr():  # words for people; and before 3.12 positions inside are wrong
                return
            case ast.Call(func=ast.Name(id=name)) if name in TYPES:
                for part in node.args[1:]:
                    yield from self.of_expression(part, unit)
                return
            case ast.Subscript(value=ast.Name(id=name)) if name in TYPES:
                return
            case ast.Constant():
                for new in _constants(node.value, word):
                    yield self._fault("constant", unit, node, span(node), new)
                return
            case ast.Compare():
                operands = [node.left, *node.comparators]
                for operator, (left, right) in zip(node.ops, pairwise(operands), strict=True):
                    gap = (span(left)[1], span(right)[0])
                    yield from self._operator(BOUNDARY, "comparison", operator, gap, unit, node)
            case ast.BinOp(left=left, right=right):
                if not any(isinstance(side, ast.JoinedStr) or _is_word(side)
                           for side in (left, right)):  # fmt: skip
                    gap = (span(left)[1], span(right)[0])
                    yield from self._operator(ARITHMETIC, "arithmetic", node.op, gap, unit, node)
            case ast.BoolOp():
                for left, right in pairwise(node.values):
                    gap = (span(left)[1], span(right)[0])
                    yield from self._operator(ARITHMETIC, "boolean", node.op, gap, unit, node)
            case ast.UnaryOp(op=ast.Not()):
                at = span(node)
                new = self.source.text(at).removeprefix("not").lstrip()
                yield self._fault("condition", unit, node, at, new)
            case ast.IfExp(test=test):
                yield from self._negated(test, unit)
            case ast.comprehension(ifs=tests):
                for test in tests:
                    yield from self._negated(test, unit)
        read = isinstance(node, ast.Compare | ast.Subscript)
        for inner in ast.iter_child_nodes(node):
            if not isinstance(inner, ast.arguments):
                yield from self.of_expression(inner, unit, read)


def _is_word(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _constants(value: object, word: bool) -> Iterator[str]:
    """Other values for a constant. Of strings only those that the program itself reads."""
    match value:
        case bool():
            yield str(not value)
        case int() | float():
            yield from sorted({str(value + 1), str(value - 1), str(value * 2)} - {str(value)})
        case str() if word or (value.startswith("-") and " " not in value and len(value) > 1):
            yield repr("XX" + value)


def _removed(node: ast.stmt) -> str:
    """What stands for a statement that is taken away; empty for one that is better left."""
    match node:
        case ast.Expr(value=ast.Call() | ast.Await(value=ast.Call())) | ast.AugAssign():
            return "pass"
        case ast.Assign(targets=targets):
            kept = any(not isinstance(target, ast.Attribute | ast.Subscript) for target in targets)
            return "" if kept else "pass"
        case ast.Raise(exc=exc):
            return "" if exc is not None and "NotImplemented" in ast.unparse(exc) else "pass"
        case ast.Break() | ast.Continue():
            return "pass"
        case ast.Return(value=ast.Constant(value=value)):
            return "return None" if value else ""
        case ast.Return(value=ast.List(elts=[]) | ast.Tuple(elts=[]) | ast.Dict(keys=[]) | None):
            return ""
        case ast.Return():
            return "return None"
    return ""
