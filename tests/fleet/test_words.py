"""What the fleet says, word for word. What was said stands in __snapshots__; `make golden` writes
it anew."""

import io
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from console.fleet.inventory import Host
from console.fleet.known import Known, words_of
from console.fleet.report import Decided, markdown
from console.fleet.table import HEAD, cells, lines, tell_words
from console.frontends.cli.fleet.commands import waiting
from console.frontends.cli.fleet.rollout import _HostPrinter
from console.host.gpu.nvml import NO_LIBRARY
from console.journal.state import Pause, RunState, possible_verbs
from console.journal.store import event_of
from console.render.report.markdown import prose

NOW = 1_750_003_600.0
GIB = 1024**3
STATE: dict[str, Any] = {
    "baseline": {"word": "down"},
    "run": {
        "id": "20250615-160000-trial-ab12", "playbook": "trial", "state": "running", "alive": True,
        "outage": True, "step": "bench", "step_number": 3, "steps": 7, "waits_for": "",
    },
    "guard": {"lease_s": 754.0, "attended": True},
    "memory": {"total": 755 * GIB, "available": 412 * GIB},
    "cards": [{"total": 96 * GIB, "free": 90 * GIB}, {"total": 32 * GIB, "free": 1 * GIB}],
}  # fmt: skip
BUSY = Known("boxa", NOW - 2, STATE)
IDLE = Known("b", NOW, {
    "baseline": {"word": "serving"}, "run": {"playbook": "trial", "state": "succeeded",
    "decision": "NO-GO", "over": True, "alive": False}, "guard": {}, "memory": {}, "cards": [],
})  # fmt: skip
NEVER = Known("c", trouble="c cannot be reached: Could not resolve hostname c")


@pytest.fixture(autouse=True)
def _place(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The same clock wherever this runs."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def asks(state: dict[str, Any]) -> dict[str, Any]:
    verbs = ["pause", "approve", "reject", "abort", "rollback"]
    waits = {"state": "waiting_approval", "waits_for": "Waiting for you: sure", "verbs": verbs}
    run = {**state["run"], **waits, "status": {"step": "sure"}}
    return {**state, "run": run, "cards": [{"total": None, "free": None}]}


def test_table(snapshot: SnapshotAssertion) -> None:
    guard = {"alarming": True, "words": "guard: acted, RAM below 2.0 GiB", "lease_s": None}
    waiting = Known("d", NOW - 61, {**asks(STATE), "guard": guard})
    jobs = [{"job": "7", "state": "PENDING", "words": "PENDING (Resources)",
             "playbook": "night"}]  # fmt: skip
    queued = replace(IDLE, host="e", state={**IDLE.state, "slurm": jobs})
    lost = replace(BUSY, trouble="boxa cannot be reached: Connection timed out")
    assert lines([BUSY, IDLE, NEVER, waiting, lost, queued], NOW) == snapshot


def test_a_doubtful_decision_is_marked_in_the_table() -> None:
    run = {**IDLE.part("run"), "decision": "HOLD", "mark": "DOUBTFUL"}
    assert " HOLD DOUBTFUL " in lines([replace(IDLE, state={**IDLE.state, "run": run})], NOW)[1]


def test_what_answers_a_run_can_be_pasted() -> None:
    """It was `tell d pause | approve | abort`: pasted, a shell took that for three commands."""
    asked = ["pause", "approve", "reject", "abort", "rollback"]
    assert tell_words("d", asked, "sure") == (
        "omni-console fleet tell d approve --step sure (or reject, abort)"
    )
    failed = ["retry", "skip", "abort", "rollback"]
    assert tell_words("d", failed) == (
        "omni-console fleet tell d retry (or skip --reason WHY, abort)"
    )
    undecided = possible_verbs(RunState.PAUSED, Pause.HOLD)
    assert tell_words("d", undecided, "go") == (
        "omni-console fleet tell d approve --reason WHY --step go (or retry, abort)"
    ), "a gate is overridden with a reason, or not at all"


def test_a_command_that_is_pasted_is_whole_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was cut in the table; of a rollout a line could end behind `approve`, and act at once."""
    step = "check-the-candidate-by-hand"
    command = f"omni-console fleet tell boxa approve --step {step} (or reject, abort)"
    run = {**asks(STATE)["run"], "status": {"step": step}}
    told = lines([replace(BUSY, state={**STATE, "run": run})], NOW, 60)
    assert [len(one) for one in told[:2]] == [60, 60]
    assert told[2].endswith(command)
    monkeypatch.setenv("COLUMNS", "60")
    out = io.StringIO()
    steps = [{"id": step, "title": "Check", "phase": "A", "kind": "approval"}]
    _HostPrinter("boxa", out).take([
        event_of(1, 1.0, "run.created", "", 0, {"run_id": "r", "steps": steps}),
        event_of(2, 2.0, "run.state", "", 0, {"state": "running"}),
        event_of(3, 3.0, "step.state", step, 1, {"state": "running"}),
        event_of(4, 4.0, "run.state", "", 0, {"state": "waiting_approval"}),
    ])  # fmt: skip
    assert f"   {command}" in out.getvalue().splitlines()


def test_a_host_writes_nothing_that_acts_on_a_terminal() -> None:
    evil = "\x1b[2J\u202eevil\nline"
    run = dict.fromkeys(("state", "playbook", "waits_for", "step", "alive"), evil)
    guard, cards = {"lease_s": evil}, [evil, {}]
    state = {"baseline": {"word": evil}, "run": run, "guard": guard, "cards": cards,
             "slurm": [evil, {**dict.fromkeys(("job", "words", "playbook"), evil),
                              "state": "PENDING"}]}  # fmt: skip
    idle = {**state, "run": None}
    told = lines(
        [Known("a", NOW, state), Known("c", NOW, idle), Known("b", NOW, state, trouble=evil)], NOW
    )
    assert not any(sign in line for line in told for sign in ("\x1b", "\u202e", "\n"))


def test_when_a_host_comes_back_by_itself(snapshot: SnapshotAssertion) -> None:
    run = {**STATE["run"], "outage": False}
    states = {
        "never known": NEVER,
        "lease": BUSY,
        "lease is over": replace(BUSY, at=NOW - 3600),
        "lease of another day": replace(BUSY, at=NOW + 90_000),
        "no lease, no outage": Known("a", NOW, {**STATE, "run": run, "guard": {}}),
        "no lease, outage": Known("a", NOW, {**STATE, "guard": {}}),
        "dead, lease": replace(BUSY, state={**STATE, "run": {**STATE["run"], "alive": False}}),
        "dead, no lease": Known(
            "a", NOW, {**STATE, "run": {**STATE["run"], "alive": False}, "guard": {}}
        ),
        "no run": Known("a", NOW, {**STATE, "run": None}),
    }
    assert {name: words_of(one, NOW) for name, one in states.items()} == snapshot


def test_report(snapshot: SnapshotAssertion) -> None:
    go = Decided(
        "boxa", "20250615-160000-trial-ab12", "trial", NOW - 900, "ops", "GO (migrate) OVERRIDDEN",
        "succeeded", 412.0, ("gate go: GO, OVERRIDDEN by ops: known noise", "approve by ops"),
    )  # fmt: skip
    lost = Decided("b|c", "x", trouble="No route to host")
    assert markdown([go, lost]) == snapshot


@pytest.mark.parametrize(
    "word", ["7; touch owned", "$(touch owned)", "`touch owned`", "7 & touch owned"]
)
def test_no_word_of_a_host_is_a_command_to_who_pastes_it(word: str, tmp_path: Path) -> None:
    pasted = [tell_words("d", [word], word), tell_words("d", ["next", word], "s")]
    job = {"job": word, "words": "PENDING", "playbook": "trial"}
    told = waiting(Host("d", "ops@d"), {"slurm": [job]})[0]
    pasted.append("ssh" + told.split("`ssh")[1].removesuffix("` gives it up"))
    for line in pasted:
        # what ssh is given goes to another shell there
        near = 'ssh() { shift; sh -c "scancel() { :; }; $*"; }\nomni-console() { :; }\n'
        words = near + line.replace("(or ", "#")
        subprocess.run(["bash", "-c", words], cwd=tmp_path, check=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("why", "free"), [("NVML gave no answer within 3 s", "unknown"), (NO_LIBRARY, "–"), ("", "–")]
)
def test_a_host_that_cannot_tell_of_its_cards_is_none_without_cards(why: str, free: str) -> None:
    """A driver that hangs, or a card that fell off the bus, looked like a machine without any."""
    told = replace(IDLE, state={**IDLE.state, "cards_why": why})
    assert cells(told, NOW)[HEAD.index("VRAM FREE")] == free
    assert lines([told], NOW)[2:] == ([f"  cards: {why}"] if free == "unknown" else [])


@pytest.mark.parametrize(
    ("state", "words"), [("rolled_back", "rolled back"), ("unreadable: a_b", "unreadable: a_b")]
)
def test_a_state_is_told_in_words(state: str, words: str) -> None:
    told = replace(IDLE, state={"run": {"playbook": "trial", "state": state}})
    assert f"trial {words} " in lines([told], NOW)[1]
    assert f"| {prose(words)} |" in markdown([Decided("a", "r", state=state)])[2]
