"""Steps, limits, soaks and places of a run: what plans, guards and refusals are worded for."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from console.bench.soak_stats import Tally
from console.config.site.site import BaselineModel
from console.host.gpu.figures import GpuReport
from console.host.process import ProcessSpec
from console.journal.fold import fold
from console.journal.run_view import RunView, StepMeasurement
from console.journal.state import RunState
from console.journal.store import event_of
from console.recovery.guard.config import Limit
from console.runner.control import Control
from console.runner.prepare.plan import BASELINE_MEASURE
from console.runner.promote import first, site_lines
from console.runtime.spec import ComposeSpec, ContainerSpec, Mount, Ready, Runs, ServiceSpec
from tests.runner.unit.conftest import TWO

GIB = 1 << 30
R = RunState

EVERY_STEP = {
    "build-dir": "run: [cmake, --build, build dir]",
    "in-service": "run: [x], where: {service: cand}",
    "in-image": "run: [x], where: {image: i, gpus: all, memory: 2GiB}",
    "in-bare-image": "run: [x], where: {image: i}",
    "script": "script: 'a; b'",
    "build": "build: {context: ., tag: t, dockerfile: D, target: x, platform: linux/amd64}",
    "port-free": "check: {port_free: 8001}",
    "file-size": "check: {file: f, min_bytes: 1MiB}",
    "file": "check: {file: f}",
    "cpu": "check: {cpu: avx512f}",
    "image-platform": "check: {image: i, platform: linux/amd64}",
    "image": "check: {image: i}",
    "matches": "check: {output: [x], matches: a, not_matches: b}",
    "not-matches": "check: {output: [x], not_matches: b}",
    "http": "check: {http: {url: 'http://a:1'}}",
    "http-matches": "check: {http: {url: 'http://a:1', matches: ok}}",
    "start": "service: {start: cand}",
    "stop": "service: {stop: cand}",
    "start-container": "service: {start: box}",
    "start-compose": "service: {start: stack}",
    "wait-container": "service: {wait: box}",
    "wait": "service: {wait: cand}",
    "benchmark": "benchmark: {service: cand, against: baseline, endpoint: completions, "
    "concurrency: [2, 4]}",
    "soak": "soak: {service: cand, duration: 1h, every: 5s, arrivals: fixed, max_errors: 3}",
    "soak-plain": "soak: {service: cand, duration: 1h, every: 5s}",
    "contract": "contract: {service: cand, cases: own.yaml}",
    "contract-baseline": "contract: {service: baseline, repeat: 3}",
    "contract-url": "contract: {url: 'http://a:1', against: kept.json, cases: own.yaml, suite: "
    "[bench, --all]}",
    "contract-suite": "contract: {service: cand, suite: [bench, --all]}, outputs: {n: {pattern: "
    "'(a)'}}",
    "approval-word": "approval: {prompt: sure?, confirm: yes}",
    "approval": "approval: {prompt: sure?}",
    "manual-verified": "manual: {do: sudo x, verify: {port_free: 1}}",
    "manual": "manual: {do: sudo x}",
    "note": "note: hello",
    "report-to": "report: {to: out.md}",
    "report": "report: {}",
    "host": "host: {driver: 580.95.05, ports: [1], images: [i], sched_ext: true, gpus: true}",
    "host-plain": "host: {}",
    "checkpoint": "checkpoint: {repo: a/b, include: ['*Q4*'], engine: llama.cpp, ctx: 8192, to: "
    "/m}",
    "checkpoint-beside": "checkpoint: {repo: a/b, service: cand, beside: true}",
    "gguf-image": "gguf: {file: m.gguf, image: i}",
    "gguf-binary": "gguf: {file: m.gguf, binary: /b}",
    "gguf-baseline": "gguf: {file: m.gguf}",
    "imports": "imports: {image: i, modules: [a, b]}",
    "download": "download: {repo: a/b, to: /m}",
    "guarded": "note: x, requires: [{port_free: 1}], unless: {run: [a, b]}, on_failure: rollback, "
    "retry: {attempts: 3, backoff: 7s}",
    "unless": "note: x, unless: {file: f, min_bytes: 1MiB}",
    "outputs": "run: [x], outputs: {n: {pattern: '(a)', unit: s}, m: {pattern: '(b)'}}, figures: "
    "llama-bench",
    "never": "note: x, when: false",
}  # fmt: skip
"""A step of every kind, in every form that a plan words otherwise, by its id."""


LIMITS = (
    Limit("host.ram_available", below=24 * GIB, for_s=2.0, source="site, line 3"),
    Limit("host.swap_in_rate", above=400 * 2**20, act="warn", source=""),
    Limit("gpu.memory_used", above=GIB, of="sum", missing="breach", source=""),
    Limit("gpu.memory_used", above=GIB, of="GPU-a"), Limit("gpu.memory_free", below=GIB, of="min"),
    Limit("host.time_to_full", below=20.0, source=""), Limit("host.pressure", above=30.0),
    Limit(log="cand", matches="CUDA\x1b[31m", count=3, source=""), Limit(log="c", matches="x"),
    Limit("service.restarts", above=2.0, of="cand"),
    Limit("gpu.temperature", above=87.0, for_s=5.0, of="max"),
    Limit("host.swap_growth", above=GIB, scarce=4 * GIB),
)  # fmt: skip
NO_DRIVER = GpuReport(0.0, (), "no NVIDIA driver")
NOW = (
    *((Limit("gpu.memory_used", of=of, above=80 * GIB, act=act, source="book, line 7"), TWO)
      for of in ("GPU-cccc", "max", "GPU-bbbb", "sum") for act in ("kill", "warn")),
    *((Limit("gpu.memory_used", of="sum", above=GIB, missing=missing), NO_DRIVER)
      for missing in ("say", "breach")),
    (Limit("host.ram_available", below=60 * GIB, source="site, line 3"), TWO),
    *((Limit("host.swap_free", below=GIB, missing=missing), TWO) for missing in ("say", "breach")),
    (Limit("host.time_to_full", below=20.0), TWO), (Limit("service.ram_used", above=1.0), TWO),
    (Limit("disk.free", below=1.0, of="/x"), TWO),
    (Limit("gpu.temperature", above=87.0, of="max"), TWO),
    (Limit("gpu.temperature", above=87.0, of="GPU-bbbb", missing="breach"), TWO),
)  # fmt: skip
"""Limits, and the cards of the machine they are held against before anything starts."""
READY = Ready("/ready", 90.0)
PROMOTED: tuple[Runs, ...] = (
    ProcessSpec(("serve", "--port", "8001", "-m", 'a "b"'), (("K", "v"),), "/opt/ik"),
    ProcessSpec(("serve",)),
    ContainerSpec(
        "ik:sm120", ("--x", "a b"), ("llama-server", "-v"), "trial", ((8001, 8080), (9001, 9001)),
        (Mount("/nvme/m", "/m"),), (("K", "v"),), ("all",), 1 << 30, 8 << 30, network="omni",
    ),
    ContainerSpec("ik:sm120", ("--x",), gpus=("GPU-a", "GPU-b"),
                  mounts=(Mount("/m", "/m", False),)),
    ComposeSpec((Path("/s/omni-stack.yaml"),), "ik", ("phase2",), "omni"),
    ComposeSpec((Path("/s/omni-stack.yaml"), Path("b c.yaml")), "ik"),
    ComposeSpec((Path("/s/omni-stack.yaml"),), "ik", args=("-fmoe", "-ot", "a b=CPU")),
)  # fmt: skip


ASKED = {"model": "old", "prompt": "Say: yes\nor no", "timeout": "90s", "expect": r"(?i)\byes\b"}
"""The site's own proof of its baseline."""


def promoted(runs: Runs) -> list[list[str]]:
    """What a person is told to change, with and without a figure of the run's."""
    url, made = "http://127.0.0.1:8000", ServiceSpec("ik", "http://127.0.0.1:8001", runs, READY)
    rate = {"b": {"tok_s": {"value": 2}}}
    found = RunView("r1", measured={"b": StepMeasurement({"service": "ik"})}, metrics=rate)
    old = BaselineModel.model_validate({"container": "base", "url": url, "completion": ASKED})
    return [site_lines(made, old, found), site_lines(made, old, RunView()), first(made, url)]


HELD = ({"ram": 616 << 20, "swap": GIB, "age_s": 1.25}, {"ram": 5, "swap": 0, "age_s": 0.02},
        {"ram": None, "swap": 5, "age_s": None}, "x", {"ram": 5, "age_s": 1.0})  # fmt: skip
KILLED: tuple[dict[str, object], ...] = (
    {"name": "c", "kind": "container", "rung": "cgroup.kill", "empty_s": 1.5},
    {"name": "c (pid 3)", "kind": "process", "write_s": 0.001, "why": "D", "rung": "SIGKILL"},
    {"name": "c (pid 3)", "rung": "SIGKILL", "write_s": 0.018, "empty_s": 0.22, "held": HELD[0]},
    {"name": "c", "held": HELD[1], "write_s": 1.0},
    {},
)


BOOK = """\
schema: omni.playbook/v1
name: x
title: Everything
objective: twice as fast
lessons: [F-024, F-999]
lease: 1m
inputs:
  models: {type: path, default: nowhere, must_exist: true}
  asked: {type: string, required: true}
  token: {type: secret, from: {env: OMNI_TEST_TOKEN}}
guards:
  - {metric: host.ram_available, below: 900GiB}
  - {log: cand, matches: CUDA, count: 2}
services:
  cand: {process: {argv: [serve]}, url: "http://127.0.0.1:8001", exclusive: true}
phases:
  - title: Work
    steps:
      - {id: up, service: {start: cand}, takes: 2m}
      - {id: graph, timeout: 1h, run: [llama-bench, --split-mode, graph], takes: 1m}
      - {id: down, service: {stop: cand}}
      - {id: again, service: {start: cand}}
      - {id: last, note: x}
"""
"""What stands above a plan's steps: each row of it."""
UP, DOWN = "{id: up, service: {start: cand}}", "{id: down, service: {stop: cand}}"
BESIDE, NOTE = "{id: up, service: {start: beside}}", "{id: note, note: hi}"
BENCH = "{id: bench, benchmark: {service: cand, against: baseline}}"
OUTAGES: dict[str, tuple[tuple[str, ...], float | None]] = {
    "none": ((NOTE,), None),
    "none, but a service": ((BESIDE, NOTE), None),
    "none, and a service that is kept": (("{id: up, service: {start: kept}}",), None),
    "none, and a service that is stopped": ((BESIDE, "{id: d, service: {stop: beside}}"), 5.0),
    "one": ((NOTE, UP, BENCH), 74.0),
    "one, never timed": ((UP,), None),
    "two": ((UP, DOWN, NOTE, "{id: up2, service: {start: other}}"), 74.0),
    "a cutover beside": ((BESIDE, "{id: cut, cutover: {to: beside}}"), None),
}
BASELINES = (
    "compose: {file: c.yaml, service: llm}, url: 'http://127.0.0.1:8000'",
    "process: {argv: [serve]}, url: 'http://127.0.0.1:8000'",
)


def soaks() -> Iterator[tuple[str, Tally]]:
    """One after another gets worse."""
    made = Tally()
    yield "nothing yet", made
    made.take({"t": 0.0, "event": "began", "at": 1000.0})
    for number in range(1, 121):
        made.take({"t": number * 5.0, "ok": True, "error": "", "tok_s": 10.84 - number / 50})
    yield "all is well", made
    for t in range(0, 600, 5):
        made.take({"t": t, "rss": (12.34 + t / 500) * 2**30, "anon": None, "vram": None})
    made.take({"t": 600.0, "ok": False, "error": "refused", "tok_s": None})
    yield "one error", made
    made.take({"t": 605.0, "ok": True, "error": "", "missed": 13, "retries": 1})
    yield "missed and sent twice", made
    for _ in range(2):
        made.take({"t": 606.0, "event": "restart", "at": 1600.0, "what": "anew"})
    made.take({"t": 607.0, "event": "gone", "at": 1601.0, "what": "ended by SIGKILL"})
    made.take({"t": 608.0, "event": "critical", "n": 3, "lines": ["CUDA error"]})
    made.take({"t": 650.0, "event": "gap", "from": 610.0, "to": 650.0})
    yield "a crash", made
    made.take({"t": 651.0, "event": "hang", "at": 1600.0, "what": "x"})
    yield "a hang", made
    made = Tally()
    for t in range(0, 600, 5):
        made.take({"t": t, "rss": (12.34 - t / 500) * 2**30, "anon": None, "vram": None})
        made.take({"t": t, "ok": True, "error": "", "tok_s": 10.0 + t / 100})
    yield "faster and smaller", made


def control(**where: Any) -> Control:
    """The control of a run that stands at that place."""
    made = Control()
    made.set(**{"state": R.RUNNING, "step": "bench", "attempt": 1, **where})
    return made


WAITING: dict[str, Any] = {"state": R.WAITING_APPROVAL, "step": "ok", "evidence": "e1"}
HOLDING: dict[str, Any] = {"state": R.PAUSED, "reason": "hold", "step": "go", "is_gate": True,
                           "evidence": "e2"}  # fmt: skip
DESKS: dict[str, dict[str, Any]] = {
    "running": {}, "waiting": WAITING, "waiting for a word": {**WAITING, "confirm": "cutover"},
    "holding": HOLDING, "failed": {"state": R.PAUSED, "reason": "step_failed"},
    "a failed gate": {**HOLDING, "reason": "step_failed"},
    "a row of the plan's own": {"state": R.PAUSED, "reason": "operator", "implicit": True},
    "over": {"state": R.SUCCEEDED},
}  # fmt: skip


CARDS = ("GPU-96", "GPU-32")
KINDS = {"bench": "benchmark", "soak": "soak"}


def peaks(used: float, **more: Any) -> dict[str, Any]:
    """Two cards that used so many bytes together at most, 20 GB of it on the smaller."""
    cards = {CARDS[0]: {"used": used - 20e9, "temperature": 70.0},
             CARDS[1]: {"used": 20e9, "temperature": 80.0}}  # fmt: skip
    host = {"ram_used": 64e9, "swap_used": 0, "swap_in": 0.0, "pressure": 0.5}
    return {"gpu": cards, "host": host, "n": 600, "trouble": "", **more}


def picture(
    metrics: dict[str, dict[str, Any]], machine: dict[str, Any] | None = None, **states: str
) -> RunView:
    """`metrics`: figures by `STEP.NAME`, or `STEP.baseline.NAME`. Every step that has figures
    succeeded, unless `states` says otherwise (`baseline` for the row that measures the baseline);
    one with state "" is not in the plan. All but `bench` and `soak` run a command."""
    owners = {name.split(".")[0] for name in metrics} | states.keys() - {"baseline"}
    rows = {owner: states.get(owner, "succeeded") for owner in sorted(owners)}
    if any(name.split(".")[1] == "baseline" for name in metrics) or "baseline" in states:
        rows[BASELINE_MEASURE] = states.get("baseline", "succeeded")
    rows = {owner: state for owner, state in rows.items() if state}
    steps = [{"id": o, "title": o, "phase": "p", "kind": KINDS.get(o, "run")} for o in rows]
    told: list[tuple[str, str, dict[str, Any]]] = [("run.created", "", {"steps": steps})]
    for metric, figures in metrics.items():
        scope, _, name = metric.rpartition(".")
        told.append(("metrics", scope.split(".")[0], {"scope": scope, "metrics": {name: figures}}))
    told += [("step.state", owner, {"state": state}) for owner, state in rows.items()]
    if machine is not None:
        told.append(("peaks", "", machine))
    return fold(event_of(n, 1000.0 + n, *one[:2], 1, one[2]) for n, one in enumerate(told, 1))


def figure(value: float | None, unit: str, n: int = 9, **more: Any) -> dict[str, Any]:
    return {"value": value, "unit": unit, "n": n, "void": 0, "headline": "mean", **more}


def agreeing(value: float, unit: str, n: int = 9) -> dict[str, Any]:
    """A figure whose samples are all the same."""
    return figure(value, unit, n, samples=[value] * n)
