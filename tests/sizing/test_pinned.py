"""What is pinned in RAM takes up to twice its size, as torch rounds every block."""

import pytest

from console.host.sample import Card, Machine
from console.models.sizing.assess import assess
from console.models.sizing.assessment import GIB, HOST, Verdict
from console.models.sizing.facts_from_config import from_config
from console.models.sizing.flags.sglang import sglang_plan
from console.models.sizing.flags.vllm import vllm_plan
from tests.sizing.test_backends import CONFIG

FACTS = from_config({**CONFIG, "num_hidden_layers": 40}, 20 * GIB)
CARDS = (Card("A", total=40 * GIB, free=40 * GIB, compute=(9, 0)),)
LAST = "vllm/vllm-openai:v0.33.0"


@pytest.mark.parametrize(
    ("ram", "verdict"),
    [(15, Verdict.NO_GO), (16, Verdict.UNKNOWN), (24, Verdict.UNKNOWN), (40, Verdict.GO)],
)
def test_between_the_bounds_of_what_vllm_pins_is_unknown(ram: int, verdict: Verdict) -> None:
    """vllm#56410: 1.86 and not 1 of --cpu-offload-gb, for QwQ-32B-AWQ; the server and its rank take
    6 GiB beside the 10."""
    plan = vllm_plan(["--cpu-offload-gb", "10"], image=LAST)
    machine = Machine(cards=CARDS, ram_available=int(ram * GIB), swap_free=64 * GIB)
    assessment = assess(FACTS, plan, machine)
    assert assessment.verdict is verdict, assessment.because
    assert (verdict is Verdict.UNKNOWN) is ("pinned tensor is rounded" in assessment.because)
    if verdict is Verdict.NO_GO:
        assert "needs at least 16.0 GiB: 1.0 GiB short" in assessment.because


def test_nothing_of_it_counts_without_the_option() -> None:
    machine = Machine(cards=CARDS, ram_available=16 * GIB)
    assessment = assess(FACTS, vllm_plan([], image=LAST), machine)
    assert assessment.spread(HOST) == 0


def test_sglang_pins_the_same_way() -> None:
    """srt/utils/offloader.py of 0.5.23 pins each parameter; experts stay where they are (F-020)."""
    need = {}
    for words in ("", "--cpu-offload-gb 4", "--cpu-offload-gb 400"):
        assessment = assess(FACTS, sglang_plan(words.split()), Machine(cards=CARDS))
        need[words] = assessment.spread(HOST) / GIB
    assert list(need.values()) == pytest.approx([0, 4, 20], abs=0.1)
