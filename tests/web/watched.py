"""Watchers that see what a test gives them, and a desk in front of them."""

from types import SimpleNamespace
from typing import Any

from console.common.clock import Clock
from console.frontends.tui.watch.emergency import Press
from console.frontends.tui.watch.progress import RollbackProgress
from console.frontends.tui.watch.run import Snapshot
from console.frontends.web.desk import Desk
from console.journal.guard_status import NOBODY
from tests.clock import FakeClock
from tests.ui import scene


class Watched:
    """The watchers as a desk uses them: what they saw is given, and presses are counted."""

    def __init__(self, shot: Snapshot | None, clock: Clock) -> None:
        self.shot, self.pressed, self.closed, self.made = shot, 0, 0, 0
        self.looked = 0
        self.options: dict[str, Any] = {}
        self.guard = SimpleNamespace(latest=NOBODY)
        self.watch = SimpleNamespace(look=self._look)
        self.emergency = SimpleNamespace(press=self._press)
        self._clock = clock
        self.progress = RollbackProgress(None, None, 0, False, clock)

    def __call__(self, **options: Any) -> Any:
        self.made, self.options = self.made + 1, options
        return self

    def _look(self) -> None:
        self.looked += 1

    def _press(self) -> Press:
        self.pressed += 1
        return Press(self._clock.now(), "warm", self.progress)

    def first(self) -> Snapshot | None:
        return self.shot

    def start(self, run_seen: Any, baseline: Any, sample: Any, recorded: Any) -> None:
        self.see = run_seen
        baseline(scene.baseline())
        sample(scene.sample(self._clock.monotonic()))

    def follow(self, snapshot: Snapshot) -> None:
        self.shot = snapshot

    def close(self) -> None:
        self.closed += 1


Sent = list[tuple[Snapshot, str, dict[str, str]]]


def made(shot: Snapshot | None, *, write: bool = True) -> tuple[Desk, Watched, FakeClock]:
    clock = FakeClock(scene.NOW)
    watched = Watched(shot, clock)
    desk = Desk(site="/s.yaml", write=write, clock=clock, watch=watched)
    desk.look()
    return desk, watched, clock


def some_id(shot: Snapshot) -> str:
    assert shot.run is not None
    return shot.run.id
