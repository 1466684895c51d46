"""What a sentinel leaves to be read: taken as it is meant, and nothing believed."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from console.common import record
from console.common.clock import SystemClock
from console.journal.breach import (
    MAX_POINTS,
    Crossed,
    Seen,
    breach_of,
    crossed,
    limit_in,
    look,
    ready,
    step_cause,
    tell,
)
from console.journal.events import Breach, Guard
from console.journal.run_dir import RunDir
from console.journal.state import Cause
from console.recovery.guard.config import Inbox
from console.recovery.guard.metrics import FULL, RAM, SWAP
from console.recovery.guard.record.recorder import Recorder
from tests.runner.unit import journals
from tests.runner.unit.conftest import mine
from tests.waiting import some

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


@pytest.mark.parametrize(
    ("page", "told"),
    [
        ({"level": "warn", "reasons": ["RAM \x1b[31mfull", 7], "tte_s": 28.5, "lease_s": 9},
         ("warn", ("RAM full", "7"), 28.5, 9.0)),
        ({"level": None, "reasons": "x", "tte_s": "soon", "lease_s": True}, ("ok", (), None, None)),
    ],
)  # fmt: skip
def test_the_newest_page(run: RunDir, page: dict[str, Any], told: tuple[Any, ...]) -> None:
    made, me = Recorder(run.guard / "recorder.live", run.id, SystemClock()), mine()
    made.status(page)
    made.close()
    seen = some(look(run, me))
    assert seen == Seen(seen.at, *told)
    assert look(run, (me[0], me[1] + 1)) is None, "another sentinel's"


WINDOW = {"fast": [[float(t), 8 * GIB - t, 0, None] for t in range(2400)]}
BREACH = {**journals.BREACH, "reason": journals.WORDS, "window": WINDOW}


def written(run: RunDir, **changes: Any) -> Guard:
    put(run, "breach.json", {**BREACH, **changes})
    found = breach_of(run)
    assert found is not None, changes
    return found


def test_a_breach_is_kept_with_its_curve_thinned(run: RunDir) -> None:
    found, leased = written(run), written(run, cause="lease")
    assert (found.words, step_cause(found)) == (BREACH["reason"], Cause.GUARD)
    kept = found.window["fast"]
    assert len(kept) <= MAX_POINTS + 1
    assert (kept[0], kept[-1]) == (WINDOW["fast"][0], WINDOW["fast"][-1])
    assert found.killed[0]["write_s"] == 0.018
    assert (step_cause(leased), leased.cause) == (Cause.EXPIRED, "lease")


def test_a_breach_keeps_what_the_sentinel_says_of_it(run: RunDir) -> None:
    killed = {
        "name": "cand (container ab)", "kind": "container", "rungs": ["cgroup.kill", "engine"],
        "rung": "cgroup.kill", "written_s": 0.018, "write_s": 0.018, "empty_s": None,
        "held": {"ram": 5 * GIB, "swap": None, "age_s": 0.02, "x": "y"}, "why": ["a", "b"],
        "stuck": "its driver",
    }  # fmt: skip
    points = [[float(t), t] for t in range(1000)]
    found = written(
        run, crossed=41.5, mono=41.6, killed=[killed, {**killed, "held": {"ram": None}, "why": ""}],
        curve={"metric": "service.ram_used", "of": "cand\x1b[2J", "points": points},
    )  # fmt: skip
    told = {
        "name": "cand (container ab)", "kind": "container", "rung": "cgroup.kill, engine",
        "write_s": 0.018, "empty_s": None, "held": {"ram": 5 * GIB, "swap": None, "age_s": 0.02},
        "why": "a; b; does not die: its driver",
    }  # fmt: skip
    assert found.killed == [
        told, {**told, "held": None, "why": "does not die: its driver"},
    ]  # fmt: skip
    assert (found.crossed, found.gap_s, found.mono) == (41.5, 0.25, 41.6)
    curve = found.curve
    assert (curve["of"].isprintable(), curve["points"][-1]) == (True, points[-1])
    assert len(curve["points"]) <= MAX_POINTS + 1


def test_a_breach_that_is_half_garbage_is_still_a_breach(run: RunDir) -> None:
    changes: tuple[dict[str, Any], ...] = (
        {"reasons": 3}, {"limit": []}, {"killed": "x"}, {"killed": [3, None]}, {"window": []},
        {"window": {"fast": [[1], "x", [None, 1, 1], [1, "x", 2]]}}, {"cause": {"a": 1}},
        {"curve": 3}, {"curve": {"points": [3, [], [None, 1], ["x", 2], [1, "x"]]}},
        {"curve": {"column": "1", "of": {}}}, {"killed": [{"held": 3, "why": 4, "rungs": {}}]},
        {"reason": None, "reasons": []}, {"reason": "\x1b]0;x\x07 \x00"},
    )  # fmt: skip
    for change in changes:
        found = written(run, **change)
        assert found.words
        assert found.words.isprintable()
        json.dumps(found.data())


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


ROWS: list[list[Any]] = [[1.0, 9, 0, None], [2.0, 5, 3, 20.0], [3.0, 7, 1, 10.0]]


def found(limit: dict[str, Any], curve: dict[str, Any], **more: Any) -> Crossed | None:
    return crossed(Breach(limit=limit, curve=curve, at=2.0, window={"fast": ROWS}, **more))


@pytest.mark.parametrize(
    ("limit", "column", "value", "level", "below"),
    [
        ({"metric": "host.ram_available", "below": 6}, RAM, 5, 6, True),
        ({"metric": "host.time_to_full", "below": 6.0}, RAM, 5.5, None, True),
        ({"metric": "host.swap_used", "above": 2}, SWAP, 3, 2, False),
        ({"metric": "host.swap_growth", "above": 1}, SWAP, 2, 2, False),
        ({"metric": "host.swap_growth", "above": 1}, SWAP, None, None, False),
        ({"metric": "host.swap_free", "below": 4}, SWAP, 2, 1, False),
        ({"metric": "host.pressure", "above": 15.0}, FULL, 20.0, 15.0, False),
    ],
)
def test_where_the_limit_lies_on_a_column(
    limit: dict[str, Any], column: int, value: float | None, level: float | None, below: bool
) -> None:
    curve = some(found(limit, {"metric": limit["metric"], "column": column}, value=value))
    assert (curve.level, curve.below, curve.column) == (level, below, column)
    assert curve.points[0] == (1.0, ROWS[0][column])


def test_points_end_with_the_figure_that_was_judged() -> None:
    limit = {"metric": "gpu.memory_free", "below": GIB, "of": "min"}
    points = [[1.5, 2 * GIB], [0.5, 3 * GIB], ["x"], None]
    told = {"metric": "gpu.memory_free", "of": "GPU-a", "points": points}
    curve = some(found(limit, told, value=7))
    assert (curve.name, curve.unit, curve.level) == ("VRAM free of GPU-a", "B", GIB)
    assert curve.points == ((0.5, 3 * GIB), (1.5, 2 * GIB), (2.0, 7))


def test_without_figures_there_is_none() -> None:
    assert limit_in(record.lenient(Breach, {"limit": 3})) is None
    broken = (None, {}, {"column": 9}, {"column": True, "points": 3}, {"points": [[1.0, None]]})
    for curve in (*broken, "x"):
        assert crossed(record.lenient(Breach, {"curve": curve, "at": 1.0, "limit": 3})) is None
