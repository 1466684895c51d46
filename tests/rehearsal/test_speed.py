"""How fast a stand-in has to be: as the playbook's own gates ask, by a quota that is measured."""

from dataclasses import replace
from pathlib import Path

import pytest

from console.common.errors import UsageError
from console.config.playbook.steps import CriterionModel
from console.config.playbook.verdict import Criterion, Evidence, Verdict, judge
from console.rehearsal import speed
from console.rehearsal.inside.settings import Settings, value
from console.rehearsal.speed import FALLBACK, calibrate, target_speeds
from tests.wrong_files import wrong_files

BENCH = ["-m", "x.gguf", "-ngl", "19", "-ts", "75/25", "-r", "5", "-o", "json", "--port=8001"]


def on(metric: str, **thresholds: str) -> CriterionModel:
    return CriterionModel.model_validate({"metric": metric, **thresholds})


def test_a_wrong_record_of_the_cost_of_a_token_is_measured_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speed, "memory_file", lambda: tmp_path / "speed.json")
    (tmp_path / "speed.json").write_text('{"base": 0.01}')
    assert (speed.known("base"), speed.known("other")) == (0.01, None)
    for _, text in wrong_files('{"base": 0.01}'):
        (tmp_path / "speed.json").write_text(text)
        assert speed.known("base") is None


def test_a_go_is_aimed_above_and_an_abort_below() -> None:
    found = target_speeds([on("bench.tok_s", go="> 12 tok/s", no_go="< 10 tok/s")], 10.9)
    assert found.speed("") == pytest.approx(16.8)
    assert found.speed("slow") == pytest.approx(7.0)
    assert found.speed("grey") == pytest.approx(19.2), "from 10 to 12 there is too little room"
    assert found.speed("crash") == found.speed("")


def test_the_most_demanding_gate_counts_and_prompts_do_not() -> None:
    criteria = [
        on("tg.tg_tok_s", go=">= 20 tok/s"), on("tg.pp_tok_s", go=">= 100 tok/s"),
        on("bench.tok_s", go=">= 1 x baseline"), on("bench.ttft_s", go="< 2s"),
    ]  # fmt: skip
    found = target_speeds(criteria, 10.0)
    assert found.speed("") == pytest.approx(28.0)
    assert found.speed("slow") == pytest.approx(7.0), "below the baseline, which is asked for too"


def decided(one: CriterionModel, speeds: list[float]) -> Verdict:
    """What a gate says of a benchmark with these samples in tok/s."""
    criterion = Criterion(one.metric, go=one.go, no_go=one.no_go, min_samples=3)
    value = sum(speeds) / len(speeds)
    return judge(criterion, Evidence(value, "tok/s", len(speeds), samples=tuple(speeds))).verdict


@pytest.mark.parametrize("drift", [0.8, 1.0, 1.2])
@pytest.mark.parametrize("runs", [3, 5, 12])
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("abort", [None, "< 17 tok/s"])
def test_without_a_wide_grey_zone_the_samples_do_not_decide(
    drift: float, runs: int, first: int, abort: str | None
) -> None:
    """Aimed at 11 between 10 and 12, a stand-in made 9.6 tok/s on a busy machine: NO-GO."""
    gate = on("tg.tg_tok_s", go=">= 20 tok/s", **({"no_go": abort} if abort else {}))
    found = target_speeds([gate], 10.0)
    speeds = [found.speed("grey") * drift, found.unsteady]
    samples = [speeds[(number + first) % 2] for number in range(runs)]
    assert decided(gate, samples) is Verdict.HOLD
    told = Settings(unsteady=found.unsteady)
    assert (told.pace, replace(told, fault="grey").pace) == (0.0, found.unsteady)


@pytest.mark.parametrize("drift", [0.85, 1.0, 1.15])
def test_where_a_gate_has_a_wide_grey_zone_every_answer_lies_in_it(drift: float) -> None:
    gate = on("bench.tok_s", go="> 12 tok/s", no_go="< 8 tok/s")
    found = target_speeds([gate], 10.9)
    assert found.unsteady == 0.0
    assert decided(gate, [found.speed("grey") * drift] * 5) is Verdict.HOLD


def test_a_playbook_without_a_gate_on_a_speed_has_nothing_to_be_grey() -> None:
    with pytest.raises(UsageError, match="no grey zone"):
        target_speeds([on("bench.ttft_s", go="< 2s")], 10.9).speed("grey")


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
