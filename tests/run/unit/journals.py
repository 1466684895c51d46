"""Journals with every kind of event, for what prints a run: `runs`, `show`, `logs`, following."""

from __future__ import annotations

from typing import Any

from console.common import paths
from console.journal.run_dir import RunDir, RunMeta
from console.journal.store import Journal
from tests.run.unit.breaches import AT, BREACH, WORDS
from tests.run.unit.hostile import BAD

Told = list[tuple[str, str, int, dict[str, Any]]]
META = RunMeta("", "/x/book.yaml", "/x", "", "/x/site.yaml", "/x", owner="ann")
STEPS = [
    {"id": name, "title": f"Title of {name}", "phase": phase, "kind": kind, "takes_s": 5.0,
     "lessons": ["F-013 shallow clones – named by the playbook"] if name == "up" else []}
    for name, phase, kind in (
        ("up", "Load", "service"), ("bench", "Trial", "benchmark"), ("go", "Trial", "gate"),
        ("cut", "Trial", "cutover"), ("restore", "Restore", "restore"),
    )
]  # fmt: skip
CREATED: dict[str, Any] = {
    "run_id": "20260101-000000-x-1a2b", "title": "A trial", "playbook": "x", "site": "ws",
    "owner": "ann", "restore_s": 74.0, "steps": STEPS,
}  # fmt: skip
BEGUN: Told = [
    ("run.created", "", 0, CREATED), ("run.state", "", 0, {"state": "running"}),
    ("outage", "up", 1, {"down": True}),
    ("step.state", "up", 1, {"state": "running", "effects": ["$ serve --x", "THE BASELINE STOPS"]}),
    ("service", "up", 1, {"service": "cand", "alive": True}),
    ("step.say", "up", 1, {"text": "not ready yet"}),
    ("step.state", "up", 1, {"state": "failed", "cause": "exit_code", "detail": "ended",
                             "duration_s": 3.2, "lines": ["CUDA error", BAD]}),
    ("run.state", "", 0, {"state": "paused", "reason": "step_failed", "detail": "step up"}),
    ("verb", "up", 1, {"verb": "retry", "who": "ann", "why": "again"}),
    ("run.state", "", 0, {"state": "running"}),
    ("step.state", "up", 2, {"state": "running"}),
    ("step.state", "up", 2, {"state": "succeeded", "duration_s": 61.0, "detail": "ready"}),
    ("run.note", "", 0, {"text": "the lease was renewed"}),
    ("step.state", "ghost", 1, {"state": "running"}),
]  # fmt: skip
JUDGED: Told = [
    ("metrics", "bench", 1, {"metrics": {"tok_s": {"value": 20.5, "unit": "tok/s"},
                                         "ttft_s": {"value": None}}}),
    ("step.state", "bench", 1, {"state": "skipped", "detail": "known flake"}),
    ("run.state", "", 0, {"state": "waiting_approval", "reason": "", "detail": "go"}),
    ("verb", "go", 1, {"verb": "approve", "who": "bo", "why": ""}),
    ("verdict", "go", 1, {"verdict": "GO", "outcome": "migrate", "overridden": "bo: seen by eye",
                          "criteria": [{"metric": "bench.tok_s", "verdict": "HOLD",
                                        "why": "2 valid samples"}]}),
    ("step.state", "go", 1, {"state": "succeeded"}),
    ("doubt", "go", 1, {"verdict": "NO-GO", "words": "it misses 1.5 x baseline"}),
]  # fmt: skip
STAYS: Told = [
    ("cutover", "cut", 1, {"what": "stays", "service": "cand", "url": "http://127.0.0.1:8000"}),
    ("step.state", "cut", 1, {"state": "succeeded", "duration_s": 9.0}),
    ("run.state", "", 0, {"state": "succeeded"}), ("run.finished", "", 0, {}),
]  # fmt: skip
BREACHED: Told = [
    ("guard", "", 0, {"kind": "watching", "words": "pid 7"}),
    ("guard", "", 0, {"kind": "warn", "words": "RAM full in 28 s"}),
    ("guard", "", 0, {"kind": "breach", "words": WORDS, **BREACH}),
    ("run.state", "", 0, {"state": "rolling_back", "reason": "guard"}),
    ("rung", "", 0, {"rung": "stop", "state": "begin", "t": 0.1}),
    ("rung", "", 0, {"rung": "stop", "state": "ok", "t": 1.25, "detail": "cand is gone"}),
    ("rung", "", 0, {}),
    ("service", "up", 2, {"service": "cand", "alive": False}),
    ("outage", "", 0, {"down": False, "restore_s": 7.4}),
    ("run.state", "", 0, {"state": "rolled_back", "reason": "guard"}), ("run.finished", "", 0, {}),
]  # fmt: skip
JOURNALS: dict[str, Told] = {
    "it stays at the candidate": [*BEGUN, *JUDGED, *STAYS],
    "a guard stopped it": [*BEGUN, *BREACHED],
    "its runner died": BEGUN,
    "its runner died after the cutover": [*BEGUN, *JUDGED, *STAYS[:1]],
    "its runner died with nothing up": BEGUN[:2],
    "a rehearsal that said no": [
        ("run.created", "", 0, {**CREATED, "rehearsal": {"fault": "slow"}, "restore_s": None}),
        ("outage", "", 0, {"down": True}), ("outage", "", 0, {"down": False}),
        ("verdict", "go", 1, {"verdict": "NO-GO", "criteria": []}),
        ("step.state", "go", 1, {"state": "succeeded"}),
        ("run.state", "", 0, {"state": "succeeded"}), ("run.finished", "", 0, {}),
    ],
}  # fmt: skip


def shelved(told: Told, name: str = "20260101-000000-x-1a2b") -> RunDir:
    """A run of that name in the runs' directory with these events in its journal."""
    run = RunDir(paths.runs_dir() / name)
    (run.path / "attempts").mkdir(parents=True)
    run.write_meta(META)
    journal = Journal(run.journal)
    for number, (kind, step, attempt, data) in enumerate(told):
        journal.append(AT + number, kind, step, attempt, data)
    journal.close()
    return run
