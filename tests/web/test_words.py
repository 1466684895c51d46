"""What the status page is told of each scene, and what the command prints, as a whole."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from console.frontends.cli import web as command
from console.frontends.web.access import LINK_S
from console.frontends.web.facts import Seen, facts
from tests.ui import scene


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    "name", ["nothing", "running", "loading", "held", "approval", "failed", "ended"]
)
def test_the_status_page(tmp_path: Path, snapshot: SnapshotAssertion, name: str) -> None:
    run = scene.run_dir(tmp_path)
    made = None if name == "nothing" else getattr(scene, name)()
    shot = scene.nothing() if made is None else scene.snapshot(run, made, logs=())
    seen = Seen(
        shot, scene.baseline(), scene.sample(), scene.guard(shot.run), None, scene.NOW, 100.0
    )
    assert facts(seen, write=True) == snapshot


def test_the_command(snapshot: SnapshotAssertion, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "workstation")
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    base = "http://127.0.0.1:8765"
    said = [command._words(False, None, base, False)]
    said += [command._words(True, Path("/run/user/1000/web"), "http://localhost:8765", True)]
    monkeypatch.setenv("SSH_CONNECTION", "192.0.2.1 1 192.0.2.2 22")
    said += [command._words(True, None, base, True)]
    said += [command._words(True, None, "http://[::1]:8765", True)]
    assert said == snapshot
    (way,) = command._words(True, Path("/my files/web"), "http://localhost:8765", True)[1:]
    assert way.endswith(": ssh -L '8765:/my files/web' workstation"), "as a shell takes it"
    assert LINK_S == 15 * 60, "as the link's line and the handbook say"
