"""The requests of a soak: each is asked from a thread of its own, and may be cut.

They may be a conversation that fills a server's context, longer with every request, and then anew.
Each request repeats what was said and adds to its end, so that a server with a prompt cache reads
only what is new. A crash when the KV cache fills up shows itself so, which single prompts never do.
"""

from __future__ import annotations

import math
import random
import secrets
import threading
from dataclasses import dataclass, field, replace

from console.bench.answers import Answers, Exchange
from console.bench.benchmark import fetch_json, tokenizer
from console.bench.beside.users import Users, saw_others
from console.bench.client import ChatRequest, stream_chat
from console.bench.metrics import SOAK_REQUEST_S
from console.bench.prompt_rate import prompt as some_words
from console.bench.sample import Sample, Tokenize, measure, void_reason
from console.bench.soak_stats import GARBLED
from console.bench.sse import Reply, brings_text
from console.common.text import one_line

REQUESTS = 24
"""About so many requests fill the context once."""
PER_WORD, PER_BYTE = 8.0, 1.0
"""Tokens of a word, and of a byte of a question, before any are counted: more than they have, so
that the first step is no leap."""
MAX_STEPS = 3
"""Steps that one request makes up for, after the first ones, which only show what is counted."""
MERGES = 2
"""Tokens by which a question may cost more than before, as its ends may join other words."""
SPARE = 1.05
"""What is left of a step for words that are longer than those counted so far."""
UNCOUNTED_WORD, UNCOUNTED_BYTE = 1.5, 0.5
"""The same where the server counts none: somewhat more than usual tokenizers make of common words
and of plain text."""
MAX_DIGITS = 12


class Growth:
    """The prompts of one soak. `limit`: tokens that prompt and answer may take together, of which
    `answer` are the answer's."""

    def __init__(self, limit: int, answer: int) -> None:
        self._limit = max(1, limit - answer)
        self._step = max(1, self._limit // REQUESTS)
        self._chance = random.Random(secrets.token_bytes(8))
        self._per_word, self._per_byte = PER_WORD, PER_BYTE
        self._exact: dict[str, int] = {}
        """Tokens of a question, as the server counted them."""
        self._at_most: dict[str, int] = {}
        """Tokens of the prompt that began with it: the template and our nonce are in them, too."""
        self._begin()

    def _begin(self) -> None:
        self._text = f"[{secrets.token_hex(8)}]"
        self._tokens = self._words = self._asked_before = 0
        self._question = ""

    def next(self, question: str, last: Sample | None) -> str:
        """The next prompt; `last` is what the one before it showed, None if it failed."""
        if last is None:
            self._begin()
        elif self._question:
            self._learn(last.prompt_tokens)
        room = self._limit - self._tokens
        if self._question and room < max(self._step / 2, self._cost(question)):
            self._begin()
        self._grow(question)
        return self._text

    def _cost(self, question: str) -> float:
        """Tokens of a question: as they were counted, else the most they can be, by its words, and
        by its bytes, as one without spaces is no single word."""
        if question in self._exact:
            return self._exact[question]
        by_words = len(question.split()) * self._per_word
        by_bytes = len(question.encode()) * self._per_byte
        return min(max(by_words, by_bytes), self._at_most.get(question, math.inf))

    def _learn(self, tokens: int | None) -> None:
        """Take in what the last prompt has grown to, by the server's count. What a question costs
        shows where nothing else was added; what a word does, where the question's cost is known."""
        if tokens is None:
            self._per_word, self._per_byte = UNCOUNTED_WORD, UNCOUNTED_BYTE
            self._tokens += round(self._words * self._per_word + self._cost(self._question))
            return
        grown = tokens - self._tokens
        if not self._tokens:
            self._at_most[self._question] = tokens
            self._per_byte = tokens / len(self._text.encode())
        elif not self._words:
            self._exact[self._question] = max(grown, self._exact.get(self._question, 0))
        elif (words := (grown - self._cost(self._question)) / self._words) > 0:
            self._per_word = words
        self._tokens = tokens

    def _grow(self, question: str) -> None:
        """Add the question, and common words before it, as many as this conversation should have by
        now; none before its first question, nor before one whose cost is not known."""
        self._asked_before += 1
        counted = self._per_word != UNCOUNTED_WORD
        self._words = 0
        if self._tokens and (question in self._exact or not counted):
            due = min(self._limit - MERGES, (self._asked_before + 1) * self._step) - self._tokens
            due = min(due, MAX_STEPS * self._step)
            self._words = max(0, int((due - self._cost(question)) / (self._per_word * SPARE)))
        self._question = question
        more = some_words(self._words, self._chance)
        self._text = " ".join(filter(None, (self._text, more, question)))


def context_of(url: str) -> int | None:
    """The server's context in tokens: llama.cpp's of one slot, SGLang's and vLLM's of a request;
    None where it does not tell."""
    settings = fetch_json(url, "/props").get("default_generation_settings")
    models = fetch_json(url, "/v1/models").get("data")
    first = models[0] if isinstance(models, list) and models else {}
    candidates = (
        settings.get("n_ctx") if isinstance(settings, dict) else None,
        first.get("max_model_len") if isinstance(first, dict) else None,
    )
    return next((size for candidate in candidates if (size := _whole(candidate))), None)


def _whole(value: object) -> int:
    """A number of tokens as JSON may have it (8192, 8192.0, "8192"); 0 for anything else."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < MAX_DIGITS:
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e12:
        return 0
    return int(value) if value == int(value) else 0


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
        """The answer; its rate is not used if others were answered at the same time, or if the
        server does not say whether they were."""
        before = users.look()
        busy = users.busy(before)
        with users.following():
            answer = self._ask()
        used = users.judge([answer.sample], before, users.look()) or busy
        if answer.error or answer.void or not used:
            return answer
        if saw_others(used):
            users.spoilt += 1
        else:
            users.unsure += 1
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
