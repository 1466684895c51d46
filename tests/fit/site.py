"""The operator's machine, and what was measured on it."""

from __future__ import annotations

from console.host.sample import Card, Machine
from console.models.sizing.assessment import Reference
from console.models.sizing.loader_flags import llama_plan

MIB, GIB, GB = 1 << 20, 1 << 30, 10**9
LARGE = Card("RTX PRO 6000", total=97887 * MIB, free=97287 * MIB, compute=(12, 0))
SMALL = Card("RTX 5090", total=32607 * MIB, free=32007 * MIB, compute=(12, 0))
SITE = Machine(
    cards=(LARGE, SMALL), ram_total=377 * GIB, ram_available=350 * GIB, swap_total=207 * GB,
    swap_free=205 * GB, disk_free=2000 * GB, disk_read_bps=10e9,
)  # fmt: skip
BASELINE = llama_plan(
    "--n-gpu-layers 19 --tensor-split 75,25 --ctx-size 8192 --flash-attn".split()  # noqa: SIM905
)
MEASURED = Reference("the baseline", tok_s=(10.35, 10.9), vram=(117 * GB, 118 * GB), serves=True)
SETS = {
    "Q4_K_M": 404_424_884_224, "Q3_K_M": 319_193_092_608, "Q2_K": 244 * GB, "UD-IQ1_S": 140 * GB,
}  # fmt: skip
