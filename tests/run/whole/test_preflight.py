"""Preflight steps and downloads in whole runs, against a hub of true shapes over loopback."""

from __future__ import annotations

import json

from console.models.sizing.load_curve import Envelope
from tests.run.e2e.sites import book
from tests.run.scenes import BIG, SMALL, output
from tests.run.world import WorldBase as World
from tests.testbed.hub import LocalHub

FIT = f"id: fit, checkpoint: {{repo: {BIG}, loader: resident}}"


def test_642_gib_that_cannot_fit_end_a_run_before_anything_is_paid(
    world: World, hub: LocalHub
) -> None:
    late = "id: late, run: [touch, paid]"
    done = world.go(world.write("b.yaml", book(FIT, late)))
    assert done.code == 3, done
    assert done.json["decision"] == "no_go"
    said = output(world, "fit")
    for words in ("163 files, 642.0 GiB (689.3 GB)", "RTX PRO 6000", "short", "The three biggest"):
        assert words in said, said
    assert "NO-GO" in world.run.report.read_text()
    assert not (world.root / "paid").exists()
    envelope = Envelope.from_json(done.json["envelopes"]["fit"])
    assert envelope.points
    assert "Memory predicted by `fit`" in world.run.report.read_text()
    assert world.serves()


def test_a_no_go_is_downloaded_only_when_somebody_types_it(world: World, hub: LocalHub) -> None:
    small = f"id: fit, checkpoint: {{repo: {SMALL}, engine: sglang}}, on_no_go: continue"
    fetch = "id: fetch, download: {of: fit, to: weights}"
    path = world.write("b.yaml", book(small, fetch))
    done = world.go(path)
    assert "nobody is here to type an override" in str(done.json["steps"]), done
    assert not (world.root / "weights/model.gguf").exists()
    world.detach(path)
    world.state("waiting_approval")
    wrong = world.tell("approve")
    assert wrong.code != 0
    assert "download anyway" in wrong.err
    assert world.tell("approve", "--confirm", "download anyway").code == 0
    view = world.over()
    step = view.step("fetch")
    assert step is not None
    assert "override of fit's NO-GO, approved by" in step.detail
    assert "sizes verified" in step.detail
    assert (world.root / "weights/model.gguf").stat().st_size == 300_000
    assert any(verb["verb"] == "approve" for verb in view.verbs)


def test_a_download_that_is_aborted_leaves_no_child(world: World, hub: LocalHub) -> None:
    held = hub.hold("model.gguf", 1000)
    fetch = f"id: fetch, download: {{repo: {SMALL}, to: weights}}"
    world.detach(world.write("b.yaml", book(fetch)))
    world.until(lambda: world.pids("step"), "the download's child is named")
    assert world.tell("abort").code == 0
    view = world.over()
    held.release()
    assert str(view.state) == "cancelled"
    assert not world.pids("step")


def test_a_repository_that_is_not_to_be_had_is_said_in_words(world: World, hub: LocalHub) -> None:
    wanted = {
        "gated": "NO-GO: access: example/gated is gated",
        "empty": "example/empty is empty",
        "nobody": "missing, private or gated",
    }
    steps = [
        f"id: {name}, checkpoint: {{repo: example/{name}, loader: resident}}, "
        "on_no_go: continue, on_failure: continue"
        for name in wanted
    ]
    done = world.go(world.write("b.yaml", book(*steps)))
    assert done.code == 3, done
    shown = {step["id"]: json.dumps(step) for step in done.json["steps"]}
    for verdict in done.json["verdicts"]:
        shown[verdict["step"]] += json.dumps(verdict)
    for name, words in wanted.items():
        assert words in shown[name], shown[name]
        assert words in world.run.report.read_text()


def test_the_host_is_asked_and_what_it_lacks_is_a_no_go(world: World, hub: LocalHub) -> None:
    step = "id: here, host: {method: AMXINT8, ports: [1], disk: {path: ., free: 1MiB}}"
    done = world.go(world.write("b.yaml", book(step)))
    assert done.code == 3, done
    said = output(world, "here")
    assert "AMX" in said
    assert "S-013" in said
    assert "377.0 GiB RAM" in said
