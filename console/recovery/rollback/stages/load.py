"""How far the load of a baseline is that is waited for, and whether its processes work at it."""

from __future__ import annotations

import contextlib
from pathlib import Path

from console.common.progress import Figures
from console.host.process import BASELINE_COOKIE
from console.recovery.rollback.stages.start import Baseline
from console.runtime.loading import Loading, Work, of_service
from console.runtime.probe import Health
from console.runtime.spec import ExistingContainer, Handle

NOTE_S = 2.0
"""Seconds between two looks at a load, and two reports of how far it is."""


class Load:
    """One wait for a baseline to be ready."""

    def __init__(self, baseline: Baseline) -> None:
        self.baseline = baseline
        self.context = baseline.context
        self._state: Health | None = None
        self._progress: Figures | None = None
        self._far_at = 0.0
        self._work, self._worked_at = Work(), float("-inf")
        self._loads: tuple[str, Loading] | None = None

    def look(self, state: Health, detail: str) -> None:
        """Report a state that has changed, and every NOTE_S how far the load is. A fault here must
        not end the wait."""
        now, report = self.context.clock.monotonic(), self.context.report
        if now - self._worked_at >= NOTE_S:
            self._worked_at = now
            with contextlib.suppress(Exception):
                self._work.look(self.baseline.own_pids(), now)
        if state != self._state:
            self._state, self._far_at = state, now
            report.note("ready", f"{state}: {detail}")
        elif now - self._far_at >= NOTE_S:
            self._far_at = now
            with contextlib.suppress(Exception):
                progress = self._load().look()
                if progress is not None and progress != self._progress:
                    self._progress = progress
                    fields = {"done": progress.done, "total": progress.total, "unit": progress.unit}
                    report.say("ready", "note", f"{state}: {detail}", fields)

    def goes_on(self, within_s: float) -> bool:
        """Whether its processes were seen to work within so many seconds. Where nobody sees them,
        what it says of itself counts."""
        if self.baseline.running() is False:
            return False
        if not self._work.known:
            return self._state is Health.LOADING
        seen = self._work.seen_at
        return seen is not None and self.context.clock.monotonic() - seen < within_s

    def _load(self) -> Loading:
        """The load of what was started last, as far as that is known: nothing is asked for it."""
        plan, known = self.baseline.plan, self.baseline.inspected or {}
        life = f"{self.baseline.process} {(known.get('State') or {}).get('StartedAt')}"
        if self._loads is None or self._loads[0] != life:
            pid, start = self.baseline.process or (0, 0)
            handle = Handle("baseline", plan.kind, str(known.get("Id") or ""), "", pid, start)
            load = of_service(
                handle, plan.process or ExistingContainer(""),
                Path(plan.log) if plan.log else None, self.context.clock,
                cookie=BASELINE_COOKIE, inspected=lambda: known,
            )  # fmt: skip
            self._loads = (life, load)
        return self._loads[1]
