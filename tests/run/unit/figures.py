"""A run's picture with the figures that a test wants, from events as a runner writes them."""

from __future__ import annotations

from typing import Any

from console.journal.run_view import RunView, fold
from console.journal.store import Event
from console.runner.prepare.plan import BASELINE_MEASURE

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
    """`metrics`: figures by `STEP.NAME`, or `STEP.baseline.NAME` for the baseline's.

    Every step that has figures succeeded, unless `states` says otherwise (`baseline` for the row
    that measures the baseline); a step with state "" is not in the plan. `bench` is a benchmark
    and `soak` a soak; any other runs a command.
    """
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
    return fold(Event(n, 1000.0 + n, *one[:2], 1, one[2]) for n, one in enumerate(told, 1))


def figure(value: float | None, unit: str, n: int = 9, **more: Any) -> dict[str, Any]:
    return {"value": value, "unit": unit, "n": n, "void": 0, "headline": "mean", **more}


def agreeing(value: float, unit: str, n: int = 9) -> dict[str, Any]:
    """A figure whose samples are all the same."""
    return figure(value, unit, n, samples=[value] * n)
