"""Runs by their events: with hostile text, stopped by a guard, and with every kind of event."""

import re
from itertools import groupby
from typing import Any

from console.common import paths
from console.journal.events import Rung
from console.journal.fold import fold
from console.journal.run_dir import RunDir, RunMeta
from console.journal.run_view import RunView
from console.journal.store import Journal, event_of
from tests.common.harmful import harmful

BAD = "\x1b]52;c;eA==\x07\x1b[31m|\u202e\x9b1m\r\n## Injected\n| a | b |\x00\u2028\ud800\\|<!-- `**"
Rows = list[tuple[str, str, dict[str, Any]]]


def begun(text: str) -> Rows:
    steps = [
        {"id": "a", "title": text, "phase": text, "kind": "run", "takes_s": 5.0},
        {"id": "g", "title": text, "phase": text, "kind": "gate"},
        {"id": "s", "title": text, "phase": text, "kind": "soak"},
    ]
    return [
        ("run.created", "", {
            "run_id": "r1", "title": text, "playbook": text, "site": text, "owner": text,
            "inputs": {"port": 8001, text: text}, "steps": steps, "objective": text,
            "digest": text, "lessons": [text], "version": text,
            "targets": [{"gate": "g", "metric": text, "of": text, "go": text, "no_go": text}],
            "baseline": {"url": text, "runs": [text], "args": [text], "reference": 10.75},
            "machine": {"kernel": text, "cpu": text, "driver": text, "cards_why": text,
                        "cards": [{"uuid": text, "name": text, "memory": 1}], "cores": 2},
        }),
        ("step.state", "a", {"state": "running", "effects": [text]}),
        ("step.state", "a", {
            "state": "failed", "cause": "exit_code", "detail": text, "lines": [text, text],
            "duration_s": 2.0,
        }),
    ]  # fmt: skip


def seen(text: str, figures: dict[str, Any]) -> Rows:
    bench = {
        "model": text, "build": text, "flags": [text], "url": text, "voids": [{"reason": text}],
        "cold": {"tok_s": 1.0}, "levels": [{"streams": text, "valid": text}],
        "context": {"server": {"argv": [text], "image": text},
                    "cards": {text: {"name": text, "slowed": {text: 1}}}},
    }  # fmt: skip
    soak = {
        "errors": {text: 2}, "hangs": [{"t": 1.0, "what": text}], "critical": [text],
        "restarts": [{"t": 1.0, "what": text}], "early": text, "last_error": text,
    }  # fmt: skip
    asked = {"value": 3, "unit": text, "n": 3, "why": text}
    point = {"phase": text, "at_s": None, "ram": 5, "page_cache": 0, "vram": {text: 7}, "swap": 0}
    return [
        ("metrics", "a", {
            "metrics": {"tok_s": figures, text: {"value": None}}, "benchmark": bench,
        }),
        ("metrics", "s", {
            "metrics": {"requests": asked, text: {"value": 1.0, "unit": text}}, "soak": soak,
        }),
        ("peaks", "s", {"gpu": {text: {"used": None, "why": {"used": text}}},
                        "host": {"ram_used": 5, "why": {"swap_used": text}}, "n": 1}),
        ("envelope", "a", {"envelope": {"schema": 1, "points": [point]}}),
    ]  # fmt: skip


def view(text: str = "ok", state: str = "failed", **figures: Any) -> RunView:
    """A run in which every text of the journal is `text`."""
    figures = {"value": 20.0, "unit": "tok/s", "n": 9, "median": 19.5, **figures}
    criteria = [{"metric": text, "verdict": "NO-GO", "why": text}]
    rows = [
        *begun(text), *seen(text, figures),
        ("verdict", "g", {
            "verdict": "NO-GO", "outcome": text, "criteria": criteria, "overridden": text,
        }),
        ("verb", "a", {"verb": "skip", "who": text, "why": text}),
        ("serving", "", {"tok_s": 10.5, "degraded": True}),
        ("run.state", "", {"state": state, "reason": text}),
    ]  # fmt: skip
    return fold(
        event_of(seq, 1000.0 + seq, kind, step, 1, data)
        for seq, (kind, step, data) in enumerate(rows, 1)
    )


def tables(text: str) -> list[list[str]]:
    groups = groupby(text.split("\n"), key=lambda line: line.startswith("|"))
    return [list(lines) for is_table, lines in groups if is_table]


def check_harmless(text: str) -> None:
    assert [found for line in text.split("\n") for found in harmful(line)] == []
    for table in tables(text):
        # cells of a row, as a Markdown reader splits it
        cells = {len(re.findall(r"(?:\\[\\|]|[^|])*\|", row)) for row in table}
        assert len(cells) == 1, table
    for line in text.split("\n"):
        if not line.startswith("    "):  # a block is literal
            outside = re.sub(r"(?<!\\)`[^`]*`", "", line)
            assert not re.search(r"(?<!\\)(\\\\)*<[A-Za-z/!?]", outside), line


GIB = 1 << 30
AT = 1_790_000_000.0
BREACH: dict[str, Any] = {
    "at": AT, "cause": "guard",
    "reasons": ["RAM available 1.9 GiB, limit 2.0 GiB", "full in 2.1 s"],
    "limit": {"metric": "host.ram_available", "below": 2 * GIB, "source": "playbook, line 6"},
    "killed": [{"name": "cand", "kind": "process", "rung": "SIGKILL", "write_s": 0.018,
                "empty_s": 0.22}],
    "curve": {"metric": "host.ram_available", "of": "", "column": 1}, "gap_s": 0.25,
    "window": {"fast": [[AT - 90 + t, (20 - 0.2 * min(t, 90)) * GIB, 0, 0.0] for t in range(95)]},
}  # fmt: skip
WORDS = "RAM available 1.9 GiB, limit 2.0 GiB"
ROWS = [[AT - 9 + t, 8 * GIB, t * GIB, t * 5.0] for t in range(10)]
HELD = {"ram": 6.0 * GIB, "swap": 0, "age_s": 0.02}


def run(*guards: dict[str, Any], state: str = "rolled_back", restore: bool = True) -> RunView:
    rows: list[tuple[str, dict[str, Any]]] = [
        ("run.created", {"run_id": "r-1", "title": "The [trial]", "steps": []}),
        ("outage", {"down": True}),
        *(("guard", one) for one in guards),
    ]
    if restore:
        rows.append(("outage", {"down": False, "restore_s": 7.4}))
    rows.append(("run.state", {"state": "running"}))
    rows.append(("run.state", {"state": state, "reason": "guard"}))
    return fold(event_of(n + 1, AT + n, kind, "", 0, data) for n, (kind, data) in enumerate(rows))


def breached(**changes: Any) -> RunView:
    return run({"kind": "breach", "words": WORDS, **BREACH, **changes})


def of_column(metric: str, column: int, value: float | None = None, **limit: Any) -> RunView:
    """A breach of a figure that the window itself holds."""
    curve = {"metric": metric, "of": "", "column": column}
    return breached(limit={"metric": metric, **limit}, curve=curve, value=value,
                    window={"fast": ROWS})  # fmt: skip


def of_service(**changes: Any) -> RunView:
    points = [[AT - 3 + t, t * 2 * GIB] for t in range(4)]
    limit = {"metric": "service.ram_used", "above": 4 * GIB, "of": "cand", "source": "x"}
    curve = {"metric": "service.ram_used", "of": "cand", "points": points}
    killed = [{**BREACH["killed"][0], "held": HELD}]
    return breached(**{"limit": limit, "curve": curve, "killed": killed, **changes})


def _memory_missing() -> RunView:
    view = breached()
    words = "1.0 GiB of the RAM expected after the kill is missing: 3.0 GiB available"
    view.stages += [Rung(rung="memory", state="begin"),
                   Rung(rung="memory", state="failed", detail=words)]  # fmt: skip
    return view


def _lasting() -> RunView:
    return run({"kind": "breach", "words": WORDS, **BREACH}, state="rollback_failed", restore=False)


def _never_down() -> RunView:
    view = breached(killed=[])
    view.restored_s, view.down_s = None, 0.0
    return view


def _down_in_all() -> RunView:
    view = breached(curve={"metric": "disk.free", "of": "/", "points": [[AT - 2, 9], [AT, 5]]},
                    limit={"metric": "disk.free", "below": 6, "of": "/"})  # fmt: skip
    view.restored_s = None
    return view


BREACHES = {
    "nothing was said": run(),
    "it only watched": run({"kind": "watching", "words": "x"}),
    "memory ran out": breached(),
    "memory did not come back": _memory_missing(),
    "warnings and a new sentinel": run(
        {"kind": "warn", "words": "full in 28 s | soon"}, {"kind": "restarted", "words": "gone"},
        {"kind": "odd", "words": "x"},
    ),
    "many warnings": run(*({"kind": "warn", "words": f"w{n}"} for n in range(43))),
    "the lease ran out": breached(cause="lease", limit={}, killed=[]),
    "Slurm took the cards": breached(cause="allocation", limit={}, killed=[]),
    "the outage lasts": _lasting(),
    "the baseline was not down": _never_down(),
    "nobody knows how long the restore took": _down_in_all(),
    "no curve": breached(window={"fast": [[1, 2]]}, limit={}, gap_s=0.02),
    "a service": of_service(),
    "a service without its curve": of_service(curve={}),
    "swap": of_column("host.swap_growth", 2, value=6 * GIB, above=5 * GIB),
    "pressure": of_column("host.pressure", 3, above=30.0),
    "swap beside RAM": breached(window={"fast": ROWS}),
    "lines of a log": breached(
        limit={"log": "cand", "matches": "CUDA", "count": 3}, value=3,
        curve={"log": "cand", "of": "cand", "points": [[AT - 2, 0], [AT - 1, 2]]},
    ),
    "times of another clock": breached(
        window={"fast": [[AT + 5e6 + t, GIB, 0, 0] for t in range(3)]}
    ),
    "foreign words": breached(
        killed=[{"name": "[x](http://e) <b>", "rung": "`a`"}], reasons=["<i>"]
    ),
    "no sentinel any more": run({"kind": "gone", "words": "no sentinel"}),
}  # fmt: skip


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
