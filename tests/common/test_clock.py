"""The clock that tests hand in: long waits take no time, and an event ends them."""

import threading
import time

from console.common.clock import SystemClock


def test_the_machine_clock_goes_forward_and_sees_events() -> None:
    clock, event = SystemClock(), threading.Event()
    first = clock.monotonic()
    assert clock.wait(event, 0) is False
    event.set()
    assert clock.wait(event, 60) is True
    assert first <= clock.monotonic()
    assert time.time() <= clock.now() <= time.time()
