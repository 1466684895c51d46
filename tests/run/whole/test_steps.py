"""What a step does when the world misbehaves: engines, children, secrets, approvals nobody sees."""

from __future__ import annotations

import json
import signal
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from console.host import process
from console.journal.store import Reader
from console.runner.executors import command
from tests.run.e2e.sites import SIDE, UP, book
from tests.run.world import LONGEST_S
from tests.run.world import WorldBase as World

REPR = "import sys; print(repr(sys.argv[1:]))"
SECRET = "hf_Zw9-not-to-be-seen"
GRACE = ((signal.SIGINT, 0.2), (signal.SIGTERM, 0.2), (signal.SIGKILL, 10.0))


def step_of(shown: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(s for s in shown["steps"] if s["id"] == name)
    return found


@pytest.mark.parametrize("headless", [True, False])
def test_an_approval_that_expires_in_an_outage_rolls_back(world: World, headless: bool) -> None:
    ask = "id: ask, approval: {prompt: Go on?, expires: 200ms}"
    path = world.write("b.yaml", book(UP, ask, "id: z, note: reached"))
    if headless:
        assert world.go(path).code == 6
    else:
        world.detach(path)
    view = world.over()
    assert str(view.state) == "rolled_back", world.words
    step = view.step("ask")
    assert step is not None
    assert step.cause == "expired"
    assert world.serves()
    assert not world.listens(world.cand_url)


def test_an_approval_that_expires_while_the_baseline_serves_waits_for_a_person(
    world: World,
) -> None:
    ask = "id: ask, approval: {prompt: Go on?, expires: 200ms}"
    path = world.write("b.yaml", book(SIDE, ask))
    world.detach(path)
    world.state("paused:approval_expired")
    assert world.tell("retry").code == 0
    world.until(lambda: world.at("ask").attempt == 2, "it asks again")
    world.state("paused:approval_expired")
    assert world.tell("abort").code == 0
    assert str(world.over().state) == "rolled_back"
    assert world.go(path).code == 5, "nobody is there, and nothing is down"


def test_a_service_that_ends_right_after_its_start_is_not_waited_for(world: World) -> None:
    done = world.go(world.write("b.yaml", book("id: up, service: {start: crash}")))
    step = step_of(done.json, "up")
    assert (done.code, step["cause"]) == (5, "not_ready"), done
    assert step["lines"][-1] == "last words"
    assert "ended before it was ready" in step["detail"]


def test_garbage_on_the_port_is_not_ready(world: World) -> None:
    done = world.go(world.write("b.yaml", book("id: up, service: {start: garbage}")))
    step = step_of(done.json, "up")
    assert (done.code, step["cause"]) == (5, "not_ready"), done
    assert "\x1b" not in done.out + done.err
    assert not world.listens(world.cand_url), "what was started is stopped at the end"


def test_a_timeout_ends_the_whole_group_however_deaf_it_is(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "GRACE", GRACE)
    script = "trap '' INT TERM; sh -c 'sleep 601 & sleep 602' & touch deaf; "
    tree = f"id: tree, script: {json.dumps(script + 'while :; do sleep 0.1; done')}, timeout: 100h"
    world.detach(world.write("b.yaml", book(tree)))
    world.until((world.root / "deaf").exists, "it is deaf")
    world.machine.passed = 101 * 3600.0
    world.state("paused:step_failed")
    assert world.at("tree").cause == "timeout"
    assert process.by_cookie(world.run.id) == [], "a grandchild outlived the timeout"
    with closing(Reader(world.run.journal)) as journal:
        said = [event.data.get("text") for event in journal.since(0) if event.step == "tree"]
    stages = [f"stopping: {name}" for name in ("SIGINT", "SIGTERM", "SIGKILL")]
    assert [text for text in said if text in stages] == stages, "each rung of the stop is visible"


def test_argv_arrives_byte_for_byte(world: World) -> None:
    argvs = [
        ["$(touch boom)", "`id`", "a b", "", "*", "~", "$HOME", ";", "&&", ">x", "\\", "'", '"'],
        ["-rf", "--help", "--", "line one\nline two", "tab\there", "ünïcödé ✓", "%s%n", "{}"],
        ["$" + "{{ inputs.text }}", "--flag=$" + "{{ inputs.text }}"],
    ]
    text = "--x; $(id) `id` 'q' \"q\"\nnext  line"
    steps = [
        f"id: say{number}, run: {json.dumps([sys.executable, '-c', REPR, *argv])}"
        for number, argv in enumerate(argvs)
    ]
    path = world.write("b.yaml", book(*steps, inputs="text: {type: string, default: x}"))
    done = world.go(path, "--input", f"text={text}")
    assert done.code == 0, done
    for number, argv in enumerate(argvs):
        wanted = [a.replace("$" + "{{ inputs.text }}", text) for a in argv]
        assert world.run.attempt_log(f"say{number}", 1).read_text() == repr(wanted) + "\n"
    assert not (world.root / "boom").exists()


def test_inputs_reach_a_script_through_the_environment_alone(world: World) -> None:
    text = "$(touch boom); `touch boom`\n\"'"
    script = "id: say, script: 'printf %s \"$OMNI_INPUT_TEXT\" > got'"
    path = world.write("b.yaml", book(script, inputs="text: {type: string, default: x}"))
    assert world.go(path, "--input", f"text={text}").code == 0
    assert (world.root / "got").read_text() == text
    assert not (world.root / "boom").exists()
    inside = "id: say, script: 'echo $" + "{{ inputs.text }}'"
    refused = world.go(
        world.write("c.yaml", book(inside, inputs="text: {type: string, default: x}"))
    )
    assert refused.code == 2, refused


def told(path: Path, words: list[bytes]) -> bool:
    """Whether a file holds one of them; one that is gone holds nothing."""
    try:
        return path.is_file() and any(word in path.read_bytes() for word in words)
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize(("secret", "code"), [(SECRET, 0), (f"{SECRET}\nsecond-{SECRET[::-1]}", 3)])
def test_a_secret_is_nowhere(world: World, secret: str, code: int) -> None:
    go = world.root / "go"
    script = (
        'echo token=$TOKEN; printf \'%s\' "$TOKEN" >&2; echo; echo "$TOKEN$TOKEN"; '
        f"until test -e {go}; do sleep 0.02; done; exit {code}"
    )
    step = f"id: use, script: {json.dumps(script)}, env: {{TOKEN: '$" + "{{ inputs.token }}'}"
    text = book(step, inputs="token: {type: secret, from: {env: OMNI_TEST_TOKEN}}")
    follower = world.start(
        "run", str(world.write("b.yaml", text)), "--json", OMNI_TEST_TOKEN=secret
    )
    world.until(lambda: world.runs, "the run begins")
    world.step("use", "running")
    world.until(lambda: "token=" in world.console("logs", "use").out, "the step has said it")
    words = [word.encode() for word in secret.split("\n")]
    for pid, _ in world.mine():
        assert not told(Path(f"/proc/{pid}/cmdline"), words)
    go.touch()
    out, err = follower.communicate(timeout=LONGEST_S)
    assert follower.returncode == (0 if code == 0 else 5), err
    assert not any(word.decode() in out + err for word in words)
    world.over()
    assert not [path for path in world.root.rglob("*") if told(path, words)]
    assert "token=*****" in world.console("logs", "use").out


def test_a_secret_that_is_not_there_fails_the_step_and_not_later(world: World) -> None:
    step = "id: use, script: 'echo hi', env: {TOKEN: '$" + "{{ inputs.token }}'}"
    text = book(step, inputs="token: {type: secret, from: {env: OMNI_TEST_TOKEN}}")
    done = world.go(world.write("b.yaml", text))
    assert (done.code, step_of(done.json, "use")["cause"]) == (5, "precondition"), done
    refused = world.go(world.write("b.yaml", text), "--input", f"token={SECRET}")
    assert refused.code == 2
    assert SECRET not in refused.out + refused.err
