"""Verdicts against public reports: what people have started, on which cards, and what came of it.

`data/public_logs.json` has one report each: source, command line, cards, and the figures that the
engine has printed. Configurations and bytes are the checkpoints', a card's memory the product's;
`assumed` says what the report does not tell.
"""

import json
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

GIB, MIB = 1 << 30, 1 << 20
LOGS = json.loads((Path(__file__).parent / "data" / "public_logs.json").read_text())
OLD = {
    "vllm-project/vllm#10517 (comment, case 2)": "0.6 profiled a prompt of the whole context",
    "vllm-project/vllm#33155 (fails)": "0.14.1 ran out of memory where 0.11.2 serves the same",
}
"""Refused by a release of the past, and GO here: the sum is that of today's."""
CAREFUL = {
    "ktransformers doc/en/kt-kernel/AVX2-Tutorial.md": "says 256 GB of RAM; its source keeps 595",
    "kvcache-ai/ktransformers#1870": "its --cpu-offload-gb takes experts; F-020 saw them stay",
}
"""Served, and NO-GO here."""


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
    found, refused = judged(row)
    if row["served"]:
        wrong = refused or found.verdict is Verdict.NO_GO
        assert not wrong or any(row["source"].startswith(name[:40]) for name in CAREFUL), (
            f"served, and {found.because}"
        )
    else:
        wrong = not refused and found.verdict in (Verdict.GO, Verdict.STREAMING)
        assert not wrong or row["source"] in OLD, f"{row['refused_because']}; {found.because}"


LOADED = [
    row for row in LOGS if row["figures"].get("model_loading_gib") and row["engine"] == "vllm"
]


@pytest.mark.parametrize("row", LOADED, ids=lambda row: row["source"][:60])
def test_what_vllm_loads(row: dict[str, Any]) -> None:
    found, _ = judged(row)
    where = found.terms[0].where
    names = ("weights", "experts", "MXFP4 kernels")
    sizes = {t.name: t.bytes or 0 for t in found.terms if t.where == where and t.name in names}
    if "MXFP4 kernels" in sizes:  # the room to work in is not loaded
        sizes["MXFP4 kernels"] -= 5 * GIB
    assert sum(sizes.values()) / GIB == pytest.approx(row["figures"]["model_loading_gib"], rel=0.05)
