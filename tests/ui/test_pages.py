"""What the pages beside the run say: plan, report, runs, sources of the log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from console.viewer.desk import mount_point
from console.viewer.logs import log_files
from screens.log_feed import sources
from screens.plan import plan_rows
from tests.ui import scene
from tests.ui.opened import Asked, console, settled
from widgets.rows import Row


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
    async with console(scene.failed(), run) as (app, pilot, desk):  # type: ignore[arg-type]
        await pilot.press(key)
        assert len(app.screen_stack) == 2
        await pilot.press("f12")
        assert len(app.screen_stack) == 3
        shot = scene.snapshot(run, scene.ended())  # type: ignore[arg-type]
        desk.tell(shot)
        await settled(pilot, lambda: app.snapshot is shot)
        await pilot.press("escape")
        await settled(pilot, lambda: len(app.screen_stack) == 1)
        assert asked == []


async def test_no_key_is_offered_before_the_runner_has_said_where_it_stands(run: Path) -> None:
    shot = scene.snapshot(run, scene.failed())  # type: ignore[arg-type]
    async with console(scene.failed(), run, desk={}) as (app, pilot, desk):  # type: ignore[arg-type]
        keys = app.screen.query_one("#keys")
        assert "Retry" not in keys.text  # type: ignore[attr-defined]
        desk.tell(replace(shot))
        await settled(pilot, lambda: "Retry" in keys.text)  # type: ignore[attr-defined]


async def test_a_form_does_not_throw_away_what_was_typed_by_one_key(run: Path) -> None:
    from screens.form import FormField, FormScreen

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
