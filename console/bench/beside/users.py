"""Requests of others at a measured server, and at the servers that share its machine.

A figure taken while a server answers somebody else describes both requests. A server that answers
others beside a measured one takes its cards, cores and memory. The servers are asked themselves
(`console.runtime.occupancy`): before each request of ours, now and then meanwhile, and after it.
What is not ours shows as

- a request that is under way when none of ours is, or more of them than ours;
- more new numbers of requests in the slots of llama.cpp than we sent;
- more tokens in the server's counters than those of our own answer and prompt.

The first alone misses a short request between two looks. A server that tells nothing of this
(most need a flag: `--metrics`, `--enable-metrics`; or a key) is measured all the same, and every
reader is told that it is not known, and whether clients of others were connected to it while no
request of ours was out. Such a client may have asked nothing: that voids no sample, and makes a GO
doubtful which rests on it. One that has told before and does not tell now makes a sample
void: what is not known is no quiet.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from console.bench.sample import Sample
from console.common.text import one_line
from console.common.units import format_duration, plural
from console.host.ports import is_local, lasting_clients
from console.runtime import occupancy
from console.runtime.occupancy import Occupancy

POLL_S = 0.5
STALE_S = 35.0
"""How long a gauge may go on showing a request that has ended: SGLang writes it anew every half
minute while it is idle."""
SLACK_TOKENS, SLACK = 8.0, 0.1
"""What a counter may be beyond our own tokens: engines count a template, a first or a last token
differently, and some count late."""
NOT_SAID = "does not say whether it answers others"
NOT_KNOWN = "at the same time is not known"
ask = partial(occupancy.look, counters=True)
LookAt = Callable[[str], Occupancy]
Seen = dict[str, Occupancy]
"""What each server said at one moment, by its URL."""


@dataclass(frozen=True, slots=True)
class WatchedServer:
    """A server that is looked at, and its name for readers."""

    name: str
    url: str


def saw_others(reason: str) -> bool:
    """Whether a reason of `busy` or `judge` tells of requests of others that were seen. A server
    that did not say whether there were any may have answered nobody."""
    parts = filter(None, reason.split("; "))
    return any(NOT_SAID not in part and NOT_KNOWN not in part for part in parts)


def clients_at(url: str) -> int:
    """How many clients are connected to a server of this machine; 0 for one elsewhere."""
    return lasting_clients(url) if is_local(url) else 0


@dataclass(slots=True)
class _ServerRecord:
    """What is known of one server over a whole benchmark."""

    known: bool = False
    why: str = ""
    beside: int = 0
    looked: bool = False
    connected: int = 0
    """Looks at which clients of others were connected to one that does not tell."""


@dataclass(slots=True)
class Users:
    """Looks for others' requests at the measured server, `server`, and at `others`. Nothing raises.
    `waited_s`: how long our requests waited for those of others, `waited_blindly_s` for a server
    that did not say whether there were any; `spoilt`: how many of a soak's were answered beside
    them, `unsure`: of how many that is not known."""

    server: WatchedServer
    others: Sequence[WatchedServer] = ()
    look_at: LookAt = ask
    monotonic: Callable[[], float] = time.monotonic
    poll_s: float = POLL_S
    clients_at: Callable[[str], int] = clients_at
    waited_s: float = 0.0
    waited_blindly_s: float = 0.0
    spoilt: int = 0
    unsure: int = 0
    _records: dict[str, _ServerRecord] = field(default_factory=dict)
    _polled: list[Seen] = field(default_factory=list)
    _asked_at: float | None = None
    _streams: int = 1

    def look(self) -> Seen:
        """What every server says now; one at which nobody listens is left out."""
        seen = {}
        for server in self._all():
            status = self.look_at(server.url)
            if status.refused and server.url != self.server.url:
                continue
            record = self._records.setdefault(server.url, _ServerRecord())
            record.looked, record.known = True, record.known or status.known
            record.why = record.why if status.known else status.why
            if server.url == self.server.url and not record.known and self.clients_at(server.url):
                record.connected += 1
            seen[server.url] = status
        return seen

    def busy(self, seen: Seen) -> str:
        """Who is answered now, while no request of ours is out; "" for nobody that is known of."""
        for server in self._all():
            status = seen.get(server.url)
            if status is None or status.refused:
                continue  # nobody listens: what is asked fails at once, and says that it has ended
            if status.processing is None:
                if self._records[server.url].known:
                    return f"{self._name(server)} {NOT_SAID}"
            elif status.processing > self._late(server, status):
                count = plural(status.processing, "request")
                return f"{self._name(server)} answers {count} of others"
        return ""

    @contextmanager
    def following(self, streams: int = 1) -> Iterator[None]:
        """Looks now and then while requests of ours are out."""
        over, self._streams = threading.Event(), streams
        self._polled = []

        def poll() -> None:
            while not over.wait(self.poll_s):
                self._polled.append(
                    {server.url: self.look_at(server.url) for server in self._all()}
                )

        thread = threading.Thread(target=poll, name="who else asks", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            self._asked_at = self.monotonic()

    def judge(self, samples: Sequence[Sample], before: Seen, after: Seen) -> str:
        """Why requests of ours, sent after a look at which nobody was busy, do not count: others
        used a server meanwhile. "" if nobody did, or if no server ever told."""
        reasons = []
        for server in self._all():
            then, now = before.get(server.url), after.get(server.url)
            if then is None or now is None:
                continue
            record, ours = self._records[server.url], server.url == self.server.url
            if not (then.known and now.known):
                why = then.why or now.why
                words = f"whether others used {self._name(server)} {NOT_KNOWN}"
                if record.known:
                    reasons.append(f"{words} ({why.replace('; ', ', ')})")
                continue
            polled = [snapshot[server.url] for snapshot in self._polled if server.url in snapshot]
            count = self._beside(samples if ours else (), server, then, now, polled)
            if count:
                reasons.append(f"others used {self._name(server)} at the same time ({count})")
                record.beside += 1
        return "; ".join(reasons)

    def close(self) -> list[dict[str, Any]]:
        """What is known of each server, as plain values for a record."""
        return [
            {
                "name": one_line(server.name, 80), "measured": server.url == self.server.url,
                "known": record.known, "why": "" if record.known else one_line(record.why, 200),
                "beside": record.beside, "connected": 0 if record.known else record.connected,
            }
            for server in self._all() if (record := self._records.get(server.url)) and record.looked
        ]  # fmt: skip

    def flags(self) -> list[str]:
        """What a reader of the figures should know, a line each."""
        remarks = []
        for server in self._all():
            record = self._records.get(server.url)
            if record is not None and record.looked and not record.known:
                words = f"whether others used {self._name(server)} is not known: {record.why}"
                if record.connected:
                    looks = plural(record.connected, "look")
                    words += f"; clients of others were connected to it at {looks}"
                remarks.append(words)
        if self.waited_s >= 1.0:
            waited = format_duration(self.waited_s)
            remarks.append(f"waited {waited} in all while others were answered")
        if self.waited_blindly_s >= 1.0:
            waited = format_duration(self.waited_blindly_s)
            remarks.append(f"waited {waited} in all while a server {NOT_SAID}")
        if self.spoilt:
            count = plural(self.spoilt, "answer")
            remarks.append(
                f"others were answered at the same time as {count}, whose rate is not used"
            )
        if self.unsure:
            count = plural(self.unsure, "answer")
            remarks.append(
                f"whether others were answered at the same time as {count} is not known, so that "
                f"{'its' if self.unsure == 1 else 'their'} rate is not used"
            )
        return remarks

    def _all(self) -> Iterator[WatchedServer]:
        """The measured server first; one that has the same address as another is not counted
        twice."""
        urls = set()
        for server in (self.server, *self.others):
            if server.url and server.url not in urls:
                urls.add(server.url)
                yield server

    def _name(self, server: WatchedServer) -> str:
        return "the server" if server.url == self.server.url else one_line(server.name, 60)

    def _late(self, server: WatchedServer, status: Occupancy) -> int:
        """Requests of ours that a gauge may still show."""
        if status.live or server.url != self.server.url or self._asked_at is None:
            return 0
        return self._streams if self.monotonic() - self._asked_at < STALE_S else 0

    def _beside(
        self, samples: Sequence[Sample], server: WatchedServer, then: Occupancy, now: Occupancy,
        polled: Sequence[Occupancy],
    ) -> str:  # fmt: skip
        """How much of it was not ours, in words; "" for nothing."""
        streams = self._streams if samples else 0
        most = max((status.processing or 0 for status in polled), default=0) - streams
        most = max(most, (now.processing or 0) - self._late(server, now))
        tasks = frozenset().union(*(status.tasks for status in (*polled, now))) - then.tasks
        most = max(most, len(tasks) - len(samples))
        if most > 0:
            return plural(most, "request")
        for kind, before, after, ours in (
            ("generated", then.generated, now.generated, _sum(samples, "completion_tokens")),
            ("read", then.prompted, now.prompted, _sum(samples, "prompt_tokens")),
        ):
            if before is None or after is None or ours is None:
                continue
            more = after - before - ours
            if more > SLACK_TOKENS + SLACK * ours:
                return f"{plural(round(more), 'token')} more {kind} than ours"
        return ""


def _sum(samples: Sequence[Sample], name: str) -> float | None:
    """Tokens of our requests; None if one of them is not counted."""
    counts = [getattr(sample, name) for sample in samples]
    return None if None in counts else float(sum(counts))
