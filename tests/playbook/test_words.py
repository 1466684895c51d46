"""What is said of a playbook that is refused, of a verdict and of a plan: whole."""

import math
import re
from collections.abc import Callable, Iterable
from unittest.mock import Mock

import pytest
from syrupy.assertion import SnapshotAssertion

from console.cli import main
from console.common.errors import ConsoleError, EngineError, Exit
from console.config.playbook.captured import read_output
from console.config.playbook.decidable import check_criterion
from console.config.playbook.threshold import Threshold, parse_threshold
from console.config.playbook.verdict import Evidence, judge
from console.config.site.site import load_site
from console.runtime.docker import compose
from tests.playbook.conftest import (
    HEAD,
    SERVICES,
    SPREAD,
    Book,
    criterion,
    moved,
    of,
    steps_text,
    tok_s,
)
from tests.playbook.test_decidable import MEASURED
from tests.playbook.test_example import EXAMPLE
from tests.playbook.test_example import SITE as PLAIN
from tests.playbook.test_load import ALIASES, BOOK, SITE

NOTE = steps_text("{id: a, note: hi}")
GUARDS = [
    "{metric: host.ram, below: 24GiB}", "{metric: host.ram_available}",
    "{metric: host.ram_available, below: 1GiB, above: 2GiB}",
    "{metric: host.ram_available, above: 1GiB}", "{metric: host.swap_used, below: 1GiB}",
    "{metric: host.ram_available, below: 24}", "{metric: host.ram_available, below: 24Gb}",
    "{metric: host.ram_available, below: true}", "{metric: host.ram_available, below: 0B}",
    "{metric: host.ram_available, below: 1MiB}", "{metric: host.swap_in_rate, above: 1GiB}",
    "{metric: host.swap_in_rate, above: 1GiB/min}", "{metric: host.pressure, above: 30}",
    "{metric: host.pressure, above: 100%}", "{metric: host.pressure, above: -1%}",
    "{metric: host.pressure_some, above: 0%}", "{metric: service.ram_used, above: 0B}",
    "{metric: service.ram_used, above: 1B, of: cand}", "{metric: host.time_to_full, below: 20}",
    "{metric: service.restarts, above: 1.5}", "{metric: service.restarts, above: -1}",
    "{metric: service.restarts, above: 1, of: candy}", "{metric: gpu.memory_used, above: 1GiB}",
    "{metric: gpu.memory_used, above: 1GiB, of: all}",
    "{metric: host.ram_available, below: 1GiB, of: cand}",
    "{metric: host.ram_available, below: 1GiB, for: 2}",
    "{metric: host.ram_available, below: 1GiB, for: 2h}",
    "{metric: host.ram_available, below: 1GiB, count: 2}",
    "{metric: host.ram_available, below: 1GiB, act: stop}",
    "{metric: host.ram_available, below: 1GiB, missing: no}",
    "{metric: host.ram_available, bellow: 1GiB}", "{below: 1GiB}", "{log: cand}", "{matches: x}",
    "{log: cand, matches: '('}", "{log: cand, matches: '.*'}", "{log: cand, matches: x, count: 0}",
    "{log: candy, matches: x}", "{log: cand, matches: x, metric: host.pressure}",
    "{log: cand, matches: x, for: 2s}", "{log: baseline, matches: x}", "just words",
]  # fmt: skip
GIVEN = [
    ("type: int, required: true, min: 1024", "1023"),
    ("type: int, required: true, max: 1048576", "1048577"),
    ("type: float, required: true, max: 0.5", "0.6"), ("type: int, required: true", ""),
    ("type: int, required: true", "1.5"), ("type: int, required: true", "1e3"),
    ("type: int, required: true", "010"), ("type: int, required: true", " 5"),
    ("type: int, required: true", "٥"), ("type: int, required: true", "9" * 50),
    ("type: int, required: true", "0x10"), ("type: float, required: true", "nan"),
    ("type: float, required: true", "inf"), ("type: float, required: true", "1e999"),
    ("type: bool, required: true", "yes"), ("type: bool, required: true", "True"),
    ("type: bool, required: true", "1"), ("type: choice, required: true, choices: [a, b]", "c"),
    ("type: string, required: true, pattern: '[a-z]+'", "abc\n"),
    ("type: string, required: true, pattern: '[a-z]+'", "x; rm"),
    ("type: string, required: true", "a\0b"), ("type: string, required: true", "a\udcff"),
    ("type: path, required: true", "a\0b"),
    ("type: path, required: true, must_exist: true", "none"),
    ("type: duration, required: true", "15"), ("type: bytes, required: true", "24"),
]  # fmt: skip
DECLARED = [
    "type: int, default: '5x'", "type: int, default: true", "type: int, default: 1.0",
    "type: string, default: 5", "type: string, default: no, pattern: yes", "type: int",
    "type: int, required: true", "type: choice, default: a", "type: date, default: a",
    "type: string, default: a, choices: [b]", "type: string, default: a, min: 1",
    "type: int, default: 1, pattern: x", "type: string, default: a, must_exist: true",
    "type: string, from: {env: X}", "type: string, default: a, pattern: '('",
    "type: string, default: a, requird: true", "type: secret", "type: secret, from: {}",
    "type: secret, from: {env: A, file: b}", "type: secret, from: {env: A}, default: hunter22",
]  # fmt: skip
HOLES = [
    "{id: a, run: ['${{ inputs.nope }}']}", "{id: a, run: ['${{ nope }}']}",
    "{id: a, run: ['${{ inputs.v']}", "{id: a, script: 'echo ${{ inputs.v }}'}",
    "{id: a, script: 'echo ${{'}", "{id: a, run: [x], env: {'${{ inputs.v }}': y}}",
]  # fmt: skip
STEPS = [
    "{id: a}", "{id: a, note: x, run: [y]}", "{id: A, note: x}", "{id: restore, note: x}",
    "{note: x}", "{id: a, note: x, timeout: 15}", "{id: a, note: x, timeout: 15min}",
    "{id: a, note: x, when: no}", "{id: a, note: x, when: 'true'}",
    "{id: a, note: x, where: {image: y}}", "{id: a, note: x, env: {A: b}}",
    "{id: a, note: x, outputs: {n: {pattern: '(x)'}}}", "{id: a, note: x, on_no_go: stop}",
    "{id: a, gguf: {}}", "{id: a, gguf: {file: x, image: i, binary: b}}",
    "{id: a, checkpoint: {repo: o/n, loader: magic}}",
    "{id: a, checkpoint: {repo: o/n, service: s, args: [-c]}}", "{id: a, imports: {modules: [x]}}",
    "{id: a, host: {compute: 12}}", "{id: a, host: {driver: 580.95}}",
    "{id: a, host: {ports: [70000]}}", "{id: a, download: {to: d}}",
    "{id: a, download: {of: b, to: d}}", "{id: a, gguf: {file: x, service: nobody}}",
    "{id: a, note: x, on_failure: abort}", "{id: a, note: x, retry: {attempts: 0}}",
    "{id: a, note: x, unless: {}}", "{id: a, run: []}", "{id: a, run: ls -l}",
    "{id: a, run: [true]}", '{id: a, run: ["a\\0b"]}', '{id: a, run: [x], env: {"A=B": c}}',
    '{id: a, run: [x], env: {"": c}}', '{id: a, run: [x], env: {A: "\\0"}}',
    "{id: a, run: [x], where: {}}", "{id: a, run: [x], where: {service: cand, gpus: all}}",
    "{id: a, run: [x], where: {image: i, memory: 24}}",
    "{id: a, run: [x], where: {image: i, mounts: [x]}}",
    "{id: a, run: [x], outputs: {n: {pattern: x}}}",
    "{id: a, run: [x], outputs: {n: {pattern: '('}}}",
    "{id: a, run: [x], outputs: {n: {pattern: '(a{99999999999})'}}}", "{id: a, check: {}}",
    "{id: a, check: {output: [x]}}", "{id: a, check: {file: x, matches: y}}",
    "{id: a, check: {image: x, min_bytes: 1B}}", "{id: a, check: {file: x, platform: y}}",
    "{id: a, check: {port_free: 65536}}", "{id: a, check: {http: {url: 'file:///etc/passwd'}}}",
    "{id: a, check: {http: {url: 'http://a:1/?x'}}}", "{id: a, service: {}}",
    "{id: a, service: {start: cand, stop: cand}}", "{id: a, service: {start: ghost}}",
    "{id: a, service: {stop: baseline}}", "{id: a, benchmark: {service: ghost}}",
    "{id: a, run: [x], where: {service: ghost}}", "{id: a, benchmark: {service: cand, runs: 0}}",
    "{id: a, approval: {prompt: x, expires: 30}}",
    "{id: a, soak: {service: cand, duration: 1h}, timeout: 59m}", "{id: a, note: x, timout: 5m}",
    "{id: a, note: x, on_failur: stop}", "{id: a, note: x, idempotant: true}",
    "{id: a, note: x, container: y}", "{id: a, note: x, zzzzzz: 1}",
    "{id: a, run: [x], environment: {A: b}}", "{id: g, gate: []}",
    "{id: m, run: [x], outputs: {n: {pattern: '([0-9]+)', unit: furlong}}}",
    "{id: a, run: [x], env: {A: true}}",
    "{id: tg, run: [x], figures: llama-bench, "
    "outputs: {tg_tok_s: {pattern: 'tg ([0-9]+)', unit: tok/s}}}",
]  # fmt: skip
GATES = [
    "b.tok_s", "b.tok_s, go: 20", "b.tok_s, go: '20'", "b.tok_s, go: '>= 20 GB'",
    "b.ttft_s, go: '<= 2'", "b.tok_s, go: '>= 0'", "b.tok_s, go: '< 0'", "b.tok_s, no_go: '< 0'",
    "b.tok_s, no_go: '>= 0'", "b.tok_s, go: '>= 20', no_go: '< 30'",
    "b.tok_s, go: '>= 20', min_samples: 0", "b.nope, go: '>= 20'", "later.tok_s, go: '>= 20'",
    "tok_s, go: '>= 20'",
]  # fmt: skip
DECIDABLE = [
    "b.error_rate, go: '<= 100 %'", "b.error_rate, go: '<= 1'", "b.error_rate, no_go: '> 100 %'",
    "b.error_rate, go: '> 1'", "s.stability, go: '> 100 %'", "s.stability, go: '>= 0 %'",
    "s.stability, go: '>= 95 %', no_go: '<= 100 %'", "s.tok_s_drift, go: '<= 1'",
    "s.tok_s_drift, no_go: '> 1'", "s.rss_peak, go: '>= 0 B'", "s.rss_peak, go: '< 0 B'",
    "gpu.peak_used, of: sum, go: '>= 0 B'", "host.pressure, go: '<= 100 %'",
    "host.pressure, go: '<= 100'", "host.pressure, no_go: '> 101'",
    "host.pressure, go: '<= 10 %', no_go: '> 5'", "b.baseline.tok_s, go: '>= 0'",
    "b.tok_s, go: '>= 20', min_samples: 13", "b.baseline.tok_s, go: '>= 20', min_samples: 13",
    "say.n, go: '== 0', min_samples: 2", "sw.tg_tok_s, go: '>= 20', min_samples: 2",
    "tg.tg_tok_s, go: '>= 0'", "tg.tg_tok_s, go: '>= 20 s'",
    "gpu.peak_temperature, of: sum, go: '< 90'", "gpu.peak_used, go: '< 90GB'",
    "host.peak_ram_used, of: max, go: '< 90GB'", "t.tok_s, go: '>= 20'",
    "t.error_rate, go: '<= 0 %'", "t.tok_s, go: '>= 20', min_samples: 4",
    "m.stability, go: '>= 95 %'", "m.restarts, go: '== 0'", "m.rss_peak, go: '< 20GiB'",
    "m.restarts, go: '== 0', min_samples: 100", "o.observed_s, go: '>= 2h'",
    "o.observed_s, no_go: '> 2h'", "o.requests, go: '>= 1000'", "o.requests, go: '> 13'",
    "o.requests, go: '< 13.5'", "o.errors, no_go: '> 13'",
    "o.stability, go: '>= 95 %', min_samples: 14", "o.restarts, go: '== 0', min_samples: 63",
    "o.tok_s_drift, go: '<= 5 %'", "o.tok_s_drift, go: '<= 5 %', min_samples: 1",
    "s.restarts, go: '== 0.5'", "s.restarts, no_go: '== 0.5'", "s.restarts, go: '> -0.5'",
    "s.errors, go: '< 0.5', no_go: '< 1'", "z.errors, go: '<= 5'", "z.errors, go: '== 0'",
    "z.errors, no_go: '> 0'", "z.stability, go: '> 95 %'", "z.error_rate, go: '< 5 %'",
    "three.errors, go: '<= 3'", "three.errors, no_go: '>= 4'", "size.gb, go: '>= 0GB'",
    "size.gb, no_go: '< 0GB'", "b.baseline.tok_s, go: '>= 1.1 x baseline'",
    "s.tok_s, go: '>= 1.1 x baseline'",
]  # fmt: skip
TOGETHER = [
    "{metric: b.tok_s, go: '>= 20'}, {metric: b.tok_s, go: '< 15'}",
    "{metric: b.tok_s, go: '>= 20'}, {metric: b.tok_s, go: '< 20'}",
    "{metric: b.tok_s, go: '> 20'}, {metric: b.tok_s, go: '== 20'}",
    "{metric: b.tok_s, go: '>= 20'}, {metric: b.tok_s, no_go: '>= 15'}",
    "{metric: b.tok_s, no_go: '< 20'}, {metric: b.tok_s, no_go: '> 15'}",
    "{metric: b.tok_s, go: '> 5'}, {metric: b.tok_s, go: '> 20'}, {metric: b.tok_s, go: '<= 15'}",
    "{metric: b.tok_s, go: '>= 1.5 x baseline'}, {metric: b.tok_s, go: '< 1.2 x baseline'}",
    "{metric: s.errors, go: '> 0'}, {metric: s.errors, go: '< 1'}",
    "{metric: gpu.peak_used, of: sum, go: '> 9GB'}, {metric: gpu.peak_used, of: sum, go: '< 8GB'}",
]  # fmt: skip
UP, BACK = "{id: up, service: {start: cand}}", "{id: cut, cutover: {to: cand}}"
STAY = "{id: cut, cutover: {to: cand, then: stay}}"
CUTOVERS = [
    [BACK], [UP, "{id: cut, cutover: {to: nope}}"], [UP, "{id: cut, cutover: {to: baseline}}"],
    [UP, "{id: d, service: {stop: cand}}", BACK], [UP, BACK, "{id: b, benchmark: {service: cand}}"],
    [UP, STAY, "{id: d, service: {stop: cand}}"], [UP, STAY, "{id: again, cutover: {to: cand}}"],
    [UP, "{id: cut, cutover: {to: cand, watch: 5s}}"],
    [UP, "{id: cut, cutover: {to: cand}, timeout: 1m}"],
    [UP, "{id: cut, cutover: {to: cand}, on_failure: continue}"],
    [UP, "{id: cut, cutover: {to: cand}, retry: {attempts: 3}}"],
    [UP, "{id: cut, cutover: {to: cand, then: promote}}"],
]  # fmt: skip
NOT_AT_THE_END = [
    "service: {start: cand}", "approval: {prompt: x}", "manual: {do: x}",
    "build: {context: x, tag: y}", "benchmark: {service: baseline}",
]  # fmt: skip
FILES = [
    "", "- a\n", "just words\n", HEAD, f"{HEAD}phases: []\n", f"{HEAD}phases:\n",
    f"{HEAD}phases: [{{title: p, steps: []}}]\n", f"{HEAD}inputs: [a]\n{NOTE}",
    f"{HEAD}{NOTE}title: again\n", f"{HEAD.replace('v1', 'v2')}{NOTE}",
    f"{HEAD.replace(': x', ': X y')}{NOTE}", f"{HEAD}{NOTE}a: {{<<: {{b: 1}}}}\n",
    f"{HEAD}lease: 30\n{NOTE}", f"{HEAD}lessons: [F-001, F-22, f002, F-028, hello]\n{NOTE}",
    f"{HEAD}{NOTE}finally: [{{id: a, note: x}}]\n",
    *(f"{HEAD}{SERVICES}{NOTE}finally: [{{id: z, {kind}}}]\n" for kind in NOT_AT_THE_END),
    *(f"{HEAD}services: {{{name!r}: {{process: {{argv: [x]}}, url: 'http://a:1'}}}}\n{NOTE}"
      for name in ("baseline", "../up", "a/b", "", "A", "a b", "x" * 42, "cutover")),
]  # fmt: skip
MANY = """\
objectve: faster
inputs:
  port: {type: int, min: 1024, default: 80}
  when: {type: date}
services:
  cand: {process: {argv: []}, url: 'http://127.0.0.1:1', ready: {timeout: 15}}
phases:
- title: one
  steps:
  - {id: a, run: [echo, "${{ inputs.nope }}"]}
  - {id: a, note: again}
  - {id: b, script: "echo ${{ inputs.port }}"}
  - {id: c, service: {start: ghost}, timeout: 15}
  - {id: d, gate: [{metric: q.tok_s, go: '>= 20'}]}
  - {id: e, note: x, run: [y]}
  - {id: e, note: x}
"""
OUTPUTS = [
    ("([0-9.]+)GB", "B", "sm120 12.5GB"), ("([0-9.]+)", "GB", "12.5GiB"),
    ("([0-9.]+)", "GiB", "12.5 GB"), ("([0-9.]+)", "GB", "900MB"), ("([0-9.]+)", "GB", "12.5GB/s"),
    ("([0-9.]+)", "s", "ttft 950 ms"), ("([0-9.]+)", "s", "12s/it"),
    ("([0-9.]+)", "tok/s", "39.5 ms per token"), ("([0-9.]+)", "tok/s", "25.3tpm"),
    ("([0-9.]+)", "ratio", "95 %"), ("([0-9.]+)", "count", "5 MiB"), ("([0-9.]+)", "", "980 MB"),
    ("([0-9.]+)", "B", "12 gb"), ("size: ([0-9.]+)", "B", "size: 10,5"),
    ("size: ([0-9]+)", "GB", "size: 12.5GB"), (".*([0-9.]+) tok", "tok/s", "tg: 12.5 tok/s"),
    (".*([0-9.]+) tok", "tok/s", "tg: 125 tok/s"), ("([0-9]{2})", "count", "errors: 1234"),
    ("([0-9.]+)", "B", "1.5e9"), ("^([0-9.]+)", "B", "1.5e9"),
    ("^([0-9]+)", "B", "12\u00a0582\u00a0912 B"), ("used: -?([0-9]+)", "B", "used: -1"),
    ("took ([0-9]+)", "min", "took 1 min 14 s"), ("([0-9]+) s$", "s", "took 1 min 14 s"),
    ("took ([0-9]+)", "h", "took 1h30m"), ("took ([0-9]+)", "min", "took 1:14"),
    ("tg: ([0-9.]+)", "tok/s", "pp: 20"),
]  # fmt: skip
CRITERIA = [
    (">= 12", "< 20"), (">= 20", "> 30"), ("<= 10", "<= 10"), ("== 20", ">= 20"),
    (">= 1.1 x baseline", "< 1.2 x baseline"), ("< 0", ""), ("== -1", ""), (">= 0", ""),
    ("", ">= 0"), ("", "< 0"), (">= 20", "< 0"), ("", "== -5"), ("", ""), (">= 10 s", ""),
]  # fmt: skip
TTFT = Evidence(0.9, "s", 5, samples=(0.7, 0.8, 0.9, 1.1, 1.2), headline="median")
JUDGED = [
    (criterion(">= 20"), tok_s(18.7)), (criterion(">= 20"), tok_s(21.0, void=1)),
    (criterion(">= 20", "< 10"), tok_s(15.0)),
    (criterion(">= 20", min_samples=5), tok_s(21.0, 1, void=8)),
    (criterion(">= 20"), tok_s(None, 0, void=9)),
    (criterion(">= 1.15 x baseline"), tok_s(20.0, baseline=10.0)),
    (criterion(">= 1.15 x baseline"), tok_s(20.0)),
    (criterion("<= 117GB", metric="gpu.peak_used", of="sum"), Evidence(118e9, "B", 1)),
    (criterion("<= 900ms", metric="bench.ttft_s"), Evidence(0.9001, "s", 9)),
    (criterion(">= 20"), tok_s(21.0, 4, void=5)),
    (criterion("> 1.2 x baseline"), tok_s(21.0, baseline=10.0, baseline_n=1, baseline_void=8)),
    (criterion("> 5", metric="soak.tok_s"), tok_s(21.0, 4, void=5, requests=9)),
    (criterion("<= 128GB", metric="vram.used"), Evidence(-1.0, "B", 1)),
    (criterion("== 0", metric="soak.restarts"), Evidence(1.0, "count", 720)),
    (criterion("== 0", metric="soak.restarts", min_requests=10), Evidence(0.0, "count", 600)),
    (criterion("== 0", metric="soak.critical_lines"), Evidence(0.0, "count", 720)),
    (criterion(no_go="> 5", metric="soak.errors"), Evidence(7.0, "count", 720)),
    (criterion(no_go="> 5", metric="soak.errors"), Evidence(1.0, "count", 720)),
    (criterion("== 0", "> 5", metric="soak.errors"), Evidence(2.0, "count", 720)),
    (criterion("< 85", metric="gpu.peak_temperature", of="max"), Evidence(91.0, "count", 600)),
    (criterion(">= 20"), tok_s(1.0, reason_missing="stale\x1b[2J\nsince 12:00")),
    (criterion(), tok_s(20.0)), (criterion(">= 10 s"), tok_s(20.0)),
    (criterion("<= 10"), Evidence(5.0, "B", 9)),
    (criterion(">= 20"), of(SPREAD)), (criterion(">= 20"), of(moved(2.0))),
    (criterion(">= 20", "< 10"), of(moved(-5.0))),
    (criterion(">= 1.5 x baseline"), of(moved(-5.0), (10.0,) * 9)),
    (criterion("> 12"), of((12.5, 3.0, 30.0))), (criterion("> 12"), of((12.5, 13.0, 30.0))),
    (criterion(">= 20"), of((20.0,) * 9)), (criterion(">= 20"), of((20.00001, 19.99999) * 4)),
    (criterion("< 900ms", metric="bench.ttft_s"), TTFT),
    (criterion(">= 1.4 x baseline", min_samples=5), of(moved(-5.0), (10.0,))),
    (criterion(">= 1"), of((*SPREAD[:6], math.nan))),
    (criterion(">= 1"), tok_s(25.0, 7, samples=SPREAD)),
    (criterion(">= 1.1 x baseline"), of(moved(9.0), (10.0, math.nan, 10.0), baseline=10.0)),
    (criterion(">= 1.1 x baseline"), of(moved(9.0), (10.0, -1.0, 10.0, 10.0, 10.0))),
    (criterion(">= 1.1 x baseline"), of(moved(9.0), (10.0,) * 5, baseline=1.0)),
]  # fmt: skip

MACHINE = """\
machine: {ram: 377GiB, swap: 207GiB}
gpus: [{uuid: GPU-a, memory: 96GiB}, {uuid: GPU-b, memory: 32GiB}]
"""


def told(cases: Iterable[str], problems: Callable[[str], list[str]]) -> str:
    """Each case, and under it what is said of it."""
    return "\n".join(line for case in cases for line in (case, *problems(case)))


def test_guards(book: Book, snapshot: SnapshotAssertion) -> None:
    rest = f"{SERVICES}guards:\n- %s\n{NOTE}"
    assert told(GUARDS, lambda guard: book.problems(rest % guard)) == snapshot


def test_inputs(book: Book, snapshot: SnapshotAssertion) -> None:
    def declared(text: str) -> str:
        return f"inputs: {{v: {{{text}}}}}\n"

    body = declared("type: string, default: x")
    said = [told(DECLARED, lambda text: book.problems(declared(text) + NOTE))]
    said.append(told(HOLES, lambda step: book.problems(body + steps_text(step))))
    for text, given in GIVEN:
        said.append(f"{text}: {given[:60]!a}")
        said += [ascii(line) for line in book.problems(declared(text) + NOTE, {"v": given})]
    assert "\n".join(said).replace(str(book.path.parent), "TMP") == snapshot


def test_steps(book: Book, snapshot: SnapshotAssertion) -> None:
    assert told(STEPS, book.step_problems) == snapshot


def test_gates(book: Book, snapshot: SnapshotAssertion) -> None:
    bench = "{id: b, benchmark: {service: cand, against: baseline}}"
    later = "{id: later, benchmark: {service: cand}}"

    def gate(criteria: str) -> str:
        return f"{{id: g, gate: [{criteria}]}}"

    said = [
        told(GATES, lambda one: book.step_problems(bench, gate(f"{{metric: {one}}}"), later)),
        told(DECIDABLE, lambda one: book.step_problems(*MEASURED, gate(f"{{metric: {one}}}"))),
        told(TOGETHER, lambda criteria: book.step_problems(*MEASURED, gate(criteria))),
    ]
    assert "\n".join(said) == snapshot


def test_cutovers(book: Book, snapshot: SnapshotAssertion) -> None:
    said = [line for steps in CUTOVERS for line in (str(steps), *book.step_problems(*steps))]
    assert "\n".join(said) == snapshot


def test_files(book: Book, snapshot: SnapshotAssertion) -> None:
    said = [line for text in FILES for line in (ascii(text), *book.problems(text, head=""))]
    many = book.problems(MANY)
    places = [tuple(map(int, line.split(":")[:2])) for line in many]
    assert places == sorted(places)
    assert "\n".join([*said, "many problems at once", *many]) == snapshot


def test_outputs(snapshot: SnapshotAssertion) -> None:
    said = []
    for case in OUTPUTS:
        with pytest.raises(ValueError, match=r".") as caught:
            read_output(*case)
        said += [ascii(case), ascii(str(caught.value))]
    assert "\n".join(said) == snapshot


def test_criteria(snapshot: SnapshotAssertion) -> None:
    said = []
    for one in (*(criterion(*pair) for pair in CRITERIA), criterion(">= 20", min_samples=0)):
        with pytest.raises(ValueError, match=r".") as caught:
            check_criterion(one, "tok/s")
        said.append(f"go {one.go} no_go {one.no_go}: {caught.value}")
    assert "\n".join(said) == snapshot


def test_verdicts(snapshot: SnapshotAssertion) -> None:
    assert "\n".join(f"{j.verdict}: {j.why}" for j in (judge(*one) for one in JUDGED)) == snapshot


def test_thresholds(snapshot: SnapshotAssertion) -> None:
    shown = [parse_threshold(" <=  117GB "), Threshold("<", 5.0, "s")]
    shown.append(Threshold(">=", 1.1, "", True))
    with pytest.raises(ValueError, match="like") as caught:
        parse_threshold("20")
    assert [*map(str, shown), str(caught.value)] == snapshot


def test_sites(book: Book, snapshot: SnapshotAssertion) -> None:
    """The aliases of a site, which only a plan shows."""
    site, said = book.path.with_name("site.yaml"), []
    for aliases in ("{a: b, b: c}", "{a: a}", "{new-engine: other}"):
        site.write_text(SITE.replace(ALIASES, aliases))
        with pytest.raises(ConsoleError) as caught:
            load_site(site)
        said += caught.value.lines()[1:]
    assert "\n".join(said).replace(str(site), "SITE") == snapshot


@pytest.mark.parametrize("name", ["example", "older"])
def test_plans(
    book: Book, name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    snapshot: SnapshotAssertion,
) -> None:  # fmt: skip
    place = book.path.parent
    monkeypatch.setenv("COLUMNS", "10000")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    none = EngineError("There is no docker command")  # whatever this machine has
    monkeypatch.setattr(compose, "_run", Mock(side_effect=none))
    site = place / "site.yaml"
    site.write_text(SITE if name == "older" else PLAIN + MACHINE)
    path, more = book.text(BOOK, head=""), []
    if name == "example":
        path, more = EXAMPLE, ["--input", f"models={place}"]
    assert main(["plan", str(path), "--site", str(site), *more]) == Exit.OK
    out = capsys.readouterr().out.replace(str(place), "TMP").replace(str(EXAMPLE.parent), "DATA")
    assert re.sub(r"[\d.]+ GiB (?=\(the machine's RAM)", "", out) == snapshot
