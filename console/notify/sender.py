"""The process that delivers: oldest first, each channel at its own pace, until nothing is queued.

A delivery is written down before it begins. If the sender is killed before the answer is known, the
next one repeats it once, with the same key, and then never again. A channel that fails is asked
again later and later, and what could not be delivered within a day is given up, with a line in the
log. After BURST messages a channel gets one a minute, and one message for all that waits by then.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime

from console.common.clock import Clock, SystemClock
from console.config.site.notify import NotifyModel
from console.notify import channels
from console.notify.channels import Answer
from console.notify.event import TOLD_WITHIN_S, Event
from console.notify.outbox import ChannelState, Item, Outbox, channel_id, summary_name

FIRST_S, MAX_S = 5.0, 900.0
"""The pause after the first failure in a row, and the longest; each is twice the one before."""
BURST, EVERY_S = 5, 60.0
LOOK_S = 1.0
"""How often a sender that waits looks whether something new is queued."""
MAX_TITLES = 12
MAX_TRIES = 2
"""How often a delivery may begin without any answer to be known."""
Deliver = Callable[[NotifyModel, Event], Answer]


def main() -> int:
    """Deliver what is queued, unless a sender does that can send the same.

    What is posted while this one ends is seen once more after its lock is free.
    """
    box = Outbox()
    lock = box.inherited()
    while True:
        lock = lock if lock >= 0 else box.lock()
        if lock < 0:
            return 0
        try:
            left = Sender(box, SystemClock()).run()
        finally:
            os.close(lock)
            lock = -1
        if not [item for item in box.items() if item.name not in left]:
            return 0


class Sender:
    """Delivers what an outbox has. `deliver` is given in tests alone."""

    def __init__(self, box: Outbox, clock: Clock, deliver: Deliver = channels.deliver) -> None:
        self.box = box
        self.clock = clock
        self.deliver = deliver
        self._stuck: set[str] = set()
        """Items that this process cannot send: it lacks the variable with their secret."""

    def run(self) -> set[str]:
        """Deliver until nothing is left; return the names of what this process cannot send."""
        self.box.forget(self.clock.now())
        while True:
            before = self.box.changed()
            with self.box.turn():
                wait_s = self.round()
            if wait_s is None:
                return self._stuck
            self._wait(wait_s, before)

    def _wait(self, seconds: float, before: int) -> None:
        """Wait, until something is queued at most."""
        idle, until = threading.Event(), self.clock.monotonic() + seconds
        while (left := until - self.clock.monotonic()) > 0 and self.box.changed() == before:
            self.clock.wait(idle, min(left, LOOK_S))

    def round(self) -> float | None:
        """Give each channel that may be asked its oldest item, all at the same time. Returns how
        many seconds nothing is due; None if nothing is left for this process."""
        waiting: dict[str, list[Item]] = {}
        for item in self.box.items():
            if not self._is_over(item) and item.name not in self._stuck:
                waiting.setdefault(channel_id(item.channel), []).append(item)
        if not waiting:
            return None
        now = self.clock.now()
        due = {name: self._due(items[0].channel, now) for name, items in waiting.items()}
        ready = [items for name, items in waiting.items() if due[name] <= now]
        if not ready:
            return max(0.0, min(due.values()) - now)
        with ThreadPoolExecutor(len(ready)) as pool:
            list(pool.map(self._next, ready))
        return 0.0

    def _is_over(self, item: Item) -> bool:
        """Whether an item is not to be sent, or not any more."""
        if self.box.is_done(item.name):
            self.box.finish(item)
        elif self.clock.now() - item.posted > TOLD_WITHIN_S:
            self._give_up(item, "it could not be delivered within a day")
        elif item.begun >= MAX_TRIES:
            self._give_up(item, "its sender was killed twice in the middle of it")
        else:
            return False
        return True

    def _give_up(self, item: Item, why: str) -> None:
        last_answer = self.box.state(item.channel).answer
        self._log(item, f"given up: {why}{f'; last: {last_answer}' if last_answer else ''}")
        self.box.finish(item)

    def _log(self, item: Item, words: str) -> None:
        at = datetime.fromtimestamp(self.clock.now()).astimezone().isoformat(timespec="seconds")
        with contextlib.suppress(OSError):
            self.box.log(f"{at} {item.channel.words}: {item.event.kind} {item.event.key}: {words}")

    def _due(self, channel: NotifyModel, now: float) -> float:
        """When a channel may be asked again: at once after the clock was set back by more than the
        longest pause."""
        state = self.box.state(channel)
        due = max(state.due or 0.0, 0.0 if _tokens(state, now) >= 1 else _next(state))
        return due if due <= now + MAX_S else now

    def _next(self, items: Sequence[Item]) -> None:
        """Send the oldest item of a channel, or one for all that had to wait, and write down what
        became of it."""
        channel, now = items[0].channel, self.clock.now()
        state = self.box.state(channel)
        tokens = _tokens(state, now)
        item = self._summed(items) if tokens < 2 else items[0]
        self.box.write(replace(item, begun=item.begun + 1))
        answer = self.deliver(channel, item.event)
        now = self.clock.now()
        if answer.delivered:
            self.box.finish(item)
            state = replace(state, delivered=now, fails=0, due=0.0, tokens=tokens - 1, at=now)
        else:
            self.box.write(item)
            state = replace(state, failed=now, answer=answer.words, what=item.event.key)
        if not answer.delivered and not answer.possible:
            self._stuck.add(item.name)
        elif not answer.delivered:
            fails = (state.fails or 0) + 1
            pause = min(MAX_S, FIRST_S * 2.0 ** min(fails - 1, 20))
            state = replace(state, fails=fails, due=now + pause)
            self._log(item, f"not delivered: {answer.words}; tried again in {pause:.0f} s")
        self.box.keep(channel, state)

    def _summed(self, items: Sequence[Item]) -> Item:
        """One item for all of a channel that wait, so that nobody is flooded: their titles. One
        that may have been sent, and a single one, stay as they are."""
        fresh = [item for item in items if not item.holds and not item.begun]
        if items[0].holds or items[0].begun or len(fresh) < 2:
            return items[0]
        titles = [item.event.title for item in fresh[:MAX_TITLES]]
        more = len(fresh) - len(titles)
        urgent = max(fresh, key=lambda item: item.event.urgency).event
        name = summary_name(fresh)
        event = Event(
            urgent.kind, f"and:{name}", f"and {len(fresh)} more",
            "\n".join([*titles, *([f"… and {more} more"] if more else [])]), fresh[-1].event.at,
            urgent.site, data={"keys": [item.event.key for item in fresh]},
        )  # fmt: skip
        held = tuple(item.name for item in fresh)
        return Item(name, fresh[0].channel, event, fresh[0].posted, holds=held)


def _tokens(state: ChannelState, now: float) -> float:
    """How many messages a channel may get at once now."""
    passed = max(0.0, now - (state.at or 0.0))
    kept = float(BURST) if state.tokens is None else state.tokens
    return min(float(BURST), kept + passed / EVERY_S)


def _next(state: ChannelState) -> float:
    """When a channel may get one message more."""
    return (state.at or 0.0) + (1.0 - (state.tokens or 0.0)) * EVERY_S
