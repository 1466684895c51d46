"""The small faults that the program can be given, and the list of those that are tried. A place is
known by its function's name and its statement's text, so that the list outlives edits elsewhere."""

import ast
import copy
import json
import random
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

LIST = Path(__file__).with_name("list.json")
PACKAGES = (
    "runner", "journal", "render/report", "recovery", "bench", "config/playbook", "models/sizing",
    "runtime", "host",
)  # fmt: skip
COUNT = 200
SEED = 7
SWAPS: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,), ast.And: (ast.Or,), ast.Or: (ast.And,),
    ast.Add: (ast.Sub,), ast.Sub: (ast.Add,), ast.Mult: (ast.Div,), ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Div,), ast.Mod: (ast.Mult,), ast.BitAnd: (ast.BitOr,),
}  # fmt: skip
EMPTY = {"None", "False", "0", "''", "[]", "()", "{}"}
SKIPPED = {"annotation", "target", "targets"}
TESTS = (ast.If, ast.While, ast.match_case)
Function = ast.FunctionDef | ast.AsyncFunctionDef
Variant = tuple[str, ast.AST]
Fault = tuple[str, int, int, str]
"""Its kind, from where to where a text is replaced, and by what."""


class Mutant(NamedTuple):
    """One fault of the list; its line is where it stood when drawn, for the reader only, and its
    occurrence says which of the equal texts in the function it is."""

    id: str
    file: str
    function: str
    line: int
    kind: str
    occurrence: int
    old: str
    new: str


class Source:
    """A parsed file, in which `ast`'s lines and columns are found as offsets into the text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = ast.parse(text)
        self._lines = text.split("\n")

    def _offset(self, line: int, column: int) -> int:
        """Columns of `ast` count bytes."""
        before = sum(len(each) + 1 for each in self._lines[: line - 1])
        return before + len(self._lines[line - 1].encode()[:column].decode())

    def span(self, node: ast.stmt | ast.expr) -> tuple[int, int]:
        end = self._offset(node.end_lineno or 0, node.end_col_offset or 0)
        return self._offset(node.lineno, node.col_offset), end

    def line(self, offset: int) -> int:
        return self.text.count("\n", 0, offset) + 1

    def places(self) -> Iterator[tuple[str, ast.stmt]]:
        """Every function by its qualified name, and every constant of the module by its name."""
        for node in self.tree.body:
            match node:
                case (ast.Assign(targets=[ast.Name(id=name)])
                      | ast.AnnAssign(target=ast.Name(id=name))) if self.readers(name):  # fmt: skip
                    yield name, node
        yield from _functions(self.tree, "")

    def named(self, function: str) -> list[ast.stmt]:
        return [node for name, node in self.places() if name == function]

    def matches(self, function: str, text: str) -> list[int]:
        """Where this text begins in the functions of this name."""
        found: set[int] = set()
        for node in self.named(function):
            begin, end = self.span(node)
            while (at := self.text.find(text, begin, end)) >= 0:
                found.add(at)
                begin = at + 1
        return sorted(found)

    def readers(self, constant: str) -> set[int]:
        """The lines on which a constant of the module is read."""
        return self._readers.get(constant, set())

    @cached_property
    def _readers(self) -> dict[str, set[int]]:
        found: dict[str, set[int]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                found.setdefault(node.id, set()).add(node.lineno)
        return found

    def faults(self, place: ast.stmt) -> Iterator[Fault]:
        """All that can be put into one place, without what is put into functions inside it."""
        for node in _inside(place) if isinstance(place, Function) else [place]:
            match node:
                case (ast.If(test=head) | ast.While(test=head) | ast.For(iter=head)
                      | ast.match_case(guard=ast.expr() as head)
                      | ast.Match(subject=head) | ast.withitem(context_expr=head)):  # fmt: skip
                    yield from self._of_head(head, isinstance(node, TESTS))
                case ast.With() | ast.AsyncWith() | ast.AsyncFor() | ast.Try() | ast.TryStar():
                    pass
                case ast.stmt():
                    if place is not node and (instead := _removed(node)):
                        yield "removed", *self.span(node), instead
                    for kind, other in variants(node):
                        yield kind, *self.span(node), ast.unparse(other)

    def _of_head(self, head: ast.expr, test: bool) -> Iterator[Fault]:
        """Of a compound statement only what stands before its block, from where the line begins."""
        at, end = self.span(head)
        line = self._lines[head.lineno - 1]
        begin = self._offset(head.lineno, len(line) - len(line.lstrip()))
        for kind, other in variants(head, test):
            yield kind, begin, end, self.text[begin:at] + ast.unparse(other)


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    for inner in ast.iter_child_nodes(node):
        if not isinstance(inner, Function | ast.ClassDef | ast.Assert):
            yield inner
            yield from _inside(inner)


def _functions(node: ast.AST, within: str) -> Iterator[tuple[str, ast.stmt]]:
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, Function):
            yield within + inner.name, inner
        name = f"{within}{inner.name}." if isinstance(inner, Function | ast.ClassDef) else within
        yield from _functions(inner, name)


def variants(node: ast.AST, test: bool = False, read: bool = False) -> Iterator[Variant]:
    """Copies of an expression or a simple statement, each with one thing in it changed. `test`: its
    truth is what counts. `read`: a string here is read by the program, not by people."""
    match node:
        case ast.JoinedStr() | ast.arguments() | ast.Subscript(value=ast.Name(id="Literal")):
            return
        case ast.Constant(value=bool() as value):
            yield "constant", ast.Constant(not value)
        case ast.Constant(value=int() | float() as value):
            for other in sorted({value + 1, value - 1, value * 2} - {value}):
                yield "constant", ast.Constant(other)
        case ast.Constant(value=str() as value) if read or re.fullmatch(r"-\S+", value):
            yield "constant", ast.Constant("XX" + value)
        case ast.Compare():
            for at, operator in enumerate(node.ops):
                for new in SWAPS[type(operator)]:
                    yield "comparison", _with(node, "ops", new(), at)
        case ast.BinOp(op=operator) | ast.AugAssign(op=operator) | ast.BoolOp(op=operator):
            for new in SWAPS.get(type(operator), ()):
                kind = "boolean" if isinstance(node, ast.BoolOp) else "arithmetic"
                yield kind, _with(node, "op", new())
        case ast.UnaryOp(op=ast.Not()):
            yield "condition", node.operand
    if test and isinstance(node, ast.expr) and not isinstance(node, ast.Compare | ast.UnaryOp):
        yield "condition", ast.UnaryOp(ast.Not(), node)
    words = isinstance(node, ast.Compare | ast.Subscript)
    for field, held in ast.iter_fields(node):
        for at, child in enumerate(held if isinstance(held, list) else [held]):
            if isinstance(child, ast.AST) and field not in SKIPPED:
                for kind, inner in variants(child, field in ("test", "ifs"), words):
                    yield kind, _with(node, field, inner, at)


def _with(node: ast.AST, field: str, new: ast.AST, at: int = 0) -> ast.AST:
    """A copy of a node that has another child in a field, or at one position of a list."""
    other, held = copy.copy(node), getattr(node, field)
    setattr(other, field, [*held[:at], new, *held[at + 1 :]] if isinstance(held, list) else new)
    return other


def _removed(node: ast.stmt) -> str:
    """What stands for a statement that is taken away; empty for one that is better left."""
    match node:
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.AugAssign() | ast.Raise():
            return "pass"
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.Break() | ast.Continue():
            return "pass"
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) not in EMPTY:
            return "return None"
    return ""


def read() -> list[Mutant]:
    return [Mutant(**entry) for entry in json.loads(LIST.read_text("utf-8"))]


def locate(mutant: Mutant, text: str) -> tuple[str, set[int], set[int]] | None:
    """The mutated text of a file that may have been edited since, the lines that run it, and the
    lines of the whole function, for a line that no measurement saw. None where it is gone."""
    source = Source(text)
    begins = source.matches(mutant.function, mutant.old)
    if len(begins) <= mutant.occurrence:
        return None
    begin = begins[mutant.occurrence]
    end = begin + len(mutant.old)
    lines = set(range(source.line(begin), source.line(end) + 1))
    around: set[int] = set()
    for node in source.named(mutant.function):
        first, last = source.span(node)
        if first <= begin and end <= last:
            around |= set(range(node.lineno + 1, source.line(last) + 1))
            lines = lines if isinstance(node, Function) else source.readers(mutant.function)
    return text[:begin] + mutant.new + text[end:], lines, around


def draw(root: Path) -> None:
    """Bring the list up to date, one mutant a line. One that can still be put into the program
    stays; for each of the others another is drawn: a place by chance, then a kind, then a fault."""
    dice = random.Random(SEED)
    paths = [path for name in PACKAGES for path in sorted((root / "console" / name).rglob("*.py"))]
    sources = {str(path.relative_to(root)): Source(path.read_text("utf-8")) for path in paths}
    listed = [one for one in read() if (root / one.file).exists()] if LIST.exists() else []
    kept = [one for one in listed if locate(one, (root / one.file).read_text("utf-8"))]
    used = {(one.file, one.function) for one in kept}
    places = [(file, *place) for file, source in sources.items() for place in source.places()]
    mutants: list[Mutant] = []
    for file, name, node in dice.sample(places, len(places)):
        source = sources[file]
        faults = list(source.faults(node)) if (file, name) not in used else []
        if faults and len(kept) + len(mutants) < COUNT:
            kind = dice.choice(sorted({fault[0] for fault in faults}))
            _, begin, end, new = dice.choice([fault for fault in faults if fault[0] == kind])
            old, line = source.text[begin:end], source.line(begin)
            which = source.matches(name, old).index(begin)
            mutants.append(Mutant("", file, name, line, kind, which, old, new))
    free = sorted({f"m{number:03}" for number in range(1, COUNT + 1)} - {one.id for one in kept})
    kept += [one._replace(id=name) for one, name in zip(mutants, free, strict=True)]
    rows = [one._asdict() for one in sorted(kept, key=lambda one: one.id)]
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    LIST.write_text(f"[\n{lines}\n]\n", "utf-8")
