"""Runs that a guard stopped, or had something to say of."""

from __future__ import annotations

from typing import Any

from console.journal.run_view import RunView, fold
from console.journal.store import Event

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
    return fold(Event(n + 1, AT + n, kind, "", 0, data) for n, (kind, data) in enumerate(rows))


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
    words = "1.0 GiB of what was there before is still missing: 3.0 GiB of RAM available"
    view.stages += [{"rung": "memory", "state": "begin"},
                   {"rung": "memory", "state": "failed", "detail": words}]  # fmt: skip
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
    "the outage lasts": _lasting(),
    "the baseline was not down": _never_down(),
    "nobody knows how long the restore took": _down_in_all(),
    "no curve": breached(window={"fast": [[1, 2]]}, limit=None, gap_s=0.02),
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
