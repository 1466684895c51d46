"""Values that vLLM and SGLang refuse by their own bounds."""

import pytest

from console.models.sizing.assess import assess
from console.models.sizing.assessment import Verdict
from console.models.sizing.flags.sglang import sglang_plan
from console.models.sizing.flags.vllm import vllm_plan
from tests.sizing.test_backends import HERE, PLAIN


@pytest.mark.parametrize(
    ("words", "verdict"),
    [
        ("--max-num-seqs 0", Verdict.NO_GO), ("--gpu-memory-utilization 1.5", Verdict.NO_GO),
        ("--kv-cache-dtype q8_0", Verdict.NO_GO), ("--dtype fp16", Verdict.NO_GO),
        ("-tp 0", Verdict.NO_GO), ("--block-size 0", Verdict.NO_GO),
        ("--kv-cache-dtype something_new", Verdict.UNKNOWN),  # a later release may have it
        ("--attention-backend SOMETHING", Verdict.UNKNOWN), ("--max-num-seqs 1", Verdict.GO),
    ],
)  # fmt: skip
def test_vllm_refuses_what_is_outside_its_own_bounds(words: str, verdict: Verdict) -> None:
    """Fields of SchedulerConfig, CacheConfig and ParallelConfig, and ModelDType, of vLLM 0.33."""
    assert assess(PLAIN, vllm_plan(words.split()), HERE).verdict is verdict


@pytest.mark.parametrize(
    ("words", "verdict"),
    [
        ("--dtype fp16", Verdict.NO_GO), ("--kv-cache-dtype q8_0", Verdict.NO_GO),
        ("--mem-fraction-static 1.2", Verdict.UNKNOWN),  # 0.5.23 looks at no bound of it
        ("--page-size 0", Verdict.UNKNOWN), ("--kv-cache-dtype fp8", Verdict.UNKNOWN),
    ],
)  # fmt: skip
def test_sglang_refuses_words_of_a_closed_set(words: str, verdict: Verdict) -> None:
    assert assess(PLAIN, sglang_plan(words.split()), HERE).verdict is verdict
