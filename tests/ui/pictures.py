"""`python -m tests.ui.pictures`: the README's pictures, exported by the app from fixed scenes."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("TEXTUAL_ANIMATIONS", "none")
os.environ["TZ"] = "UTC"

import screens.breach
import screens.guarded
import screens.operations
import screens.page
import widgets.badge
import widgets.step_text
from console.app import ConsoleApp
from tests.ui import scene
from widgets.log_pane import LogPane

PLACE = Path(__file__).resolve().parents[2] / "docs" / "screens"
PICTURES: dict[str, tuple[Any, tuple[int, int], tuple[str, ...]]] = {
    "running": (scene.running, (100, 30), ()),
    "approval": (scene.approval, (100, 30), ()),
    "failed": (scene.failed, (60, 20), ()),
    "rollback": (scene.running, (100, 24), ("f12",)),
    "breach": (scene.ended, (100, 30), ("b",)),
}


async def take(name: str, place: Path) -> None:
    """One picture into docs/screens."""
    made, size, keys = PICTURES[name]
    shot = scene.snapshot(scene.run_dir(place), made())
    base = scene.baseline("stopped", detail="exited (0)")
    desk = scene.StandInDesk(shot, base, scene.sample())
    desk.guard.latest = scene.guard(shot.run)
    if name == "breach":
        desk.guard.latest = scene.breached(shot.run)
    app = ConsoleApp(desk)  # type: ignore[arg-type]
    async with app.run_test(size=size) as pilot:
        while app.sample is None or not len(app.screen_stack[0].query_one(LogPane).buffer):
            await pilot.pause(0.02)
        await pilot.press(*keys)
        await pilot.pause(0.5)
        (PLACE / f"{name}.svg").write_text(app.export_screenshot(title="omni-console"), "utf-8")


def main() -> None:
    time.tzset()
    still = SimpleNamespace(
        time=lambda: scene.NOW, monotonic=lambda: 100.0, localtime=time.gmtime,
        strftime=time.strftime,
    )  # fmt: skip
    for module in (
        screens.operations, screens.guarded, screens.breach, screens.page, widgets.badge,
        widgets.step_text,
    ):  # fmt: skip
        module.time = still  # type: ignore[attr-defined]
    PLACE.mkdir(parents=True, exist_ok=True)
    for name in PICTURES:
        with tempfile.TemporaryDirectory() as place:
            asyncio.run(take(name, Path(place)))


if __name__ == "__main__":
    main()
