"""The state of the baseline: one word with its time and its witness, out of timed evidence. Pure.

A witness is whoever learns something of the baseline: a run's start, a rollback, the watch, a
person's `v`, a benchmark, the health path. `state_of` weighs what they saw, and every face of the
console shows what it says.

The newest evidence counts, and the more careful of two witnesses. A health path that answers says
only that something answers: after a failed proof nothing but a proof makes the baseline serve
again. A proof says nothing of a server that was started since.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from console.common.text import one_line


class Word(StrEnum):
    """How the baseline is."""

    SERVING = "serving"
    LOADING = "loading"
    REFUSING = "refusing"
    """It answers and does not do what it is asked for: it wants a key, or knows no such model."""
    DEGRADED = "degraded"
    """It serves, slower than its reference."""
    GARBLED = "garbled"
    DOWN = "down"
    CUT_OVER = "cut over"
    """A candidate answers in its place."""
    UNKNOWN = "unknown"


DETAIL_LIMIT = 300
"""Characters of a text of evidence."""
Words = Annotated[str, lambda text: one_line(text, DETAIL_LIMIT)]
SLACK_S = 60.0
"""How far ahead a time may be before it counts as one of the future."""
BY_KEY = "; F12 brings the baseline back"
"""How the detail of a cutover ends, where that key is at hand."""
UP = frozenset({Word.SERVING, Word.DEGRADED})
"""The words of a baseline that serves, as far as anybody knows."""


class Witness(StrEnum):
    """Who saw it; a name of a file, and `BY` has the words."""

    RUN_START = "run-start"
    ROLLBACK = "rollback"
    RESTORE = "restore"
    """A rollback that the runner itself asked for: the planned restore of its baseline, as a rule.
    """
    SCRIPT = "script"
    VERIFY = "verify"
    ADOPT = "adopt"
    WATCH = "watch"
    BENCHMARK = "benchmark"
    HEALTH = "health"
    EARLIER = "earlier"
    """A proof that a version before this one kept: it does not say whose."""


BY = {
    Witness.RUN_START: "a run's start", Witness.ROLLBACK: "a rollback",
    Witness.RESTORE: "a run's restore",
    Witness.SCRIPT: "rollback.sh", Witness.VERIFY: "v", Witness.ADOPT: "adopt",
    Witness.WATCH: "the watch", Witness.BENCHMARK: "a benchmark", Witness.HEALTH: "its health path",
    Witness.EARLIER: "a proof",
}  # fmt: skip


ATTEMPT = {
    **BY, Witness.RUN_START: "the proof of a run's start", Witness.VERIFY: "the proof by v",
    Witness.ADOPT: "the proof by adopt", Witness.WATCH: "the watch's question",
}  # fmt: skip
"""The same, where it is what has failed."""


class Kind(StrEnum):
    """What was seen. Of each kind a witness keeps its newest evidence."""

    PROOF = "proof"
    """A completion was answered, and sanely."""
    MEASURED = "measured"
    """The same, long enough to tell how fast the baseline is."""
    FAILED = "failed"
    """A proof failed."""
    ANSWERS = "answers"
    """The health path says 200, or requests of others are under way."""
    AWAY = "away"
    """The health path says anything else, or nothing does."""


GOOD = (Kind.PROOF, Kind.MEASURED)
LOOKS = (Kind.ANSWERS, Kind.AWAY)
_OTHER_DOES = {
    Word.GARBLED: "it answers garbage", Word.REFUSING: "it does not do what it is asked",
    Word.LOADING: "it loads",
}  # fmt: skip
"""How another process is that has the baseline's place, where it does not serve."""
SPOKE = (Word.REFUSING, Word.GARBLED, Word.LOADING)
"""How a server is that answered something when it failed."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a witness saw at `at`, in Unix seconds; `since`: since when it has seen the same, 0.0 if
    only then. `detail` is clean, `tok_s` is None where no rate is known.

    `target` tells one baseline of a site from another, `life` two starts of the same baseline; both
    are "" where that is not known. `beside`: who was answered at the same time, so that its rate is
    a bound from below; `remark`: what is to be known of a proof that is good. Both are clean.
    `dead`: the server itself says that its engine is dead, whatever its health path says.
    `container`: the name that the plan has for the container that answered, and the id that it had.
    `other`: which process was there that is not known to be the baseline: it is no word of that.
    `cut_over`: it is of the candidate that clients were given to, so that it says nothing of the
    baseline, and what is known of the baseline says nothing of it.
    """

    kind: Kind
    word: Word
    at: float
    witness: Witness
    detail: Words = ""
    tok_s: float | None = None
    degraded: bool = False
    since: float = 0.0
    target: Words = ""
    life: Words = ""
    beside: Words = ""
    remark: Words = ""
    dead: bool = False
    container: Words = ""
    other: Words = ""
    cut_over: bool = False

    @property
    def by(self) -> str:
        return BY[self.witness]


@dataclass(frozen=True, slots=True)
class Figure:
    """A rate in tokens a second, when it was measured (Unix seconds), by what, and whether beside
    requests of others."""

    tok_s: float
    at: float
    by: str
    beside: bool = False


@dataclass(frozen=True, slots=True)
class BaselineState:
    """How the baseline is, and by which evidence; times in Unix seconds, 0.0 for never; clean text.

    `at` and `by` are of the evidence that decided. `proven_at` is the newest answered completion of
    all, even where it says nothing of today's server. `doubt`: since when, by what and why it is
    not proven any more. `remark`: what is to be known of one that serves all the same.
    """

    word: Word = Word.UNKNOWN
    detail: str = ""
    at: float = 0.0
    since: float = 0.0
    by: str = ""
    figure: Figure | None = None
    proven_at: float = 0.0
    proven_by: str = ""
    doubt: str = ""
    remark: str = ""

    @property
    def up(self) -> bool:
        return self.word in UP

    @property
    def proven(self) -> bool:
        """Whether a completion has proven the server that is there now."""
        return bool(self.proven_at) and self.up and not self.doubt

    def speed_words(self, now: float) -> str:
        """`28.1 tok/s`, and `at 14:03:05 by a benchmark` where that is not its newest proof; "" for
        one that does not serve, or where no rate is known."""
        rate = self.figure
        if rate is None or not self.up:
            return ""
        words = f"{rate.tok_s:.4g} tok/s" + (" beside others" if rate.beside else "")
        if rate.at == self.proven_at and self.proven:
            return words
        return f"{words} at {time_words(rate.at, now)} by {rate.by}"

    def proof_words(self, now: float) -> str:
        """`proven 14:03:05 by a rollback`, or `last proven …` where that says nothing of now; ""
        where nothing has ever proven it."""
        if not self.proven_at:
            return ""
        last = "" if self.proven else "last "
        return f"{last}proven {time_words(self.proven_at, now)} by {self.proven_by}"

    def facts(self, now: float) -> list[str]:
        """What is to be said beside the word, the most important first."""
        known = [*self.reasons]
        if self.word is not Word.CUT_OVER:
            known += [self.speed_words(now), self.proof_words(now)]
        return [fact for fact in known if fact]

    @property
    def reasons(self) -> list[str]:
        """Why the word is what it is; for a server that answers, first why it is not proven."""
        both = [self.detail, self.doubt]
        all_reasons = [*(both[::-1] if self.word is Word.UNKNOWN else both), self.remark]
        return [reason for reason in all_reasons if reason]


def state_of(
    evidence: Iterable[Evidence], now: float, *, target: str = "",
    reference: float | None = None, tolerance: float = 0.10,
) -> BaselineState:  # fmt: skip
    """Weigh all that is known at the Unix time `now`. What is known to be of another baseline than
    `target` does not count. What has a time in the future is the oldest of all: the clock has been
    set back since."""

    fitting = [e for e in evidence if not target or e.target in ("", target)]
    known = sorted(fitting, key=lambda e: _place(e, now))
    if not known:
        return BaselineState(detail="nothing is known of it yet")
    if known[-1].cut_over:
        return _of_candidate(known[-1], known)
    answered = [e for e in known if not e.cut_over]
    if answered[-1].other:
        return _of_another(answered, now)
    # what another process said is no word of the baseline's
    known = [e for e in answered if not e.other]
    proof, failed, look = _newest(known, *GOOD), _newest(known, Kind.FAILED), _newest(known, *LOOKS)
    at = {id(e): place for place, e in enumerate(known)}
    if failed is not None and proof is not None and at[id(failed)] < at[id(proof)]:
        failed = None
    if failed is not None and failed.word is Word.UNKNOWN:
        failed = _surer(known[at[id(proof)] if proof is not None else 0 :]) or failed
    if look is not None and any(at[id(look)] < at[id(e)] for e in (proof, failed) if e is not None):
        look = None
    # what a server said that lived says nothing of the one after it; why one is down stays true
    spoke = failed is not None and (failed.word in SPOKE or failed.dead)
    gone = failed is not None and spoke and _ended_since(
        known[at[id(failed)] :], (Word.DOWN,)
    )  # fmt: skip
    if failed is None and look is not None:
        look = _unless_silent(known, look)
    word, decisive = _judged(proof, failed, look, gone=gone)
    doubt, since = "", _since(known, decisive)
    if failed is not None:
        when, why = time_words(failed.at, now), f": {failed.detail}" if failed.detail else ""
        why = "" if gone else why  # it was said of a server that is no more
        doubt = f"not proven since {ATTEMPT[failed.witness]} failed at {when}{why}"
        since = failed.since or failed.at
    elif proof is not None and word is Word.SERVING:
        doubt = _started_since(answered[answered.index(proof) :], now)
    # what failed says why in the doubt
    detail = "" if word is Word.SERVING or decisive is failed else decisive.detail
    if failed is not None and decisive is not failed and word is Word.UNKNOWN:
        detail = "its health path answers"
    if word is Word.SERVING and _is_slow(_of_this_start(known), reference, tolerance):
        word, detail = Word.DEGRADED, "slower than its reference"
    return BaselineState(
        word, detail, decisive.at, since, decisive.by, _figure(known),
        proof.at if proof is not None else 0.0, proof.by if proof is not None else "", doubt,
        _remark(_of_this_start(known), look, now) if word in UP else "",
    )  # fmt: skip


def _of_candidate(look: Evidence, known: list[Evidence]) -> BaselineState:
    """The state while clients are at a candidate: what is seen of that, and nothing else."""
    proof = _newest(known, *GOOD)
    return BaselineState(
        look.word, look.detail, look.at, _since(known, look), look.by,
        proven_at=proof.at if proof is not None else 0.0,
        proven_by=proof.by if proof is not None else "",
    )  # fmt: skip


def _of_another(known: list[Evidence], now: float) -> BaselineState:
    """The state where a process answers that is not known to be the baseline: whatever it does,
    well or not, nobody knows whether the baseline serves. What it does wrong is said of it."""
    look, proof = known[-1], _newest([e for e in known if not e.other], *GOOD)
    who = look.other.partition(",")[0]
    # whoever else than a health path names it has asked it for a completion
    answers = [
        e for e in known if e.witness is not Witness.HEALTH and e.other.startswith(f"{who},")
    ]  # fmt: skip
    wrong = answers[-1] if look.word is Word.SERVING and answers else look
    says = ": ".join(
        filter(None, (_OTHER_DOES.get(wrong.word), wrong.detail.removeprefix("garbled, ")))
    )
    doubt = f"not proven: {look.other}"
    return BaselineState(
        Word.UNKNOWN, "", look.at, look.since or look.at, look.by,
        proven_at=proof.at if proof is not None else 0.0,
        proven_by=proof.by if proof is not None else "",
        doubt=doubt if wrong.word is Word.SERVING or not says else f"{doubt}; {says}",
    )  # fmt: skip


def last_proof(evidence: Iterable[Evidence], now: float) -> Evidence | None:
    """The newest answered completion; None if there is none."""
    return max((e for e in evidence if e.kind in GOOD), key=lambda e: _place(e, now), default=None)


def time_words(at: float, now: float) -> str:
    """A time of day; with the date if it is not within half a day of now."""
    form = "%H:%M:%S" if abs(now - at) < 43_200 else "%Y-%m-%d %H:%M"
    return time.strftime(form, time.localtime(at))


def is_of_future(evidence: Evidence, now: float) -> bool:
    """Whether the clock has been set back since this was seen."""
    return evidence.at > now + SLACK_S


def _place(evidence: Evidence, now: float) -> tuple[bool, float]:
    return not is_of_future(evidence, now), evidence.at


def _newest(known: list[Evidence], *kinds: Kind) -> Evidence | None:
    return next((e for e in reversed(known) if e.kind in kinds), None)


def _judged(
    proof: Evidence | None, failed: Evidence | None, look: Evidence | None, *, gone: bool
) -> tuple[Word, Evidence]:
    """The word, and what decides it. `failed` and `look` are None unless they are the newer ones;
    not all are None. `gone`: the server that failed has ended since."""
    if look is not None and look.kind is Kind.AWAY:
        # one that does not answer in time takes nothing back of what is known to be wrong
        return (failed.word, failed) if failed and look.word is Word.UNKNOWN else (look.word, look)
    if failed is not None:
        lasts = failed.word in (Word.REFUSING, Word.GARBLED) or failed.dead
        if look is None or (lasts and not gone):
            return failed.word, failed
        return Word.UNKNOWN, look
    decisive = look or proof
    assert decisive is not None
    return Word.SERVING, decisive


def _surer(later: list[Evidence]) -> Evidence | None:
    """What is known to be wrong since a proof, of a server that has not ended since: a failure that
    leaves room for doubt, as the watch's first garbled answer does, takes nothing of it back."""
    for place in range(len(later) - 1, -1, -1):
        evidence = later[place]
        if evidence.kind is Kind.FAILED and (
            evidence.word in (Word.REFUSING, Word.GARBLED) or evidence.dead
        ):
            return None if _ended_since(later[place:], (Word.DOWN,)) else evidence
    return None


def _unless_silent(known: list[Evidence], look: Evidence) -> Evidence:
    """The look, or what the watch found of the same silence before: it looks whether one that does
    not answer in time computes, and says down of one that was stopped."""
    if look.word is not Word.UNKNOWN or look.witness is Witness.WATCH:
        return look
    watched = next((e for e in reversed(known) if e.witness is Witness.WATCH), None)
    if watched is None or watched.word is not Word.DOWN or "refused" in watched.detail:
        return look
    later = known[known.index(watched) + 1 :]
    silent = all(e.kind is Kind.AWAY and e.word is Word.UNKNOWN for e in later)
    return watched if silent else look


def _since(known: list[Evidence], decisive: Evidence) -> float:
    """Since when nobody has seen anything else."""
    first = decisive.since or decisive.at
    for evidence in reversed(known[: known.index(decisive)]):
        if evidence.word is not decisive.word:
            return max(first, evidence.at)
        first = min(first, evidence.since or evidence.at)
    return first


def _started_since(known: list[Evidence], now: float) -> str:
    """Why the first of these, a proof, says nothing of the server that is there now; "" if it
    does."""
    if others := [e for e in known[1:] if e.other]:
        when = time_words(others[-1].at, now)
        return f"not proven since another process answered there at {when}"
    away = [e for e in known[1:] if _was_away(e)]
    if away:
        when = time_words(away[-1].at, now)
        return f"not proven since it was {away[-1].word} at {when}"
    return "not proven since it was started again" if _ended_since(known, ()) else ""


def _was_away(seen: Evidence) -> bool:
    return seen.kind is Kind.AWAY and seen.word in (Word.DOWN, Word.LOADING)


def _ended_since(known: list[Evidence], away: tuple[Word, ...]) -> bool:
    """Whether the server of which the first of these speaks is no more: another one has been seen,
    or it was `away`."""
    first, later = known[0], known[1:]
    lives = [e.life for e in later if e.life]
    other = bool(first.life and lives) and lives[-1] != first.life
    return other or any(e.kind is Kind.AWAY and e.word in away for e in later)


def _of_this_start(known: list[Evidence]) -> list[Evidence]:
    """What is known of the server that is there now: the rate of one that has ended since says
    nothing of it."""
    life = next((e.life for e in reversed(known) if e.life), "")
    begun = 0
    for place, evidence in enumerate(known, 1):
        if _was_away(evidence) or evidence.life not in ("", life):
            begun = place
    return known[begun:]


def _is_slow(known: list[Evidence], reference: float | None, tolerance: float) -> bool:
    """Whether the newest whole measurement, or an answer that took too long, shows it below the
    reference. A few tokens, or a rate beside requests of others, do not show that, but at the
    reference's speed they clear that finding."""
    limit = None if reference is None else reference * (1 - tolerance)
    slow = False
    for evidence in known:
        if evidence.kind is Kind.ANSWERS and evidence.degraded:
            slow = True  # its answer took so long that whatever its rate is, it is below
        if evidence.kind not in GOOD:
            continue
        fast = limit is not None and evidence.tok_s is not None and evidence.tok_s >= limit
        if evidence.kind is Kind.MEASURED and not evidence.beside:
            known_rate = limit is not None and evidence.tok_s is not None
            slow = not fast if known_rate else evidence.degraded
        elif fast:
            slow = False
    return slow


def _figure(known: list[Evidence]) -> Figure | None:
    for evidence in reversed(known):
        if evidence.kind in GOOD and evidence.tok_s is not None:
            return Figure(evidence.tok_s, evidence.at, evidence.by, bool(evidence.beside))
    return None


def _remark(known: list[Evidence], look: Evidence | None, now: float) -> str:
    """What the newest look says of a server that serves all the same, and the newest whole
    measurement, with its time."""
    measured = _newest(known, Kind.MEASURED)
    remarks = [look.remark] if look is not None else []
    if measured is not None and measured.remark:
        remarks.append(f"{measured.remark}, at {time_words(measured.at, now)} by {measured.by}")
    return "; ".join(remark for remark in remarks if remark)
