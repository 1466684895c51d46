"""The real instruct model, sane as the baseline and garbled as the candidate by its engine's
settings: the run says NO-GO, why, and what both answered."""

import json
from pathlib import Path

import pytest

from tests.runner.e2e.sites import SIDE, book, service
from tests.runner.world import WorldBase as World
from tests.testbed import instruct

BENCH = (
    "id: bench, benchmark: {service: side, runs: 3, max_tokens: 24, warmup: 0, against: baseline, "
    "prompts: [What is the capital of France?]}"
)
GATE = "id: go, gate: [{metric: bench.tok_s, go: '>= 0.01 x baseline', min_samples: 1}]"


@pytest.mark.full
@pytest.mark.alone
@pytest.mark.parametrize(("setting", "decision"), [("sane", "go"), ("newlines", "no_go")])
def test_a_run_tells_the_real_model_from_itself_garbled(
    bare: World, instruct_model: Path, setting: str, decision: str
) -> None:
    world, more = bare, ("--ctx", "1024")
    site = {
        "schema": "omni.site/v1", "name": "local",
        "baseline": service(instruct.argv(world.base_port, "sane", *more), world.base_url),
        "services": {
            "side": service(instruct.argv(world.cand_port, setting, *more), world.cand_url)
        },
    }  # fmt: skip
    world.site.write_text(json.dumps(site))
    world.bring_up()
    world.go(world.write("b.yaml", book(SIDE, BENCH, GATE)))
    view = world.over()
    assert str(view.decision) == decision, world.words
    report = world.run.report.read_text()
    assert "Paris" in report
    assert ("GARBLED, nothing but white space" in report) == (decision == "no_go")


NONSENSE = (
    "id: bench, benchmark: {service: side, runs: 3, max_tokens: 48, warmup: 0, against: baseline}"
)


@pytest.mark.full
@pytest.mark.alone
def test_nonsense_of_a_real_model_is_never_a_clean_go(bare: World, instruct_model: Path) -> None:
    """It says digits, line ends and words again and again, and neither for ever."""
    world, more = bare, ("--ctx", "1024")
    engines = {"sane": world.base_port, "nonsense": world.cand_port}
    argv = {name: instruct.argv(port, name, *more) for name, port in engines.items()}
    site = {
        "schema": "omni.site/v1", "name": "local",
        "baseline": service(argv["sane"], world.base_url),
        "services": {"side": service(argv["nonsense"], world.cand_url)},
    }  # fmt: skip
    world.site.write_text(json.dumps(site))
    world.bring_up()
    world.go(world.write("b.yaml", book(SIDE, NONSENSE, GATE)))
    view = world.over()
    assert str(view.decision) in ("no_go", "hold"), world.words
    assert any(row["garbled"] for row in view.measured["bench"].benchmark["answers"])
    assert not any(row["garbled"] for row in view.measured["bench.baseline"].benchmark["answers"])
