"""Every shipped playbook loads and plans on the example site, and has what the mapping says."""

import json
import os
import re
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from console.cli import main
from console.common.errors import Exit
from console.config.locate import shipped
from console.config.playbook.load import load_playbook
from console.config.playbook.verdict import Criterion, Evidence, Verdict, combine, judge
from console.config.site.site import load_site
from console.config.yaml import parse
from console.rehearsal.speed import target_speeds
from console.runner.prepare.admission import blockers
from console.runner.prepare.plan import Plan, make_plan
from tests.rehearsal.__main__ import DECISIONS, Case

SITE = shipped() / "sites/omni.yaml"
NAMES = sorted(path.stem for path in shipped().glob("*.yaml") if path.stem != "demo")
EXPECTED = [
    "baseline-rebuild", "baseline-verify", "distill-serve", "download-checkpoint",
    "engine-upgrade", "ik-llama-phase2", "kt-sglang-evaluation", "kt-sglang-resurrection",
    "operation-lazarus", "reboot-recovery", "tune-baseline",
]  # fmt: skip
SPEED = re.compile(r"\.(?:tg_)?tok_s$")
BASELINE = 10.9
FOUR = [name for name in EXPECTED if name.startswith(("ik", "kt", "operation"))]
TRIALS = [*FOUR, "baseline-rebuild", "distill-serve"]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("OMNI_SITE", str(SITE))


@cache
def planned(name: str, **inputs: str) -> Plan:
    site = load_site(SITE)
    playbook = load_playbook(shipped() / f"{name}.yaml", inputs, planning=True)
    return make_plan(playbook, site)


def test_these_ship() -> None:
    assert NAMES == EXPECTED


@pytest.mark.parametrize("name", NAMES)
def test_it_plans_by_its_name(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["plan", name, "--json"])
    plan = json.loads(capsys.readouterr().out)
    assert (plan["playbook"], plan["site"]) == (name, "omni")
    assert (code, plan["lint"]) == (Exit.OK, [])
    assert plan["takes_baseline_down"] == (name in (*TRIALS, "engine-upgrade", "tune-baseline"))
    assert [s["id"] for s in plan["steps"]].count("report") == 1


def test_a_trial_of_what_failed_before_is_asked_why() -> None:
    asked = {name: [one.lesson.id for one in blockers(planned(name))] for name in NAMES}
    assert {name: found for name, found in asked.items() if found} == {
        "ik-llama-phase2": ["F-002"], "kt-sglang-evaluation": ["F-019", "F-022"],
        "kt-sglang-resurrection": ["F-019", "F-022"], "operation-lazarus": ["F-018", "F-027"],
    }  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_lessons_stand_beside_few_steps_and_what_takes_long_fits_its_limit(name: str) -> None:
    """A hint at every other step is read at none; looking steps have hints of their own kind."""
    plan = planned(name)
    steps = [step for step in plan.steps if not step.implicit]
    assert sum(len(step.lessons) for step in steps) <= max(1, len(steps) // 2)
    assert not any(s.lessons for s in steps if s.kind in ("note", "report", "check", "gate"))
    assert [s.id for s in plan.steps if s.takes_s is not None and s.takes_s > s.limit_s] == []


def test_every_trial_is_rehearsed_to_each_decision() -> None:
    three = ("go", "hold", "no_go")
    assert [(case.playbook, case.decision) for case in DECISIONS] == [
        (name, decision) for name in reversed(FOUR) for decision in three
    ]


@pytest.mark.parametrize("case", DECISIONS, ids=lambda case: f"{case.playbook}-{case.decision}")
def test_a_trial_can_be_rehearsed_to_each_decision(case: Case) -> None:
    """By the speed of the stand-in alone: whatever else its gates ask for is given."""
    steps = [step for _, step in planned(case.playbook).playbook.steps()]
    gates = [[one for one in step.gate or () if SPEED.search(one.metric)] for step in steps]
    criteria = [one for gate in gates for one in gate]
    targets = target_speeds(criteria, BASELINE)
    speeds = [targets.speed(case.fault), targets.unsteady if case.fault == "grey" else 0.0]
    samples = tuple(speeds[number % 2] or speeds[0] for number in range(5))
    seen = Evidence(
        sum(samples) / 5, "tok/s", 5, BASELINE, samples=samples, baseline_n=5,
        baseline_samples=(BASELINE,) * 5,
    )  # fmt: skip
    verdicts = [combine(judge(Criterion(one.metric, one.go, one.no_go), seen).verdict
                        for one in gate) for gate in gates if gate]  # fmt: skip
    stops = (one for one in verdicts if one is not Verdict.GO)
    assert next(stops, Verdict.GO).name.lower() == case.decision, verdicts


@pytest.mark.parametrize("name", TRIALS)
def test_a_trial_keeps_its_guards_a_lease_and_a_way_back_and_looks_before_it_pays(
    name: str,
) -> None:
    """It asks about machine and checkpoint before its first build, download or outage."""
    plan = planned(name)
    metrics = {guard.metric for guard in plan.playbook.guards}
    assert {"host.ram_available", "host.swap_in_rate"} <= metrics
    assert any(guard.log == "candidate" for guard in plan.playbook.guards)
    assert plan.playbook.model.lease == 1800
    assert any(step.id == "restore" for step in plan.steps)
    gates = [s.step for s in plan.steps if s.kind == "gate" and s.baseline_down]
    assert gates
    assert {gate.on_no_go for gate in gates if gate} == {"rollback"}
    kinds = [step.kind for step in plan.steps]
    paid = min(kinds.index(k) for k in ("build", "download", "run", "script") if k in kinds)
    assert "host" in kinds[:paid]
    assert "baseline:stop" not in kinds[:paid]


def test_the_architecture_is_asked_of_what_is_downloaded() -> None:
    plan = planned("download-checkpoint", repo="some/other-GGUF@abc", include="*")
    assert "some/other-GGUF@abc " in plan.at("architecture").effects[0]


@pytest.mark.parametrize(("name", "load"), [("operation-lazarus", "stability"),
                                            ("ik-llama-phase2", "up")])  # fmt: skip
def test_a_slow_candidate_is_not_soaked(name: str, load: str) -> None:
    ids = [step.id for step in planned(name).steps]
    assert ids.index("bench" if load == "stability" else "tg") < ids.index("fast") < ids.index(load)


def test_lazarus_looks_at_weights_and_config_before_it_builds() -> None:
    plan = planned("operation-lazarus")
    assert [step.id for step in plan.steps][:5] == [
        "here", "note-target", "fits", "config", "build-torch",
    ]  # fmt: skip
    assert "/nvme/models/deepseek-r1:" in plan.at("fits").effects[0]


@pytest.mark.parametrize("name", ["reboot-recovery", "baseline-verify"])
def test_what_may_fail_without_an_end_is_asked_by_the_gate(name: str) -> None:
    """`on_failure: continue` alone lets a run end with GO whatever was found."""
    steps = [step for _, step in planned(name).playbook.steps()]
    asked = {one.metric.partition(".")[0] for step in steps for one in step.gate or ()}
    assert {step.id for step in steps if step.on_failure == "continue"} <= asked


@pytest.mark.parametrize("kind", ["program", "image"])
def test_a_new_build_of_either_kind_serves_the_same_weights_and_flags(kind: str) -> None:
    given = {"build": kind, "model": "r1/q4.gguf", "args": "--ctx-size 8192", "cards": "all"}
    plan = planned("engine-upgrade", **given)
    started = "\n".join(plan.at("up").effects)
    root = "/models" if kind == "image" else "/nvme/models"
    assert f"--model {root}/r1/q4.gguf --ctx-size 8192" in started
    assert plan.at("up").service == kind
    order = [step.id for step in plan.steps]
    wanted = ["architecture", "baseline:stop", "as-good", "agree", "cutover"]
    assert sorted(wanted, key=order.index) == wanted
    gates = [step.step for step in plan.steps if step.kind == "gate"]
    assert {(gate.on_no_go, gate.on_hold) for gate in gates if gate} == {("rollback", "rollback")}
    assert not planned("engine-upgrade", exclusive="false", serve="false", **given).takes_down


def test_compose_gets_the_cards_of_the_site_in_its_order() -> None:
    runs = planned("ik-llama-phase2").services["candidate"].runs
    env = dict(getattr(runs, "env", ()))
    first, second = env["OMNI_GPUS"].split(",")
    assert first == "GPU-f4f210c1-5a52-7267-979e-fe922961190a"
    assert second == "GPU-bfbb9aa1-3d36-b47b-988f-5752cfc54601"
    assert env["IK_GPU_LAYERS"] == "19"


def test_a_build_without_nccl_is_another_build() -> None:
    plan = planned("ik-llama-phase2", nccl="false")
    assert "build-nccl-false/bin/llama-server" in plan.at("build").effects[0]
    assert plan.at("linked").effects != planned("ik-llama-phase2").at("linked").effects


def test_fewer_experts_reach_the_launch() -> None:
    runs = planned("kt-sglang-resurrection", gpu_experts="16").services["candidate"].runs
    assert dict(getattr(runs, "env", ()))["KT_GPU_EXPERTS"] == "16"


FLAGS = r"-fmoe -mla 3 -ot 'blk\.(3|4)\.ffn_.*_exps=CPU'"


@pytest.mark.parametrize("name", TRIALS)
def test_further_flags_reach_the_engine_word_by_word(name: str) -> None:
    words = ("-fmoe", "-mla", "3", "-ot", r"blk\.(3|4)\.ffn_.*_exps=CPU")
    runs: Any = planned(name, extra_args=FLAGS).services["candidate"].runs
    given = runs.args if hasattr(runs, "args") else runs.argv
    assert given[-5:] == words
    assert FLAGS in "\n".join(planned(name, extra_args=FLAGS).at("up").effects)


def test_flags_that_ran_out_of_memory_are_tried_again_in_the_same_outage() -> None:
    """F-024: the cards stay free while the step waits for a retry with other flags."""
    step = planned("ik-llama-phase2", bench_args="-fmoe 1").at("tg").step
    assert step is not None
    assert (step.run or [])[-3:] == ["json", "-fmoe", "1"]
    assert step.on_failure == "stop"


def test_the_server_is_built_with_what_its_import_chain_asks_for() -> None:
    """F-018: only a build with balance_serve has sched_ext, which the server imports."""
    asked = "\n".join(planned("operation-lazarus").at("build").effects)
    assert "--build-arg USE_BALANCE_SERVE=1" in asked
    without = planned("operation-lazarus", balance_serve="0").at("build").effects
    assert "--build-arg USE_BALANCE_SERVE=0" in "\n".join(without)
    stage = (shipped() / "stack/Dockerfile.ktransformers").read_text().split(" AS phase3")[1]
    assert stage.index("ARG USE_BALANCE_SERVE=1") < stage.index("pip install")


@pytest.mark.parametrize(
    ("name", "build", "needed"),
    [
        ("ik-llama-phase2", "build", {"nvcc", "cmake"}),
        ("kt-sglang-evaluation", "kernel", {"nvcc", "cmake"}),
    ],
)
def test_a_build_on_the_host_is_preceded_by_what_it_needs(
    name: str, build: str, needed: set[str]
) -> None:
    plan = planned(name)
    ids = [step.id for step in plan.steps]
    assert ids.index("builds") < ids.index(build)
    step = plan.at("builds").step
    assert step is not None
    assert step.host is not None
    assert needed <= set(step.host.tools)


@pytest.mark.parametrize(
    ("method", "weights", "code"),
    [("AMXINT8", "none", 0), ("LLAMAFILE", "q3", 0), ("LLAMAFILE", "hf", 1), ("FP8", "hf", 0),
     ("FP8", "q3", 1)],
)  # fmt: skip
def test_a_method_that_converts_nothing_is_asked_for_what_it_reads(
    tmp_path: Path, method: str, weights: str, code: int
) -> None:
    for name in ("q3/model.gguf", "hf/config.json"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    step = planned("kt-sglang-resurrection").at("native").step
    assert step is not None
    env = {"OMNI_INPUT_METHOD": method, "OMNI_INPUT_WEIGHTS": weights, "OMNI_INPUT_HF": "x",
           "OMNI_INPUT_MODELS": str(tmp_path), "PATH": os.environ["PATH"]}  # fmt: skip
    done = subprocess.run(["sh", "-eu", "-c", step.script or ""], env=env, capture_output=True)
    assert done.returncode == code, done


@pytest.mark.parametrize("name", TRIALS)
def test_a_trial_asks_for_the_executor_before_its_outage_and_reminds_of_it(name: str) -> None:
    """S-002: 192 threads on the cores that are measured, in a container that nothing here stops."""
    plan = planned(name)
    ids = [step.id for step in plan.steps]
    down = next(at for at, step in enumerate(plan.steps) if step.kind == "baseline:stop")
    assert ids.index("quiet") < down < ids.index("unpause")


def test_what_was_left_to_the_operator_is_asked_or_said() -> None:
    def said(name: str, step: str) -> str:
        return " ".join("\n".join(planned(name).at(step).effects).split())

    model = "deepseek-r1/DeepSeek-R1-Q4_K_M/"
    assert model in said("ik-llama-phase2", "weights")
    assert "nobody answers on :8000" in said("ik-llama-phase2", "note-outage")
    note = planned("baseline-verify", cards="true").at("note-driver").effects
    assert "580.126.09" in " ".join(note)
    step = planned("kt-sglang-evaluation").at("decide").step
    assert step is not None
    assert "llama.cpp comes back meanwhile" in step.why
    asked = planned("baseline-verify", executor="true", executor_url="http://127.0.0.1:9")
    assert "bench http://127.0.0.1:9" in "\n".join(asked.at("executor").effects)


def test_conda_is_where_build_conversion_and_server_look() -> None:
    plan = planned("kt-sglang-evaluation", conda="/envs/other")
    for one in ("builds", "kernel", "experts", "up"):
        assert "within conda /envs/other" in "\n".join(plan.at(one).effects), one


MAPPING = Path(__file__).parents[2] / "docs/reference/mapping.md"
CELL = re.compile(r"(?<!\\)\|")
HEAD = ("Seed", "It says", "Where", "Value")
LEAST = {"000": 45, "001": 45, "002": 40, "004": 80}
"""Rows that each document has at least."""


@dataclass(frozen=True)
class Row:
    seed: str
    says: str
    where: str
    value: str


def _rows() -> list[Row]:
    found = []
    for line in MAPPING.read_text().splitlines():
        cells = [cell.strip().replace("\\|", "|") for cell in CELL.split(line)[1:-1]]
        if line.startswith("| ") and tuple(cells) != HEAD:
            assert len(cells) == len(HEAD), line
            found.append(Row(*cells))
    return found


ROWS = _rows()
CARRIED = [row for row in ROWS if row.where != "not carried"]


@cache
def playbook(name: str) -> dict[str, Any]:
    path = shipped() / f"{name}.yaml"
    data: dict[str, Any] = parse(path.read_text(), name, "").data
    return data


def named(where: str) -> Any:
    """What a place names: a step by its id, or a part of the playbook by its dotted path."""
    if where.startswith(("stack/", "sites/")):
        return (shipped() / where).read_text()
    name, _, part = where.partition("/")
    data = playbook(name)
    groups = [phase["steps"] for phase in data["phases"]]
    for step in [step for group in (*groups, data.get("finally", [])) for step in group]:
        if step["id"] == part:
            return step
    for key in part.split("."):
        data = data[key]
    return data


def _texts(node: Any, key: str = "") -> list[str]:
    """A node as lines: each value, each mapping of values as `k: v, k: v`, each list as words."""
    if isinstance(node, dict):
        flat = ", ".join(f"{k}: {v}" for k, v in node.items() if not isinstance(v, dict | list))
        return [flat, *node, *(line for k, v in node.items() for line in _texts(v, k))]
    if isinstance(node, list):
        words = " ".join(str(one) for one in node if not isinstance(one, dict | list))
        return [f"{key}: {words}", *(line for one in node for line in _texts(one, key))]
    return [f"{key}: {node}", str(node)]


@cache
def texts(where: str) -> list[str]:
    return _texts(named(where))


def lacking(row: Row) -> list[str]:
    """Parts of a row's value that its place does not have."""
    known = texts(row.where)
    parts = [row.value] if any(row.value in line for line in known) else row.value.split("; ")
    return [part for part in parts if not any(part in line for line in known)]


def test_every_value_stands_in_its_place() -> None:
    assert [row for row in CARRIED if not row.value or lacking(row)] == []


def test_what_is_not_carried_says_why() -> None:
    left = [row for row in ROWS if row.where == "not carried"]
    assert len(left) > 20
    for row in left:
        assert re.match(r"[FSP]-\d{3}", row.value) or len(row.value.split()) >= 2, row


def test_every_document_is_carried_in_its_order() -> None:
    for seed, least in LEAST.items():
        numbers = [int(row.seed[4:]) for row in ROWS if row.seed.startswith(f"{seed}:")]
        assert len(numbers) >= least, seed
        assert numbers == sorted(numbers), seed


def test_every_gate_and_guard_of_a_trial_is_somebodys() -> None:
    """No threshold of a trial that the mapping does not name."""
    for name in ("operation-lazarus", "kt-sglang-resurrection", "kt-sglang-evaluation",
                 "ik-llama-phase2"):  # fmt: skip
        named = {row.where for row in CARRIED if row.where.startswith(f"{name}/")}
        for phase in playbook(name)["phases"]:
            for step in phase["steps"]:
                assert "gate" not in step or f"{name}/{step['id']}" in named, step["id"]
        assert f"{name}/guards" in named or name == "kt-sglang-resurrection"
