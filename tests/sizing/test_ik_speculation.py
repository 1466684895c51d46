"""How ik_llama.cpp is told to guess ahead (common/common.cpp of 8337e4cd and of 007d64009^)."""

from dataclasses import replace

import pytest

from console.host.sample import Card, Machine
from console.models.sizing.assess import assess
from console.models.sizing.assessment import Verdict
from console.models.sizing.facts_from_gguf import from_gguf
from console.models.sizing.flags.ik_speculation import SECOND
from console.models.sizing.flags.llama import ik_plan
from console.models.sizing.loader_plan import LlamaPlan, Strategy
from tests.sizing import shapes
from tests.sizing.test_drafting import HEADS

LLAMA = from_gguf(shapes.llama_70b())
ROOMY = Machine(ram_available=768 << 30)
NEW = {"--multi-token-prediction": False, "--draft-max": False}
OLD = {"--multi-token-prediction": True, "--draft-max": True}


def read(words: str, takes: dict[str, bool] | None = None) -> LlamaPlan:
    return ik_plan(["-c", "4096", *words.split()], takes=takes or {})


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("draft-mtp", "expected one of none, draft, dflash"),
        ("mtp:n_max", "n_max is no key=value"),
        ("mtp:tokens=4", "it knows no key tokens"),
        ("mtp:n_max=-1", "expected 0 or more"),
        ("mtp:n_max=all", "expected 0 or more"),
        ("ngram-mod:ngram_size_n=0", "expected 1 or more"),
    ],
)
def test_a_way_that_it_does_not_take_ends_its_start(value: str, words: str) -> None:
    (refused,) = read(f"--spec-type {value}").refused
    assert words in refused


@pytest.mark.parametrize(
    "value", ["ngram_mod:n-max=64,n_min=2,ngram_size_n=8", "suffix:suffix_corpus='a,b=c'", "none"]
)
def test_ways_that_look_into_the_text_before_take_nothing_of_their_own(value: str) -> None:
    plan = read(f"--spec-type {value}")
    assert (plan.refused, plan.uncounted, plan.problems) == ((), (), ())
    assert assess(LLAMA, plan, ROOMY, advised=False).verdict is Verdict.GO


def test_layers_that_guess_ahead_get_a_context_whose_size_nobody_knows() -> None:
    found = assess(LLAMA, read("--spec-type mtp:n_max=4,p_min=0.0"), ROOMY, advised=False)
    assert found.verdict is Verdict.UNKNOWN
    assert f"--spec-type mtp:n_max=4,p_min=0.0: {SECOND}" in found.because


def test_the_switch_of_builds_before_june_2026() -> None:
    """ikawrakow/ik_llama.cpp#1908."""
    line = "-mtp --draft-max 4"
    unsettled = assess(LLAMA, read(line), ROOMY, advised=False).because
    assert "--spec-type mtp" in unsettled
    assert "June 2026" in unsettled
    assert len(read(line, NEW).refused) == 2
    old = read(line, OLD)
    assert old.refused == ()
    assert SECOND in old.uncounted[0]
    assert read("-mtp -no-mtp", {**OLD, "--no-multi-token-prediction": True}).uncounted == ()
    assert read("--draft-max 4", OLD).uncounted == ()  # nothing is there that guesses


def test_copies_of_states_are_named_where_something_guesses_ahead() -> None:
    """`llama_spec_ckpt_init` of its common/speculative.cpp."""
    states = next(facts for facts in HEADS.values() if facts.recurrent is not None)
    looks_back = assess(states, read("--spec-type ngram-mod"), ROOMY, advised=False)
    assert looks_back.verdict is Verdict.UNKNOWN
    assert "copies of states" in looks_back.because
    assert "copies of states" not in assess(states, read(""), ROOMY, advised=False).because


def test_merged_tensors_are_in_no_file_that_could_be_mapped() -> None:
    """`use_mmap_buffer &= !merge_qkv(...)` in its llama-load-tensors.cpp."""
    here = Machine(ram_available=768 << 30, cards=(Card("?", total=24 << 30, free=24 << 30),))
    for words, strategy in (
        ("-mqkv", Strategy.RESIDENT), ("", Strategy.MMAP), ("-mqkv -sm graph", Strategy.MMAP),
    ):  # fmt: skip
        found = assess(LLAMA, read(f"-ngl 10 {words}"), here, advised=False)
        assert found.strategy is strategy, words
    latent = replace(LLAMA, attention=replace(LLAMA.attention, latent=True))
    assert assess(latent, read("-ngl 10 -mqkv"), here, advised=False).strategy is Strategy.MMAP


@pytest.mark.parametrize("spelling", ["--perplexity", "--all-logits", "--all_logits"])
def test_an_option_is_named_as_it_was_written(spelling: str) -> None:
    assert read(spelling).uncounted == (spelling,)


def test_a_short_option_is_named_by_its_own_name() -> None:
    assert read("-muge").uncounted == ("--merge-up-gate-experts",)
