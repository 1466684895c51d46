"""A new key is its record, the action in what has its scope, and a row of a page that is printed:
no other place has to know it."""

import re
from pathlib import Path

import pytest

from console.render.keymap import ACTIONS, OWNERS
from tests.copied import ROOT, changed, copied_tree, python

KEYMAP, PAGE = "console/render/keymap.py", "docs/reference/keys.md"
SCREEN = OWNERS["runs"]
RECORD = """    # the list of runs
    Action("count", ("K",), "Count", "Say how many runs there are.", "runs"),
"""
ACTION = '''    def action_count(self) -> None:
        """Say how many runs there are."""
        self.console.say(f"{len(self.rows)} runs in all")

    def action_mark(self) -> None:
'''
IN_CONSOLE = "tests/ui/test_count.py"
PRESSED = '''"""The key, in the console."""

from console.journal.run_dir import RunDir
from tests.ui import scene
from tests.ui.opened import console, said, screen, settled
from widgets.rows import TextView


async def test_it_is_in_footer_and_help_and_acts(run: RunDir) -> None:
    async with console(scene.running(), run, size=(120, 40)) as (app, pilot, _):
        await pilot.press("3")
        await settled(pilot, lambda: app.screen.loaded)
        assert "K Count" in screen(app)
        await pilot.press("K")
        assert "runs in all" in said(app)
        await pilot.press("question_mark")
        assert "Say how many runs there are." in app.screen.query_one(TextView).text
'''
HOLDS = (
    IN_CONSOLE,
    "tests/ui/test_screens.py::test_every_action_of_the_registry_is_bound",
    "tests/ui/test_words.py::test_the_key_table_is_the_registry",
    "tests/ui/test_words.py::test_no_key_is_taken_twice_in_a_scope",
)
"""Tests that look at every key, and the console."""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program with one more key, and its tests."""
    places = {
        **changed(KEYMAP, "    # the list of runs\n", RECORD),
        **changed(SCREEN, "    def action_mark(self) -> None:\n", ACTION),
        PAGE: "",
    }
    tree = copied_tree(tmp_path_factory.mktemp("tree"), {**places, IN_CONSOLE: PRESSED})
    printed = python(tree, "-m", "console", "keys")
    assert "| `K` | Count | Say how many runs there are. |" in printed.stdout, printed.stderr
    (tree / PAGE).write_text(printed.stdout)
    return tree


def test_it_is_shown_and_acts(tree: Path) -> None:
    done = python(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not full", *HOLDS)
    assert done.returncode == 0, done.stdout + done.stderr


def test_contributing_names_these_places_and_no_other() -> None:
    rows = (ROOT / "CONTRIBUTING.md").read_text().splitlines()
    row = next(row for row in rows if row.startswith("| a key |"))
    assert re.findall(r"`([\w/]+/\w+\.\w+)`", row) == [KEYMAP, PAGE]
    assert "count" not in {action.id for action in ACTIONS}
