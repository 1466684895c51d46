"""The console over a real ssh, on real llama-server containers: a session, a lost line, a slow one,
the emergency key."""

import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from console.common.text import clean
from console.host import process
from console.recovery.rollback.progress import read_lines
from screens.actions import READ_S
from tests.runner.e2e.boxes import Boxes
from tests.testbed.cache import Unavailable
from tests.testbed.engine import Engine
from tests.testbed.plugin import PREFIX, lacking
from tests.testbed.ssh import Ssh, sshd
from tests.ui.conftest import full
from tests.ui.place import ended, press_until, restored, seen
from tests.ui.ssh_login import Login, login, slow_line, write_models
from tests.ui.terminal import Terminal
from tests.waiting import ran_out, some, until

pytestmark = pytest.mark.engine

TRIAL = """
schema: omni.playbook/v1
name: trial
title: Is the candidate fast enough?
objective: at least a thousandth of the baseline's tokens per second
inputs:
  tokens: {type: int, min: 1, max: 64, default: 16, title: tokens asked for}
phases:
  - title: Trial
    steps:
      - {id: host, title: What this machine is, run: [uname, -s]}
      - {id: up, title: Start the candidate, service: {start: cand}}
      - id: bench
        title: Measure it
        benchmark: {service: cand, max_tokens: "${{ inputs.tokens }}", runs: 2, against: baseline}
      - id: wait
        title: Let it run for a while
        script: |
          i=0
          while [ ! -e go-on ]; do i=$((i+1)); echo tick $i; sleep 0.2; done
  - title: Decision
    steps:
      - {id: sure, title: Did somebody look?, approval: {prompt: Do the answers make sense?}}
      - id: go
        title: Fast enough?
        gate: [{metric: bench.tok_s, go: "> 0.001 x baseline", min_samples: 2}]
        outcomes: {go: migrate, no_go: retain}
finally:
  - {id: rep, title: Write it down, report: {}}
"""
DELAY_S, BYTES_S = 0.1, 64_000
LIMIT_S = 60.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ssh]:
    if shutil.which("tmux") is None:
        lacking(f"{PREFIX}no tmux: apt-get install tmux")
    with ExitStack() as stack:
        try:
            made = stack.enter_context(sshd(tmp_path_factory.mktemp("sshd")))
        except Unavailable as error:
            lacking(PREFIX + error.reason)
        yield made


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_models(tmp_path_factory.mktemp("models"))


@pytest.fixture
def far(
    tmp_path: Path, models: Path, engine: Engine, llama_image: str, server: Ssh
) -> Iterator[Login]:
    """A way in over ssh to a world whose baseline serves; `trial.yaml` lies beside its site."""
    with login(tmp_path, models, engine, llama_image, server) as made:
        made.box.world.write("trial.yaml", TRIAL)
        yield made


# -- what an operator does --------------------------------------------------------------------


def pick(terminal: Terminal) -> None:
    """From the first screen to the plan, with an input changed; a wrong one is refused."""
    seen(terminal, "SERVING", "no run")
    terminal.press("2")
    terminal.until("trial  site")
    terminal.until("Objective: at least a thousandth")
    terminal.press("enter")
    seen(terminal, "Inputs of trial", "tokens asked for", "16")
    terminal.press("ctrl+u", "99")
    terminal.until("at most 64")
    terminal.press("ctrl+u", "8")
    terminal.until(lambda: "expected a whole number" not in terminal.text)
    terminal.press("enter", "enter")
    seen(terminal, "S starts, paused", "tokens = 8", "DOWN from baseline:stop")


def left(terminal: Terminal, words: str) -> None:
    """Esc, and what is seen then: tmux takes a key right behind Esc for Alt and that key."""
    terminal.press("escape")
    terminal.until(words)


def told(far: Login, terminal: Terminal, key: str) -> None:
    """A verb's key, once more where the console asked for a moment; the runner took it."""
    before = len(far.box.world.view().verbs)
    if key == "y":
        time.sleep(READ_S)  # what has only just appeared takes no answer
    for _ in range(5):
        terminal.press(key)
        if terminal.comes(lambda: len(far.box.world.view().verbs) > before, 10.0):
            return
    raise AssertionError(ran_out(f"{key} is taken", 50.0, lambda: terminal.text))


def stepped(far: Login, terminal: Terminal, step: str, state: str = "succeeded") -> None:
    """`n`, and the step comes to this state, in the journal and on the screen."""
    terminal.until("n Next")
    told(far, terminal, "n")
    terminal.until(lambda: str(far.box.world.at(step).state) == state, LIMIT_S)
    sign = "▶" if state == "running" else "✓"
    terminal.until(lambda: re.search(rf"^{sign} {step} ", terminal.text, re.MULTILINE))


def begun(far: Login, terminal: Terminal) -> None:
    """A run from the playbook screen to its step `wait`, which goes on until `go-on` is there."""
    pick(terminal)
    terminal.press("S")
    seen(terminal, "Paused", "n Next")
    told(far, terminal, "a")
    terminal.until(lambda: str(far.box.world.at("wait").state) == "running", LIMIT_S)
    seen(terminal, "RUNNING wait", "DOWN for this run", "tick ")


def finished(far: Login, terminal: Terminal) -> None:
    """From the running step `wait` to the report: the approval answered, GO, the baseline back."""
    world = far.box.world
    (world.root / "go-on").touch()
    terminal.until(lambda: "n Next" in terminal.text or "y Approve" in terminal.text)
    if "n Next" in terminal.text:
        told(far, terminal, "n")
    seen(terminal, "Waiting for you", "Do the answers make sense?", "y Approve")
    told(far, terminal, "y")
    terminal.until(lambda: "n Next" in terminal.text or world.view().over)
    if not world.view().over:
        told(far, terminal, "a")
    seen(terminal, "SUCCEEDED", "decision GO migrate", "GATE GO", "o Report", "SERVING")
    assert str(world.over().state) == "succeeded"
    terminal.press("o")
    seen(terminal, "Decision", "GO", "migrate", "Baseline down")
    assert "Baseline after" in world.run.report.read_text()


def at_rest(box: Boxes, baseline: str) -> None:
    """The very same baseline answers a completion; no candidate runs."""
    assert box.world.serves()
    assert not box.world.listens(box.world.cand_url)
    assert box.ids("--filter", "status=running") == [baseline]


def log_on_screen(far: Login, terminal: Terminal) -> list[str]:
    """Lines of the pane that the candidate's container really wrote."""
    engine = far.box.engine
    done = subprocess.run(
        [engine.docker, "logs", far.box.cand_name], env=engine.env(), text=True, check=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120,
    )  # fmt: skip
    written = [clean(line) for line in done.stdout.splitlines()]
    shown = [line[2:].rstrip().removesuffix("›").rstrip() for line in terminal.lines]
    return [s for s in shown if len(s) > 30 and any(w.startswith(s) for w in written)]


def fence(far: Login) -> dict[str, Any] | None:
    """The first rung of the newest run's ladder, once there is one; `at` in Unix seconds."""
    lines = read_lines(far.box.world.run.ladder)[0]
    return lines[0] if lines else None


def moved(far: Login, step: str) -> Callable[[], bool]:
    """Whether a step has said more since this call."""
    log = far.box.world.run.attempt_log(step, 1)

    def size() -> int:
        return log.stat().st_size if log.exists() else 0  # it begins with the first line

    before = size()
    return lambda: size() > before


# -- the tests --------------------------------------------------------------------------------


@pytest.mark.full
def test_a_whole_session_in_tmux(far: Login) -> None:
    box, world = far.box, far.box.world
    (baseline,) = box.ids()
    terminal = far.log_in(far.tmux())
    pick(terminal)
    press_until(terminal, "pagedown", lambda: "THE BASELINE STOPS HERE" in terminal.text)
    assert re.search(r"^ !\s+3\. baseline:stop", terminal.text, re.MULTILINE), terminal.text
    assert not world.runs
    terminal.press("S")
    seen(terminal, "Paused", "run the next step", "0/")
    stepped(far, terminal, "host")
    terminal.until("Linux")
    stepped(far, terminal, "baseline:measure")
    assert box.running(box.base_name)
    stepped(far, terminal, "baseline:stop")
    seen(terminal, "DOWN for this run")
    assert not box.running(box.base_name)
    stepped(far, terminal, "up")
    assert box.running(box.cand_name)
    terminal.until(lambda: len(log_on_screen(far, terminal)) >= 3)
    stepped(far, terminal, "bench")
    terminal.until(lambda: any("slot" in line for line in log_on_screen(far, terminal)))
    total = some(re.search(r"MemTotal: +(\d+)", Path("/proc/meminfo").read_text()))
    seen(terminal, f"/{int(total[1]) / 2**20:.1f} GiB", "DISK")
    stepped(far, terminal, "wait", "running")
    seen(terminal, "output of wait", "tick ", "RUNNING wait")
    press_until(terminal, "k", lambda: "8 tokens against cand" in terminal.text)
    assert re.search(r"[0-9.]+ tok/s", terminal.text)
    left(terminal, "Let it run for a while")
    finished(far, terminal)
    at_rest(box, baseline)
    terminal.press("q")
    assert ended(terminal) == 0
    until(lambda: not far.consoles(), "the console is gone")


@pytest.mark.full
@pytest.mark.parametrize("how", ["tmux", "bare"])
def test_the_line_dies_in_the_middle_of_a_step(far: Login, how: str) -> None:
    box, world = far.box, far.box.world
    (baseline,) = box.ids()
    command = far.tmux() if how == "tmux" else far.bare()
    terminal = far.log_in(command)
    begun(far, terminal)
    until(lambda: world.pids("step"), "the step's command runs")  # it is shown as running before
    runner, steps = world.pids("runner"), world.pids("step")
    ladder = world.pids("ladder")
    (console,) = far.consoles()
    far.lose(terminal)
    if how == "bare":
        until(lambda: not process.alive(*console), "the console ends with its line")
        assert not far.consoles()
    until(moved(far, "wait"), "the step goes on")
    assert (world.pids("runner"), world.pids("step")) == (runner, steps)
    assert world.pids("ladder") == ladder, "the emergency key has its ladder"
    again = far.log_in(command)
    seen(again, "RUNNING wait", "DOWN for this run", "output of wait")
    assert far.consoles() == [console] or how == "bare"
    until(moved(far, "wait"), "the step goes on")
    finished(far, again)
    assert len(world.runs) == 1
    at_rest(box, baseline)
    again.press("q")
    assert ended(again) == 0
    if how == "bare":
        restored(again)


@pytest.mark.full
def test_a_slow_line(far: Login) -> None:
    box, world = far.box, far.box.world
    (baseline,) = box.ids()
    (world.root / "go-on").touch()
    with slow_line(far.ssh.port, delay_s=DELAY_S, bytes_s=BYTES_S) as port:
        terminal = far.log_in(far.tmux(), ssh=far.ssh.through(port))
        pick(terminal)
        terminal.press("S")
        seen(terminal, "Paused", "n Next")
        told(far, terminal, "a")
        seen(terminal, "Waiting for you")
        terminal.press("?")
        terminal.until("Everywhere")
        terminal.until(lambda: " NEXT " not in terminal.text)  # drawn to its end
        left(terminal, " NEXT ")
        terminal.press("g")
        terminal.until("What this machine is")
        pressed = time.time()
        terminal.press("f12")
        first = until(lambda: fence(far), "the fence")
        terminal.until("THE BASELINE SERVES")
    assert first["rung"] == "fence"
    assert first["at"] >= pressed + 0.9 * DELAY_S, "the key came through the slow line"
    assert str(world.over().state) == "rolled_back"
    at_rest(box, baseline)


@pytest.mark.parametrize(("key", "where"), [("f12", "the run"), full("ctrl+backslash", "a dialog")])
def test_the_emergency_key_in_tmux(far: Login, key: str, where: str) -> None:
    box, world = far.box, far.box.world
    (baseline,) = box.ids()
    terminal = far.log_in(far.tmux(status=False))
    begun(far, terminal)
    assert box.running(box.cand_name)
    assert not box.running(box.base_name)
    if where == "a dialog":
        terminal.press("x")
        terminal.until("type abort")
        terminal.press("abo")
        terminal.until(" abo")
    terminal.press(key)
    seen(terminal, "THE BASELINE SERVES", "1 candidate stopped", "back in")
    assert fence(far) is not None  # its line may have scrolled away
    assert str(world.over().state) == "rolled_back"
    at_rest(box, baseline)
    assert not world.pids("step")
    left(terminal, "ROLLED BACK")  # the dialog went with the run that it was for
    assert world.view().verbs[-1].who.endswith(", with the emergency key")
