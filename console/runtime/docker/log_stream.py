"""A container's log as a stream that survives the engine: nothing twice, nothing silently lost.

The library's generator just ends, both when the container exits and when the engine drops the
connection. So after every end the engine is asked about the container, and a new connection goes on
where the old one stopped.

What the engine itself loses is lost: Docker 20.10 once in some 1,300 containers closes its log file
before it has written a last line that has no newline ("the output file was closed" in its own log).
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from console.common.clock import Clock, SystemClock
from console.common.errors import EngineError, EngineTimeout
from console.common.text import one_line
from console.runtime.docker.client import EngineLost, ask, inspect, is_podman, translate

if TYPE_CHECKING:
    import docker

PIECE = 16 * 1024
"""The engine splits longer lines into pieces of this many bytes; each becomes a line, bytes."""
SETTLE_S = 0.5
"""Seconds by which a container's log ends before the engine reports its end."""
DRAIN_S = 60.0
"""Seconds in which the log of an ended container has to have been read to its end."""
FIRST_PAUSE_S, LAST_PAUSE_S = 0.1, 2.0
"""Seconds before a lost connection is tried again, at first and at most."""
LEAD_S = 2.0
"""First lines are stamped less than this before the recorded start of their container, seconds."""
UNREADABLE = "the log cannot be read"
"""A marker line with this beginning says that a server's lines are missing from here on."""
_STAMP = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z")


class _Position:
    """How many entries the log has had, second by second of the engine's own time stamps.

    The engine filters by `since` and keeps its order, so "since the second before the newest one,
    less the entries seen since then" is exactly where to continue, even with unordered stamps.
    """

    def __init__(self) -> None:
        self.begin: int | None = None
        self.counts: dict[bytes, int] = {}
        self.newest = b""
        self.skip = 0
        self.skip_until = b""
        self._known: dict[bytes, int] = {}

    def since(self) -> int | None:
        """The second to ask from (Unix time), None for the beginning; sets what to skip.

        Never before `begin`, because entries left out at first were not counted either.
        """
        if self.skip > 0:  # the connection before broke off within what had been counted
            self.counts = self._known
        self.skip_until = self.newest
        if not self.newest:
            return self.begin
        second = max(_unix(self.newest[:19]) - 1, self.begin or 1)
        self._known = dict(self.counts)
        self.skip = sum(n for key, n in self.counts.items() if _unix(key) >= second)
        self.counts = {key: n for key, n in self.counts.items() if _unix(key) < second}
        return second

    def fresh(self, stamp: bytes) -> bool:
        """Count one received entry; whether it is new."""
        if not stamp:
            return True
        key = stamp[:19]
        self.counts[key] = self.counts.get(key, 0) + 1
        if len(self.counts) > 64:
            for old in sorted(self.counts)[:-8]:
                del self.counts[old]
        if self.skip > 0 and stamp <= self.skip_until:
            self.skip -= 1
            return False
        self.skip = 0  # newer than all we had: the engine's rotation took the rest away
        self.newest = max(self.newest, stamp)
        return True


@dataclass(frozen=True, slots=True)
class _Look:
    """The facts used of an inspected container."""

    alive: bool
    created: str
    started: str
    finished: str


class LogStream:
    """Follows the log of one container; `follow` blocks in the caller's thread until its end."""

    def __init__(
        self,
        client: docker.DockerClient,
        container: str,
        *,
        entry: Callable[[bytes, bytes], None],
        note: Callable[[str], None],
        since: float | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`entry(stamp, line)` gets raw bytes with the newline; `note(text)` a marker.

        `since` (Unix seconds) leaves out what is older; by default what the container wrote before
        its latest start is left out.
        """
        self.client = client
        self.container = container
        self.entry = entry
        self.note = note
        self.since = since
        self._clock = clock or SystemClock()
        self._floor = b""
        self._torn: bool | None = None
        """Whether the engine stamps each part of a line it read in parts (Podman)."""
        self._position = _Position()
        self._pending: tuple[bytes, bytes] | None = None
        self._stopping = threading.Event()
        self._stream: Any = None
        self._trouble = ""
        self._broken = False
        """Whether the last connection broke off, so there may be more to read."""

    def stop(self) -> None:
        """End `follow` from another thread, without waiting for what has not arrived."""
        self._stopping.set()
        stream = self._stream
        if stream is not None:
            try:
                stream.close()
            except (OSError, AttributeError):
                pass  # it ended by itself in the meantime

    def follow(self) -> None:
        """Deliver entries until the container has ended and its whole log was read.

        An engine may write on after it has said that the container ended, and a connection may
        break off on a busy machine: so its log is read again until nothing new comes, for DRAIN_S
        at most, and what is then missing is said.
        """
        seen: _Look | None = None
        lost_at = until = 0.0
        dropped = more = False
        pause = FIRST_PAUSE_S
        while not self._stopping.is_set():
            try:
                look = self._look()
            except EngineError:
                dropped, lost_at = True, lost_at or self._clock.now()
                if seen is not None and not seen.alive:
                    until = until or self._clock.monotonic() + DRAIN_S
                    if self._given_up(until):
                        break
                self._clock.wait(self._stopping, pause)
                pause = min(pause * 2, LAST_PAUSE_S)
                continue
            if look is None or (seen and not (seen.alive or look.alive or dropped or more)):
                break
            if seen is not None and not self._trouble and self._went_on(look, dropped):
                self._mark(seen, look, lost_at)
            seen, newest = look, self._position.newest
            got = self._read()
            lost_at = self._clock.now()
            fresh = got and self._position.newest != newest
            more = not look.alive and (self._broken or fresh)
            until = (until or self._clock.monotonic() + DRAIN_S) if more else 0.0
            if more and self._given_up(until):
                break
            dropped = more and self._broken
            if got:
                pause = FIRST_PAUSE_S
            if more and not dropped:
                self._clock.wait(self._stopping, SETTLE_S)
            elif dropped or (look.alive and not got):
                self._clock.wait(self._stopping, pause)
                pause = min(pause * 2, LAST_PAUSE_S)
        if not self._stopping.is_set():
            self._flush()

    def _given_up(self, until: float) -> bool:
        """Whether the log of an ended container is not waited for any longer; says so."""
        if self._clock.monotonic() < until:
            return False
        self.note(f"--- {UNREADABLE} to its end within {DRAIN_S:g} s ---")
        return True

    def _went_on(self, look: _Look, dropped: bool) -> bool:
        """Whether the stream ended although the container still runs, or the engine was away."""
        if dropped or not look.alive:
            return dropped
        self._clock.wait(self._stopping, SETTLE_S)
        try:
            later = self._look()
        except EngineError:
            return True
        return later is not None and later.alive and not self._stopping.is_set()

    def _mark(self, seen: _Look, look: _Look, lost_at: float) -> None:
        if seen.started != look.started:
            self.note(f"--- the container started again {_clock(self._clock.now())} ---")
        else:
            lost, now = _clock(lost_at), _clock(self._clock.now())
            self.note(f"--- gap: log stream lost {lost}, reconnected {now} ---")

    def _look(self) -> _Look | None:
        container = inspect(self.client, self.container)
        if container is None:
            return None
        if self._torn is None:
            self._torn = is_podman(self.client)
        state = container.get("State") or {}
        look = _Look(
            bool(state.get("Running")),
            str(container.get("Created") or ""),
            str(state.get("StartedAt") or ""),
            str(state.get("FinishedAt") or ""),
        )
        if not self._floor:
            self._floor = _floor(look) if self.since is None else _stamp(self.since)
        return look

    def _read(self) -> bool:
        """One connection, to its end; whether anything new came.

        An unfinished line of an earlier connection is kept until it comes again.
        """
        got = self._broken = False
        try:
            for stamp, line in self._entries():
                if self._pending is not None and stamp >= self._pending[0]:
                    self._pending = None
                if self._position.fresh(stamp) and stamp >= self._floor:
                    got, self._trouble = True, ""
                    self.entry(stamp, line)
        except (EngineTimeout, EngineLost):
            self._broken = True  # frozen or away: the next look finds out for how long
        except EngineError as error:
            words = one_line(error.detail or error.title)
            if words != self._trouble:
                self._trouble = words
                self.note(f"--- {UNREADABLE}: {words} ---")
        finally:
            self._stream = None
        return got

    def _entries(self) -> Iterator[tuple[bytes, bytes]]:
        """Stamp and text of each entry; a last one without newline is held in `_pending`.

        An unfinished piece may be a torn frame: it counts once the container has ended.
        """
        buffer = b""
        for data in self._chunks():
            if buffer and _STAMP.match(data):
                if self._torn:
                    data = data.partition(b" ")[2]
                else:  # a former life ended within a line
                    yield _parse(buffer, self._position.newest)
                    buffer = b""
            buffer += data
            if buffer.endswith(b"\n") or len(buffer) >= PIECE:
                yield _parse(buffer, self._position.newest)
                buffer = b""
        if buffer:
            self._pending = _parse(buffer, self._position.newest)

    def _chunks(self) -> Iterator[bytes]:
        api: Any = self.client.api
        if self._position.begin is None and self._floor and not self._position.newest:
            self._position.begin = max(1, _unix(self._floor[:19]))
        since = self._position.since()
        options: dict[str, Any] = {"since": since} if since else {}
        stream = ask(
            "Following the log",
            lambda: api.logs(self.container, stream=True, follow=True, timestamps=True, **options),
        )
        self._stream = stream
        if self._stopping.is_set():
            stream.close()
        while True:
            try:
                data = next(stream)
            except StopIteration:
                return
            except Exception as error:
                if getattr(error, "response", None) is not None:  # an answer, not a lost line
                    raise translate(error, "Reading the log") from error
                self._broken = True
                return
            yield bytes(data)

    def _flush(self) -> None:
        if self._pending is not None:
            stamp, line = self._pending
            if self._position.fresh(stamp) and stamp >= self._floor:
                self.entry(stamp, line)
            self._pending = None


def _parse(part: bytes, newest: bytes) -> tuple[bytes, bytes]:
    stamp, _, line = part.partition(b" ")
    return (stamp, line) if _STAMP.fullmatch(stamp) else (newest, part)


def _unix(key: bytes) -> int:
    return int(datetime.fromisoformat(key.decode() + "+00:00").timestamp())


def _stamp(seconds: float) -> bytes:
    when = datetime.fromtimestamp(seconds, UTC)
    return (when.strftime("%Y-%m-%dT%H:%M:%S.%f") + "000Z").encode()


def _seconds(text: str) -> float | None:
    """The engine's time (RFC 3339, nanoseconds) as Unix seconds; None for its year 1."""
    match = re.match(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,6})?", text)
    if not match or text.startswith("0001-"):
        return None
    return datetime.fromisoformat(match[1] + "+00:00").timestamp() + float(match[2] or 0)


def _floor(look: _Look) -> bytes:
    """A moment between the container's former life and this one; empty if it had none.

    The first lines are stamped just before the recorded start, the last ones of a former life just
    after its recorded end, so neither is a bound by itself. For a container that has ended again
    only the start is known.
    """
    created, start, end = (_seconds(text) for text in (look.created, look.started, look.finished))
    if created is None or start is None or end is None:
        return b""
    if look.alive:
        return _stamp((start + end) / 2) if end < start else b""
    return _stamp(start - LEAD_S) if created < start - 2 * LEAD_S else b""


def _clock(seconds: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(seconds))
