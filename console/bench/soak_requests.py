"""The requests of a soak: each is asked from a thread of its own, and may be cut."""

from __future__ import annotations

import secrets
import threading
from dataclasses import dataclass, field, replace

from console.bench.answers import Answers, Exchange
from console.bench.benchmark import tokenizer
from console.bench.beside.users import Users
from console.bench.client import ChatRequest, stream_chat
from console.bench.growth import Growth
from console.bench.metrics import SOAK_REQUEST_S, Sample, Tokenize, measure, void_reason
from console.bench.soak_stats import GARBLED
from console.bench.sse import Reply, brings_text
from console.common.text import one_line

EMPTY = "empty reply"


@dataclass(slots=True)
class Asker:
    """Sends prompts to the server at `url`, each after a nonce, at temperature 0. With `growth`
    they are one conversation, whose nonce is at its beginning. The rate of one that was answered
    beside requests of others, which `users` sees, is not used. `answers` judges what was said."""

    url: str
    max_tokens: int = 128
    model: str = ""
    timeout_s: float = SOAK_REQUEST_S
    extras: bool = True
    growth: Growth | None = None
    users: Users | None = None
    answers: Answers = field(default_factory=Answers)
    last: Out | None = field(default=None, init=False)

    def __call__(self, prompt: str) -> Out:
        text = f"[{secrets.token_hex(8)}] {prompt}"
        if self.growth is not None:
            text = self.growth.next(prompt, self.last.sample if self.last else None)
        request = ChatRequest(
            text, self.max_tokens, model=self.model, extras=self.extras,
            cached=self.growth is not None,
        )  # fmt: skip
        self.last = Out(self, prompt, request)
        return self.last


@dataclass(frozen=True, slots=True)
class Answer:
    """One request's figures; `error` is its class ("" for a good one), `words` say why, `void` why
    its rate is not used (a cached prompt)."""

    sample: Sample
    error: str = ""
    words: str = ""
    void: str = ""


class Out:
    """A request in progress."""

    def __init__(self, asker: Asker, prompt: str, request: ChatRequest) -> None:
        self.ended = threading.Event()
        self._asker = asker
        self._prompt = prompt
        self._request = request
        self._cut = threading.Event()
        self._events: list[str] = []
        self._read = 0
        self._heard = 0
        self._reply = Reply()
        self._answer: Answer | None = None
        self._error: BaseException | None = None
        threading.Thread(target=self._run, name="soak request", daemon=True).start()

    @property
    def heard(self) -> int:
        """Chunks of text so far."""
        while self._read < len(self._events):
            self._heard += brings_text(self._events[self._read])
            self._read += 1
        return self._heard

    def answer(self) -> Answer:
        """Its result. Raises the exception of a bug in the thread."""
        if self._answer is None:
            raise self._error or RuntimeError("asked for an answer before the request has ended")
        return self._answer

    @property
    def sample(self) -> Sample | None:
        """Its figures; None if it failed, or has not ended."""
        answer = self._answer if self.ended.is_set() else None
        return answer.sample if answer is not None and not answer.error else None

    def cut(self) -> None:
        """Abort it."""
        self._cut.set()

    def _run(self) -> None:
        users = self._asker.users
        try:
            answer = self._ask() if users is None else self._beside(users)
            self._answer = answer if answer.error else self._judged(answer)
        except BaseException as error:  # handed over whole to the thread that asks
            self._error = error
        finally:
            self.ended.set()

    def _stream(self, request: ChatRequest) -> Reply:
        asker = self._asker
        return stream_chat(
            asker.url, request, timeout_s=asker.timeout_s, cancelled=self._cut,
            on_event=self._events.append,
        )  # fmt: skip

    def _judged(self, answer: Answer) -> Answer:
        """The answer, an error if its text is none."""
        exchange = Exchange(self._prompt, self._request, self._reply, answer.sample)
        again = replace(self._request, free=True)
        sample = self._asker.answers.judge(exchange, lambda: self._stream(again))
        return Answer(answer.sample, GARBLED, sample.garbled) if sample.garbled else answer

    def _ask(self) -> Answer:
        asker = self._asker
        reply = self._reply = self._stream(self._request)
        if reply.extras_refused:
            asker.extras = False
        tell = None if self._cut.is_set() else tokenizer(asker.url, reply)
        return answer_of(reply, asker.max_tokens, tell, cached=self._request.cached)

    def _beside(self, users: Users) -> Answer:
        """The answer; its rate is not used if others were answered at the same time."""
        before = users.look()
        busy = users.busy(before)
        with users.following():
            answer = self._ask()
        used = users.judge([answer.sample], before, users.look()) or busy
        if answer.error or answer.void or not used:
            return answer
        users.spoilt += 1
        return replace(answer, sample=replace(answer.sample, void=used), void=used)


def answer_of(
    reply: Reply, max_tokens: int, tell: Tokenize | None = None, *, cached: bool = False
) -> Answer:
    """A reply as a soak counts it: short output is no fault here, no output at all is. `cached`: a
    part of the prompt may come from a cache."""
    sample = measure(reply, max_tokens, tell)
    if reply.failure is not None:
        return Answer(sample, str(reply.failure.kind), one_line(reply.failure.text, 300))
    tokens = sample.completion_tokens
    if not any(event.is_text for event in reply.events):
        return Answer(sample, EMPTY, f"an answer without text ({tokens or 'no'} tokens counted)")
    void = void_reason(_uncached(reply) if cached else reply, tokens, max_tokens, 0)
    return Answer(replace(sample, void=void), void=void)


def _uncached(reply: Reply) -> Reply:
    """The reply as if nothing had come from a cache."""
    timings = replace(reply.timings, cache_n=None) if reply.timings is not None else None
    return replace(reply, cached_tokens=None, timings=timings)
