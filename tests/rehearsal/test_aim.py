"""The speed of a stand-in follows from the playbook's own gates."""

from __future__ import annotations

import pytest

from console.common.errors import UsageError
from console.config.playbook.steps import CriterionModel
from console.rehearsal.speed import FALLBACK, aim


def on(metric: str, **thresholds: str) -> CriterionModel:
    return CriterionModel.model_validate({"metric": metric, **thresholds})


def test_a_go_is_aimed_above_and_an_abort_below() -> None:
    found = aim([on("bench.tok_s", go="> 12 tok/s", no_go="< 10 tok/s")], 10.9)
    assert found.speed("") == pytest.approx(16.8)
    assert found.speed("slow") == pytest.approx(7.0)
    assert found.speed("grey") == pytest.approx(11.0)
    assert found.speed("crash") == found.speed("")


def test_the_most_demanding_gate_counts_and_prompts_do_not() -> None:
    criteria = [
        on("tg.tg_tok_s", go=">= 20 tok/s"), on("tg.pp_tok_s", go=">= 100 tok/s"),
        on("bench.tok_s", go=">= 1 x baseline"), on("bench.ttft_s", go="< 2s"),
    ]  # fmt: skip
    found = aim(criteria, 10.0)
    assert found.speed("") == pytest.approx(28.0)
    assert found.speed("slow") == pytest.approx(7.0), "below the baseline, which is asked for too"


def test_without_a_zone_in_between_there_is_no_grey() -> None:
    found = aim([on("bench.tok_s", go="> 26 tok/s")], 10.0)
    with pytest.raises(UsageError, match="no grey zone"):
        found.speed("grey")
    assert aim([], 10.0).speed("") > FALLBACK
