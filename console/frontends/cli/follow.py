"""Follows a run without a screen: one line per event, and the operator's verbs at a terminal."""

from __future__ import annotations

import contextlib
import select
import shlex
import sys
import termios
import time
from collections.abc import Iterable
from typing import Any, TextIO

from console.common.errors import ConsoleError, Exit
from console.common.progress import Pace
from console.common.text import clean, columns, folded
from console.common.units import format_duration
from console.frontends.tui.watch.actions import bound
from console.frontends.tui.watch.watchers import Attendance
from console.journal import events
from console.journal.fold import fold
from console.journal.lock import closer_alive, runner_alive
from console.journal.run_dir import RunDir
from console.journal.run_files import INTERRUPTED, served_since, settle, word_of
from console.journal.run_view import RunView
from console.journal.state import Mark, RunState, StepState, possible_verbs
from console.journal.store import Event, JournalError, Reader
from console.recovery.rollback.trigger import is_held
from console.render.cutover import BACK, cut_over
from console.render.facts.gate import doubts, gates, marks
from console.render.facts.run import DOWN, decision
from console.render.facts.step import facts_of
from console.render.guard import deeds, event_words
from console.render.measuring import judged_answers
from console.render.progress import said_words, step_words
from console.runner import control

POLL_S = 0.1
ATTEND_S = 1.0
"""Seconds between two signs from a foreground terminal that somebody is there."""
CLEANUP_S = 5.0
"""Seconds to wait, where the runner is dead, for a rollback that nobody has begun yet. One under
way and the closer that it starts, which writes the run's end, are waited for while they live."""


def at_terminal() -> bool:
    """Whether somebody can type here; stdin may be closed altogether."""
    return sys.stdin is not None and sys.stdin.isatty()


def forget_typed() -> None:
    """Drop what was typed before a question stood there: it answers something else."""
    with contextlib.suppress(OSError, ValueError, termios.error):
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


class EventPrinter:
    """Prints the events of a run, a line each. `news`: every new sentence of a step, because
    somebody watches; else figures as seldom as a log has them."""

    rollback = "omni-console rollback"

    def __init__(self, out: TextIO, *, news: bool) -> None:
        self.out = out
        self.view = RunView()
        self.news = news
        self.finished = False
        self.pace, self.last_message = Pace(), ""

    def take(self, journal_events: Iterable[Event]) -> None:
        """Fold events into the view, and print each."""
        for event in journal_events:
            fold([event], self.view)
            self._print(event)

    def _line(self, text: str) -> None:
        lines = [row for line in text.split("\n") for row in folded(line, columns(self.out))]
        print("\n".join(lines), file=self.out, flush=True)

    def _print(self, event: Event) -> None:
        match event.body:
            case None:
                self._line(f"        {clean(event.odd, 300)}")
            case events.StepStateChange():
                self._on_step_state(event)
            case events.StepSay():
                self._on_step_say(event)
            case events.RunStateChange():
                self._on_run_state()
            case events.RunNote() as note:
                self._line(f"   {clean(note.text)}")
            case events.Verdict():
                self._on_verdict(event)
            case events.Outage(down=True):
                self._on_outage()
            case events.Cutover() if self.view.cutover:
                self._line(f"        {cut_over(self.view)}; {BACK}")
            case events.Rung() as rung:
                self._on_rung(event, rung)
            case events.Guard():
                self._on_guard()
            case events.Verb() as verb:
                why = f": {clean(verb.why)}" if verb.why else ""
                self._line(f"        {clean(verb.verb)} by {clean(verb.who)}{why}")
            case events.RunFinished():
                self.finished = True

    def _on_step_state(self, event: Event) -> None:
        step = self.view.step(event.step)
        if step is None:
            return
        number = self.view.steps.index(step) + 1
        facts = facts_of(self.view, step)
        head = f"[{number}/{len(self.view.steps)}] {facts.sign} {step.id}"
        if step.state is StepState.RUNNING:
            again = f" ({facts.again})" if facts.again else ""
            self._line(f"{head}{again}: {clean(step.title)}")
            for effect in step.effects:
                self._line(f"        {clean(effect)}")
            for lesson in step.lessons:
                self._line(f"        lesson {clean(lesson)}")
            return
        took = f" in {facts.took}" if facts.took else ""
        cause = f" [{facts.cause}]" if facts.cause else ""
        self._line(f"{head} {facts.state}{took}{cause} {facts.detail}".rstrip())
        for line in step.lines:
            self._line(f"        | {clean(line, 300)}")

    def _on_step_say(self, event: Event) -> None:
        step = self.view.step(event.step)
        if step is None:
            return
        news = self.news and step.message != self.last_message
        if self.pace.due((step.id, step.attempt), step.progress, event.at) or news:
            self.last_message = step.message
            self._line(f"        … {said_words(step, event.at)}")

    def _on_run_state(self) -> None:
        view = self.view
        if view.state is RunState.RUNNING:
            return
        why = " ".join(clean(x) for x in (view.reason, view.detail) if x)
        self._line(f"== {view.state}" + (f": {why}" if why else ""))
        if view.state in (RunState.PAUSED, RunState.WAITING_APPROVAL):
            # not folded: pasted, the first line of a command would act without the second
            how = self._how(possible_verbs(view.state, view.reason))
            print(f"   {how}", file=self.out, flush=True)
            if view.offer:
                self._line(f"   {self._how(['measure'])}: {clean(view.offer)}, then judge again")

    def _how(self, verbs: list[str]) -> str:
        """How one of these verbs is given."""
        return " · ".join(verbs)

    def _on_verdict(self, event: Event) -> None:
        gate = gates(self.view, event.step)[0]
        named = f" → {gate.outcome}" if gate.outcome else ""
        over = "".join(f" {mark.line}" for mark in gate.marks)
        self._line(f"        GATE {gate.verdict}{named}{over}")
        for row in gate.criteria:
            self._line(f"        {row.label:>6}  {row.value}")
        for line in judged_answers(self.view, gate):
            self._line(f"        {line}")

    def _on_outage(self) -> None:
        back = self.view.restore_s
        known = f"; a restore takes {format_duration(back)}" if back else ""
        self._line(f"        {DOWN}{known}; {self.rollback} brings it back")

    def _on_rung(self, event: Event, rung: events.Rung) -> None:
        step, progress = self.view.step(event.step), ""
        if rung.done is not None and step is not None:
            if not self.pace.due((step.id, step.attempt), step.progress, event.at):
                return
            progress = f", {step_words(step, event.at)}"
        if rung.state != "begin":
            lead = f"{rung.t:6.2f} s  {rung.rung:<10}"
            self._line(f"        {lead} {rung.state:<7} {clean(rung.detail, 200)}{progress}")

    def _on_guard(self) -> None:
        guard_event = self.view.guards[-1]
        self._line(f"        {event_words(guard_event)}")
        for text in deeds(guard_event.body):
            self._line(f"        {text}")

    def conclude(self) -> Exit:
        """Print how a run has ended; its exit code."""
        view = self.view
        code = view.exit_code
        known = decision(view).value or "none"
        known += f" {Mark.REHEARSAL}" if view.rehearsal else ""
        over = "".join(f" {mark.line}" for mark in [*marks(view), *doubts(view)])
        ended = f"state: {view.state}   exit code: {int(code)}"
        self._line(f"decision: {known}{over}   {ended}")
        return code


class Follow(EventPrinter):
    """Prints what has happened, once, and what happens from now on."""

    def __init__(self, run: RunDir, out: TextIO, *, interactive: bool) -> None:
        self.interactive = interactive and at_terminal() and out.isatty()
        super().__init__(out, news=self.interactive)
        self.run = run
        self.reader = Reader(run.journal)
        self.attended = 0.0
        self.attendance = Attendance()
        self.dead_since: float | None = None
        self.seen: dict[str, Any] = {}
        """The runner's word of its place at the newest line, if it still holds: verbs need it."""

    def _how(self, verbs: list[str]) -> str:
        before = "" if self.interactive else f"omni-console tell {self.run.id[-4:]} "
        return before + super()._how(verbs)

    def until_end(self) -> tuple[Exit, dict[str, Any]]:
        """Follow to the end; the exit code and the run as JSON."""
        try:
            if self.interactive:
                self._line("type a verb and Enter to act (skip needs a reason); Ctrl-C detaches")
            while not self._over():
                self._read()
                if self.finished:
                    break
                self._attend()
                self._wait()
            self._wait_cleanup()
        finally:
            self.reader.close()
        return self._conclusion()

    def _attend(self) -> None:
        """Renew the run's lease, because an operator is at a terminal."""
        now = time.monotonic()
        if self.interactive and now - self.attended >= ATTEND_S:
            self.attended = now
            words = {"verb": "status", "attached": True}
            with contextlib.suppress(ConsoleError, OSError):
                if self.attendance.there():
                    control.send(self.run.socket, words, ATTEND_S)

    def _wait_cleanup(self) -> None:
        """Wait until a finished runner has cleaned up: the next run needs the host."""
        until = time.monotonic() + CLEANUP_S if self.finished else 0.0
        while time.monotonic() < until and (runner_alive(self.run) or closer_alive(self.run)):
            time.sleep(0.01)

    def _read(self) -> None:
        try:
            fresh = self.reader.since(self.view.seq)
        except JournalError as error:
            if runner_alive(self.run):
                return
            raise error
        self.take(fresh)
        if self.interactive and (fresh or not self.seen):
            self._see()

    def _see(self) -> None:
        """Note the runner's place while it is the one that the lines show: a verb typed now is
        meant for this, however late it is sent."""
        self.seen = {}
        with contextlib.suppress(ConsoleError, OSError):
            reply = control.send(self.run.socket, {"verb": "status"}, ATTEND_S)
            if reply.get("state") == str(self.view.state) and self._shown(reply):
                self.seen = reply

    def _shown(self, reply: dict[str, Any]) -> bool:
        """Whether the lines have reached the runner's current attempt."""
        step = self.view.step(str(reply.get("step")))
        return step is not None and reply.get("attempt") in (0, step.attempt)

    def _over(self) -> bool:
        """Whether nothing more will come: finished, or the runner is gone for good."""
        if self.finished:
            return True
        run = self.run
        if runner_alive(run) or closer_alive(run) or is_held(run.rollback):
            self.dead_since = None
            return False
        now = time.monotonic()
        self.dead_since = self.dead_since or now
        self._read()
        return self.finished or now - self.dead_since > CLEANUP_S

    def _wait(self) -> None:
        if not self.interactive:
            time.sleep(POLL_S)
            return
        if select.select([sys.stdin], [], [], POLL_S)[0]:
            line = sys.stdin.readline()
            if not line:
                self.interactive = False
            elif line.strip():
                self._verb(line)
            # an empty line answers nothing: Enter never approves and never skips

    def _verb(self, line: str) -> None:
        try:
            words = shlex.split(line)
            now = self.seen
            takes = words[0] in ("retry", "measure")
            inputs = dict(w.split("=", 1) for w in words[1:] if "=" in w and takes)
            rest = [w for w in words[1:] if w not in [f"{k}={v}" for k, v in inputs.items()]]
            confirm = now.get("confirm") or ""
            given = rest.pop(0) if confirm and words[0] == "approve" and rest else ""
            answer = control.send(
                self.run.socket,
                {"verb": words[0], "why": " ".join(rest),
                 "args": {"inputs": inputs, "confirm": given},
                 **bound(words[0], self.view.state, now)},
            )  # fmt: skip
        except (ValueError, ConsoleError) as error:
            self._line(f"  {error}")
            return
        if not answer.get("ok"):
            self._line(f"  refused: {clean(str(answer.get('error', '')))}")

    def _conclusion(self) -> tuple[Exit, dict[str, Any]]:
        # not before the first line: a tenth of a second
        from console.frontends.cli.show import way_on
        from console.render.report.document import Evidence, as_json

        view = self.view
        if not self.finished and not view.over:
            # the journal of a dead runner cannot know what was done since: whoever did that did it
            settle(view, served_since(self.run, view, False))
            word = word_of(self.run, view, False)
            self._line(f"== {word}: {self.run.id}")
            for text in way_on(self.run, view, word):
                self._line(f"   {text}")
            known = Evidence(interrupted=word == INTERRUPTED)
            return Exit.HOLD, {**as_json(view, known), "state": word}
        code = self.conclude()
        if self.run.report.exists():
            self._line(f"report: {self.run.report}")
        return code, {**as_json(view), "report": str(self.run.report)}
