"""Who may use the web server: a link that works once, sessions in memory, and rates.

A browser shows the link's token once and gets a cookie and a key for it. The cookie is sent by the
browser to every port of this host name, so a request has to bring the key, too, which only pages of
this very origin can read. Nothing of it is written anywhere.
"""

from __future__ import annotations

import hmac
import re
import secrets
import threading
from dataclasses import dataclass

from console.common.clock import Clock, SystemClock

LINK_S = 900.0
"""Seconds that a link may wait for its only use."""
SESSION_S = 12 * 3600.0
MAX_SESSIONS = 8
"""One more ends the session that has been silent the longest: whoever has a new link stood at the
machine's own terminal."""
TRIES, TRY_EVERY_S = 10, 6.0
"""Tries to enter at once, and seconds until there is one more."""
REQUESTS, REQUEST_EVERY_S = 60, 0.05
"""The same for the requests of one session."""
LOCAL = ("127.0.0.1", "::1")
_FORWARDED = re.compile(r"(?:localhost|127\.0\.0\.1|\[::1\])(?::[0-9]{1,5})?")
_BYTES = 32


class Rate:
    """So many at once, and one more every few seconds."""

    def __init__(self, most: int, every_s: float, clock: Clock) -> None:
        self._most, self._every_s, self._clock = most, every_s, clock
        self._left, self._at = float(most), clock.monotonic()

    def take(self) -> bool:
        """Whether there is one left, which is then gone."""
        now = self._clock.monotonic()
        self._left = min(self._most, self._left + (now - self._at) / self._every_s)
        self._at = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


@dataclass(slots=True)
class Session:
    """One browser that came in by a link: what its cookie and its pages have to say."""

    cookie: str
    key: str
    ends_at: float
    seen_at: float
    rate: Rate


class Access:
    """The link and the sessions of one server."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._token, self._until = "", 0.0
        self._sessions: list[Session] = []
        self._tries = Rate(TRIES, TRY_EVERY_S, self._clock)

    def link(self) -> str:
        """A new token for one use; an earlier one is void from now on."""
        with self._lock:
            self._token = secrets.token_urlsafe(_BYTES)
            self._until = self._clock.monotonic() + LINK_S
            return self._token

    def may_fail(self) -> bool:
        """Whether another wrong token gets an answer now; the right one always does."""
        with self._lock:
            return self._tries.take()

    def enter(self, token: str) -> Session | None:
        """Exchange the token, once; None for any other."""
        with self._lock:
            now = self._clock.monotonic()
            if not self._token or now > self._until or not _same(token, self._token):
                return None
            self._token = ""
            self._sessions = [session for session in self._sessions if session.ends_at > now]
            self._sessions.sort(key=lambda session: session.seen_at)
            del self._sessions[: max(0, len(self._sessions) + 1 - MAX_SESSIONS)]
            made = Session(
                secrets.token_urlsafe(_BYTES), secrets.token_urlsafe(_BYTES), now + SESSION_S, now,
                Rate(REQUESTS, REQUEST_EVERY_S, self._clock),
            )  # fmt: skip
            self._sessions.append(made)
            return made

    def find(self, cookie: str) -> Session | None:
        """The session of a cookie; None where it is unknown or over."""
        with self._lock:
            now = self._clock.monotonic()
            matches = [session for session in self._sessions if _same(cookie, session.cookie)]
            if not matches or matches[0].ends_at <= now:
                return None
            matches[0].seen_at = now
            return matches[0]

    def holds(self, session: Session) -> bool:
        """Whether a session is still one: not over, not left, not replaced by newer ones."""
        with self._lock:
            return session in self._sessions and session.ends_at > self._clock.monotonic()

    def leave(self, session: Session) -> None:
        """End a session."""
        with self._lock:
            self._sessions = [other for other in self._sessions if other is not session]


def knows(session: Session, key: str) -> bool:
    """Whether a page said the key of its session."""
    return _same(key, session.key)


def _same(given: str, right: str) -> bool:
    """Equal, compared in constant time; text of any kind may be given."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), right.encode())


class Addresses:
    """The hosts that a request may name, and with each its only origin: a name that leads here by
    somebody else's DNS is none of them."""

    def __init__(self, address: str = "", port: int = 0) -> None:
        """Without a port, for a unix socket: which port leads to it is known only at the other end,
        so any port of the loopback names will do."""
        self._hosts: frozenset[str] = frozenset()
        if port:
            names = (f"[{address}]" if ":" in address else address, "localhost")
            ends = (f":{port}", "") if port == 80 else (f":{port}",)
            self._hosts = frozenset(name + end for name in names for end in ends)

    def allows(self, host: str) -> bool:
        """Whether a request for this Host is meant for this server."""
        if self._hosts:
            return host in self._hosts
        return _FORWARDED.fullmatch(host) is not None

    @staticmethod
    def origin(host: str) -> str:
        """The origin of pages that this server serves under that Host."""
        return f"http://{host}"
