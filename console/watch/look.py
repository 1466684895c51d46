"""One look at the baseline: who holds it, whether it answers, and how fast, at nobody's cost.

A server that works at a request of somebody else is not asked, for it would wait for us. What it
says of itself then (that its answers get longer) shows that it lives. A server whose process was
stopped (SIGSTOP) still takes connections, by its kernel, and says nothing. So does one that reads a
long prompt on the processor, for a minute and more. What tells them apart is the CPU time of its
processes: one that computes gets as long as a proof may take, one that does not gets nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from console.common import redact
from console.common.clock import Clock, SystemClock
from console.common.text import one_line
from console.common.units import format_duration, plural
from console.host import process
from console.host.ports import is_local, lasting_clients, listener, streams
from console.journal.watch_record import (
    BUSY,
    CUT_OVER,
    GARBLED,
    LOADING,
    PLANNED,
    SERVING,
    SUSPECT,
    UNJUDGED,
)
from console.recovery.rollback import observe, records
from console.recovery.rollback.baseline_state import Word
from console.recovery.rollback.look import (
    QUICK_S,
    container_state,
    paused_words,
    reach_of,
    who_is_there,
)
from console.recovery.rollback.records import Pointer
from console.recovery.rollback.sealed_plan import ROLLBACK, SealedPlan
from console.recovery.rollback.trigger import is_held, is_stopped
from console.runtime import proxy, reach
from console.runtime.answers.completion import Completion, complete, longer, prove, streamed
from console.runtime.occupancy import Occupancy
from console.runtime.occupancy import look as occupancy_of
from console.runtime.probe import ALL_THE_SAME, PAGE, Health, busy, health
from console.watch.plan import Settings

HEALTH_S, HEALTH_PART = 5.0, 0.25
"""How long the health path may take, in seconds and as a part of the interval, whichever is less;
one that takes longer is silent."""
SHARED = f"{observe.ELSE}, too"
PART = 0.5
"""Of the interval: how long a completion may take at most."""
PATIENCE_S = 48.0
"""How long a longer answer of a slow server may take at its rate: nobody waits for the watch."""
NOBODY = -1
WORKS_S, WORKS_PART, WORKS = 2.0, 0.2, 0.05
"""Over which time the CPU time of a silent server is read, in seconds and as a part of the
interval, and which part of a core counts as work. With two looks, the second after half an
interval, all of this is over within two intervals."""


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen: a word of `console.journal.watch_record`, clean words, and if it was asked the
    rate and the time to the first token."""

    word: str
    detail: str = ""
    tok_s: float | None = None
    ttft_s: float | None = None
    requested: bool = False
    slow: bool = False
    """Its answer took so long that its rate is below the reference, whatever it is."""
    weak: bool = False
    """Its garbled answer is so short that it may be how a sane one begins: it confirms nothing."""
    dead: bool = False
    """It answers that its engine is dead: its processes may compute, and a restart may mend it."""
    stranger: bool = False
    """Somebody else answers in its place: no restart would give it its port back."""
    gone: bool = False
    """Clients were given to a candidate that does not run: whoever else is there may compute."""
    life: str = ""
    """It is of the candidate that clients were given to, by the relay of this life; "" if not."""
    other: str = ""
    """Which process answers that has other flags than the baseline: what it says proves nothing."""
    garbage: str = ""
    """What is wrong with what that process answers; "" for nothing, as far as known."""


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has the baseline in their hands, in words. `stopped`: the baseline may be down because of
    it; False where the run's sentinel says that the run has not stopped it, and for `other`: a run
    or rollback of another baseline."""

    words: str
    stopped: bool = True
    other: bool = False
    alone: bool = True
    """It may be in its outage, or may need the memory alone: nothing is restored beside it."""


class Looker:
    """Looks at one baseline. `pid` says which process serves, if that is known."""

    def __init__(self, plan: SealedPlan, settings: Settings, clock: Clock | None = None) -> None:
        self.plan, self.settings = plan, settings
        self._clock = clock or SystemClock()
        self._silent_since: float | None = None
        self._streams = True
        """Whether the next question is for a streamed answer."""
        self._loading = False
        """Its health path said at the last look that it loads."""
        self._passed = 0
        """Looks in a row that found the server busy and did not ask."""
        self._answered: tuple[float, float] | None = None
        self._judged: int | None = NOBODY
        """The process that was last judged by longer answers."""

    def look(self, pid: int | None = None) -> Look:
        """Never raises for what a server or a file may do."""
        current_look = self._look(pid)
        nobody = current_look.word == SUSPECT and "refused" in current_look.detail
        if current_look.word != PLANNED and not current_look.life and not nobody:
            current_look = self._unless_strange(current_look)
        sure = nobody or current_look.dead or current_look.stranger or current_look.gone
        if current_look.word == SUSPECT and not sure:
            current_look = self._silent(current_look, self._pid_of_candidate() or pid)
        else:
            self._silent_since = None
        return replace(current_look, detail=redact.text(current_look.detail))

    def _look(self, pid: int | None) -> Look:
        held = held_by(self.plan)
        if held is not None and held.stopped:
            return Look(PLANNED, held.words)
        base = self.plan.baseline
        switched = proxy.recorded(self.plan.records_dir, base.url)
        limit_s = min(HEALTH_S, self.settings.interval_s * HEALTH_PART)
        state, words = health(base.url, base.ready_path, limit_s)
        if state is Health.LOADING and PAGE in words:  # a proxy's, which knows of no load
            state, words = Health.UNHEALTHY, f"HTTP 503 {words}"
        if switched is not None:
            return self._candidate(switched, held, state, words)
        seen = self._answer(pid, held, state, words)
        if seen is None:
            words = _why(words, pid)
            if state is Health.REFUSED and (other := observe.elsewhere(self.plan)):
                words = f"{words}; {other}"
            if state is Health.REFUSED and (ended := self._ended_container()):
                words = f"{words}; {ended}"
            if state is not Health.REFUSED and (paused := paused_words(self.plan)):
                words = f"{words}; {paused}"
            if cut := records.cut_over(self.plan):
                words = f"{words}; its clients were cut over to {cut.service}, whose relay is gone"
            if held is not None:
                words = f"{words}; {held.words}, which has not stopped it"
            lives = state in (Health.REFUSING, Health.SLOW)
            return Look(UNJUDGED if lives else SUSPECT, words)
        return seen

    def _ended_container(self) -> str:
        """How the baseline's container ended, as its engine says within QUICK_S; "" for another."""
        if self.plan.baseline.kind != "container":
            return ""
        word, words = container_state(self.plan, QUICK_S)
        return words if word is Word.DOWN else ""

    def _answer(
        self, pid: int | None, held: Holder | None, state: Health, words: str,
        model: str | None = None,
    ) -> Look | None:  # fmt: skip
        """What a server answers, by what its health path has said; None for one that does not."""
        loads, self._loading = self._loading, state is Health.LOADING
        if state is Health.SERVING:
            if held is not None:  # what a run measures is not to share the machine with a question
                return Look(BUSY, held.words)
            return self._ask_unless_busy(pid, model=model)
        doubted = loads if self._loading else state is not Health.REFUSED
        if doubted and (held is None or held.other):  # which may be restored beside it
            seen = self._all_the_same(pid, words, model=model)
            if seen is not None:
                return seen
        return Look(LOADING, words) if state is Health.LOADING else None

    def _all_the_same(
        self, pid: int | None, words: str, *, model: str | None = None
    ) -> Look | None:
        """What a server answers to a completion whose health path says an error, loads for long, or
        says nothing: that path may be another engine's. None for no answer, or an error."""
        seen = self._ask_unless_busy(pid, well=False, model=model)
        if seen.word in (SERVING, BUSY):
            words = f"its health path says {words}, and {ALL_THE_SAME}"
            return replace(seen, word=UNJUDGED, detail=words)
        if seen.word == UNJUDGED:
            return replace(seen, detail=f"{seen.detail}; its health path says {words}")
        return seen if seen.word == GARBLED or seen.dead else None

    def _candidate(
        self, switched: proxy.Relay, held: Holder | None, state: Health, words: str
    ) -> Look:
        """What clients get in the baseline's place. A candidate is asked and doubted as the
        baseline is, without a model's name; its speed says nothing of the baseline."""
        service, life = one_line(switched.service, 60), switched.life
        word, trouble = who_is_there(self.plan, switched)
        if trouble:
            gone = word is Word.DOWN
            words = f"{service} stands in its place, {trouble}"
            return Look(SUSPECT if gone else UNJUDGED, words, gone=gone, life=life)
        seen = self._answer(self._pid_of_candidate(), held, state, words, model="")
        if seen is None:
            lives = state in (Health.REFUSING, Health.SLOW)
            seen = Look(UNJUDGED if lives else SUSPECT, words)
        answers = seen.word in (SERVING, BUSY) or ALL_THE_SAME in seen.detail
        if answers:
            seen = replace(
                seen, word=CUT_OVER, detail=f"{service} answers in its place; {seen.detail}"
            )
        elif seen.word == SUSPECT:
            words = f"{service} stands in its place and does not answer: {seen.detail}"
            seen = replace(seen, detail=words)
        else:
            seen = replace(seen, detail=f"{seen.detail}; {service} stands in its place")
        return replace(seen, tok_s=None, ttft_s=None, slow=False, life=life)

    def _unless_strange(self, look: Look) -> Look:
        """What was seen says nothing of the baseline where somebody else may have answered. Where
        somebody else answers instead of it, it is down."""
        seen = observe.somebody_else(self.plan)
        if seen.startswith(SHARED):
            return Look(UNJUDGED, seen, requested=look.requested)
        does = observe.HAS_PORT if look.word == SUSPECT else observe.ANSWERS
        other = "" if seen else observe.another_process(self.plan, does)
        if other:
            garbage = look.detail if look.word == GARBLED and not look.weak else ""
            wrong = look.word in (SUSPECT, LOADING, UNJUDGED) and look.detail
            words = f"it answers garbage: {garbage}" if garbage else wrong
            words = f"{other}; {words}" if words else other
            return Look(UNJUDGED, words, requested=look.requested, other=other, garbage=garbage)
        # one that does not run, or does not answer, is no stranger's doing
        if not seen or (look.word == SUSPECT and ": " not in seen):
            return look
        return Look(SUSPECT, seen, requested=look.requested, stranger=True)

    def _pid_of_candidate(self) -> int | None:
        """The process that a relay in the baseline's place leads to, as far as this user sees it;
        None without a relay."""
        switched = proxy.recorded(self.plan.records_dir, self.plan.baseline.url)
        who = listener(f"http://{switched.to}") if switched is not None else None
        return who.pid if who is not None else None

    def _ask_unless_busy(
        self, pid: int | None, *, well: bool = True, model: str | None = None
    ) -> Look:
        """`well`: its health path has just said so; `model`: another name than the baseline's."""
        seen = occupancy_of(self.plan.baseline.url)
        clients = self._clients(seen)
        if seen.processing and self._passed < self.settings.ask_after:
            self._passed += 1
            return Look(BUSY, f"{plural(seen.processing, 'request')} of others{clients}")
        others = self._connected(seen)
        look = self._ask(seen, pid, well=well, model=model)
        if look.word == SUSPECT:
            # the next look asks again, though a request seems to be under way; how long it takes
            # beside clients of whom the server does not tell says nothing of its speed
            return replace(look, slow=look.slow and not others)
        self._passed = 0
        if others and look.word == SERVING:
            detail = f"{look.detail}, beside connected clients"
            return replace(look, tok_s=None, ttft_s=None, detail=detail)
        if seen.processing and look.word == SERVING:
            # The answer shared the machine with others: it proves that it serves, not how fast.
            return replace(look, word=BUSY, tok_s=None, detail=f"{look.detail}, beside others")
        return look

    def _ask(self, seen: Occupancy, pid: int | None, *, well: bool, model: str | None) -> Look:
        base = self.plan.baseline
        limit_s = min(base.completion.timeout_s, self.settings.interval_s * PART)
        options: dict[str, Any] = {
            "model": base.completion.model if model is None else model,
            "prompt": base.completion.prompt, "expect": base.completion.expect,
            "timeout_s": limit_s,
        }  # fmt: skip
        # always the same slot, so that the others keep what they remember of conversations
        slot = seen.slots - 1 if seen.slots > 1 else None
        ask = streamed if self._streams else complete
        arrivals = reach_of(self.plan, observe.OWNER_S)
        done = ask(base.url, max_tokens=self.settings.tokens, slot=slot, **options)
        # by turns, as clients ask in both ways; what breaks is asked again until it does not
        self._streams = done.breaks or not self._streams
        if done.garbled is not None and done.cut_short:
            # A model that reasons where nobody sees it says nothing within so few tokens.
            done = prove(base.url, max_tokens=self.settings.tokens, **options)
        if done.ok and (done.signs or self._judged != pid):
            within_s = min(limit_s, PATIENCE_S)
            done = longer(base.url, done, slot=slot, within_s=within_s, **options)
            self._judged = pid if done.ok else NOBODY
        if arrivals.missed:
            words = f"{observe.ELSE}: {reach.NOTHING_CAME}"
            return Look(SUSPECT, words, requested=True, stranger=True)
        if done.ok:
            words = f"{plural(done.tokens, 'token')} in {format_duration(done.elapsed_s)}"
            return Look(SERVING, words, done.decode_tok_s, first_token_s(done), requested=True)
        if done.dead:
            return Look(SUSPECT, _why(done.why, pid), requested=True, dead=True)
        if done.refuses or (done.fails and well):
            return Look(UNJUDGED, done.why, requested=True)
        if done.garbled is not None:
            return Look(GARBLED, done.detail, requested=True, weak=done.garbled.weak)
        if busy(base.url) or self._goes_on(seen):
            return Look(BUSY, "a request of others came first", requested=True)
        if done.sends:  # whatever it is slow for, it is alive
            bound = self.settings.tokens / limit_s
            return Look(UNJUDGED, done.detail, requested=True, slow=base.is_below(bound))
        words = f"no completion: {_why(done.detail, pid)}"
        if done.status or done.elapsed_s < limit_s:
            return Look(SUSPECT, words, requested=True)
        bound, count = self.settings.tokens / limit_s, plural(self.settings.tokens, "token")
        words = f"{words}; {count} in that time are {bound:.2g} tok/s"
        return Look(SUSPECT, words, requested=True, slow=base.is_below(bound))

    def _connected(self, seen: Occupancy) -> bool:
        """Whether clients are connected to a server that does not say whom it answers."""
        url = self.plan.baseline.url
        return not seen.known and is_local(url) and lasting_clients(url, self._clock.sleep) > 0

    def _goes_on(self, before: Occupancy) -> bool:
        """Whether others have got tokens since a look, by the server's own counter."""
        now = occupancy_of(self.plan.baseline.url).generated
        return now is not None and before.generated is not None and now > before.generated

    def _silent(self, look: Look, pid: int | None) -> Look:
        """What a look without an answer means: nothing yet, if its processes compute, and nothing
        while it streams to others."""
        now = self._clock.monotonic()
        self._silent_since = now if self._silent_since is None else self._silent_since
        if is_local(self.plan.baseline.url) and streams(self.plan.baseline.url, self._clock.sleep):
            return replace(look, word=UNJUDGED, detail=f"{look.detail}, and streams to clients")
        patient = now - self._silent_since < self.plan.baseline.completion.timeout_s
        reading_s = min(WORKS_S, self.settings.interval_s * WORKS_PART)
        if pid is None or not patient or not works(pid, reading_s, self._clock):
            return look
        return replace(look, word=UNJUDGED, detail=f"{look.detail}, and computes")

    def _clients(self, seen: Occupancy) -> str:
        """What its clients get, by the server's own counters since the last look; "" if unknown."""
        before, self._answered = self._answered, seen.answered
        if before is None or seen.answered is None:
            return ""
        tokens, seconds = (now - then for now, then in zip(seen.answered, before, strict=True))
        return f", who get {tokens / seconds:.1f} tok/s" if tokens > 0 and seconds > 0 else ""


def first_token_s(done: Completion) -> float | None:
    """How long the first token took: the whole answer less what the others took."""
    if not done.decode_tok_s or done.tokens < 1:
        return None
    return max(0.0, done.elapsed_s - (done.tokens - 1) / done.decode_tok_s)


def held_by(plan: SealedPlan) -> Holder | None:
    """The run or the rollback that has the baseline in its hands; None for none.

    Another user's run counts, too: it measures on this machine.
    """
    if is_held(plan.rollback_dir):
        return Holder("a rollback is on")
    holders = [held for pointer in records.find_all() if (held := _holder(pointer, plan))]
    return min(holders, key=lambda held: (held.other, not held.alone), default=None)


def _holder(pointer: Pointer, plan: SealedPlan) -> Holder | None:
    """What a run's pointer says; None where neither the run nor a rollback of it is on."""
    run, words = Path(pointer.run_dir), f"run {one_line(pointer.run_id, 80)}"
    rolls = is_held(run / ROLLBACK)
    if not rolls and not process.alive(pointer.pid, pointer.start):
        return None
    theirs = records.other_plan(pointer, plan)
    words += f" of site {one_line(theirs.site_name, 60)}" if theirs is not None else ""
    words = f"a rollback of {words} is on" if rolls else f"{words} is on"
    stopped = rolls or not _leaves_it(run)
    if theirs is None:
        return Holder(words, stopped)
    return Holder(words, False, other=True, alone=stopped or theirs.exclusive)


def _leaves_it(run: Path) -> bool:
    """Whether the run's sentinel, which is told before the baseline is stopped, says it is not."""
    from console.recovery.guard.record.read import open_newest  # memory, for as long as a run lives

    recording = open_newest(run)
    page = recording.status() if recording is not None and recording.alive else None
    return page is not None and page.get("outage") is False


def works(pid: int, seconds: float, clock: Clock) -> bool:
    """Whether a process and its descendants use a processor during so many seconds."""
    before = _cpu_s(pid)
    clock.sleep(seconds)
    return _cpu_s(pid) - before >= WORKS * seconds


def _cpu_s(first: int) -> float:
    """Seconds of CPU time of a process and its descendants that live."""
    pids = {first}
    for process_stat in sorted(process.all_stats(), key=lambda stat: stat.start):
        if process_stat.parent in pids:
            pids.add(process_stat.pid)
    return process.cpu_s(pids)


def _why(words: str, pid: int | None) -> str:
    """A probe's words, and what is seen of the process."""
    if pid is None:
        return words
    if process.is_gone(pid):
        return f"{words}; pid {pid} is gone"
    return f"{words}; pid {pid} {'is stopped (SIGSTOP)' if is_stopped(pid) else 'lives'}"
