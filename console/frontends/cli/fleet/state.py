"""The state of this host in one object, as `bridge` answers it and `fleet` shows it."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any

from console.common import paths
from console.common.errors import ConsoleError
from console.common.text import cleaned, one_line
from console.frontends.tui.watch.baseline import BaselineWatch, unknown
from console.host.gpu.inventory import GpuInventory
from console.host.memory import MemoryReader
from console.journal.lock import run_on, runner_alive
from console.journal.run_dir import RunDir, all_runs
from console.journal.run_files import view_of
from console.journal.run_view import RunView
from console.journal.state import possible_verbs, stands
from console.recovery.rollback import sealed_plan
from console.render.progress import said_words

if TYPE_CHECKING:
    from console.journal.guard_status import GuardWatch

CARDS_S, LOOK_S, STATUS_S, FOREVER_S = 3.0, 4.0, 1.0, 1e6


class HostState:
    """Baseline, newest run, guard, lease and memory, asked over and over; what cannot be told is a
    word, or null.

    Of ten hosts at once each is a new process: what tells of a live run or of Slurm is imported
    where there is one."""

    def __init__(self, site: str | None, cards: GpuInventory) -> None:
        self._cards = cards
        self._baseline = _Baseline(site)
        self._watch: GuardWatch | None = None

    def look(self) -> dict[str, Any]:
        self._cards.begin()  # first: it takes longest
        run, view, word = _run()
        alive = run is not None and runner_alive(run)
        baseline = self._baseline.look(run if alive and view is not None and view.outage else None)
        guard = self._guard(run, alive, over=view is None or view.over)
        inventory = self._cards.answer(CARDS_S)
        state: dict[str, Any] = cleaned({
            "at": time.time(), "baseline": baseline,
            "run": _run_json(run, view, word, alive) if run is not None else None,
            "guard": guard, "memory": _memory(), "slurm": _slurm(),
            "cards": [{"name": x.name, "total": x.total, "free": x.free} for x in inventory.cards],
            "cards_why": inventory.words,
        })  # fmt: skip
        return state

    def _guard(self, run: RunDir | None, alive: bool, *, over: bool) -> dict[str, Any] | None:
        """`alarming`: whether it gets a line of its own in a table of hosts. None where no run is
        watched and no guard has acted."""
        if run is None or (over and not alive and not run.breach.exists()):
            return None
        from console.frontends.cli.machine import guard_json
        from console.journal import guard_status as guards

        self._watch = self._watch or guards.GuardWatch()
        status = guard_json(self._watch.look(run, alive, over))
        return {**status, "alarming": status["state"] in guards.ALARMING}


def _slurm() -> list[dict[str, Any]]:
    """The runs that wait for an allocation of Slurm's, and those that have one."""
    if not paths.slurm_dir().is_dir():
        return []
    from console.runner.slurm.standing import everywhere

    return [standing.as_json() for standing in everywhere()]


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
    from console.runner import control

    try:
        return control.send(run.socket, {"verb": "status"}, STATUS_S)
    except (ConsoleError, OSError):
        return {}


class _Baseline:
    """A thread that looks at the baseline whenever it is asked, and keeps what it read of plans."""

    def __init__(self, site: str | None) -> None:
        self._seen = threading.Event()
        self._watch = BaselineWatch(lambda view: self._seen.set(), FOREVER_S, site=site)
        self._begun = False

    def look(self, stopper: RunDir | None) -> dict[str, Any]:
        """`stopper`: a live run that has taken its baseline down, which may be another one."""
        self._seen.clear()
        stopped = None
        if stopper is not None:
            with contextlib.suppress(ConsoleError, OSError):
                stopped = sealed_plan.of_run(stopper.path)
        self._watch.follow(None, stopper is not None, stopped=stopped)
        if self._begun:
            self._watch.look()
        else:
            self._watch.start()
            self._begun = True
        known = self._seen.wait(LOOK_S) and self._watch.latest
        return (known or unknown("no answer in time")).as_json()


def _memory() -> dict[str, Any] | None:
    reader = MemoryReader()
    try:
        seen = reader.read(0.0)
    except ConsoleError:
        return None
    finally:
        reader.close()
    return {"total": seen.total, "available": seen.available}
