"""Runs and the boot unit on a machine that a real systemd runs (tests/testbed/systemd.py says what
stands in there for what): logins, logouts, linger, an OOM kill, a reboot in an outage. With the
host's memory controller of cgroup version 1 systemd does not act on an OOM kill by itself."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from console.common.paths import module_argv
from tests.runner.e2e.guest import BASE, CAND, EAT, GO, HUNGRY, Boot, Guest, outcome
from tests.runner.e2e.sites import UP, book, service
from tests.runner.scenes import STAY
from tests.testbed.cache import Unavailable
from tests.testbed.engine import Engine
from tests.testbed.plugin import PREFIX, lacking
from tests.testbed.systemd import HOME, UID, USER, machine

DOCTOR = (*module_argv("console.cli"), "doctor", "--json")
KEPT = {"KillMode": "process", "OOMPolicy": "continue"}
IN_THE_JOURNAL = "the journal has it, a moment after the unit has ended"
"""What systemd has to have understood of each unit: its end and an OOM kill take nobody along."""

on_both = pytest.mark.parametrize("system", [False, True], ids=["user unit", "system unit"])


@pytest.fixture
def guest(engine: Engine, models: Path) -> Iterator[Guest]:
    """A user who does not linger and is not logged in, with a site; no baseline runs."""
    try:
        with machine(engine, models) as made:
            yield Guest(made, models / "tiny.gguf")
    except Unavailable as error:
        lacking(PREFIX + error.reason)


def in_the_outage(guest: Guest, run: str) -> None:
    assert guest.runners()
    assert guest.engines(8081)
    assert not guest.engines(8080)
    assert guest.show(run)["state"] == "running"


def ends_well(guest: Guest, run: str) -> None:
    guest.machine.user("touch", str(GO))
    assert guest.over(run)["state"] == "succeeded"
    assert guest.serves()


# -- logouts -----------------------------------------------------------------------------------


def test_with_linger_a_run_is_a_unit_of_its_own_that_outlives_the_logout(guest: Guest) -> None:
    guest.machine.linger()
    run = guest.detach()
    guest.machine.logged_out()
    in_the_outage(guest, run)
    unit = f"omni-console-{run}.service"
    [pid] = guest.runners()
    assert guest.machine.told(unit, "ActiveState", "Transient", "MainPID", *KEPT) == {
        "ActiveState": "active", "Transient": "yes", "MainPID": str(pid), **KEPT,
    }  # fmt: skip
    assert f"user@{UID}.service/app.slice/{unit}" in guest.cgroup(pid)
    level, detail, _ = guest.doctor("login.logout")
    assert level == "ok"
    assert "linger is on" in detail
    ends_well(guest, run)
    guest.machine.logged_out()
    assert guest.serves(), "the baseline outlives its unit"


def test_without_linger_a_run_outlives_the_logout_but_not_by_a_unit(guest: Guest) -> None:
    run = guest.detach()
    guest.machine.logged_out()
    in_the_outage(guest, run)
    [pid] = guest.runners()
    assert ".scope" in guest.cgroup(pid), "logind has abandoned the session's scope, and ended none"
    level, detail, _ = guest.doctor("login.logout")
    assert (level, detail) == ("ok", "a run is a session of its own and lives on")
    guest.machine.linger()
    # a plain `su` leaves the variables of whoever called it: root's runs are no units of theirs
    told = guest.machine.root(*DOCTOR, USER=USER, XDG_RUNTIME_DIR=f"/run/user/{UID}").stdout
    [logout] = [one for one in json.loads(told)["findings"] if one["id"] == "login.logout"]
    assert logout["detail"] == detail
    ends_well(guest, run)


def test_where_logind_ends_it_at_the_logout_the_console_says_so_before(guest: Guest) -> None:
    guest.machine.kill_at_logout()
    level, detail, hint = guest.doctor("login.logout")
    assert level == "warning"
    assert "KillUserProcesses=yes" in detail
    assert "enable-linger ann" in hint
    run = guest.detach()
    assert "KillUserProcesses=yes" in guest.said
    guest.machine.logged_out()
    # SIGTERM comes first: the run is rolled back, and all the same nothing of it may live on
    assert guest.over(run)["state"] == "rolled_back"
    guest.machine.stop_timeout()
    assert not guest.engines(8080)
    back = guest.console("rollback", "--json")
    assert (back.code, back.json["serving"]) == (0, True), back


# -- out of memory -----------------------------------------------------------------------------


def test_the_kernel_kills_the_candidate_and_not_the_runner_of_its_unit(guest: Guest) -> None:
    guest.machine.linger()
    guest.site("-c", HUNGRY)
    run = guest.detach()
    [runner], [candidate] = guest.runners(), guest.engines(8081)
    assert guest.oom_score(candidate) == 1000 > guest.oom_score(runner)
    if not guest.machine.confine(candidate, 512 << 20):
        pytest.skip("this host's memory controller is of cgroup version 2")
    guest.machine.user("touch", str(EAT))
    guest.until(lambda: not guest.engines(8081), "the candidate is killed")
    assert guest.machine.oom_kills() == 1
    assert guest.runners() == [runner]
    unit = f"omni-console-{run}.service"
    told = guest.machine.told(unit, "ActiveState", "Result", *KEPT)
    assert told == {"ActiveState": "active", "Result": "success", **KEPT}
    ends_well(guest, run)


# -- reboots -----------------------------------------------------------------------------------


@on_both
def test_after_a_reboot_in_an_outage_the_unit_brings_the_baseline_back(
    guest: Guest, system: bool
) -> None:
    boot = Boot(guest, system)
    run = guest.detach()
    in_the_outage(guest, run)
    boot.reboot()
    guest.until(lambda: "the baseline serves" in boot.log(), IN_THE_JOURNAL)
    log = boot.log()
    assert f"this user's run, {run}" in log, log
    assert re.search(r"completion ok +\d+ tokens", log), log
    assert guest.serves()
    assert guest.over(run)["state"] == "rolled_back"
    [pid] = guest.engines(8080)
    assert boot.unit in guest.cgroup(pid), "KillMode=process: it outlives the unit that started it"
    assert boot.told("ActiveState")["ActiveState"] == "inactive"
    level, detail, _ = guest.doctor("login.boot")
    assert (level, boot.unit in detail) == ("ok", True)


def test_the_unit_tries_again_until_the_baseline_serves(guest: Guest) -> None:
    """The disk with the model comes up late: the first try fails, a later one does not."""
    model, away = HOME / "model.gguf", HOME / "away.gguf"
    guest.machine.user("cp", str(guest.model), str(model))
    guest.model = model
    guest.site()
    boot = Boot(guest, system=False)
    run = guest.detach()
    guest.machine.user("mv", str(model), str(away))
    guest.machine.power_off()
    guest.machine.power_on()
    guest.until(lambda: "ROLLBACK FAILED" in boot.log(), "the first try has failed")
    guest.machine.user("mv", str(away), str(model))
    guest.until(guest.serves, "the baseline serves")
    guest.until(boot.ended, f"{boot.unit} has ended")
    assert int(boot.told("NRestarts")["NRestarts"]) >= 1
    assert guest.over(run)["state"] == "rolled_back"


@pytest.mark.parametrize("promoted", [False, True])
def test_a_candidate_that_clients_stayed_at_is_followed_by_the_baseline(
    guest: Guest, promoted: bool
) -> None:
    """The reboot ended it: without the baseline of the site file nobody would serve."""
    boot = Boot(guest, system=False)
    guest.write(HOME / "stay.yaml", book(UP, STAY))
    assert guest.console("rollback").code == 0
    done = guest.console("run", "stay.yaml", "--json")
    assert (done.code, done.json["state"]) == (0, "succeeded"), done
    assert not guest.engines(8080)
    if promoted:
        assert guest.console("promote", "--why", "it is faster", "--yes").code == 0
    assert guest.serves(), "by the candidate"
    boot.reboot()
    assert len(guest.engines(8080)) == 1
    assert guest.serves()


def ended_well(guest: Guest) -> None:
    ends_well(guest, guest.detach())


def rolled_back(guest: Guest) -> None:
    run = guest.detach()
    assert guest.console("rollback").code == 0
    assert guest.over(run)["state"] == "rolled_back"


def stopped_on_purpose(guest: Guest) -> None:
    """No run ever took it down: the operator did."""
    assert guest.console("rollback").code == 0
    assert guest.machine.user("pkill", "-f", "demo.engine").returncode == 0
    guest.until(lambda: not guest.engines(8080), "the baseline has ended")


@pytest.mark.parametrize("history", [ended_well, rolled_back, stopped_on_purpose])
@on_both
def test_where_no_run_left_the_baseline_down_the_unit_does_nothing(
    guest: Guest, system: bool, history: Callable[[Guest], None]
) -> None:
    boot = Boot(guest, system)
    history(guest)
    boot.reboot()
    words = "nothing to do: no run left the baseline down"
    guest.until(lambda: words in boot.log(), IN_THE_JOURNAL)
    assert not guest.engines(8080)
    assert not guest.pids("console")


def test_a_unit_that_would_not_act_is_refused_and_what_is_removed_does_not_act(
    guest: Guest,
) -> None:
    assert guest.doctor("login.boot")[2] == "omni-console boot install"
    refused = guest.console("boot", "install")
    assert (refused.code, "enable-linger ann" in refused.err) == (2, True), refused
    assert guest.console("boot", "install", "--system").code == 2, "it takes root"
    assert guest.console("boot", "status").code == 5
    boot = Boot(guest, system=True)
    enabled = boot.told("LoadState", "UnitFileState", "User", "Type", *KEPT)
    assert enabled == {
        "LoadState": "loaded", "UnitFileState": "enabled", "User": USER, "Type": "exec", **KEPT,
    }  # fmt: skip
    run = guest.detach()
    assert guest.sudo("boot", "remove", "--system").code == 0
    assert guest.console("boot", "status").code == 5
    guest.machine.power_off()
    guest.machine.power_on()
    assert boot.told("LoadState") == {"LoadState": "not-found"}
    assert guest.show(run)["state"] == "interrupted"
    assert not guest.engines(8080)
    assert guest.console("rollback").code == 0
    assert guest.serves()


# -- a baseline that is a unit -----------------------------------------------------------------


class Served:
    """A llama.cpp server as a unit that systemd starts again whenever it ends."""

    def __init__(self, guest: Guest, system: bool) -> None:
        self.guest, self.system = guest, system
        words = " ".join(guest.engine(8080))
        more = f"User={USER}\n" if system else ""
        text = f"[Service]\n{more}ExecStart={words}\nRestart=always\nRestartSec=0\n"
        place = "/etc/systemd/system" if system else f"{HOME}/.config/systemd/user"
        run = guest.machine.root if system else guest.machine.user
        script = f"mkdir -p {place} && cat > {place}/llama.service"
        assert run("sh", "-c", script, said=text).returncode == 0
        if not system:
            guest.machine.linger()
        self.systemctl("daemon-reload")
        self.systemctl("start", "llama.service")
        guest.until(guest.serves, "the unit serves")

    def systemctl(self, *words: str) -> None:
        done = (
            self.guest.machine.root("systemctl", *words) if self.system
            else self.guest.machine.login(f"systemctl --user {' '.join(words)}")
        )  # fmt: skip
        assert done.returncode == 0, done

    @property
    def state(self) -> tuple[str, int]:
        names = ("ActiveState", "MainPID")
        told = self.guest.machine.told("llama.service", *names, system=self.system)
        return told["ActiveState"], int(told["MainPID"])


@on_both
def test_a_real_unit_is_found_stopped_and_brought_back(guest: Guest, system: bool) -> None:
    """`init` describes it, a run takes it down although it is Restart=always, and the end of the
    run, a rollback and rollback.sh each start it. A system unit is root's."""
    command = guest.sudo if system else guest.console
    served = Served(guest, system)
    guest.machine.user("rm", str(HOME / ".config/omni-console/site.yaml"))
    site = HOME / "site.yaml"
    done = command("init", "--pick", "llama.service", "--yes", "--json", "--output", str(site))
    assert (done.code, done.json["baseline"]["kind"]) == (0, "unit"), done
    first = served.state
    text = guest.machine.root("cat", str(site)).stdout
    cand = json.dumps({"cand": service(guest.engine(8081), CAND, exclusive=True)})
    whole = f"{text}services: {cand}\n"
    guest.machine.root("sh", "-c", f"cat > {site}", said=whole)
    guest.write(HOME / "trial.yaml", book(UP))
    done = command("--site", str(site), "run", "trial.yaml", "--json")
    assert (done.code, done.json["state"]) == (0, "succeeded"), f"{done}\n{guest.where()}"
    assert guest.serves()
    second = served.state
    assert (second[0], second[1] == first[1]) == ("active", False)
    served.systemctl("stop", "llama.service")
    done = command("--site", str(site), "rollback", "--json")
    assert (done.code, done.json["serving"]) == (0, True), done
    served.systemctl("stop", "llama.service")
    place = "/root" if system else str(HOME)
    scripts = f"{place}/.local/state/omni-console/rollback/*.sh"
    script = f"sh $(ls {scripts} | grep -v without-python)"
    done = outcome(guest.machine.login(f"sudo -n sh -c '{script}'" if system else script))
    assert done.code == 0, done
    assert guest.serves()


def test_a_system_unit_that_this_user_may_not_stop_is_left_serving(guest: Guest) -> None:
    """The refusal comes from systemd, before anything is down."""
    served = Served(guest, system=True)
    site = {
        "schema": "omni.site/v1", "name": "local",
        "baseline": {"unit": {"name": "llama.service"}, "url": BASE},
        "services": {"cand": service(guest.engine(8081), CAND, exclusive=True)},
    }  # fmt: skip
    guest.write(HOME / ".config/omni-console/site.yaml", json.dumps(site))
    before = served.state
    done = guest.console("run", "trial.yaml", "--json")
    assert (done.code, "Failed to stop" in guest.where()) == (5, True), done
    assert served.state == before
    assert guest.serves()
    assert "polkit" in guest.doctor("baseline.service")[1]
