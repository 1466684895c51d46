"""What the watch says, word for word. What was said stands in __snapshots__; `make golden` writes
it anew."""

import os
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from syrupy.assertion import SnapshotAssertion

from console.common.errors import ConsoleError
from console.config.site.site import SiteModel
from console.host import process
from console.journal.watch_record import DOWN, PLANNED, SERVING, WatchState
from console.recovery.rollback.baseline_state import Evidence, Kind, Witness, Word, state_of
from console.render.watch.metrics import text
from console.render.watch.status import lines
from console.watch.look import Look
from tests.watching.conftest import RATE, SILENT, World, with_settings
from tests.watching.test_metrics import BASE, RUNS, SAMPLE, STATE
from tests.watching.test_watcher import HOUR, noisy

NOW = 1_750_003_600.0
WELL = WatchState(
    SERVING, "16 tokens in 1.5 s", since=NOW - 90_000, at=NOW - 12, next_at=NOW + 48, tok_s=10.4,
    ttft_s=0.31, asked_at=NOW - 12, level=10.41, reference=10.5, site_reference=10.35,
    pid=os.getpid(), start=process.start_time(os.getpid()) or 0,
    at_most=3, changed="driver 575.57.08 → 580.65", changed_at=NOW - 4000, restores=[NOW - 5000],
)  # fmt: skip


@pytest.fixture(autouse=True)
def _place(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The same clock wherever this runs."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def test_status(snapshot: SnapshotAssertion) -> None:
    states = {
        "none": None,
        "just begun": WatchState(SERVING, "16 tokens", at=NOW - 1, since=NOW - 1, learning=29),
        "begins": WatchState(at=NOW - 1, detail="the console itself has changed"),
        "well": WELL,
        "slow": replace(WELL, slow_since=NOW - 3000, why=["driver 575 → 580", "image changed"]),
        "down": replace(WELL, word=DOWN, detail="connection refused", restores=[NOW - 9] * 3),
        "planned": replace(WELL, word=PLANNED, detail="run x is on", level=None, at_most=0),
        "clock set back": replace(WELL, at=NOW + 3600, next_at=NOW + 3660, due_by=NOW + 3700),
        "trouble": replace(WELL, trouble="the site file cannot be used: line 3"),
    }
    proven = Evidence(Kind.MEASURED, Word.SERVING, NOW - 600, Witness.ROLLBACK, tok_s=10.4)
    failed = Evidence(Kind.FAILED, Word.GARBLED, NOW - 60, Witness.WATCH, 'nothing but "G"')
    known = {
        "none": state_of([], NOW), "down": state_of([proven, failed], NOW),
        "well": state_of([proven], NOW),
    }  # fmt: skip
    said = {
        name: lines(state, "runs, pid 7", NOW, known.get(name)) for name, state in states.items()
    }
    assert said == snapshot


def test_events(world: World, snapshot: SnapshotAssertion) -> None:
    noisy(world, seed=2, slow_at=6 * HOUR)
    world.until(6 * HOUR)
    world.prints["driver"] = "580.65"
    world.until(8 * HOUR)
    noisy(world, seed=2)
    world.until(11 * HOUR)
    normal, down = world.look, [True]
    world.look = lambda at: SILENT if len(world.restored) < 1 else normal(at)
    world.tick(4)
    other = with_settings(world, at_most=1)
    other.clock.time = world.clock.time
    other.look = lambda at: SILENT if down[0] else Look(SERVING, "", RATE, 0.2, requested=True)
    other.tick(6)
    down[0] = False
    other.tick(2)
    assert [(one["title"], one["text"]) for one in other.events] == snapshot


def test_the_page_for_prometheus(snapshot: SnapshotAssertion) -> None:
    assert text("0.1.0", BASE, STATE, RUNS, SAMPLE) == snapshot


def test_what_a_site_file_may_not_say(snapshot: SnapshotAssertion) -> None:
    from pydantic import ValidationError

    base = {"schema": "omni.site/v1", "name": "w",
            "baseline": {"container": "b", "url": "http://127.0.0.1:1"}}  # fmt: skip
    wrong = [
        {"interval": "1s"}, {"interval": "2h"}, {"tokens": 1}, {"at_most": 0}, {"ask_after": 0},
        {"metrics": "0.0.0.0:9909"}, {"metrics": "9909"}, {"restores": True},
    ]  # fmt: skip
    said = []
    for watch in wrong:
        with pytest.raises((ValidationError, ConsoleError)) as caught:
            SiteModel.model_validate({**base, "watch": watch})
        assert isinstance(caught.value, ValidationError)
        said += [(watch, one["msg"]) for one in caught.value.errors()]
    assert said == snapshot
