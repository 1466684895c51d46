"""The pages beside the run: plan, preflight, report, runs, comparison, lessons, sources of logs."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Button, Input

from console.checks.lint.unit import Finding, Severity
from console.config.lessons.registry import due_by, load_registry
from console.frontends.tui.app import ConsoleApp
from console.frontends.tui.watch.watchers import mount_point
from console.journal.events import RunCreated
from console.journal.run_dir import RunDir
from console.journal.run_files import log_files
from console.runner import launch
from console.runner.prepare.admission import LintRefused
from screens import lessons as module
from screens.dialogs import AskScreen, FormField, FormScreen
from screens.lessons import LessonScreen, LessonsScreen, lesson_row
from screens.log_feed import sources
from screens.machine import PreflightScreen
from screens.playbooks import PlanScreen, plan_rows
from screens.runs import CompareScreen, RunsScreen
from tests.lessons.conftest import COUNT
from tests.runner.unit import reported
from tests.testbed import hub_shapes
from tests.testbed.hub import LocalHub
from tests.ui import scene
from tests.ui.opened import Asked, console, said, settled
from widgets.log_bars import LogPrompt
from widgets.rows import PickList, Row, Rows, TextView, width_of

OMNI = Path(__file__).parents[2] / "playbooks/sites/omni.yaml"
BOOK = """\
schema: omni.playbook/v1
name: again
title: Once more
lessons: [F-025]
phases: [{title: t, steps: [{id: go, run: [dynamo, serve]}]}]
"""
SITE = """\
schema: omni.site/v1
name: ws
baseline: {container: omni-baseline, url: "http://127.0.0.1:1"}
"""
DISTILL = "unsloth/DeepSeek-R1-Distill-Qwen-32B-GGUF"


def lines(rows: list[Row]) -> list[str]:
    return ["".join(part for part, _ in row) for row in rows]


def test_a_plan_keeps_the_outage_mark_on_every_line() -> None:
    long = "│       creates and starts a container of " + "omni-test/llama:cpu " * 8
    found = lines(plan_rows([long, "!  5. baseline:stop: Stop it"], 60))
    assert len(found) > 3
    assert all(line.startswith("│") for line in found[:-1])
    assert all(len(line) <= 60 for line in found)


def test_the_baseline_containers_log_stands_behind_the_services(tmp_path: Path) -> None:
    place = scene.run_dir(tmp_path)
    made = scene.running()
    place.attempt_log("archs", 1).write_text("x\n")
    logs = log_files(place, made, None)
    container = SimpleNamespace(path=tmp_path / "baseline-1-1.log")
    names = [log.name for log in sources(logs, container)]  # type: ignore[arg-type]
    assert names == ["candidate", "baseline", "output of archs", "the runner's own log"]
    assert sources((), None) == []


def test_mount_points_are_found_by_name(tmp_path: Path) -> None:
    table = tmp_path / "mounts"
    table.write_text("a / x r 0 0\nb /home x r 0 0\nc /home/my\\040disk x r 0 0\nd /ho x r 0 0\n")
    for path, mount in (
        ("/home/ann", "/home"), ("/homestead", "/"), ("/home/my disk/x", "/home/my disk"),
    ):  # fmt: skip
        assert mount_point(path, str(table)) == mount
    assert mount_point("/x", str(tmp_path / "none")) == "/"


@pytest.mark.parametrize("key", ["s", "x", "r"])
async def test_a_dialog_for_a_run_that_has_ended_goes(run: Path, asked: Asked, key: str) -> None:
    async with console(scene.failed(), run) as (app, pilot, watchers):  # type: ignore[arg-type]
        await pilot.press(key)
        assert len(app.screen_stack) == 2
        await pilot.press("f12")
        assert len(app.screen_stack) == 3
        shot = scene.snapshot(run, scene.ended())  # type: ignore[arg-type]
        watchers.tell(shot)
        await settled(pilot, lambda: app.snapshot is shot)
        await pilot.press("escape")
        await settled(pilot, lambda: len(app.screen_stack) == 1)
        assert asked == []


async def test_no_key_is_offered_before_the_runner_has_said_where_it_stands(run: Path) -> None:
    shot = scene.snapshot(run, scene.failed())  # type: ignore[arg-type]
    async with console(scene.failed(), run, control={}) as (app, pilot, watchers):  # type: ignore[arg-type]
        keys = app.screen.query_one("#keys")
        assert "Retry" not in keys.text  # type: ignore[attr-defined]
        watchers.tell(replace(shot))
        await settled(pilot, lambda: "Retry" in keys.text)  # type: ignore[attr-defined]


async def test_a_form_does_not_throw_away_what_was_typed_by_one_key(run: Path) -> None:
    answers: list[dict[str, str] | None] = []
    async with console(scene.failed(), run) as (app, pilot, _):
        app.push_screen(FormScreen("Inputs", [FormField("port", "8001")], "Go"), answers.append)
        await settled(pilot, lambda: isinstance(app.screen, FormScreen))
        await pilot.press("9", "escape")
        assert isinstance(app.screen, FormScreen)
        await pilot.press("0", "escape")
        assert isinstance(app.screen, FormScreen), "typing on takes the warning back"
        await pilot.press("escape")
        await settled(pilot, lambda: answers == [None])


# -- a plan that lint stops -----------------------------------------------------------------------


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "site.yaml").write_text(SITE)
    monkeypatch.setenv("OMNI_SITE", str(tmp_path / "site.yaml"))
    path = tmp_path / "again.yaml"
    path.write_text(BOOK)
    return path


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch, run: RunDir) -> list[dict[str, str]]:
    through: list[dict[str, str]] = []

    def launched(*_: object, overrides: Mapping[str, str], **__: Any) -> RunDir:
        if "known-blocker" not in overrides:
            what = "F-025 is rejected, and step go goes into it: \x1b[2Jequal nodes"
            raise LintRefused([
                Finding("again.yaml", 4, 11, "known-blocker", Severity.ERROR, what, "say why")
            ])  # fmt: skip
        through.append(dict(overrides))
        return run

    monkeypatch.setattr(launch, "begin", launched)
    return through


async def test_the_reason_is_asked_for_and_kept(
    book: Path, run: RunDir, begun: list[dict[str, str]]
) -> None:
    async with console(scene.ended(), run) as (app, pilot, _):
        page = PlanScreen(book)
        app.push_screen(page)
        await settled(pilot, lambda: page.preview is not None)
        assert "BLOCKER    F-025 is rejected" in page.query_one(TextView).text
        await pilot.press("S")
        await settled(pilot, lambda: isinstance(app.screen, AskScreen))
        await pilot.press("enter")
        assert isinstance(app.screen, AskScreen), "no reason, no start"
        await pilot.press("escape")
        assert (app.screen, begun) == (page, [])
        assert "--override known-blocker=WHY" in page.query_one(TextView).text
        await pilot.press("S")
        await settled(pilot, lambda: isinstance(app.screen, AskScreen))
        await pilot.press(*"new", "enter")
        await settled(pilot, lambda: begun)
        assert begun == [{"known-blocker": "new"}]


# -- the preflight screen ---------------------------------------------------------------------


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[LocalHub]:
    with LocalHub() as made:
        made.add(hub_shapes.repo(DISTILL))
        monkeypatch.setenv("HF_ENDPOINT", made.url)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
        yield made


@pytest.mark.parametrize(("repo", "verdict"), [(DISTILL, "UNKNOWN"), ("example/nobody", "")])
async def test_a_repository_is_asked_about_and_answered(
    hub: LocalHub, run: Path, repo: str, verdict: str
) -> None:
    async with console(scene.ended(), run) as (app, pilot, watchers):
        watchers.site = str(OMNI)
        await pilot.press("5", "enter")
        await settled(pilot, lambda: isinstance(app.screen, FormScreen))
        app.screen.query(Input).first().value = repo
        app.screen.query_one(Button).press()
        await settled(pilot, lambda: isinstance(page := app.screen, PreflightScreen) and page.shown)
        page = app.screen
        assert isinstance(page, PreflightScreen)
        assert page.shown is not None
        text = "\n".join(page.shown.lines)
        assert (page.shown.verdict, bool(text)) == (verdict, True)
        if verdict:
            assert "architecture: qwen2" in text
            assert "18.5 GiB (19.9 GB)" in text
            assert "UNKNOWN" in page.head(80)[0][0][0]
            words = page.query_one(TextView).text
            assert words.startswith("UNKNOWN: the build"), "its image is not on this machine"


async def test_what_of_a_repository_fits(hub: LocalHub, run: Path) -> None:
    async with console(scene.ended(), run) as (app, pilot, watchers):
        watchers.site = str(OMNI)
        await pilot.press("5", "w")
        await settled(pilot, lambda: isinstance(app.screen, FormScreen))
        app.screen.query(Input).first().value = DISTILL
        app.screen.query_one(Button).press()
        await settled(pilot, lambda: isinstance(page := app.screen, PreflightScreen) and page.shown)
        page = app.screen
        assert isinstance(page, PreflightScreen)
        assert page.shown is not None
        text = "\n".join(page.shown.lines)
        assert page.shown.verdict == "UNKNOWN", text
        assert "whether it has the tokenizer deepseek-r1-qwen" in " ".join(text.split())


# -- the lessons: the list, a search, one lesson, and what bears on a step -------------------------

REGISTRY = cache(load_registry)
"""What ships, read once: nobody has lessons of their own here."""


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr("console.config.lessons.registry.load_registry", REGISTRY)
    monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: scene.NOW))


async def opened(app: ConsoleApp, pilot: Pilot[None]) -> LessonsScreen:
    await pilot.press("6")
    await settled(pilot, lambda: isinstance(app.screen, LessonsScreen))
    page = app.screen
    assert isinstance(page, LessonsScreen)
    await settled(pilot, lambda: len(page.lessons) == COUNT)
    return page


async def test_the_list_is_searched_and_one_is_read(run: RunDir) -> None:
    async with console(scene.ended(), run) as (app, pilot, _):
        page = await opened(app, pilot)
        await pilot.press("slash")
        assert page.query_one(LogPrompt).asking
        await pilot.press(*"shallow", "enter")
        await settled(pilot, lambda: page.lessons[0].id == "F-013")
        assert len(page.lessons) < COUNT
        await pilot.press("enter")
        await settled(pilot, lambda: isinstance(app.screen, LessonScreen))
        view = app.screen.query_one(TextView)
        await settled(pilot, lambda: "F-013  A shallow clone breaks" in view.text)
        await pilot.press("escape")
        assert app.screen is page
        await pilot.press("escape")
        await settled(pilot, lambda: len(page.lessons) == COUNT)
        await pilot.press("d")
        on_review = sum(due_by(lesson, module.today()) for lesson in REGISTRY().lessons)
        await settled(pilot, lambda: len(page.lessons) == on_review, "what is due only")
        assert 0 < on_review < COUNT
        await pilot.press("d")
        await settled(pilot, lambda: len(page.lessons) == COUNT)
        await pilot.press("slash", *"zebra", "enter")
        await settled(pilot, lambda: page.lessons == [])
        assert f"0 of {COUNT}" in page.query_one("#head", Rows).text
        await pilot.press("enter")
        assert app.screen is page, "nothing to open"
        await pilot.press("escape", "escape")
        await settled(pilot, lambda: len(app.screen_stack) == 1)


async def test_what_bears_on_the_step_stands_first(run: RunDir) -> None:
    made = scene.failed()
    made.steps[5].lessons = ["F-024 ik_llama.cpp's graph split – no MoE"]
    made.header = RunCreated(lessons=["F-002", "7"])
    async with console(made, run) as (app, pilot, _):
        assert "lesson F-024" in app.screen.query_one("#detail", TextView).text
        page = await opened(app, pilot)
        assert [one.id for one in page.lessons[:3]] == ["F-002", "F-024", "F-001"]


def test_rows_keep_to_the_width() -> None:
    for lesson in REGISTRY().lessons:
        for width in (39, 59, 119):
            assert width_of(lesson_row(lesson, width, here=width == 59)) <= width


# -- runs side by side -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> list[RunDir]:
    """Three attempts: two that ended, and one whose journal is gone; no test changes them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        found = [
            reported.kept(reported.no_go_rows()),
            reported.kept(reported.soaked_rows(), inputs={"split": "layer", "port": 8001}),
            reported.kept(reported.no_go_rows()),
        ]
    for path in found[2].path.glob("journal.db*"):
        path.unlink()
    return found


@pytest.fixture
def three(kept: list[RunDir], monkeypatch: pytest.MonkeyPatch) -> list[RunDir]:
    """The three attempts, in the place where the console looks for runs."""
    monkeypatch.setenv("XDG_STATE_HOME", str(kept[0].path.parents[2]))
    return kept


@pytest.mark.parametrize("size", [(60, 20), (200, 50)])
async def test_marked_runs_are_compared(
    run: RunDir, three: list[RunDir], asked: Asked, size: tuple[int, int]
) -> None:
    async with console(scene.ended(), run, size=size) as (app, pilot, _):
        await pilot.press("3")
        page = app.screen
        assert isinstance(page, RunsScreen)
        picker = page.query_one(PickList)
        await settled(pilot, lambda: len(picker.text.splitlines()) == 3)
        await pilot.press("c")
        assert said(app)
        at = {row.id: n for n, row in enumerate(page.rows)}
        for made in three:
            await pilot.press("g", *"j" * at[made.id], "space")
        assert "cannot be read" in said(app)
        assert page.marked == {three[0].id, three[1].id}
        assert picker.text.count("● ") == 2
        await pilot.press("c")
        assert isinstance(app.screen, CompareScreen)
        view = app.screen.query_one(TextView)
        await settled(pilot, lambda: "split" in view.text)
        words = " ".join(view.text.split())
        for wanted in (
            "6.1 tok/s (-43.3 %)", "21.34 tok/s (+98.5 %)", "misses >= 20 tok/s",
            "the same in all: port=8001", "NO-GO (retain)",
        ):  # fmt: skip
            assert wanted in words
        assert all(len(line) <= size[0] for line in view.text.splitlines())
        await pilot.press("escape")
        assert app.screen is page
        assert asked == []
        page._loaded([row for row in page.rows if row.id != three[1].id])
        assert page.marked == {three[0].id}, "a mark goes with its run"
        app.push_screen(CompareScreen([one.id for one in three]))
        await settled(pilot, lambda: app.screen.query("#text"))
        view = app.screen.query_one("#text", TextView)
        await settled(pilot, lambda: "split" in view.text)
        assert f"{three[2].id}: the journal cannot be read" in " ".join(view.text.split())
