"""A conversation that fills a server's context, longer with every request, and then anew.

Each request repeats what was said and adds to its end, so that a server with a prompt cache reads
only what is new. A crash when the KV cache fills up shows itself so, which single prompts never do.
"""

from __future__ import annotations

import random
import secrets

from console.bench.benchmark import fetch_json
from console.bench.metrics import Sample
from console.bench.prompt_rate import prompt as some_words

REQUESTS = 24
"""About so many requests fill the context once."""
PER_WORD = 8.0
"""Tokens of a word before any are counted: more than it has, so that the first step is no leap."""


class Growth:
    """The prompts of one soak. `limit`: tokens that prompt and answer may take together, of which
    `answer` are the answer's."""

    def __init__(self, limit: int, answer: int) -> None:
        self._limit = max(1, limit - answer)
        self._step = max(1, self._limit // REQUESTS)
        self._chance = random.Random(secrets.token_bytes(8))
        self._per_word = PER_WORD
        self._begin()

    def _begin(self) -> None:
        self._text = f"[{secrets.token_hex(8)}]"
        self._tokens = self._added = 0

    def next(self, question: str, last: Sample | None) -> str:
        """The next prompt; `last` is what the one before it showed, None if it failed."""
        if last is None:
            self._begin()
        elif last.prompt_tokens is not None:
            if self._added:
                grown = (last.prompt_tokens - self._tokens) / self._added
                self._per_word = grown if grown > 0 else PER_WORD
            self._tokens = last.prompt_tokens
        else:
            self._tokens += round(self._added * self._per_word)
        room = self._limit - self._tokens
        if room < max(self._step / 2, len(question.split()) * self._per_word):
            self._begin()
            room = self._limit
        self._grow(question, min(self._step, room))
        return self._text

    def _grow(self, question: str, tokens: int) -> None:
        """Add the question, and common words before it; nothing before the first question."""
        begins = not self._tokens
        words = 0 if begins else int(tokens / self._per_word) - len(question.split())
        more = some_words(max(0, words), self._chance)
        self._added = max(0, words) + len(question.split())
        self._text = " ".join(filter(None, (self._text, more, question)))


def context_of(url: str) -> int | None:
    """The server's context in tokens: llama.cpp's of one slot, SGLang's and vLLM's of a request;
    None where it does not tell."""
    settings = fetch_json(url, "/props").get("default_generation_settings")
    models = fetch_json(url, "/v1/models").get("data")
    first = models[0] if isinstance(models, list) and models else {}
    told = (
        settings.get("n_ctx") if isinstance(settings, dict) else None,
        first.get("max_model_len") if isinstance(first, dict) else None,
    )
    return next((size for size in told if type(size) is int and size > 0), None)
