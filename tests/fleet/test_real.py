"""The fleet over real ssh: a rollout with real baselines, and a visit to a host's console."""

import subprocess
import termios

import pytest

from tests.fleet.hosts import Operator
from tests.fleet.standin import JUDGE, SAY
from tests.ports import free_port
from tests.runner.e2e.sites import REPORT, UP, book
from tests.runner.e2e.world import COMMAND
from tests.ui.place import ended, fresh_modes
from tests.ui.terminal import Terminal

pytestmark = [pytest.mark.full, pytest.mark.alone]


@pytest.mark.parametrize("operator", [("a", "b", "c")], indirect=True)
def test_a_rollout_stops_at_the_first_no_go_with_every_baseline_serving(operator: Operator) -> None:
    for name, rate in {"a": 50, "b": 40, "c": 5}.items():
        operator.boxes[name].world.write("rate", f"rate: {rate}\n")
    trial = operator.write("trial.yaml", book(UP, SAY, JUDGE, final=REPORT))
    named = [f"{name}: {{command: {box.command}}}" for name, box in operator.boxes.items()]
    named.append(f"d: {{ssh: a, command: {operator.boxes['a'].command}}}")
    text = f"schema: omni.fleet/v1\nhosts: {{{', '.join(named)}}}\n"
    (operator.root / "config/omni-console/fleet.yaml").write_text(text)
    done = operator.fleet("run", trial, "--on", "all", "--yes", "--json")
    assert done.code == 3, done
    legs = [(leg["host"], bool(leg["run"]), leg["exit_code"]) for leg in done.json["hosts"]]
    assert legs == [("a", True, 0), ("b", True, 0), ("c", True, 3), ("d", False, None)]
    assert "stopped at c: not begun on d" in done.err
    assert "lease      30 min" in done.err, "a run that takes the baseline down has a lease"
    assert [len(box.world.runs) for box in operator.boxes.values()] == [1, 1, 1]
    assert all(box.world.serves() for box in operator.boxes.values())
    told = operator.fleet("report").out
    rows_of_hosts = [row for row in told.splitlines() if row.startswith(("| a", "| b", "| c"))]
    assert [row.count("NO-GO") for row in rows_of_hosts] == [0, 0, 2]
    rows = {row["host"]: row for row in operator.fleet("--json").json["hosts"]}
    assert {name: row["state"]["baseline"]["word"] for name, row in rows.items()} == dict.fromkeys(
        "abcd", "serving"
    )
    assert rows["c"]["state"]["run"]["decision"] == "NO-GO"


def lost(operator: Operator, name: str) -> None:
    """From now on nobody answers where this host was; what is connected to it ends."""
    config = operator.root / "ssh_config"
    port = operator.boxes[name].ssh.port
    config.write_text(config.read_text().replace(f"Port {port}", f"Port {free_port()}"))
    control = operator.runtime / "omni-console/%C"
    argv = ["ssh", "-F", config, "-o", f"ControlPath={control}", "-o", f"Port={port}"]
    subprocess.run([*argv, "-O", "exit", name], capture_output=True, check=False)


@pytest.mark.parametrize("operator", [("a", "b")], indirect=True)
def test_enter_on_the_page_of_hosts_is_a_visit_to_that_hosts_console(operator: Operator) -> None:
    env = {**operator.env, "TERM": "xterm-256color", "LANG": "C.UTF-8"}
    with Terminal([COMMAND], env, columns=100, rows=30, cwd=str(operator.root)) as terminal:
        terminal.until("no baseline known")
        terminal.press("7")
        terminal.until(lambda: terminal.text.count(" serving ") >= 2)
        terminal.press("j", "enter")
        terminal.until("SERVING local")
        terminal.press("q")
        terminal.until("back from b")
        terminal.until("no baseline known")
        lost(operator, "a")
        terminal.until("? a ")
        terminal.until("unknown since")
        terminal.press("k", "enter")
        terminal.until("a: ssh failed (255)")
        terminal.press("q")
        assert ended(terminal) == 0
        assert termios.tcgetattr(terminal.master) == fresh_modes()
