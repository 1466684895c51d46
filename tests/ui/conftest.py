"""Fixtures of the screens' tests."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# Read by Textual at its import, as the console's own start does.
os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")
os.environ.setdefault("TEXTUAL_FPS", "60")

from console.journal.run_dir import RunDir
from console.runner.prepare.catalog import Entry
from tests.ui import scene
from tests.ui.opened import Asked, at_rest
from tests.ui.place import Place, placed


def full(*case: object) -> Any:
    """A case for the whole suite: another one stands for it in the first tier."""
    return pytest.param(*case, marks=pytest.mark.full)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pilot waits for what the app does, not for an idle processor."""
    monkeypatch.setattr("textual.app.wait_for_idle", at_rest)
    monkeypatch.setattr("textual.pilot.wait_for_idle", at_rest)
    monkeypatch.setattr("widgets.bars.SAY_S", 3600.0)  # what is said stays until it is read
    monkeypatch.setattr("screens.emergency.POLL_S", 0.01)
    monkeypatch.setattr("screens.runs.REFRESH_S", 0.05)


@pytest.fixture
def standing_clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every face reads the scenes' time, so that no age grows while a test looks."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        for module in scene.CLOCKS:
            patch.setattr(f"{module}.time", scene.STANDING)
        yield
    time.tzset()


@pytest.fixture(autouse=True)
def _no_fleet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No host of whoever runs the tests is asked anything."""
    monkeypatch.setenv("OMNI_FLEET", str(tmp_path / "fleet.yaml"))


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return scene.run_dir(tmp_path)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A site of stand-in servers whose baseline serves."""
    with placed(tmp_path / "place") as made:
        yield made


@pytest.fixture
def few_playbooks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ships is not read anew each time the list of playbooks opens."""
    found = [
        Entry(Path(f"/x/{name}.yaml"), name, f"The {name}", source="shipped", problem=problem)
        for name, problem in (("demo", ""), ("trial", ""), ("broken", "line 14: no"))
    ]
    monkeypatch.setattr("console.runner.prepare.catalog.entries", lambda *_, **__: list(found))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """The verbs that reached the control socket; the stand-in accepts each."""
    sent: Asked = []

    def ask(snapshot: object, verb: str, **words: Any) -> str:
        sent.append((verb, words))
        return ""

    monkeypatch.setattr("screens.actions.ask", ask)
    monkeypatch.setattr("screens.actions.READ_S", 0.0)
    return sent
