"""What is made of the answers of Slurm's programs, by stand-ins for them."""

import contextlib
import os
import socket
import threading
from pathlib import Path

import pytest

from console.common.clock import SystemClock
from console.host import process
from console.runner import launch
from console.runner.slurm import job as slurm
from console.runner.slurm import standing
from console.runner.slurm.job import SlurmError, Wish
from console.runner.slurm.standing import Standing
from console.runner.slurm.ticket import End, Ticket
from console.runner.slurm.waiter import Waiter, enter
from tests.fleet.far import written

WAITS = "7|PENDING|BeginTime|2026-11-26T23:00:00|1:00:00|"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory in front of PATH."""
    made = tmp_path / "bin"
    made.mkdir()
    monkeypatch.setenv("PATH", f"{made}{os.pathsep}{os.environ['PATH']}")
    return made


def program(place: Path, name: str, script: str) -> None:
    (place / name).write_text(f"#!/bin/sh\n{script}\n")
    (place / name).chmod(0o755)


@pytest.mark.parametrize("name", ["SQUEUE_PARTITION", "SQUEUE_USERS", "SQUEUE_NAMES"])
def test_what_a_user_wants_to_see_of_the_queue_hides_no_job(
    programs: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """squeue leaves out what the variable does not name: the job counted as one that is over, and
    its run never began."""
    program(programs, "squeue", f'[ "${name}" ] || echo "{WAITS}"')
    monkeypatch.setenv(name, "other")
    assert not slurm.look(["7"])["7"].over


@pytest.mark.parametrize("name", ["SBATCH_ARRAY_INX", "SBATCH_WAIT"])
def test_a_job_is_one_that_is_asked_for_and_not_waited_for_whatever_the_shell_says(
    programs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    """Of several jobs the one that squeue shows has another number; sbatch that waits for the end
    of the job was given up, and the job stayed."""
    program(programs, "sbatch", f'cat >/dev/null; [ "${name}" ] || echo 7')
    monkeypatch.setenv(name, "1")
    assert slurm.submit(Wish(), "trial", ["true"], tmp_path, 60.0, "box") == "7"


def test_a_cancelled_job_is_cancelled_without_a_question(
    programs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program(programs, "scancel", f'[ "$SCANCEL_INTERACTIVE" ] || : > {tmp_path}/done')
    monkeypatch.setenv("SCANCEL_INTERACTIVE", "true")
    slurm.cancel("7")
    assert (tmp_path / "done").exists()


NODES = """\
echo "NodeName=gpu1 Arch=x86_64 NodeAddr=10.0.0.1 NodeHostName={here} Version=22.05.8"
echo "NodeName=gpu1b NodeAddr=10.0.0.1 NodeHostName={here} Port=17002"
echo "NodeName=gpu2 NodeAddr=10.0.0.2 NodeHostName=gpu2"
"""


def test_a_node_that_is_another_machine_is_refused_before_a_job_is_asked_for(
    programs: Path,
) -> None:
    here = socket.gethostname()
    program(programs, "scontrol", NODES.format(here=here))
    assert slurm.node_here(Wish()) == "gpu1"
    assert [slurm.node_here(Wish(node=name)) for name in ("gpu1", "gpu1b")] == ["gpu1", "gpu1b"]
    with pytest.raises(SlurmError, match="gpu2 is another machine") as refused:
        slurm.node_here(Wish(node="gpu2"))
    assert "gpu1" in refused.value.detail


@pytest.mark.parametrize("script", ["exit 1", "echo NodeName=gpu2 NodeHostName=gpu2"])
def test_a_node_of_which_nothing_is_known_may_be_this_machine(programs: Path, script: str) -> None:
    program(programs, "scontrol", script)
    assert slurm.node_here(Wish(node="gpu2")) == "gpu2"


def test_an_allocation_that_another_machine_got_is_given_back(
    programs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With one home on several machines its holder is heard of here, and can hold nothing here."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    program(programs, "squeue", f'echo "{WAITS}" | sed s/PENDING/RUNNING/')
    program(programs, "scancel", f'echo "$@" > {tmp_path}/given-up')
    ticket = Ticket("t", "trial.yaml", "/", "site.yaml", at=1.0)
    ticket.keep()
    ticket.ask_with("7")
    with monkeypatch.context() as there:
        there.setattr(process, "boot_id", lambda: "another")
        ticket.grant("7")
    waiter = threading.Thread(target=Waiter(ticket, SystemClock()).run, daemon=True)
    waiter.start()
    waiter.join(30.0)
    assert "another machine" in (ticket.ended or End()).words
    assert (tmp_path / "given-up").read_text() == "7\n"


@pytest.mark.parametrize(
    ("answer", "short"),
    [("7|PENDING|BeginTime|x|2:00|", True), ("7|RUNNING|None|x|1:59|box", True),
     ("7|PENDING|BeginTime|x|1-00:00:00|", False), ("7|PENDING|None|x|UNLIMITED|", False),
     ("7|PENDING|None|x|INVALID|", False), ("7|CANCELLED|None|x|0:00|", False), ("", False)],
)  # fmt: skip
def test_a_job_whose_partition_gives_it_too_little_time_is_not_waited_for(
    programs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: str, short: bool
) -> None:
    """The baseline was taken down, and brought back at once, for nothing."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    book, site = written(tmp_path)
    program(programs, "scontrol", f"echo NodeName=box NodeHostName={socket.gethostname()}")
    program(programs, "sbatch", "cat >/dev/null; echo 7")
    program(programs, "squeue", f"echo '{answer}'")
    program(programs, "scancel", f"echo $1 > {tmp_path}/given-up")
    begun: list[str] = []
    monkeypatch.setattr(launch, "detach", lambda name, *more: begun.append(name))
    monkeypatch.setattr(slurm, "refuse_inside", lambda: None)
    with pytest.raises(SlurmError, match="time of Slurm job 7 is too short") if short else (
        contextlib.nullcontext()
    ):  # fmt: skip
        enter(site, book, {}, Wish(), lambda words: None)
    assert (len(begun), (tmp_path / "given-up").exists()) == (not short, short)


def test_a_controller_that_is_down_holds_no_list_up(
    programs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`runs`, and every look of the fleet's table at a host with an allocation, took 15 s."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(standing, "GLANCE_S", 0.2)
    program(programs, "squeue", "exec sleep 600")
    ticket = Ticket("t", "trial.yaml", "/", "site.yaml", at=1.0)
    ticket.keep()
    ticket.ask_with("7")
    found: list[Standing] = []
    asks = threading.Thread(target=lambda: found.extend(standing.everywhere()), daemon=True)
    asks.start()
    asks.join(14.0)
    assert [one.words.partition(":")[0] for one in found] == ["Slurm does not answer"]


@pytest.mark.parametrize(
    ("row", "told"),
    [("7|PENDING|stage-in: no room|full|x|1:00|", "PENDING (stage-in: no room|full), from x"),
     ("7|PENDING|Beg", "PENDING (Beg)"), ("7|PEND", "PEND"), ("7", "")],
)  # fmt: skip
def test_a_row_in_an_odd_form_is_of_a_job_that_may_come(
    programs: Path, row: str, told: str
) -> None:
    """It counted as a job that Slurm knows no more, and the run never began."""
    program(programs, "squeue", f"printf '%s' '{row}'")
    found = slurm.look(["7"])["7"]
    assert (found.over, found.words) == (False, told)


def test_the_number_of_a_job_stands_in_the_last_line(programs: Path, tmp_path: Path) -> None:
    program(programs, "sbatch", "cat >/dev/null; echo Welcome to the lab; echo '7;lab'")
    assert slurm.submit(Wish(), "trial", ["true"], tmp_path, 60.0, "box") == "7"
