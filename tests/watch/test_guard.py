"""The guard of a run as the console knows it, from a real sentinel or garbage; its curve."""

import json
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from console.cli import main
from console.common.paths import module_argv
from console.frontends.cli.machine import guard_json
from console.host import process
from console.journal import guard_status as guards
from console.journal.guard_status import NOBODY, GuardView, GuardWatch, Lease, marks_of, view_of
from console.journal.run_dir import RunDir
from console.recovery.guard.config import GuardConfig, Limit
from console.render.breach import page, read
from console.render.cells import ASCII, UNICODE, Glyphs, cells, plain
from console.render.guard import line
from console.render.text_chart import LABEL, Curve, chart, columns
from tests.children import end
from tests.waiting import some, until
from tests.watch.conftest import gone
from tests.watch.guard_ring import GIB, KILL_S, MONO, breach, record, run_of

LIMITS = (
    Limit("host.ram_available", below=32 * GIB),
    Limit("host.ram_available", below=8 * GIB),
    Limit("host.ram_available", below=75 * GIB, act="warn"),
    Limit("host.swap_used", above=11 * GIB),
    Limit("gpu.memory_free", below=GIB, of="min"),
    Limit("gpu.memory_used", above=40 * GIB, of="GPU-b"),
    Limit("disk.free", below=50 * GIB, of="/data"),
    Limit("gpu.temperature", above=87.0, of="max"),
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
    begun, start = time.monotonic(), process.start_time(os.getpid()) or 0
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
    assert begun <= some(view.at) <= time.monotonic()
    assert "kills candidate below " in words(view, view.at)
    end(sentinel)
    assert look().word == guards.GONE
    assert words(look(), look().at or 0.0).startswith("no guard: sentinel gone")


def test_the_watcher_follows_what_it_is_aimed_at(run: RunDir) -> None:
    watch = GuardWatch(every_s=0.01)
    watch.start()
    assert watch.latest == NOBODY
    watch.follow(run, alive=True, over=False)
    until(lambda: watch.latest.word == guards.STARTING, "no sentinel has begun")
    record(run)
    until(lambda: watch.latest.word == guards.OK, "this process wrote a ring")
    assert watch.latest.run == run
    breach(run)
    until(lambda: watch.latest.word == guards.ACTED, "a breach was written")
    watch.follow(None, alive=False, over=False)
    until(lambda: watch.latest == NOBODY, "no run")
    watch.close()
    gone([watch._thread])


def test_a_garbled_recording_is_a_word_and_no_figure(run: RunDir) -> None:
    record(run, page={"level": "warn", "tte_s": 41.0, "rate": 2e9})
    ring = run.path / "guard" / "recorder.ring"
    assert "full in 41 s" in words(GuardWatch().look(run, True, False))
    data = bytearray(ring.read_bytes())
    data[256 : 256 + 2 * 8192] = os.urandom(2 * 8192)
    ring.write_bytes(data)
    view = GuardWatch().look(run, True, False)
    assert (view.word, view.tte_s, view.rate) == (guards.UNREADABLE, None, None)
    assert words(view) == "guard unknown: its page is incomplete"
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


def test_what_it_spared_and_a_breach_that_no_disk_took_are_told_by_the_recording(
    run: RunDir,
) -> None:
    spared, trouble = ["hog (process 7) is spared: it is the baseline"], ["log of hog: gone"]
    page = {"level": "act", "acted": True, "spared": spared, "trouble": trouble}
    record(run, page=page)
    view = GuardWatch().look(run, True, False)
    assert (view.word, view.breach.reason) == (guards.ACTED, "RAM available 28.0 GiB")
    assert (guard_json(view)["spared"], guard_json(view)["trouble"]) == (spared, trouble)


# -- the curve of a breach, and the recorder as a command; its page is in the test of words --------


def falling(*gap: float) -> Curve:
    points = tuple(
        (float(t), None if gap and gap[0] <= t < gap[1] else max(10.0, 100.0 - t))
        for t in range(120)
    )
    return Curve("RAM", points, 100.0, 25.0)


@pytest.mark.parametrize("signs", [UNICODE, ASCII], ids=["unicode", "ascii"])
@pytest.mark.parametrize("width", [40, 78, 118])
def test_a_curve_fits_and_has_its_limit_and_its_moment(signs: Glyphs, width: int) -> None:
    rows = [plain(row) for row in chart(falling(), 0, 120, width, 6, signs, 90.0)]
    assert len(rows) == 7
    assert all(cells(row) <= width for row in rows)
    assert rows[0].startswith("   100 B ")
    assert rows[4].startswith("    25 B ")
    assert signs.line in rows[4]
    at = rows[6].index(signs.up)
    assert at == LABEL + int(90 / 120 * (width - LABEL))
    assert rows[0][at] == signs.mark
    assert "".join(rows).isascii() == (signs is not UNICODE)


def test_what_is_not_known_is_a_question_and_no_zero() -> None:
    rows = [plain(row) for row in chart(falling(40, 60), 0, 120, LABEL + 60, 5, UNICODE)]
    assert rows[-1][LABEL + 21 : LABEL + 29] == "?" * 8
    assert rows[0][LABEL + 21 : LABEL + 29].strip() == ""
    assert rows[-1][LABEL + 55] == "▄"  # 10 of 100 in 5 rows is half a cell
    percent = chart(replace(falling(), unit="%"), 0, 120, 60, 5, UNICODE)
    assert [plain(percent[at])[:9] for at in (0, -1)] == ["   100 % ", "     0 % "]


def test_the_worst_of_a_span_is_what_is_drawn() -> None:
    dip = Curve("RAM", ((0.0, 90.0), (0.4, 5.0), (0.9, 90.0), (1.5, 80.0)), 100.0)
    assert columns(dip, 0.0, 2.0, 2) == [5.0, 80.0]
    peak = Curve("swap", dip.points, 100.0, below=False)
    assert columns(peak, 0.0, 2.0, 2) == [90.0, 80.0]
    assert columns(dip, 0.0, 0.0, 2) == [None, None]


# -- the recorder as a command -------------------------------------------------------------------


def test_the_newest_run_that_has_a_recording_after_a_reboot(
    run: RunDir, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(process, "boot_id", lambda: "before")
        record(run)
    run_of(run.path.parent / "20261121-000000-newer-ffff")
    assert main(["recorder"]) == 0
    assert run.id in capsys.readouterr().out
    assert main(["recorder", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["run"], found["restarted"], found["alive"]) == (run.id, True, False)
    assert len(found["samples"]) > 400
    assert found["breach"] is None


def test_a_breach_that_no_disk_took_has_its_page(run: RunDir) -> None:
    record(run, page={"level": "act", "acted": True, "spared": ["hog is spared: protected"]})
    found = page(read(run), NOBODY)
    assert found.above[0] == ("RAM available 28.0 GiB", "bad")
    assert found.moment == MONO + KILL_S
    assert main(["recorder", run.id[-4:]]) == 0


def test_a_torn_recording_shows_what_is_whole(
    run: RunDir, capsys: pytest.CaptureFixture[str]
) -> None:
    record(run)
    ring = run.path / "guard" / "recorder.ring"
    data = ring.read_bytes()
    ring.write_bytes(data[: len(data) // 3])
    assert main(["recorder"]) == 0
    assert "GiB" in capsys.readouterr().out


def test_a_small_drop_fills_the_chart() -> None:
    points = tuple((t / 4, (24.0 - t / 200) * GIB) for t in range(401))
    rows = chart(Curve("RAM available", points, 24.7 * GIB, 22.5 * GIB), 0, 100, 79, 5, UNICODE)
    text_ = [plain(row) for row in rows]
    assert text_[0].startswith("24.3 GiB ")
    assert text_[-1].startswith("21.7 GiB ")
    assert text_[0][LABEL] in UNICODE.levels
    assert len(text_[0]) < len(text_[1]) < len(text_[2]), "it falls through the rows"


def test_calm_samples_leave_no_gaps_in_a_wide_chart() -> None:
    calm = [(t * 1.25, 20.0 * GIB) for t in range(64)]
    quick = [(80 + t / 50, 20.0 * GIB) for t in range(500)]
    curve = Curve("RAM available", (*calm, *quick), 24 * GIB)
    assert None not in columns(curve, 0, 90, 111)
    torn = Curve("RAM available", (*calm[:20], *calm[40:], *quick), 24 * GIB)
    assert None in columns(torn, 0, 90, 111)
