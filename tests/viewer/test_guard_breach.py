"""The page of a breach, from its files alone, and its curve; the recorder as a table."""

from __future__ import annotations

import json

import pytest

from console.cli import main
from console.host import process
from console.journal.guard_status import NOBODY
from console.journal.run_dir import RunDir
from console.render.breach import BreachPage, page, read
from console.render.cells import ASCII, UNICODE, Glyphs, cells, plain
from console.render.text_chart import LABEL, Curve, chart, columns
from tests.viewer.guard_ring import GIB, KILL_S, MONO, WALL, breach, climbed, record, run_of


def shown(run: RunDir) -> BreachPage:
    return page(read(run), NOBODY)


def test_a_breach_as_a_page(run: RunDir) -> None:
    record(run)
    breach(run)
    climbed(run, ("memory", 2.1), ("serving", 74.0))
    found = shown(run)
    assert found.above[0] == ("RAM available 28.0 GiB, below 32.0 GiB", "bad")
    ram, swap = found.curves
    assert (ram.top, ram.limit, ram.below) == (377 * GIB, 32 * GIB, True)
    assert (swap.name, swap.below) == ("swap used", False)
    assert found.moment == MONO + KILL_S
    assert found.end - found.begin == pytest.approx(115, abs=6)


def test_the_card_that_was_the_cause_comes_first(run: RunDir) -> None:
    record(run)
    limit = {"metric": "gpu.memory_free", "below": 10 * GIB, "of": "GPU-a"}
    points = [[WALL + t, (96 - t) * GIB] for t in range(94)]
    curve = {"metric": "gpu.memory_free", "of": "GPU-a", "points": points}
    breach(run, limit=limit, curve=curve, value=2 * GIB)
    vram, ram, _ = shown(run).curves
    assert (vram.name, vram.limit, vram.below) == ("VRAM free of GPU-a", 10 * GIB, True)
    assert vram.points[0] == (MONO, 96 * GIB)
    assert vram.points[-1] == (MONO + KILL_S, 2 * GIB)
    assert ram.name == "RAM available"


def test_the_service_that_was_the_cause_comes_first(run: RunDir) -> None:
    record(run)
    limit = {"metric": "service.ram_used", "above": 70 * GIB, "of": "candidate"}
    points = [[WALL + t, max(0, t - 20) * GIB] for t in range(int(KILL_S))]
    curve = {"metric": "service.ram_used", "of": "candidate", "points": points}
    reason = "RAM of candidate 74.5 GiB, above 70.0 GiB"
    breach(run, limit=limit, value=74.5 * GIB, reason=reason, curve=curve)
    load, ram, *_ = shown(run).curves
    assert (load.name, load.limit, load.below) == ("RAM of candidate", 70 * GIB, False)
    assert (MONO + KILL_S, 74.5 * GIB) in load.points
    assert load.points[0][1] == 0
    assert ram.name == "RAM available"


def test_swap_that_crossed_comes_first_with_its_limit(run: RunDir) -> None:
    record(run)
    rows = [[WALL + t, 28 * GIB, int(max(0.0, (t - 80) / 2) * GIB), None] for t in range(96)]
    limit = {"metric": "host.swap_growth", "above": 7 * GIB}
    curve = {"metric": "host.swap_growth", "of": "", "column": 2}
    breach(run, limit=limit, value=7.5 * GIB, window={"fast": rows}, curve=curve)
    swap, ram = shown(run).curves
    assert (swap.name, swap.limit, ram.name) == ("swap used", 7 * GIB, "RAM available")


def test_pressure_is_no_figure_of_bytes(run: RunDir) -> None:
    rows = [[WALL + t, 28 * GIB, 0, t / 2] for t in range(96)]
    limit = {"metric": "host.pressure", "above": 40}
    curve = {"metric": "host.pressure", "of": "", "column": 3}
    breach(run, limit=limit, window={"fast": rows}, curve=curve)
    first, *_ = shown(run).curves
    assert (first.unit, first.limit, first.below) == ("%", 40, False)
    rows_ = chart(first, MONO, MONO + KILL_S, 60, 5, UNICODE)
    assert plain(rows_[0]).startswith("    52 % ")
    assert plain(rows_[-1]).startswith("     0 % ")


def test_after_a_reboot_and_without_a_ring_there_is_what_the_breach_kept(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [[WALL + t, (354 - 3 * t) * GIB, 0, None] for t in range(0, 96, 5)]
    breach(run, window={"fast": rows})
    (ram,) = shown(run).curves
    assert len(ram.points) == len(rows)
    assert ram.points[-1] == (MONO + KILL_S, pytest.approx((354 - 285) * GIB))


# -- the curve -----------------------------------------------------------------------------------


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


def test_a_torn_recording_shows_what_is_whole(
    run: RunDir, capsys: pytest.CaptureFixture[str]
) -> None:
    record(run)
    ring = run.path / "guard" / "recorder.ring"
    data = ring.read_bytes()
    ring.write_bytes(data[: len(data) // 3])
    assert main(["recorder"]) == 0
    assert "GiB" in capsys.readouterr().out


def test_a_breach_that_no_disk_took_has_its_page(run: RunDir) -> None:
    record(run, page={"level": "act", "acted": True, "spared": ["hog is spared: protected"]})
    found = shown(run)
    assert found.above[0] == ("RAM available 28.0 GiB", "bad")
    assert found.moment == MONO + KILL_S
    assert main(["recorder", run.id[-4:]]) == 0


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
