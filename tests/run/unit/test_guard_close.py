"""What the closer makes of a breach: events, the step, who, the state's reason; and the sheet."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from console.common.errors import UsageError
from console.config.playbook.load import load_playbook
from console.frontends.cli.run import lease_of
from console.host import process
from console.host.process import ProcessSpec
from console.host.sample import Machine
from console.journal.run_view import StepView
from console.journal.state import StepState
from console.models.sizing.load_curve import Envelope, Point
from console.recovery.guard import config as guard_config
from console.recovery.guard.config import Limit
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback.sealed_plan import Baseline, EngineAddress, SealedPlan
from console.render.report.memory import card_names
from console.runner.guard import limits
from console.runner.recover import close_after_rollback
from tests.run.unit.conftest import MakePlan
from tests.run.unit.guarded import Bench, mine

UP = "{id: up, service: {start: cand}}"
GIB = 1 << 30


@pytest.fixture
def bench(tmp_path: Path, plan: MakePlan, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    made = Bench(tmp_path, plan(UP, "{id: cmd, run: [x]}"), monkeypatch)
    made.context.guard = None
    steps = [
        {"id": s.id, "title": s.title, "phase": s.phase, "kind": s.kind}
        for s in made.context.plan.steps
    ]
    made.context.record("run.created", run_id="r1", steps=steps)
    made.context.record("outage", down=True)
    made.context.record("step.state", "up", 1, state=str(StepState.RUNNING))
    yield made
    made.close()


def step_of(bench: Bench, name: str) -> StepView:
    step = bench.context.view.step(name)
    assert step is not None
    return step


def climbed(bench: Bench, serving: bool = True) -> None:
    line = {"trigger": "t1", "rung": "done", "state": "ok", "serving": serving, "restore_s": 4.2,
            "detail": "", "at": 1.0, "t": 4.2}  # fmt: skip
    bench.context.run.ladder.write_text(json.dumps(line) + "\n")


def test_a_breach_is_written_down_as_one(bench: Bench) -> None:
    bench.breach(killed=[{"name": "cand (pid 7)", "kind": "process"}])
    climbed(bench)
    close_after_rollback(bench.context)
    view = bench.context.view
    step = step_of(bench, "up")
    assert (str(view.state), view.reason, view.outage) == ("rolled_back", "guard", False)
    assert (str(step.state), step.cause) == ("cancelled", "guard")
    assert "RAM available below 2.0 GiB" in step.detail
    assert str(step_of(bench, "restore").state) == "succeeded"
    assert (view.verbs[-1]["who"], view.verbs[-1]["why"]) == ("the sentinel", view.guards[0].words)
    assert view.breach is not None
    assert view.breach.data["killed"][0]["name"] == "cand (pid 7)"


def test_an_emergency_later_is_nobodys_breach(bench: Bench) -> None:
    bench.breach()
    climbed(bench)
    close_after_rollback(bench.context)
    bench.context.record("outage", down=True)
    close_after_rollback(bench.context)
    view = bench.context.view
    assert len(view.guards) == 1, "written once"
    assert view.verbs[-1]["who"] == "the emergency key"


# -- the sheet -------------------------------------------------------------------------------------


def config(bench: Bench, plan: SealedPlan | None = None) -> guard_config.GuardConfig:
    return limits.make(bench.context, plan or sealed.read(bench.context.run.sealed))


def test_everything_is_named_by_identity(bench: Bench) -> None:
    plan = SealedPlan(
        "run", str(bench.context.run.path), Baseline("baseline", "container", "http://127.0.0.1:1",
                                                     container_id="b" * 64, container_name="base"),
        protected=("qdrant", "base"), gpus=("GPU-a",), engine=EngineAddress("/run/d.sock"),
    )  # fmt: skip
    made = config(bench, plan)
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
    assert config(bench, SealedPlan("run", "", base)).spare_pids == (mine(),)


ENVELOPE = Envelope((Point("serving", 9.0, 12 * GIB, vram=(("RTX 5090", GIB), ("odd", 1))),))


def test_a_load_is_held_to_what_was_judged_to_fit(bench: Bench) -> None:
    bench.context.record("envelope", "fit", 1, envelope=ENVELOPE.to_json())
    assert limits.predicted(bench.context.view) == Envelope(), "not judged yet"
    words = {"GO": True, "GO-STREAMING": True, "TIGHT": True, "NO-GO": False, "UNKNOWN": False}
    for word, kept in words.items():
        criteria = [{"metric": word, "why": ""}]
        bench.context.record("verdict", "fit", 1, verdict="x", criteria=criteria)
        assert limits.predicted(bench.context.view) == (ENVELOPE if kept else Envelope()), word


def test_cards_are_named_as_the_sentinel_sees_them(bench: Bench) -> None:
    cards = [{"uuid": "GPU-b", "name": "NVIDIA GeForce RTX 5090"}]
    bench.context.view.header = {"machine": {"cards": cards}}
    (name,) = card_names(bench.context.view).values()
    envelope = Envelope((Point("serving", 9.0, 1, vram=((name, GIB), ("odd", 1))),))
    (point,) = limits.by_uuid(envelope, bench.context.view).points
    assert point.vram == (("GPU-b", GIB), ("odd", 1))


def test_the_nearest_lease_counts(bench: Bench, tmp_path: Path) -> None:
    plan = bench.context.plan
    assert limits.lease_of(plan, None) == 0.0
    assert limits.lease_of(plan, 90.0) == 90.0
    path = tmp_path / "other.yaml"
    path.write_text("schema: omni.playbook/v1\nname: x\ntitle: t\nlease: 30m\n"
                    "phases: [{title: p, steps: [{id: a, note: x}]}]\n")  # fmt: skip
    leased = replace(plan, playbook=load_playbook(path))
    assert limits.lease_of(leased, None) == 1800.0
    assert limits.lease_of(leased, 0.0) == 0.0, "--lease 0 takes it away"


def test_a_machine_says_which_guards_do_not_fit(bench: Bench) -> None:
    given = (Limit("host.ram_available", below=2 * GIB, source="a"),
              Limit("host.ram_available", below=9 * GIB, source="b"),
              Limit("host.swap_used", above=9 * GIB, source="c"))  # fmt: skip
    plan = bench.context.plan
    plan = replace(plan, playbook=replace(plan.playbook, guards=given))
    machine = Machine(ram_total=8 * GIB, swap_total=GIB)
    assert [w[-3:] for w in limits.misfits(plan, machine)] == ["(b)", "(c)"]
    assert [w[-3:] for w in limits.misfits(plan, machine, always=True)] == ["(b)"]


def test_a_limit_that_never_acts(bench: Bench) -> None:
    plan, machine = bench.context.plan, Machine(ram_total=8 * GIB, swap_total=GIB)
    for limit, never in (
        (Limit("service.ram_used", above=8 * GIB), True),
        (Limit("service.ram_used", above=7 * GIB), False),
        (Limit("host.swap_growth", above=GIB), True),
        (Limit("service.oom_kills", above=0.0, of="cand"), True),
        (Limit("service.restarts", above=0.0, of="cand"), True),
        (Limit("service.oom_kills", above=0.0, of="box"), False),
    ):
        held = replace(plan, playbook=replace(plan.playbook, guards=(limit,)))
        assert len(limits.misfits(held, machine)) == never, limit


def test_a_disk_that_is_not_there_yet_is_the_one_above(tmp_path: Path) -> None:
    assert limits.existing(tmp_path / "a" / "b") == tmp_path
    assert limits.existing(tmp_path) == tmp_path


@pytest.mark.parametrize(
    ("breach", "serving", "state", "reason", "cause"),
    [
        ({"cause": "lease"}, True, "rolled_back", "lease", "expired"),
        (None, True, "rolled_back", "emergency", ""),
        ({}, False, "rollback_failed", "guard", "guard"),
    ],
)
def test_what_else_a_rollback_is_written_down_as(
    bench: Bench, breach: dict[str, str] | None, serving: bool, state: str, reason: str, cause: str
) -> None:
    if breach is not None:
        bench.breach(**breach)
    climbed(bench, serving)
    close_after_rollback(bench.context)
    view = bench.context.view
    assert (str(view.state), view.reason, step_of(bench, "up").cause) == (state, reason, cause)
    assert len(view.guards) == (breach is not None)


def test_a_lease_on_the_command_line() -> None:
    for text, seconds in ((None, None), ("0", 0.0), ("30m", 1800.0)):
        assert lease_of(Namespace(lease=text)) == seconds
    with pytest.raises(UsageError, match="--lease 30"):
        lease_of(Namespace(lease="30"))
