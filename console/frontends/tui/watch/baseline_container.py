"""What the container engine says about the baseline's container, in a few words."""

from __future__ import annotations

import time
from typing import Any

from console.common.errors import EngineError
from console.common.text import one_line
from console.common.units import format_duration
from console.recovery.rollback.sealed_plan import Baseline, SealedPlan
from console.runtime.engine_api import NoSuchContainer, RawEngine

UP, DOWN, UNKNOWN = "loading", "stopped", "unknown"
NEVER = "0001-"


def container_state(plan: SealedPlan, limit_s: float) -> tuple[str, str]:
    """(`loading` when it is up, `stopped` or `unknown`; clean words). Never raises EngineError."""
    address = plan.engine
    try:
        engine = RawEngine(address.socket or address.docker_host, limit_s)
        found = inspected(plan.baseline, engine)
    except NoSuchContainer:
        base = plan.baseline
        name = base.container_name or base.container_id[:12] or f"of {base.compose_argv[-1]}"
        return DOWN, f"there is no container {one_line(name, 60)}"
    except EngineError as error:
        return UNKNOWN, one_line(str(error), 120)
    return judge(found, time.time())


def inspected(base: Baseline, engine: RawEngine) -> dict[str, Any]:
    """The baseline's container that is there: by its id and name, or as compose made it.

    Raises NoSuchContainer, and EngineError for an engine that does not answer.
    """
    for name in base.ways:
        try:
            return engine.inspect(name)
        except NoSuchContainer:
            continue
    found = engine.of_compose(base.compose_argv) if base.compose_argv else ""
    if not found:
        raise NoSuchContainer("the plan's container is gone")
    return engine.inspect(found)


def judge(container: dict[str, Any], now: float) -> tuple[str, str]:
    """The same for one inspected container; `now` in Unix seconds."""
    state = container.get("State")
    if not isinstance(state, dict):
        return UNKNOWN, "the container engine answered nonsense"
    if state.get("Paused") is True:
        return DOWN, "container paused"
    if state.get("Restarting") is True:
        return UP, f"container restarting (exited {_code(state)})"
    if state.get("Running") is True:
        return UP, "container is up"
    status = one_line(str(state.get("Status", "")), 20) or "stopped"
    if status == "created":
        return DOWN, "container created, never started"
    why = ", out of memory" if state.get("OOMKilled") is True else ""
    return DOWN, f"container {status} ({_code(state)}{why}){_ago(state, now)}"


def _code(state: dict[str, Any]) -> str:
    code = state.get("ExitCode")
    return str(code) if isinstance(code, int) else "?"


def _ago(state: dict[str, Any], now: float) -> str:
    finished = str(state.get("FinishedAt", ""))
    if not finished or finished.startswith(NEVER):
        return ""
    from datetime import UTC, datetime

    try:
        # the engine writes nanoseconds and Z; what is behind the seconds is of no interest here
        at = datetime.fromisoformat(finished[:19]).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return ""
    past = max(0.0, now - at)
    if past < 60:
        return f" {past:.0f} s ago"
    return f" {past // 60:.0f} min ago" if past < 3600 else f" {format_duration(past)} ago"
