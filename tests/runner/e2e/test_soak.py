"""A soak of a real llama.cpp server that is well, that hangs, or that outlives its runner."""

import signal
from pathlib import Path
from typing import Any

import pytest

from console.host import process
from console.journal.run_view import RunView
from console.journal.samples import soak_lines
from tests.runner.e2e.sites import SIDE, book
from tests.runner.e2e.world import World
from tests.runner.whole.test_soak import answered, figure, lines

PATIENCE = """
from console.bench.soak_stats import Patience
from console.runner.executors import soak
soak.patience_for = lambda context, service: Patience(floor_s=5.0)
"""
CRITERIA = (
    'soak.stability, go: ">= 95 %"', 'soak.errors, go: "== 0"', 'soak.restarts, go: "== 0"',
    'soak.hangs, go: "== 0"', 'soak.rss_growth, go: "< 100MiB"', 'soak.tok_s, go: ">= 1 tok/s"',
    'soak.critical_lines, go: "== 0"',
)  # fmt: skip


def gate(*criteria: str) -> str:
    return "id: stable, gate: [" + ", ".join(f"{{metric: {one}}}" for one in criteria) + "]"


GATE = gate(*CRITERIA)


def soak(duration: str, more: str = "") -> str:
    keys = f"service: side, duration: {duration}, max_tokens: 24, every: 200ms{more}"
    return f"id: soak, soak: {{{keys}}}"


def rows(view: RunView) -> list[dict[str, Any]]:
    return list(soak_lines(Path(view.measured["soak"].soak["file"])))


def test_a_server_that_is_well(world: World) -> None:
    # fixed moments are served as a busy machine can, so none is asked of them
    fixed = soak("8s", ", arrivals: fixed")
    done = world.go(world.write("b.yaml", book(SIDE, fixed, gate(*CRITERIA[1:]))))
    view = world.view()
    assert (done.code, done.json["decision"]) == (0, "go"), done
    last = [row for row in rows(view) if "ok" in row][-1]
    assert figure(view, "observed_s") > 7.99
    assert last["t"] - last["e2e_s"] < 9, "none is sent after its end"
    # a moment each 0.2 s; a busy machine misses some, and never sends one twice
    asked, missed = figure(view, "requests"), view.measured["soak"].soak["missed"]
    assert 3 < asked <= 40 - missed
    assert figure(view, "stability") == pytest.approx(asked / (asked + missed))
    assert (figure(view, "errors"), figure(view, "hangs"), figure(view, "restarts")) == (0, 0, 0)
    assert figure(view, "rss_peak") > 10 * 2**20
    assert figure(view, "ttft_s") > 0
    assert (
        view.measured["soak"].soak["transport_retries"],
        view.measured["soak"].soak["flags"],
    ) == (0, [])
    assert view.metrics["soak"]["vram_peak"]["why"] or figure(view, "vram_peak") > 0
    looks = [row for row in rows(view) if "rss" in row]
    assert len(looks) >= 6
    told = next(row for row in rows(view) if row.get("event") == "server")
    assert set(told["start"]) == {"process", "metrics"}, "llama-server says when it started"
    said = world.at("soak").message
    assert "RSS" in said
    assert "0 errors" in said
    assert "left" in said


def test_a_hang_is_found_long_before_the_request_times_out(world: World) -> None:
    world.runner_with(PATIENCE)
    world.detach(world.write("b.yaml", book(SIDE, soak("12s"), GATE)))
    world.until(lambda: answered(world, 4), "normal is known")
    [(pid, start)] = world.pids("process")
    process.send(pid, start, signal.SIGSTOP)
    world.until(
        lambda: [row for row in lines(world) if row.get("event") == "hang"], "a hang is named"
    )
    process.send(pid, start, signal.SIGCONT)
    view = world.over()
    [hang] = view.measured["soak"].soak["hangs"]
    assert "stopped by a signal" in hang["what"]
    assert "request" in hang["what"]
    assert hang["until"] > hang["t"], "it was answered again"
    assert figure(view, "hangs") == 1
    assert view.measured["soak"].soak["errors"] == {"hang": hang["requests"]}
    assert figure(view, "restarts") == 0
    assert view.metrics["soak"]["observed_s"]["n"] > 5
    assert str(world.at("soak").state) == "succeeded"
    assert str(view.decision) == "no_go"


def test_a_soak_goes_on_under_a_new_runner(world: World) -> None:
    world.detach(world.write("b.yaml", book(SIDE, soak("9s"), GATE)))
    world.until(lambda: answered(world, 4), "the soak has begun")
    world.interrupt()
    before = lines(world)
    done = world.console("resume", "--json")
    view = world.view()
    assert (done.code, done.json["state"], done.json["decision"]) == (0, "succeeded", "go"), done
    assert world.at("soak").attempt == 2
    [(begin, end)] = view.measured["soak"].soak["gaps"]
    assert 0 < begin < end
    observed = figure(view, "observed_s")
    assert observed > 8.99
    again = rows(view)
    whole = [row for row in before if row != again[len(before) - 1]] and before
    assert again[: len(whole)] == whole, "nothing that was seen is lost"
    assert again[-1]["t"] == pytest.approx(observed + end - begin, abs=0.01)
    assert len({row["t"] for row in again if "ok" in row}) > len(
        [row for row in before if "ok" in row]
    )


def test_a_soak_whose_server_died_with_its_runner(world: World) -> None:
    world.detach(world.write("b.yaml", book(SIDE, soak("60s"), GATE)))
    world.until(lambda: answered(world, 5), "the soak has begun")
    world.interrupt()
    world.kill("process")
    assert world.console("resume", "--detach").code == 0
    view = world.state("paused:step_failed")
    assert world.at("soak").cause == "precondition"
    assert figure(view, "requests") >= 5, "what was seen before is on record"
    assert figure(view, "restarts") == 1, "and that it died"
    assert view.metrics["soak"]["requests"]["n"] == 0, "and judges nothing"
