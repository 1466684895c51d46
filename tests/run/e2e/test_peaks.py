"""A real run records the machine: scripted cards through the real pynvml, a real runner."""

from __future__ import annotations

import signal
from pathlib import Path

import psutil
import pytest

from console.journal.samples import gauge_lines
from tests.run.e2e.sites import book
from tests.run.e2e.world import World
from tests.testbed.nvml import ERROR_GPU_IS_LOST, MIB, RTX_5090, RTX_PRO_6000, Nvml

PEAK, LOW = 90_001 * MIB, 700 * MIB
DRIVER_NOT_LOADED = 9
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


def test_a_gate_sees_what_happened_a_moment_before_it(
    world: World, nvml: Nvml, tmp_path: Path
) -> None:
    script, full = cards(nvml, tmp_path / "cards", LOW), cards(nvml, tmp_path / "full", PEAK)
    load = f"id: load, run: [mv, {full}, {script}]"
    gate = GATE.replace("117GB", "80GB")
    path = world.write("b.yaml", book(waits(world, "seen", LOW), load, gate))
    done = world.go(path, **nvml.env(script))
    assert (done.code, done.json["decision"]) == (3, "no_go"), done


@pytest.mark.parametrize("how", ["no driver", "hangs", "lost"])
def test_cards_that_do_not_answer_hurt_no_run(
    world: World, nvml: Nvml, tmp_path: Path, how: str
) -> None:
    script = tmp_path / "cards"
    if how == "lost":
        fail = {"nvmlDeviceGetMemoryInfo": ERROR_GPU_IS_LOST}
        nvml.write(script, (RTX_PRO_6000.but(lost=True, fail=fail), RTX_5090))
    elif how == "hangs":
        nvml.write(script, hang={"all": 600})
    else:
        nvml.write(script, fail={"nvmlInitWithFlags": DRIVER_NOT_LOADED})
    steps = ["id: a, note: nothing", "id: b, run: ['true']", "id: c, run: [sleep, '1.5']"]
    if how != "hangs":  # a gate would wait for it, until it is not sure any more
        steps.append(GATE)
    done = world.go(world.write("b.yaml", book(*steps)), **nvml.env(script))
    view = world.view()
    assert (done.code, str(view.state)) == (0 if how == "hangs" else 4, "succeeded"), done
    assert [v.verdict for v in view.verdicts] == ([] if how == "hangs" else ["HOLD"])
    assert view.peaks["host"]["ram_used"] > 0
    known = {uuid: card["used"] for uuid, card in view.peaks["gpu"].items()}
    assert RTX_PRO_6000.uuid not in known or known[RTX_PRO_6000.uuid] is None
    if how != "lost":
        assert known == {}
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
