"""A conversation that fills a server's context, longer with every request, and then anew.

Each request repeats what was said and adds to its end, so that a server with a prompt cache reads
only what is new. A crash when the KV cache fills up shows itself so, which single prompts never do.
"""

from __future__ import annotations

import math
import random
import secrets

from console.bench.benchmark import fetch_json
from console.bench.metrics import Sample
from console.bench.prompt_rate import prompt as some_words

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
