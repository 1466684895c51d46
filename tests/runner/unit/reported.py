"""Runs as their journals and files tell them, for reports: the lessons' own figures."""

import json
import math
from copy import deepcopy
from pathlib import Path
from typing import Any

from console.journal.fold import fold
from console.journal.run_dir import RunDir, RunMeta, create
from console.journal.run_files import read_view
from console.journal.run_view import RunView
from console.journal.store import Journal, event_of

GIB = 2**30
BEGIN = 1_790_000_000.0
BIG, SMALL = "GPU-f4f210c1", "GPU-bfbb9aa1"
Rows = list[tuple[float, str, str, dict[str, Any]]]

STEPS: list[dict[str, Any]] = [
    {"id": "fit", "title": "Does it fit?", "phase": "Before", "kind": "checkpoint", "takes_s": 5.0,
     "effects": ["looks up deepseek-v3.2 Q3_K_M"]},
    {"id": "baseline:measure", "title": "Measure the baseline", "phase": "Trial",
     "kind": "baseline:measure", "implicit": True, "effects": ["same prompts as the candidate"]},
    {"id": "baseline:stop", "title": "Stop the baseline", "phase": "Trial",
     "kind": "baseline:stop", "implicit": True, "effects": ["THE BASELINE STOPS HERE"]},
    {"id": "up", "title": "Start ik_llama.cpp", "phase": "Trial", "kind": "service",
     "takes_s": 240.0, "effects": [
        "creates and starts a container of omni/ik-llama:sm120: llama-server --split-mode graph "
        "--api-key sk-123456 --n-gpu-layers 999"]},
    {"id": "bench", "title": "Measure it", "phase": "Trial", "kind": "benchmark",
     "takes_s": 600.0, "effects": ["9 runs of 256 tokens against candidate"]},
    {"id": "go", "title": "Fast enough?", "phase": "Trial", "kind": "gate",
     "effects": ["bench.tok_s: GO >= 20 tok/s, else NO-GO"]},
    {"id": "soak", "title": "One hour", "phase": "Trial", "kind": "soak", "takes_s": 3600.0,
     "effects": ["1 h 00 min of requests to candidate, the next 5.00 s after each reply"]},
    {"id": "stable", "title": "Stable?", "phase": "Trial", "kind": "gate",
     "effects": ["soak.rss_growth: GO < 20GiB, else NO-GO"]},
    {"id": "restore", "title": "Restore the baseline", "phase": "Restore", "kind": "restore",
     "takes_s": 74.0, "implicit": True, "effects": ["stop candidate, then start the baseline"]},
    {"id": "baseline:measure-again", "title": "Measure the baseline again", "phase": "Restore",
     "kind": "baseline:measure", "implicit": True, "effects": ["same benchmark"]},
]  # fmt: skip

TARGETS: list[dict[str, Any]] = [
    {"gate": "go", "metric": "bench.tok_s", "of": None, "go": ">= 20 tok/s", "no_go": "",
     "min_samples": 3},
    {"gate": "go", "metric": "bench.ttft_s", "of": None, "go": "< 2s", "no_go": "",
     "min_samples": 1},
    {"gate": "go", "metric": "gpu.peak_used", "of": "sum", "go": "<= 117GB", "no_go": "",
     "min_samples": 1},
    {"gate": "stable", "metric": "soak.rss_growth", "of": None, "go": "< 20GiB", "no_go": "",
     "min_samples": 1},
    {"gate": "stable", "metric": "soak.errors", "of": None, "go": "== 0", "no_go": "",
     "min_samples": 1},
]  # fmt: skip

MACHINE: dict[str, Any] = {
    "kernel": "6.8.0-90-generic", "cpu": "AMD Ryzen Threadripper PRO 9995WX", "cores": 96,
    "threads": 192, "numa_nodes": 1, "ram": 377 * GIB, "swap": 207 * GIB, "driver": "580.95.05",
    "cards": [
        {"uuid": BIG, "name": "NVIDIA RTX PRO 6000 Blackwell", "memory": 96 * GIB},
        {"uuid": SMALL, "name": "NVIDIA GeForce RTX 5090", "memory": 32 * GIB},
    ],
}  # fmt: skip

ENVELOPE = {
    "schema": 1,
    "points": [
        {"phase": "start", "at_s": 0.0, "ram": 0, "page_cache": 0, "vram": {}, "swap": 0},
        {"phase": "serving", "at_s": 48.0, "ram": 12 * GIB, "page_cache": 200 * GIB,
         "vram": {"NVIDIA RTX PRO 6000 Blackwell": 88 * GIB, "NVIDIA GeForce RTX 5090": 26 * GIB},
         "swap": 0},
    ],
}  # fmt: skip


def created(**changes: Any) -> dict[str, Any]:
    return {
        "run_id": "20260922-001320-ik-llama-phase2-1a2b",
        "title": "Replace llama.cpp with ik_llama.cpp",
        "objective": "10.75 → 20 tok/s with one hour of stability", "playbook": "ik-llama-phase2",
        "digest": "0c5d1f2e3a4b5c6d", "site": "workstation", "owner": "ann", "steps": STEPS,
        "inputs": {"split": "graph", "port": 8001}, "version": "0.1.0",
        "targets": deepcopy(TARGETS), "machine": deepcopy(MACHINE),
        "baseline": {"url": "http://127.0.0.1:8000", "reference": 10.75,
                     "runs": ["starts the existing container deepseek-r1"], "args": []},
        **changes,
    }  # fmt: skip


def figures(mean: float, std: float, unit: str = "tok/s", **more: Any) -> dict[str, Any]:
    return {
        "value": mean, "headline": "mean", "unit": unit, "n": 9, "void": 0, "mean": mean,
        "std": std, "median": mean, "min": mean - 2 * std, "max": mean + 2 * std,
        "samples": [mean + std * math.sin(n * 2.1) for n in range(9)], **more,
    }  # fmt: skip


def bench(tok_s: float, ttft: float, who: str) -> dict[str, Any]:
    quick = {"headline": "median"}
    return {
        "metrics": {
            "tok_s": figures(tok_s, 0.09), "decode_tok_s": figures(tok_s * 1.03, 0.05, **quick),
            "prompt_tok_s": figures(tok_s * 9.2, 1.7, **quick),
            "ttft_s": figures(ttft, 0.012, "s", **quick), "ttfo_s": {"value": None, "unit": "s"},
            "error_rate": {"value": 0.0, "unit": "ratio", "n": 9, "headline": "mean"},
        },
        "benchmark": {
            "model": who, "build": "b4711-0c5d1f2", "flags": ["busy at the same time: cc1plus"],
            "voids": [{"run": 3, "reason": "short output, 12 of 256 tokens"}], "duration_s": 251.0,
            "url": "http://127.0.0.1:8001", "transport_retries": 1, "started_at": 1_790_000_000.0,
            "cold": {"tok_s": 0.9, "ttft_s": 31.0},
            "levels": [{"streams": 4, "requests": 12, "valid": 12, "tok_s": 31.2,
                        "decode_tok_s": 8.1, "ttft_s": 2.4, "ttft_max_s": 6.1}],
            "context": {
                "server": {"argv": ["llama-server", "--api-key", "*****"], "image": "omni/ik",
                           "image_id": "sha256:1234"},
                "cards": {BIG: {"name": "NVIDIA RTX PRO 6000", "looks": 9, "slowed": {"heat": 3},
                                "sm_mhz": {"min": 1800.0, "mean": 2300.0, "max": 2400.0},
                                "power_w": {"min": 410.0, "mean": 500.0, "max": 598.0},
                                "power_limit_w": 600.0}},
                "swapped_in": 0, "server_major_faults": 1234, "busy": [], "runs": 9,
            },
        },
    }  # fmt: skip


def done(
    rows: Rows, at: float, step: str, took: float, state: str = "succeeded", **data: Any
) -> float:
    """A step from `at` on; the moment it ended."""
    effects = next((s.get("effects", []) for s in STEPS if s["id"] == step), [])
    rows.append((at, "step.state", step, {"state": "running", "effects": effects}))
    rows.append((at + took, "step.state", step, {"state": state, "duration_s": took, **data}))
    return at + took


def trial(tok_s: float = 6.1, *, soaked: bool = False, **changes: Any) -> Rows:
    """The first part: fit, baseline, load, benchmark; up to the gate."""
    rows: Rows = [(BEGIN, "run.created", "", created(**changes))]
    rows.append((BEGIN, "run.state", "", {"state": "running"}))
    at = done(rows, BEGIN + 2, "fit", 4.0)
    rows.append((at, "envelope", "fit", {"envelope": deepcopy(ENVELOPE)}))
    fits = ("GO", "GO", "GO: 114.0 GiB on the cards, 12.0 GiB in RAM")
    rows.append((at, "verdict", "fit", verdict("GO", "", fits)))
    at = done(rows, at, "baseline:measure", 260.0)
    rows.append((at, "metrics", "baseline:measure",
                 {"scope": "bench.baseline", **bench(10.75, 1.91, "deepseek-r1")}))  # fmt: skip
    rows.append((at, "outage", "baseline:stop", {"down": True}))
    at = done(rows, at, "baseline:stop", 9.0)
    at = done(rows, at, "up", 251.0, detail="ready after 4 min 11 s")
    at = done(rows, at, "bench", 430.0, detail=f"{tok_s:.2f} ± 0.06 tok/s over 9 runs")
    rows.append((at, "metrics", "bench", {"scope": "bench", **bench(tok_s, 0.812, "ik-llama")}))
    peaks = {
        "gpu": {BIG: {"used": 91 * GIB, "temperature": 71.0},
                SMALL: {"used": None, "temperature": 66.0, "seen": {"used": 26 * GIB},
                        "why": {"used": "not read for 14 s in a row: NVML did not answer"}}},
        "host": {"ram_used": 61 * GIB, "swap_used": 0, "swap_in": 0.0, "pressure": 1.25}, "n": 900,
    }  # fmt: skip
    rows.append((at, "peaks", "bench", peaks))
    return rows


def ending(rows: Rows, state: str, reason: str = "", *, degraded: bool = False) -> Rows:
    at = done(rows, rows[-1][0] + 1, "restore", 71.0)
    rows.append((at, "outage", "restore", {"down": False, "restore_s": 68.9}))
    proof = {"tok_s": 9.3 if degraded else 10.81, "degraded": degraded, "reference": 10.75}
    rows.append((at, "serving", "restore", proof))
    at = done(rows, at, "baseline:measure-again", 262.0)
    again = {"scope": "bench.baseline-after", **bench(10.69, 1.93, "deepseek-r1")}
    rows.append((at, "metrics", "baseline:measure-again", again))
    rows.append((at, "run.state", "", {"state": state, "reason": reason}))
    return rows


def verdict(word: str, outcome: str, *criteria: tuple[str, str, str]) -> dict[str, Any]:
    """A gate's event; criteria are (metric, verdict, words)."""
    rows = [{"metric": m, "verdict": v, "why": why} for m, v, why in criteria]
    return {"verdict": word, "outcome": outcome, "criteria": rows}


MISSED = "bench.tok_s 6.1 tok/s misses >= 20 tok/s by 13.9 tok/s (9 valid samples)"
SLOW = ("bench.tok_s", "NO-GO", MISSED)
QUICK = ("bench.ttft_s", "GO", "bench.ttft_s 812 ms meets < 2s (9 valid samples)")
UNREAD = "gpu.peak_used (sum): no usable figure, the 5090 was not read for 14 s"
UNSURE = ("gpu.peak_used", "HOLD", UNREAD)


def no_go() -> RunView:
    """The first trial: it missed its target."""
    return view_of(no_go_rows())


def no_go_rows() -> Rows:
    rows = trial(6.1)
    at = done(rows, rows[-1][0], "go", 0.1)
    rows.append((at, "verdict", "go", verdict("NO-GO", "retain", SLOW, QUICK, UNSURE)))
    return ending(rows, "rolled_back", "go: gate")


def soaked(**soak: Any) -> RunView:
    return view_of(soaked_rows(**soak))


def soaked_rows(**soak: Any) -> Rows:
    rows = trial(21.34)
    at = done(rows, rows[-1][0], "go", 0.1)
    fast = ("bench.tok_s", "GO", "bench.tok_s 21.34 tok/s meets >= 20 tok/s (9 valid samples)")
    rows.append((at, "verdict", "go", verdict("GO", "soak", fast, QUICK)))
    at = done(rows, at, "soak", 3600.0)
    metrics = {
        "requests": {"value": 342, "unit": "count", "n": 342},
        "errors": {"value": 3, "unit": "count", "n": 342},
        "error_rate": {"value": 3 / 342, "unit": "ratio", "n": 342},
        "stability": {"value": 339 / 342, "unit": "ratio", "n": 342},
        "tok_s": {"value": 20.71, "unit": "tok/s", "n": 339},
        "tok_s_drift": {"value": 0.113, "unit": "ratio", "n": 339},
        "observed_s": {"value": 3420.0, "unit": "s", "n": 1},
        "restarts": {"value": 1, "unit": "count", "n": 1},
        "hangs": {"value": 1, "unit": "count", "n": 1},
        "critical_lines": {"value": 1, "unit": "count", "n": 1},
        "rss_growth": {"value": 4.2 * GIB, "unit": "B", "n": 700},
        "rss_peak": {"value": 24.9 * GIB, "unit": "B", "n": 700},
    }  # fmt: skip
    found = {
        "file": "/elsewhere/soak.1.soak.jsonl", "gaps": [[1500.0, 1680.0]],
        "restarts": [{"t": 2450.0, "at": 1.0, "what": "another process"}],
        "errors": {"transport": 2, "timeout": 1}, "hangs": [
            {"t": 2300.0, "at": 1.0, "what": "no token for 61 s", "requests": 2, "until": 2400.0}],
        "critical": ["CUDA error: out of memory in ggml_cuda_pool | x"], **soak,
    }  # fmt: skip
    rows.append((at, "metrics", "soak", {"metrics": metrics, "soak": found}))
    bad = ("soak.errors", "NO-GO", "soak.errors 3 misses == 0 by 3 (342 valid samples)")
    rss = ("soak.rss_growth", "GO", "soak.rss_growth 4.2 GiB meets < 20GiB (700 valid samples)")
    at = done(rows, at, "stable", 0.1)
    rows.append((at, "verdict", "stable", verdict("NO-GO", "retain", rss, bad)))
    return ending(rows, "rolled_back", "stable: gate")


def view_of(rows: Rows) -> RunView:
    return fold(
        event_of(seq, at, kind, step, 1, data)
        for seq, (at, kind, step, data) in enumerate(sorted(rows, key=lambda row: row[0]), 1)
    )


def run_dir(place: Path, view: RunView) -> RunDir:
    """A run's directory with gauges over the run, and a soak over time."""
    run, attempts = RunDir(place), place / "attempts"
    attempts.mkdir(parents=True, exist_ok=True)
    _gauges(run, view)
    lines = []
    for n in range(342):
        t = n * 10.5
        if 1500 <= t <= 1680:
            continue
        rate = 21.4 - 0.0006 * max(0.0, t - 1700) + 0.5 * math.sin(n * 1.7)
        bad = n in (60, 225, 226)
        speed = {"tok_s": None if bad else rate, "ttft_s": 0.4}
        lines.append({"t": t, "ok": not bad, "error": "transport" if bad else "", **speed})
        lines.append({"t": t + 1, "rss": (20.7 + t / 3600 * 4.2) * GIB, "vram": 117 * GIB})
    (attempts / "soak.1.soak.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    return run


def _gauges(run: RunDir, view: RunView) -> None:
    run.gauges.parent.mkdir(exist_ok=True)
    began = {step.id: step.started for step in view.steps if step.started}
    lines, end = [], int(view.ended - BEGIN)
    for second in range(0, end, max(1, end // 3000)):
        at = BEGIN + second
        step = max((s for s in began if began[s] <= at), key=lambda s: began[s], default="")
        up = began["up"]
        served = at < began["baseline:stop"] + 6 or at > began["restore"] + 30
        share = min(1.0, max(0.0, (at - up) / 240.0)) if at < began["restore"] else 0.0
        big, small = (90, 26) if served else (1 + share * 89.6, 1 + share * 25.2)
        used = {BIG: big * GIB, SMALL: small * GIB}
        ram = (48 + 13 * share + 0.4 * math.sin(second / 40)) * GIB
        lines.append({"at": at, "step": step, "gpu": used, "ram": ram, "swap": 0})
    run.gauges.write_text("".join(json.dumps(one) + "\n" for one in lines) + '{"at": 1, "torn')


def kept(rows: Rows, **changes: Any) -> RunDir:
    """A run in the runs' directory with these events in its journal; `changes` to its header."""
    meta = RunMeta("", "/x/book.yaml", "/x", "", "/x/site.yaml", "/x", owner="ann")
    run = create("ik-llama-phase2", meta, "", "")
    journal = Journal(run.journal)
    for at, kind, step, data in sorted(rows, key=lambda row: row[0]):
        more = {"run_id": run.id, **changes} if kind == "run.created" else {}
        journal.append(at, kind, step, 1, {**data, **more})
    journal.append(rows[-1][0] + 1, "run.finished", "", 0, {})
    journal.close()
    return run_dir(run.path, read_view(run))
