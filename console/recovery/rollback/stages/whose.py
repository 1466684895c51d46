"""Whose answers they are: who listens at the baseline's address, before anything is said of it."""

from __future__ import annotations

from console.host.ports import held_words
from console.recovery.rollback.context import RollbackContext
from console.recovery.rollback.observe import CORRECT, OWNER_S, another_process
from console.recovery.rollback.progress import StageName
from console.recovery.rollback.stages.start import Baseline
from console.runtime.engine_api import can_answer, elsewhere_hint, published_elsewhere
from console.runtime.reach import (
    HINT,
    NOTHING_CAME,
    PUBLISHED_NOWHERE,
    Reach,
    is_unpublished,
)

PAUSE_S = 0.5
ELSEWHERE_S = 10.0
"""Seconds for which a process answers at another port, and nothing at its URL, before its URL
counts as wrong: a start script's engine may be ready before the proxy in front of it."""
ANOTHER = "something else answers at the baseline's address,"
LEFT = "it is alive and was left as it is"
BETWEEN_S = 5.0
"""Seconds for which a start script may run no client of its engine, between two of them."""


class Whose:
    """Tells the baseline from whoever else answers at its address."""

    def __init__(self, context: RollbackContext, baseline: Baseline) -> None:
        self.context = context
        self.baseline = baseline
        self.plan = context.plan.baseline
        self.elsewhere_since: float | None = None
        """Since when the baseline answers at another port; None while it does not."""
        self.reach: Reach | None = None
        """Whether anything that was asked has reached a container that is published nowhere; None
        before anything was."""
        self.misplaced = False
        """The baseline runs, but at another port, or something else has its port. A restart would
        only load the model again and change nothing."""

    def ok(self, stage: StageName, words: str) -> None:
        """Report what the baseline does well; what another process does in its place is no proof of
        it, and no line says "ok" of it."""
        if other := another_process(self.context.plan):
            self.context.report.skipped(stage, f"{other}: {words}")
        else:
            self.context.report.ok(stage, words)

    def stranger(self) -> str:
        """Who answers at the baseline's address instead of it, in words; "" for nobody."""
        failure = self.not_the_baseline("")
        return failure[1] if failure is not None else ""

    def not_the_baseline(self, life: str) -> tuple[StageName, str] | None:
        """Return None if the baseline gave all answers without a restart; else stage and reason.

        It may have ended because its address was taken, or its engine may restart it repeatedly.
        """
        until = self.context.clock.monotonic() + BETWEEN_S
        while not self.baseline.is_ours(OWNER_S):
            if not self.baseline.may_be_published() or self.context.clock.monotonic() >= until:
                return "completion", self.explain_stranger()
            self.context.clock.sleep(PAUSE_S)
        now = self.baseline.life()
        if life and now and now != life:
            return "completion", "the baseline was restarted during its proof"
        if unreached := self.unreached():
            return "completion", unreached
        return None

    def ask(self) -> None:
        """Note what the container's network has received before something is asked."""
        if self.plan.kind == "container":
            self.baseline.can_answer(OWNER_S)
            self.reach = Reach(self.baseline.inspected, self.plan.url)

    def unreached(self) -> str:
        """Say that nothing that was asked has reached the container, so that whatever came from its
        address is no word of it; "" where it has, or where that is not known."""
        if self.reach is None or not self.reach.missed:
            return ""
        self.misplaced = True
        return f"{ANOTHER} {self.plan.url}: {NOTHING_CAME}: {HINT}; {LEFT}"

    def judged_by_reach(self, detail: str) -> str:
        """The trouble, and that it is none of the container's where nothing has reached that."""
        unreached = "" if self.misplaced else self.unreached()
        return f"{detail}; {unreached}" if unreached else detail

    def unpublished(self) -> str:
        """Say that nobody listens at the address of a container that is published nowhere, which no
        restart of it changes; "" for any other, and where it does not run."""
        container = self.baseline.inspected or {}
        if not is_unpublished(container, self.plan.url) or not can_answer(container):
            return ""
        self.misplaced = True
        return f"{PUBLISHED_NOWHERE}: {HINT}; {LEFT}"

    def where_published(self) -> str:
        """Say where the container is published instead of at its URL, as the engine last described
        it; "" if it is published there, or if that is not known."""
        port = published_elsewhere(self.baseline.inspected or {}, self.plan.url)
        if not port:
            return ""
        self.misplaced = True
        hint = elsewhere_hint(port)
        return f"the container is published at {port}, and not at {self.plan.url}: {hint}"

    def where_it_answers(self, now: float, *, late: bool = False) -> str:
        """Say where the baseline listens instead of at its URL, once that has lasted or it is
        `late`; "" if it does not. Nothing is wrong with it then, and no restart would help."""
        elsewhere = self.baseline.elsewhere()
        if not elsewhere:
            self.elsewhere_since = None
            return self.unpublished() if late else ""
        self.elsewhere_since = self.elsewhere_since or now
        if now - self.elsewhere_since < ELSEWHERE_S and not late:
            return ""
        self.misplaced = True
        return f"the baseline runs, but {elsewhere}: {CORRECT}; it was left as it is"

    def explain_stranger(self) -> str:
        # A container that its engine is just restarting is not misplaced.
        runs = self.baseline.can_answer(OWNER_S) is True
        self.misplaced = runs and not self.baseline.is_ours(OWNER_S)
        if self.misplaced and (elsewhere := self.where_published()):
            return elsewhere
        held = held_words(self.plan.url, self.baseline.pids())
        name = f": {held}" if held else ""
        return f"{ANOTHER} {self.plan.url}{name}"
