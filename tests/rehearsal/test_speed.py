"""How fast a stand-in has to be: as the playbook's own gates ask, by a quota that is measured."""

import pytest

from console.config.playbook.steps import CriterionModel
from console.rehearsal.inside.settings import value
from console.rehearsal.speed import FALLBACK, calibrate, target_speeds

BENCH = ["-m", "x.gguf", "-ngl", "19", "-ts", "75/25", "-r", "5", "-o", "json", "--port=8001"]


def on(metric: str, **thresholds: str) -> CriterionModel:
    return CriterionModel.model_validate({"metric": metric, **thresholds})


def test_a_go_is_aimed_above_and_an_abort_below() -> None:
    found = target_speeds([on("bench.tok_s", go="> 12 tok/s", no_go="< 10 tok/s")], 10.9)
    assert found.speed("") == pytest.approx(16.8)
    assert found.speed("slow") == pytest.approx(7.0)
    assert found.speed("grey") == pytest.approx(11.0)
    assert found.speed("crash") == found.speed("")


def test_the_most_demanding_gate_counts_and_prompts_do_not() -> None:
    criteria = [
        on("tg.tg_tok_s", go=">= 20 tok/s"), on("tg.pp_tok_s", go=">= 100 tok/s"),
        on("bench.tok_s", go=">= 1 x baseline"), on("bench.ttft_s", go="< 2s"),
    ]  # fmt: skip
    found = target_speeds(criteria, 10.0)
    assert found.speed("") == pytest.approx(28.0)
    assert found.speed("slow") == pytest.approx(7.0), "below the baseline, which is asked for too"


def test_without_a_gate_on_a_speed_it_is_well_above_what_is_usual() -> None:
    assert target_speeds([], 10.0).speed("") > FALLBACK


class Box:
    """A machine on which a token takes `cost` CPU seconds, and no more than `most` are made."""

    def __init__(self, cost: float, most: float = 1e9) -> None:
        self.cost, self.most, self.cpus = cost, most, 0.0

    def limit(self, cpus: float) -> None:
        self.cpus = cpus

    def measure(self) -> float:
        return min(self.most, self.cpus / self.cost)


@pytest.mark.parametrize("cost", [0.002, 0.008, 0.05])
def test_it_ends_near_the_aim_whatever_it_began_with(cost: float) -> None:
    box, said = Box(cost), list[str]()
    per = calibrate(box.measure, box.limit, 0.009, 10.9, said.append)
    assert per == pytest.approx(cost, rel=0.06)
    assert "10.9" in said[-1]


def test_a_long_short_option_is_no_short_one() -> None:
    assert value(BENCH, "-n", "--n-gen", default="128") == "128"
    assert value(BENCH, "-ngl") == "19"
    assert value(BENCH, "-r", "--repetitions") == "5"
    assert value(BENCH, "--port") == "8001"
    assert value(["-c"], "-c", default="1") == ""
    assert value(["-c", "1", "-c", "2"], "-c") == "2"
