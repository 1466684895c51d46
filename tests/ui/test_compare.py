"""Marking runs and seeing them side by side."""

from __future__ import annotations

import pytest

from console.journal.run_dir import RunDir
from screens.runs import CompareScreen, RunsScreen
from tests.run.unit import reported
from tests.ui import scene
from tests.ui.opened import Asked, console, said, settled
from widgets.rows import PickList, TextView


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
