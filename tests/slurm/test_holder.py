"""When an allocation is given up, and when not, on a machine without Slurm."""

import errno
import json
import os
from pathlib import Path

import pytest

from console.common.errors import Exit, UsageError
from console.common.files import append_line
from console.host import process
from console.journal.run_dir import ALLOCATION, RunDir
from console.journal.store import Journal
from console.recovery.rollback import trigger
from console.recovery.rollback.live import Live, append
from console.recovery.rollback.progress import who_asked
from console.runner.launch import check_resume
from console.runner.slurm import job as slurm
from console.runner.slurm.holder import ALONE_S, TICK_S, Holder
from console.runner.slurm.job import UNKNOWN, Job, SlurmError
from console.runner.slurm.standing import everywhere, standing
from console.runner.slurm.ticket import (
    End,
    Held,
    Ticket,
    allocation_of,
    by_id,
    everyone,
    read,
    stamp_of,
    told_allocation,
    waiting,
)  # fmt: skip
from tests.clock import FakeClock
from tests.fleet.far import new_run
from tests.wrong_files import wrong_files

ME = (os.getpid(), process.start_time(os.getpid()) or 0)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Ticket, Holder]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    ticket = Ticket("t", "trial.yaml", "/", "site.yaml", at=1.0)
    ticket.keep()
    ticket.ask_with("7")
    ticket.grant("7")
    return ticket, Holder(ticket, "7", FakeClock())


def begun(ticket: Ticket) -> RunDir:
    """The ticket's run, whose runner lives."""
    run = new_run()
    (run.path / ALLOCATION).write_text(stamp_of(ticket, Held("7", *ME)))
    append(run.live, Live("runner", "", *ME))
    ticket.end(run=run.id)
    return run


def add(run: RunDir, kind: str, **data: object) -> None:
    journal = Journal(run.journal)
    journal.append(9.0, kind, "", 0, data)
    journal.close()


def dead(run: RunDir) -> None:
    append(run.live, Live("runner", "", 4194304, 1))


def test_a_ticket_with_one_wrong_value_is_none(made: tuple[Ticket, Holder]) -> None:
    ticket, _ = made
    for key, text in wrong_files((ticket.path / "ticket.json").read_text()):
        (ticket.path / "ticket.json").write_text(text)
        with pytest.raises(UsageError, match="holds no ticket") as refused:
            read(ticket.path)
        assert key == "no object" or refused.value.detail.startswith(f"{key}: expected"), key
        assert (by_id("t"), everyone()) == (None, [])


def test_a_ticket_that_names_another_directory_is_none(made: tuple[Ticket, Holder]) -> None:
    """Old tickets are removed with their directories, which their ids name."""
    ticket, _ = made
    file = ticket.path / "ticket.json"
    file.write_text(file.read_text().replace('"id": "t"', '"id": "../../elsewhere"'))
    with pytest.raises(UsageError, match="holds no ticket"):
        read(ticket.path)
    assert everyone() == []


def test_wrong_words_on_a_job_its_holder_and_its_end_are_left_out(
    made: tuple[Ticket, Holder],
) -> None:
    ticket, _ = made
    run = begun(ticket)
    for key, text in wrong_files(run.allocation.read_text()):
        run.allocation.write_text(text)
        assert (ticket.run is None) is (key in ("no object", "ticket")), key
        held = allocation_of(run)
        lost = key in ("pid", "start", "boot")
        assert (held and held.lives) == (None if key == "no object" else not lost), key
        assert (told_allocation(run) is None) is (key == "no object"), key
    for key, text in wrong_files((ticket.path / "held.json").read_text()):
        (ticket.path / "held.json").write_text(text)
        assert ticket.held == (Held("", *ME) if key == "job" else None), key
        assert ticket.held_elsewhere is (key == "boot"), key
    for key, text in wrong_files((ticket.path / "end.json").read_text()):
        (ticket.path / "end.json").write_text(text)
        assert (ticket.ended is None) is (key == "no object"), key
        assert standing(ticket).run == ("" if key == "run" else run.id), key
    for _, text in wrong_files((ticket.path / "job.json").read_text()):
        (ticket.path / "job.json").write_text(text)
        assert ticket.job == ""


def test_a_ticket_finds_its_run_and_who_holds_its_cards(made: tuple[Ticket, Holder]) -> None:
    ticket, _ = made
    assert (ticket.job, ticket.held, ticket.run) == ("7", Held("7", *ME), None)
    assert [one.id for one in waiting()] == ["t"]
    run = begun(ticket)
    assert ticket.run is not None
    assert (ticket.run.id, waiting(), by_id("t")) == (run.id, [], ticket)
    held = allocation_of(run)
    assert held is not None
    assert held.lives


def test_what_held_it_on_another_boot_holds_nothing(
    made: tuple[Ticket, Holder], monkeypatch: pytest.MonkeyPatch
) -> None:
    ticket, _ = made
    run = begun(ticket)
    monkeypatch.setattr(process, "boot_id", lambda: "another")
    assert ticket.held is None
    held = allocation_of(run)
    assert held is not None
    assert not held.lives


def test_it_is_held_until_the_run_is_over_and_the_baseline_serves(
    made: tuple[Ticket, Holder],
) -> None:
    ticket, holder = made
    run = begun(ticket)
    assert holder.tick() is None
    add(run, "outage", down=True)
    dead(run)
    assert holder.tick() is None, "its runner died in the outage"
    add(run, "run.state", state="rollback_failed")
    assert holder.tick() is None, "the baseline is still down"
    add(run, "outage", down=False)
    add(run, "run.state", state="rolled_back")
    assert holder.tick() == 0


def test_a_file_server_that_is_away_for_a_moment_ends_no_allocation(
    made: tuple[Ticket, Holder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The holder's end is the allocation's, and the run would be rolled back."""
    ticket, holder = made
    run = begun(ticket)
    assert holder.tick() is None
    exists, failures = Path.exists, [errno.ESTALE, errno.EIO]

    def away(path: Path) -> bool:
        if failures and path == run.path:
            raise OSError(failures.pop(), "away")
        return exists(path)

    monkeypatch.setattr(Path, "exists", away)
    looks = 0

    def later(seconds: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 3:
            dead(run)
            add(run, "run.state", state="succeeded")

    monkeypatch.setattr(holder._clock, "sleep", later)
    assert holder.run() == 0
    assert (failures, looks) == ([], 3)


@pytest.mark.parametrize("serving", [True, False])
def test_a_rollback_that_wrote_no_journal_gives_it_up_once_the_baseline_serves(
    made: tuple[Ticket, Holder], serving: bool
) -> None:
    """`rollback.sh` writes its lines alone: the allocation was held until the end of its time."""
    ticket, holder = made
    run = begun(ticket)
    add(run, "outage", down=True)
    add(run, "service", service="cand", alive=True, pid=4194304, start=1)
    dead(run)
    assert holder.tick() is None
    done = {"rung": "done", "state": "ok", "trigger": "script-1", "at": 1e9, "serving": serving}
    append_line(run.ladder, json.dumps(done))
    assert holder.tick() == (0 if serving else None)


def test_what_slurm_wants_back_is_asked_of_the_standby(made: tuple[Ticket, Holder]) -> None:
    ticket, holder = made
    run = begun(ticket)
    holder.asked_back = True
    assert holder.tick() is None
    assert ticket.leaving
    fifo = run.rollback / trigger.FIFO
    os.mkfifo(fifo)
    with os.fdopen(os.open(fifo, os.O_RDWR | os.O_NONBLOCK), "rb", buffering=0) as standby:
        assert holder.tick() is None, "the standby came later, and is asked again"
        assert holder.tick() is None
        assert standby.read(10) == trigger.EMERGENCY, "once"
    assert who_asked(run.rollback) == "Slurm, which ends job 7"


@pytest.mark.parametrize("asked_back", [True, False])
def test_an_allocation_that_nobody_uses_is_given_up(
    made: tuple[Ticket, Holder], asked_back: bool
) -> None:
    ticket, holder = made
    holder.asked_back = asked_back
    waiter = trigger.Lock(ticket.path)
    assert waiter.taken()
    assert holder.tick() is None, "somebody is about to begin the run"
    waiter.close()
    ticks = 1
    while (code := holder.tick()) is None:
        holder._clock.sleep(TICK_S)
        ticks += 1
    assert code != 0
    assert ticks >= (1 if asked_back else ALONE_S / TICK_S)
    assert (ticket.ended or End()).words


def test_a_run_that_was_refused_gives_it_up(made: tuple[Ticket, Holder]) -> None:
    ticket, holder = made
    ticket.end(words="the baseline does not serve", exit_=5)
    assert holder.tick() == 5


def test_a_run_without_its_allocation_is_not_resumed(made: tuple[Ticket, Holder]) -> None:
    ticket, _ = made
    run = begun(ticket)
    dead(run)
    add(run, "outage", down=True)
    check_resume(run)
    (run.path / ALLOCATION).write_text(stamp_of(ticket, Held("7", 4194304, 1)))
    with pytest.raises(UsageError, match="no allocation any more"):
        check_resume(run)


@pytest.mark.parametrize("asked", [{"7": Job("7", "CANCELLED")}, {"7": Job("7", UNKNOWN)}])
def test_a_job_that_ended_with_nobody_left_to_say_so_is_waited_for_no_more(
    made: tuple[Ticket, Holder], monkeypatch: pytest.MonkeyPatch, asked: dict[str, Job]
) -> None:
    """The machine had rebooted while the job waited, and then somebody cancelled it."""
    ticket, _ = made
    monkeypatch.setattr(slurm, "look", lambda *ids: asked)
    waiter = trigger.Lock(ticket.path)
    assert waiter.taken()
    assert not standing(ticket).why, "who waits says so"
    assert len(everywhere()) == 1
    waiter.close()
    assert "Slurm job 7 ended before it held anything" in standing(ticket).why
    assert standing(ticket).exit_code is Exit.FAILED
    assert everywhere() == []


@pytest.mark.parametrize("state", ["PENDING", None])
def test_a_job_that_may_still_come_is_waited_for(
    made: tuple[Ticket, Holder], monkeypatch: pytest.MonkeyPatch, state: str | None
) -> None:
    def look(*asked: object) -> dict[str, Job]:
        if state is None:
            raise SlurmError("no answer")
        return {"7": Job("7", state)}

    monkeypatch.setattr(slurm, "look", look)
    assert not standing(made[0]).why
    assert len(everywhere()) == 1


def test_a_job_that_ended_after_its_run_had_begun_has_begun_it(
    made: tuple[Ticket, Holder], monkeypatch: pytest.MonkeyPatch
) -> None:
    ticket, _ = made
    run = begun(ticket)
    (ticket.path / "end.json").unlink()
    monkeypatch.setattr(slurm, "look", lambda *asked: {"7": Job("7", "COMPLETED")})
    assert (standing(ticket).run, standing(ticket).why) == (run.id, "")


@pytest.mark.parametrize("name", ["ticket.json", "held.json", "job.json", "end.json"])
@pytest.mark.parametrize(
    "text", ["[" * 3000, "{", '{"job": "7", "pid": 1e999, "start": 1, "boot": 1}'],
    ids=["deep", "torn", "endless"],
)  # fmt: skip
def test_no_file_of_a_ticket_keeps_its_host_from_saying_how_it_stands(
    made: tuple[Ticket, Holder], monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    (made[0].path / name).write_text(text.replace('"boot": 1', f'"boot": "{process.boot_id()}"'))
    monkeypatch.setattr(slurm, "look", lambda *asked: {"7": Job("7", "PENDING")})
    everywhere()
