"""Pictures of the screens: few, from fixed scenes. `pytest --snapshot-update` takes them anew."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from console.frontends.tui.app import ConsoleApp
from console.frontends.tui.watch.run import Snapshot
from console.journal.guard_status import NOBODY, GuardView, Lease
from tests.ui import scene
from tests.ui.opened import screen, settled
from widgets.log_pane import LogPane

SCENES: dict[str, Any] = {
    "running": scene.running, "approval": scene.approval, "failed": scene.failed,
    "ended": scene.ended, "warned": scene.running, "breached": scene.ended,
}  # fmt: skip
PICTURES = [
    ("running", (80, 24), ()), ("running", (120, 40), ()), ("running", (60, 20), ()),
    ("approval", (80, 24), ()), ("failed", (60, 20), ()), ("ended", (120, 40), ()),
    ("failed", (80, 24), ("r",)), ("failed", (80, 24), ("s",)), ("running", (80, 24), ("f12",)),
    ("running", (80, 24), ("question_mark",)), ("running", (80, 24), ("z",)),
    ("none", (80, 24), ()), ("none", (60, 20), ()),
    ("warned", (120, 40), ()), ("breached", (80, 24), ("b",)),
]  # fmt: skip
SAYS = {
    "r": "Retry up", "s": "Skip this step", "f12": "THE BASELINE SERVES",
    "question_mark": "Everywhere", "z": "task 72", "b": "killed candidate",
}  # fmt: skip
"""What stands on the screen that a key opens."""


CLOCKS = ("screens.operations", "screens.emergency", "screens.base",
          "widgets.bars", "widgets.steps")  # fmt: skip
STANDING = SimpleNamespace(
    time=lambda: scene.NOW, monotonic=lambda: 100.0, localtime=time.gmtime, strftime=time.strftime
)


@pytest.fixture(autouse=True)
def fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    for module in CLOCKS:
        monkeypatch.setattr(f"{module}.time", STANDING)


def guard_of(name: str, shot: Snapshot) -> GuardView:
    """The guard of a scene's run; a breach lies on the disk, from the boot before."""
    if shot.run is None:
        return NOBODY
    if name == "warned":
        reasons = ("RAM full in 18.2 s: 4.93 GB/s, 58.0 GiB left",)
        return scene.guard(
            shot.run, word="warn", tte_s=18.2, rate=4.93e9, reasons=reasons, at=96.0,
            lease=Lease(252.0),
        )  # fmt: skip
    if name == "breached":
        return scene.breached(shot.run)
    return GuardView(shot.run, "ended") if name == "ended" else scene.guard(shot.run)


def app_of(name: str, place: Path) -> ConsoleApp:
    shot, base = scene.nothing(), scene.baseline("serving", proven_at=0.0, tok_s=None)
    if name != "none":
        shot = scene.snapshot(scene.run_dir(place), SCENES[name]())
        base = scene.baseline("serving" if name == "ended" else "stopped", detail="exited (0)")
    watchers = scene.StandInWatchers(shot, base, scene.sample())
    watchers.guard.latest = guard_of(name, shot)
    return ConsoleApp(watchers)  # type: ignore[arg-type]


async def drawn(pilot: Any, keys: tuple[str, ...]) -> None:
    """Press these, and wait until the screen says where they lead and changes no more."""
    app, last, looks = pilot.app, "", 0
    pane, words = app.screen_stack[0].query_one(LogPane), "".join(SAYS[key] for key in keys)

    def stands() -> bool:
        nonlocal last, looks
        now = screen(pilot)
        same = now == last and words in now and pane._timer is None
        last, looks = now, looks + 1 if same else 0
        return looks == 5

    await settled(pilot, lambda: app.sample and (app.snapshot.run is None or pane.buffer))
    await pilot.press(*keys)
    await settled(pilot, stands)


@pytest.mark.parametrize(("name", "size", "keys"), PICTURES)
def test_picture(
    snap_compare: Any, tmp_path: Path, name: str, size: tuple[int, int], keys: tuple[str, ...]
) -> None:
    app = app_of(name, tmp_path)
    assert snap_compare(app, terminal_size=size, run_before=lambda pilot: drawn(pilot, keys))
