"""What is said of a step: its state in words, its sign and tone, why it failed, and what its output
says of that. `show`, `report`, a run that is followed, the screens and the status page lay it out.
Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from console.common.logs.cause import cause_of
from console.common.text import clean, one_line
from console.common.units import format_duration
from console.journal.run_view import RunView, StepView
from console.journal.state import StepState
from console.render.cells import UNICODE
from console.render.facts.words import STEP_TONE, state_words

VERDICT_SIGNS = {"NO-GO": "failed", "HOLD": "in_doubt"}
"""Verdicts that are no success, and the state whose sign they have."""


@dataclass(frozen=True, slots=True)
class StepFacts:
    """A step, with the verdict and outcome of a gate that has judged. Each text is made when it is
    asked for: the list of steps is drawn every second."""

    step: StepView
    verdict: str = ""
    outcome: str = ""

    @property
    def warned(self) -> bool:
        return self.step.warned and self.step.state is StepState.SUCCEEDED

    @property
    def standing(self) -> str:
        """The name of its sign: of a verdict that is no GO, of a success with a warning, else of
        its state."""
        return VERDICT_SIGNS.get(self.verdict, "warned" if self.warned else self.step.state)

    @property
    def sign(self) -> str:
        """Its sign in a text, of the larger set; what was cancelled has a failure's."""
        cancelled = self.step.state is StepState.CANCELLED
        return UNICODE.failed if cancelled else UNICODE.step(self.standing)

    @property
    def tone(self) -> str:
        return STEP_TONE.get(self.standing, "")

    @property
    def state(self) -> str:
        """`evaluated: HOLD`, `succeeded with a warning`, `in doubt`."""
        if self.verdict:
            return f"evaluated: {self.verdict}"
        return state_words(self.step.state) + (" with a warning" if self.warned else "")

    @property
    def result(self) -> str:
        """What came of it in a few words: `GO migrate`, else its detail, else its state."""
        judged = f"{self.verdict} {clean(self.outcome)}".strip()
        return judged or one_line(self.step.detail, 200) or self.state

    @property
    def again(self) -> str:
        """`attempt 2`; "" for the first."""
        return f"attempt {self.step.attempt}" if self.step.attempt > 1 else ""

    @property
    def took(self) -> str:
        return format_duration(self.step.duration_s) if self.step.duration_s is not None else ""

    @property
    def cause(self) -> str:
        """`not_ready`, as journals and playbooks have it."""
        return clean(self.step.cause, 40) if self.step.cause else ""

    @property
    def detail(self) -> str:
        return clean(self.step.detail)

    @property
    def why(self) -> str:
        """`not_ready: candidate died: container exited (1)`."""
        return ": ".join(filter(None, (self.cause, self.detail)))

    @property
    def explanation(self) -> str:
        """The line of its output that explains a failure, where its detail does not have it."""
        line = cause_of(self.step.lines)[1] if self.step.state is StepState.FAILED else ""
        return line if line and line not in self.detail else ""

    @property
    def last_words(self) -> str:
        """The last line that it printed, where its detail neither has it nor leads with the line
        that explains the failure: what was printed last stands below the headline then."""
        if cause_of([self.step.detail.rpartition("; ")[0]])[0]:
            return ""
        lines = (clean(line.strip(), 200) for line in reversed(self.step.lines) if line.strip())
        last = next(lines, "")
        return "" if last in self.step.detail else last


def facts_of(view: RunView, step: StepView) -> StepFacts:
    done = step.state is StepState.SUCCEEDED
    verdict = next((v for v in view.verdicts if done and v.step == step.id), None)
    return StepFacts(step, verdict.verdict, verdict.outcome) if verdict else StepFacts(step)
