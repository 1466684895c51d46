"""Verdicts against public reports: what people have started, on which cards, and what came of it.

`data/public_logs.json` has one report each: source, command line, cards, and the figures that the
engine has printed. Configurations and bytes are the checkpoints', a card's memory the product's;
`assumed` says what the report does not tell.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from console.checks.preflight import Level
from console.checks.preflight.compatibility import Loader, Question, check, method_of, plan_of
from console.host.sample import Card, Machine
from console.models.hub.checkpoint import Format
from console.models.hub.model_config import describe, kind
from console.models.sizing.assess import assess
from console.models.sizing.assessment import Assessment, Verdict
from console.models.sizing.facts_from_config import from_config
from console.models.sizing.flags.sglang import sglang_plan
from console.models.sizing.loader_plan import VllmPlan
from console.models.sizing.model_facts import ModelFacts
from console.models.sizing.serving.loaded import cache_type
from console.models.sizing.vllm import cache_on

GIB, MIB = 1 << 30, 1 << 20
LOGS = json.loads((Path(__file__).parent / "data" / "public_logs.json").read_text())
OLD = {
    "vllm-project/vllm#17469": "0.8.5 makes graphs when the share is full: a note says so",
    "vllm-project/vllm#10517 (comment, case 2)": "0.6 profiled a prompt of the whole context",
    "sgl-project/sglang#6817": "0.4.6 had a table of its graphs for each chunk of the context",
    "vllm-project/vllm#33155 (fails)": "0.14.1 ran out of memory where 0.11.2 serves the same",
}
"""Refused by a release of the past, and GO here: the sum is that of today's."""
MANY = Machine(cards=(Card("x", total=80 * GIB, free=79 * GIB, compute=(9, 0)),))
CAREFUL = {
    "ktransformers doc/en/kt-kernel/AVX2-Tutorial.md": "says 256 GB of RAM; its source keeps 595",
    "kvcache-ai/ktransformers#1870": "its --cpu-offload-gb takes experts; F-020 saw them stay",
}
"""Served, and NO-GO here."""


def per_token(facts: ModelFacts, plan: VllmPlan) -> float:
    """Bytes of a token on a rank, by two long contexts, so that windows do not count."""
    plan = replace(plan, type_kv=cache_type(facts, "vllm", plan.type_kv))
    short, long = (cache_on(facts, replace(plan, ctx=tokens), 0) for tokens in (1 << 18, 1 << 19))
    return ((long or 0) - (short or 0)) / (1 << 18)


def machine(row: dict[str, Any]) -> Machine:
    cards = tuple(
        Card(
            card["name"], total=int(card["total_mib"] * MIB),
            free=int((card["total_mib"] - 500) * MIB),
            compute=tuple(map(int, str(card["compute"]).split("."))) if card["compute"] else None,
        )
        for card in row["cards"]
    )  # fmt: skip
    return Machine(cards=cards, ram_available=int((row["ram_gib"] or 512) * 0.97 * GIB))


def judged(row: dict[str, Any]) -> tuple[Assessment, bool]:
    """The sum, and whether the table refuses."""
    facts = from_config(row["config"], int(row["weight_bytes"]))
    plan = plan_of(Loader(engine=row["engine"], args=tuple(row["argv"])), Format.SAFETENSORS)
    here = machine(row)
    asked = Question(
        row["engine"], "safetensors", facts.architecture, kind(describe(row["config"])),
        method_of(plan), "", here, not getattr(plan, "kt_weights", ""),
    )  # fmt: skip
    return assess(facts, plan, here), any(one.level is Level.FAIL for one in check(asked))


@pytest.mark.parametrize("row", LOGS, ids=lambda row: row["source"][:60])
def test_no_go_is_said_where_it_ran_out_of_memory(row: dict[str, Any]) -> None:
    if row["served"] is None:
        return
    found, refused = judged(row)
    if row["served"]:
        wrong = refused or found.verdict is Verdict.NO_GO
        assert not wrong or any(row["source"].startswith(name[:40]) for name in CAREFUL), (
            f"served, and {found.because}"
        )
    else:
        wrong = not refused and found.verdict in (Verdict.GO, Verdict.STREAMING)
        assert not wrong or row["source"] in OLD, f"{row['refused_because']}; {found.because}"


WITHIN = 0.05
LOADED = ("model_loading_gib", "model_loading_gb", "load_mem_usage_gib")
"""What an engine prints once its weights are on the first card; vLLM's old "GB" are GiB."""
OWN = ("weights", "experts", "latent attention", "offloaded", "MXFP4 kernels")


def on_first(found: Assessment, *names: str) -> float:
    where = found.terms[0].where
    sizes = {t.name: t.bytes or 0 for t in found.terms if t.where == where and t.name in names}
    return sum(sizes.values()) / GIB


def figures(row: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """Ours and theirs in GiB, for each figure that a report has and the sum as well."""
    theirs, found = row["figures"], judged(row)[0]
    plan = plan_of(Loader(engine=row["engine"], args=tuple(row["argv"])), Format.SAFETENSORS)
    facts, pairs = from_config(row["config"], int(row["weight_bytes"])), {}
    for name in LOADED:
        if name in theirs:
            pairs[name] = (on_first(found, *OWN), theirs[name])
    cache = theirs.get("kv_gib", theirs.get("k_gib", 0.0) + theirs.get("v_gib", 0.0))
    cache = cache or theirs.get("available_kv_gib", 0.0)
    if cache and (tokens := theirs.get("kv_tokens")):
        if isinstance(plan, VllmPlan):
            ours = per_token(facts, plan) * tokens / GIB
        else:
            here = machine(row)  # with room for what the engine had, whatever it took beside it
            roomy = (replace(card, total=None, free=1 << 40) for card in here.cards)
            here = replace(here, cards=tuple(roomy))
            ours = on_first(assess(facts, replace(plan, cache_tokens=tokens), here), "cache")
        pairs["cache"] = (ours, cache)
    if "kv_needed_gib" in theirs:  # 0.15 asked every stage for the cache of all (vllm#34076)
        pairs["one request"] = (on_first(found, "cache") * plan.stages, theirs["kv_needed_gib"])
    for name, own in (("ram_gb_about", ("CPU experts", "process")), ("ram_at_least_gb", ())):
        if name in theirs:
            ours = sum(
                t.bytes or 0 for t in found.terms
                if t.where == "host RAM" and (t.name in own or not own)
            )  # fmt: skip
            unit = GIB if own else 1e9
            pairs[name] = (ours / unit, theirs[name])
    return pairs


WITH_FIGURES = [row for row in LOGS if figures(row)]


@pytest.mark.parametrize("row", WITH_FIGURES, ids=lambda row: row["source"][-60:])
def test_the_figures_are_those_of_the_log(row: dict[str, Any]) -> None:
    """Within 5 %, or the verdict is UNKNOWN or refused by the table for another reason."""
    found, refused = judged(row)
    for name, (ours, theirs) in figures(row).items():
        near = ours == pytest.approx(theirs, rel=WITHIN)
        assert near or found.verdict is Verdict.UNKNOWN or refused or _named(row), (
            f"{name}: {ours:.2f} for {theirs}; {found.because}"
        )


def _named(row: dict[str, Any]) -> bool:
    return any(row["source"].startswith(name[:40]) for name in CAREFUL)


def test_each_engine_has_eight_logs_with_figures() -> None:
    engines = [row["engine"] for row in WITH_FIGURES]
    counts = {name: engines.count(name) for name in ("vllm", "sglang", "kt-kernel")}
    assert min(counts.values()) >= 8, counts
    assert len({row["source"] for row in LOGS}) == len(LOGS)


def test_an_old_release_that_is_known_is_no_go_without_a_doubt() -> None:
    """vllm#17469: what the image is called tells the release, or a variable does the same."""
    row = next(one for one in LOGS if one["source"] == "vllm-project/vllm#17469")
    facts, here = from_config(row["config"], int(row["weight_bytes"])), machine(row)

    def said(words: tuple[str, ...] = (), **more: Any) -> Assessment:
        loader = Loader(engine="vllm", args=(*row["argv"], *words), **more)
        return assess(facts, plan_of(loader, Format.SAFETENSORS), here)

    plain = said()
    assert plain.verdict is Verdict.GO
    assert any("vLLM before 0.21 takes up to" in note for note in plain.notes)
    for image in ("vllm/vllm-openai:v0.8.5", "mirror.example:5000/vllm-openai:v0.20.1-cu129"):
        assert said(image=image).verdict is Verdict.UNKNOWN
        assert "CUDA graphs have room" in said(image=image).because
        assert said(("--enforce-eager",), image=image).verdict is Verdict.GO
    for image in ("vllm/vllm-openai:v0.21.0", "vllm/vllm-openai:latest", "vllm:5000/x", ""):
        assert said(image=image).verdict is Verdict.GO
    assert said(env={"VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS": "0"}).verdict is Verdict.UNKNOWN


def of_image(source: str, image: str, *words: str) -> Verdict:
    """The verdict on a report as a service of an image would get it."""
    row = next(one for one in LOGS if one["source"] == source)
    loader = Loader(engine=row["engine"], args=(*row["argv"], *words), image=image)
    facts = from_config(row["config"], int(row["weight_bytes"]))
    return assess(facts, plan_of(loader, Format.SAFETENSORS), machine(row)).verdict


@pytest.mark.parametrize("case", [1, 2])
def test_vllm_before_0_8_measures_a_prompt_of_the_whole_context(case: int) -> None:
    """vllm#10517: 29,000 tokens were refused and 20,000 served; --max-num-batched-tokens bounds a
    step of any release."""
    source, old = f"vllm-project/vllm#10517 (comment, case {case})", "vllm/vllm-openai:v0.6.4"
    served, eager = (Verdict.GO, Verdict.TIGHT), ("--enforce-eager",)
    assert of_image(source, old, *eager) is Verdict.UNKNOWN
    for image in ("vllm/vllm-openai:v0.33.0", "own/vllm:0.6.4-with-patches"):
        assert of_image(source, image, *eager) in served
    assert of_image(source, old, "--max-num-batched-tokens", "2048", *eager) in served
    if case == 1:
        return
    whole = of_image("vllm-project/vllm#10517 (comment, case 3)", old, *eager)
    assert whole in served, "35,000 tokens are taken in steps of 512"


@pytest.mark.parametrize(
    ("source", "old", "new"),
    [
        ("sgl-project/sglang#6817", "lmsysorg/sglang:v0.4.6.post5-cu124", "lmsysorg/sglang:v0.5.9"),
        ("vllm-project/vllm#33155 (fails)", "docker.io/vllm/vllm-openai:v0.14.1",
         "vllm/vllm-openai:v0.33.0"),
    ],
)  # fmt: skip
def test_a_release_that_was_seen_to_fail_is_no_go(source: str, old: str, new: str) -> None:
    assert of_image(source, old) is Verdict.UNKNOWN
    assert of_image(source, new) in (Verdict.GO, Verdict.TIGHT)


def test_old_sglang_has_a_static_part_of_its_own_formula() -> None:
    source, old = "kvcache-ai/ktransformers#1914 (Qwen3-30B-A3B)", "lmsysorg/sglang:v0.4.4.post2"
    row = next(one for one in LOGS if one["source"] == source)
    facts = from_config(row["config"], int(row["weight_bytes"]))

    def unknown(image: str, *words: str) -> bool:
        plan = sglang_plan(words, image)
        return any("the static part of SGLang 0.4" in x for x in assess(facts, plan, MANY).unknown)

    assert unknown(old)
    assert not unknown(old, "--mem-fraction-static", "0.8")
    assert not unknown("lmsysorg/sglang:v0.5.23-cu130")
