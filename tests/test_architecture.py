"""The house rules that a linter does not know: sizes, floors, and what a command imports."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("console", "screens", "widgets", "tests")
MOST_LINES, MOST_CLASS, MOST_FUNCTION = 400, 250, 50
DRAWING = {"textual", "rich"}
HEAVY = DRAWING | {"pydantic", "docker", "httpx", "httpx2", "huggingface_hub", "ruamel"}


def sources(*rooms: str) -> list[Path]:
    found = [path for room in rooms for path in sorted((ROOT / room).rglob("*.py"))]
    assert found
    return found


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def length(node: ast.stmt) -> int:
    return (node.end_lineno or 0) - node.lineno + 1


class Shape(NamedTuple):
    """Of a file: where each class and function begins, its name and its lines."""

    documented: bool
    parts: list[tuple[type[ast.AST], int, str, int]]


@cache
def shape(path: Path) -> Shape:
    tree = ast.parse(path.read_text("utf-8"))
    parts = [
        (type(node), node.lineno, node.name, length(node))
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return Shape(not tree.body or bool(ast.get_docstring(tree)), parts)


def longer(kinds: tuple[type[ast.stmt], ...], most: int, *rooms: str) -> Iterator[str]:
    for path in sources(*rooms):
        for kind, line, called, size in shape(path).parts:
            if kind in kinds and size > most:
                yield f"{name(path)}:{line} {called} {size}"


def test_files_are_short() -> None:
    sizes = {name(path): len(path.read_text("utf-8").splitlines()) for path in sources(*ROOMS)}
    assert {path: size for path, size in sizes.items() if size > MOST_LINES} == {}


def test_classes_are_short() -> None:
    assert list(longer((ast.ClassDef,), MOST_CLASS, "console", "screens", "widgets")) == []


def test_functions_are_short() -> None:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    assert list(longer(functions, MOST_FUNCTION, *ROOMS)) == []


def test_the_measure_measures() -> None:
    """A rule that nothing can break is no rule."""
    assert next(longer((ast.FunctionDef,), 1, "console"))
    assert next(longer((ast.ClassDef,), 1, "console"))


def test_every_module_says_what_it_is() -> None:
    rooms = sources("console", "screens", "widgets")
    said = {name(path): path.name.startswith("_") or shape(path).documented for path in rooms}
    assert [path for path, documented in said.items() if not documented] == []


def test_the_floors_hold() -> None:
    script = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def loaded(code: str) -> set[str]:
    """Top-level modules in a fresh interpreter after `code`, whatever it printed or raised."""
    program = (
        "import json, sys\n"
        f"try:\n    {code}\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "print('\\n' + json.dumps(sorted({m.partition('.')[0] for m in sys.modules})))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False,
        # a measuring interpreter would load modules of its own
        env={k: v for k, v in os.environ.items() if not k.startswith("COVERAGE_")}
        | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], ["plan", "--help"], ["run", "--help"], ["rollback", "--help"]],
    ids=" ".join,
)
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    assert loaded(f"from console.cli import main; main({arguments!r})") & HEAVY == set()


@pytest.mark.parametrize(
    "module",
    ["console.rollback.command", "console.rollback.ladder", "console.rollback.warm",
     "console.command.rollback"],
)  # fmt: skip
def test_the_emergency_side_imports_nothing_that_can_be_missing(module: str) -> None:
    modules = loaded(f"import {module}")
    assert "console" in modules
    assert modules & (HEAVY | {"sqlite3"}) == set()


@pytest.mark.parametrize("module", ["run", "plan", "show", "bench", "runner", "demo"])
def test_no_command_loads_the_drawing_side(module: str) -> None:
    assert loaded(f"import console.command.{module}") & DRAWING == set()


def test_a_whole_plan_draws_nothing(tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    site.write_text(
        "schema: omni.site/v1\nname: ws\nbaseline: {container: b, url: 'http://127.0.0.1:1'}\n"
        "services:\n"
        "  fast: {process: {argv: [x]}, url: 'http://127.0.0.1:2'}\n"
        "  slow: {process: {argv: [x]}, url: 'http://127.0.0.1:3'}\n"
    )
    modules = loaded(
        f"from console.cli import main; assert main(['plan', 'demo', '--site', {str(site)!r}]) == 0"
    )
    assert "pydantic" in modules
    assert modules & (DRAWING | {"docker"}) == set()
