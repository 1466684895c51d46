"""A bisect by whole runs: what each end of a run says of its version, and going on after a kill."""

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from console.journal.run_files import view_of
from console.runner.bisect import record as records
from console.runner.bisect.record import Record
from tests.runner.e2e.sites import UP, book
from tests.runner.whole.world import ScriptedWorld
from tests.runner.world import Outcome
from tests.runner.world import WorldBase as World

VERSIONS = tuple(f"v{number}" for number in range(1, 10))
SAY = 'id: say, script: "{text}", outputs: {{rate: {{pattern: "rate: ([0-9.]+)", unit: tok/s}}}}'
RATES = "case $OMNI_INPUT_V in {cases} *) echo rate: 20;; esac"
SLOW = "v7) echo rate: 5;; v8) echo rate: 5;; v9) echo rate: 5;;"
GATE = "id: go, gate: [{metric: say.rate, go: '>= 10 tok/s'}], on_no_go: rollback"
INPUT = "v: {type: string, default: none}"
Json = dict[str, Any]


def playbook(world: World, cases: str = SLOW, *more: str, gate: str = GATE) -> Path:
    """A playbook that takes the baseline down and says a rate that depends on the version."""
    text = RATES.format(cases=cases)
    return world.write("b.yaml", book(UP, SAY.format(text=text), gate, *more, inputs=INPUT))


def words(path: Path, *more: str, good: str = "v1", bad: str = "v9") -> tuple[str, ...]:
    ends = ("--good", good, "--bad", bad, "--list", ",".join(VERSIONS))
    return "bisect", str(path), *ends, "--over", "v", "--json", "--yes", *more


def tried(said: Json) -> dict[str, str]:
    return {one["version"]: one["word"] for one in said["tries"]}


def test_the_first_bad_one_is_found_and_the_baseline_serves(world: World) -> None:
    done = world.console(*words(playbook(world)))
    assert done.code == 0, done
    said = done.json
    assert (said["first_bad"], said["last_good"], said["runs"]) == ("v7", "v6", 3)
    assert tried(said) == {"v5": "good", "v7": "bad", "v6": "good"}
    assert said["tries"][1]["figures"] == {"say.rate": "5 tok/s"}
    assert {one["run"] for one in said["tries"]} == {run.id for run in world.runs}
    assert all(not view_of(run)[0].outage and view_of(run)[0].restored_s for run in world.runs)
    assert world.serves()
    report = Path(said["report"]).read_text()
    assert "first bad: v7 (3 runs); last good: v6" in report
    assert all(one["run"] in report for one in said["tries"])


@pytest.mark.full
def test_the_same_words_start_nothing_once_it_is_found(world: World) -> None:
    asked = words(playbook(world))
    first = world.console(*asked).json
    again = world.console(*asked)
    assert (again.code, again.json["tries"]) == (0, first["tries"])
    assert len(world.runs) == 3
    listed = world.console("bisect", "--status", "--json").json["bisects"]
    assert [one["first_bad"] for one in listed] == ["v7"]
    assert world.console(*asked, "--fresh").code == 0
    assert len(world.runs) == 6


def test_what_gives_no_verdict_is_skipped_with_its_reason(world: World) -> None:
    cases = f"v5) echo v5 is broken; exit 3;; v4) echo rate: 9.5;; {SLOW}"
    gate = GATE.replace("'>= 10 tok/s'", "'>= 10 tok/s', no_go: '< 9 tok/s'")
    done = world.console(*words(playbook(world, cases, gate=gate)))
    assert done.code == 0, done
    said = done.json
    assert (said["first_bad"], said["skipped"]) == ("v7", 2)
    assert tried(said) == {"v5": "skip", "v4": "skip", "v6": "good", "v7": "bad"}
    why = {one["version"]: one["why"] for one in said["tries"]}
    assert "exit_code" in why["v5"]
    assert why["v4"].startswith("HOLD")


def test_a_port_that_is_taken_says_nothing_of_a_version(world: World) -> None:
    """A step that looks at the machine says NO-GO too: only a gate's is the version's fault."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        look = f"id: look, host: {{ports: [{port}]}}, on_no_go: stop"
        text = RATES.format(cases=SLOW)
        path = world.write("b.yaml", book(look, UP, SAY.format(text=text), GATE, inputs=INPUT))
        done = world.console(*words(path))
    said = done.json
    assert said["first_bad"] is None, done
    assert set(tried(said).values()) == {"skip"}
    assert all("no gate decided" in one["why"] for one in said["tries"])


def test_only_skipped_ones_left_is_no_answer_until_they_are_tried_again(world: World) -> None:
    mark = world.root / "mended"
    path = playbook(world, f"v6) test -e {mark} || exit 3; echo rate: 20;; {SLOW}")
    asked = words(path, good="v5", bad="v7")
    done = world.console(*asked)
    assert done.code == 4, done
    assert (done.json["first_bad"], done.json["suspects"]) == (None, ["v6", "v7"])
    mark.touch()
    assert world.console(*asked).code == 4
    again = world.console(*asked, "--again")
    assert (again.code, again.json["first_bad"], len(world.runs)) == (0, "v7", 2), again


@pytest.mark.full
def test_an_end_that_is_not_what_it_was_said_to_be_ends_it(world: World) -> None:
    done = world.console(*words(playbook(world), "--verify", good="v8"))
    assert done.code == 5, done
    assert tried(done.json) == {"v8": "bad"}
    done = world.console(*words(playbook(world), "--verify", good="v6", bad="v7"))
    assert (done.code, done.json["first_bad"], done.json["runs"]) == (0, "v7", 2)


def test_a_rollback_that_failed_stops_it_at_once(world: ScriptedWorld) -> None:
    world.machine.answers[world.base_port] = 0
    path = playbook(world)
    done = world.console(*words(path))
    assert (done.code, len(world.runs)) == (7, 1), done
    assert str(world.view().state) == "rollback_failed"
    again = world.console(*words(path))
    assert again.code != 0
    assert len(world.runs) == 1, "no run begins while the baseline does not serve"
    world.machine.answers.clear()
    assert world.console("rollback").code == 0
    world.over()
    mended = world.console(*words(path))
    assert mended.code == 0, mended.json["tries"]
    assert mended.json["first_bad"] == "v7"
    assert tried(mended.json)["v5"] == "skip", "its run was not repeated"


@pytest.mark.full
def test_a_run_that_a_person_ends_stops_it_and_counts_for_nothing(world: World) -> None:
    mark = world.root / "once"
    wait = f"v5) test -e {mark} || (touch {mark}; sleep 1000); echo rate: 20;; {SLOW}"
    path = playbook(world, wait)
    running = world.start(*words(path))
    world.until(mark.exists, "the version is tried")
    assert world.tell("abort").code == 0
    running.communicate(timeout=200)
    assert running.returncode == 5
    assert world.serves()
    done = world.console(*words(path))
    assert (done.code, tried(done.json)["v5"]) == (0, "good")


class Killed(BaseException):
    pass


def killed_at(save: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """The process ends right before a record's save with this number, and writes nothing more."""
    real, count = Record.save, [0]

    def dying(self: Record) -> None:
        count[0] += 1
        if count[0] >= save:
            raise Killed
        real(self)

    monkeypatch.setattr(Record, "save", dying)
    return lambda: count[0]


@pytest.mark.parametrize(
    "save", [4, *(pytest.param(save, marks=pytest.mark.full) for save in (1, 2, 3, 5, 8, 9))]
)
def test_killed_at_any_save_it_goes_on_and_tries_nothing_twice(
    world: World, save: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = words(playbook(world))
    with pytest.MonkeyPatch.context() as patch:
        killed_at(save, patch)
        with pytest.raises(Killed):
            world.console(*asked)
    done = world.console(*asked)
    assert done.code == 0, done
    said = done.json
    assert (said["first_bad"], said["last_good"]) == ("v7", "v6")
    assert len(said["tries"]) == len(tried(said)) == 3
    assert len(world.runs) == 3, "no version has a second run"
    assert world.serves()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (["--over", "w"], "unknown input"),
        (["--input", "v=v3"], "is given"),
        (["--git", "."], "exactly one"),
        (["--good", "v0"], "not in the list"),
    ],
)
def test_bad_words_start_nothing(world: World, change: list[str], said: str) -> None:
    done = world.console(*words(playbook(world)), *change)
    assert (done.code, world.runs) == (2, [])
    assert said in done.err


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([UP], "no gate"),
        ([GATE.replace("say.", "up."), "id: ask, approval: {prompt: go on?}"], "a person"),
    ],
)
def test_a_playbook_that_could_give_no_verdict_starts_nothing(
    world: World, steps: list[str], said: str
) -> None:
    say = SAY.format(text="echo rate: 5").replace("id: say", "id: up")
    given = [say, *steps] if len(steps) > 1 else steps
    path = world.write("b.yaml", book(*given, inputs=INPUT))
    asked = [word for word in words(path) if word != "--yes"]
    done: Outcome = world.console(*asked)
    assert (done.code, world.runs) == (2, []), done
    assert said in done.err
    assert not records.kept()


BENCH = "id: say, benchmark: {service: cand, runs: 3}"
TOK_S = GATE.replace("say.rate", "say.decode_tok_s")


def test_an_input_that_nothing_uses_starts_nothing(world: World) -> None:
    """Every run would be of one version, and its verdict would be said of all."""
    path = world.write("b.yaml", book(UP, BENCH, TOK_S, inputs=INPUT))
    done = world.console(*words(path))
    assert (done.code, world.runs) == (2, []), done
    assert "nothing in playbook trial uses input v" in done.err
    assert not records.kept()


def test_an_input_that_only_a_program_could_use_is_told(world: World) -> None:
    """A program of a step may read every input from its environment."""
    warning = "WARNING: nothing in the playbook names input v"
    asked = [word for word in words(playbook(world)) if word != "--yes"]
    assert warning not in world.console(*asked).err
    say = SAY.format(text="sh ./rate").replace("id: say", "id: up")
    world.write("b.yaml", book(say, GATE.replace("say.", "up."), inputs=INPUT))
    done = world.console(*asked)
    assert warning in done.err
    assert "OMNI_INPUT_V" in done.err
    assert world.runs == []


@pytest.mark.full
def test_a_run_whose_runner_died_is_resumed(world: World) -> None:
    mark = world.root / "once"
    wait = f"v5) test -e {mark} || (touch {mark}; sleep 1000); echo rate: 20;; {SLOW}"
    step = SAY.format(text=RATES.format(cases=wait)) + ", idempotent: true"
    path = world.write("b.yaml", book(UP, step, GATE, inputs=INPUT))
    running = world.start(*words(path))
    world.until(mark.exists, "the version is tried")
    world.kill("runner")
    running.communicate(timeout=200)
    assert running.returncode == 0, running.communicate(timeout=1)
    assert len(world.runs) == 3
    assert list(tried(world.console(*words(path)).json).values()) == [
        "good", "bad", "good",
    ]  # fmt: skip
    assert world.serves()
