"""Values that vLLM's and SGLang's own parsers take or refuse, and how they read them."""

import pytest

from console.models.sizing.assessment import Verdict
from console.models.sizing.flags.sglang import sglang_plan
from console.models.sizing.flags.vllm import vllm_plan
from tests.sizing.test_checkpoints import cards
from tests.sizing.test_started import judged

# by `human_readable_int` and `human_readable_int_or_auto` of vLLM 0.33
VLLM = {
    "25600": 25600, "25.6k": 25600, "25k": 25000, "25K": 25600, "2m": 2_000_000, "1M": 1 << 20,
    "0.5m": 500_000, "32_768": 32768, "+4096": 4096, "auto": -1, "AUTO": -1, "-1": -1,
    "1t": 10**12, "1T": 1 << 40,
}  # fmt: skip
# by `human_readable_int` of SGLang 0.5.23
SGLANG = {
    "25600": 25600, "25.6k": 25600, "32Ki": 32768, "1M": 10**6, "1Mi": 1 << 20, "0.5M": 500_000,
    "32_768": 32768, "1Ti": 1 << 40,
}  # fmt: skip
NO_VLLM = ("25.6K", "1.5M", "32Ki", "32kb", "32 k", "8192x", "1e5", "32,768", "8192.0", "x", "k")
NO_SGLANG = ("25.6Ki", "32K", "1m", "1g", "auto", "8192x", "1e5", "1.5", "32768Kib")


@pytest.mark.parametrize(("value", "size"), VLLM.items())
def test_lengths_that_vllm_takes(value: str, size: int) -> None:
    plan = vllm_plan(["--max-model-len", value])
    assert (plan.ctx, plan.problems, plan.refused) == (size, (), ())


@pytest.mark.parametrize(("value", "size"), SGLANG.items())
def test_lengths_that_sglang_takes(value: str, size: int) -> None:
    plan = sglang_plan(["--context-length", value])
    assert (plan.ctx, plan.problems, plan.refused) == (size, (), ())


@pytest.mark.parametrize("value", NO_VLLM)
def test_lengths_that_vllm_refuses(value: str) -> None:
    assert "--max-model-len" in vllm_plan(["--max-model-len", value]).refused[0]


@pytest.mark.parametrize("value", NO_SGLANG)
def test_lengths_that_sglang_refuses(value: str) -> None:
    assert "--context-length" in sglang_plan(["--context-length", value]).refused[0]


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ("vllm", "--max-model-len 25.6K"),
        ("vllm", "--max-num-seqs 1k"),
        ("vllm", "--max-num-batched-tokens 2.5K"),
        ("vllm", "-tp two"),
        ("vllm", "--port 80x"),
        ("vllm", "--watermark many"),
        ("vllm", "--gpu-memory-utilization 90%"),
        ("vllm", "--enforce-eager=true"),
        ("vllm", "--override-generation-config {temperature:0.7}"),
        ("sglang", "--trust-remote-code=1"),
        ("sglang", "--context-length 32K"),
        ("sglang", "--tp 2.0"),
        ("sglang", "--mem-fraction-static .8x"),
        ("sglang", "--max-running-requests 1k"),
    ],
)
def test_what_a_parser_refuses_is_no_go(engine: str, words: str) -> None:
    found = judged(engine, words, cards(1, 80))
    assert (found.verdict, "refuses --" in found.because) == (Verdict.NO_GO, True), found.because


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ("vllm", "--max-model-len 8192 --max-num-seqs 2_56 --gpu-memory-utilization .9"),
        ("vllm", "--max-model-len 8.192k --seed +5 --watermark 0 --enforce-eager"),
        ("vllm", '--max-model-len 8K --override-generation-config {"max_new_tokens":2k}'),
        ("vllm", "--max-model-len 8K --override-generation-config.temperature 0.7"),
        ("sglang", "--context-length 8Ki --mem-fraction-static 8e-1"),
    ],
)
def test_what_a_parser_takes_is_taken(engine: str, words: str) -> None:
    assert judged(engine, words, cards(1, 80)).verdict is Verdict.GO


@pytest.mark.parametrize(
    ("config", "is_named"),
    [
        ('{"method":"ngram","num_speculative_tokens":4}', False),
        ('{"method":"ngram"}', True),
        ('{"method":"ngram","num_speculative_tokens":0}', True),
        ('{"method":"suffix"}', False),
        ('{"method":"mtp","num_speculative_tokens":1}', False),
        ('{"method":"mtp","num_speculative_tokens":0}', True),
        ('{"method":"mtp","num_speculative_tokens":true}', True),
        ('{"method":"mtp","num_speculative_tokens":2,"model":"org/draft"}', True),
        ('{"method":"eagle3","num_speculative_tokens":2}', True),
        ('{"model":"org/draft","num_speculative_tokens":4}', True),
        ('["ngram"]', True),
    ],
)
def test_how_vllm_guesses_ahead(config: str, is_named: bool) -> None:
    plan = vllm_plan(["--speculative-config", config])
    assert (
        any("--speculative-config" in one for one in (*plan.problems, *plan.uncounted)) is is_named
    )


def test_a_word_that_a_newer_release_may_have_is_not_refused() -> None:
    plan = vllm_plan(["--dtype", "float4", "--scheduling-policy", "sjf"])
    assert (len(plan.problems), plan.refused) == (2, ())
