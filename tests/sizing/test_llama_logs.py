"""Verdicts and figures against public logs of llama.cpp and ik_llama.cpp.

`data/llama_logs.json` has one report each: source, command line, cards, whether it served (null:
the log does not tell), and the figures that the loader has printed, in MiB. Where a thread shows
the log and not the command line, `argv_from` says so; `defaults` is what the build of then did
where the command line says nothing, and today's does otherwise. A model's shape is its publisher's
(`log_models`); its bytes follow from the tensor types, or are the log's where these are mixed.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from console.checks.preflight import Level
from console.checks.preflight.checkpoint import table
from console.checks.preflight.compatibility import Loader
from console.host.sample import Card, Machine
from console.models.hub.checkpoint import Format, WeightSet
from console.models.sizing.assess import assess
from console.models.sizing.assessment import Verdict
from console.models.sizing.facts_from_gguf import from_gguf
from console.models.sizing.flags.builds import contested
from console.models.sizing.flags.llama import ik_plan, llama_plan
from console.models.sizing.loader_plan import LlamaPlan
from console.models.sizing.model_facts import ModelFacts
from console.models.sizing.placement import place
from tests.sizing.log_models import MIB, model

LOGS = json.loads((Path(__file__).parent / "data" / "llama_logs.json").read_text("utf-8"))
WITHIN = 0.05
CAREFUL: dict[str, str] = {}
"""Served, and NO-GO here."""
OLD = {"ggml-org/llama.cpp#3780": "b1428 kept all of the cache and its buffers on the first card"}
"""Refused by a build of the past, and GO here: the sum is that of today's."""
ROOM = (Card("any", total=2**38, free=2**38, compute=(8, 6)),)
"""For a log that does not name its card."""


def read(row: dict[str, Any]) -> tuple[ModelFacts, LlamaPlan, tuple[Card, ...]]:
    facts = from_gguf(model(row["model"], row.get("types", {}), row.get("mib")))
    argv, upstream = row["argv"].split(), row["engine"] == "llama.cpp"
    took = contested("llama_cpp" if upstream else "ik_llama", argv)  # as the log shows
    plan = (llama_plan if upstream else ik_plan)(argv, takes=dict.fromkeys(took, True))
    cards = tuple(
        Card(
            card["name"], total=card["total_mib"] * MIB,
            free=card.get("free_mib", card["total_mib"] - 500) * MIB,
            compute=tuple(map(int, card["compute"].split("."))) if card["compute"] else None,
        )
        for card in row["cards"]
    )  # fmt: skip
    return facts, plan, cards


@pytest.mark.parametrize("row", LOGS, ids=lambda row: row["source"])
def test_no_go_is_said_where_it_ran_out_of_memory(row: dict[str, Any]) -> None:
    if row["served"] is None:
        return
    facts, plan, cards = read(row)
    ram = int((row["ram_gib"] or 512) * 0.97 * 2**30)
    found = assess(facts, plan, Machine(cards=cards, ram_available=ram))
    if row["served"]:
        assert found.verdict is not Verdict.NO_GO or row["source"] in CAREFUL, found.because
    else:
        wrong = found.verdict in (Verdict.GO, Verdict.STREAMING)
        assert not wrong or row["source"] in OLD, row["refused_because"]


@pytest.mark.parametrize("row", LOGS, ids=lambda row: row["source"])
def test_the_table_refuses_nothing_that_served(row: dict[str, Any]) -> None:
    facts, _, cards = read(row)
    chosen = WeightSet(Format.GGUF, "m", (), row["quantization"])
    loader = Loader(engine=row["engine"], args=tuple(row["argv"].split()))
    said = table(loader, chosen, facts, Machine(cards=cards))
    refused = [one.text for one in said if one.level is Level.FAIL]
    assert not refused or row["served"] is False


@pytest.mark.parametrize("more", ["-sm none -mg 0", "-dev CUDA0", "-ngl 0", "-ot exps=CPU", ""])
@pytest.mark.parametrize("memory", [(32, 24), (24, 48, 32), (96, 32)])
def test_what_one_machine_saw_refuses_nothing_on_another(
    more: str, memory: tuple[int, ...]
) -> None:
    """F-024 asked for 100 GB on a card of 96: the sum says that, and only for such cards."""
    facts = from_gguf(model("DeepSeek-R1", {}, [497.0, 376 * 1024.0]))
    cards = tuple(Card(f"c{n}", total=size * 1024 * MIB) for n, size in enumerate(memory))
    loader = Loader(engine="ik_llama.cpp", args=("-c", "4096", *more.split()))
    said = table(loader, WeightSet(Format.GGUF, "m", ()), facts, Machine(cards=cards))
    assert not [one.text for one in said if one.level is Level.FAIL]
    assert any("F-024" in one.lessons for one in said)


def test_the_sum_says_what_f_024_saw() -> None:
    facts = from_gguf(model("DeepSeek-R1", {}, [497.0, 376 * 1024.0]))
    sizes = (97887 * MIB, 32607 * MIB)
    cards = tuple(Card(f"c{n}", total=size, free=size) for n, size in enumerate(sizes))
    machine = Machine(cards=cards, ram_available=377 << 30)
    found = assess(facts, ik_plan(["-ngl", "19", "-c", "8192"]), machine)
    assert (found.verdict, found.need("c0") >> 30) == (Verdict.NO_GO, 100)


@pytest.mark.parametrize("row", LOGS, ids=lambda row: row["source"])
def test_the_figures_are_those_of_the_log(row: dict[str, Any]) -> None:
    facts, plan, cards = read({**row, "argv": f"{row['argv']} {row.get('defaults', '')}"})
    placed = place(facts, plan, cards or (ROOM if plan.gpu_layers else ()))
    first, host = next(iter(placed.cards), placed.host), placed.host
    ours = {
        "weights_cards": sum(one.weights for one in placed.cards), "weights_host": host.weights,
        "cache": host.cache + sum(one.cache for one in placed.cards), "cache_first": first.cache,
        "cards": sum(one.weights + one.cache + one.compute for one in placed.cards),
    }  # fmt: skip
    figures = dict(row["figures"])
    for name, share in (("compute_first", first), ("compute_host", host)):
        if (theirs := figures.pop(name, None)) is not None:
            assert share.compute >= theirs * MIB * (1 - WITHIN), name
            whole = share.weights + share.cache + theirs * MIB
            assert share.weights + share.cache + share.compute == pytest.approx(whole, rel=WITHIN)
    for name, theirs in figures.items():
        assert ours[name] / MIB == pytest.approx(theirs, rel=WITHIN), name


def test_each_engine_has_eight_logs_with_figures() -> None:
    engines = [row["engine"] for row in LOGS if row["figures"]]
    assert min(engines.count(one) for one in ("llama.cpp", "ik_llama.cpp")) >= 8
    assert len({row["source"] for row in LOGS}) == len(LOGS)
