"""The kinds of steps: one record each for what holds in every playbook.

A new kind is a record here, a field of `Step` (console.config.playbook.steps) and an executor
(console.runner.executors). A record without a field fails at import, one without an executor in the
tests. Only the standard library is used, because linting a Dockerfile loads this too.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepKind:
    """What is true of one kind of step.

    `executor` is MODULE:FUNCTION below console.runner.executors. `timeout_s` are the seconds of a
    step without a timeout, `title` is its name if neither title nor content gives one. `services`
    are its keys that name a service. One that `judges` ends in GO, NO-GO or HOLD; one that `acts`
    changes something, so lessons apply to it; one that `loads` may fill memory and needs the
    sentinel. A `repeatable` one checks first: run twice it changes nothing more. Those `at_end` may
    stand in `finally`. An `implicit` one is added by the plan, not written.
    """

    name: str
    executor: str
    timeout_s: float = 600.0
    title: str = ""
    services: tuple[str, ...] = ()
    judges: bool = False
    acts: bool = False
    loads: bool = True
    repeatable: bool = True
    at_end: bool = False
    implicit: bool = False


KINDS = {
    kind.name: kind
    for kind in (
        StepKind("run", "command:execute", acts=True, repeatable=False, at_end=True),
        StepKind(
            "script", "command:execute", title="Script", acts=True, repeatable=False, at_end=True
        ),
        StepKind("build", "preflight:build", 7200.0, "Build an image", acts=True),
        StepKind("check", "check:execute", 60.0, "Check", loads=False, at_end=True),
        StepKind(
            "service", "service:execute", 1200.0, services=("start", "stop", "wait"), acts=True
        ),
        StepKind("benchmark", "benchmark:execute", 3600.0, "Benchmark", ("service",)),
        StepKind("gate", "gate:execute", 60.0, "Gate", judges=True, loads=False),
        StepKind("approval", "person:approve", 86400.0, loads=False),
        StepKind("manual", "person:manual", 172800.0, acts=True, loads=False),
        StepKind("note", "person:note", 60.0, loads=False, at_end=True),
        StepKind("report", "person:report", 120.0, "Write the report", loads=False, at_end=True),
        StepKind(
            "checkpoint", "preflight:checkpoint", 600.0, "Does it fit?", ("service",),
            judges=True, loads=False,
        ),
        StepKind(
            "gguf", "preflight:gguf", 600.0, "Is the architecture known?", ("service",),
            judges=True, loads=False,
        ),
        StepKind("host", "preflight:host", 300.0, "This machine", judges=True, loads=False),
        StepKind(
            "imports", "preflight:import_chain", 600.0, "Import chain", ("service",), judges=True
        ),
        StepKind("download", "download:execute", 172800.0, "Download"),
        StepKind("soak", "soak:execute", 14400.0, "Soak", ("service",)),
        StepKind("contract", "contract:execute", 3600.0, "Same answers?", ("service",)),
        StepKind("tune", "tune:execute", 43200.0, "Find the fastest flags", ("service",)),
        StepKind("quality", "quality:execute", 14400.0, "How good are its answers?", ("service",)),
        StepKind("cutover", "service:cut_over", title="Cut over", services=("to",), acts=True),
        StepKind("baseline:stop", "service:stop_baseline", implicit=True),
        StepKind("baseline:measure", "benchmark:measure_baseline", loads=False, implicit=True),
        StepKind("baseline:contract", "contract:seal_baseline", loads=False, implicit=True),
        StepKind("restore", "service:restore", loads=False, implicit=True),
    )
}  # fmt: skip
"""Every kind by its name, in the order of the documentation."""
WRITTEN = tuple(name for name, kind in KINDS.items() if not kind.implicit)
"""The kinds that a playbook can name."""
JUDGES = tuple(name for name, kind in KINDS.items() if kind.judges)
LOOKS = tuple(name for name in JUDGES if name != "gate")
"""Kinds that judge like a gate, by what they inspect themselves."""
ACTING = tuple(name for name, kind in KINDS.items() if kind.acts)
