"""A tuning step in a whole run: flags that do not fit, a stop in the middle, and going on."""

import json
from typing import Any

import pytest

from console.bench.tune import decision
from console.bench.tune.outcome import Outcome
from console.common import record
from console.journal.events import StepSay
from tests.runner.e2e.sites import book
from tests.runner.world import WorldBase as World

FLAGS = '{"-ngl": "0..40 by 8", "-t": [1, 2]}'
JUDGE = "id: fast, gate: [{metric: tune.best.tok_s, go: '> 0 tok/s'}]"


@pytest.fixture(autouse=True)
def few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """No flag makes the scripted engine faster: more rounds would decide nothing, and how many it
    takes would be chance."""
    monkeypatch.setattr(decision, "MAX_ROUNDS", decision.ROUNDS)


def tune(flags: str = FLAGS, more: str = "", service: str = "cand") -> str:
    asked = f"service: {service}, flags: {flags}, max_tokens: 4, runs: 1{more}"
    return f"id: tune, tune: {{{asked}}}"


def found(world: World) -> Any:
    return world.view().measured["tune"].tune


def fates(world: World) -> dict[str, str]:
    return {row["changes"]: row["fate"] for row in found(world)["points"]}


def stored(world: World) -> list[dict[str, Any]]:
    files = list((world.root / "state/omni-console/tune").glob("*.jsonl"))
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return [line for line in lines if "argv" in line]


def once(world: World) -> list[list[str]]:
    """The command lines that were measured for the first time, in order."""
    kept = [(line["argv"], record.of(Outcome, line["outcome"])) for line in stored(world)]
    return [argv for argv, outcome in kept if outcome.starts <= 1]


def test_the_flags_that_win_are_said_and_the_baseline_comes_back(world: World) -> None:
    done = world.go(world.write("b.yaml", book(tune(), JUDGE)))
    assert (done.code, done.json["decision"]) == (0, "go"), done
    assert world.serves()
    assert not world.listens(world.cand_url)
    seen = fates(world)
    # the scripted card holds 20 layers; what takes more than what did not fit is not started
    assert (seen["-ngl 24"], seen["-ngl 40"]) == ("card", "unfit")
    assert not any(fate == "measured" for words, fate in seen.items() if "-ngl 24" in words)
    assert found(world)["argv"][:2] == world.engine(world.model, world.cand_port)[:2]
    report = world.run.report.read_text()
    assert "Flags of cand" in report
    assert "out of a card's memory" in report
    assert (world.run.path / "report" / "tune-tune.svg").exists()


def test_a_point_that_was_measured_is_not_measured_again(world: World) -> None:
    playbook = world.write("b.yaml", book(tune('{"-t": [2], "-ngl": [24]}')))
    assert world.go(playbook).code == 0
    first = once(world)
    assert len(first) == len(found(world)["points"]) == 3
    assert world.go(playbook).code == 0
    assert once(world) == first
    assert found(world)["before"] == 3


def test_a_search_that_was_killed_goes_on_where_it_stopped(world: World) -> None:
    world.detach(world.write("b.yaml", book(tune())))
    world.until(lambda: len(stored(world)) >= 2, "two points are kept")
    world.kill("runner")
    world.until(lambda: not world.pids("runner"), "the runner is gone")
    kept = len(stored(world))
    assert world.console("resume").code == 0
    assert found(world)["before"] >= kept
    assert world.serves()
    assert len(once(world)) == len(set(map(tuple, once(world))))


def test_fresh_forgets_other_runs_and_keeps_what_this_one_measured(world: World) -> None:
    flags = '{"-t": [2, 3]}'
    assert world.go(world.write("a.yaml", book(tune(flags), name="old"))).code == 0
    old = stored(world)
    world.detach(world.write("b.yaml", book(tune(flags, ", fresh: true"))))
    world.until(lambda: sum(row not in old for row in stored(world)) >= 2, "two are kept anew")
    world.kill("runner")
    world.until(lambda: not world.pids("runner"), "the runner is gone")
    kept = stored(world)
    assert not [row for row in kept if row in old]
    assert world.console("resume").code == 0
    assert found(world)["before"] >= 2
    assert stored(world)[: len(kept)] == kept


def test_an_abort_keeps_the_points_and_gives_no_figure(world: World) -> None:
    world.detach(world.write("b.yaml", book(tune())))
    world.until(lambda: len(stored(world)) >= 1, "one point is kept")
    assert world.tell("abort").code == 0
    view = world.over()
    assert view.metrics["tune"]["best.tok_s"]["value"] is None
    tuning = view.measured["tune"].tune
    assert tuning["points"]
    assert not any(row["best"] for row in tuning["points"])
    assert not tuning["argv"]
    assert "command line of" not in world.run.report.read_text()
    assert world.serves()


def test_points_that_cannot_be_kept_are_measured_all_the_same(world: World) -> None:
    place = world.root / "state/omni-console/tune"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("in the way")
    done = world.go(world.write("b.yaml", book(tune('{"-t": [2]}'))))
    assert done.code == 0, done
    said = [event.body.text for event in world.events() if isinstance(event.body, StepSay)]
    assert any("cannot be kept" in text and str(place) in text for text in said)
    assert found(world)["measured"] == 2


def test_memory_that_cannot_be_read_ends_a_search_in_which_it_decides(world: World) -> None:
    world.go(world.write("b.yaml", book(tune('{"-t": [2, 3, 4]}', ", most_vram: 1GiB"))))
    assert "most_vram is given, but" in world.view().step("tune").detail
    # of four; two were seen once, beside other work
    assert found(world)["starts"] <= 2
    assert world.serves()


def test_points_without_prompts_are_not_known_to_a_search_that_needs_them(world: World) -> None:
    assert world.go(world.write("b.yaml", book(tune('{"-t": [2]}')))).code == 0
    world.go(world.write("b.yaml", book(tune('{"-t": [2]}', ", prefer: request"))))
    assert found(world)["before"] == 0


BENCH = """
case "$*" in *"-ngl 30"*|*"-ngl 40"*) echo "CUDA error: out of memory"; exit 1;; esac
rate=10
case "$*" in *"-t 2"*) rate=20;; esac
case "$*" in *"-ngl 20"*) rate=$((rate + 5));; esac
row='{"n_prompt": %s, "n_gen": %s, "avg_ts": %s, "samples_ts": [%s, %s]}\\n'
printf "$row" 512 0 90 90 90
printf "$row" 0 128 $rate $rate $rate
"""


def bench(flags: str, more: str = "") -> str:
    argv = json.dumps(["sh", "-c", BENCH, "llama-bench"])
    return f"id: tune, tune: {{bench: {argv}, flags: {flags}{more}}}"


def test_llama_bench_is_swept_in_the_baselines_outage(world: World) -> None:
    flags = '{"-t": [1, 2], "-ngl": "0..40 by 10"}'
    judge = "id: fast, gate: [{metric: tune.best.gain, go: '>= 100 %'}]"
    done = world.go(world.write("b.yaml", book(bench(flags), judge)))
    assert (done.code, done.json["decision"]) == (0, "go"), done
    assert found(world)["flags"] == "-t 2 -ngl 20"
    seen = fates(world)
    assert "card" in seen.values()
    assert "-ngl 40" not in seen or seen["-ngl 40"] in ("card", "unfit")
    assert any(row.id.startswith("baseline:stop") for row in world.view().steps)
    assert world.serves()


def test_llama_bench_may_run_beside_the_baseline(world: World) -> None:
    done = world.go(world.write("b.yaml", book(bench('{"-t": [2]}', ", beside: true"))))
    assert done.code == 0, done
    assert not any(row.id.startswith("baseline:stop") for row in world.view().steps)
    assert world.view().metrics["tune"]["best.tok_s"]["value"] == pytest.approx(20.0)


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (tune('{"-t": [1], "--threads": [2]}'), "varied twice"),
        (tune(service="garbage2"), "unknown service"),
        (tune('{"-t": "1..1"}'), "range of 2"),
        (tune('{"-t": ["1..8 by 2"]}'), "a range stands alone"),
        ("id: tune, tune: {flags: {-t: [1]}}", "exactly one of service or bench"),
        (tune(service="baseline"), "no --port"),
        (bench("{-t: [1]}", ", most_ram: 1GiB"), "belong to a service"),
    ],
)
def test_bad_input_starts_nothing(world: World, step: str, words: str) -> None:
    done = world.console("run", str(world.write("b.yaml", book(step))))
    assert done.code == 2
    assert words in done.out + done.err
    assert world.baseline() is not None


def test_the_baselines_search_is_shown_and_agreed_to(world: World) -> None:
    name = str(world.write("b.yaml", book(tune())))
    asked = ("tune", name, "--service", "cand", "--points", "2")
    flags = ("--", "-t", "1,2")
    refused = world.console(*asked, *flags)
    assert refused.code == 2, refused
    assert "--yes" in refused.err
    assert "at most" in refused.out
    assert world.serves()
    assert not world.runs
    done = world.console(*asked, "--yes", *flags)
    assert done.code == 0, done
    assert len(world.runs) == 1
    assert world.serves()
