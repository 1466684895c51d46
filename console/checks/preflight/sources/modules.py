"""What a Python package imports on every way: followed from the modules that an image starts or is
asked for, to what its sources do not have, or have only with a build switch."""

from __future__ import annotations

import ast
import posixpath
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from console.checks.preflight.sources.tree import SourceTree

MAX_MODULES = 1500
MAX_CHARS = 400_000
"""Characters of a Python file; a longer one is generated, and takes seconds to read."""
_FORGIVEN = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})
_EXTENSIONS = ("Extension", "CUDAExtension", "CppExtension", "CMakeExtension",
               "Pybind11Extension", "SYCLExtension")  # fmt: skip
_USUAL = frozenset({"csrc", "src", "python", ""})
MAX_GATES = 200


@dataclass(frozen=True, slots=True)
class Import:
    """An unconditional import: the module, and where; `chain` leads from an entry to it. `maybe`:
    it may be an attribute of its parent instead."""

    module: str
    path: str
    line: int
    chain: tuple[str, ...] = ()
    maybe: bool = False


@dataclass(frozen=True, slots=True)
class Switch:
    """An environment variable of setup.py without which a part is not built: the words of that
    part, its default, and the value that is compared with ("" where any true one will do)."""

    name: str
    words: frozenset[str]
    default: str
    value: str
    line: int


@dataclass(slots=True)
class Walk:
    """Imports that lead out of the sources; `reached` are the modules followed, `unknown` the
    entries that are no modules of these sources. `inner`: names that a package of the sources has
    to have, in a variable or as an extension."""

    out: list[Import] = field(default_factory=list)
    inner: list[Import] = field(default_factory=list)
    reached: set[str] = field(default_factory=set)
    unknown: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    """Files whose imports could not be read, and where a walk that became too long ended."""


def parsed(text: str | None) -> ast.Module | None:
    """The syntax tree of a Python file; None if it is none, or too long."""
    if text is None or len(text) > MAX_CHARS:
        return None
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


class Sources:
    """The importable packages below some folders of a tree."""

    def __init__(self, tree: SourceTree, folders: Iterable[str]) -> None:
        self.tree = tree
        self.roots = [
            posixpath.join(folder, more).strip("/")
            for folder in dict.fromkeys(folders)
            for more in ("", "src", "python")
            if not more or posixpath.join(folder, more).strip("/") in tree.folders
        ]

    def file(self, module: str) -> str:
        """The file of a module; "" if there is none."""
        step = module.replace(".", "/")
        for root in self.roots:
            base = posixpath.join(root, step)
            for path in (f"{base}/__init__.py", f"{base}.py"):
                if path in self.tree.files:
                    return path
        return ""

    def has(self, module: str) -> bool:
        """Whether it is a module here, or a directory of modules without an __init__.py."""
        step = module.replace(".", "/")
        there = (posixpath.join(root, step) in self.tree.folders for root in self.roots)
        return bool(self.file(module)) or ("." in module and any(there))

    def packages(self) -> list[str]:
        """The names of the packages at the top."""
        names = set()
        for root in self.roots:
            before = f"{root}/" if root else ""
            names |= {
                path.removeprefix(before).split("/")[0]
                for path in self.tree.files
                if path.startswith(before) and path.endswith("/__init__.py")
                and path.removeprefix(before).count("/") == 1
            }  # fmt: skip
        return sorted(names - {"tests", "test", "docs", "examples", "scripts"})

    def walk(self, entries: Iterable[str]) -> Walk:
        """Follow every unconditional import from the entries."""
        import_walk = Walk()
        todo: deque[tuple[str, tuple[str, ...]]] = deque()
        for entry in dict.fromkeys(entries):
            if not self.file(entry) and not self.file(f"{entry}.__main__"):
                import_walk.unknown.append(entry)
            todo += [(name, (name,)) for name in (*_parents(entry), entry, f"{entry}.__main__")]
        while todo:
            module, chain = todo.popleft()
            path = self.file(module)
            if module in import_walk.reached or not path:
                continue
            if len(import_walk.reached) >= MAX_MODULES:
                import_walk.unread.append(path)
                break
            import_walk.reached.add(module)
            tree = parsed(self.tree.text(path))
            if tree is None:
                import_walk.unread.append(path)
                continue
            for statement in _imports(tree, module, path, chain):
                if self.has(statement.module):
                    todo += [
                        (up, (*chain, up)) for up in (*_parents(statement.module), statement.module)
                    ]
                elif not (statement.maybe and self.has(statement.module.rpartition(".")[0])):
                    import_walk.out.append(statement)
                    todo += [(up, (*chain, up)) for up in _parents(statement.module)]
                else:
                    import_walk.inner.append(statement)
        return import_walk

    def names(self, module: str) -> bool:
        """Whether the parent of a module itself gives this name to something else."""
        parent, _, last = module.rpartition(".")
        tree = parsed(self.tree.text(self.file(parent)))
        for node in ast.walk(tree) if tree is not None else ():
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
                name = node.name
            elif isinstance(node, ast.alias):
                name = node.asname or node.name
            else:
                name = node.id if isinstance(node, ast.Name) else ""
            if name in (last, "*", "__getattr__"):
                return True
        return False


def _imports(tree: ast.Module, module: str, path: str, chain: tuple[str, ...]) -> Iterator[Import]:
    """The unconditional imports of a module, relative ones as absolute."""
    package = module if path.endswith("/__init__.py") else module.rpartition(".")[0]
    for node in _always(tree.body):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield Import(name.name, path, node.lineno, chain)
            continue
        parts = package.split(".")
        above = parts[: len(parts) - node.level + 1] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        if base:
            yield Import(base, path, node.lineno, chain)
        for name in node.names if base else ():
            yield Import(f"{base}.{name.name}", path, node.lineno, chain, maybe=True)


def _parents(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def _always(body: list[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    """Imports that happen whenever the module is imported, and end it when they fail."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.With | ast.ClassDef | ast.Try) and not (
            isinstance(node, ast.Try) and any(map(_forgives, node.handlers))
        ):
            yield from _always(node.body)


def _forgives(handler: ast.ExceptHandler) -> bool:
    caught = handler.type
    names = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(
        name is None or (isinstance(name, ast.Name) and name.id in _FORGIVEN) for name in names
    )


def in_library(module: str) -> bool:
    """Whether it is of Python's own library."""
    return module.partition(".")[0] in sys.stdlib_module_names


def switches(text: str | None) -> list[Switch]:
    """The parts of a setup.py that are built only where an environment variable says so."""
    tree = parsed(text)
    if tree is None:
        return []
    variables: dict[str, tuple[str, str, str]] = {}
    build_switches: list[Switch] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, variable = node.targets[0], _environment(node.value, {})
            if isinstance(target, ast.Name) and variable is not None:
                variables[target.id] = variable
    every = list(_made(tree))
    gates: list[tuple[tuple[str, str, str], int, dict[int, ast.Call]]] = []
    for node in ast.walk(tree) if every else ():
        if isinstance(node, ast.If | ast.IfExp) and len(gates) < MAX_GATES:
            variable = _environment(node.test, variables)
            body = node.body if isinstance(node.body, list) else [node.body]
            mine = {id(call): call for part in body for call in _made(part)}
            if variable is not None and mine and not _negated(node.test):
                gates.append((variable, node.lineno, mine))
    for variable, line, mine in gates:
        same = {call for other, _, calls in gates if other[0] == variable[0] for call in calls}
        others = {w for call in every if id(call) not in same for w in _words(call)}
        words = {w for call in mine.values() for w in _words(call)} - others - _USUAL
        if words:
            build_switches.append(
                Switch(variable[0], frozenset(words), variable[1], variable[2], line)
            )
    return build_switches


def _negated(test: ast.expr) -> bool:
    return isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)


def _environment(
    node: ast.expr, known: dict[str, tuple[str, str, str]]
) -> tuple[str, str, str] | None:
    """(variable, its default, the value it is compared with) that an expression asks for."""
    compared = ""
    for part in ast.walk(node):
        if isinstance(part, ast.Compare) and isinstance(part.ops[0], ast.Eq):
            right = part.comparators[0]
            if isinstance(right, ast.Constant) and isinstance(right.value, str):
                compared = right.value
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and part.id in known:
            name, default, value = known[part.id]
            return name, default, value or compared
        if isinstance(part, ast.Call) and _name(part.func) in ("getenv", "get") and part.args:
            texts = [a.value if isinstance(a, ast.Constant) else "" for a in part.args]
            if isinstance(texts[0], str) and texts[0] and texts[0].isupper():
                default = texts[1] if len(texts) > 1 and isinstance(texts[1], str) else ""
                return texts[0], default, compared
    return None


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _made(node: ast.AST) -> Iterator[ast.Call]:
    """Every extension that is made there."""
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and _name(call.func) in _EXTENSIONS:
            yield call


def _words(call: ast.Call) -> Iterator[str]:
    """The words of an extension: of its name, and of the paths that it names."""
    for part in ast.walk(call):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield from part.value.replace("/", ".").split(".")


def extensions(text: str | None) -> set[str]:
    """Names of the extensions that a setup.py makes, as they are imported, and their last parts."""
    tree, names = parsed(text), set[str]()
    for call in _made(tree) if tree is not None else ():
        named = [keyword.value for keyword in call.keywords if keyword.arg == "name"] or call.args[
            :1
        ]
        for node in named:
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                names |= {node.value, node.value.rpartition(".")[2]}
    return names
