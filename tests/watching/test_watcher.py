"""What follows from looks: words, events that are told once, restores, and what changed."""

from dataclasses import replace

import pytest

from console.journal import watch_record as record
from console.journal.watch_record import (
    BUSY,
    CUT_OVER,
    DOWN,
    GARBLED,
    LOADING,
    PLANNED,
    SERVING,
    SUSPECT,
    UNJUDGED,
)
from console.recovery.rollback.baseline_state import Evidence, Kind, Witness, Word
from console.runtime.probe import ALL_THE_SAME, SLOW
from console.watch.look import Holder, Look
from console.watch.watcher import Restored, evidence_of
from tests.watching.conftest import RATE, SILENT, Noise, World, plan_of, with_settings

HOUR, DAY = 3600.0, 86_400.0


def noisy(world: World, seed: int = 1, slow_at: float = float("inf")) -> None:
    noise = Noise(seed)

    def look(at: float) -> Look:
        rate = noise(at, RATE * (0.5 if at >= slow_at else 1.0))
        return Look(SERVING, "16 tokens", rate, 0.2, requested=True)

    world.look = look


# -- speed -----------------------------------------------------------------------------------------


@pytest.mark.full
def test_a_week_with_changes_of_the_machine_and_no_change_of_speed_is_silent(world: World) -> None:
    noisy(world)
    world.until(2 * DAY)
    world.prints["driver"] = "580.65"
    world.until(4 * DAY)
    world.again()
    world.until(7 * DAY)
    assert world.events == []
    state = world.watcher.state
    assert state.changed == "driver 575.57.08 → 580.65"
    assert (state.word, state.looks) == (SERVING, 7 * 24 * 60)


def test_a_slowdown_is_told_with_what_changed_then_and_not_with_what_changed_before(
    world: World,
) -> None:
    noisy(world, seed=2, slow_at=8 * HOUR)
    world.until(6 * HOUR)
    world.prints["BIOS"] = "1502"
    world.until(8 * HOUR)
    world.prints |= {"driver": "580.65", "image": "sha256:" + "b" * 64,
                     "command line": "llama-server -c 8192 -fa"}  # fmt: skip
    world.until(12 * HOUR)
    [event] = world.events
    assert event["event"] == "slower"
    for words in ("driver 575.57.08 → 580.65", "image changed", "4096 → 8192"):
        assert words in event["text"]
    assert "BIOS" not in event["text"]
    assert world.watcher.state.slow_since == pytest.approx(world.begun + 8 * HOUR, abs=300)
    assert "baseline is slower since" in event["title"]


def test_one_that_was_slow_before_the_watch_is_told_with_the_reference(world: World) -> None:
    noisy(world, slow_at=0.0)
    world.until(HOUR)
    [event] = world.events
    assert event["title"] == "the baseline is slower than the site's reference"
    assert "reference is 10" in event["text"]


def test_a_slowdown_by_what_others_take_names_the_pressure(world: World) -> None:
    noisy(world, seed=3, slow_at=8 * HOUR)
    world.gauges = {"CPU pressure": 0.5}
    world.until(8 * HOUR)
    world.gauges = {"CPU pressure": 61.0}
    world.until(10 * HOUR)
    [event] = world.events
    assert "CPU pressure" in event["text"]
    assert world.watcher.state.why == ["CPU pressure 0 % → 61 %"]


def test_with_no_change_the_event_says_so_and_faster_again_follows(world: World) -> None:
    noisy(world, seed=4, slow_at=6 * HOUR)
    world.until(8 * HOUR)
    assert "nothing that the watch looks at has changed" in world.events[-1]["text"]
    noisy(world, seed=4)
    world.until(11 * HOUR)
    assert world.kinds == ["slower", "faster"]
    assert "faster again" in world.events[-1]["title"]


def test_a_watch_that_is_killed_after_every_look_tells_the_same(world: World) -> None:
    noisy(world, seed=2, slow_at=2 * HOUR)
    while world.clock.now() - world.begun < 4 * HOUR:
        world.tick()
        world.again()
    assert world.kinds == ["slower"]


def test_what_clients_share_and_what_was_not_asked_is_no_figure(world: World) -> None:
    world.look = lambda at: Look(BUSY, "2 requests of others", None, 0.2, requested=True)
    world.tick(100)
    assert (world.watcher.state.level, world.watcher.state.word) == (None, BUSY)
    assert world.watcher.state.asks == 100


# -- dead or frozen ----------------------------------------------------------------------------


def test_a_frozen_baseline_is_noticed_within_two_intervals_and_restored(world: World) -> None:
    world.tick(3)
    frozen = world.clock.now() - world.begun + 0.001
    normal = world.look

    def look(at: float) -> Look:
        if world.restored or at < frozen:
            return normal(at)
        world.clock.sleep(5.0)  # the health path's deadline
        return SILENT

    world.look = look
    world.until(frozen + 600)
    assert world.kinds == ["baseline-down", "baseline-back"]
    assert world.events[0]["at"] - world.begun - frozen <= 2 * 60
    assert len(world.restored) == 1
    assert world.watcher.state.word == SERVING
    assert "SIGSTOP" in world.events[0]["text"]
    assert "restored by the watch" in world.events[1]["title"]


def test_a_run_that_began_during_a_look_keeps_its_outage(world: World) -> None:
    world.tick(3)
    world.look = lambda at: SILENT
    world.tick()
    world.held = Holder("run X is on")
    world.tick()
    assert (world.kinds, world.restored, world.watcher.state.word) == ([], [], PLANNED)
    world.held = None
    world.tick()
    assert world.watcher.state.word == SUSPECT, "it is judged anew when the run is over"


def test_what_died_beside_a_run_is_told_and_not_restored(world: World) -> None:
    """The run has not stopped it, and a restore would roll the run back."""
    world.tick(3)
    world.held = Holder("run X is on", stopped=False)
    world.look = lambda at: SILENT
    world.tick(5)
    assert (world.kinds, world.restored, world.watcher.state.word) == (["baseline-down"], [], DOWN)
    world.held = None
    world.tick()
    assert (world.kinds, len(world.restored)) == (["baseline-down", "baseline-back"], 1)


def test_beside_the_outage_of_another_site_it_is_told_and_no_restore_is_used_up(
    world: World,
) -> None:
    world.tick(3)
    world.held = Holder("run X of site dock is on", stopped=False, other=True)
    world.look, died = lambda at: SILENT, world.clock.now()
    world.tick(9)
    assert (world.kinds, world.restored) == (["baseline-down", "baseline-down"], [])
    assert world.events[0]["key"] == f"baseline-down@ws@{died:.0f}"
    assert "not restored beside a run of another site" in world.events[1]["title"]
    assert "run X of site dock is on, and may be in its outage" in world.events[1]["text"]
    world.held = Holder("run X of site dock is on", stopped=False, other=True, alone=False)
    world.tick()
    assert len(world.restored) == 1, "that run leaves its own baseline serving"


def test_an_old_doubt_says_nothing_after_a_reboot(world: World) -> None:
    world.tick(3)
    world.look = lambda at: SILENT
    world.tick()
    assert world.watcher.state.word == SUSPECT
    world.watcher.save()
    world.clock.sleep(3600)
    world.again()
    world.tick()
    assert (world.watcher.state.word, world.restored) == (SUSPECT, [])


def test_one_missed_answer_is_no_word(world: World) -> None:
    answers = iter([SILENT])
    normal = world.look
    world.tick(3)
    world.look = lambda at: next(answers, None) or normal(at)
    world.tick()
    assert world.watcher.state.word == SUSPECT
    world.tick(50)
    assert (world.kinds, world.restored, world.watcher.state.word) == ([], [], SERVING)


def test_at_most_so_many_restores_and_then_it_is_only_told(world: World) -> None:
    world = with_settings(world, interval_s=600.0)
    world.look = lambda at: SILENT
    world.restore = lambda: Restored(False, "omni-console rollback failed: no engine")
    world.until(6 * HOUR)
    assert len(world.restored) == 2
    assert world.kinds == ["baseline-down"] * 4
    failed, again, left = (one["text"] for one in world.events[1:])
    assert failed == again == "omni-console rollback failed: no engine"
    assert "it was restored 2 times within 24 hours" in left
    world.until(23 * HOUR)
    assert len(world.restored) == 2
    world.until(26 * HOUR)
    assert len(world.restored) == 4, "a day later there are two more"
    assert len(world.events) == 6


def test_a_watch_that_is_killed_in_a_restore_has_used_it_up(world: World) -> None:
    class Killed(Exception):
        pass

    def killed() -> Restored:
        raise Killed

    world.look = lambda at: SILENT
    world.restore = killed
    world.tick()
    for _ in range(2):
        with pytest.raises(Killed):
            world.tick(5)
        world.again()
    world.tick(20)
    assert len(world.restored) == 2
    assert [event["key"] for event in world.events] == sorted({e["key"] for e in world.events})


def test_a_full_disk_costs_the_record_and_not_the_restores(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    world.tick(3)
    world.look = lambda at: SILENT
    world.restore = lambda: Restored(False, "no")
    with monkeypatch.context() as patch:
        patch.setattr(record, "append_line", full)
        patch.setattr(record, "write_atomically", full)
        world.tick(20)
        assert len(world.restored) == 2
        assert "No space left" in world.watcher.state.trouble
    world.tick()
    assert world.watcher.state.trouble == ""


def test_one_that_somebody_else_has_started_again_is_waited_for(world: World) -> None:
    world.restore = lambda: Restored(False, "no")
    world.look = lambda at: SILENT if at < 50 else Look(LOADING, "Loading model")
    world.tick(3)
    assert len(world.restored) == 1
    world.until(500.0)
    assert (len(world.restored), world.watcher.state.word) == (1, LOADING)
    world.look = lambda at: Look(SERVING, "", RATE, 0.2, requested=True)
    world.tick()
    assert world.kinds == ["baseline-down", "baseline-down", "baseline-back"]
    assert "its restore failed" in world.events[1]["title"]


def test_who_was_told_that_it_is_down_is_told_of_its_return_by_another_hand(world: World) -> None:
    world = with_settings(world, restore=False)
    world.look = lambda at: SILENT
    world.tick(3)
    world.look = lambda at: Look(PLANNED, "a rollback is on")
    world.tick(2)
    world.look = lambda at: Look(SERVING, "", RATE, 0.2, requested=True)
    world.tick()
    assert world.kinds == ["baseline-down", "baseline-back"]


def test_one_that_answers_is_not_down_any_more_whatever_its_health_path_says(world: World) -> None:
    world = with_settings(world, restore=False)
    world.look = lambda at: SILENT
    world.tick(3)
    assert world.watcher.down_since
    for words in (f"its health path says HTTP 500, and {ALL_THE_SAME}", f"{SLOW}: 3 bytes"):
        world.watcher.down_since = 1.0
        world.look = lambda at, words=words: Look(UNJUDGED, words, requested=True)
        world.tick()
        assert not world.watcher.down_since


def test_what_answers_in_a_cutover_is_not_the_server_that_is_known(world: World) -> None:
    world.tick(2)
    known = dict(world.prints)
    world.prints["argv"] = "console.services.relay 127.0.0.1:8000"
    world.look = lambda at: Look(CUT_OVER, "cand answers in its place")
    world.tick(2)
    world.prints = known
    world.look = lambda at: Look(SERVING, "", RATE, 0.2, requested=True)
    world.tick(2)
    assert [line for line in record.memory("ws") if line["kind"] == "change"] == []


def test_without_restore_it_is_told_and_left(world: World) -> None:
    world = with_settings(world, restore=False)
    world.look = lambda at: SILENT
    world.tick(100)
    assert (world.kinds, world.restored, world.watcher.state.word) == (["baseline-down"], [], DOWN)
    world.look = lambda at: Look(SERVING, "", RATE, 0.2, requested=True)
    world.tick()
    assert world.kinds == ["baseline-down", "baseline-back"]


def test_killed_after_every_look_a_long_outage_is_told_once(world: World) -> None:
    world = with_settings(world, restore=False)
    world.look = lambda at: SILENT
    for _ in range(100):
        world.tick()
        world.again()
    world.look = lambda at: Look(SERVING, "", RATE, 0.2, requested=True)
    for _ in range(10):
        world.tick()
        world.again()
    assert world.kinds == ["baseline-down", "baseline-back"]


@pytest.mark.parametrize("word", [PLANNED, UNJUDGED, BUSY])
def test_what_a_run_holds_or_what_answers_is_never_restored(world: World, word: str) -> None:
    world.look = lambda at: Look(word, "words")
    world.tick(100)
    looks = iter([SILENT] + [Look(word, "words")] * 3)
    world.look = lambda at: next(looks, SILENT) if at % 240 < 120 else Look(word, "words")
    world.tick(4)
    assert (world.kinds, world.restored, world.watcher.state.word) == ([], [], word)


def test_a_load_may_take_its_time_and_no_longer(world: World) -> None:
    world = with_settings(world, restore=False)
    world.look = lambda at: Look(LOADING, "Loading model")
    world.until(590.0)
    assert (world.kinds, world.watcher.state.word) == ([], LOADING)
    world.until(900.0)
    assert (world.kinds, world.watcher.state.word) == (["baseline-down"], DOWN)


# -- memory ------------------------------------------------------------------------------------


def test_the_memory_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "MEMORY_LIMIT", 20_000)
    world.tick(600)
    sizes = [record.file("ws", name).stat().st_size for name in (record.MEMORY, record.EARLIER)]
    assert max(sizes) < 21_000
    lines = list(record.memory("ws"))
    assert 150 < len(lines) < 600
    assert [line["at"] for line in lines] == sorted(line["at"] for line in lines)


def test_a_state_that_is_broken_or_of_another_version_begins_anew(world: World) -> None:
    world.tick(3)
    path = record.file("ws", record.STATE)
    for text in ("", "{", '{"state": 3, "own": {}}', '{"state": {"looks": "x"}, "own": {}}'):
        path.write_text(text)
        assert record.read("ws") is None
        world.again()
        world.tick()
        assert world.watcher.state.looks == 1
    path.write_text(
        '{"state": {"word": "serving", "new": 1}, "own": {"speed": {"declared": 10.0}}}'
    )
    world.again()
    world.tick()
    assert world.watcher.state.word == SERVING


def test_text_of_a_server_is_clean_when_it_is_read(world: World) -> None:
    world.look = lambda at: Look(UNJUDGED, "HTTP 401 \x1b[31mno\x07")
    world.tick()
    state = record.read("ws")
    assert state is not None
    assert "\x1b" not in state.detail


def test_two_sites_have_two_memories() -> None:
    World(plan_of()).tick(2)
    assert record.read("other") is None
    assert list(record.memory("other")) == []


def test_weak_signs_of_garbage_restore_nothing(world: World) -> None:
    """No text in one token, then the head of a table: a sane server may give both."""
    empty = Look(GARBLED, "garbled, no text; 1 token", requested=True, weak=True)
    head = Look(GARBLED, "garbled, no letters, digits or emoji: “| | |”", requested=True, weak=True)
    sure = Look(GARBLED, "garbled, one character repeated: “GGGG”", requested=True)
    for seen in (empty, head, empty, sure, head):
        world.look = lambda at, seen=seen: seen
        world.tick()
        assert (world.watcher.state.word, world.restored, world.kinds) == (SUSPECT, [], [])
    world.look = lambda at: sure
    world.tick()
    assert len(world.restored) == 1, "the second sure sign"


def test_a_dead_engine_is_restored_once_until_it_was_well(world: World) -> None:
    dead = Look(SUSPECT, "its engine is dead (HTTP 500 EngineDeadError)", requested=True, dead=True)
    world = with_settings(world, at_most=9)
    world.look = lambda at: dead
    world.restore = lambda: Restored(False, "omni-console rollback failed: its engine is dead")
    world.tick(6)
    assert (world.watcher.state.word, len(world.restored)) == (DOWN, 1)
    world.again()
    world.look = lambda at: Look(UNJUDGED, "it fails this request (HTTP 500 no)", requested=True)
    world.tick(2)
    world.look = lambda at: dead
    world.tick(4)
    assert len(world.restored) == 1, "it was not well in between"
    world.look = lambda at: Look(SERVING, "", RATE, 0.2, requested=True)
    world.tick()
    world.look = lambda at: dead
    world.tick(4)
    assert len(world.restored) == 2


def test_a_baseline_whose_port_somebody_else_has_is_down_told_and_not_restored(
    world: World,
) -> None:
    strange = Look(SUSPECT, "something else answers there: pid 7, other.py", stranger=True)
    world.tick(3)
    known = dict(world.watcher.print)
    world.look = lambda at: strange
    world.tick(20)
    assert (world.kinds, world.restored, world.watcher.state.word) == (["baseline-down"], [], DOWN)
    assert "pid 7, other.py" in world.events[0]["text"]
    assert (world.watcher.print, world.watcher.state.changed) == (known, "")
    world.look = lambda at: Look(SERVING, "", RATE, 0.2, requested=True)
    world.tick()
    assert world.kinds == ["baseline-down", "baseline-back"]


def test_one_that_answers_garbage_twice_is_restored_once_and_then_told(world: World) -> None:
    world.look = lambda at: Look(GARBLED, "garbled, one character repeated: “GGGG”", requested=True)
    world.restore = lambda: Restored(False, "omni-console rollback failed: garbled")
    world.tick()
    assert (world.watcher.state.word, world.kinds) == (SUSPECT, [])
    world.tick()
    assert (world.watcher.state.word, len(world.restored)) == (GARBLED, 1)
    told, failed = world.events
    assert told["title"] == "the baseline answers garbage"
    assert "one character repeated" in told["text"]
    assert "its restore failed" in failed["title"]
    world.again()
    world.tick(5)
    assert (len(world.restored), len(world.events)) == (1, 2), "another restart mends nothing"
    world.look = lambda at: Look(SERVING, "", RATE, 0.2, requested=True)
    world.tick()
    assert world.kinds[-1] == "baseline-back"


def test_garbage_of_another_process_is_told_and_kept_and_restores_nothing(world: World) -> None:
    """A restart would find the port taken; whoever put it there has to hear of it."""
    other = "another process (pid 7, since 14:03) with other flags answers"
    garbled = Look(
        UNJUDGED, f"{other}; it answers garbage: '0' 16 times", requested=True, other=other,
        garbage="'0' 16 times",
    )  # fmt: skip
    world.look = lambda at: garbled
    world.tick(3)
    assert world.restored == []
    assert [event["title"] for event in world.events] == [
        "another process answers in the baseline's place, and answers garbage"
    ]
    assert evidence_of(garbled, 9.0) == Evidence(
        Kind.FAILED, Word.GARBLED, 9.0, Witness.WATCH, "'0' 16 times", other=other
    )
    assert evidence_of(replace(garbled, requested=False, garbage=""), 9.0) is None, (
        "it was not asked"
    )


def test_another_process_is_told_once_and_neither_proves_nor_is_restored(world: World) -> None:
    other = "another process (pid 7, since 14:03:05) with other flags answers"
    world.tick(3)
    world.look = lambda at: Look(UNJUDGED, other, requested=True, other=other)
    world.tick(9)
    assert (world.kinds, world.restored) == (["baseline-down"], [])
    assert "another process answers" in world.events[0]["title"]
    assert "pid 7" in world.events[0]["text"]
    told = evidence_of(Look(UNJUDGED, other, requested=True, other=other), 1.0)
    assert told is not None
    assert (told.kind, told.word, told.other) == (Kind.ANSWERS, Word.SERVING, other)


def test_a_restore_that_could_not_begin_is_not_counted_and_tried_again(world: World) -> None:
    """In the middle of an upgrade the program that restores is not there."""
    world = with_settings(world, interval_s=600.0)
    world.look = lambda at: SILENT
    world.restore = lambda: Restored(False, "it could not be run: exit 1", begun=False)
    world.until(2 * HOUR)
    assert len(world.restored) > 3
    assert world.watcher.state.restored == 0
    told = [event for event in world.events if "cannot be restored" in event["title"]]
    assert [event["text"] for event in told] == ["it could not be run: exit 1"], "once"
    world.restore = lambda: Restored(True, "omni-console rollback took 9 s")
    world.until(2 * HOUR + 700)
    assert world.watcher.state.restored == 1
