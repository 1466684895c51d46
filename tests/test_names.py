"""Names say what they hold: a value is called by the noun of what is in it.

`one`, `found`, `said`, `told`, `asked` and `far` hide it. No function binds them, and no attribute,
function, class or constant has them, but for the listed ones.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = ("console", "screens", "widgets")
HIDING = {"one", "found", "said", "told", "asked", "far"}
LIMITS = ("most_", "least_")
BARE_LIMITS = {"MOST", "LEAST"}
"""`MAX_` and `MIN_` are the words of the field, with the noun of what is limited."""
LISTED: dict[str, int] = {
    "console/fleet/line.py": 1,
    "console/fleet/protocol.py": 1,
}
"""Locals and parameters that still hide what they hold, by module."""
KEYS: dict[str, list[str]] = {
    "console/bench/prompt_rate.py": ["asked"],  # of a prompt rate in journals and JSON
    "console/config/playbook/tuning_step.py": ["most_ram", "most_vram"],  # of playbooks
}
"""Fields whose names are keys of files or of JSON, and stay, by module."""


def hides(name: str) -> bool:
    bare = name.strip("_")
    return bare in BARE_LIMITS or bare.lower() in HIDING or bare.lower().startswith(LIMITS)


def sources() -> Iterator[tuple[str, ast.Module]]:
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            yield str(path.relative_to(ROOT)), ast.parse(path.read_text("utf-8"))


def fields(tree: ast.Module) -> dict[int, ast.Name]:
    """The names that the module and its classes assign themselves: constants and fields."""
    bodies = [tree.body, *(node.body for node in ast.walk(tree) if isinstance(node, ast.ClassDef))]
    statements = [statement for body in bodies for statement in body]
    targets = [
        target
        for statement in statements
        if isinstance(statement, ast.Assign | ast.AnnAssign)
        for target in (
            statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        )
    ]
    names = [node for target in targets for node in ast.walk(target)]
    return {id(node): node for node in names if isinstance(node, ast.Name)}


def bound(tree: ast.Module) -> Iterator[str]:
    """The names that functions, lambdas and comprehensions bind."""
    elsewhere = fields(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name
        elif (
            isinstance(node, ast.Name)
            and not isinstance(node.ctx, ast.Load)
            and id(node) not in elsewhere
        ):
            yield node.id


def others(tree: ast.Module) -> Iterator[str]:
    """The names of functions and classes, of fields, constants and set attributes."""
    yield from (node.id for node in fields(tree).values())
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            yield node.attr


def test_no_function_binds_a_name_that_hides_what_it_holds() -> None:
    counted = {path: sum(map(hides, bound(tree))) for path, tree in sources()}
    assert {path: count for path, count in counted.items() if count} == LISTED


def test_no_attribute_function_class_or_constant_hides_what_it_holds_but_for_keys() -> None:
    counted = {path: sorted(filter(hides, others(tree))) for path, tree in sources()}
    assert {path: names for path, names in counted.items() if names} == KEYS
