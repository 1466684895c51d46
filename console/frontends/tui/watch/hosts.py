"""What the hosts of a fleet do, asked over and over: a thread and a line for each, so that one that
does not answer holds up no other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from console.common.clock import Clock, SystemClock
from console.common.text import one_line
from console.fleet.inventory import Host
from console.fleet.known import Known, ask_over, last
from console.fleet.line import Line

EVERY_S = 5.0
AGAIN_S = (5.0, 10.0, 20.0, 30.0)
"""Seconds until a host that did not answer is asked again; the last one stays, so that none takes
this for somebody who tries keys."""


class HostsWatch:
    """Tells what each host says, from a thread of its own. It asks while somebody looks."""

    def __init__(
        self, hosts: Sequence[Host], control: Path | None, tell: Callable[[Known], None],
        clock: Clock | None = None,
    ) -> None:  # fmt: skip
        self._hosts, self._control, self._tell = hosts, control, tell
        self._clock = clock or SystemClock()
        self._over, self._looks = threading.Event(), threading.Event()

    def start(self) -> None:
        self._looks.set()
        for host in self._hosts:
            name = f"host {host.name}"
            threading.Thread(target=self._follow, args=(host,), name=name, daemon=True).start()

    def look(self, there: bool) -> None:
        """Whether somebody looks; if not, the hosts are left alone after their next answer."""
        if there or self._over.is_set():
            self._looks.set()
        else:
            self._looks.clear()

    def close(self) -> None:
        """End, without waiting for a host that does not answer."""
        self._over.set()
        self._looks.set()

    def _follow(self, host: Host) -> None:
        line, failed = Line(host, self._control), 0
        try:
            while not self._over.is_set():
                if not self._looks.is_set():
                    line.close()
                    self._looks.wait()
                    continue
                report = _ask_host(line)
                if report.trouble and not failed:  # a connection that was only cut is back at once
                    report = _ask_host(line)
                failed = failed + 1 if report.trouble else 0
                if self._over.is_set():  # its name may be another machine's by now
                    return
                self._tell(report)
                pause_s = AGAIN_S[min(failed, len(AGAIN_S)) - 1] if failed else EVERY_S
                self._clock.wait(self._over, pause_s)
        finally:
            line.close()


def _ask_host(line: Line) -> Known:
    """What a host says; the same as for one that does not answer where this machine cannot even
    ask, as with a full disk or no descriptor left. The next turn asks again."""
    try:
        return ask_over(line)
    except OSError as error:
        before = last(line.host)
        words = f"this machine cannot ask: {error.strerror or error}"
        return Known(line.name, before.at, before.state, one_line(words, 300))
