"""Pictures of the screens: few, from fixed scenes. `pytest --snapshot-update` takes them anew."""

import re
from pathlib import Path
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
    "loading": scene.loading, "held": scene.held, "idle": scene.ended, "ended": scene.ended,
    "warned": scene.running, "breached": scene.ended,
}  # fmt: skip
SIZES = ((80, 24), (140, 42), (200, 60))
EVERYWHERE = [
    ("idle", ()), ("loading", ()), ("running", ()), ("approval", ()), ("held", ()), ("failed", ()),
    ("breached", ("b",)), ("running", ("f12",)), ("ended", ()), ("none", ()),
]  # fmt: skip
"""Scenes, and keys that lead on, of which there is a picture in every size."""


def picture(name: str, size: tuple[int, int], *keys: str, rare: bool = False) -> Any:
    """A case; a `rare` one is only taken in the whole suite."""
    called = "-".join([name, f"{size[0]}x{size[1]}", *keys])
    return pytest.param(name, size, keys, id=called, marks=pytest.mark.full if rare else ())


PICTURES = [
    *(picture(name, SIZES[0], *keys) for name, keys in EVERYWHERE),
    *(picture(name, size, *keys, rare=(name, keys) != ("running", ()))
      for name, keys in EVERYWHERE for size in SIZES[1:]),
    picture("running", (60, 20)), picture("failed", (60, 20)), picture("none", (60, 20)),
    picture("warned", (140, 42)), picture("failed", (80, 24), "r"),
    picture("failed", (80, 24), "s", rare=True), picture("running", (80, 24), "z", rare=True),
    picture("running", (80, 24), "question_mark", rare=True),
]  # fmt: skip
SAYS = {
    "r": "Retry up", "s": "Skip this step", "f12": "THE BASELINE SERVES",
    "question_mark": "Everywhere", "z": "task 72", "b": "killed candidate",
}  # fmt: skip
"""What stands on the screen that a key opens."""


@pytest.fixture(autouse=True)
def fixed(standing_clock: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("screens.run_panels.EARLIER_S", 0.001)


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
    return GuardView(shot.run, "ended") if shot.view.over else scene.guard(shot.run)


def app_of(name: str, place: Path) -> ConsoleApp:
    shot, base = scene.nothing(), scene.baseline("serving", proven_at=0.0, figure=None)
    if name != "none":
        shot = scene.snapshot(scene.run_dir(place), SCENES[name]())
        base = scene.baseline()
        if not shot.view.over:
            base = scene.baseline("down", planned=True, detail="for this run")
    watchers = scene.StandInWatchers(shot, base, scene.sample())
    watchers.guard.latest = guard_of(name, shot)
    watchers.recorded = scene.recorded()
    return ConsoleApp(watchers)  # type: ignore[arg-type]


async def drawn(pilot: Any, keys: tuple[str, ...]) -> None:
    """Press these, and wait until the screen says where they lead and changes no more."""
    app, last, looks = pilot.app, "", 0
    words = "".join(SAYS[key] for key in keys)
    await settled(pilot, lambda: app.screen_stack[0].query(LogPane))
    pane = app.screen_stack[0].query_one(LogPane)

    def stands() -> bool:
        nonlocal last, looks
        now = screen(pilot)
        same = now == last and words in now and pane._timer is None
        last, looks = now, looks + 1 if same else 0
        return looks == 5

    await settled(pilot, lambda: app.sample and (app.snapshot.run is None or pane.buffer))
    home = app.screen_stack[0]
    if home.has_class("boxed"):
        asked = "playbooks" if app.snapshot.run is None else "earlier"
        await settled(pilot, lambda: getattr(home, asked))
    await pilot.press(*keys)
    await settled(pilot, stands)


@pytest.mark.parametrize(("name", "size", "keys"), PICTURES)
def test_picture(
    snap_compare: Any, tmp_path: Path, name: str, size: tuple[int, int], keys: tuple[str, ...]
) -> None:
    app = app_of(name, tmp_path)
    assert snap_compare(app, terminal_size=size, run_before=lambda pilot: drawn(pilot, keys))


@pytest.mark.full
async def test_the_pictures_of_the_docs_are_of_this_program() -> None:
    from tests.ui.pictures import PLACE, pictures

    for name, drawing in (await pictures()).items():
        kept = (PLACE / name).read_text("utf-8")
        assert words_of(drawing) == words_of(kept), f"make golden writes {name} anew"


def words_of(drawing: str) -> list[str]:
    """What stands in a picture, without its colours and measures."""
    return re.findall(r"<text[^>]*>([^<]*)<", drawing)
