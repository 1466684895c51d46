"""Named fault points, where tests make the runner die to show that nothing is lost.

`OMNI_FAULT=after_intent` kills the runner with SIGKILL the first time it gets there;
`OMNI_FAULT=after_intent@bench` only at step `bench`. Without the variable a point only compares a
constant.
"""

from __future__ import annotations

import os
import signal

POINTS = (
    "sealed", "run_started", "before_intent", "after_intent", "baseline_stopped", "effect_begun",
    "effect_recorded", "service_ready", "in_benchmark", "after_effect", "after_result",
    "in_approval", "cut_over", "in_watch", "before_restore", "before_finally", "rolling_back",
)  # fmt: skip
FAULT = os.environ.get("OMNI_FAULT", "")


def point(name: str, step: str = "") -> None:
    """Die here if the test asked for it."""
    if FAULT and FAULT in (name, f"{name}@{step}"):
        die()


def die() -> None:
    """End this process at once with SIGKILL: no handler or cleanup runs."""
    os.kill(os.getpid(), signal.SIGKILL)
