"""A user of a machine that systemd runs, with a site of real llama.cpp processes, and the run as
the console itself tells it there: pids and sockets of that machine mean nothing outside of it."""

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from console.common.paths import module_argv
from tests.runner.e2e.sites import UP, book, service
from tests.runner.world import ENDS, Outcome
from tests.testbed.systemd import HOME, USER, Done, Machine
from tests.waiting import LIMIT_S, until

T = TypeVar("T")
BASE, CAND = "http://127.0.0.1:8080", "http://127.0.0.1:8081"
HELD, GO = HOME / "held", HOME / "go"
HOLD = f"id: hold, run: [sh, -c, 'touch {HELD}; until [ -e {GO} ]; do sleep 0.05; done']"
EAT = HOME / "eat"
HUNGRY = f"""
import os, sys, threading, time
from console.rehearsal.demo import engine
def eat():
    while not os.path.exists({str(EAT)!r}):
        time.sleep(0.05)
    held = []
    while True:
        held.append(b"x" * 2**24)
threading.Thread(target=eat, daemon=True).start()
raise SystemExit(engine.main(sys.argv[1:]))
"""
"""An engine that takes all the memory it gets, once told to."""
COMPLETION = """
import sys
from console.runtime.answers.completion import complete
raise SystemExit(not complete(sys.argv[1], max_tokens=4, timeout_s=30.0).ok)
"""
CONSOLE = shlex.join(module_argv("console.cli"))


class Guest:
    """One test's user and machine."""

    def __init__(self, machine: Machine, model: Path) -> None:
        self.machine, self.model = machine, model
        self.said = ""
        self.site()
        self.write(HOME / "trial.yaml", book(UP, HOLD))

    def site(self, *candidate: str) -> None:
        """The site file. `candidate`: how Python is told to run the candidate's engine."""
        given = self.engine(8081, *candidate)
        site = {
            "schema": "omni.site/v1", "name": "local",
            "baseline": service(self.engine(8080), BASE),
            "services": {"cand": service(given, CAND, exclusive=True)},
        }  # fmt: skip
        self.write(HOME / ".config/omni-console/site.yaml", json.dumps(site, indent=1))

    def engine(self, port: int, *program: str) -> list[str]:
        return [
            sys.executable, *(program or ("-m", "console.rehearsal.demo.engine")),
            "--model", str(self.model), "--port", str(port), "--cache-ram", "0",
        ]  # fmt: skip

    def write(self, path: Path, text: str) -> None:
        script = 'mkdir -p "$(dirname "$1")" && cat > "$1"'
        done = self.machine.user("sh", "-c", script, "write", str(path), said=text)
        assert done.returncode == 0, done

    # -- commands ------------------------------------------------------------------------------

    def console(self, *args: str) -> Outcome:
        """A login, this command, and the logout."""
        return outcome(self.machine.login(f"{CONSOLE} {shlex.join(args)}"))

    def sudo(self, *args: str) -> Outcome:
        return outcome(self.machine.login(f"sudo -n {CONSOLE} {shlex.join(args)}"))

    def look(self, *args: str) -> Outcome:
        """A command that only looks, beside all logins."""
        return outcome(self.machine.user(*module_argv("console.cli"), *args))

    def detach(self) -> str:
        """A login brings the baseline up, starts a run and logs out in its outage; the run's id."""
        begun = self.machine.login(
            f"{CONSOLE} rollback >&2 && {CONSOLE} run trial.yaml --json --detach && "
            f"timeout {LIMIT_S} sh -c 'until [ -e {HELD} ]; do sleep 0.05; done'"
        )
        assert begun.returncode == 0, begun
        self.said = begun.stderr
        return str(json.loads(begun.stdout)["run"])

    # -- what is so ----------------------------------------------------------------------------

    def serves(self) -> bool:
        """Whether the baseline answers a completion, now."""
        done = self.machine.user(sys.executable, "-P", "-c", COMPLETION, BASE)
        return done.returncode == 0

    def pids(self, words: str) -> list[int]:
        """Processes of the user with these words on their command line."""
        found = self.machine.root("pgrep", "-u", USER, "-f", "--", words).stdout
        return [int(pid) for pid in found.split()]

    def engines(self, port: int) -> list[int]:
        return self.pids(f"--model .*--port {port}")

    def runners(self) -> list[int]:
        return self.pids("console.cli runner")

    def cgroup(self, pid: int) -> str:
        return self.machine.root("cat", f"/proc/{pid}/cgroup").stdout.splitlines()[-1]

    def oom_score(self, pid: int) -> int:
        return int(self.machine.root("cat", f"/proc/{pid}/oom_score_adj").stdout)

    def show(self, run: str) -> dict[str, Any]:
        return self.look("show", run, "--json").json

    def doctor(self, check: str) -> tuple[str, str, str]:
        """Level, detail and hint of one finding, as a login gets it."""
        found = self.console("doctor", "--json").json["findings"]
        [one] = [one for one in found if one["id"] == check]
        return one["level"], one["detail"], one["hint"]

    def over(self, run: str) -> dict[str, Any]:
        """Wait until the run is over and its runner gone; what `show` then says."""

        def found() -> dict[str, Any]:
            if self.runners():  # asked first: the closer's last event may still be on its way
                return {}
            view = self.show(run)
            return view if view.get("state") in ENDS else {}

        return self.until(found, f"run {run} is over")

    def until(self, condition: Callable[[], T], what: str) -> T:
        """The first true value of a condition; the failure says where the run stood."""
        return until(condition, what, where=self.where)

    def where(self) -> str:
        """The newest run in words, its runner's last lines, and what the machine says."""
        logs = "tail -n 8 ~/.local/state/omni-console/runs/*/runner.log"
        said = [self.look("show").out, self.machine.user("sh", "-c", logs).stdout]
        return "\n".join([*said, self.machine.where()])

    def close(self) -> None:
        self.machine.close()


class Boot:
    """The boot unit, installed for a user who lingers, or by root for one who need not."""

    def __init__(self, guest: Guest, system: bool) -> None:
        self.guest, self.system = guest, system
        self.unit = "omni-console-boot-ann.service" if system else "omni-console-boot.service"
        if not system:
            guest.machine.linger()
        install = ("boot", "install", *(["--system"] if system else []))
        done = guest.sudo(*install) if system else guest.console(*install)
        assert done.code == 0, done
        status = guest.console("boot", "status", "--json")
        assert (status.code, status.json["active"]) == (0, True), status

    def reboot(self) -> None:
        """A reboot in which nothing is asked, up to the end of the unit; nobody logs in."""
        machine, before = self.guest.machine, self.guest.machine.boot_id
        machine.power_off()
        machine.power_on()
        assert machine.boot_id != before
        self.guest.until(self.ended, f"{self.unit} has ended")
        assert not machine.root("loginctl", "list-sessions", "--no-legend").stdout

    def ended(self) -> bool:
        told = self.told("Result", "ActiveState", "ExecMainExitTimestampMonotonic")
        assert told.get("Result", "success") == "success", told
        ended = told.get("ExecMainExitTimestampMonotonic", "0") != "0"
        return ended and told["ActiveState"] == "inactive"

    def told(self, *names: str) -> dict[str, str]:
        return self.guest.machine.told(self.unit, *names, system=self.system)

    def log(self) -> str:
        field = "_SYSTEMD_UNIT" if self.system else "_SYSTEMD_USER_UNIT"
        return self.guest.machine.root("journalctl", "-o", "cat", f"{field}={self.unit}").stdout


def outcome(done: Done) -> Outcome:
    return Outcome(done.returncode, done.stdout, done.stderr)
