"""The guard of a run as the console knows it: from a real sentinel, from garbage, from nothing."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from console.common.paths import module_argv
from console.frontends.cli.machine import guard_json
from console.host import process
from console.journal import guard_status as guards
from console.journal.guard_status import NOBODY, GuardView, GuardWatch, Lease, marks_of, view_of
from console.journal.run_dir import RunDir
from console.recovery.guard.config import GuardConfig, Limit
from console.render.cells import plain
from console.render.guard import line
from tests.viewer.conftest import gone
from tests.viewer.guard_ring import GIB, KILL_S, MONO, breach, record
from tests.waiting import until

LIMITS = (
    Limit("host.ram_available", below=32 * GIB),
    Limit("host.ram_available", below=8 * GIB),
    Limit("host.ram_available", below=75 * GIB, act="warn"),
    Limit("host.swap_used", above=11 * GIB),
    Limit("gpu.memory_free", below=GIB, of="min"),
    Limit("gpu.memory_used", above=40 * GIB, of="GPU-b"),
    Limit("disk.free", below=50 * GIB, of="/data"),
)
TOLD = {
    "level": "warn", "mono": MONO, "reasons": ["RAM full in 18.2 s: 4.9 GB/s", "swap"],
    "unknown": ["no PSI"], "tte_s": 18.2, "tte_now_s": 3.1, "filling": "RAM", "rate": 4.9e9,
    "missing": ["oom_score_adj: no", "kill path: no", "x"], "advisory": True,
    "lease": {"left_s": 252.7, "attended": False}, "limits": [one.to_json() for one in LIMITS],
}  # fmt: skip
"""A page of a sentinel that warns."""


def words(view: GuardView, now: float = MONO, width: int = 0) -> str:
    return plain(line(view, now, width))


def test_a_real_sentinel_is_seen_and_missed(
    run: RunDir, begin: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """Over a run of this process with nothing alive: it has nobody to kill."""
    start = process.start_time(os.getpid()) or 0
    config = GuardConfig(
        run.id, str(run.path), str(run.path / "guard" / "live.ring"),
        limits=(Limit("disk.free", below=1, of="/", source="site:3"),),
        disks=("/",), runner=(os.getpid(), start), lease_s=600.0,
    )  # fmt: skip
    (run.path / "guard" / "guard.json").write_text(json.dumps(config.to_json()))
    sentinel = begin(*module_argv("console.recovery.guard.daemon"), str(run.path / "guard"))
    watch = GuardWatch()

    def look() -> GuardView:
        return watch.look(run, True, False)

    view = until(lambda: (v := look()).word in (guards.OK, guards.WARN) and v, "it watches")
    assert view.limits[-1].source == "site:3"
    assert view.marks.ram_available
    assert view.at is not None
    assert time.monotonic() - view.at < 60
    assert "acts at RAM left <" in words(view, view.at)
    sentinel.kill()
    sentinel.wait()
    assert look().word == guards.GONE
    assert words(look(), look().at or 0.0).startswith("no guard: sentinel gone")


def test_the_watcher_follows_what_it_is_aimed_at(run: RunDir) -> None:
    watch = GuardWatch(every_s=0.01)
    watch.start()
    assert watch.latest == NOBODY
    watch.aim(run, alive=True, over=False)
    until(lambda: watch.latest.word == guards.STARTING, "no sentinel has begun")
    record(run)
    until(lambda: watch.latest.word == guards.OK, "this process wrote a ring")
    assert watch.latest.run == run
    breach(run)
    until(lambda: watch.latest.word == guards.ACTED, "a breach was written")
    watch.aim(None, alive=False, over=False)
    until(lambda: watch.latest == NOBODY, "no run")
    watch.close()
    gone([watch._thread])


def test_a_garbled_recording_is_a_word_and_no_figure(run: RunDir) -> None:
    record(run, page={"level": "ok", "tte_s": 41.0, "rate": 2e9})
    ring = run.path / "guard" / "recorder.ring"
    assert "full in 41 s" in words(GuardWatch().look(run, True, False))
    data = bytearray(ring.read_bytes())
    data[256 : 256 + 2 * 8192] = os.urandom(2 * 8192)
    ring.write_bytes(data)
    view = GuardWatch().look(run, True, False)
    assert (view.word, view.tte_s, view.rate) == (guards.UNREADABLE, None, None)
    assert words(view) == "guard unknown: its page is not whole"
    (run.path / "guard" / "sentinel.json").write_text("{}")
    ring.write_bytes(os.urandom(len(data)))
    assert words(GuardWatch().look(run, True, False)).endswith("its recording cannot be read")


@pytest.mark.parametrize(
    "page",
    [
        {}, {"level": 3}, {"level": "ok", "tte_s": "soon", "reasons": 7, "limits": [4, {}]},
        {"level": "ok", "tte_s": float("nan"), "rate": True, "lease": [], "mono": None},
    ],
)  # fmt: skip
def test_a_page_that_lies_is_not_believed(run: RunDir, page: dict[str, object]) -> None:
    view = view_of(run, page, None, this_boot=True)
    assert (view.tte_s, view.rate, view.lease, view.limits) == (None, None, None, ())
    assert view.word == (guards.OK if page.get("level") == "ok" else guards.UNREADABLE)
    assert "full in" not in words(view)
    assert "0 B" not in words(view)


def test_what_a_page_says(run: RunDir) -> None:
    view = view_of(run, TOLD, None, this_boot=True)
    assert view.lease == Lease(252.7)
    assert view.reasons == ("RAM full in 18.2 s: 4.9 GB/s", "swap", "no PSI")
    assert len(words(view, width=60)) <= 60
    at = [(one, replace(view, at=MONO - one).word_at(MONO)) for one in (4, 5, 6)]
    assert at == [(4, guards.WARN), (5, guards.WARN), (6, guards.SILENT)]
    assert view_of(run, TOLD, None, this_boot=False).at is None


def test_the_nearest_limit_that_kills_is_marked() -> None:
    marks = marks_of(LIMITS)
    assert (marks.ram_available, marks.swap_used, marks.swap_free) == (32 * GIB, 11 * GIB, None)
    assert marks.vram_free == (("", GIB),)
    assert marks.vram_used == (("GPU-b", 40 * GIB),)
    assert marks.disk_free == (("/data", 50 * GIB),)
    view = GuardView(word=guards.OK, at=MONO, limits=(Limit("disk.free", below=1, act="warn"),))
    assert "acts" not in words(view)


def test_a_run_that_is_over_or_calm_says_nothing_of_a_crash(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "start_time", lambda pid: 1)  # the recorder's process is gone
    record(run, until=KILL_S)
    assert "at level act" in GuardWatch().look(run, False, False).after
    record(run, until=KILL_S, said="end")
    assert GuardWatch().look(run, False, False).after == "", "it ended as it should"
    record(run)
    assert GuardWatch().look(run, False, True).after == ""
    assert GuardWatch().look(run, False, False).after == ""


def test_what_it_spares_and_cannot_watch_stands_on_the_line(run: RunDir) -> None:
    spared = "hog (process 7) is spared: it is the baseline"
    record(run, page={"level": "ok", "spared": [spared], "trouble": ["log of hog: gone"]})
    view = GuardWatch().look(run, True, False)
    assert (guard_json(view)["spared"], guard_json(view)["trouble"]) == (
        [spared], ["log of hog: gone"],
    )  # fmt: skip


def test_a_breach_that_no_disk_took_is_told_by_the_recording(run: RunDir) -> None:
    record(run, page={"level": "act", "acted": True})
    view = GuardWatch().look(run, True, False)
    assert (view.word, view.breach["reason"]) == (guards.ACTED, "RAM available 28.0 GiB")
