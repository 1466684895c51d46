"""Two quantizations of one model, compared by a real llama-perplexity in the service's image."""

import json
import re
from pathlib import Path

import pytest

from console.rehearsal.demo.model import ModelSpec, write_llama
from tests.runner.e2e.boxes import Boxes, server
from tests.runner.e2e.sites import book

SPEC = ModelSpec("whole", blocks=8, seed=5, width=256, feed_forward=512)
ASKED = "service: cand, base: {base}, chunks: 4, ctx: 256"
NUMBERS = re.compile(r"(-?\d+\.\d+) ±\s+(\d+\.\d+)")


@pytest.fixture
def graded(boxed: Boxes, extra_image: str) -> Boxes:
    """A world whose image has llama-perplexity, with a model in 16, 8 and 4 bits."""
    boxed.image = extra_image
    whole = boxed.models / "whole.gguf"
    if not whole.exists():
        write_llama(whole, SPEC)
        for kind in ("Q8_0", "Q4_0"):
            boxed.docker(
                *("run", "--rm", "-v", f"{boxed.models}:/models", extra_image, "llama-quantize"),
                *("/models/whole.gguf", f"/models/{kind}.gguf", kind),
            )
    boxed.world.site.write_text(boxed.site(container=boxed.base_name))
    boxed.baseline()
    return boxed


def with_model(boxed: Boxes, model: str) -> None:
    site = json.loads(boxed.site(container=boxed.base_name))
    candidate = boxed.candidate(model)
    candidate["container"]["command"] = [*server(model), "-fa", "off"]
    site["services"] = {"cand": candidate}
    boxed.world.site.write_text(json.dumps(site))


def printed(boxed: Boxes, words: str) -> tuple[float, float]:
    """What llama-perplexity itself printed last, from the log of the step."""
    log = (boxed.world.run.path / "attempts" / "quality.1.log").read_text()
    found = NUMBERS.search([line for line in log.splitlines() if line.startswith(words)][-1])
    assert found is not None
    return float(found[1]), float(found[2])


@pytest.mark.engine
def test_divergence_and_agreement_are_those_that_llama_perplexity_prints(graded: Boxes) -> None:
    world, seen = graded.world, {}
    step = f"id: quality, quality: {{{ASKED.format(base=graded.models / 'whole.gguf')}}}"
    judge = "id: judge, gate: [{metric: quality.mean_kld, go: '<= 0.7'}], on_no_go: continue"
    for model in ("Q8_0.gguf", "Q4_0.gguf"):
        with_model(graded, model)
        done = world.go(world.write("b.yaml", book(step, judge)))
        view = world.view()
        found = view.metrics["quality"]
        kld, agreement = found["mean_kld"], found["top1_agreement"]
        assert (kld["value"], kld["error"]) == printed(graded, "Mean    KLD"), done
        share, error = printed(graded, "Same top p")
        assert (agreement["value"], agreement["error"]) == pytest.approx((share / 100, error / 100))
        assert found["ppl"]["value"] == printed(graded, "Mean PPL(Q) ")[0]
        assert kld["n"] == 4 * 127
        assert f"| `mean_kld` | {kld['value']:.4g}" in world.run.report.read_text()
        seen[model] = kld["value"], agreement["value"], done.json["decision"]
        assert world.serves()
        # the second model is compared with what the first one's step has sealed
        assert view.measured["quality"].quality["before"] is (model == "Q4_0.gguf")
    assert seen["Q8_0.gguf"][0] < seen["Q4_0.gguf"][0]
    assert seen["Q8_0.gguf"][1] > seen["Q4_0.gguf"][1]
    assert [one[2] for one in seen.values()] == ["go", "no_go"]
    sealed = list(Path(world.env["XDG_CACHE_HOME"]).glob("omni-console/quality/*"))
    assert [path.suffix for path in sealed] == [".logits"]
    log = (world.run.path / "attempts" / "quality.1.log").read_text()
    assert "calculating perplexity" not in log


@pytest.mark.engine
def test_another_image_is_compared_with_the_baselines_own(
    graded: Boxes,
) -> None:
    """The same model: each image's own tool reads it, and they agree."""
    world = graded.world
    graded.docker("tag", graded.image, f"omni-test/next:{graded.base_name}")
    site = json.loads(graded.site(container=graded.base_name))
    candidate = graded.candidate("deepseek2.gguf")
    candidate["container"]["image"] = f"omni-test/next:{graded.base_name}"
    site["services"] = {"cand": candidate}
    site["baseline"]["models"] = [str(graded.models / "deepseek2.gguf")]
    world.site.write_text(json.dumps(site))
    step = "id: quality, quality: {service: cand, chunks: 4, ctx: 256}"
    judge = "id: judge, gate: [{metric: quality.mean_kld, go: '<= 0.001'}]"
    done = world.go(world.write("b.yaml", book(step, judge)))
    assert (done.code, done.json["decision"]) == (0, "go"), done
    assert world.view().metrics["quality"]["top1_agreement"]["value"] == 1.0
    assert "against the same by the baseline's own build" in world.run.report.read_text()
    assert world.serves()


@pytest.mark.engine
def test_a_build_without_the_tool_says_so_and_the_baseline_comes_back(graded: Boxes) -> None:
    with_model(graded, "Q8_0.gguf")
    world = graded.world
    asked = ASKED.format(base=graded.models / "whole.gguf") + ", program: [llama-nothing]"
    done = world.go(world.write("b.yaml", book(f"id: quality, quality: {{{asked}}}")))
    assert done.code != 0
    step = world.view().step("quality")
    assert step is not None
    assert "llama-nothing" in step.detail
    assert world.serves()
