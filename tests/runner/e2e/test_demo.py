"""`make run`'s command: real engines, a real measurement, and the verdict."""

import json
import re
from xml.etree import ElementTree

import pytest

from console.host import ports, process
from console.rehearsal.demo import passage
from tests.runner.e2e.world import World

STATE = "state/omni-console"
SCOPES = ("bench", "bench.baseline")


@pytest.fixture
def demo(bare: World) -> World:
    """A world in which nothing was ever configured."""
    del bare.env["OMNI_SITE"]
    return bare


def check_report(world: World) -> None:
    """Read alone it says what was decided and why, on which machine, with charts beside it."""
    text = world.run.report.read_text()
    assert text.startswith("# Does the candidate beat the baseline?\n\n**GO (migrate).** Gate go: ")
    found = json.loads(world.run.report_json.read_text())
    figure = f"{found['metrics']['bench']['tok_s']['value']:.4g}"
    assert text.count(figure) >= 3, "the same digits wherever it stands"
    for words in (
        "| Kernel | ",
        "console.rehearsal.demo.engine --model models/fast.gguf",
        "no soak ran",
    ):
        assert words in text
    links = re.findall(r"\]\((report/[a-z-]+\.svg)\)", text)
    assert links == ["report/samples-bench.svg", "report/memory.svg"]
    for link in links:
        ElementTree.parse(world.run.path / link)
    written = world.console("report", "--to", "evaluation.md")
    assert written.code == 0, written
    assert "](evaluation/memory.svg)" in (world.root / "evaluation.md").read_text()
    assert (world.root / "evaluation" / "samples-bench.svg").exists()


def baseline_of(world: World) -> str:
    """The URL at which the demo's baseline serves."""
    url = re.search(r"http://127\.0\.0\.1:\d+", (world.root / STATE / "demo/site.yaml").read_text())
    assert url is not None
    assert world.serves(url[0])
    return url[0]


def stop(world: World, url: str) -> None:
    """`demo --stop` ends everything and leaves nothing behind; again, it has nothing to do."""
    server = ports.listener(url)
    assert server is not None
    start = process.start_time(server.pid) or 0
    assert world.console("demo", "--stop").code == 0
    # another demo on this machine may have the port by now
    assert not process.alive(server.pid, start)
    world.until(lambda: not world.mine(), "every process of the demo has ended")
    assert list((world.root / "state").rglob("*")) in ([], [world.root / STATE])
    assert world.console("demo", "--stop").code == 0


def test_the_demo_shows_progress_decides_reports_and_leaves_nothing_behind(demo: World) -> None:
    fast = demo.console("demo")
    assert fast.code == 0, fast
    lines = fast.out.splitlines()
    assert any(
        re.match(r"\[4/\d+\] ✓ bench succeeded in .* tok/s, \d+ valid runs", x) for x in lines
    )
    assert any(line.startswith("decision: GO (migrate)") for line in lines)
    check_report(demo)
    stop(demo, baseline_of(demo))


@pytest.mark.timeout(900)
def test_a_slow_candidate_is_a_no_go(demo: World) -> None:
    slow = demo.console("demo", "--candidate", "slow", "--json")
    assert (slow.code, slow.json["decision"], slow.json["outcome"]) == (3, "no_go", "retain"), slow
    stop(demo, baseline_of(demo))


@pytest.mark.timeout(900)
def test_a_garbled_candidate_is_a_no_go_with_both_answers(demo: World) -> None:
    """It is as fast as the one that wins, and healthy; the run ends where its answers are read."""
    done = demo.console("demo", "--candidate", "garbled", "--json")
    assert (done.code, done.json["decision"]) == (3, "no_go"), done
    [verdict] = demo.view().verdicts
    assert verdict.step == "bench"
    assert "answers are garbled: one " in verdict.criteria[0]["why"]
    found = demo.view().measured
    prompts = [{row["prompt"]: row for row in found[at].benchmark["answers"]} for at in SCOPES]
    candidate, baseline = prompts
    assert candidate
    assert baseline.keys() >= candidate.keys()
    report = demo.run.report.read_text()
    assert report.startswith("# Does the candidate beat the baseline?\n\n**NO-GO")
    for prompt, row in candidate.items():
        assert row["garbled"]
        assert not baseline[prompt]["garbled"]
        assert baseline[prompt]["answer"][:40] in " ".join(2 * passage.SENTENCES)
        assert baseline[prompt]["answer"][:40] in report
    stop(demo, baseline_of(demo))
