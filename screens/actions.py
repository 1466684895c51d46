"""The operator's verbs: refused with a reason, completed by a dialog, sent off the UI loop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial, partialmethod
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from console.common.errors import ConsoleError
from console.common.text import clean
from console.frontends.tui.watch.actions import ask, question_lines, why_not
from console.journal.state import RunState
from screens.base import Base, Question, RunDialog
from widgets.bars import KeyLine

if TYPE_CHECKING:
    from console.frontends.tui.watch.run import Snapshot

READ_S = 0.5
"""An approval that appeared less than this ago has not been read: the key was meant for what was
there before."""


class Outbox:
    """Verbs on their way to the runner, in the order of the keys: a daemon thread, started with the
    first verb, sends one after the other."""

    def __init__(self, trouble: Callable[[str], None]) -> None:
        """`trouble` gets, in the thread, the words of an unforeseen failure."""
        self._trouble = trouble
        self._work: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def put(self, work: Callable[[], None]) -> None:
        """Queue this. Called on the UI loop."""
        self._work.put(work)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="outbox", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            work = self._work.get()
            try:
                work()
            except Exception as error:  # the thread's entry: the next verb counts
                self._trouble(f"{type(error).__name__}: {error}")


class Verbs(Base[None]):
    """A screen with the verbs of the run on show."""

    asked_at = 0.0
    asked_for: tuple[object, ...] = (None, None, None)

    def note_question(self, snapshot: Snapshot) -> None:
        """Remember when a question came into view."""
        now = tuple(snapshot.control.get(name) for name in ("step", "attempt", "state"))
        if now != self.asked_for:
            self.asked_for, self.asked_at = now, time.monotonic()

    def _try(self, verb: str, go: Callable[[Verbs, Snapshot], None] | None = None) -> None:
        """Send a verb for what is seen now, by `go` if it needs words; else say why not."""
        if self.console.watchers.readonly:
            self.console.say(f"read-only: '{verb}' is not possible here")
        elif no := why_not(self.shot, verb):
            self.console.say(clean(no, 300))
        elif go is not None:
            go(self, self.shot)
        else:
            self.send(self.shot, verb)

    action_next = partialmethod(_try, "next")
    action_auto = partialmethod(_try, "auto")
    action_pause = partialmethod(_try, "pause")

    def drop_questions(self) -> None:
        """Close a dialog that asked for a verb, because the run is over."""
        for screen in self.app.screen_stack:
            if isinstance(screen, RunDialog):
                screen.drop()

    def send(
        self,
        snapshot: Snapshot,
        verb: str,
        refused: Callable[[str], None] = lambda no: None,
        **words: Any,
    ) -> None:
        """Send a verb for what was seen; show a refusal, and call `refused` with it."""
        for line in self.query(KeyLine):
            line.untell()
        app = self.console

        def work() -> None:
            no = ask(snapshot, verb, **words)
            app.watchers.watch.look()
            if no:
                app.call_later(app.say, f"{verb}: {no}")
                app.call_later(refused, no)

        app.outbox.put(work)

    def _reject(self, snapshot: Snapshot) -> None:
        lines = [clean(snapshot.view.detail)]
        question = Question("Turn it down", lines, "why (optional)")
        self._question(snapshot, "reject", question)

    def _approve(self, snapshot: Snapshot) -> None:
        if time.monotonic() - self.asked_at < READ_S:
            self.console.say("the question has just appeared: read it, then answer")
            return
        confirm = str(snapshot.control.get("confirm") or "")
        if snapshot.view.state is RunState.PAUSED:
            question = Question(
                "Override the gate", question_lines(snapshot), "reason", required=True
            )
        elif confirm:
            lines, prompt = [clean(snapshot.view.detail)], f"type {clean(confirm, 300)}"
            question = Question("Approve", lines, prompt, confirm=confirm)
        else:
            self.send(snapshot, "approve")
            return
        self._question(snapshot, "approve", question)

    def _skip(self, snapshot: Snapshot) -> None:
        view = snapshot.view
        step = view.step(str(snapshot.control.get("step") or "")) or view.current
        if step is not None and step.kind == "gate":
            self.console.say("a gate is not skipped: y overrides it, with a reason")
            return
        if step is not None and step.implicit:
            self.console.say("the plan added this step, so it cannot be skipped: x aborts")
            return
        lines = [clean(f"{step.id}: {step.title}")] if step else []
        question = Question("Skip this step", lines, "reason", required=True)
        self._question(snapshot, "skip", question)

    def _abort(self, snapshot: Snapshot) -> None:
        lines = ["The running step is stopped; what the run started is rolled back."]
        lines += ["The baseline is down: it is brought back."] if snapshot.view.outage else []
        question = Question("Abort the run", lines, "type abort", confirm="abort")
        self._question(snapshot, "abort", question)

    def _question(self, snapshot: Snapshot, verb: str, question: Question) -> None:
        def answered(text: str | None) -> None:
            fields: dict[str, Any] = {"confirm" if question.confirm else "why": text}
            if text is not None:
                self.send(snapshot, verb, **fields)

        from screens.dialogs import AskScreen

        self.app.push_screen(AskScreen(question), answered)

    def _retry(self, snapshot: Snapshot, typed: dict[str, str] | None = None, no: str = "") -> None:
        """Show the form; if the runner refuses the change, show it again as it was typed, unless
        another screen is in front by then."""
        from screens.dialogs import AGAIN, WHY, retry_form

        def refused(changes: dict[str, str], words: str) -> None:
            # elsewhere it would take the keys that are meant for what is there
            if changes and self.app.screen is self and not why_not(self.shot, "retry"):
                self._retry(self.shot, changes, words)

        def filled(changes: dict[str, str] | None) -> None:
            if changes is not None:
                inputs = dict(changes)
                why = inputs.pop(WHY, "") if WHY not in snapshot.view.inputs else ""
                fields = {"why": why} if why else {}
                again = inputs.pop(AGAIN, "yes") == "yes" and bool(snapshot.view.offer)
                verb = "measure" if again else "retry"
                self.send(snapshot, verb, partial(refused, changes), inputs=inputs, **fields)

        self.app.push_screen(retry_form(snapshot, typed, no), filled)

    action_reject = partialmethod(_try, "reject", _reject)
    action_approve = partialmethod(_try, "approve", _approve)
    action_skip = partialmethod(_try, "skip", _skip)
    action_abort = partialmethod(_try, "abort", _abort)
    action_retry = partialmethod(_try, "retry", _retry)

    def action_resume(self) -> None:
        snapshot, run = self.shot, self.shot.run
        if self.console.watchers.readonly:
            self.console.say("read-only: 'resume' is not possible here")
            return
        if run is None:
            self.console.say("there is nothing to resume here")
            return
        if snapshot.word != "interrupted":
            no = why_not(snapshot, "resume")
            self.console.say(no or f"nothing to resume: the run is {snapshot.word}")
            return

        def work() -> None:
            from console.runner.launch import resume

            try:
                if warning := resume(run).warning:
                    self.on_loop(self.console.say, clean(warning, 400), "warning")
            except ConsoleError as error:
                self.on_loop(self.console.say, clean(str(error), 400), "error")

        self.console.say("resuming …", "information")
        self.in_thread(work)
