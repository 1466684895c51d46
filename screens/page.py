"""What every screen beside the run has: the baseline above, keys below, Esc back."""

from __future__ import annotations

import time

from screens.base import Base
from widgets.badge import BaselineBadge, badge, emergency
from widgets.options import KeyLine


class Page(Base[None]):
    """Compose `BaselineBadge()`, the content and `KeyLine()`; the rest is here."""

    SCOPE = "page"

    def on_mount(self) -> None:
        if not self.stands:
            return
        app = self.console
        app.run_changed.subscribe(self, lambda snapshot: self.redraw_frame())
        app.baseline_changed.subscribe(self, lambda view: self.redraw_frame())
        self.redraw_frame()
        self.stand()

    def on_resize(self) -> None:
        self.set_class(self.size.width < 80, "narrow")
        self.redraw_frame()
        self.call_after_refresh(self._redraw)

    def _redraw(self) -> None:
        if self.stands:
            self.redraw()

    @property
    def stands(self) -> bool:
        """Whether its parts are there: fast keys leave a page before it stood."""
        return bool(self.query(BaselineBadge))

    def stand(self) -> None:
        """The page is there: what it begins with."""

    def redraw(self) -> None:
        """Draw the content for the size there is."""

    def redraw_frame(self) -> None:
        """Badge and keys; cheap, only what changed is sent."""
        if not self.stands:
            return
        app = self.console
        line = self.query_one(BaselineBadge)
        width = line.size.width or self.app.size.width
        snapshot = app.snapshot
        live = snapshot is not None and snapshot.live
        climb = snapshot.climb if snapshot is not None else ""
        restore_s = snapshot.restore_s if snapshot is not None and live else None
        line.draw(
            badge(app.baseline, time.time(), width),
            emergency(live, climb, restore_s, app.desk.readonly, width),
            width,
        )
        self.query_one(KeyLine).draw(self.SCOPE, readonly=app.desk.readonly)
