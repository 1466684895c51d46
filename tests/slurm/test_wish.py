"""What an allocation is asked for with, and what Slurm's words about a job mean here."""

import errno
from pathlib import Path

import pytest

from console.cli import main
from console.common.errors import UsageError
from console.frontends.cli.site.slurm import pairs
from console.runner.slurm import job, waiter
from console.runner.slurm.job import Job, SlurmError, Wish, seconds_of
from console.runner.slurm.ticket import End, Ticket, everyone
from tests.fleet.far import written


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("90", 5400), ("90:30", 5430), ("8:00:00", 28800), ("1-12", 129600), ("1-12:30", 131400),
     ("1-2:3:4", 93784)],
)  # fmt: skip
def test_a_time_limit_is_read_as_slurm_reads_it(given: str, seconds: float) -> None:
    assert seconds_of(given) == seconds


@pytest.mark.parametrize("given", ["", "soon", "8h", "1:2:3:4", "-1", "1-", "٣", "1" * 400 + "-0"])
def test_no_other_time_limit_is_taken(given: str) -> None:
    with pytest.raises(UsageError):
        seconds_of(given)


def test_a_wish_is_what_sbatch_takes() -> None:
    wish = Wish.read(pairs(["gpu", "gres=gpu:a100:2", "begin=now+1hour", "time=1-0"]))
    assert wish.options() == [
        "--partition=gpu", "--gres=gpu:a100:2", "--begin=now+1hour", "--time=1-0", "--exclusive",
    ]  # fmt: skip
    assert "--exclusive" not in Wish.read({"exclusive": "false"}).options()


@pytest.mark.parametrize(
    "given",
    [{"partition": "-x"}, {"partition": "a b"}, {"gres": ""}, {"exclusive": "maybe"},
     {"colour": "red"}, {"begin": "now;reboot"}],
)  # fmt: skip
def test_no_wish_smuggles_an_option(given: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        Wish.read(given)


def test_a_time_that_is_always_too_short_is_refused_without_a_slurm() -> None:
    assert Wish.read({"time": "2:01"}).time == "2:01"
    for short in ("0", "0:0:0", "2", "2:00"):
        with pytest.raises(UsageError):
            Wish.read({"time": short})


def test_a_run_with_such_a_wish_is_bad_usage_before_anything_is_read(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["run", "no-such-playbook", "--slurm", "time=1"]) == 2
    said = capsys.readouterr().err
    assert "slurm time=1 is too short" in said
    assert "hint: more than 2 min" in said


def test_a_key_is_given_once() -> None:
    with pytest.raises(UsageError):
        pairs(["gpu", "partition=cpu"])


@pytest.mark.parametrize(
    ("job", "over", "words"),
    [
        (Job("7", "PENDING", "BeginTime", "2026-11-26T23:00:00"), False,
         "PENDING (BeginTime), from 2026-11-26T23:00:00"),
        (Job("7", "PENDING", "Resources", "N/A"), False, "PENDING (Resources)"),
        (Job("7", "RUNNING", "None", "x", "7:59:10"), False, "RUNNING, 7:59:10 left"),
        (Job("7", "RUNNING", "None", "x", "UNLIMITED"), False, "RUNNING"),
        (Job("7", "COMPLETING", "None"), False, "COMPLETING"),
        (Job("7", "RESV_DEL_HOLD", "Reservation r was deleted"), False,
         "RESV_DEL_HOLD (Reservation r was deleted)"),
        (Job("7", "CANCELLED", "BeginTime"), True, "CANCELLED"),
        (Job("7", "UNKNOWN"), True, "UNKNOWN"),
    ],
)  # fmt: skip
def test_a_job_is_told_in_slurms_own_words(job: Job, over: bool, words: str) -> None:
    assert (job.over, job.words) == (over, words)


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt(), SlurmError("x")]
)
def test_a_job_that_nobody_would_wait_for_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """The number of a job that does not get to the disk is known only here."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    book, site = written(tmp_path)
    monkeypatch.setattr(job, "refuse_inside", lambda: None)
    monkeypatch.setattr(job, "submit", lambda *asked: "7")
    given_up: list[str] = []
    monkeypatch.setattr(job, "cancel", given_up.append)

    def fails(*asked: object) -> None:
        raise error

    monkeypatch.setattr(Ticket, "ask_with", fails)
    with pytest.raises(type(error)):
        waiter.enter(site, book, {}, Wish(node="box"), print, ticket="ab" * 8)
    assert given_up == ["7"]
    (ticket,) = everyone()
    assert (ticket.ended or End()).words
