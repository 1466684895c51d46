"""What to do about an image that is missing: a plan that builds it says with which step."""

from __future__ import annotations

import shlex

from console.common.text import one_line
from console.render.effects import build_argv
from console.runner.prepare.plan import Plan
from console.runtime.docker.images import pull_hint


def fitting(plan: Plan, hint: str) -> str:
    """`hint`, or the build step in place of `docker pull`: no registry has what is built here."""
    for planned in plan.steps:
        step = planned.step
        if step is not None and step.build is not None and hint == pull_hint(step.build.tag):
            there = shlex.quote(str(plan.playbook.base))
            by_hand = f"cd {there} && {shlex.join(build_argv(step))}"
            return one_line(f"step {step.id} of this playbook builds it; by hand: {by_hand}", 600)
    return hint
