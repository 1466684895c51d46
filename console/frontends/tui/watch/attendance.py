"""Whether somebody may be sitting in front of this terminal: what renews a run's lease.

A terminal inside tmux or GNU screen lives on when the operator's line is gone; then tmux has to
say that a client shows it, and screen that it is attached. A terminal of its own ends with its
line, and the program with it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping

from console.common.clock import Clock, SystemClock
from console.host import bounded

ASK_EVERY_S = 5.0
ANSWER_S = 1.0
CLIENTS = "#{?session_grouped,#{session_group_attached},#{session_attached}}"
Ask = Callable[[str, Mapping[str, str]], str]


class Attendance:
    """`there()` asks tmux at most every ASK_EVERY_S; it may take ANSWER_S: not on the UI loop."""

    def __init__(
        self, clock: Clock | None = None, environment: Mapping[str, str] | None = None,
        ask: Ask | None = None, ask_screen: Ask | None = None,
    ) -> None:  # fmt: skip
        self._clock = clock or SystemClock()
        self._environment = os.environ if environment is None else environment
        self._ask, self._ask_screen = ask or clients, ask_screen or screens
        self._asked_at = float("-inf")
        self._there = True

    def there(self) -> bool:
        """False only where it is known that nobody sees this terminal."""
        pane, session = (self._environment.get(name, "") for name in ("TMUX_PANE", "STY"))
        inside = pane if self._environment.get("TMUX") else ""
        if not inside and not session:
            return True
        now = self._clock.monotonic()
        if now - self._asked_at >= ASK_EVERY_S:
            self._asked_at = now
            if inside:
                self._there = self._ask(pane, self._environment).strip() != "0"
            else:
                self._there = "(Attached)" in self._ask_screen(session, self._environment)
        return self._there


def clients(pane: str, environment: Mapping[str, str]) -> str:
    """How many clients show the session of a pane, as tmux says it; "" where it says nothing."""
    return _said(("tmux", "display-message", "-p", "-t", pane, CLIENTS), environment)


def screens(session: str, environment: Mapping[str, str]) -> str:
    """What GNU screen says of a session; "" where it says nothing."""
    return _said(("screen", "-ls", session), environment)


def _said(argv: tuple[str, ...], environment: Mapping[str, str]) -> str:
    try:
        return bounded.run(argv, ANSWER_S, env=environment)[1].decode("utf-8", "replace")
    except (OSError, subprocess.SubprocessError):
        return ""
