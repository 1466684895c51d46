"""What llama-bench prints and what a run before it measured, from the step to the gate."""

from __future__ import annotations

import json

import pytest

from tests.run.e2e.sites import book
from tests.run.world import WorldBase as World

TG = [20.4, 20.5, 20.6, 20.5, 20.5]
ENTRY = {
    "build_commit": "d82b7a7", "build_number": 11549, "model_type": "deepseek2 671B Q3_K",
    "n_prompt": 0, "n_gen": 128, "n_depth": 0, "avg_ts": 20.5, "stddev_ts": 0.07, "samples_ts": TG,
}  # fmt: skip
AGAINST = "against: baseline"
READ = 'id: tg, run: [cat, "{}"], figures: llama-bench'
JUDGE = 'id: go, gate: [{metric: tg.tg_tok_s, go: ">= 20 tok/s", min_samples: 5}]'


def test_llama_bench_is_read_and_judged_by_its_samples(world: World) -> None:
    path = world.write("out.json", json.dumps([ENTRY], indent=2))
    done = world.go(world.write("b.yaml", book(READ.format(path), JUDGE)))
    assert (done.code, done.json["decision"]) == (0, "go"), done
    found = done.json["metrics"]["tg"]
    assert (found["tg_tok_s"]["value"], found["tg_tok_s"]["samples"]) == (20.5, TG)
    assert found["pp_tok_s"]["value"] is None
    view = world.view()
    assert view.benchmarks["tg"]["build"] == "11549-d82b7a7"
    assert "(20.44 to 20.56 tok/s) meets >= 20 tok/s" in view.verdicts[0].criteria[0]["why"]


def test_one_repetition_of_llama_bench_is_too_few_unless_it_is_said_to_do(world: World) -> None:
    path = world.write("out.json", json.dumps([{**ENTRY, "samples_ts": [20.5]}], indent=2))
    for more, decision in (("", "hold"), (", min_samples: 1", "go")):
        judge = f'id: go, gate: [{{metric: tg.tg_tok_s, go: ">= 20 tok/s"{more}}}]'
        done = world.go(world.write("b.yaml", book(READ.format(path), judge)))
        assert done.json["decision"] == decision, done
        (row,) = world.view().verdicts[0].criteria
        assert ("1 valid sample of the 3 needed" in row["why"]) is (decision == "hold")


@pytest.mark.parametrize(
    ("said", "output", "decision"),
    [
        ("omni/ik-llama sm120 12.5GB", "pattern: '([0-9.]+)GB', unit: GB", "no_go"),
        ("omni/ik-llama sm120 9.5GB", "pattern: '([0-9.]+)GB', unit: GB", "go"),
        ("omni/ik-llama sm120 12.5GB", "pattern: '([0-9.]+)GB', unit: B", None),
        ("size 10,5 GB", "pattern: 'size ([0-9.]+)', unit: GB", None),
        ("used: -1", "pattern: 'used: (-?[0-9]+)', unit: GB", "hold"),
    ],
)
def test_an_image_that_is_too_large_is_never_go(
    world: World, said: str, output: str, decision: str | None
) -> None:
    step = f'id: image, run: [echo, "{said}"], outputs: {{size: {{{output}}}}}'
    judge = "id: go, gate: [{metric: image.size, go: '< 10GB'}]"
    done = world.go(world.write("b.yaml", book(step, judge)))
    assert done.json["decision"] == decision, done
    failed = world.at("image")
    assert (failed.cause == "output_invalid") is (decision is None)
    assert decision is not None or failed.detail.startswith("output 'size': 1")


def test_figures_are_the_newest_attempts(world: World) -> None:
    """A first attempt whose output is no result leaves nothing behind for a gate."""
    good = world.write("out.json", json.dumps([ENTRY], indent=2))
    text = f'test -e seen || {{ touch seen; echo "error: out of memory"; exit 0; }}; cat {good}'
    step = f"id: tg, script: {json.dumps(text)}, figures: llama-bench, retry: {{backoff: 10ms}}"
    done = world.go(world.write("b.yaml", book(step, JUDGE)))
    assert (done.code, done.json["decision"]) == (0, "go"), done


@pytest.mark.parametrize("text", ["error: failed to load model", ""])
def test_output_that_is_no_result_fails_the_step_with_its_last_lines(
    world: World, text: str
) -> None:
    path = world.write("out.json", text + "\n")
    done = world.go(world.write("b.yaml", book(READ.format(path), JUDGE)))
    assert (done.code, done.json["decision"]) == (5, None), done
    step = world.at("tg")
    assert step.cause == "output_invalid"
    assert "no result of llama-bench in the output" in step.detail
    assert step.lines == ([text] if text else [])
