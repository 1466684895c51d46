"""The models that verdicts are about, and command lines in one word."""

from __future__ import annotations

from console.models.sizing.facts_from_config import from_config
from console.models.sizing.facts_from_gguf import from_gguf
from console.models.sizing.loader_flags import llama_plan, sglang_plan
from console.models.sizing.loader_plan import LlamaPlan, SglangPlan
from tests.fit import configs, shapes
from tests.fit.site import GB, GIB


def served(words: str) -> LlamaPlan:
    return llama_plan(words.split())


def sglang(words: str) -> SglangPlan:
    return sglang_plan(words.split())


Q3 = from_gguf(shapes.deepseek_r1("Q3_K_M"))
Q3_OLD = from_gguf(shapes.deepseek_r1("Q3_K_M", latent=False))
Q4 = from_gguf(shapes.deepseek_r1("Q4_K_M"))
Q4_OLD = from_gguf(shapes.deepseek_r1("Q4_K_M", latent=False))
INT8 = from_config(configs.DEEPSEEK_R1, 642 * GIB)
FP8 = from_config(configs.DEEPSEEK_R1, 688 * GB)
DISTILL = from_gguf(shapes.distill_32b())
DISTILL_BF16 = from_config(configs.DISTILL_32B, 65_527_000_000)
KT = sglang(
    "--tensor-parallel-size 2 --kt-method AMXINT8 --kt-weight-path /w --kt-cpuinfer 96 "
    "--kt-num-gpu-experts 32"
)
