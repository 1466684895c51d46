"""Words of a command line that belong to no option: engines refuse them, and nobody else knows."""

from __future__ import annotations

import shlex

import pytest

from console.models.sizing.flags.llama import ik_plan, llama_plan
from console.models.sizing.flags.sglang import sglang_plan
from console.models.sizing.flags.vllm import vllm_plan


@pytest.mark.parametrize(
    "line",
    [
        "-ts 3 1", "-ngl 99 99", "-fa on off", "-c 4096 --jinja true", "--metrics 1",
        "--no-warmup yes", "-c 4096 extra", "-c 4096 -", "-c 4096 ''", "tiny.gguf -c 2048",
        "\N{EM DASH}ctx-size 4096", "\N{EN DASH}c 4096", "-np 2 -1", "/x/llama-server tiny -c 1",
        "numactl -N 0 /x/llama-server -c 1 --jinja true",
    ],
)  # fmt: skip
def test_llama_server_refuses_words_beside_its_options(line: str) -> None:
    words = shlex.split(line)
    assert "a word of no option (invalid argument)" in " ".join(llama_plan(words).refused)
    assert "a word of no option (unknown argument)" in " ".join(ik_plan(words).refused)


@pytest.mark.parametrize(
    "line",
    [
        "-c 4096 $EXTRA", "-c 4096 ${EXTRA}", "-c 4096 2>&1", "./start.sh -c 4096 true",
        "sh -c 'exec llama-server -c 1 --jinja true'", "--lora-scaled a.gguf 0.5",
    ],
)  # fmt: skip
def test_what_a_shell_a_wrapper_or_another_build_may_take_is_named_and_not_refused(
    line: str,
) -> None:
    plan = llama_plan(shlex.split(line))
    assert plan.refused == ()
    assert "a word of no option" in " ".join(plan.problems)


@pytest.mark.parametrize(
    "line",
    [
        "llama-server -c 4096", "numactl -N 0 /x/llama-server -c 1", "llama serve -c 4096",
        "./start.sh now -c 4096", "-ts 3,1 --jinja", "sh -c 'exec llama-server -c 1'",
        "env A=1 nohup ./server -c 1", "-fa -c 1", "-fa on -c 1",
    ],
)  # fmt: skip
def test_programs_wrappers_and_values_are_no_such_words(line: str) -> None:
    plan = llama_plan(shlex.split(line))
    assert (plan.refused, plan.problems) == ((), ())


def test_words_behind_an_unknown_option_may_be_its_values() -> None:
    plan = llama_plan(["--bogus", "4", "5", "-c", "4096"])
    assert plan.refused == ()
    assert len(plan.problems) == 1


def test_a_secret_beside_its_option_is_not_shown() -> None:
    assert "hunter2" not in " ".join(llama_plan(["--api-key", "a", "hunter2"]).refused)


@pytest.mark.parametrize(
    ("line", "refused", "named"),
    [
        ("vllm serve M/x --enable-prefix-caching true", True, False),
        ("--enforce-eager true", True, False),
        ("vllm serve M/x --enforce-eager N/y", True, False),
        ("--trust-remote-code extra", False, True),
        ("--enable-chunked-prefill false", False, True),
        ("vllm serve --port 8000 M/x", False, False),
        ("vllm serve M --port 8000 --served-model-name a b", False, False),
        ("M/x --port 8000", False, False),
        ("python3 -m vllm.entrypoints.openai.api_server --model x", False, False),
    ],
)
def test_vllm_takes_its_model_and_no_other_word(line: str, refused: bool, named: bool) -> None:
    plan = vllm_plan(shlex.split(line))
    assert (bool(plan.refused), bool(plan.problems)) == (refused, named)


@pytest.mark.parametrize(
    ("line", "refused", "named"),
    [
        ("--enable-metrics true", True, False),
        ("python -m sglang.launch_server --model-path x foo", True, False),
        ("python -m sglang.launch_server --model-path x --port 1", False, False),
        ("sglang serve M --port 1", False, False),
        ("sglang serve M N --port 1", False, True),
    ],
)
def test_sglang_takes_no_words(line: str, refused: bool, named: bool) -> None:
    plan = sglang_plan(shlex.split(line))
    assert (bool(plan.refused), bool(plan.problems)) == (refused, named)


@pytest.mark.parametrize("value", ["all", "auto", "99", "-1"])
def test_layers_of_a_draft_model_are_a_number_or_a_word(value: str) -> None:
    assert llama_plan(["--spec-draft-ngl", value]).refused == ()
    assert llama_plan(["-ngld", "many"]).refused


@pytest.mark.parametrize(
    ("value", "refused", "named"),
    [
        ("3;1", False, True), ("3x,1", False, True), ("75,", False, False), ("3,1", False, False),
        ("3/1/", False, False), ("x;1", True, False), (",1", True, False), ("a,b", True, False),
    ],
)  # fmt: skip
def test_proportions_are_read_as_far_as_their_numbers_go(
    value: str, refused: bool, named: bool
) -> None:
    plan = llama_plan(["-ts", value])
    assert (bool(plan.refused), bool(plan.problems)) == (refused, named)
