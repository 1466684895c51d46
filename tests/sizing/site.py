"""The operator's machine, what was measured on it, and the models that verdicts are about."""

from dataclasses import replace

from console.host.sample import Card, Machine
from console.models.sizing.assessment import Reference
from console.models.sizing.facts_from_config import from_config
from console.models.sizing.facts_from_gguf import from_gguf
from console.models.sizing.flags.llama import llama_plan
from console.models.sizing.flags.sglang import sglang_plan
from console.models.sizing.loader_plan import LlamaPlan, SglangPlan
from tests.sizing import shapes


def served(words: str) -> LlamaPlan:
    return llama_plan(words.split())


def sglang(words: str) -> SglangPlan:
    return sglang_plan(words.split())


MIB, GIB, GB = 1 << 20, 1 << 30, 10**9
LARGE = Card("RTX PRO 6000", total=97887 * MIB, free=97287 * MIB, compute=(12, 0))
SMALL = Card("RTX 5090", total=32607 * MIB, free=32007 * MIB, compute=(12, 0))
SITE = Machine(
    cards=(LARGE, SMALL), ram_total=377 * GIB, ram_available=350 * GIB, swap_total=207 * GB,
    swap_free=205 * GB, disk_free=2000 * GB, disk_read_bps=10e9,
)  # fmt: skip
ROOMY = replace(SITE, ram_available=900 * GIB)
SMALLER = replace(SITE, ram_available=100 * GIB)
BASELINE = served("--n-gpu-layers 19 --tensor-split 75,25 --ctx-size 8192 --flash-attn")
TWELVE = "-ngl 12 -ts 75,25 -c 8192"
MEASURED = Reference("the baseline", tok_s=(10.35, 10.9), vram=(117 * GB, 118 * GB), serves=True)
Q3 = from_gguf(shapes.deepseek_r1("Q3_K_M"))
Q3_OLD = from_gguf(shapes.deepseek_r1("Q3_K_M", latent=False))
Q4 = from_gguf(shapes.deepseek_r1("Q4_K_M"))
Q4_OLD = from_gguf(shapes.deepseek_r1("Q4_K_M", latent=False))
INT8 = from_config(shapes.DEEPSEEK_R1, 642 * GIB)
DISTILL = from_gguf(shapes.distill_32b())
DISTILL_BF16 = from_config(shapes.DISTILL_32B, 65_527_000_000)
KT = sglang(
    "--tensor-parallel-size 2 --kt-method AMXINT8 --kt-weight-path /w --kt-cpuinfer 96 "
    "--kt-num-gpu-experts 32"
)
