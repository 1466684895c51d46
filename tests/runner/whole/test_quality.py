"""A quality step in a whole run, with a program that behaves as llama-perplexity does: what is
sealed once, what an end with 0 is worth, a gate that cannot decide, and tasks."""

import json
import sys
from pathlib import Path

import pytest

from console.runner.executors.quality import TRIES
from tests.runner.e2e.sites import SIDE, UP, book
from tests.runner.world import WorldBase as World

SAID = Path(__file__).parents[2] / "bench" / "kl_divergence.txt"
TOOL = """
import struct, sys
words = sys.argv[1:]
with open({calls!r}, "a") as log:
    log.write(" ".join(words) + "\\n")
value = dict(zip(words, words[1:]))
sealed, ctx = value["--kl-divergence-base"], int(value["-c"])
with open({calls!r}) as log:
    compared = sum("--kl-divergence " in line for line in log)
if "--kl-divergence" in words and compared <= {loses}:
    print("kl_divergence: 1.05 seconds per pass - ETA ", end="")
elif "--kl-divergence" in words:
    print(open({said!r}, encoding="utf-8").read())
elif {chunks}:
    chunks = min({chunks}, int(value["--chunks"]))
    row = struct.pack("<8sIii", b"_logits_", ctx, 260, chunks)
    open(sealed, "wb").write(row.ljust(20 + 4 * chunks * ctx + 528 * chunks * (ctx - 1 - ctx // 2)))
    print("7.92 seconds per pass - ETA ", end="")  # a container's engine brings this last
else:
    open(sealed, "wb").write(b"_logits_")
    print("perplexity: you need at least 512 tokens to evaluate perplexity")
"""


def step(world: World, *, chunks: int = 4, more: str = "", loses: int = 0) -> str:
    """A quality step whose program is the stand-in, which logs each call. `loses`: how many
    comparisons end before they have printed all."""
    made = TOOL.format(said=str(SAID), chunks=chunks, calls=str(world.root / "calls"), loses=loses)
    tool = world.root / "tool.py"
    if not tool.exists() or tool.read_text() != made:  # another date is another build
        world.write("tool.py", made)
    program = json.dumps([sys.executable, str(tool)])
    asked = f"service: cand, model: {world.model}, base: {world.model}, chunks: 4, ctx: 256"
    return f"id: quality, quality: {{{asked}, program: {program}{more}}}"


def calls(world: World) -> list[str]:
    path = world.root / "calls"
    return path.read_text().splitlines() if path.exists() else []


def sealed(world: World) -> list[str]:
    return sorted(path.suffix for path in (world.root / "cache").rglob("quality/*"))


def test_the_baselines_model_is_read_once_and_the_baseline_comes_back(world: World) -> None:
    judge = "id: judge, gate: [{metric: quality.mean_kld, go: '<= 0.6'}]"
    for first in (True, False):
        done = world.go(world.write("b.yaml", book(step(world), judge)))
        assert (done.code, done.json["decision"]) == (0, "go"), done
        view = world.view()
        assert view.metrics["quality"]["mean_kld"]["value"] == 0.508817
        assert view.measured["quality"].quality["before"] is not first
        assert view.down_s > 0
        assert world.serves()
    assert ["--kl-divergence " in line for line in calls(world)] == [False, True, True]
    assert sealed(world) == [".logits"]
    report = world.run.report.read_text()
    assert "## Quality of cand (`quality`)" in report
    assert "| `mean_kld` | 0.5088 | 0.00889 | 0.4914 to 0.5262 | GO <= 0.6 | 508 |" in report


def test_what_ends_with_0_and_has_sealed_nothing_fails_in_its_own_words(world: World) -> None:
    done = world.go(world.write("b.yaml", book(step(world, chunks=0))))
    assert done.code != 0
    found = world.view().step("quality")
    assert found is not None
    assert found.detail == "perplexity: you need at least 512 tokens to evaluate perplexity"
    assert len(calls(world)) == 1
    assert sealed(world) == []
    assert world.serves()


@pytest.mark.parametrize("loses", [1, TRIES - 1])
def test_an_output_whose_end_was_lost_is_made_again(world: World, loses: int) -> None:
    done = world.go(world.write("b.yaml", book(step(world, loses=loses))))
    assert done.code == 0, done
    assert world.view().metrics["quality"]["mean_kld"]["value"] == 0.508817
    assert ["--kl-divergence " in line for line in calls(world)] == [False, *[True] * (loses + 1)]


def test_an_output_whose_end_is_lost_each_time_is_no_comparison(world: World) -> None:
    done = world.go(world.write("b.yaml", book(step(world, loses=TRIES))))
    assert done.code == 5, done
    assert len(calls(world)) == 1 + TRIES


def test_a_short_text_is_said_and_what_a_killed_runner_left_is_removed(world: World) -> None:
    left = world.root / "cache/omni-console/quality/0123.77.part"
    left.parent.mkdir(parents=True)
    left.write_text("half a file")
    assert world.go(world.write("b.yaml", book(step(world, chunks=2)))).code == 0
    found = world.view().step("quality")
    assert found is not None
    assert found.warned
    assert found.detail.endswith("; the text has only 2 of 4 chunks")
    assert world.view().metrics["quality"]["mean_kld"]["n"] == 2 * 127
    assert sealed(world) == [".logits"]


def test_a_threshold_within_the_interval_is_held(world: World) -> None:
    judge = "id: judge, gate: [{metric: quality.mean_kld, go: '<= 0.51'}], on_hold: rollback"
    done = world.go(world.write("b.yaml", book(step(world), judge)))
    assert done.json["decision"] == "hold", done
    (row,) = world.view().verdicts[0].criteria
    assert "the samples do not decide, 0.4914 to 0.5262 around <= 0.51" in row["why"]


@pytest.mark.parametrize("before", [(UP,), (UP, "id: ready, service: {wait: cand}")])
def test_a_service_that_is_up_is_refused_before_step_1(
    world: World, before: tuple[str, ...]
) -> None:
    """One that was waited for was taken for one that is stopped."""
    done = world.go(world.write("b.yaml", book(*before, step(world))))
    assert done.code == 2
    assert "'cand' is up by then, and llama-perplexity loads the models itself" in done.err
    assert calls(world) == []
    assert world.go(world.write("b.yaml", book(UP, step(world, more=", beside: true")))).code != 2


def test_a_file_that_is_not_there_is_refused_before_step_1(world: World) -> None:
    more = f", text: {world.root}/no.txt"
    done = world.go(world.write("b.yaml", book(step(world, more=more))))
    assert done.code == 2
    assert f"there is no {world.root}/no.txt" in done.err
    assert world.serves()


def test_tasks_are_asked_of_the_service_and_wrong_answers_are_shown(world: World) -> None:
    rows = [
        {"ask": "four", "answer": " 0 1 2 3 ", "max_tokens": 4},
        {"ask": "any", "matches": "^0 1", "max_tokens": 2},
        {"ask": "the capital of <b>France", "answer": "Paris", "max_tokens": 5},
    ]
    tasks = world.write("t.yaml", json.dumps({"schema": "omni.tasks/v1", "tasks": rows}))
    asked = f"id: quality, quality: {{service: side, tasks: {tasks}}}"
    judge = "id: judge, gate: [{metric: quality.correct, go: '>= 50 %'}], on_hold: rollback"
    done = world.go(world.write("b.yaml", book(SIDE, asked, judge)))
    found = world.view().metrics["quality"]["correct"]
    assert (found["value"], found["n"]) == (pytest.approx(2 / 3), 3)
    # two of three say little: 21 % to 94 %
    assert done.json["decision"] == "hold"
    report = world.run.report.read_text()
    assert "| `the capital of <b>France` | `0 1 2 3 4` |" in report
    assert "`four`" not in report
    assert world.serves()


def test_tasks_that_are_no_tasks_are_refused_before_step_1(world: World) -> None:
    bad = {"schema": "omni.tasks/v1", "tasks": [{"ask": "x", "answer": "y", "matches": "z"}]}
    tasks = world.write("t.yaml", json.dumps(bad))
    asked = f"id: quality, quality: {{service: side, tasks: {tasks}}}"
    done = world.go(world.write("b.yaml", book(SIDE, asked)))
    assert done.code == 2
    assert "a task has exactly one of answer or matches" in done.err
