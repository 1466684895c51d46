"""What a sentinel leaves to be read: taken as it is meant, and nothing believed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from console.common.clock import SystemClock
from console.journal.breach import MOST_POINTS, breach_of, look, ready, tell
from console.journal.run_dir import RunDir
from console.journal.state import Cause
from console.recovery.guard.config import Inbox
from console.recovery.guard.record.recorder import Recorder

GIB = 1 << 30


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    made = RunDir(tmp_path / "r1")
    made.guard.mkdir(parents=True)
    return made


def put(run: RunDir, name: str, value: object) -> None:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    (run.guard / name).write_bytes(data)


def test_what_is_no_word_of_a_sentinel(run: RunDir) -> None:
    for value in (
        b"", b"{", b"[]", b'"x"', {"pid": 0, "start": 1}, {"pid": 5}, {"pid": "x", "start": 1},
        {"pid": 5, "start": 0}, {"pid": None, "start": None}, b"\xff" * 9, b"[" * 99999,
    ):  # fmt: skip
        put(run, "sentinel.json", value)
        put(run, "breach.json", value)
        assert (ready(run), breach_of(run)) == (None, None), value


@pytest.fixture
def page(run: RunDir) -> Callable[..., tuple[int, int]]:
    """Writes a page as a sentinel does; who wrote it."""
    from tests.run.unit.guarded import mine

    def write(**values: Any) -> tuple[int, int]:
        made = Recorder(run.guard / "recorder.live", run.id, SystemClock())
        made.status(values)
        made.close()
        return mine()

    return write


def test_the_newest_page(run: RunDir, page: Callable[..., tuple[int, int]]) -> None:
    me = page(level="warn", reasons=["RAM \x1b[31mfull", 7], tte_s=28.5, lease_s=9)
    seen = look(run, me)
    assert seen is not None
    assert (seen.level, seen.reasons) == ("warn", ("RAM full", "7"))
    assert (seen.tte_s, seen.lease_s) == (28.5, 9.0)
    assert look(run, (me[0], me[1] + 1)) is None, "another sentinel's"


def test_a_page_with_nothing_in_it(run: RunDir, page: Callable[..., tuple[int, int]]) -> None:
    seen = look(run, page(level=None, reasons="x", tte_s="soon", lease_s=True))
    assert seen is not None
    assert (seen.level, seen.reasons, seen.tte_s, seen.lease_s) == ("ok", (), None, None)


WINDOW = {"fast": [[float(t), 8 * GIB - t, 0, None] for t in range(2400)]}
BREACH: dict[str, Any] = {
    "at": 1_790_000_000.5, "reason": "RAM available 1.9 GiB, limit 2.0 GiB",
    "reasons": ["RAM available 1.9 GiB", "full in 3 s"],
    "limit": {"metric": "host.ram_available", "below": 2 * GIB},
    "killed": [{"name": "cand", "kind": "process", "rung": "SIGKILL", "write_s": 0.018,
                "empty_s": 0.22}],
    "window": WINDOW, "cause": "guard",
}  # fmt: skip


def test_a_breach_is_kept_with_its_curve_thinned(run: RunDir) -> None:
    put(run, "breach.json", BREACH)
    found = breach_of(run)
    assert found is not None
    assert (found.words, found.cause) == (BREACH["reason"], Cause.GUARD)
    kept = found.data["window"]["fast"]
    assert len(kept) <= MOST_POINTS + 1
    assert (kept[0], kept[-1]) == (WINDOW["fast"][0], WINDOW["fast"][-1])
    assert found.data["killed"][0]["write_s"] == 0.018
    put(run, "breach.json", {**BREACH, "cause": "lease"})
    found = breach_of(run)
    assert found is not None
    assert (found.cause, found.data["cause"]) == (Cause.EXPIRED, "lease")


def test_a_breach_keeps_what_the_sentinel_says_of_it(run: RunDir) -> None:
    killed = {
        "name": "cand (container ab)", "kind": "container", "rungs": ["cgroup.kill", "engine"],
        "rung": "cgroup.kill", "written_s": 0.018, "write_s": 0.018, "empty_s": None,
        "held": {"ram": 5 * GIB, "swap": None, "age_s": 0.02, "x": "y"}, "why": ["a", "b"],
        "stuck": "its driver",
    }  # fmt: skip
    points = [[float(t), t] for t in range(1000)]
    put(run, "breach.json", {
        **BREACH, "crossed": 41.5, "mono": 41.6, "gap_s": 0.25,
        "killed": [killed, {**killed, "held": {"ram": None}, "why": ""}],
        "curve": {"metric": "service.ram_used", "of": "cand\x1b[2J", "points": points},
    })  # fmt: skip
    found = breach_of(run)
    assert found is not None
    one, other = found.data["killed"]
    assert one["held"] == {"ram": 5 * GIB, "swap": None, "age_s": 0.02}
    assert (one["rung"], one["write_s"], one["empty_s"]) == ("cgroup.kill, engine", 0.018, None)
    assert one["why"] == "a; b; does not die: its driver"
    assert (other["held"], other["why"]) == (None, "does not die: its driver")
    assert (found.data["crossed"], found.data["gap_s"], found.data["mono"]) == (41.5, 0.25, 41.6)
    curve = found.data["curve"]
    assert (curve["of"].isprintable(), curve["points"][-1]) == (True, points[-1])
    assert len(curve["points"]) <= MOST_POINTS + 1


def test_a_breach_that_is_half_garbage_is_still_a_breach(run: RunDir) -> None:
    changes: tuple[dict[str, Any], ...] = (
        {"reasons": 3}, {"limit": []}, {"killed": "x"}, {"killed": [3, None]}, {"window": []},
        {"window": {"fast": [[1], "x", [None, 1, 1], [1, "x", 2]]}}, {"cause": {"a": 1}},
        {"curve": 3}, {"curve": {"points": [3, [], [None, 1], ["x", 2], [1, "x"]]}},
        {"curve": {"column": "1", "of": {}}}, {"killed": [{"held": 3, "why": 4, "rungs": {}}]},
        {"reason": None, "reasons": []}, {"reason": "\x1b]0;x\x07 \x00"},
    )  # fmt: skip
    for change in changes:
        put(run, "breach.json", {**BREACH, **change})
        found = breach_of(run)
        assert found is not None, change
        assert found.words
        assert found.words.isprintable()
        json.dumps(found.data)


def test_who_watches_and_nobody_is_waited_for(run: RunDir) -> None:
    assert (ready(run), look(run, (1, 1)), breach_of(run)) == (None, None, None)
    put(run, "sentinel.json", {"pid": 77, "start": 5, "memory": "all pages locked"})
    assert ready(run) == (77, 5)
    (run.guard / "sentinel.json").unlink()
    os.mkfifo(run.guard / "sentinel.json")
    assert ready(run) is None
    put(run, "inbox", b"")
    assert not tell(run, {"do": "beat"})
    assert (run.guard / "inbox").read_bytes() == b"", "a plain file is no inbox"


def test_a_message_reaches_an_inbox_and_a_full_one_holds_nobody_up(run: RunDir) -> None:
    assert not tell(run, {"do": "beat"})
    inbox = Inbox(run.guard / "inbox")
    try:
        assert tell(run, {"do": "outage", "on": True})
        assert inbox.read() == [{"do": "outage", "on": True}]
        assert not [tell(run, {"do": "beat"}) for _ in range(20_000)][-1]
    finally:
        inbox.close()
    assert not tell(run, {"do": "beat"}), "nobody reads any more"
