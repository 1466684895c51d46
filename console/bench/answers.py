"""What a server said while it was measured: is it an answer at all, and what is kept to be read;
and whose failure it is where each run failed.

Measurements ask engines to go on after the end of an answer (`ignore_eos`), so that every run has
the same length. A small model that may not end falls into a loop after a sane answer; so an answer
that is one thing again and again is asked for once more, free to end, before it counts as garbled.

The answers of a measurement are judged together, too: one of them with a weak sign that it falls
apart (`console.runtime.answers.degenerate`) is nothing, a good part of them with such signs is the
model.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from console.bench.client import PROMPTS, ChatRequest
from console.bench.sample import Sample
from console.bench.sse import FailureKind, Reply
from console.common import redact
from console.common.text import one_line
from console.common.units import plural
from console.runtime.answers.degenerate import (
    EXPLAINED,
    Sign,
    broken,
    degenerate,
    echoes,
    signs,
    telling,
)
from console.runtime.answers.sanity import (
    MIN_SHORT,
    Garbled,
    Kind,
    TooSlow,
    is_cut,
    judge,
    quoted,
    unexpected,
)

MAX_KEPT = 8
"""Prompts whose answers are kept."""
MAX_ANSWER, MAX_REASONING, MAX_PROMPT = 500, 200, 200
"""Characters kept of each."""
ALIKE = 4
"""Characters at their beginnings by which two answers to one prompt are the same one."""
TOGETHER, EXPLAINED_TOGETHER = 0.5, 0.7
"""From which share of the answers on weak signs are strong, and from which on they are where each
has an explanation in its own prompt: of three prompts, two may ask for songs or large numbers."""
MIN_PROMPTS = 3
"""Different prompts from which on signs with an explanation are looked at together."""
LOOPS = frozenset({Kind.LOOP, Kind.BLANK_TAIL, Kind.DEGENERATE})
GOES_ON = LOOPS | {Kind.WORD, Kind.CHARACTER, Kind.SYMBOLS}
"""What a sane answer may look like when its model was kept from ending it."""

AskFreely = Callable[[], Reply]
"""Sends the same request once more, with leave to end the answer; called at most once for each."""
OWN = re.compile(r"HTTP (502|503|504|529)\b")
"""In a server error: its queue is full, which may be our doing."""
WANTS_KEY = re.compile(r"HTTP (401|403)\b")


@dataclass(slots=True)
class Exchange:
    """One request and its reply. `prompt` is what the operator asked, without our nonce."""

    prompt: str
    request: ChatRequest
    reply: Reply
    sample: Sample

    @property
    def forced(self) -> bool:
        """Whether the model was kept from ending its answer."""
        return self.request.extras and not (self.request.free or self.reply.extras_refused)


@dataclass(frozen=True, slots=True)
class Kept:
    """One answer, clean and cut short. `finish`: the server's reason for its end; `garbled`: why it
    is no answer, in words."""

    prompt: str
    answer: str
    reasoning: str = ""
    finish: str = ""
    tokens: int | None = None
    garbled: str = ""
    odd: str = ""
    """Weak signs that it falls apart, in words."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A reply, why it is garbled, and where it is not, the weak signs that it falls apart. `seen`:
    such signs were looked for."""

    reply: Reply
    garbled: Garbled | None = None
    signs: frozenset[Sign] = frozenset()
    seen: bool = True

    @property
    def odd(self) -> str:
        """The weak signs, in words."""
        return degenerate(self.reply.answer, self.signs).words if self.signs else ""


@dataclass(frozen=True, slots=True)
class Garbage:
    """How many of a server's answers were garbled; `words` say why and show the commonest one."""

    count: int
    of: int
    words: str

    @property
    def mostly(self) -> bool:
        """Whether the server answers garbage, not only now and then."""
        return 2 * self.count > self.of

    def __str__(self) -> str:
        """`9 of 9 answers are garbled: nothing but white space: “\\n\\n…”`"""
        are = "is" if self.of == 1 else "are"
        return f"{self.count} of {plural(self.of, 'answer')} {are} garbled: {self.words}"


@dataclass
class Answers:
    """The answers of one measurement, from any thread: how many were garbled, and one for each
    prompt, a garbled one before a sane one. `expect`: a pattern that each has to match."""

    expect: str = ""
    judged: int = 0
    garbled: int = 0
    _words: Counter[str] = field(default_factory=Counter)
    _kept: dict[str, Kept] = field(default_factory=dict)
    _go_on: set[str] = field(default_factory=set)
    """Prompts whose answer goes on in a loop because it may not end."""
    _seen: int = 0
    """Answers in which weak signs were looked for."""
    _odd: Counter[str] = field(default_factory=Counter)
    """Answers with weak signs, by what these say."""
    _prompts: set[str] = field(default_factory=set)
    _telling: set[str] = field(default_factory=set)
    """Prompts whose answer has signs that no prompt explains."""
    _suspects: set[str] = field(default_factory=set)
    """Prompts whose answer has a weak sign, or is garbled."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def judge(self, exchange: Exchange, ask_freely: AskFreely | None = None) -> Sample:
        """The sample of an exchange, void if its text is no answer; one that failed, as it is.

        Without `ask_freely` a loop is no fault by itself, where the model had to go on.
        """
        sample, reply = exchange.sample, exchange.reply
        if reply.failure is not None:
            return sample
        judged = self._judged(exchange, ask_freely)
        self._take(exchange, judged)
        garbled = judged.garbled
        if garbled is None:
            return replace(sample, odd=judged.odd)
        return replace(sample, void=f"garbled: {garbled.kind}", garbled=garbled.words)

    def _judged(self, exchange: Exchange, ask_freely: AskFreely | None) -> Judged:
        """The reply by which a server is judged, and what is wrong with it."""
        judged = _look(exchange, exchange.reply, exchange.sample.completion_tokens)
        if exchange.forced and (
            judged.signs or (judged.garbled and judged.garbled.kind in GOES_ON)
        ):
            judged = self._excused(exchange, judged, ask_freely)
        garbled = judged.garbled
        if garbled is not None and garbled.kind in LOOPS and exchange.request.endpoint != "chat":
            garbled = None  # a bare text that is continued often goes on in a loop
        return replace(judged, garbled=garbled or _unexpected(judged.reply, self.expect))

    def _excused(self, exchange: Exchange, judged: Judged, ask_freely: AskFreely | None) -> Judged:
        """What is wrong with an answer whose model was kept from ending it: by a second one, where
        it was free to."""
        first, garbled = judged, judged.garbled
        if ask_freely is None:
            excused = garbled and (garbled.kind in LOOPS or exchange.prompt in self._go_on)
            return Judged(judged.reply, None if excused else garbled, seen=False)
        if (free := ask_freely()).failure is not None:
            return judged
        second = _look(exchange, free, free.completion_tokens)
        if second.garbled is not None or _alike(free.raw_text, judged.reply.raw_text):
            judged = second
        if garbled is not None and judged.garbled is None:
            self._go_on.add(exchange.prompt)
            if garbled.kind is Kind.DEGENERATE:
                # a sound model that may not end says something else, or the same: a weak sign
                return replace(judged, signs=judged.signs | first.signs)
        return judged

    def _take(self, exchange: Exchange, judged: Judged) -> None:
        prompt, signs = exchange.prompt, judged.signs
        answer = kept(prompt, judged.reply, exchange.sample.completion_tokens, judged.garbled)
        answer = replace(answer, odd=judged.odd)
        with self._lock:
            self.judged += 1
            self._seen += judged.seen
            if answer.garbled:
                self.garbled += 1
                self._words[answer.garbled] += 1
            elif answer.odd:
                self._odd[answer.odd] += 1
            self._prompts.add(prompt)
            if answer.garbled or answer.odd:
                self._suspects.add(prompt)
            if telling(signs):
                self._telling.add(prompt)
            known = self._kept.get(prompt)
            if known is None and len(self._kept) >= MAX_KEPT:
                return
            if known is None or _rank(answer) > _rank(known):
                self._kept[prompt] = answer

    @property
    def fall_apart(self) -> bool:
        """Whether so many answers have weak signs that these are strong. Those of one prompt have
        to be such that it cannot have asked for."""
        odd = self._odd.total()
        if not odd or (len(self._suspects) == 1 < len(self._prompts)):
            return False
        if self._telling:
            return odd + self.garbled >= TOGETHER * self._seen
        return len(self._prompts) >= MIN_PROMPTS and odd >= EXPLAINED_TOGETHER * self._seen

    @property
    def kept(self) -> list[Kept]:
        with self._lock:
            together = self.fall_apart
            return [
                replace(answer, garbled=answer.odd) if together and not answer.garbled else answer
                for answer in self._kept.values()
            ]

    @property
    def garbage(self) -> Garbage | None:
        """None where no answer was garbled."""
        with self._lock:
            words = self._words + self._odd if self.fall_apart else self._words
            if not words:
                return None
            [(commonest, _)] = words.most_common(1)
            return Garbage(words.total(), self.judged, commonest)


def _rank(answer: Kept) -> int:
    """How much an answer that is kept tells."""
    return 2 if answer.garbled else 1 if answer.odd else 0


def kept(prompt: str, reply: Reply, tokens: int | None, garbled: Garbled | None) -> Kept:
    """An answer as it is kept; `tokens`: where the server itself counts none."""
    return Kept(
        one_line(redact.text(prompt), MAX_PROMPT),
        _shown(reply.answer, MAX_ANSWER),
        _shown(reply.reasoning, MAX_REASONING),
        reply.finish_reason,
        tokens if reply.completion_tokens is None else reply.completion_tokens,
        garbled.words if garbled is not None else "",
    )


def _shown(text: str, limit: int) -> str:
    """A foreign text on one line; what is nothing but white space is written out."""
    if text and not text.strip():
        return quoted(text)
    return one_line(redact.text(text[: 8 * limit]), limit)


def _look(exchange: Exchange, reply: Reply, tokens: int | None) -> Judged:
    """What is wrong with a reply by itself. An answer of as many tokens as it may have was cut off
    there, whatever the server says: some say `stop` of all that they answer."""
    count, finish, is_own_prompt = tokens or 0, reply.finish_reason, exchange.prompt in PROMPTS
    limit_reached = count >= exchange.request.max_tokens
    garbled = judge(
        reply.answer, reply.reasoning, tokens=count, finish=finish, limit_reached=limit_reached,
        sentence=is_own_prompt,
    )  # fmt: skip
    if garbled is not None or count < MIN_SHORT or exchange.request.endpoint != "chat":
        return Judged(reply, garbled)
    cut = is_cut(finish) or limit_reached
    answer_signs = signs(reply.answer if cut else reply.answer.rstrip())
    if cut:
        strong = degenerate(reply.answer, answer_signs) if broken(answer_signs) else None
        return Judged(reply, strong, answer_signs)
    # what ended by itself may be a song or a number, unless our own prompt asked for a text
    answer_signs = answer_signs if is_own_prompt else answer_signs - EXPLAINED
    echo = echoes(reply.answer, exchange.request.prompt)
    return Judged(reply, None, answer_signs | {Sign.ECHO} if echo else answer_signs)


def _alike(free: str, text: str) -> bool:
    """Whether two texts begin alike: intermittent garbage is none the better for a sane answer."""
    begins, other = (words.lstrip()[:ALIKE].casefold() for words in (free, text))
    return bool(begins) and other.startswith(begins)


def _unexpected(reply: Reply, expect: str) -> Garbled | None:
    if not expect or (reply.finish_reason == "length" and not reply.answer.strip()):
        return None
    try:
        return unexpected(reply.answer, expect)
    except TooSlow as error:
        return Garbled(Kind.UNEXPECTED, str(error))


def failure_of(url: str, runs: Iterable[Sample]) -> str:
    """How the server failed each of these runs, in clean words; "" where one was answered, and
    where the failure may be ours: a connection, a limit, a key, a request, a name of a model."""
    failures = [run.error for run in runs]
    keyed = "@" in urlsplit(url).netloc
    if not failures or not all(_is_theirs(failure, keyed=keyed) for failure in failures):
        return ""
    count = len(failures)
    each = "its only run" if count == 1 else f"each of {count} runs"
    return f"{each} failed: {failures[-1]}"


def _is_theirs(failure: str, *, keyed: bool) -> bool:
    kind = failure.partition(": ")[0]
    if kind == FailureKind.REFUSED:
        return not keyed and bool(WANTS_KEY.search(failure))
    return kind in (FailureKind.SERVER, FailureKind.TRUNCATED) and not OWN.search(failure)
