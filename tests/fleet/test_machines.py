"""Hosts of the fleet that are machines of their own: each is run by systemd and reached by its own
sshd. A rollout over three of them, and one whose power is cut."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Thread

import pytest

from console.fleet.drive import BY_UNIT
from tests.fleet.hosts import Operator, operating
from tests.fleet.standin import JUDGE, SAY
from tests.ports import free_port
from tests.runner.e2e.guest import HOLD, Boot, Guest
from tests.runner.e2e.sites import REPORT, UP, book
from tests.runner.e2e.world import COMMAND
from tests.testbed.cache import Unavailable
from tests.testbed.engine import Engine
from tests.testbed.models import tiny_llama
from tests.testbed.plugin import PREFIX, lacking
from tests.testbed.ssh import Ssh, key_pair
from tests.testbed.systemd import HOME, USER, machine
from tests.waiting import until

pytestmark = pytest.mark.full
DISK = HOME / "disk"


@contextmanager
def guest_of(engine: Engine, place: Path) -> Iterator[Guest]:
    """A user who may log in by ssh, with the key that lies beside the model."""
    place.mkdir(exist_ok=True)
    place.chmod(0o755)
    tiny_llama(place / "tiny.gguf")
    key_pair(place / "key")
    try:
        with machine(engine, place, ssh_port=free_port()) as made:
            guest = Guest(made, place / "tiny.gguf")
            guest.write(HOME / ".ssh/authorized_keys", (place / "key.pub").read_text())
            yield guest
    except Unavailable as error:
        lacking(PREFIX + error.reason)


def login(guest: Guest) -> tuple[Ssh, Path]:
    """How an operator reaches its console."""
    return Ssh(guest.machine.ssh_port, guest.model.with_name("key"), USER), Path(COMMAND)


@pytest.fixture
def guest(engine: Engine, tmp_path: Path) -> Iterator[Guest]:
    with guest_of(engine, tmp_path) as made:
        yield made


@pytest.fixture
def operator(guest: Guest, tmp_path: Path) -> Iterator[Operator]:
    with operating(tmp_path / "operator", {"a": login(guest)}) as made:
        yield made


def test_a_rollout_over_three_machines_stops_at_the_third_with_every_baseline_serving(
    engine: Engine, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        guests = {name: stack.enter_context(guest_of(engine, tmp_path / name)) for name in "abc"}
        for guest, figure in zip(guests.values(), (50, 40, 5), strict=True):
            guest.write(HOME / ".config/omni-console/rate", f"rate: {figure}\n")
            assert guest.console("rollback").code == 0
        reached = {name: login(guest) for name, guest in guests.items()}
        operator = stack.enter_context(operating(tmp_path / "operator", reached))
        trial = operator.write("trial.yaml", book(UP, SAY, JUDGE, final=REPORT))
        done = operator.fleet("run", trial, "--on", "all", "--yes", "--json")
        assert [leg["exit_code"] for leg in done.json["hosts"]] == [0, 0, 3], done
        for guest in guests.values():
            assert guest.serves()
            assert (len(guest.engines(8080)), guest.engines(8081)) == (1, [])
            assert len(guest.look("runs", "--json").json["runs"]) == 1
        rows = operator.fleet("--json").json["hosts"]
        decisions = [row["state"]["run"]["decision"] for row in rows]
        assert decisions == ["GO", "GO", "NO-GO"]


def last_lease(operator: Operator) -> float | None:
    """What the operator's machine has kept of the lease of the host's run."""
    kept = operator.state / "fleet/hosts/a.json"
    guard = json.loads(kept.read_text())["state"].get("guard") if kept.exists() else None
    return guard["lease_s"] if guard else None


class Followed:
    """A `fleet run` in the background, and what it has said so far."""

    def __init__(self, child: subprocess.Popen[str]) -> None:
        self.child = child
        self.lines: list[str] = []
        self._reader = Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.child.stdout is not None
        for line in self.child.stdout:
            self.lines.append(line)

    @property
    def said(self) -> str:
        return "".join(self.lines)

    def until(self, words: str) -> None:
        until(lambda: words in self.said, words, where=lambda: self.said)

    def ended(self) -> int:
        code = self.child.wait(120)
        self._reader.join()
        return code


LATE = f"""[Service]
ExecStartPre=sh -c 'until [ -e {DISK} ]; do sleep 0.05; done'
"""
"""The unit waits, as for a disk that comes up late."""


def test_a_host_whose_power_is_cut_in_an_outage_comes_back_by_its_own_unit(
    guest: Guest, operator: Operator
) -> None:
    boot = Boot(guest, system=False)
    guest.write(HOME / f".config/systemd/user/{boot.unit}.d/late.conf", LATE)
    assert guest.console("rollback").code == 0
    trial = operator.write("trial.yaml", book(UP, HOLD))
    run = Followed(operator.start("run", trial, "--on", "a", "--yes"))
    run.until("▶ hold")
    until(lambda: last_lease(operator) is not None, "the operator knows its lease")
    guest.machine.power_off()
    run.until("unknown since")
    run.until("by the lease of run")
    table = operator.fleet()
    assert (table.code, "down ?" in table.out) == (4, True), table
    guest.machine.power_on()
    run.until("answers again")
    run.until(BY_UNIT)
    assert not guest.serves()
    guest.machine.user("touch", str(DISK))
    assert run.ended() == 6, run.said
    assert "state: rolled_back   exit code: 6" in run.said
    assert guest.serves()
    assert len(guest.engines(8080)) == 1
    [row] = operator.fleet("--json").json["hosts"]
    assert (row["state"]["baseline"]["word"], row["state"]["run"]["state"]) == (
        "serving", "rolled_back",
    )  # fmt: skip
    assert len(guest.look("runs", "--json").json["runs"]) == 1
    assert run.said.count("▶ hold") == run.said.count("== rolled_back") == 1
