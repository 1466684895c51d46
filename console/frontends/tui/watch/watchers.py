"""All watchers of one console together, and whether somebody may be at its terminal."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import termios
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from console.common import paths
from console.common.clock import Clock, SystemClock
from console.frontends.tui.watch.baseline import BaselineView, BaselineWatch
from console.frontends.tui.watch.baseline_container import BaselineLog
from console.frontends.tui.watch.emergency import Emergency
from console.frontends.tui.watch.run import RunWatch, Snapshot
from console.host import children
from console.host.sample import Sample
from console.journal.guard_status import GuardWatch
from console.journal.run_files import LogFile

if TYPE_CHECKING:
    from console.frontends.tui.watch.history import RunRow
    from console.host.sampler import Sampler
    from console.journal.run_dir import RunDir
    from console.journal.run_view import RunView
    from console.journal.samples import Gauge
    from console.runner.prepare.catalog import Entry


ASK_EVERY_S = 5.0
ANSWER_S = 1.0
CLIENTS = "#{?session_grouped,#{session_group_attached},#{session_attached}}"
UNSEEN = (1, 1)
"""Width and height in pixels that a terminal has while its page in a browser is in the background:
no screen is so small."""
Ask = Callable[[tuple[str, ...], Mapping[str, str]], str]

FIRST_S = 0.25
"""Seconds that the first frame waits for the journal."""


class Attendance:
    """Whether somebody may be at this terminal, which renews a run's lease.

    `there()` asks tmux at most every ASK_EVERY_S; it may take ANSWER_S: not on the UI loop.

    A terminal inside tmux or GNU screen outlives the operator's connection; then tmux has to say
    that a client shows it, and screen that it is attached. A plain terminal ends with its
    connection; one in a browser says whether its page is in the background.
    """

    def __init__(
        self, clock: Clock | None = None, environment: Mapping[str, str] | None = None,
        ask: Ask | None = None, pixels: Callable[[], tuple[int, int]] | None = None,
    ) -> None:  # fmt: skip
        self._clock = clock or SystemClock()
        self._environment = os.environ if environment is None else environment
        self._ask = ask or output_of
        self._pixels = pixels or pixels_here
        self._asked_at = float("-inf")
        self._there = True

    def there(self) -> bool:
        """False only if it is known that nobody sees this terminal."""
        pane, session = (self._environment.get(name, "") for name in ("TMUX_PANE", "STY"))
        inside = pane if self._environment.get("TMUX") else ""
        if not inside and not session:
            return self._pixels() != UNSEEN
        now = self._clock.monotonic()
        if now - self._asked_at >= ASK_EVERY_S:
            self._asked_at = now
            if inside:
                argv = ("tmux", "display-message", "-p", "-t", inside, CLIENTS)
                self._there = self._ask(argv, self._environment).strip() != "0"
            else:
                words = self._ask(("screen", "-ls", session), self._environment)
                self._there = "(Attached)" in words
        return self._there


def output_of(argv: tuple[str, ...], environment: Mapping[str, str]) -> str:
    """The output of a command; "" if it gives none in time."""
    try:
        return children.run(argv, ANSWER_S, env=environment)[1].decode("utf-8", "replace")
    except (OSError, subprocess.SubprocessError):
        return ""


def pixels_here() -> tuple[int, int]:
    """Width and height of this terminal in pixels; zeros where it has none or does not say."""
    try:
        size = fcntl.ioctl(0, termios.TIOCGWINSZ, b"\0" * 8)
    except OSError:
        return 0, 0
    _, _, width, height = struct.unpack("HHHH", size)
    return width, height


def load() -> None:
    """Load what `Watchers.start` needs, where that is not to wait for the first frame."""
    from console.host import sampler  # noqa: F401


class Watchers:
    """All watchers of the app: they start, follow a run and end together. They start reading before
    there is a screen, so that the first frame is full."""

    def __init__(
        self, *, site: str | None = None, readonly: bool = False, run: RunDir | None = None,
        there: Callable[[], bool] | None = None,
    ) -> None:  # fmt: skip
        """`there`: whether an operator is looking; by default whether one is at this terminal."""
        self.site = site
        self.readonly = readonly
        attended = (lambda: False) if readonly else there or Attendance().there
        self.watch = RunWatch(run=run, attended=attended)
        self.baseline = BaselineWatch(site=site)
        options = ("--site", site) if site else ()
        self.emergency = Emergency(
            (*paths.module_argv("console.cli"), "rollback", "--by", "key", *options),
            paths.state_dir() / "emergency.log", site=site,
        )  # fmt: skip
        self.guard = GuardWatch()
        self.sampler: Sampler | None = None
        self.baseline_log: BaselineLog | None = None
        self.logs: tuple[LogFile, ...] = ()
        self.starting: threading.Thread | None = None
        """Starts a run; a console closed meanwhile waits for it."""
        self.started = ""
        self.watch.start()
        self.guard.start()

    def first(self) -> Snapshot | None:
        """The run for the first frame; None if the disk is slow."""
        snapshot = self.watch.first(FIRST_S)
        if snapshot is not None:
            self.follow(snapshot)
        self.baseline.start()
        return snapshot

    def start(
        self,
        snapshot: Callable[[Snapshot], None],
        baseline: Callable[[BaselineView], None],
        sample: Callable[[Sample], None],
        recorded: Callable[[list[Gauge]], None],
    ) -> None:
        """Report changes from now on, and once, as `recorded`, what the run on show has recorded of
        this machine; callbacks are called in the watchers' threads."""
        from console.host.sampler import Sampler

        self.watch.deliver_to(snapshot)  # with what changed since the first frame was made
        self.baseline.deliver_to(baseline)
        places = (str(paths.home()), str(paths.state_dir()))
        self.sampler = Sampler(sorted({mount_point(place) for place in places}), sample)
        self.sampler.start()
        run = self.watch.latest.run if self.watch.latest is not None else None
        if run is not None:
            threading.Thread(target=lambda: recorded(recent(run)), daemon=True).start()

    def follow(self, snapshot: Snapshot) -> None:
        """Look at the baseline of a live run's plan, as the emergency key does; without one, at the
        configured site's, whatever run is on show. The same baseline's log can be read, even
        without a run. The guard is that of the run on show."""
        self.guard.follow(snapshot.run, snapshot.alive, snapshot.view.over)
        lives = snapshot.live or snapshot.alive or snapshot.is_rolling_back
        planned = lives and snapshot.view.outage
        self.baseline.follow(snapshot.sealed if lives else None, planned)
        plan = snapshot.sealed or self.baseline.plan
        self.logs = snapshot.logs
        if self.baseline.log is not None and not self.logs:
            self.logs = (replace(self.baseline.log, filled=True),)
        if plan is None or plan.baseline.kind != "container":
            self._forget_log()
        elif self.baseline_log is None or self.baseline_log.plan.baseline != plan.baseline:
            self._forget_log()
            self.baseline_log = BaselineLog(plan)

    def earlier(self, view: RunView) -> list[RunRow]:
        """The other runs of its playbook. Reads files, so not on the UI loop."""
        from console.frontends.tui.watch.history import earlier

        return earlier(view.playbook, view.run_id)

    def playbooks(self) -> list[Entry]:
        """The playbooks that can be used here. Reads files, so not on the UI loop."""
        from console.runner.prepare.catalog import entries

        return [entry for entry in entries(site=self.site) if not entry.problem]

    def _forget_log(self) -> None:
        if self.baseline_log is not None:
            threading.Thread(target=self.baseline_log.close, daemon=True).start()
            self.baseline_log = None

    def close(self) -> None:
        """End the watchers; active runs go on. Never blocks for long."""
        if self.baseline_log is not None:
            self.baseline_log.close()
        self.emergency.close()
        self.watch.close()
        self.guard.close()
        self.baseline.close()
        if self.sampler is not None:
            self.sampler.close()


def recent(run: RunDir) -> list[Gauge]:
    """The end of what a run has recorded of the machine."""
    from console.journal.samples import RECENT, gauges

    return gauges(run, RECENT)


def mount_point(path: str, table: str = "/proc/self/mounts") -> str:
    """Where a path's file system is mounted, by names alone: a dead mount hangs a stat."""
    try:
        lines = Path(table).read_text("utf-8", "replace").splitlines()
    except OSError:
        return "/"
    points = [line.split(" ")[1].replace("\\040", " ") for line in lines if line.count(" ") > 2]
    inside = [p for p in points if path == p or path.startswith(p.rstrip("/") + "/")]
    return max(inside, key=len, default="/")
