"""The plan: the baseline's outages, restores and measurements are rows of their own, and what a
run notes of it when it begins. What each row says it does is in test_words."""

import shlex
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.common.errors import InvalidFile
from console.config.playbook.steps import Step
from console.config.site.site import load_site
from console.host.activation import Activation
from console.host.process import ProcessSpec
from console.journal.history import Usual
from console.journal.run_view import RunView, StepMeasurement
from console.render.effects import build_argv, effects
from console.runner import cutover
from console.runner.prepare.plan import make_plan, targets
from console.runner.prepare.plan_text import lines
from console.runner.prepare.seal import reference
from console.runner.promote import measured, on_port
from console.runtime import proxy
from console.runtime.spec import ComposeSpec, ContainerSpec, Runs
from tests.runner.unit.cases import BENCH, BESIDE, DOWN, NOTE, PROMOTED, UP, promoted
from tests.runner.unit.conftest import SITE, MakePlan

AGAIN = "{id: bench2, benchmark: {service: cand, against: baseline}}"
LIKE, LIKE_TOO = (f"{{id: {name}, contract: {{service: cand}}}}" for name in ("like", "like2"))
LIKE_FILE = "{id: file, contract: {service: cand, against: kept.json}}"
LIKE_SUITE = "{id: suite, contract: {service: cand, suite: [bench]}}"
LIKE_NOT = "{id: like, when: false, contract: {service: cand}}"
ROWS = {
    (NOTE,): "note",
    (BESIDE, NOTE): "up note restore",
    ("{id: up, service: {start: kept}}",): "up restore",
    # a gate or a failure may end the run before the step that stops it
    (BESIDE, "{id: d, service: {stop: beside}}"): "up d restore",
    (NOTE, UP, "{id: z, note: hi}"): "note !baseline:stop !up !z restore",
    ("{id: up, service: {start: big}}",): "!baseline:stop !up restore",
    ("{id: w, service: {wait: cand}}",): "w",
    ("{id: up, when: false, service: {start: cand}}", NOTE): "up note",
    (UP, "{id: b, benchmark: {service: cand}}"): "!baseline:stop !up !b restore",
    (UP, BENCH, AGAIN): (
        "baseline:measure !baseline:stop !up !bench !bench2 restore baseline:measure-again"
    ),
    (BESIDE, BENCH, AGAIN): "up baseline:measure bench bench2 restore baseline:measure-again",
    (UP, BENCH, LIKE, LIKE_TOO): (
        "baseline:contract baseline:measure !baseline:stop !up !bench !like !like2 restore "
        "baseline:measure-again"
    ),
    (BESIDE, LIKE): "up baseline:contract like restore",
    (UP, LIKE_FILE, LIKE_SUITE, LIKE_NOT): "!baseline:stop !up !file !suite !like restore",
    (UP, DOWN, NOTE): "!baseline:stop !up !down baseline:restore-1 note restore",
    (
        *(UP, BENCH, DOWN, NOTE, "{id: up2, service: {start: other}}"),
        *("{id: down2, service: {stop: other}}", "{id: up3, service: {start: cand}}"),
    ): (
        "baseline:measure !baseline:stop !up !bench !down baseline:restore-1 "
        "note !baseline:stop-2 !up2 !down2 baseline:restore-2 "
        "!baseline:stop-3 !up3 restore baseline:measure-again"
    ),
    (UP, "{id: cut, cutover: {to: cand}}", NOTE): (
        "!baseline:stop !up !cut baseline:restore-1 note restore"
    ),
    (BESIDE, "{id: cut, cutover: {to: beside}}"): (
        "up !baseline:stop !cut baseline:restore-1 restore"
    ),
    (UP, "{id: cut, cutover: {to: cand, then: stay}}", NOTE): (
        "!baseline:stop !up !cut !note restore"
    ),
}
"""Ids in order; `!` where the baseline is down."""


@pytest.mark.parametrize("steps", ROWS, ids=range(len(ROWS)))
def test_rows(plan: MakePlan, steps: tuple[str, ...]) -> None:
    made = plan(*steps)
    rows = [("!" if step.baseline_down else "") + step.id for step in made.steps]
    assert " ".join(rows) == ROWS[steps]
    assert made.takes_down is ("!" in ROWS[steps])
    for step in made.steps:
        if step.id.startswith("baseline:"):
            name = step.id.partition("-")[0]
            assert step.kind == ("restore" if name == "baseline:restore" else name)


def test_rows_of_the_plan_s_own(plan: MakePlan) -> None:
    made = plan(UP, BENCH, final="{id: report, report: {}}", restore_s=74.0)
    assert [step.id for step in made.steps][-3:] == ["restore", "baseline:measure-again", "report"]
    assert (made.at("report").final, made.at("report").phase) == (True, "Finally")
    stop, restore = made.at("baseline:stop"), made.at("restore")
    assert (stop.implicit, stop.step, stop.kind) == (True, None, "baseline:stop")
    assert (restore.implicit, restore.takes_s, restore.phase) == (True, 74.0, "Restore")


def test_earlier_runs_say_how_long_a_step_takes_where_nothing_better_does(plan: MakePlan) -> None:
    made = plan(
        "{id: a, run: [x], takes: 5s}", "{id: b, run: [x]}", "{id: c, run: [x], timeout: 9s}",
        "{id: d, run: [x], when: false}", restore_s=74.0,
    )  # fmt: skip
    past = {step.id: Usual(33.0, 4) for step in made.steps}
    told = make_plan(made.playbook, made.site, 74.0, history=past)
    takes = {step.id: (step.takes_s, step.takes_from) for step in told.steps}
    assert takes == {
        "a": (5.0, ""), "b": (33.0, "median of 4 earlier runs"), "c": (None, ""), "d": (0.0, ""),
    }  # fmt: skip
    said = lines(told)
    assert any("(about 33.0 s, median of 4 earlier runs; limit" in line for line in said)
    assert "  planned    38.0 s for steps with a duration, 1 of them as in earlier runs" in said


def test_every_step_has_a_finite_limit(plan: MakePlan) -> None:
    made = plan(UP, BENCH, NOTE, "{id: g, gate: [{metric: bench.tok_s, go: '>= 20'}]}")
    assert all(0 < step.limit_s < 7 * 86400 for step in made.steps)
    assert plan("{id: up, service: {start: box}}").at("up").limit_s == 7260.0, "as the service may"


def test_titles(plan: MakePlan) -> None:
    titles = {
        "note: ''": "",
        'note: "\\n first\\nsecond"': "first",
        "run: [a, b c]": "a 'b c'",
        f"run: [{'x' * 100}]": "x" * 70,
        "title: Mine, note: x": "Mine",
        "service: {wait: cand}": "wait cand",
        "build: {context: x, tag: y}": "Build an image",
    }
    assert {step: plan(f"{{id: s, {step}}}").at("s").title for step in titles} == titles


def test_what_is_printed_is_clean(plan: MakePlan) -> None:
    made = plan('{id: s, title: "\\e[31mred\\u202e", run: [echo, "\\e]52;c;x\\a", "a\\nb"]}')
    assert [line for line in lines(made) if not all(c.isprintable() for c in line)] == []


def test_a_container_that_is_never_stopped_is_no_candidate(plan: MakePlan) -> None:
    made = plan(NOTE)
    site, book = made.site, made.playbook
    site.model.protected.append("mine")
    assert make_plan(book, site).steps == made.steps
    site.model.protected.append("omni-box")
    with pytest.raises(InvalidFile) as caught:
        make_plan(book, site)
    (problem,) = caught.value.problems
    assert book.text.splitlines()[problem.line - 1] == "  box:"
    assert "omni-box" in problem.what


def cut(more: str = "") -> str:
    return f"{{id: cut, cutover: {{to: cand{more}}}}}"


def test_the_relay_is_a_service_of_the_run(plan: MakePlan) -> None:
    made = plan(UP, cut(", listen: 0.0.0.0"))
    runs = made.services[proxy.NAME].runs
    assert isinstance(runs, ProcessSpec)
    port = proxy.port_of(made.site.model.baseline.url)
    to = proxy.address(made.services["cand"].url)
    assert runs.argv[-3:] == (f"0.0.0.0:{port}", to, "cand")
    assert proxy.NAME not in plan(UP).services


def test_what_does_not_fit_the_site(plan: MakePlan) -> None:
    assert cutover.misfits(plan(UP, cut())) == []
    [port] = cutover.misfits(plan(UP, cut(", port: 9")))
    assert "port 9" in port
    [far] = cutover.misfits(plan(UP, cut(", listen: 192.0.2.7")))
    assert "192.0.2.7" in far


@pytest.mark.parametrize(
    ("host", "listen", "warned"), [("0.0.0.0", "", 1), ("127.0.0.1", "", 0), ("0.0.0.0", "::", 0)]
)
def test_clients_of_other_machines_are_thought_of(
    plan: MakePlan, host: str, listen: str, warned: int
) -> None:
    with socket.create_server((host, 0)) as baseline:
        port = baseline.getsockname()[1]
        made = plan(UP, cut(f', listen: "{listen}"' if listen else ""))
        there = made.site.model.baseline.model_copy(update={"url": f"http://127.0.0.1:{port}"})
        made.site.model = made.site.model.model_copy(update={"baseline": there})
        assert len(cutover.narrow(made)) == warned


def test_the_baseline_is_noted_as_it_is_started(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(SITE.replace("base,", "base, reference: {tok_s: 10.75}, args: [-c, '8192'],"))
    assert reference(load_site(path)) == {
        "url": "http://127.0.0.1:8000", "runs": ["starts the existing container base"],
        "args": ["-c", "8192"], "reference": 10.75,
    }  # fmt: skip


def test_a_start_is_told_from_a_stop_by_the_plan_itself(plan: MakePlan) -> None:
    """The report looks for the load in what the plan says: both have to go on meaning the same."""
    from console.render.report.memory import STARTS

    made = plan(
        "{id: a, service: {start: cand}}", "{id: b, service: {stop: cand}}",
        "{id: c, service: {start: box}}", "{id: d, service: {start: stack}}",
        "{id: e, service: {wait: box}}",
    )  # fmt: skip
    begun = {
        step.id: any(line.lstrip().startswith(STARTS) for line in step.effects)
        for step in made.steps
        if step.kind == "service"
    }
    assert begun == {"a": True, "b": False, "c": True, "d": True, "e": False}
    assert made.at("b").effects[0].startswith("stops ")


def test_every_criterion_is_noted_with_the_samples_it_needs(plan: MakePlan) -> None:
    made = plan(
        "{id: bench, benchmark: {service: beside, against: baseline}}",
        "{id: soak, soak: {service: beside, duration: 1h}}",
        "{id: tg, run: [x], figures: llama-bench, outputs: {n: {pattern: '([0-9]+)'}}}",
        "{id: off, when: false, gate: [{metric: bench.tok_s, go: '> 1'}]}",
        "{id: go, gate: [{metric: bench.tok_s, go: '>= 1.5 x baseline', no_go: '< 20 tok/s'}, "
        "{metric: gpu.peak_used, of: sum, go: '<= 117GB'}, {metric: soak.errors, go: '== 0'}, "
        "{metric: soak.restarts, go: '== 0'}, {metric: tg.tg_tok_s, go: '> 1'}, "
        "{metric: tg.n, go: '> 1'}, {metric: bench.ttft_s, go: '< 2s', min_samples: 1}]}",
    )
    found = targets(made)
    assert [one["min_samples"] for one in found] == [3, 1, 10, 10, 3, 1, 1]
    assert found[:2] == [
        {"gate": "go", "metric": "bench.tok_s", "of": None, "min_samples": 3,
         "go": ">= 1.5 x baseline", "no_go": "< 20 tok/s"},
        {"gate": "go", "metric": "gpu.peak_used", "of": "sum", "min_samples": 1,
         "go": "<= 117GB", "no_go": ""},
    ]  # fmt: skip


words = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


@given(st.lists(words, min_size=1, max_size=4))
def test_the_argv_shown_is_the_argv(argv: list[str]) -> None:
    (shown,) = effects(Step(id="s", run=argv), {})
    assert shlex.split(shown.removeprefix("$ ")) == argv


@given(st.dictionaries(words, words, max_size=3), words, words)
def test_a_build_argument_stays_one_element(args: dict[str, str], tag: str, context: str) -> None:
    step = Step.model_validate({"id": "s", "build": {"context": context, "tag": tag, "args": args}})
    argv = build_argv(step)
    assert argv[:4] == ["docker", "build", "-t", tag]
    assert argv[4:6] == ["--label", f"omni.built={tag}"]
    assert argv[-2:] == ["--", context]
    assert sorted(argv[7:-2:2]) == sorted(f"{k}={v}" for k, v in args.items())


URL = "http://127.0.0.1:8000"


def test_a_port_in_an_argv() -> None:
    for words in ("s --port 8001", "s --port=8001", "s 0.0.0.0:8001"):
        changed = tuple(words.replace("8001", "8000").split())
        assert on_port(tuple(words.split()), 8001, 8000) == (changed, True)
    other = ("s", "--seed", "18001", "80011")
    assert on_port(other, 8001, 8000) == (other, False)


@pytest.mark.parametrize("runs", [PROMOTED[0], PROMOTED[2], PROMOTED[4]])
def test_the_lines_are_a_site_file(tmp_path: Path, runs: Runs) -> None:
    file = tmp_path / "site.yaml"
    file.write_text("schema: omni.site/v1\nname: ws\n" + "\n".join(promoted(runs)[0]) + "\n")
    made = load_site(file)
    base = made.model.baseline
    assert (base.url, base.ready.http, base.ready.timeout) == (URL, "/ready", 90.0)
    assert base.reference is not None
    assert base.reference.tok_s == 2.0
    proof = base.completion
    assert (proof.prompt, proof.expect, proof.timeout) == ("Say: yes\nor no", r"(?i)\byes\b", 90.0)
    assert proof.model == "", "the candidate has another name"
    found = made.baseline_spec().runs
    if isinstance(runs, ProcessSpec):
        argv = tuple("8000" if word == "8001" else word for word in runs.argv)
        assert found == ProcessSpec(argv, runs.env, runs.cwd)
    elif isinstance(runs, ComposeSpec):
        assert found == runs
    else:
        assert base.container == "ik-baseline"


def test_hidden_values_of_a_promoted_candidate_are_to_be_filled_in(tmp_path: Path) -> None:
    argv = (
        "serve",
        "--port",
        "8001",
        "--api-key",
        "k3y-Wq81",
        "--ssl-password=pw-9Zx",
        "--ctx",
        "8",
    )
    env = (("LLAMA_API_TOKEN", "t0k-Zz93"), ("CTX", "8"))
    lines = promoted(ProcessSpec(argv, env))[0]
    comments = [line.strip() for line in lines if line.strip().startswith("# fill in")]
    named = ("--api-key", "--ssl-password", "LLAMA_API_TOKEN")
    assert [one.split(":")[0] for one in comments] == [f"# fill in the value of {n}" for n in named]
    file = tmp_path / "site.yaml"
    file.write_text("schema: omni.site/v1\nname: ws\n" + "\n".join(lines) + "\n")
    with pytest.raises(InvalidFile) as refused:
        load_site(file)
    assert len(refused.value.problems) == len(named)
    spec = ContainerSpec("i", ("--api-key", "k3y-Wq81"), env=env)
    *told, command = promoted(spec)[2]
    assert [one.split(":")[0] for one in told] == [
        "# fill in the value of --api-key", "# fill in the value of LLAMA_API_TOKEN"
    ]  # fmt: skip
    assert command.startswith("docker create")
    assert promoted(ProcessSpec(("serve",)))[1][-2].strip().startswith("# reference is missing")


def test_another_services_figures_are_not_its_own() -> None:
    rate = {"bench": {"tok_s": {"value": 20.4}}}
    view = RunView("r1", measured={"bench": StepMeasurement({"service": "other"})}, metrics=rate)
    assert measured("ik", view) is None
    assert measured("other", view) == 20.4


def test_a_plan_says_why_and_no_lesson_bears_on_the_reason(plan: MakePlan) -> None:
    """A `why` is text: what it mentions is not what the step does."""
    row = plan("{id: a, script: 'true', why: 'never git clone --depth 1 --recursive'}").at("a")
    assert row.effects[-1] == "why: never git clone --depth 1 --recursive"
    assert row.lessons == ()


def test_a_promoted_candidate_of_a_conda_environment_becomes_a_baseline_without_one(
    tmp_path: Path,
) -> None:
    """A rollback reads no environment: its variables and its program's path are written out."""
    program = tmp_path / "env/bin/serve"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    within = Activation(str(tmp_path / "env"), "/etc/vars")
    runs = ProcessSpec(("serve", "--port", "8001"), (("A", "1"),), within=within)
    lines = promoted(runs)[0]
    assert "  # and to its env the variables in /etc/vars" in [line[2:] for line in lines]
    file = tmp_path / "site.yaml"
    file.write_text("schema: omni.site/v1\nname: ws\n" + "\n".join(lines) + "\n")
    made = load_site(file).baseline_spec().runs
    assert isinstance(made, ProcessSpec)
    assert made.argv == (str(program), "--port", "8000")
    env = dict(made.env)
    assert (env["CONDA_PREFIX"], env["A"]) == (str(tmp_path / "env"), "1")
    program.unlink()
    program.parent.rmdir()
    assert promoted(runs)[0][2].strip() == 'argv: ["serve", "--port", "8000"]'
