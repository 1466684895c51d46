"""A real run records the machine: scripted cards through the real pynvml, a real runner."""

from __future__ import annotations

import signal
from pathlib import Path

import psutil

from console.journal.samples import gauge_lines
from tests.run.e2e.sites import book
from tests.run.e2e.world import World
from tests.testbed.nvml import MIB, RTX_5090, RTX_PRO_6000, Nvml

PEAK, LOW = 90_001 * MIB, 700 * MIB
GATE = "id: go, gate: [{metric: gpu.peak_used, of: sum, go: '<= 117GB'}]"


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
    assert view.peaks["gpu"] == {
        RTX_PRO_6000.uuid: {"used": PEAK, "temperature": 71.0},
        RTX_5090.uuid: {"used": RTX_5090.mem_used, "temperature": 35.0},
    }
    assert view.peaks["n"] >= 2
    assert [v.verdict for v in view.verdicts] == ["GO"]
    assert 0 < view.peaks["host"]["ram_used"] < psutil.virtual_memory().total
    lines = gauge_lines(world.run.gauges)
    assert max(one["gpu"].get(RTX_PRO_6000.uuid, 0) for one in lines) == PEAK
    assert lines[-1]["gpu"][RTX_PRO_6000.uuid] == LOW
    assert {one["step"] for one in lines} >= {"load", "free"}
    world.until(lambda: not readers(world), "no reader is left")


def test_cards_that_hang_hurt_no_run(world: World, nvml: Nvml, tmp_path: Path) -> None:
    script = nvml.write(tmp_path / "cards", hang={"all": 600})
    done = world.go(world.write("b.yaml", book("id: c, run: [sleep, '1.5']")), **nvml.env(script))
    view = world.view()
    assert (done.code, str(view.state), view.peaks["gpu"]) == (0, "succeeded", {}), done
    assert view.peaks["host"]["ram_used"] > 0
    world.until(lambda: not readers(world), "no reader is left")
    world.dead()


def test_a_resumed_run_says_that_nobody_looked(world: World, nvml: Nvml, tmp_path: Path) -> None:
    script = cards(nvml, tmp_path / "cards", LOW)
    wait = f"id: b, idempotent: true, script: 'until test -e {world.root}/go; do sleep 0.05; done'"
    path = world.write("b.yaml", book(waits(world, "a", LOW), wait))
    world.detach(path, **nvml.env(script))
    world.step("b", "running")
    before = world.view().peaks
    assert before["gpu"][RTX_PRO_6000.uuid]["used"] == LOW
    world.kill("runner", signal.SIGKILL)
    world.dead()
    world.until(lambda: not readers(world), "the reader ends with its runner")
    assert world.console("resume", "--detach", **nvml.env(script)).code == 0
    (world.root / "go").touch()
    view = world.over()
    card = view.peaks["gpu"][RTX_PRO_6000.uuid]
    assert (card["used"], card["seen"]["used"]) == (None, LOW)
    assert "nobody looked" in card["why"]["used"]
    assert view.peaks["host"]["ram_used"] is None
