"""The console's app opened on a scene, and waiting for what it does."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from textual._context import active_app
from textual.pilot import Pilot

from console.frontends.tui.app import ConsoleApp
from console.journal.guard_status import GuardView
from console.journal.run_dir import RunDir
from console.journal.run_view import RunView
from tests.ui import scene
from tests.waiting import LIMIT_S, ran_out
from widgets.bars import KeyLine
from widgets.rows import TextView

Asked = list[tuple[str, dict[str, Any]]]
"""Verbs that reached the control socket, with what went with each."""
FRAMES = 200
"""More than any key leads to: an app that paints for ever is not waited for."""


async def at_rest(min_sleep: float = 0.0, max_sleep: float = 0.0) -> None:
    """In place of Textual's `wait_for_idle`, which sleeps until this process needs little of the
    processor: 20 ms for every look, and a second while anything else is at work in it.

    Turns the event loop until nothing is ready, no key is on its way and nothing is unpainted.
    What waits for a timer, a thread or another process is not waited for.
    """
    app = active_app.get()
    ready = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
    for _ in range(FRAMES):
        await asyncio.sleep(0)
        while ready:
            await asyncio.sleep(0)
        if not app.is_running or not app.screen_stack:
            return
        turns, screen = getattr(app, "turns", None), app.screen
        if turns is not None and turns._busy:
            await asyncio.sleep(0.001)
        elif (
            screen._layout_required or screen._scroll_required or screen._repaint_required
            or screen._dirty_widgets or screen._recompose_required or screen._callbacks
        ):  # fmt: skip
            screen._on_timer_update()
        else:
            return


async def settled(pilot: Pilot[Any], true: Callable[[], object], what: str = "") -> None:
    deadline = time.monotonic() + LIMIT_S
    while not true():
        if time.monotonic() >= deadline:
            raise AssertionError(ran_out(what or repr(true), LIMIT_S, lambda: screen(pilot)))
        await pilot.pause(0.005)


def screen(pilot: Pilot[Any]) -> str:
    strips = pilot.app.screen._compositor.render_strips()
    return "\n".join(strip.text for strip in strips)


@asynccontextmanager
async def console(
    made: RunView | None,
    run: RunDir | None,
    *,
    readonly: bool = False,
    size: tuple[int, int] = (80, 24),
    guard: GuardView | None = None,
    **changes: Any,
) -> AsyncIterator[tuple[ConsoleApp, Pilot[int], scene.StandInWatchers]]:
    """The app on a run's scene, or on none; `changes` to the snapshot's fields."""
    shot = scene.snapshot(run, made, **changes) if made is not None else scene.nothing()
    watchers = scene.StandInWatchers(shot, scene.baseline(), scene.sample(), readonly=readonly)
    if guard is not None:
        watchers.guard.latest = guard
    app = ConsoleApp(watchers)  # type: ignore[arg-type]
    async with app.run_test(size=size, notifications=True) as pilot:
        await settled(pilot, lambda: app.sample is not None)
        await pilot.pause()
        yield app, pilot, watchers


def said(app: ConsoleApp) -> str:
    lines = [line.words for line in app.screen.query(KeyLine)]
    return " | ".join([*lines, *(notice.message for notice in app._notifications)])


def shown(app: ConsoleApp) -> str:
    """What the page in front says; "" before it stands."""
    return "\n".join(view.text for view in app.screen.query(TextView))
