"""What a server said while it was measured: is it an answer at all, and what is kept to be read.

Measurements ask engines to go on after the end of an answer (`ignore_eos`), so that every run has
the same length. A small model that may not end falls into a loop after a sane answer; so an answer
that is one thing again and again is asked for once more, free to end, before it counts as garbled.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from console.bench.client import PROMPTS, ChatRequest
from console.bench.metrics import Sample
from console.bench.sse import Reply
from console.common import redact
from console.common.text import one_line
from console.common.units import plural
from console.runtime.sanity import Garbled, Kind, TooSlow, judge, quoted, unexpected

MAX_KEPT = 8
"""Prompts whose answers are kept."""
MAX_ANSWER, MAX_REASONING, MAX_PROMPT = 500, 200, 200
"""Characters kept of each."""
ALIKE = 4
"""Characters at their beginnings by which two answers to one prompt are the same one."""
LOOPS = frozenset({Kind.LOOP, Kind.BLANK_TAIL})
GOES_ON = LOOPS | {Kind.WORD, Kind.CHARACTER, Kind.SYMBOLS}
"""What a sane answer may look like when its model was kept from ending it."""

AskFreely = Callable[[], Reply]
"""Sends the same request once more, with leave to end the answer; called at most once for each."""


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
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def judge(self, exchange: Exchange, ask_freely: AskFreely | None = None) -> Sample:
        """The sample of an exchange, void if its text is no answer; one that failed, as it is.

        Without `ask_freely` a loop is no fault by itself, where the model had to go on.
        """
        sample, reply = exchange.sample, exchange.reply
        if reply.failure is not None:
            return sample
        reply, garbled = self._judged(exchange, ask_freely)
        self._take(exchange.prompt, kept(exchange.prompt, reply, sample.completion_tokens, garbled))
        if garbled is None:
            return sample
        return replace(sample, void=f"garbled: {garbled.kind}", garbled=garbled.words)

    def _judged(
        self, exchange: Exchange, ask_freely: AskFreely | None
    ) -> tuple[Reply, Garbled | None]:
        """The reply by which a server is judged, and why it is garbled."""
        reply = exchange.reply
        garbled = _garbled(exchange, reply, exchange.sample.completion_tokens)
        if garbled is not None and garbled.kind in GOES_ON and exchange.forced:
            if ask_freely is None:
                excused = garbled.kind in LOOPS or exchange.prompt in self._go_on
                garbled = None if excused else garbled
            elif (free := ask_freely()).failure is None:
                second = _garbled(exchange, free, free.completion_tokens)
                if second is not None or _alike(free.raw_text, reply.raw_text):
                    reply, garbled = free, second
                if garbled is None:
                    self._go_on.add(exchange.prompt)
        if garbled is not None and garbled.kind in LOOPS and exchange.request.endpoint != "chat":
            garbled = None  # a bare text that is continued often goes on in a loop
        return reply, garbled or _unexpected(reply, self.expect)

    def _take(self, prompt: str, answer: Kept) -> None:
        with self._lock:
            self.judged += 1
            if answer.garbled:
                self.garbled += 1
                self._words[answer.garbled] += 1
            known = self._kept.get(prompt)
            if known is None and len(self._kept) >= MAX_KEPT:
                return
            if known is None or (answer.garbled and not known.garbled):
                self._kept[prompt] = answer

    @property
    def kept(self) -> list[Kept]:
        with self._lock:
            return list(self._kept.values())

    @property
    def garbage(self) -> Garbage | None:
        """None where no answer was garbled."""
        if not self.garbled:
            return None
        return Garbage(self.garbled, self.judged, self._words.most_common(1)[0][0])


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


def _garbled(exchange: Exchange, reply: Reply, tokens: int | None) -> Garbled | None:
    """An answer of as many tokens as it may have was cut off there, whatever the server says: some
    say `stop` of all that they answer."""
    return judge(
        reply.answer, reply.reasoning, tokens=tokens or 0, finish=reply.finish_reason,
        limit_reached=(tokens or 0) >= exchange.request.max_tokens,
        sentence=exchange.prompt in PROMPTS,
    )  # fmt: skip


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
