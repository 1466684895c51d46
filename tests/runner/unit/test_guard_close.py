"""What the closer makes of a breach: events, the step, who, the state's reason; and the sheet."""

import json
import os
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import pytest

from console.common.errors import UsageError
from console.frontends.cli.run import lease_of
from console.host import process
from console.host.process import ProcessSpec
from console.host.sample import Machine
from console.journal import events
from console.journal.run_view import RunView
from console.journal.state import StepState
from console.models.sizing.load_curve import Envelope, Point
from console.recovery.guard import config as guard_config
from console.recovery.guard.config import Limit
from console.recovery.rollback.sealed_plan import Baseline, EngineAddress, SealedPlan
from console.render.report.memory import card_names
from console.runner.guard import limits
from console.runner.recover import close_after_rollback
from tests.clock import FakeClock
from tests.runner.unit.conftest import Bench, Look, mine
from tests.testbed.nvml import RTX_5090, Nvml

GIB = 1 << 30


@pytest.fixture(autouse=True)
def _down(bench: Bench) -> None:
    """It is in its outage, at its first step."""
    context = bench.context
    context.guard = None
    names = ("id", "title", "phase", "kind")
    steps = [{name: getattr(step, name) for name in names} for step in context.plan.steps]
    context.record(events.RunCreated(run_id="r1", steps=steps))
    context.record(events.Outage(down=True))
    context.record(events.StepStateChange(state=StepState.RUNNING), "up", 1)


def closed(bench: Bench, serving: bool = True, trigger: str = "warm-1") -> RunView:
    line = {"trigger": trigger, "rung": "done", "state": "ok", "serving": serving, "restore_s": 4.2,
            "detail": "", "at": 1.0, "t": 4.2}  # fmt: skip
    bench.context.run.ladder.write_text(json.dumps(line) + "\n")
    close_after_rollback(bench.context)
    return bench.context.view


def test_a_breach_is_written_down_as_one(bench: Bench) -> None:
    bench.breach(killed=[{"name": "cand (pid 7)", "kind": "process"}])
    view = closed(bench)
    step, restore = view.step("up"), view.step("restore")
    assert step is not None
    assert restore is not None
    assert (str(view.state), view.reason, view.outage) == ("rolled_back", "guard", False)
    assert (str(step.state), step.cause, str(restore.state)) == ("cancelled", "guard", "succeeded")
    assert "RAM available below 2.0 GiB" in step.detail
    assert (view.verbs[-1].who, view.verbs[-1].why) == ("the sentinel", view.guards[0].words)
    assert view.breach is not None
    assert view.breach.body.killed[0]["name"] == "cand (pid 7)"
    bench.context.record(events.Outage(down=True))
    assert len(closed(bench).guards) == 1, "an emergency later is nobody's breach"
    assert view.verbs[-1].who == "the emergency key"


def test_everything_is_named_by_identity(bench: Bench) -> None:
    plan = SealedPlan(
        "run", str(bench.context.run.path), Baseline("baseline", "container", "http://127.0.0.1:1",
                                                     container_id="b" * 64, container_name="base"),
        protected=("qdrant", "base"), gpus=("GPU-a",), engine=EngineAddress("/run/d.sock"),
    )  # fmt: skip
    made = limits.make(bench.context, plan)
    assert made.spare == ("b" * 64, "qdrant", "base")
    assert (made.gpus, made.engine, made.runner) == (("GPU-a",), "/run/d.sock", mine())
    assert made.logs["cand"].endswith("/logs/cand.log")
    assert made.lease_s == 0.0
    limits.write(made)
    assert guard_config.read(made.directory / guard_config.CONFIG_FILE) == made
    assert (made.directory / guard_config.CONFIG_FILE).stat().st_mode & 0o077 == 0


def test_a_baseline_that_is_a_process_is_spared_by_its_record(bench: Bench, tmp_path: Path) -> None:
    spec, records = ProcessSpec(("x",)), tmp_path / "records"
    process.write_record(records, "baseline", spec, *mine())
    base = Baseline("baseline", "process", "http://127.0.0.1:1", process=spec,
                    records_dir=str(records))  # fmt: skip
    assert limits.make(bench.context, SealedPlan("run", "", base)).spare_pids == (mine(),)


ENVELOPE = Envelope((Point("serving", 9.0, 12 * GIB, vram=(("RTX 5090", GIB), ("odd", 1))),))


def test_a_load_is_held_to_what_was_judged_to_fit(bench: Bench) -> None:
    bench.context.record(events.Envelope(envelope=ENVELOPE.to_json()), "fit", 1)
    assert limits.predicted(bench.context.view) == Envelope(), "not judged yet"
    words = {"GO": True, "GO-STREAMING": True, "TIGHT": True, "NO-GO": False, "UNKNOWN": False}
    for word, kept in words.items():
        criteria = [{"metric": word, "verdict": "GO", "why": ""}]
        bench.context.record(events.Verdict(verdict="GO", criteria=criteria), "fit", 1)
        assert limits.predicted(bench.context.view) == (ENVELOPE if kept else Envelope()), word


def test_cards_are_named_as_the_sentinel_sees_them(bench: Bench) -> None:
    cards = [{"uuid": "GPU-b", "name": "NVIDIA GeForce RTX 5090"}]
    bench.context.view.header = events.RunCreated(machine={"cards": cards})
    (name,) = card_names(bench.context.view).values()
    envelope = Envelope((Point("serving", 9.0, 1, vram=((name, GIB), ("odd", 1))),))
    (point,) = limits.by_uuid(envelope, bench.context.view).points
    assert point.vram == (("GPU-b", GIB), ("odd", 1))


def test_the_nearest_lease_counts(bench: Bench) -> None:
    with pytest.raises(UsageError, match="--lease 30"):
        lease_of(Namespace(lease="30"))
    for text, seconds in ((None, None), ("0", 0.0), ("30m", 1800.0)):
        assert lease_of(Namespace(lease=text)) == seconds
    plan = bench.context.plan
    assert limits.lease_of(plan, None) == 0.0
    assert limits.lease_of(plan, 90.0) == 90.0
    book = plan.playbook
    model = book.model.model_copy(update={"lease": 1800.0})
    leased = replace(plan, playbook=replace(book, model=model))
    assert limits.lease_of(leased, None) == 1800.0
    assert limits.lease_of(leased, 0.0) == 0.0, "--lease 0 takes it away"


@pytest.mark.parametrize(
    ("limit", "unfit", "acts_always"),
    [
        (Limit("host.ram_available", below=2 * GIB), False, False),
        (Limit("host.ram_available", below=9 * GIB), True, True),
        (Limit("host.swap_used", above=9 * GIB), True, False),
        (Limit("service.ram_used", above=8 * GIB), True, False),
        (Limit("service.ram_used", above=7 * GIB), False, False),
        (Limit("host.swap_growth", above=GIB), True, False),
        (Limit("service.oom_kills", above=0.0, of="cand"), True, False),
        (Limit("service.restarts", above=0.0, of="cand"), True, False),
        (Limit("service.oom_kills", above=0.0, of="box"), False, False),
    ],
)
def test_which_guards_do_not_fit_a_machine(
    bench: Bench, limit: Limit, unfit: bool, acts_always: bool
) -> None:
    plan, machine = bench.context.plan, Machine(ram_total=8 * GIB, swap_total=GIB)
    plan = replace(plan, playbook=replace(plan.playbook, guards=(replace(limit, source="a"),)))
    assert [words[-3:] for words in limits.misfits(plan, machine)] == ["(a)"] * unfit
    assert len(limits.misfits(plan, machine, always=True)) == acts_always


@pytest.mark.parametrize(
    ("breach", "trigger", "state", "reason", "cause"),
    [
        ({"cause": "lease"}, "sentinel-1", "rolled_back", "lease", "expired"),
        ({"cause": "allocation"}, "sentinel-1", "rolled_back", "allocation", "expired"),
        (None, "lease-1", "rolled_back", "lease", "expired"),
        (None, "warm-1", "rolled_back", "emergency", ""),
        ({}, "sentinel-1", "rollback_failed", "guard", "guard"),
    ],
)
def test_what_else_a_rollback_is_written_down_as(
    bench: Bench, breach: dict[str, str] | None, trigger: str, state: str, reason: str, cause: str
) -> None:
    if breach is not None:
        bench.breach(**breach)
    view = closed(bench, state == "rolled_back", trigger)
    found = [step.cause for step in view.steps if step.id == "up"]
    assert (str(view.state), view.reason, found) == (state, reason, [cause])
    assert len(view.guards) == (breach is not None)


def test_what_the_baseline_gives_back_is_counted(held: Look) -> None:
    limit = Limit("host.ram_available", below=60 * GIB, source="site, line 3")
    (found,) = held(limit, given_back=10 * GIB)
    assert found.stops
    assert "50.0 GiB, below 60.0 GiB (site, line 3)" in found.words
    assert held(limit, given_back=30 * GIB) == []
    (found,) = held(limit)
    assert not found.stops, "how much it gives back is not known"
    (found,) = held(limit, outage=False)
    assert found.stops


def test_the_cards_are_those_that_the_sentinel_will_read(
    nvml: Nvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in nvml.env(tmp_path / "script").items():
        monkeypatch.setenv(name, value)
    nvml.write(tmp_path / "script", (RTX_5090,))
    (gpu,) = limits.read_cards(60.0).gpus
    figures = (gpu.uuid, gpu.used_bytes, gpu.temperature_c)
    assert figures == (RTX_5090.uuid, RTX_5090.mem_used, RTX_5090.temp)


def test_what_is_about_a_load_waits_for_it(held: Look) -> None:
    for limit in (Limit("host.swap_growth", above=1.0), Limit(log="cand", matches="x")):
        assert held(limit) == []


def test_a_pace_is_looked_at_for_a_while(held: Look, clock: FakeClock) -> None:
    before = clock.monotonic()
    assert held(Limit("host.time_to_full", below=20.0)) == []
    assert clock.monotonic() - before >= limits.SAMPLE_S


def test_what_a_process_holds_and_which_disk_is_asked(tmp_path: Path) -> None:
    assert limits.existing(tmp_path / "a" / "b") == limits.existing(tmp_path) == tmp_path
    assert (limits.held_by(os.getpid()) or 0) > 1 << 20
    assert limits.held_by(2**22 + 1) is None
