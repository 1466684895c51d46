"""The verdict as an operator reads it."""

from __future__ import annotations

from console.fit.flags import llama_plan, sglang_plan
from console.fit.from_config import from_config
from console.fit.from_gguf import from_gguf
from console.fit.plan import ConversionPlan
from console.fit.text import WIDTH, lines
from console.fit.verdict import assess
from console.units import both_units
from tests.fit import configs, shapes
from tests.fit.site import BASELINE, GIB, MEASURED, SETS, SITE

Q4 = from_gguf(shapes.deepseek_r1("Q4_K_M", latent=False))
INT8 = from_config(configs.DEEPSEEK_R1, 642 * GIB)


def test_both_units() -> None:
    assert both_units(642 * GIB) == "642.0 GiB (689.3 GB)"
    assert both_units(500 * 2**20) == "500.0 MiB (524.3 MB)"
    assert both_units(2 * 2**40) == "2.0 TiB (2.2 TB)"


def test_no_line_is_wider_than_a_terminal() -> None:
    plans = (BASELINE, llama_plan([]), sglang_plan(["--tp", "2"]), ConversionPlan())
    for plan in plans:
        for facts in (Q4, INT8):
            text = lines(assess(facts, plan, SITE, reference=MEASURED, alternatives=SETS))
            assert max(len(line) for line in text) <= WIDTH == 78


def test_a_refusal_shows_its_arithmetic() -> None:
    text = "\n".join(lines(assess(INT8, sglang_plan(["--tp", "2"]), SITE, alternatives=SETS)))
    assert text.startswith("NO-GO  SGLang resident: ")
    assert "  experts          307.5 GiB   1/2 of 615.1 GiB" in text
    assert "of 27.5 GiB: 288.6 GiB short" in text
    assert "Limiting: RTX 5090, 288.6 GiB (309.9 GB) short" in text
    assert "The three biggest:" in text
    assert "What would make it go:" in text
    assert "If it were tried" in text


def test_sums_stand_under_their_terms() -> None:
    text = lines(assess(Q4, BASELINE, SITE))
    start = text.index("RTX PRO 6000")
    block = text[start + 1 : text.index("", start)]
    sizes = {
        line.split()[0] for line in block if line.startswith("  ") and line.strip()[0].isalpha()
    }
    assert {"weights", "experts", "cache", "compute", "CUDA", "margin", "sum"} <= sizes


def test_a_ceiling_is_told_or_said_to_be_none() -> None:
    plan = llama_plan(["-ngl", "12", "-c", "8192", "-ts", "75,25"])
    facts = from_gguf(shapes.deepseek_r1("Q3_K_M"))
    assert any("the disk sets none" in line for line in lines(assess(facts, plan, SITE)))
    found = assess(facts, plan, SITE, ram_read_bps=200e9)
    assert any(line.startswith("Projected ceiling: 1") for line in lines(found))
