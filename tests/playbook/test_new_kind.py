"""A new kind of step is a model with its record, an executor and a row of the docs: no other place
has to know it."""

import re
from pathlib import Path

import pytest

from console.config.playbook.steps import KINDS
from tests.copied import ROOT, changed, copied_tree, python

STEPS = "console/config/playbook/steps.py"
EXECUTOR = "console/runner/executors/http.py"
PAGE = "docs/reference/playbooks.md"
MODEL = '''class HttpStep(Strict, Content):
    """Asks `url`, and expects `status`."""

    KIND: ClassVar = StepKind("http", "http:execute", 60.0, "Ask a server", loads=False)

    url: Annotated[Url, Moved.TEXT]
    status: int = Field(200, ge=100, le=599)


class Step(Strict):
'''
KEY = "    # common\n", "    http: HttpStep | None = None\n    # common\n"
EXECUTE = '''"""`http`: asks a URL."""

from console.config.playbook.steps import HttpStep
from console.journal.state import Cause
from console.runner.context import Done, StepFailed
from console.runtime.probe import fetch


def execute(context, planned, attempt):
    http = planned.section(HttpStep)
    status = fetch(http.url, timeout_s=5.0).status
    attempt.close()
    if status != http.status:
        raise StepFailed(Cause.OUTPUT_INVALID, f"{http.url} answered {status}")
    return Done(f"{http.url} answered {status}")
'''
ROW = "| `http` | asks a URL, and expects a status |\n"
BOOK = """
schema: omni.playbook/v1
name: trial
title: Trial
phases:
  - title: Trial
    steps:
      - {id: ask, http: {url: "http://127.0.0.1:8000/health", status: 204}, takes: 1s}
"""
SITE = """
schema: omni.site/v1
name: local
baseline: {process: {argv: [/bin/true]}, url: "http://127.0.0.1:8000"}
"""
RUN = '''"""A run with it, in a scripted world."""

import pytest

from tests.runner.e2e.sites import book
from tests.runner.world import WorldBase as World


@pytest.mark.parametrize("status", [200, 204])
def test_a_run_asks_and_tells(world: World, status: int) -> None:
    url = f"{world.base_url}/health"
    path = world.write("b.yaml", book(f"id: ask, http: {{url: '{url}', status: {status}}}"))
    done = world.go(path)
    shown, report = world.console("show"), world.console("report").out
    assert f"{url} answered 200" in shown.out and "ask" in shown.out, shown
    assert f"http: url {url}, status {status}" in report and f"{url} answered 200" in report
    assert (done.code == 0) == (status == 200), done
'''
MOVED = """
from pathlib import Path
from console.rehearsal.rewrite import Rewriter
from console.rehearsal.workspace import Mapping

book = {"title": "t", "phases": [{"steps": [{"id": "a", "http": {"url": "http://127.0.0.1:8000/x"}}]}]}
print(Rewriter(Mapping("base:1", "", {"8000": 18000}))(book, Path("/books"))["phases"])
"""
IN_WORLD = "tests/runner/whole/test_http.py"
HOLDS = (
    "tests/playbook/test_example.py::test_each_has_an_executor",
    "tests/playbook/test_example.py::test_each_has_a_row_of_the_table",
    "tests/playbook/test_example.py"
    "::test_each_that_is_written_is_a_key_of_a_step_and_its_services_are_keys_below",
    "tests/playbook/test_example.py::test_viewers_know_who_asks_and_who_judges_without_the_models",
    "tests/rehearsal/test_rewrite.py::test_every_field_says_what_a_rehearsal_does_with_it",
    "tests/rehearsal/test_rewrite.py"
    "::test_whatever_a_step_can_hold_no_rehearsal_reaches_what_is_real",
    IN_WORLD,
)
"""Tests that look at every kind, and the run."""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program with one more kind of step, and its tests."""
    steps = changed(STEPS, "class Step(Strict):\n", MODEL)[STEPS]
    row = "| `note` | text |\n"
    places = {
        STEPS: steps.replace(*KEY, 1),
        EXECUTOR: EXECUTE,
        **changed(PAGE, row, row + ROW),
    }
    assert len(places) == 3, "what CONTRIBUTING's row names"
    own = {"site.yaml": SITE, "trial.yaml": BOOK, IN_WORLD: RUN}
    return copied_tree(tmp_path_factory.mktemp("tree"), {**places, **own})


def console(tree: Path, *words: str) -> str:
    done = python(tree, "-m", "console", "--site", "site.yaml", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_playbook_can_have_it_and_the_plan_shows_it(tree: Path) -> None:
    plan = console(tree, "plan", "trial.yaml")
    assert "1. ask: Ask a server" in plan
    assert "http: url http://127.0.0.1:8000/health, status 204" in plan
    console(tree, "lint", "trial.yaml")
    assert '"http"' in console(tree, "schema")
    assert "asks `url`" in console(tree, "schema", "--markdown").lower()


def test_a_rehearsal_asks_the_stand_in(tree: Path) -> None:
    moved = python(tree, "-c", MOVED)
    assert "http://127.0.0.1:18000/x" in moved.stdout, moved.stdout + moved.stderr


def test_what_holds_for_every_kind_holds_for_it_and_a_run_executes_it(tree: Path) -> None:
    done = python(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not full", *HOLDS)
    assert done.returncode == 0, done.stdout + done.stderr


def test_contributing_names_these_places_and_no_other() -> None:
    rows = (ROOT / "CONTRIBUTING.md").read_text().splitlines()
    row = next(row for row in rows if row.startswith("| a new step kind |"))
    places = re.findall(r"`([\w/]+/(?:\w+\.\w+)?)`", row)
    assert places == [STEPS, f"{Path(EXECUTOR).parent}/", PAGE]


def test_the_table_is_the_programs() -> None:
    assert "http" not in KINDS
