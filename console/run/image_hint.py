"""What to do about an image that is missing: a plan that builds it says with which step."""

from __future__ import annotations

import shlex

from console.run.effect import build_argv
from console.run.plan import Plan
from console.services.images import pull_hint
from console.text import one_line


def fitting(plan: Plan, hint: str) -> str:
    """`hint`, or the build step in place of `docker pull`: no registry has what is built here."""
    for planned in plan.steps:
        step = planned.step
        if step is not None and step.build is not None and hint == pull_hint(step.build.tag):
            there = shlex.quote(str(plan.playbook.base))
            by_hand = f"cd {there} && {shlex.join(build_argv(step))}"
            return one_line(f"step {step.id} of this playbook builds it; by hand: {by_hand}", 600)
    return hint
