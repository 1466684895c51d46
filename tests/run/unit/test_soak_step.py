"""A soak as the playbook asks for it, and in the folded journal."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from console.bench.soak import SoakPlan
from console.config.playbook.measuring_steps import SoakStep
from console.runner.executors.soak import patience_for, plan_of


def test_a_step_as_the_loop_takes_it() -> None:
    step = SoakStep.model_validate(
        {"service": "x", "duration": "1h", "every": "5s", "arrivals": "fixed", "prompts": ["a"],
         "max_errors": 0}
    )  # fmt: skip
    assert plan_of(step) == SoakPlan(3600.0, 5.0, "fixed", ("a",), 0)
    assert len(plan_of(SoakStep.model_validate({"service": "x", "duration": "1h"})).prompts) == 3


@pytest.mark.parametrize(
    ("measured", "bound"),
    [
        ({}, 60.0),
        ({"other": (9.0, 9.0)}, 60.0),  # another service's
        ({"bench": (2.0, 1.0)}, 20.0),
        ({"bench": (1.0, 3.0)}, 30.0),  # the first request paged the model in
        ({"bench": (None, None)}, 60.0),
    ],
)
def test_the_first_silence_is_bounded_by_what_a_benchmark_saw(
    measured: dict[str, tuple[float | None, float | None]], bound: float
) -> None:
    steps = [
        ("", SimpleNamespace(id=name, benchmark=SimpleNamespace(service=service)))
        for name, service in (("bench", "cand"), ("other", "baseline"))
    ]
    context: Any = SimpleNamespace(
        plan=SimpleNamespace(
            playbook=SimpleNamespace(
                steps=lambda: [*steps, ("", SimpleNamespace(id="x", benchmark=None))]
            )
        ),
        view=SimpleNamespace(
            metrics={name: {"ttft_s": {"max": warm}} for name, (warm, _) in measured.items()},
            benchmarks={name: {"cold": {"ttft_s": cold}} for name, (_, cold) in measured.items()},
        ),
    )
    assert patience_for(context, "cand").cold_s == bound
