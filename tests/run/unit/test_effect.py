"""What a step does, in the words an operator reads before pressing enter."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.playbook.steps import Step
from console.run.effect import build_argv, effects
from tests.run.unit.conftest import MakePlan


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("run: [cmake, --build, build dir]", "$ cmake --build 'build dir'"),
        ("run: [x], where: {service: cand}", "in cand $ x"),
        (
            "run: [x], where: {image: i, gpus: all, memory: 2GiB}",
            "in a one-off container of i, GPUs all, 2.0 GiB $ x",
        ),
        ("script: 'a; b'", "  | a; b"),
        ("build: {context: ., tag: t}", "$ docker build -t t --label omni.built=t -- ."),
        ("check: {port_free: 8001}", "checks that port 8001 is free"),
        ("check: {file: f, min_bytes: 1MiB}", "checks that f exists with at least 1.0 MiB"),
        ("check: {cpu: avx512f}", "checks that the CPU has avx512f"),
        ("check: {image: i, platform: linux/amd64}", "checks that image i is here for linux/amd64"),
        (
            "check: {output: [x], matches: a, not_matches: b}",
            "checks that the output of `x` matches a and does not match b",
        ),
        ("check: {http: {url: 'http://a:1'}}", "checks that http://a:1 answers 200"),
        ("service: {stop: cand}", "stops cand: SIGTERM, 10.0 s later SIGKILL"),
        ("service: {start: cand}", "starts a host process: serve 'a b'"),
        ("service: {start: box}", "creates and starts a container of img: serve --x"),
        ("service: {start: box}", "  mount /n → /n (rw)"),
        (
            "service: {start: box}",
            "  1.0 GiB, no swap; 127.0.0.1:1→2; no GPUs; restart no; "
            "never pulled, never privileged",
        ),
        (
            "service: {start: box}",
            "ready when http://127.0.0.1:8005/v1 answers 200, stable for 10.0 s, "
            "at most 2 h 00 min",
        ),
        (
            "benchmark: {service: cand, against: baseline}",
            "compared with the baseline, measured the same way",
        ),
        (
            "benchmark: {service: cand, endpoint: completions}",
            "asked at /v1/completions, without the model's chat template",
        ),
        (
            "benchmark: {service: cand, concurrency: [2, 4]}",
            "then 2, 4 streams at once, told beside the figures of one",
        ),
        ("approval: {prompt: sure?, confirm: yes}", "the operator types: yes"),
        ("approval: {prompt: sure?}", "expires after 30 min 00 s"),
        ("manual: {do: sudo x, verify: {port_free: 1}}", "then checks that port 1 is free"),
        ("note: hello", "hello"),
        ("host: {driver: 580.95.05}", "looks at this machine: NVIDIA driver 580.95.05"),
        ("report: {to: out.md}", "writes the report to out.md"),
        ("note: x, requires: [{port_free: 1}]", "requires that port 1 is free"),
        ("note: x, unless: {run: [a, b]}", "skipped if `a b` succeeds"),
        ("note: x, retry: {attempts: 3, backoff: 7s}", "retried up to 3 attempts, 7.00 s apart"),
        ("note: x, on_failure: rollback", "if it fails: rollback"),
        (
            "run: [x], outputs: {n: {pattern: '(a)', unit: s}}",
            "captures s.n (s) from output matching (a)",
        ),
    ],
)
def test_words(plan: MakePlan, step: str, said: str) -> None:
    made = plan(f"{{id: s, {step}}}").at("s").effects
    assert said in made


def test_a_compose_service(plan: MakePlan, tmp_path: Path) -> None:
    made = plan("{id: s, service: {start: stack}}").at("s").effects
    assert made[0] == (
        f"$ docker compose -f {tmp_path}/c.yaml -f OVERRIDE --profile p up -d --no-deps "
        "--no-build --pull never --no-recreate llm"
    )


def test_a_gate_says_what_decides(plan: MakePlan) -> None:
    made = plan(
        "{id: b, benchmark: {service: cand}}",
        "{id: s, gate: [{metric: b.tok_s, go: '>= 20', no_go: '< 10'}, "
        "{metric: b.ttft_s, go: '<= 2s'}], outcomes: {go: soak}, on_no_go: rollback}",
    )
    assert made.at("s").effects == (
        "b.tok_s: GO >= 20, NO-GO < 10",
        "b.ttft_s: GO <= 2s, else NO-GO",
        "decides: GO → soak",
        "on NO-GO: rollback; on HOLD (also missing data): pause",
    )


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
