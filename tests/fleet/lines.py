"""The fleet over real ssh whose line is cut at random moments, and a rollback with and without a
line. `make lines` runs it, and no other target: how often a line breaks depends on the machine."""

import json
import random
from typing import Any

import pytest

from console.fleet.inventory import Host
from console.fleet.line import Line, control_dir
from console.fleet.protocol import BridgeError, LineLost
from console.journal.run_files import read_view
from tests.fleet.hosts import Operator
from tests.runner.e2e.sites import UP, book
from tests.waiting import until

ROUNDS, CUTS_EACH = 5, 7
APPROVALS, TRIES = 7, 3
SEED = 20
START = {"after": '"ask":"start"'}


def cuts(dice: random.Random, count: int, most: int) -> list[dict[str, Any]]:
    """Breaks of the line at random bytes; every third takes the shared connection along."""
    return [{"bytes": int(most * dice.random() ** 3), "all": n % 3 == 2} for n in range(count)]


def plan(operator: Operator, found: list[dict[str, Any]]) -> None:
    operator.cuts.write_text("".join(f"{json.dumps(one)}\n" for one in found))


def left(operator: Operator) -> int:
    return len(operator.cuts.read_text().splitlines())


@pytest.mark.parametrize("operator", [("a",)], indirect=True)
def test_no_run_is_doubled_or_lost_at_whatever_byte_the_line_breaks(operator: Operator) -> None:
    dice, world = random.Random(SEED), operator.boxes["a"].world
    trial = operator.write("trial.yaml", book("id: short, run: [sleep, '0.3']"))
    made = 0
    for number in range(ROUNDS):
        # while the start is on its way, each time, and at random bytes before and after it
        found = [*cuts(dice, CUTS_EACH, 4000), {**START, "all": number % 2 == 0}]
        dice.shuffle(found)
        plan(operator, found)
        child = operator.start("run", trial, "--on", "a", "--yes")
        if number % 3 == 2:  # the command itself dies too, and is typed again
            until(lambda: left(operator) < CUTS_EACH - 2, "the line broke")
            child.kill()
            child.communicate()
            child = operator.start("run", trial, "--on", "a", "--yes")
        said, _ = child.communicate(timeout=200)
        assert child.returncode == 0, said
        assert len(world.runs) == number + 1, said
        made += len(found) - left(operator)
    assert len({(run.path / "request").read_text() for run in world.runs}) == ROUNDS
    assert {str(read_view(run).state) for run in world.runs} == {"succeeded"}
    assert made > ROUNDS, "the line broke often"
    assert world.serves()


@pytest.mark.parametrize("operator", [("a",)], indirect=True)
def test_no_verb_reaches_a_later_question_at_whatever_byte_the_line_breaks(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice, world = random.Random(SEED), operator.boxes["a"].world
    asks = [f"id: sure{n}, approval: {{prompt: Sure {n}?}}" for n in range(APPROVALS)]
    run = world.detach(world.write("ask.yaml", book(*asks)))
    for name in ("XDG_RUNTIME_DIR", "PATH"):
        monkeypatch.setenv(name, operator.env[name])
    line = Line(Host("a", "a", str(operator.boxes["a"].command)), control_dir())

    def asking(step: str) -> dict[str, Any] | None:
        now = world.status()
        return now if (now.get("step"), now.get("state")) == (step, "waiting_approval") else None

    for number in range(APPROVALS):
        seen = world.until(lambda step=f"sure{number}": asking(step), "the run asks")  # type: ignore[misc]
        plan(operator, cuts(dice, TRIES - 1, 900))
        answers = []
        for _ in range(TRIES):  # the same key, pressed again and again
            try:
                line.act("tell", run=run.id, verb="approve", seen=seen)
                answers.append("accepted")
            except LineLost:
                answers.append("lost")
            except BridgeError as error:
                answers.append(error.code)
        assert set(answers) <= {"accepted", "lost", "moved_on", "refused", "no_run", "failed"}
        assert answers.count("accepted") <= 1
    line.close()
    view = world.over()
    approved = [event.step for event in world.events() if event.kind == "verb"]
    assert approved == [f"sure{n}" for n in range(APPROVALS)], view.verbs


@pytest.mark.parametrize("operator", [("a", "b")], indirect=True)
def test_a_rollback_needs_a_line_and_is_never_queued(operator: Operator) -> None:
    long = operator.write("long.yaml", book(UP, "id: long, run: [sleep, '600']"))
    child = operator.start("run", long, "--on", "a", "--yes", "--lease", "10m")
    world = operator.boxes["a"].world
    until(lambda: bool(world.runs), "a run begins")
    world.step("long", "running")

    def known() -> dict[str, Any]:
        state: dict[str, Any] = operator.fleet("--json").json["hosts"][0]["state"]
        return state if state["guard"]["lease_s"] is not None else {}

    # the sentinel tells of the lease a moment after the outage has begun
    state = until(known, "its lease is told")
    assert state["baseline"]["word"] == "down"
    assert 500 < state["guard"]["lease_s"] <= 600
    ssh = operator.root / "bin/ssh"
    sound = ssh.read_text()
    ssh.write_text("#!/bin/sh\necho 'ssh: connect to host a: No route to host' >&2\nexit 255\n")
    lost = operator.fleet("rollback", "a", "--json")
    assert (lost.code, lost.json["hosts"][0]["reached"]) == (7, False), lost
    assert "comes back at" in lost.err
    assert world.view().state == "running", "it was not asked, and nothing waits for it"
    table = operator.fleet()
    ssh.write_text(sound)
    assert (table.code, "unknown since" in table.out, "down ?" in table.out) == (4, True, True)
    back = operator.fleet("rollback", "a", "--json")
    assert (back.code, back.json["hosts"][0]["results"][0]["serving"]) == (0, True), back
    said, _ = child.communicate(timeout=120)
    assert child.returncode == 6, said
    assert world.serves()
    assert json.loads(operator.fleet("--json").out)["hosts"][0]["answered"]
