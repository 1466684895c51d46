"""The preflight screen: it asks, it answers, and what cannot be known is said."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.widgets import Button, Input

from screens.form import FormScreen
from screens.preflight import PreflightScreen
from tests.testbed import hub_shapes
from tests.testbed.hub import LocalHub
from tests.ui import scene
from tests.ui.opened import console, settled
from widgets.pick_list import TextView

SITE = Path(__file__).parents[2] / "playbooks/sites/omni.yaml"
DISTILL = "unsloth/DeepSeek-R1-Distill-Qwen-32B-GGUF"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[LocalHub]:
    with LocalHub() as made:
        made.add(hub_shapes.repo(DISTILL))
        monkeypatch.setenv("HF_ENDPOINT", made.url)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
        yield made


async def test_a_repository_is_asked_about_and_answered(hub: LocalHub, run: Path) -> None:
    async with console(scene.ended(), run) as (app, pilot, desk):
        desk.site = str(SITE)
        await pilot.press("5")
        await settled(pilot, lambda: isinstance(app.screen, FormScreen))
        app.screen.query(Input).first().value = DISTILL
        app.screen.query_one(Button).press()
        await settled(pilot, lambda: isinstance(app.screen, PreflightScreen))
        page = app.screen
        assert isinstance(page, PreflightScreen)
        await settled(pilot, lambda: page.shown is not None)
        assert page.shown is not None
        text = "\n".join(page.shown.lines)
        assert page.shown.verdict == "GO", text
        assert "architecture: qwen2" in text
        assert "18.5 GiB (19.9 GB)" in text
        assert "GO" in page._head()[0][0]
        assert page.query_one(TextView).text.startswith("GO: ")


async def test_what_cannot_be_had_is_an_answer_too(hub: LocalHub, run: Path) -> None:
    async with console(scene.ended(), run) as (app, pilot, desk):
        desk.site = str(SITE)
        await pilot.press("5")
        await settled(pilot, lambda: isinstance(app.screen, FormScreen))
        app.screen.query(Input).first().value = "example/nobody"
        app.screen.query_one(Button).press()
        page = app.screen_stack[-2]
        assert isinstance(page, PreflightScreen)
        await settled(pilot, lambda: page.shown is not None)
        assert page.shown is not None
        assert page.shown.verdict == ""
        assert page.shown.lines
