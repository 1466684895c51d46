"""The requests of a soak: a streamed chat in a thread of its own, which can be watched and cut."""

from __future__ import annotations

import secrets
import threading
from dataclasses import dataclass, replace

from console.bench.benchmark import tokenizer
from console.bench.client import ChatRequest, stream_chat
from console.bench.metrics import Sample, Tokenize, measure, void_reason
from console.bench.sse import Reply, brings_text
from console.common.text import one_line

EMPTY = "empty reply"
REQUEST_S = 600.0
"""One request's time, seconds: a stream that drips for longer has failed, though never silent."""


@dataclass(slots=True)
class Asker:
    """Sends prompts to the server at `url`, each behind a nonce, at temperature 0."""

    url: str
    max_tokens: int = 128
    model: str = ""
    timeout_s: float = REQUEST_S
    extras: bool = True

    def __call__(self, prompt: str) -> Out:
        text = f"[{secrets.token_hex(8)}] {prompt}"
        request = ChatRequest(text, self.max_tokens, model=self.model, extras=self.extras)
        return Out(self, request)


@dataclass(frozen=True, slots=True)
class Answer:
    """One request's figures; `error` is its class ("" for a good one), `words` say why, `void`
    why its rate is not used (a cached prompt)."""

    sample: Sample
    error: str = ""
    words: str = ""
    void: str = ""


class Out:
    """A request that is out."""

    def __init__(self, asker: Asker, request: ChatRequest) -> None:
        self.ended = threading.Event()
        self._asker = asker
        self._request = request
        self._cut = threading.Event()
        self._events: list[str] = []
        self._read = 0
        self._heard = 0
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
        """What came of it. Raises what a bug raised in the thread."""
        if self._answer is None:
            raise self._error or RuntimeError("asked for an answer before the request has ended")
        return self._answer

    def cut(self) -> None:
        """Give it up."""
        self._cut.set()

    def _run(self) -> None:
        asker = self._asker
        try:
            reply = stream_chat(
                asker.url, self._request, timeout_s=asker.timeout_s, cancelled=self._cut,
                on_event=self._events.append,
            )  # fmt: skip
            if reply.extras_refused:
                asker.extras = False
            tell = None if self._cut.is_set() else tokenizer(asker.url, reply)
            self._answer = answer_of(reply, asker.max_tokens, tell)
        except BaseException as error:  # handed over whole to the thread that asks
            self._error = error
        finally:
            self.ended.set()


def answer_of(reply: Reply, max_tokens: int, tell: Tokenize | None = None) -> Answer:
    """A reply as a soak counts it: short output is no fault here, no output at all is."""
    sample = measure(reply, max_tokens, tell)
    if reply.failure is not None:
        return Answer(sample, str(reply.failure.kind), one_line(reply.failure.text, 300))
    tokens = sample.completion_tokens
    if not any(event.is_text for event in reply.events):
        return Answer(sample, EMPTY, f"an answer without text ({tokens or 'no'} tokens counted)")
    void = void_reason(reply, tokens, min(tokens or 0, max_tokens))
    return Answer(replace(sample, void=void), void=void)
