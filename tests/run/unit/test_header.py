"""What a run notes about itself when it begins."""

from __future__ import annotations

from pathlib import Path

from console.config.site.site import load_site
from console.runner.prepare.plan import targets
from console.runner.prepare.seal import reference
from tests.run.unit.conftest import SITE, MakePlan


def test_the_baseline_is_noted_as_it_is_started(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(SITE.replace("base,", "base, reference: {tok_s: 10.75}, args: [-c, '8192'],"))
    assert reference(load_site(path)) == {
        "url": "http://127.0.0.1:8000", "runs": ["starts the existing container base"],
        "args": ["-c", "8192"], "reference": 10.75,
    }  # fmt: skip


def test_a_start_is_told_from_a_stop_by_the_plan_itself(plan: MakePlan) -> None:
    """The report looks for the load in what the plan says: both have to go on meaning the same."""
    from console.render.report.memory import STARTS

    made = plan(
        "{id: a, service: {start: cand}}", "{id: b, service: {stop: cand}}",
        "{id: c, service: {start: box}}", "{id: d, service: {start: stack}}",
        "{id: e, service: {wait: box}}",
    )  # fmt: skip
    begun = {
        step.id: any(line.lstrip().startswith(STARTS) for line in step.effects)
        for step in made.steps
        if step.kind == "service"
    }
    assert begun == {"a": True, "b": False, "c": True, "d": True, "e": False}
    assert made.at("b").effects[0].startswith("stops ")


def test_every_criterion_is_noted_with_the_samples_it_needs(plan: MakePlan) -> None:
    made = plan(
        "{id: bench, benchmark: {service: beside, against: baseline}}",
        "{id: soak, soak: {service: beside, duration: 1h}}",
        "{id: tg, run: [x], figures: llama-bench, outputs: {n: {pattern: '([0-9]+)'}}}",
        "{id: off, when: false, gate: [{metric: bench.tok_s, go: '> 1'}]}",
        "{id: go, gate: [{metric: bench.tok_s, go: '>= 1.5 x baseline', no_go: '< 20 tok/s'}, "
        "{metric: gpu.peak_used, of: sum, go: '<= 117GB'}, {metric: soak.errors, go: '== 0'}, "
        "{metric: soak.restarts, go: '== 0'}, {metric: tg.tg_tok_s, go: '> 1'}, "
        "{metric: tg.n, go: '> 1'}, {metric: bench.ttft_s, go: '< 2s', min_samples: 1}]}",
    )
    found = targets(made)
    assert [one["min_samples"] for one in found] == [3, 1, 10, 10, 3, 1, 1]
    first, second, *_ = [{k: v for k, v in one.items() if k != "min_samples"} for one in found]
    metric = {"gate": "go", "metric": "bench.tok_s", "of": None}
    assert first == {**metric, "go": ">= 1.5 x baseline", "no_go": "< 20 tok/s"}
    assert second == {
        **metric,
        "metric": "gpu.peak_used",
        "of": "sum",
        "go": "<= 117GB",
        "no_go": "",
    }
