"""The state of this host in one object, as `bridge` answers it and `fleet` shows it."""

from __future__ import annotations

import threading
import time
from typing import Any

from console.common.errors import ConsoleError
from console.common.text import one_line
from console.frontends.cli.machine import guard_json
from console.frontends.tui.watch.baseline import UNKNOWN, BaselineView, BaselineWatch
from console.host.gpu import inventory
from console.host.gpu.inventory import Cards
from console.host.memory import MemoryReader
from console.journal.guard_status import GuardWatch, run_on
from console.journal.lock import runner_alive
from console.journal.run_dir import RunDir, all_runs
from console.journal.run_files import cleaned, view_of
from console.journal.run_view import RunView
from console.journal.state import possible_verbs, stands
from console.render.progress import said_words
from console.runner import control

CARDS_S, LOOK_S, STATUS_S = 3.0, 4.0, 1.0


def state_of(site: str | None) -> dict[str, Any]:
    """Baseline, newest run, guard, lease and memory; what cannot be told is a word, or null."""
    asked: list[Cards] = []
    cards = threading.Thread(target=lambda: asked.append(inventory.ask(CARDS_S)), daemon=True)
    cards.start()
    run, view, word = _run()
    alive = run is not None and runner_alive(run)
    baseline = _baseline(site, planned=alive and view is not None and view.outage)
    guard = GuardWatch().look(run, alive, over=view is None or view.over)
    cards.join(CARDS_S + 1.0)
    found = asked[0] if asked else Cards(words="NVML gave no answer")
    told: dict[str, Any] = cleaned({
        "at": time.time(), "baseline": baseline,
        "run": _run_json(run, view, word, alive) if run is not None else None,
        "guard": guard_json(guard), "memory": _memory(),
        "cards": [{"name": one.name, "total": one.total, "free": one.free} for one in found.cards],
        "cards_why": found.words,
    })  # fmt: skip
    return told


def _run() -> tuple[RunDir | None, RunView | None, str]:
    """The active run, else the newest one."""
    active, _ = run_on()
    run = active or next(iter(all_runs()), None)
    if run is None:
        return None, None, ""
    try:
        return run, *view_of(run)
    except ConsoleError as error:
        return run, None, f"unreadable: {one_line(str(error), 100)}"


def _run_json(run: RunDir, view: RunView | None, word: str, alive: bool) -> dict[str, Any]:
    view = view or RunView()
    step, status = view.current, _status(run) if alive else {}
    return {
        "id": run.id, "title": view.title, "playbook": view.playbook, "state": word,
        "reason": view.reason, "alive": alive, "over": view.over, "seq": view.seq,
        "step": step.id if step is not None else None,
        "step_number": view.steps.index(step) + 1 if step is not None else None,
        "steps": len(view.steps),
        "said": said_words(step, time.time()) if step is not None and alive else "",
        "waits_for": stands(view.state, view.reason, str(status.get("step") or "")),
        "decision": view.decision.word or None, "outcome": view.outcome or None,
        "mark": view.mark or None, "outage": view.outage, "restore_s": view.restore_s,
        "created": view.created, "ended": view.ended or None,
        "verbs": possible_verbs(view.state, view.reason) if alive else [],
        "status": status,
    }  # fmt: skip


def _status(run: RunDir) -> dict[str, Any]:
    """Where the runner stands, which verbs are bound to; empty if it does not say."""
    try:
        return control.send(run.socket, {"verb": "status"}, STATUS_S)
    except (ConsoleError, OSError):
        return {}


def _baseline(site: str | None, *, planned: bool) -> dict[str, Any]:
    watch = BaselineWatch(site=site)
    watch.follow(None, planned=planned)
    watch.start()
    try:
        seen = watch.first(LOOK_S) or BaselineView(UNKNOWN, detail="no answer in time")
    finally:
        watch.close()
    return {
        "word": seen.word, "name": seen.name, "url": seen.url, "detail": seen.detail,
        "tok_s": seen.tok_s, "proven_at": seen.proven_at or None, "reference": seen.reference,
    }  # fmt: skip


def _memory() -> dict[str, Any] | None:
    reader = MemoryReader()
    try:
        seen = reader.read(0.0)
    except ConsoleError:
        return None
    finally:
        reader.close()
    return {"total": seen.total, "available": seen.available}
