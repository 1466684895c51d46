"""A rollout over lines that are lost everywhere: what is started, what is said, where it stops."""

import errno
from typing import Any

import pytest

from console.common.errors import Exit, HostBusy, UsageError
from console.fleet import drive, rollout
from console.fleet.drive import Driver
from console.fleet.inventory import Host
from console.fleet.protocol import TOO_LATE, BridgeError
from console.fleet.rollout import Rollout, held, kept, opened
from console.fleet.starts import GONE, NOT_BEGUN, STARTING, Wanted
from tests.fleet.standin import GO, HOLD, NO_GO, WANTED, FarHost, Fleet, Json, Seen
from tests.wrong_files import wrong_files


@pytest.mark.parametrize(
    ("ends", "code", "begun"),
    [
        ((GO, GO, GO), Exit.OK, [1, 1, 1]), ((GO, NO_GO, GO), Exit.NO_GO, [1, 1, 0]),
        ((HOLD, GO, GO), Exit.HOLD, [1, 0, 0]),
    ],
)  # fmt: skip
def test_the_next_host_begins_only_after_go(
    fleet: Fleet, ends: tuple[str, ...], code: Exit, begun: list[int]
) -> None:
    for name, verdict in zip("abc", ends, strict=True):
        fleet.host(name, verdict)
    assert fleet.go() is code
    assert fleet.begun == begun
    assert kept()[0].over


@pytest.mark.parametrize(
    ("state", "code"),
    [("failed", Exit.FAILED), ("rolled_back", Exit.ROLLED_BACK),
     ("rollback_failed", Exit.ROLLBACK_FAILED)],
)  # fmt: skip
def test_a_run_that_fails_after_its_go_stops_the_rollout(
    fleet: Fleet, state: str, code: Exit
) -> None:
    fleet.host("a", state=state)
    fleet.host("b")
    assert fleet.go() is code
    assert fleet.begun == [1, 0]
    assert "stopped at a: not begun on b" in fleet.said


QUEUED = {"job": "7", "words": "PENDING (BeginTime)", "state": "PENDING"}


@pytest.mark.parametrize("lost", [[], ["start!"], ["started!", "started!"]])
def test_a_rollout_waits_for_an_allocation_whatever_is_lost(fleet: Fleet, lost: list[str]) -> None:
    fleet.slurm = {"partition": "gpu"}
    running = {**QUEUED, "words": "RUNNING"}
    one = fleet.host("a", jobs=[QUEUED, QUEUED, running, running], lose=lost)
    assert fleet.go() is Exit.OK
    assert one.begun == 1
    assert one.plans[0]["slurm"] == {"partition": "gpu"}
    told = [words for words in fleet.said if "Slurm" in words]
    assert told[-1] == "a: Slurm job 7: RUNNING"
    assert len(told) <= 2, "each state is told once"


def test_a_rollout_that_was_left_waits_on_for_the_same_job(fleet: Fleet) -> None:
    fleet.slurm = {"partition": "gpu"}
    one = fleet.host("a", jobs=[QUEUED, QUEUED])
    begun = fleet.open()
    one.runs[begun.legs[0].request] = "run-a"
    assert fleet.go(begun) is Exit.OK
    assert (one.begun, one.plans) == (0, [])


def test_an_allocation_that_comes_to_nothing_ends_the_rollout(fleet: Fleet) -> None:
    fleet.slurm = {"partition": "gpu"}
    given_up = BridgeError(NOT_BEGUN, "no run has begun", "CANCELLED", "", Exit.FAILED)
    fleet.host("a", jobs=[QUEUED, given_up])
    other = fleet.host("b")
    assert fleet.go() is Exit.FAILED
    assert (other.begun, kept()[0].over) == (0, True)
    assert any("CANCELLED" in words for words in fleet.said)


def test_a_host_that_knows_no_slurm_starts_nothing(fleet: Fleet) -> None:
    fleet.slurm = {"partition": "gpu"}
    one = fleet.host("a", slurm=False)
    with pytest.raises(BridgeError) as refused:
        fleet.go()
    assert (refused.value.code, one.begun) == ("version", 0)


def test_a_runner_that_is_gone_is_a_hold(fleet: Fleet) -> None:
    fleet.host("a", goes_on=False)
    fleet.host("b")
    assert fleet.go() is Exit.HOLD
    assert fleet.begun == [1, 0]


QUESTIONS = ("started", "plan", "start", "journal")


@pytest.mark.parametrize("lost", [*QUESTIONS, *(f"{one}!" for one in QUESTIONS)])
@pytest.mark.parametrize("times", [1, 3])
def test_a_line_that_is_lost_doubles_no_run_and_loses_none(
    fleet: Fleet, lost: str, times: int
) -> None:
    far = fleet.host("a", lose=[lost] * times)
    assert fleet.go() is Exit.OK
    assert far.begun == 1
    told = [line for line in fleet.said if "unknown" in line]
    # after a start whose answer was lost another question is asked, which is answered here
    again = times > 1 and lost not in ("start", "start!")
    assert len(told) == again, "said once, and not of a line that is back at once"
    assert not any("down" in line for line in fleet.said)


def test_a_line_that_is_lost_says_when_the_baseline_comes_back(fleet: Fleet) -> None:
    far = fleet.host("a", lease_s=600.0)
    after = 4  # started, plan, start, and a page of the journal
    lost = iter([""] * after + ["journal"] * 2)
    before = far._line

    def line(word: str) -> None:
        if "!" not in word:
            far.lose += [found] if (found := next(lost, "")) else []
        before(word)

    far._line = line  # type: ignore[method-assign]
    assert fleet.go() is Exit.OK
    assert any("comes back at" in line and "lease of run run-a" in line for line in fleet.said)
    assert "a answers again" in fleet.said


def test_a_lease_that_is_told_after_the_outage_is_remembered(fleet: Fleet) -> None:
    """The runner hears of its lease from the sentinel, a moment after the baseline is down."""
    far = fleet.host("a", state="rolled_back")
    whole, down = far._journal, [1, 1.0, "outage", "", 0, {"down": True}]
    pages = iter([({}, [down]), ({"lease": 600.0}, [])])

    def journal(asked: Json) -> Json:
        if (page := next(pages, None)) is None:
            return whole(asked)
        far.lose += [] if page[1] else ["journal", "journal"]  # from now on nobody answers
        return {"status": page[0], "events": page[1], "goes_on": True}

    far._journal = journal  # type: ignore[method-assign]
    assert fleet.go() is Exit.ROLLED_BACK
    assert any("by the lease of run run-a" in line for line in fleet.said), fleet.said


def test_a_boot_unit_that_is_still_to_act_is_waited_for_and_told_once(fleet: Fleet) -> None:
    far, again_at = fleet.host("a", state="rolled_back"), fleet.clock.now() + 60
    whole = far._journal

    def journal(asked: Json) -> Json:
        late = fleet.clock.now() >= again_at
        return whole(asked) if late else {"events": [], "goes_on": True, "unit": True}

    far._journal = journal  # type: ignore[method-assign]
    assert fleet.go() is Exit.ROLLED_BACK
    assert fleet.said.count(f"a: {drive.BY_UNIT}") == 1


@pytest.mark.parametrize("place", [0, 1, 2, 3, 4])
def test_a_command_that_is_killed_goes_on_with_the_same_words(fleet: Fleet, place: int) -> None:
    """Killed after each question: called again, it asks nobody twice for what is begun."""

    class Killed(BaseException): ...

    far, count = fleet.host("a"), iter(range(100))
    fleet.host("b")
    before = far.ask

    def ask(question: str, *rest: Any, **more: Any) -> Json:
        answer = before(question, *rest, **more)
        if next(count) == place:
            raise Killed
        return answer

    far.ask = ask  # type: ignore[method-assign]
    with pytest.raises(Killed):
        fleet.go()
    assert fleet.go() is Exit.OK
    assert fleet.begun == [1, 1]
    assert [leg.exit for leg in kept()[0].legs] == [0, 0]
    assert fleet.go() is Exit.OK, "what is over begins anew"
    assert fleet.begun == [2, 2]


@pytest.mark.parametrize(("told", "code"), [(2, 2), (9, 9), (None, 9), (0, 9), (True, 9)])
def test_what_would_be_refused_starts_nothing_and_the_rollout_stays_open(
    fleet: Fleet, told: int | None, code: int
) -> None:
    """Whatever it was refused for, it was called lint findings."""
    far = fleet.host("a", problems=["lint: F-1"], code=told)
    with pytest.raises(BridgeError, match="would be refused") as refused:
        fleet.go()
    assert (refused.value.exit_code, far.begun) == (code, 0)
    far.problems = []
    assert fleet.go() is Exit.OK


def test_a_plan_that_nobody_takes_starts_nothing(fleet: Fleet) -> None:
    far = fleet.host("a")
    fleet.agrees = lambda host, plan: False
    assert fleet.go() is Exit.FAILED
    assert far.begun == 0


def test_a_run_that_is_no_more_there_names_the_way_out(fleet: Fleet) -> None:
    far = fleet.host("a")

    def gone(asked: Json) -> Json:
        raise BridgeError("no_run", "there is no run yet")

    far._journal = gone  # type: ignore[method-assign]
    with pytest.raises(BridgeError) as refused:
        fleet.go()
    assert refused.value.hint == rollout.FRESH


def test_a_run_that_was_deleted_there_is_not_called_one_that_was_not_begun(fleet: Fleet) -> None:
    fleet.host("a")
    far = fleet.host("b")

    def gone(asked: Json) -> Json:
        raise BridgeError(GONE, "run r was started, but is no longer there")

    far._started = gone  # type: ignore[method-assign]
    with pytest.raises(BridgeError) as refused:
        fleet.go()
    assert refused.value.hint == rollout.FRESH
    assert not any("stopped before" in line for line in fleet.said)


def test_a_host_that_another_run_holds_is_told_at_once(fleet: Fleet) -> None:
    busy = BridgeError("failed", "another run holds this host", "", "", Exit.BUSY)
    far = fleet.host("a", refuse=[busy])
    with pytest.raises(BridgeError, match="holds this host"):
        fleet.go()
    assert far.begun == 0


def test_a_start_that_is_still_under_way_there_is_waited_for(fleet: Fleet) -> None:
    busy = BridgeError("failed", "another run holds this host", "", "", Exit.BUSY)
    under_way = BridgeError(STARTING, "a run is being started", "", "", Exit.BUSY)
    far = fleet.host("a", lose=["start"], refuse=[under_way, under_way, busy])
    assert fleet.go() is Exit.OK
    assert far.begun == 1
    assert fleet.said.count("a run is being started; asking again") == 1, "nobody waits blind"


def test_a_start_that_came_too_late_is_asked_for_again(fleet: Fleet) -> None:
    """Where the line stood still between the token and the start, the rollout ended."""
    far = fleet.host("a", refuse=[BridgeError(TOO_LATE, "nothing was done")] * 6)
    with pytest.raises(BridgeError, match="nothing was done"):
        fleet.go()
    assert fleet.go() is Exit.OK, "not without end: the line may be too slow"
    assert far.begun == 1


def test_a_playbook_may_have_as_long_a_name_as_a_file(fleet: Fleet) -> None:
    wanted = Wanted("x" * 245, "text", {})
    one = opened(wanted, fleet.tmp / "fleet.yaml", fleet.named, 0.0)
    with held(one):
        one.save()
    other = opened(Wanted("x" * 244, "text", {}), fleet.tmp / "fleet.yaml", fleet.named, 0.0)
    assert (kept(), other.path == one.path) == ([one], False)


def test_the_lease_of_the_command_goes_before_the_files(fleet: Fleet) -> None:
    far = fleet.host("a")
    host = Host("a", "a", lease_s=1200.0)
    for given, wanted in ((None, 1200.0), (90.0, 90.0)):
        asked = drive._plan_request(Wanted("t", "x", lease_s=given), host)
        assert asked["lease_s"] == wanted
    fleet.go()
    assert far.plans[0]["inputs"] == {"n": "1"}


def test_a_rollout_is_held_by_one_terminal(fleet: Fleet) -> None:
    fleet.host("a")
    one = fleet.open()
    with held(one), pytest.raises(HostBusy), held(fleet.open()):
        pass


def test_other_words_are_another_rollout_and_a_broken_record_is_told(fleet: Fleet) -> None:
    fleet.host("a")
    first = fleet.open()
    first.save()
    assert fleet.open().legs[0].request == first.legs[0].request
    other = opened(Wanted("trial", "text", {"n": "2"}), fleet.tmp / "fleet.yaml", fleet.named, 0.0)
    assert other.path != first.path
    again = opened(WANTED, fleet.tmp / "fleet.yaml", fleet.named, 0.0, fresh=True)
    assert again.legs[0].request != first.legs[0].request
    first.path.write_text("{")
    with pytest.raises(UsageError, match="cannot be read"):
        fleet.open()


def test_a_record_with_one_wrong_value_is_refused_by_its_key(fleet: Fleet) -> None:
    fleet.host("a")
    first = fleet.open()
    first.save()
    assert kept() == [first]
    for key, text in wrong_files(first.path.read_text(), leave="terms"):
        first.path.write_text(text)
        with pytest.raises(UsageError, match="cannot be read") as refused:
            fleet.open()
        assert key == "no object" or refused.value.detail.startswith(f"{key}: expected"), key
        assert kept() == []


class Odd(FarHost):
    """A host that answers one question with something else. `answers`: what, by the question."""

    def __init__(self, name: str, **answers: Json) -> None:
        super().__init__(name)
        self.answers = answers

    def ask(self, question: str, limit_s: float = 0.0, said: Any = None, **more: Any) -> Json:
        answer = super().ask(question, limit_s, said, **more)
        return {**answer, **self.answers.get(question, {})}


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("started", {"run": 7}), ("started", {"run": ""}), ("start", {"run": ["x"]}),
        ("plan", {"problems": 7}), ("plan", {"hash": None}), ("plan", {"hash": ""}),
        ("plan", {"hash": "no"}),
    ],
)  # fmt: skip
def test_an_answer_without_sense_is_a_refusal_and_no_error_of_this_program(
    fleet: Fleet, question: str, answer: Json
) -> None:
    fleet.hosts["a"] = one = Odd("a", **{question: answer})
    agreed: list[str] = []
    fleet.agrees = lambda host, plan: not agreed.append(host.name)  # type: ignore[func-returns-value]
    with pytest.raises(BridgeError, match="a: its answer makes no sense") as refused:
        fleet.go()
    assert refused.value.code == "version"
    assert bool(agreed) == bool(one.begun) == (question == "start")


def test_a_job_and_a_status_that_are_no_tables_are_none(fleet: Fleet) -> None:
    fleet.hosts["a"] = Odd("a", started={"job": "7"}, journal={"status": [1]})
    assert fleet.go() is Exit.OK


def test_a_host_that_always_has_more_of_the_same_is_asked_no_faster(fleet: Fleet) -> None:
    """`more` without anything new had it asked without a pause, for ever."""
    fleet.hosts["a"] = Odd(
        "a", journal={"events": [[1, 1.0, "run.note", "", 0, {"text": "x"}]], "more": True,
                      "goes_on": False},
    )  # fmt: skip
    assert fleet.go() is Exit.HOLD


def test_the_way_to_try_a_host_by_hand_is_its_name_in_ssh(fleet: Fleet) -> None:
    far = fleet.host("a", lose=["started"] * 9)
    driver = Driver(
        fleet.open(), WANTED, line=lambda host: far, say=fleet.said.append, agree=fleet.agrees,
        viewer=Seen, clock=fleet.clock,
    )  # fmt: skip
    with pytest.raises(BridgeError) as gone:
        driver.go([Host("a", "ops@10.0.0.12")])
    assert gone.value.hint == "`ssh ops@10.0.0.12 true` has to work without a question"


def test_a_disk_that_is_full_since_a_run_was_asked_for_leaves_it_followed(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody renewed its lease then, and the words did not say that it goes on."""
    write = Rollout.save

    def full(one: Rollout) -> None:
        if one.legs[0].run:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(one)

    monkeypatch.setattr(Rollout, "save", full)
    fleet.host("a")
    assert fleet.go() is Exit.OK
    assert sum("cannot be kept" in words for words in fleet.said) == 1
    fleet.host("b")
    with pytest.raises(OSError, match="No space left"):
        fleet.go()
    assert [one.asked.count("journal") > 1 for one in fleet.hosts.values()] == [True, False]
    assert fleet.begun[1] == 0, "what is not on disk is not asked for"


def test_why_a_run_would_be_refused_needs_no_hash(fleet: Fleet) -> None:
    fleet.hosts["a"] = Odd("a", plan={"problems": ["no such model"], "hash": None})
    with pytest.raises(BridgeError, match="a run would be refused") as refused:
        fleet.go()
    assert refused.value.detail == "no such model"
