"""What the viewer says: the guard's line, the page of a breach, the recorder, why no verb."""

import json
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from console.cli import main
from console.frontends.tui.watch.actions import why_not
from console.frontends.tui.watch.run import Snapshot
from console.host import process
from console.journal import guard_status as guards
from console.journal.events import Breach
from console.journal.guard_status import NOBODY, GuardView, GuardWatch, Lease, view_of
from console.journal.run_dir import RunDir
from console.journal.state import VERBS, RunState
from console.recovery.guard.config import defaults
from console.recovery.rollback.look import judge
from console.render.breach import BreachPage, page, read, title
from console.render.cells import Row
from console.render.guard import lease_words, line, lines
from tests.watch.conftest import Hand
from tests.watch.guard_ring import END_S, GIB, KILL_S, MONO, WALL, breach, climbed, record
from tests.watch.test_guard import TOLD
from tests.watch.test_verbs import snapshot as seen_as

EVIL = "\x1b[2J\x1b]0;x\x07boo"


def drawn(rows: Iterable[Row]) -> str:
    return "\n".join(
        "".join(f"<{tone}>{text}" if tone else text for text, tone in row) for row in rows
    )


def test_the_guards_line(run: RunDir, snapshot: SnapshotAssertion) -> None:
    warned = view_of(run, TOLD, None, this_boot=True)
    ok = GuardView(run, guards.OK, at=MONO)
    views = [
        NOBODY, *[GuardView(run, word, at=MONO, detail="its page is incomplete") for word in (
            guards.LOOKING, guards.STARTING, guards.OK, guards.WARN, guards.GONE, guards.SILENT,
            guards.UNREADABLE, guards.ACTED, guards.ENDED,
        )],
        replace(ok, alone=True), replace(ok, tte_s=41.9), replace(ok, tte_s=600.0),
        replace(ok, tte_s=601.0), replace(ok, tte_s=100.0), replace(ok, rate=float(1 << 20)),
        replace(ok, rate=float((1 << 20) - 1)), replace(ok, advisory=True),
        replace(ok, spared=("hog is spared",), trouble=("log of hog: gone",)),
        GuardView(run, guards.WARN, at=MONO, reasons=("swap grows",)), warned,
        replace(warned, at=MONO - 2.0), replace(warned, at=MONO - 4), replace(warned, at=MONO - 9),
        replace(warned, filling="VRAM"), view_of(run, TOLD, None, this_boot=False),
        view_of(run, {"level": "ok", "tte_s": "soon", "reasons": 7}, None, this_boot=True),
        GuardView(run, guards.ACTED, breach=Breach(at=WALL)),
        GuardView(run, guards.ENDED, after="x"),
    ]  # fmt: skip
    said = [drawn([line(view, MONO, width)]) for view in views for width in (0, 60)]
    said += [drawn([line(warned, MONO, 0, "")]), drawn([line(views[-2], MONO, 0, "")])]
    assert "\n".join(said) == snapshot


def test_the_lease(snapshot: SnapshotAssertion) -> None:
    left = (252.9, 99.0, 0.0, 28_805.0)
    leases = [None, *map(Lease, left), Lease(600.0, True), Lease(None, True)]
    said = [lease_words(one, brief=brief) for one in leases for brief in (False, True)]
    assert said == snapshot


def test_what_a_crash_left(
    run: RunDir, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(process, "boot_id", lambda: "another-boot")
        record(run, until=KILL_S)
    view = GuardWatch().look(run, False, False)
    assert drawn(lines(view, MONO, 80)) == snapshot


def test_an_inspected_container(snapshot: SnapshotAssertion) -> None:
    at = 1767225600.0 + 200  # 2026-01-01 00:03:20 UTC
    states: list[dict[str, object] | None] = [
        {"Running": True}, {"Running": True, "Paused": True},
        {"Restarting": True, "Running": True, "ExitCode": 1},
        {"Status": "created", "FinishedAt": "0001-01-01T00:00:00Z"},
        {"Status": "exited", "ExitCode": 137, "OOMKilled": True,
         "FinishedAt": "2026-01-01T00:00:00.123456789Z"},
        {"Status": "exited", "ExitCode": 0, "FinishedAt": "2025-12-31T22:03:20Z"},
        {"Status": "\x1b[2Jexited", "ExitCode": 0, "FinishedAt": "soon"}, None,
    ]  # fmt: skip
    assert [judge({"State": state}, at) for state in states] == snapshot


def test_why_a_verb_cannot_be(hand: Callable[..., Hand], snapshot: SnapshotAssertion) -> None:
    made = hand()
    running, paused = seen_as(made, RunState.RUNNING), seen_as(made, RunState.PAUSED, "operator")
    views = {
        "no run": Snapshot(), "ended": seen_as(made, RunState.SUCCEEDED),
        "gone": (gone := replace(running, word="interrupted", alive=False)),
        "climbing": replace(gone, is_rolling_back=True), "blind": replace(paused, control={}),
        "unread": replace(running, word="unreadable", trouble="no journal file"),
        "silent": replace(paused, silent=True),
        "late": replace(paused, control={"state": "running"}),
        **{f"{state} {reason}": seen_as(made, state, reason) for state, reason in product(
            (RunState.RUNNING, RunState.PAUSED, RunState.WAITING_APPROVAL),
            ("", "operator", "hold", "few_samples", "few_baseline", "step_failed"),
        )},
    }  # fmt: skip
    said = [
        f"{name:<28} {verb:<8} {why_not(view, verb)}"
        for name, view in views.items()
        for verb in sorted(VERBS) + ["resume"] * ("resume" not in VERBS)
    ]
    assert "\n".join(said) == snapshot
    bare = {why_not(view, verb, keys=False) for view in views.values() for verb in VERBS}
    assert not [one for one in bare if re.search(r"\bF12\b|;", one)]


def calm(text: str, run: RunDir) -> str:
    """Without what is another one at each start."""
    return text.replace(str(run.path.parent), "RUNS").replace(f"pid {os.getpid()}", "pid 1234")


def told(found: BreachPage) -> str:
    above, below = ([f"<{tone}>{text}" for text, tone in one] for one in (found.above, found.below))
    curves = [
        f"{one.name}: {len(one.points)} points, top {one.top:g} {one.unit}, limit {one.limit}, "
        f"below {one.below}, from {one.points[:1]} to {one.points[-1:]}"
        for one in found.curves
    ]
    times = f"-- {found.begin:.1f} to {found.end:.1f}, moment {found.moment}"
    return "\n".join([*above, times, *curves, "--", *below])


def curve(metric: str, of: str = "", column: int = 0) -> dict[str, Any]:
    """What the sentinel keeps of the figure that crossed; `column`: it stands in the window."""
    if column:
        return {"metric": metric, "of": of, "column": column}
    return {"metric": metric, "of": of, "points": [[WALL + t, t * GIB] for t in range(94)]}


FAST = [[WALL + t, (354 - 3 * t) * GIB, t * GIB, t / 2] for t in range(0, 96, 5)]


CARD = {"metric": "gpu.memory_free", "below": 10 * GIB, "of": "GPU-a"}
LOAD = {"metric": "service.ram_used", "above": 70 * GIB, "of": "candidate"}
KILLED = {"name": "candidate (pid 3)", "rungs": ["signals"], "why": EVIL, "stuck": "in a read",
          "held": {"ram": 3 * GIB, "swap": GIB, "age_s": 0.1}}  # fmt: skip
BREACHES: dict[str, dict[str, Any]] = {
    "memory": {},
    "a card": {"limit": CARD, "value": 2 * GIB, "reason": "VRAM free of GPU-a",
               "curve": curve("gpu.memory_free", "GPU-a")},
    "a service": {"limit": LOAD, "value": 74.5 * GIB,
                  "curve": curve("service.ram_used", "candidate")},
    "swap": {"limit": {"metric": "host.swap_growth", "above": 7 * GIB}, "value": 7.5 * GIB,
             "window": {"fast": FAST}, "curve": curve("host.swap_growth", column=2)},
    "disk": {"limit": {"metric": "disk.free", "below": GIB, "of": "/data"}},
    "pressure": {"limit": {"metric": "host.pressure", "above": 40}, "window": {"fast": FAST},
                 "curve": curve("host.pressure", column=3)},
    "victims": {"killed": [KILLED, {"name": "other (pid 4)", "empty_s": 0.1}], "gap_s": 0.25,
                "refused": ["hog: protected"]},
    "lease": {"cause": "lease", "reason": "nobody was attached", "killed": [], "limit": {}},
    "allocation": {"cause": "allocation", "reason": "the job ended", "killed": [], "limit": {}},
    "more garbage": {"killed": 3, "refused": 1, "wall": "x", "at": {}, "limit": {"metric": "no"}},
    "a torn window": {"window": {"fast": [1, [2], ["a", "b", "c"], [None, 1, 2]]}},
    "garbage": {"killed": [None, {}, 3], "limit": [], "reason": EVIL, "window": "x", "mono": None},
}  # fmt: skip


def test_the_page_of_a_breach(
    run: RunDir, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    limits = defaults(377 * GIB, 0).limits
    view = GuardView(run, "ok", MONO, limits=limits, missing=("no mlock",))
    said = ["== no run", told(page(None, NOBODY)), "== no sentinel", told(page(read(run), NOBODY))]
    breach(run, window={"fast": FAST})
    said += ["== no ring", told(page(read(run), NOBODY))]
    (run.path / "guard" / "breach.json").unlink()
    record(run)
    said += ["== no breach", told(page(read(run), view))]
    for name, changes in BREACHES.items():
        breach(run, **changes)
        said += [f"== {name}", title(read(run)), told(page(read(run), view))]
    breach(run)
    climbed(run, ("memory", -300.0), ("serving", -200.0))
    said += ["== climbed before", told(page(read(run), NOBODY))]
    climbed(run, ("memory", 2.1), ("serving", 74.0))
    said += ["== climbed", told(page(read(run), NOBODY))]
    monkeypatch.setattr(process, "boot_id", lambda: "after")
    synced = WALL + END_S + 1.2
    os.utime(run.path / "guard" / "recorder.ring", (synced, synced))
    said += ["== restarted", told(page(read(run), NOBODY))]
    assert calm("\n".join(said), run) == snapshot


def test_the_recorder(
    run: RunDir, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
) -> None:
    said = []

    def call(*argv: str) -> None:
        code = main(["recorder", *argv])
        out, err = capsys.readouterr()
        said.append(f"$ recorder {' '.join(argv)} → {code}\n{out}{err}")

    call()
    for argv in (["1a2b"], ["nobody"], ["--seconds", "0"], ["--seconds", "nan"]):
        call(*argv)
    record(run, page={"level": "ok", "spared": ["hog is spared: protected"], "trouble": 7})
    call("1a2b", "--seconds", "30")
    breach(run)
    call("1a2b", "--seconds", "5")
    assert calm("\n".join(said), run) == snapshot
    assert main(["recorder", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["breach"] is not None
