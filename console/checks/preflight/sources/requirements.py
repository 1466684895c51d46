"""What a Python project of the sources requires, to run and to be built."""

from __future__ import annotations

import ast
import posixpath
import re
import tomllib
from collections.abc import Iterator
from typing import Any

from console.checks.preflight.sources.modules import parsed
from console.checks.preflight.sources.tree import SourceTree

Required = tuple[str, str]
"""(requirement, where it stands)."""
MAX_LINES = 2000


def to_run(tree: SourceTree, part: str) -> list[Required]:
    """Of pyproject.toml, setup.py and requirements.txt."""
    requirements = [*_project(tree, part), *_setup(tree, part)]
    requirements += listed(tree, posixpath.join(part, "requirements.txt").lstrip("/"))
    return requirements[:MAX_LINES]


def listed(tree: SourceTree, path: str) -> Iterator[Required]:
    """Of a file of requirements."""
    for number, line in enumerate((tree.text(path) or "").split("\n")[:MAX_LINES], 1):
        if text := line.partition("#")[0].strip():
            yield text, tree.place(path, number)


def to_build(tree: SourceTree, part: str) -> list[Required]:
    """`build-system.requires` of pyproject.toml."""
    path, data = _toml(tree, part)
    return list(_texts((data.get("build-system") or {}), "requires", tree, path))


def of_torch(required: list[Required]) -> list[Required]:
    """Those that speak of PyTorch itself."""
    return [
        requirement
        for requirement in required
        if re.match(r"torch\s*(?:[\[=<>~!;(]|$)", requirement[0])
    ]


def name(requirement: str) -> str:
    """The project of a requirement, in small letters and with hyphens."""
    match = re.match(r"[A-Za-z0-9][\w.-]*", requirement)
    return re.sub(r"[-_.]+", "-", match[0]).lower() if match else ""


def _toml(tree: SourceTree, part: str) -> tuple[str, dict[str, Any]]:
    path = posixpath.join(part, "pyproject.toml").lstrip("/")
    try:
        return path, tomllib.loads(tree.text(path) or "")
    except (tomllib.TOMLDecodeError, RecursionError):
        return path, {}


def _project(tree: SourceTree, part: str) -> Iterator[Required]:
    path, data = _toml(tree, part)
    project = data.get("project")
    if isinstance(project, dict):
        yield from _texts(project, "dependencies", tree, path)


def _texts(table: Any, key: str, tree: SourceTree, path: str) -> Iterator[Required]:
    values = table.get(key) if isinstance(table, dict) else None
    lines = (tree.text(path) or "").split("\n")
    for value in values[:MAX_LINES] if isinstance(values, list) else ():
        if isinstance(value, str):
            line = next((n for n, source_line in enumerate(lines, 1) if value in source_line), 0)
            yield value, tree.place(path, line)


def _setup(tree: SourceTree, part: str) -> Iterator[Required]:
    path = posixpath.join(part, "setup.py").lstrip("/")
    module = parsed(tree.text(path))
    for node in ast.walk(module) if module is not None else ():
        if isinstance(node, ast.keyword) and node.arg == "install_requires":
            for element in node.value.elts if isinstance(node.value, ast.List) else ():
                if isinstance(element, ast.Constant) and isinstance(element.value, str):
                    yield element.value, tree.place(path, element.lineno)
