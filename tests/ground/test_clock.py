"""The clock that tests hand in: long waits take no time, and an event ends them."""

from __future__ import annotations

import threading
import time

from console.common.clock import SystemClock
from tests.clock import FakeClock


def test_only_sleep_moves_the_fake_clock() -> None:
    clock = FakeClock(100.0)
    clock.sleep(3600)
    clock.sleep(-5)
    assert (clock.monotonic(), clock.now()) == (3700.0, 3700.0)
    assert clock.slept == [3600, -5]


def test_waiting_ends_at_once_when_the_event_is_set() -> None:
    event = threading.Event()
    clock = FakeClock(0.0)
    assert clock.wait(event, 10) is False
    event.set()
    assert clock.wait(event, 10) is True
    assert clock.monotonic() == 10.0


def test_the_machine_clock_goes_forward_and_sees_events() -> None:
    clock, event = SystemClock(), threading.Event()
    first = clock.monotonic()
    assert clock.wait(event, 0) is False
    event.set()
    assert clock.wait(event, 60) is True
    assert first <= clock.monotonic()
    assert time.time() <= clock.now() <= time.time()
