"""A candidate that clients stay at is judged as the baseline is: real processes and sockets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from console.common import paths
from console.journal.watch_record import CUT_OVER, GARBLED, SUSPECT, UNJUDGED
from console.recovery.rollback import look as faces
from console.recovery.rollback.baseline_state import Word
from console.watch.look import Looker
from console.watch.plan import Settings, WatchPlan
from console.watch.watcher import Restored
from tests.cutovers import cut_over
from tests.watching.conftest import World, plan_of


def plan_at(url: str) -> WatchPlan:
    plan = plan_of(url, restore=True, at_most=2)
    base = replace(plan.sealed.baseline, records_dir=str(paths.records_dir("ws")))
    return replace(plan, sealed=replace(plan.sealed, baseline=base))


def watched(url: str) -> tuple[World, WatchPlan]:
    plan = plan_at(url)
    world, eyes = World(plan), Looker(plan.sealed, plan.settings)
    world.look = lambda at: eyes.look()
    return world, plan


def test_a_garbled_candidate_is_told_and_restored_and_every_face_says_so(home: Path) -> None:
    with cut_over(home, "ws", text="G" * 40) as cut:
        world, plan = watched(cut.url)
        world.tick()
        assert (world.watcher.state.word, world.restored) == (SUSPECT, [])
        world.restore = lambda: Restored(False, "omni-console rollback failed: exit 7")
        world.tick()
        assert world.watcher.state.word == GARBLED
        assert len(world.restored) == 1
        assert world.events[0]["title"] == "the candidate in the baseline's place answers garbage"
        assert "GGGG" in world.events[0]["text"]
        known = faces.Looker().state(plan.sealed)
        assert known.word is Word.GARBLED, known
        assert "cut over to cand, not promoted, AND ANSWERS GARBAGE: one character" in known.detail
        world.tick(3)
        assert len(world.restored) == 1, "it was restored once for this"


@pytest.mark.parametrize("status", [500, 401, 404])
def test_a_candidate_that_fails_every_request_does_not_answer_in_its_place(
    home: Path, status: int
) -> None:
    with cut_over(home, "ws", status=status) as cut:
        world, plan = watched(cut.url)
        world.tick(3)
        state = world.watcher.state
        assert (state.word, f"HTTP {status}" in state.detail) == (UNJUDGED, True), state
        assert state.detail.endswith("; cand stands in its place")
        assert not world.restored
        known = faces.Looker().state(plan.sealed)
        assert (known.word, f"HTTP {status}" in known.detail) == (Word.REFUSING, True), known


def test_a_candidate_that_is_well_is_asked_and_no_figure_of_the_baseline(home: Path) -> None:
    with cut_over(home, "ws", text="The sky is blue because of the air.") as cut:
        world, plan = watched(cut.url)
        world.tick()
        state = world.watcher.state
        assert (state.word, state.asks, state.tok_s) == (CUT_OVER, 1, None), state
        assert state.detail.startswith("cand answers in its place; 40 tokens")
        assert faces.Looker().state(plan.sealed).word is Word.CUT_OVER


def test_a_stranger_at_the_url_of_a_dead_candidate_is_no_candidate(home: Path) -> None:
    with cut_over(home, "ws", text="The sky is blue because of the air.") as cut:
        looker = faces.Looker()
        plan = plan_at(cut.url).sealed
        assert looker.state(plan).word is Word.CUT_OVER
        pid, _ = cut.another(text="Some words of another server here.")
        world, _plan = watched(cut.url)
        world.tick(2)
        assert len(world.restored) == 1
        who = f"which does not run, or not at {cut.to}; something else answers there: pid {pid}, "
        assert who in world.events[0]["text"]
        known = faces.Looker().state(plan)
        assert (known.word, who in known.detail) == (Word.DOWN, True), known


def test_a_candidate_whose_record_is_lost_is_unknown(home: Path) -> None:
    with cut_over(home, "ws") as cut:
        for file in home.rglob("live.jsonl"):
            file.unlink()
        seen = Looker(plan_at(cut.url).sealed, Settings()).look()
        assert (seen.word, "no record is left" in seen.detail) == (UNJUDGED, True)
        assert faces.Looker().state(plan_at(cut.url).sealed).word is Word.UNKNOWN
