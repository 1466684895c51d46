"""The house rules that a linter does not know: sizes, floors, and what a command imports."""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
ROOMS = ("console", "screens", "widgets", "tests")
MAX_LINES, MAX_CLASS, MAX_FUNCTION = 600, 300, 60
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
    assert {path: size for path, size in sizes.items() if size > MAX_LINES} == {}


def test_classes_and_functions_are_short_and_modules_say_what_they_are() -> None:
    """One test, as each worker would parse every file anew. The measure measures: a rule that
    nothing can break is no rule."""
    functions, program = (ast.FunctionDef, ast.AsyncFunctionDef), ("console", "screens", "widgets")
    assert list(longer((ast.ClassDef,), MAX_CLASS, *program)) == []
    assert list(longer(functions, MAX_FUNCTION, *ROOMS)) == []
    assert next(longer(functions, 1, "console"))
    assert next(longer((ast.ClassDef,), 1, "console"))
    public = [path for path in sources(*program) if not path.name.startswith("_")]
    assert [name(path) for path in public if not shape(path).documented] == []


def test_a_module_that_is_run_begins_at_its_end() -> None:
    """What stands below `if __name__ …` is not defined yet when the module is run."""
    runs = re.compile(r"^if __name__ == .*\n(?:[ ].*\n|\n)*", re.MULTILINE)
    for path in sources(*ROOMS):
        text = path.read_text("utf-8")
        found = runs.search(text)
        assert found is None or found.end() == len(text), name(path)


def test_the_floors_hold() -> None:
    script = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def loaded(*codes: str) -> list[set[str]]:
    """Top-level modules after each of `codes`, whatever it printed or raised.

    One fresh interpreter, and a child of it for each: none sees what another has imported.
    """
    program = (
        "import json, os, sys\n"
        f"for code in {codes!r}:\n"
        "    if os.fork() == 0:\n"
        "        try:\n            exec(code)\n"
        "        except SystemExit as end:\n            assert not end.code, end.code\n"
        "        print('\\n' + json.dumps(sorted({m.partition('.')[0] for m in sys.modules})))\n"
        "        sys.stdout.flush()\n        os._exit(0)\n"
        "    assert os.wait()[1] == 0, code\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False,
        # a measuring interpreter would load modules of its own
        env={k: v for k, v in os.environ.items() if not k.startswith("COVERAGE_")}
        | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = [set(json.loads(line)) for line in done.stdout.splitlines() if line.startswith('["')]
    assert len(found) == len(codes)
    return found


def test_every_library_is_one_that_was_tried() -> None:
    """A next major version may lack what is used of it, and is not installed by itself."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [Requirement(one) for one in project["dependencies"]]
    open_ended = [
        one.name for one in wanted if not {s.operator for s in one.specifier} & {"<", "=="}
    ]
    assert open_ended == []
    assert [one.name for one in wanted if version(one.name) not in one.specifier] == []


def test_no_private_part_of_a_library_that_speaks_to_an_engine() -> None:
    private = re.compile(r"\b(?:api|response|raw|_fp|fp)\._[a-z]")
    assert [name(path) for path in sources("console") if private.search(path.read_text())] == []


def test_help_imports_nothing_heavy() -> None:
    asked = ("--help", "--version", "plan --help", "run --help", "rollback --help")
    for modules in loaded(*(f"from console.cli import main; main({a.split()!r})" for a in asked)):
        assert modules & HEAVY == set()


def test_commands_that_read_a_run_load_no_validation_library(tmp_path: Path) -> None:
    """They take twice as long with it, and a shell loop asks them often."""
    empty = f"import os; os.environ['HOME'] = {str(tmp_path)!r}; from console.cli import main; "
    commands = ("runs", "show", "logs baseline", "attach", "abort abcd", "tell abcd next",
                "gauges", "keys")  # fmt: skip
    hosts = ("commands", "bridge", "state")  # a table of many hosts, and each of them
    imports = (f"import console.frontends.cli.fleet.{one}" for one in hosts)
    for modules in loaded(*(f"{empty}main({one.split()!r})" for one in commands), *imports):
        assert modules & HEAVY == set()


def test_the_emergency_side_imports_nothing_that_can_be_missing() -> None:
    rooms = (
        "recovery.rollback.command", "recovery.rollback.procedure", "recovery.rollback.standby",
        "frontends.cli.rollback",
    )  # fmt: skip
    for modules in loaded(*(f"import console.{room}" for room in rooms)):
        assert "console" in modules
        assert modules & (HEAVY | {"sqlite3"}) == set()


def test_no_command_loads_the_drawing_side() -> None:
    commands = ("run", "check", "show", "bench", "demo")
    for modules in loaded(*(f"import console.frontends.cli.{one}" for one in commands)):
        assert modules & DRAWING == set()


def test_a_whole_plan_draws_nothing(tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    site.write_text(
        "schema: omni.site/v1\nname: ws\nbaseline: {container: b, url: 'http://127.0.0.1:1'}\n"
        "services:\n"
        "  fast: {process: {argv: [cat]}, url: 'http://127.0.0.1:2'}\n"
        "  slow: {process: {argv: [cat]}, url: 'http://127.0.0.1:3'}\n"
    )
    (modules,) = loaded(
        f"from console.cli import main; assert main(['plan', 'demo', '--site', {str(site)!r}]) == 0"
    )
    assert "pydantic" in modules
    assert modules & (DRAWING | {"docker"}) == set()
