"""What a verdict says, and how often: equal cards, devices that are left out, what was given."""

import pytest

from console.checks.preflight.architecture.names import NO_BUILD, not_known
from console.host.sample import Card, Machine
from console.models.sizing.assess import assess
from console.models.sizing.assessment import Verdict
from console.models.sizing.facts_from_gguf import from_gguf
from console.models.sizing.flags.llama import ik_plan, llama_plan
from console.models.sizing.flags.vllm import LONG, vllm_plan
from console.models.sizing.serving.parallel import too_long
from tests.sizing import shapes
from tests.sizing.test_backends import PLAIN
from tests.sizing.test_checkpoints import cards

GIB = 1 << 30
LLAMA = from_gguf(shapes.llama_70b())


@pytest.mark.parametrize(
    ("count", "said"),
    [(1, "x has"), (2, "x #0 and #1 each have"), (8, "x #0 to #7 each have")],
)
def test_equal_cards_that_lack_the_same_are_said_once(count: int, said: str) -> None:
    """The sentence stood eight times in a verdict."""
    here = tuple(Card("x", total=GIB, free=GIB, compute=(9, 0)) for _ in range(count))
    plan = vllm_plan(["--max-model-len", "8192", "-tp", str(count)])
    found = assess(PLAIN, plan, Machine(cards=here, ram_available=512 * GIB))
    assert found.verdict is Verdict.NO_GO
    assert found.because.count(" short") == 1
    assert said in found.because


def test_cards_that_differ_are_said_each() -> None:
    here = tuple(Card("x", total=size * GIB, free=size * GIB) for size in (8, 4, 8))
    plan = llama_plan(["-ngl", "99", "-c", "4096", "-np", "1", "-fit", "off"])
    found = assess(LLAMA, plan, Machine(cards=here, ram_available=512 * GIB), advised=False)
    assert found.because.count(" short") > 1


def test_devices_that_are_left_out_are_the_reason() -> None:
    """It was "takes 2 devices or more, and this machine has 2 cards"."""
    plan = ik_plan(["-sm", "graph", "-ngl", "99", "-dev", "CUDA0", "-c", "4096"])
    found = assess(LLAMA, plan, Machine(cards=cards(2, 80), ram_available=512 * GIB))
    assert "takes 2 devices or more, and --device leaves it 1 of 2" in found.because


def test_a_variable_that_is_set_is_not_asked_for() -> None:
    own = PLAIN.context_length or 0
    plan = vllm_plan(["--max-model-len", str(2 * own)], {LONG: "1"})
    assert plan.longer
    assert not vllm_plan([], {LONG: "0"}).longer
    [told] = too_long(PLAIN, plan.ctx, f"{LONG}=1", given=plan.longer)
    assert "needs" not in told
    assert "lets it start" in told


def test_a_program_that_is_no_build_is_not_named_as_one() -> None:
    """It was "whether true (sha256 …) knows tokenizer 'gpt2'"."""
    line = f"{NO_BUILD}; /bin/true is no llama.cpp program"
    said = not_known("true (sha256 d8a7b796dc5a)", "tokenizer 'gpt2'", line)
    assert said.startswith(
        "whether a build knows tokenizer 'gpt2' is not known: no llama.cpp build"
    )
    assert not_known("b1", "this", "") == "whether b1 knows this is not known"
