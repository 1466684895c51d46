"""What the run's screen shows of its guard: one line, and the page of a breach."""

from __future__ import annotations

import time

from console.journal.guard_status import ACTED, LOOKING, NOBODY, GuardView, number
from console.render.guard_text import lines
from screens.verbs import Verbs
from widgets.rows import Rows

NEWS_S = 30.0
"""A breach that is older when it is first seen does not open its page by itself."""


class Guarded(Verbs):
    """A screen with a `Rows(id="guard")` for the guard of the run on show."""

    breach_shown: tuple[object, ...] = ()

    @property
    def guard(self) -> GuardView:
        """What was read last; of another run it says nothing."""
        view: GuardView = self.console.desk.guard.latest
        snapshot = self.console.snapshot
        run = snapshot.run if snapshot is not None else None
        if run is None:
            return NOBODY
        same = view.run is not None and view.run.path == run.path
        return view if same else GuardView(run, LOOKING)

    def draw_guard(self) -> None:
        """The line, at each tick; only cells that changed are sent."""
        rows = self.query_one("#guard", Rows)
        width = rows.size.width or self.app.size.width
        rows.show(lines(self.guard, time.monotonic(), width))
        self._open_news()

    def _open_news(self) -> None:
        """A breach of this moment opens its page, once, where no dialog is in the way."""
        view = self.guard
        if view.word != ACTED or view.run is None or self.app.screen is not self:
            return
        at = number(view.breach.get("at"))
        key = (view.run.path, at)
        if key != self.breach_shown and at is not None and time.time() - at < NEWS_S:
            self.breach_shown = key
            self.action_breach()

    def action_breach(self) -> None:
        from screens.breach import BreachScreen

        snapshot = self.console.snapshot
        self.app.push_screen(BreachScreen(snapshot.run if snapshot is not None else None))
