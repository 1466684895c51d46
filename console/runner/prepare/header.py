"""What a run notes about itself when it begins, so that its report can be read alone.

A rehearsal notes what was put in the place of what, from the file in its directory.
"""

from __future__ import annotations

import os
import platform
from importlib import metadata
from typing import Any

from console.config.playbook.measuring_steps import FIGURES
from console.config.playbook.rules import as_criterion, made_of
from console.config.playbook.steps import CriterionModel
from console.config.site.site import Site
from console.journal.run_dir import RunDir
from console.rehearsal import workspace
from console.rehearsal.rewrite import Rewriter
from console.rehearsal.workspace import MAPPING
from console.render.effects import service_words
from console.runner.prepare.plan import Plan

NVML_S = 2.0
"""A driver that hangs must not hold up a run: its cards are missing in the report then."""


def version() -> str:
    """This console's version; empty where it was not installed."""
    try:
        return metadata.version("omni-console")
    except metadata.PackageNotFoundError:
        return ""


def machine() -> dict[str, Any]:
    """This machine in a few figures, bytes; what cannot be had is missing. Takes up to NVML_S where
    NVML hangs, never raises."""
    from console.host import machine
    from console.host.gpu import inventory

    asked = inventory.ask(NVML_S)
    seen = machine.look(cards=asked)
    return {
        "kernel": platform.release(), "cpu": seen.cpu_name, "cores": seen.cores,
        "threads": os.cpu_count(), "numa_nodes": seen.numa_nodes, "ram": seen.ram_total,
        "swap": seen.swap_total, "driver": asked.driver, "cards_why": asked.words,
        "cards": [{"uuid": c.uuid, "name": c.name, "memory": c.total} for c in asked.cards],
    }  # fmt: skip


def baseline(site: Site) -> dict[str, Any]:
    """What the trial is held against: how it is started, where it answers, what it is known to
    do (tok/s)."""
    model = site.model.baseline
    return {
        "url": model.url, "runs": list(service_words(site.baseline_spec())),
        "args": list(model.args),
        "reference": model.reference.tok_s if model.reference else None,
    }  # fmt: skip


def targets(plan: Plan) -> list[dict[str, Any]]:
    """Every criterion of every gate, with its thresholds as they were written."""
    return [
        {
            "gate": planned.id, "metric": one.metric, "of": one.of,
            "go": str(one.go) if one.go else "", "no_go": str(one.no_go) if one.no_go else "",
            "min_samples": _least(plan, one),
        }
        for planned in plan.steps
        if planned.step is not None and planned.step.when
        for one in planned.step.gate or []
    ]  # fmt: skip


def _least(plan: Plan, one: CriterionModel) -> int:
    """The samples that a criterion needs: what it says, or what its metric is made of asks for."""
    owner, _, name = one.metric.partition(".")
    steps = [step for _, step in plan.playbook.steps() if step.id == owner]
    source = made_of(steps[0]) if steps else ""
    if source in FIGURES and name not in FIGURES[source]:
        source = ""  # a captured output of the same step is a single figure
    wanted = as_criterion(one, source)
    return max(wanted.min_samples, wanted.min_requests)


def rewriter(run: RunDir, site: Site) -> Rewriter | None:
    """What turns the run's playbook into its rehearsal; None for a real run. Raises UsageError."""
    path = run.path / MAPPING
    if not path.exists():
        return None
    return Rewriter(workspace.read_mapping(path), site.model.engine.host)


def record(made: Rewriter | None) -> dict[str, Any]:
    """What the journal says of it, from the first event on; empty for a real run."""
    if made is None:
        return {}
    return {"fault": made.mapping.fault, "speed": made.mapping.speed,
            "notes": list(dict.fromkeys(made.notes))}  # fmt: skip
