"""What SGLang allocates beside its static part, by public reports of what ran out of memory."""

from dataclasses import replace
from typing import Any

import pytest

from console.host.sample import Card, Machine
from console.models.sizing.assess import assess
from console.models.sizing.assessment import Assessment, Verdict
from console.models.sizing.facts_from_config import from_config
from console.models.sizing.flags.sglang import sglang_plan
from console.models.sizing.serving.tables import tables_of
from tests.sizing.test_checkpoints import cards, facts
from tests.sizing.test_public_logs import LOGS, machine
from tests.sizing.test_states import facts as gated

GIB = 1 << 30
SCOUT = next(row for row in LOGS if row["source"] == "sgl-project/sglang#5755")
ONE_MILLION: dict[str, Any] = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "torch_dtype": "bfloat16",
    "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
    "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064,
    "max_position_embeddings": 1010000,
}  # fmt: skip
"""Qwen2.5-7B-Instruct-1M."""
PLENTY = 1 << 26
LLAMA = facts("L31-8B")
A100, H100, B200 = (Card("x", total=80 * GIB, compute=(kind, 0)) for kind in (8, 9, 10))


def judged(row: dict[str, Any], words: str) -> Assessment:
    known = from_config(row["config"], int(row["weight_bytes"]))
    return assess(known, sglang_plan(words.split()), machine(row))


def test_the_table_of_requests_is_the_one_that_was_not_to_be_had() -> None:
    """sglang#5755: Llama-4-Scout on 8 H100, "Tried to allocate 80.04 GiB"."""
    found = judged(SCOUT, "--trust-remote-code --tp 8 --disable-cuda-graph")
    assert found.verdict is Verdict.NO_GO
    assert "2,048 requests x 10,485,760 tokens (80.0 GiB)" in found.because
    assert found.because.count("80.0 GiB") == 1
    for words in ("--max-running-requests 64", "--context-length 131072"):
        other = judged(SCOUT, f"--tp 8 --disable-cuda-graph {words}")
        assert other.verdict is Verdict.GO, other.because


@pytest.mark.parametrize(
    ("gib", "words", "verdict"),
    [
        (40, "", Verdict.NO_GO),
        (40, "--context-length 262144", Verdict.GO),
        (40, "--max-running-requests 16", Verdict.GO),
        (40, "--mem-fraction-static 0.7", Verdict.GO),
        (80, "--mem-fraction-static 0.9", Verdict.NO_GO),
    ],
)
def test_a_model_of_a_long_context_makes_it_long(gib: int, words: str, verdict: Verdict) -> None:
    """The model's own context counts where none is given."""
    here = Machine(cards=cards(1, gib, (8, 0)), ram_available=200 * GIB)
    known = from_config(ONE_MILLION, 15_231_233_024)
    assert assess(known, sglang_plan(words.split()), here).verdict is verdict


@pytest.mark.parametrize(
    ("words", "tokens", "count"),
    [
        ("", PLENTY, 4096),
        ("", 131072, 2048),
        ("", 131072 * 6, 3072),
        ("", 3000, 1500),
        ("--max-running-requests 100", PLENTY, 100),
        ("--max-running-requests 100", 150, 75),
        ("--tp 4 --dp-size 4 --enable-dp-attention --max-running-requests 100", PLENTY, 25),
        ("--tp 4 --dp-size 4 --enable-dp-attention", PLENTY, 4096),
        ("--speculative-algorithm NGRAM", PLENTY, 48),
    ],
)
def test_how_many_requests_there_are(words: str, tokens: int, count: int) -> None:
    """`resolve_max_num_reqs` in mem_cache/kv_cache_configurator.py of SGLang 0.5.23."""
    found = tables_of(LLAMA, sglang_plan(words.split()), (tokens, 0, 1), A100, 8)
    assert (found.count, found.requests) == (count, (count + 1) * (131072 + 4) * 4)


def test_states_limit_how_many_requests_there_are() -> None:
    plan = sglang_plan(["--context-length", "65536"])
    assert tables_of(gated("27B"), plan, (PLENTY, 20 * GIB, 1), H100, 8).count < 64


@pytest.mark.parametrize(
    ("words", "card", "bytes_of_a_token"),
    [
        ("", H100, 4), ("--page-size 64", H100, 1 / 16), ("", A100, 5), ("", B200, 1 / 4),
        ("--attention-backend triton", H100, 8), ("--disable-cuda-graph", H100, 0),
        ("--attention-backend dual_chunk_flash_attn", H100, 0),
    ],
)  # fmt: skip
def test_graphs_keep_the_context_of_each_request(
    words: str, card: Card, bytes_of_a_token: float
) -> None:
    """`init_cuda_graph_state` of SGLang 0.5.23's attention backends."""
    found = tables_of(LLAMA, sglang_plan(words.split()), (PLENTY, 0, 1), card, 256)
    assert found.graphs == 256 * 131072 * bytes_of_a_token


def test_chunks_and_windows_have_tables_of_their_own() -> None:
    plan = sglang_plan(["--context-length", "1000000"])
    scout = from_config(SCOUT["config"], int(SCOUT["weight_bytes"]))
    assert tables_of(scout, plan, (PLENTY, 0, 1), H100, 512).graphs == 3 * 512 * 4_000_000
    window = facts("gemma3-27b")
    assert tables_of(window, plan, (PLENTY, 0, 1), H100, 8).graphs == 2 * 8 * 4_000_000


def test_nothing_is_said_of_tables_where_the_cache_is_not_known() -> None:
    lost = replace(LLAMA, attention=replace(LLAMA.attention, kv_heads=None), context_length=1 << 27)
    here = Machine(cards=cards(1, 80, (9, 0)), ram_available=200 * GIB)
    assert assess(lost, sglang_plan([]), here).verdict is Verdict.UNKNOWN


def test_tables_that_leave_nothing_for_a_step_are_tight() -> None:
    """14 GiB of tables in the 15 GiB that SGLang's own formula leaves of a card."""
    found = judged(SCOUT, "--tp 8 --context-length 1048576")
    assert found.verdict is Verdict.TIGHT
    assert judged(SCOUT, "--tp 8 --context-length 786432").verdict is Verdict.GO


def test_a_context_that_the_cache_does_not_hold_starts_all_the_same() -> None:
    """sglang#4048: "Input length (160062 tokens) exceeds the maximum allowed length (59862
    tokens)" of a server that runs."""
    here = Machine(cards=cards(1, 24, (8, 9)), ram_available=64 * GIB)

    def asked(words: str) -> Assessment:
        return assess(LLAMA, sglang_plan(words.split()), here)

    found = asked("--context-length 131072 --max-running-requests 8")
    assert (found.verdict, found.shortened) == (Verdict.TIGHT, True)
    [reason] = found.tight
    tokens = int(reason.split("about ")[1].split(" ")[0].replace(",", ""))
    for more, fits in ((0, True), (1024, False)):
        again = asked(f"--context-length {tokens + more} --max-running-requests 8")
        assert again.shortened is not fits, again.because
    assert asked("--max-total-tokens 131072 --max-running-requests 8").shortened
    small = replace(here, cards=cards(1, 18, (8, 9)))
    plan = sglang_plan(["--context-length", "131072"])
    assert assess(LLAMA, plan, small).verdict is Verdict.NO_GO
