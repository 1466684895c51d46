"""What is to be told, on disk until it is delivered: a file for each event and channel.

Whoever posts writes one file and wakes the sender, so a channel that does not answer costs a run
nothing. Secrets are in the environment of whoever posts: there is one sender for each set of the
variables that matter, so that what one of them cannot send is not kept from another. A file is
named by event and channel: what is posted twice, is queued once, and the name stays known for a
week after the delivery, longer than anything is posted again.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import subprocess
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from console.common import paths, record
from console.common.clock import Clock, SystemClock
from console.common.files import append_line, write_atomically
from console.common.record import Key, RecordError
from console.common.text import one_line
from console.config.site.notify import NotifyModel, variables
from console.host.process import COOKIE, STEP_COOKIE
from console.notify.event import TOLD_WITHIN_S, Event

QUEUE, DONE, CHANNELS, LOG = "queue", "done", "channels", "notify.log"
LOCK, TURN = "lock", "turn"
PRIVATE = 0o600
KNOWN_S = 7 * 86400.0
"""How long the name of what was delivered is kept."""
NEW_S = 600.0
"""How long ago something may have happened that a new channel is told of."""
MAX_LOG = 1 << 20
MAX_ITEM = 1 << 20
SENDER = ("console.cli", "notify", "deliver")


@dataclass(frozen=True, slots=True)
class Item:
    """One event for one channel. `begun`: deliveries that have begun and of whose end nothing is
    known, because the sender was killed meanwhile. `holds`: the names of the items that a summary
    stands for."""

    name: str
    channel: NotifyModel
    event: Event
    posted: float
    begun: int = 0
    holds: tuple[str, ...] = ()

    def as_json(self) -> str:
        kept = _Kept(plain(self.channel), self.event, self.posted, self.begun, self.holds)
        return json.dumps(record.plain(kept))


@dataclass(frozen=True, slots=True)
class _Kept:
    """An item's file, which has its name."""

    channel: dict[str, Any]
    event: Event
    posted: float
    begun: int
    holds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChannelState:
    """What is known of a channel; None of what was not the case yet. Times in Unix seconds:
    `delivered` and `failed` last, `due` to be asked again, `at` the count of the `tokens`. `since`:
    what happened before is no news to it. `answer`: its last refusal, and `what` to which event;
    `fails`: how many in a row."""

    since: float | None = None
    delivered: float | None = None
    fails: int | None = None
    due: float | None = None
    tokens: float | None = None
    at: float | None = None
    failed: float | None = None
    answer: Annotated[str | None, Key("said")] = None
    what: str | None = None


def post(
    channels: Sequence[NotifyModel], event: Event, clock: Clock | None = None, *, start: bool = True
) -> None:
    """Queue an event for every channel that is told of its kind, and wake the sender. Never raises
    and waits for nothing but the disk; what was posted before is not queued again. `start`: False
    leaves the sender alone."""
    wanted = [channel for channel in channels if event.kind in channel.on]
    with contextlib.suppress(Exception):  # a run never ends or waits for what it cannot tell
        box = Outbox()
        queued = [box.put(channel, event, (clock or SystemClock()).now()) for channel in wanted]
        if any(queued) and start:
            wake()


def wake() -> None:
    """Start the sender unless there is one. Raises OSError."""
    box = Outbox()
    lock, log = box.lock(), -1
    if lock < 0:
        return  # it looks into the queue once more after it has given up this lock
    try:
        log = os.open(box.path / "sender.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE)
        child = subprocess.Popen(
            # it gets the lock itself, so that none is started beside it meanwhile
            [*paths.module_argv(SENDER[0]), *SENDER[1:]], stdin=lock, stdout=log, stderr=log,
            start_new_session=True, cwd="/",
            # no rollback takes it for a part of the run that started it
            env={k: v for k, v in os.environ.items() if k not in (COOKIE, STEP_COOKIE)},
        )  # fmt: skip
    finally:
        os.close(lock)
        if log >= 0:
            os.close(log)
    with contextlib.suppress(RuntimeError):  # no thread left: a zombie at worst
        threading.Thread(target=child.wait, name="sender-reaper", daemon=True).start()


class Outbox:
    """The directory: queued items, names of what is done, the state of each channel, a log."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or paths.notify_dir()
        for part in (QUEUE, DONE, CHANNELS):
            paths.make(self.path / part)

    def lock(self) -> int:
        """A descriptor that holds, until it is closed, the lock of the sender that has what this
        process has of the variables that count; -1 if there is such a sender."""
        channels = [item.channel for item in self.items()]
        has = sorted(name for name in variables(channels) if os.environ.get(name))
        name = f"{LOCK}-{_digest(*has)}"
        descriptor = os.open(self.path / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return -1
        return descriptor

    def inherited(self) -> int:
        """A descriptor of the lock that whoever started this process has put in the place of its
        stdin; -1 if there is none."""
        with contextlib.suppress(OSError):
            given = os.fstat(0)
            if any(os.path.samestat(given, path.stat()) for path in self.path.glob(f"{LOCK}-*")):
                lock, null = os.dup(0), os.open(os.devnull, os.O_RDONLY)
                os.dup2(null, 0)
                os.close(null)
                return lock
        return -1

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Only one sender at a time delivers; waits until it is this one's turn."""
        descriptor = os.open(self.path / TURN, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def changed(self) -> int:
        """A number that is another one after something was queued."""
        return (self.path / QUEUE).stat().st_mtime_ns

    def put(self, channel: NotifyModel, event: Event, now: float) -> bool:
        """Queue an event for a channel unless it is queued or done; whether it is to be sent.
        Raises OSError."""
        item = Item(_digest(event.key, channel_id(channel)), channel, event, now)
        if self.is_done(item.name):
            return False
        if not (self.path / QUEUE / item.name).exists():
            self.write(item)
        return True

    def write(self, item: Item) -> None:
        """Keep an item as it is now. Raises OSError."""
        write_atomically(self.path / QUEUE / item.name, item.as_json(), PRIVATE)

    def items(self) -> list[Item]:
        """What is queued, oldest first, without what a queued summary stands for."""
        queued_items = [item for name in self._names() if (item := self._item(name)) is not None]
        held = {name for item in queued_items for name in item.holds}
        return sorted(
            (item for item in queued_items if item.name not in held),
            key=lambda item: (item.posted, item.name),
        )

    def is_done(self, name: str) -> bool:
        return (self.path / DONE / name).exists()

    def finish(self, item: Item) -> None:
        """Remember that an item, and what it stands for, is not to be sent any more. Raises
        OSError."""
        for name in (*item.holds, item.name):
            write_atomically(self.path / DONE / name, "", PRIVATE)
            (self.path / QUEUE / name).unlink(missing_ok=True)

    def forget(self, now: float) -> None:
        """Remove names of deliveries that nothing asks for any more, and what nobody could read."""
        for path in (*(self.path / DONE).iterdir(), *(self.path / QUEUE).iterdir()):
            with contextlib.suppress(OSError):
                if now - path.stat().st_mtime > KNOWN_S:
                    path.unlink()

    def state(self, channel: NotifyModel) -> ChannelState:
        """What is known of a channel: its last answers, and when it may be asked again."""
        with contextlib.suppress(OSError, RecordError):
            path = self.path / CHANNELS / channel_id(channel)
            return record.lenient(ChannelState, record.load(path))
        return ChannelState()

    def known(self, channel: NotifyModel, now: float) -> float:
        """What happened until then (Unix seconds) is no news to a channel: a day before now, and
        for one that is new a few minutes. Raises OSError."""
        state = self.state(channel)
        since = now - NEW_S if state.since is None else state.since
        if state.since is None:
            self.keep(channel, replace(state, since=since))
        return max(since, now - TOLD_WITHIN_S)

    def keep(self, channel: NotifyModel, state: ChannelState) -> None:
        """Keep the state of a channel. Raises OSError."""
        known = {key: value for key, value in record.plain(state).items() if value is not None}
        write_atomically(self.path / CHANNELS / channel_id(channel), json.dumps(known), PRIVATE)

    @property
    def logged(self) -> Path:
        return self.path / LOG

    def log(self, words: str) -> None:
        """Add a line to the log, which is begun anew when it is long. Raises OSError."""
        path = self.logged
        if path.exists() and path.stat().st_size > MAX_LOG:
            os.replace(path, path.with_suffix(".log.1"))
        append_line(path, one_line(words, 600), PRIVATE)

    def _names(self) -> Iterator[str]:
        # a name that begins with a dot is a file that is being written
        return (name for name in os.listdir(self.path / QUEUE) if not name.startswith("."))

    def _item(self, name: str) -> Item | None:
        """A queued item; None for one that is gone or that nobody can read."""
        try:
            kept = record.read(_Kept, self.path / QUEUE / name, MAX_ITEM)
            channel = NotifyModel.model_validate(kept.channel)
        except (OSError, ValueError):
            return None
        return Item(name, channel, kept.event, kept.posted, kept.begun, kept.holds)


def plain(channel: NotifyModel) -> dict[str, Any]:
    """A channel as it is kept; of a secret only where it is."""
    kept: dict[str, Any] = channel.model_dump(mode="json", exclude_none=True)
    return kept


def channel_id(channel: NotifyModel) -> str:
    """The name of a channel, the same in every run: by what is sent where."""
    return _digest(channel.way, json.dumps(plain(channel)[channel.way], sort_keys=True))


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def summary_name(items: Sequence[Item]) -> str:
    """The name of the item that stands for others."""
    return _digest("and", *(item.name for item in items))
