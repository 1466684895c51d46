"""Blockers that a playbook names and goes into all the same: a run of it asks for a reason.

Named alone is no fault (most trials name what they keep clear of), and what only bears is a hint:
the words of a step say little of the model behind it. Both together are what failed, again.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from console.common.errors import InvalidFile
from console.common.text import one_line
from console.config.lessons import registry
from console.config.lessons.registry import Lesson, load_lesson
from console.config.playbook.kinds import ACTING
from console.render.effects import build_argv
from console.runner.prepare.plan import Plan
from console.runtime.docker.client import pull_hint

if TYPE_CHECKING:
    from console.checks.lint.unit import Finding

STILL = ("blocked", "deferred", "rejected")
FIX = "say what is different this time; omni-console lessons {} has what happened"


def fitting(plan: Plan, hint: str) -> str:
    """What to do about an image that is missing: `hint`, or the build step in place of `docker
    pull`, since no registry has what is built here."""
    for planned in plan.steps:
        step = planned.step
        if step is not None and step.build is not None and hint == pull_hint(step.build.tag):
            there = shlex.quote(str(plan.playbook.base))
            by_hand = f"cd {there} && {shlex.join(build_argv(step))}"
            return one_line(f"step {step.id} of this playbook builds it; by hand: {by_hand}", 600)
    return hint


@dataclass(frozen=True, slots=True)
class Blocker:
    """A lesson that still blocks, the first step that goes into it, and why it bears there."""

    lesson: Lesson
    step: str
    because: str

    @property
    def words(self) -> str:
        """`F-002 is rejected (2026-01-22), and step up goes into it: 6.1 against 10.75 tok/s`."""
        model = self.lesson.model
        since = model.history[-1].date if model.history else model.updated or model.date
        state = f"{model.id} is {model.status} ({since})"
        return f"{state}, and step {self.step} goes into it: {self.because}"


def blockers(made: Plan) -> list[Blocker]:
    """In the order in which the playbook names them; one that cannot be read blocks nothing."""
    return [found for one in made.playbook.model.lessons for found in _of(made, one)]


def findings(made: Plan) -> list[Finding]:
    """The same as lint has it, each where the playbook names it."""
    from console.checks.lint.unit import BLOCKER, Finding, Severity

    places = _places(made.playbook.text)
    return [
        Finding(
            str(made.playbook.path), *places.get(one.lesson.id, (1, 1)), BLOCKER, Severity.ERROR,
            one.words, FIX.format(one.lesson.id), (one.lesson.id,),
        )
        for one in blockers(made)
    ]  # fmt: skip


def _of(made: Plan, lesson_id: str) -> Iterator[Blocker]:
    try:
        lesson = load_lesson(registry.files()[lesson_id])
    except (InvalidFile, KeyError):
        return
    if lesson.model.status not in STILL:
        return
    for step in made.steps:
        for words in step.lessons:
            if step.kind in ACTING and words.split()[0] == lesson_id:
                yield Blocker(lesson, step.id, words.rpartition(" – ")[2])
                return


def _places(text: str) -> dict[str, tuple[int, int]]:
    """Id → line and column under `lessons:`."""
    from console.checks.lint import yaml_tree

    try:
        named = yaml_tree.parse(text).root.get("lessons")
    except yaml_tree.NotYaml:
        return {}
    words = named.words() if named is not None else ()
    return {one.text: (one.place.line, one.place.column) for one in words}
