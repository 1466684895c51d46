"""A plan that lint stops: the console asks for the reason, and starts with it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from console.lint.finding import Finding, Severity
from console.lint.load import LintRefused
from console.run.directory import RunDir
from screens.ask import AskScreen
from screens.plan import PlanScreen
from tests.ui import scene
from tests.ui.opened import console, settled
from widgets.pick_list import TextView

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
    """Overrides of each attempt that lint let through."""
    from console.viewer import begin

    through: list[dict[str, str]] = []

    def launched(*_: object, overrides: Mapping[str, str], **__: Any) -> RunDir:
        if "known-blocker" not in overrides:
            what = "F-025 is rejected, and step go goes into it: \x1b[2Jequal nodes"
            raise LintRefused([
                Finding("again.yaml", 4, 11, "known-blocker", Severity.ERROR, what, "say why")
            ])  # fmt: skip
        through.append(dict(overrides))
        return run

    monkeypatch.setattr(begin, "begin", launched)
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
