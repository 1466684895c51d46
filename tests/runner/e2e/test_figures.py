"""Figures of real engines and of llama-bench, and of cards: scripted ones by the real pynvml."""

import contextlib
import json
import re
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest

from console.common.errors import ConsoleError
from console.journal.samples import gauge_lines
from console.runtime.answers.completion import complete
from tests.forward import forward
from tests.runner.e2e.boxes import Boxes
from tests.runner.e2e.sites import SIDE, UP, book
from tests.runner.e2e.world import World, free_port
from tests.testbed.nvml import MIB, RTX_5090, RTX_PRO_6000, Nvml

PEAK, LOW = 90_001 * MIB, 700 * MIB
GATE = "id: go, gate: [{metric: gpu.peak_used, of: sum, go: '<= 117GB'}]"


def bench(**more: Any) -> str:
    keys = {"service": "side", "max_tokens": 64, "runs": 5, "max_runs": 5, **more}
    return f"id: bench, benchmark: {json.dumps(keys)}"


def test_a_benchmark_keeps_what_it_was_taken_in(world: World) -> None:
    """The plain endpoint, two streams at once, and the machine around it."""
    steps = (SIDE, bench(endpoint="completions", concurrency=[2]))
    done = world.go(world.write("b.yaml", book(*steps)))
    assert done.code == 0, done
    found = world.view().measured["bench"].benchmark
    context = found["context"]
    assert "console.rehearsal.demo.engine" in context["server"]["argv"]
    assert (context["slots"], context["runs"]) == (1, 6)
    assert isinstance(context["swapped_in"], int)
    assert isinstance(context["server_major_faults"], int)
    assert (found["protocol"]["endpoint"], found["protocol"]["levels"]) == ("completions", [2])
    (level,) = found["levels"]
    assert (level["streams"], level["valid"], level["voids"]) == (2, 6, {})
    assert len(world.view().metrics["bench"]["tok_s"]["samples"]) == 5
    kept = json.loads(Path(found["file"]).read_text())
    assert [run["completion_tokens"] for run in kept["runs"]] == [64] * 5


def test_a_busy_baseline_makes_every_run_void_and_no_gate_go(bare: World) -> None:
    """It serves on while a candidate is measured beside it, on the same two cores."""
    world, site = bare, json.loads(bare.site.read_text())
    # with one thread among many busy ones of others it might not get the share that counts
    site["baseline"]["process"]["argv"] += ["--threads", "2"]
    world.site.write_text(json.dumps(site))
    world.bring_up()
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            with contextlib.suppress(ConsoleError):
                complete(world.base_url, max_tokens=100, timeout_s=60.0)

    threads = [threading.Thread(target=ask) for _ in range(2)]  # one waits while one is served
    world.runner_with("from console.bench import benchmark\nbenchmark.WAIT_S = 1.0\n")
    judge = 'id: go, gate: [{metric: bench.tok_s, go: "> 0.001 tok/s"}]'
    step = f"{bench(max_tokens=1500, runs=3, max_runs=3, warmup=0)}, on_failure: continue"
    path = world.write("b.yaml", book(SIDE, step, judge))
    for thread in threads:
        thread.start()
    try:
        done = world.go(path)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert (done.code, done.json["decision"]) == (4, "hold"), done
    ended = world.at("bench")
    # a run that the others left alone for its few milliseconds counts, and is not enough
    used = re.compile(
        r"(not sent: baseline answers \d requests? of others|others used baseline at the same time)"
    )
    assert used.search(ended.detail)
    assert all(used.match(line) for line in ended.lines)
    (row,) = world.view().verdicts[0].criteria
    assert row["verdict"] == "HOLD"


@pytest.mark.engine
def test_baseline_candidate_baseline_in_containers(box: Boxes) -> None:
    """Images, flags and processes of both are known, and nothing came from a cache."""
    steps = (
        UP,
        "id: bench, benchmark: {service: cand, max_tokens: 96, runs: 3, against: baseline}",
    )
    done = box.world.go(box.world.write("b.yaml", book(*steps)))
    assert done.code == 0, done
    found = box.world.view().measured
    scopes = ("bench", "bench.baseline", "bench.baseline-after")
    cand, before, after = (found[scope].benchmark for scope in scopes)
    for one in (cand, before, after):
        server = one["context"]["server"]
        assert server["image_id"].startswith("sha256:")
        assert server["argv"][0].endswith("llama-server")
        assert isinstance(one["context"]["server_major_faults"], int), "its processes are known"
        for run in json.loads(Path(one["file"]).read_text())["runs"]:
            assert (run["completion_tokens"], run["void"]) == (96, "")
            assert run["server_decode_tok_s"] > 0
    assert "/models/tiny.gguf" in cand["context"]["server"]["argv"]
    assert "/models/deepseek2.gguf" in after["context"]["server"]["argv"]


@pytest.mark.engine
def test_a_published_container_and_a_forward_to_it_are_measured(box: Boxes) -> None:
    """The engine's proxy holds the port, or a firewall's rule leads on; the process that computes
    is the container's, and is nobody's foreign load. Behind a forward it is not known who answers,
    and its work is no foreign load either (field B4)."""
    asked = ("bench", box.world.base_url, "--runs", "2", "--max-tokens", "128", "--json")
    done = box.world.console(*asked)
    assert (done.code, done.json["voids"]) == (0, []), done
    assert done.json["context"]["server_major_faults"] is not None, "its processes are known"
    [told] = done.json["context"]["requests"]
    assert (told["known"], told["beside"]) == (True, 0)
    with forward(free_port(), box.world.base_port) as url:
        done = box.world.console("bench", url, *asked[2:])
    assert (done.code, done.json["voids"]) == (0, []), done
    assert any("which server answered is not known" in flag for flag in done.json["flags"])


@pytest.mark.engine
def test_a_real_llama_bench(box: Boxes) -> None:
    """In one-off containers, its log in the same stream as its result, in each of its forms."""
    where = {"image": box.image, "mounts": [f"{box.models}:/models:ro"], "memory": "512MiB"}
    counts = {"json": 5, "jsonl": 5, "md": 1}
    steps: list[str] = []
    for form in counts:
        argv = ["llama-bench", "-m", "/models/tiny.gguf", "-p", "32", "-n", "16", "-t", "1"]
        step = f"id: {form}, run: {json.dumps([*argv, '-o', form])}, where: {json.dumps(where)}"
        steps.append(f"{step}, figures: llama-bench")
    asked = [
        f"{{metric: {form}.tg_tok_s, go: '> 0.001 tok/s', min_samples: {min(count, 3)}}}"
        for form, count in counts.items()
    ]
    judge = f"id: go, gate: [{', '.join(asked)}]"
    done = box.world.go(box.world.write("b.yaml", book(*steps, judge)))
    assert (done.code, done.json["decision"]) == (0, "go"), done
    for form, count in counts.items():
        for name, test in (("tg_tok_s", "tg16"), ("pp_tok_s", "pp32")):
            found = done.json["metrics"][form][name]
            assert (found["test"], found["n"]) == (test, count)
            assert found["value"] > 0
            assert found["std"] >= 0
    told = {name: one.benchmark["flags"] for name, one in box.world.view().measured.items()}
    table = "from the table, which omits single samples: n is 1"
    assert told == {"json": [], "jsonl": [], "md": [table]}


def waits(world: World, name: str, used: int, before: str = "") -> str:
    """A step: shell `before`, then until the runner has seen the first card so full."""
    gauges = f"{world.root}/state/omni-console/runs/*/samples/gauges.jsonl"
    seen = f"tail -n 1 {gauges} | grep -q '{RTX_PRO_6000.uuid}.:{used}[,}}]'"
    file = world.write(f"{name}.sh", f"{before}\nuntil {seen}; do sleep 0.05; done\n")
    return f"id: {name}, run: [sh, {file}]"


def cards(nvml: Nvml, path: Path, used: int) -> Path:
    return nvml.write(path, (RTX_PRO_6000.but(mem_used=used, temp=71), RTX_5090))


def readers(world: World) -> list[int]:
    """GPU readers of this world's runners."""
    found = []
    for pid, _ in world.mine():
        try:
            found += [pid] if "console.host.gpu.child" in psutil.Process(pid).cmdline() else []
        except psutil.Error:
            continue
    return found


def test_the_peak_of_a_run_is_kept_when_the_card_is_empty_again(
    world: World, nvml: Nvml, tmp_path: Path
) -> None:
    script = cards(nvml, tmp_path / "cards", LOW)
    full, empty = cards(nvml, tmp_path / "full", PEAK), cards(nvml, tmp_path / "empty", LOW)
    steps = (
        waits(world, "load", PEAK, f"cp {full} {script}.n && mv {script}.n {script}"),
        waits(world, "free", LOW, f"cp {empty} {script}.n && mv {script}.n {script}"),
    )
    path = world.write("b.yaml", book(*steps, "id: z, note: nothing", GATE))
    done = world.go(path, **nvml.env(script))
    assert world.runs, done
    view = world.view()
    assert str(view.state) == "succeeded", done
    assert view.peaks.gpu == {
        RTX_PRO_6000.uuid: {"used": PEAK, "temperature": 71.0},
        RTX_5090.uuid: {"used": RTX_5090.mem_used, "temperature": 35.0},
    }
    assert view.peaks.n >= 2
    assert [v.verdict for v in view.verdicts] == ["GO"]
    assert 0 < view.peaks.host["ram_used"] < psutil.virtual_memory().total
    lines = gauge_lines(world.run.gauges)
    assert max(one["gpu"].get(RTX_PRO_6000.uuid, 0) for one in lines) == PEAK
    assert lines[-1]["gpu"][RTX_PRO_6000.uuid] == LOW
    assert {one["step"] for one in lines} >= {"load", "free"}
    world.until(lambda: not readers(world), "no reader is left")


def test_a_resumed_run_says_that_nobody_looked(world: World, nvml: Nvml, tmp_path: Path) -> None:
    script = cards(nvml, tmp_path / "cards", LOW)
    wait = f"id: b, idempotent: true, script: 'until test -e {world.root}/go; do sleep 0.05; done'"
    path = world.write("b.yaml", book(waits(world, "a", LOW), wait))
    world.detach(path, **nvml.env(script))
    world.step("b", "running")
    before = world.view().peaks
    assert before.gpu[RTX_PRO_6000.uuid]["used"] == LOW
    world.interrupt()
    world.until(lambda: not readers(world), "the reader ends with its runner")
    assert world.console("resume", "--detach", **nvml.env(script)).code == 0
    (world.root / "go").touch()
    view = world.over()
    card = view.peaks.gpu[RTX_PRO_6000.uuid]
    assert (card["used"], card["seen"]["used"]) == (None, LOW)
    assert "nobody looked" in card["why"]["used"]
    assert view.peaks.host["ram_used"] is None
