"""Does it answer? One real chat completion, and a proof that asks again where one says too little.

Standard library only, because the emergency side uses it too.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, replace
from typing import Any

from console.common.text import decode, one_line
from console.common.units import format_duration, plural
from console.runtime.answers import sanity
from console.runtime.answers.degenerate import Sign, broken, degenerate, signs, telling, together
from console.runtime.answers.sanity import Garbled, Kind
from console.runtime.answers.stream import BREAKS, is_stream, whole
from console.runtime.probe import (
    BUSY,
    DEAD,
    FAILS,
    OVERLOADED,
    REFUSES,
    ProbeError,
    Reply,
    amount,
    at_path,
    engine_dead,
    error_words,
    fetch_again,
    refusal,
)
from console.runtime.spec import PROMPT

MAX_REASONING, REASONING_S = 512, 15.0
"""Tokens that an answer gets in its second try if it was cut off before it said anything, and
seconds that they may take at its rate."""
MIN_RATE = 0.1
"""Tokens a second, below which no second try is made."""
LONGER, LONGER_S = 64, 16.0
"""Tokens of the answers by which a server is judged of which a short one tells nothing, and seconds
that each of them may take at its rate."""
MIN_COMPARED = 24
"""Tokens from which on such an answer may tell something: of a slow server not all can be waited
for. Fewer tokens show fewer signs, and no false ones."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One answered (or failed) chat completion.

    `text` and its `answer`, without reasoning, are foreign and not clean, `detail` is clean;
    `decode_tok_s` in tokens a second. `status` is that of the HTTP reply, 0 if none came. An answer
    that is `garbled` is not `ok`. `finish` is the reason that the server gives for the end.
    """

    ok: bool
    detail: str
    text: str
    tokens: int
    elapsed_s: float
    decode_tok_s: float | None
    answer: str = ""
    status: int = 0
    garbled: Garbled | None = None
    finish: str = ""
    cut_short: bool = False
    """It reached its limit before it said anything, or before it said what is expected, or with no
    more than a few symbols, as a table begins."""
    at_limit: bool = False
    """It was cut off where it may have no more tokens."""
    dead: str = ""
    """The words of an error that say that the engine behind the server is dead; clean."""
    sends: bool = False
    """It was not over in time, and a part of it came: the server is alive, and slow."""
    breaks: bool = False
    """It was to be streamed, and an error came in it, or it ended before the answer did."""

    @property
    def refuses(self) -> bool:
        """Whether the server is alive and answers something else: no restart would change that."""
        lives = not self.ok and self.garbled is None and not self.dead
        return lives and bool(refusal(self.status, self.detail))

    @property
    def fails(self) -> bool:
        """Whether the answer is an HTTP 5xx that says nothing of a dead engine: the server is alive
        if its health path is well, and busy, or it fails this request."""
        return not self.ok and self.status >= 500 and not self.dead

    @property
    def signs(self) -> frozenset[Sign]:
        """The weak signs that an answer falls apart which was cut off; see `degenerate`."""
        judged = self.ok and self.at_limit and self.tokens >= sanity.MIN_SHORT
        return signs(self.answer or self.text) if judged else frozenset()

    def fallen(self) -> Completion:
        """The same answer, as the garbled one that its weak signs make of it."""
        garbled = degenerate(self.answer or self.text, self.signs)
        words = f"garbled, {garbled.words}; {self.detail}"
        return replace(self, ok=False, garbled=garbled, detail=words)

    @property
    def why(self) -> str:
        """Why it is not `ok`: `detail`, behind what it means; clean."""
        if self.dead:
            meaning = f"{DEAD}, “{self.dead}”"
        elif self.breaks:
            return f"{REFUSES}: {self.detail}"
        elif self.refuses:
            meaning = f"{REFUSES}: {refusal(self.status, self.detail)}"
        elif self.fails:
            meaning = BUSY if self.status in OVERLOADED else FAILS
        else:
            return self.detail
        return f"{meaning} ({self.detail})"


def complete(
    url: str,
    *,
    model: str = "",
    prompt: str = PROMPT,
    max_tokens: int = 8,
    timeout_s: float = 120.0,
    slot: int | None = None,
    nonce: bool = True,
    expect: str = "",
    stream: bool = False,
) -> Completion:
    """POST /v1/chat/completions (temperature 0) and judge the answer; never raises. `slot`: which
    one of llama-server's answers. `expect`: a pattern that the answer has to match. `stream`: it is
    asked for in events, as most clients ask; what breaks only then, other answers do not show.

    Needs a text that is an answer (see `sanity`).
    `decode_tok_s` is (predicted_n - 1) * 1000 / predicted_ms of llama-server's `timings`, else
    tokens / elapsed; None when neither says anything.
    """
    # A nonce in front defeats the prompt cache: a cached answer would prove nothing.
    content = f"[{os.urandom(4).hex()}] {prompt}" if nonce else prompt
    ask: dict[str, Any] = {
        "messages": [{"role": "user", "content": content}],
        "max_tokens": max_tokens,
        "temperature": 0,
        "stream": stream,
    }
    if stream:
        ask["stream_options"] = {"include_usage": True}
    if model:
        ask["model"] = model
    if slot is not None:
        ask["id_slot"] = slot
    begun = time.monotonic()
    try:
        reply, note = fetch_again(
            at_path(url, "/v1/chat/completions"),
            body=json.dumps(ask).encode(),
            timeout_s=timeout_s,
            headers={"Content-Type": "application/json"},
        )
    except ProbeError as error:
        elapsed_s, sends = time.monotonic() - begun, error.kind == "slow"
        words = str(error)
        if stream and error.kind == "reset" and error.received:
            return _broken(f"{BREAKS}: {words}", elapsed_s)
        if error.status not in (0, 200):  # an error, whose words come slowly
            return _judge(Reply(error.status, b"", elapsed_s), f", {error}", expect, max_tokens)
        if sends:
            words += f": fewer than {max_tokens / timeout_s:.2g} tok/s"
        return Completion(False, words, "", 0, elapsed_s, None, sends=sends)
    if stream and reply.status == 200 and is_stream(reply.body):
        body, trouble = whole(reply.body)
        if trouble:
            return _broken(trouble, reply.elapsed_s)
        reply = replace(reply, body=body)
    return _judge(reply, note, expect, max_tokens)


def _broken(words: str, elapsed_s: float) -> Completion:
    dead = engine_dead(words)
    return Completion(False, words, "", 0, elapsed_s, None, status=200, dead=dead, breaks=True)


def streamed(url: str, **options: Any) -> Completion:
    """`complete` by a stream; once more where that breaks, which one lost connection may do. One
    that fails (HTTP 5xx) breaks, too, unless the server is busy. Where a stream is refused, or an
    error in it says that the engine is dead, the answer as a whole counts: if that is well, so is
    the engine."""
    answer = complete(url, stream=True, **options)
    if answer.breaks and not answer.dead:
        return complete(url, stream=True, **options)
    busy = answer.status in OVERLOADED and not answer.dead
    if busy or not (answer.refuses or answer.dead or answer.fails):
        return answer
    as_whole = complete(url, **options)
    if (answer.refuses and not answer.breaks) or not as_whole.ok:
        return as_whole
    words = answer.detail if answer.breaks else f"{BREAKS}: {answer.detail}"
    return replace(answer, breaks=True, dead="", detail=words)


def prove(
    url: str, *, model: str = "", prompt: str = PROMPT, max_tokens: int = 8,
    timeout_s: float = 120.0, expect: str = "",
) -> Completion:  # fmt: skip
    """`complete`, and once more with a larger limit if the answer was cut off before it said
    anything, or before it said what is expected: models that reason need more tokens. So is an
    answer of a few symbols: a table begins with them.

    An answer that has only reasoned by then counts, and its words say so.
    """
    more: dict[str, Any] = {"model": model, "prompt": prompt, "expect": expect}
    first = complete(url, max_tokens=max_tokens, timeout_s=timeout_s, **more)
    rate, left_s = first.decode_tok_s or 0.0, timeout_s - first.elapsed_s
    limit = min(MAX_REASONING, int(rate * min(REASONING_S, left_s)))
    if not first.cut_short or limit <= max_tokens or rate < MIN_RATE:
        return first
    second = complete(url, max_tokens=limit, timeout_s=left_s, **more)
    # One that takes too long has proven nothing, and the first answer stands.
    return second if second.ok or second.garbled is not None else first


def prove_longer(
    url: str, *, model: str = "", prompt: str = PROMPT, max_tokens: int = 8,
    timeout_s: float = 120.0, expect: str = "",
) -> Completion:  # fmt: skip
    """`prove`, and longer answers of a server whose first one was cut off: see `longer`."""
    options: dict[str, Any] = {"model": model, "prompt": prompt, "expect": expect}
    first = prove(url, max_tokens=max_tokens, timeout_s=timeout_s, **options)
    return longer(url, first, timeout_s=timeout_s, **options)


def longer(
    url: str, first: Completion, *, timeout_s: float, within_s: float = LONGER_S, **options: Any
) -> Completion:
    """Judge a server whose sane answer was cut off by one of LONGER tokens, which is streamed, and
    if that one falls apart, by a second; by shorter ones if it needs more than `within_s` seconds
    for that. Return the first answer where they are sane, where none came, and where not even
    MIN_COMPARED would; one that breaks is returned itself.

    A model of a wrong setting begins like a sane one: `The "The wis`.
    """
    count = min(LONGER, int(within_s * (first.decode_tok_s or 0.0)))
    if not (first.ok and first.at_limit) or count < MIN_COMPARED:
        return first
    answers: list[Completion] = []
    for ask in (streamed, complete):
        answer = ask(url, max_tokens=count, timeout_s=timeout_s, **options)
        if answer.garbled is not None or answer.breaks:
            return answer
        if broken(answer.signs):
            return answer.fallen()
        if not telling(answer.signs):
            return first
        answers.append(answer)
    return answers[-1].fallen() if together([answer.signs for answer in answers]) else first


def _judge(reply: Reply, note: str, expect: str, limit: int) -> Completion:
    elapsed, status = reply.elapsed_s, reply.status
    if status != 200:
        detail = f"HTTP {status} {error_words(reply.body)}".rstrip() + note
        return Completion(False, detail, "", 0, elapsed, None, status=status, dead=_dead(reply))
    try:
        value = json.loads(reply.body)
        choice = value["choices"][0]
        answer, reasoning, acts = _texts(choice["message"])
        finish = str(choice.get("finish_reason") or "")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        detail = f"not a chat completion: {one_line(decode(reply.body[:200]), 80)}"
        return Completion(
            False, detail + note, "", 0, elapsed, None, status=status, dead=_dead(reply)
        )
    text = answer + reasoning
    timings, usage = _mapping(value, "timings"), _mapping(value, "usage")
    predicted, predicted_ms = amount(timings, "predicted_n"), amount(timings, "predicted_ms")
    tokens = int(amount(usage, "completion_tokens") or predicted)
    rate: float | None = tokens / elapsed if tokens and elapsed > 0 else None
    if predicted and predicted_ms > 0:
        rate = (predicted - 1) * 1000 / predicted_ms if predicted > 1 else None
    cut = sanity.is_cut(finish) or (not finish and tokens >= limit)
    garbled = None
    if not acts:
        garbled = sanity.judge(
            answer, reasoning, tokens=tokens, finish=finish, limit_reached=cut, sentence=True
        )
        if garbled is not None and _may_be_sound(garbled, text, cut=cut):
            garbled = None
        if not text.strip() and garbled is None:
            garbled = Garbled(Kind.EMPTY, Kind.EMPTY, weak=tokens < sanity.MIN_TOKENS)
    if garbled is None and expect and answer.strip():
        try:
            garbled = sanity.unexpected(answer, expect)
        except sanity.TooSlow as error:
            note += f", `expect` was not looked for: {error}"
    counted = plural(tokens, "token") if tokens else "an answer, its tokens not counted,"
    words = f"{counted} in {format_duration(elapsed)}{note}"
    if garbled is not None:
        words = f"garbled, {garbled.words}; {words}"
    elif not acts and not answer.strip():
        within = f" within {plural(tokens, 'token')}" if cut else ", and no answer"
        words = f"only reasoning{within}; {words}"
    kind = garbled.kind if garbled is not None else None
    said_nothing = kind in (None, Kind.EMPTY) and not answer.strip() and not acts
    return Completion(
        garbled is None, words, text, tokens, elapsed, rate, answer, status, garbled, finish,
        at_limit=cut,
        cut_short=cut and (
            said_nothing or kind is Kind.UNEXPECTED or (garbled is not None and garbled.weak)
        ),
    )  # fmt: skip


def _dead(reply: Reply) -> str:
    """What an error says of a dead engine, clean; "" for another one. Some servers and gateways
    send an error with HTTP 200. The words of an answer say nothing of the engine."""
    body = decode(reply.body)
    is_error = reply.status >= 500 or (
        reply.status == 200 and '"error"' in body and '"choices"' not in body
    )
    return engine_dead(body) if is_error else ""


def _may_be_sound(garbled: Garbled, text: str, *, cut: bool) -> bool:
    """Whether a sound engine may have given this: a restart would change nothing of it.

    A parser of reasoning that does not fit the model takes the answer for reasoning. A phrase may
    be repeated for a reason, unless it was repeated up to the limit by a model that was free to
    end: a benchmark says the same of it.
    """
    phrase = sanity.loop(text.strip()).split() if garbled.kind is Kind.LOOP and not cut else []
    return garbled.kind is Kind.UNANSWERED or len(set(phrase)) > 2


def _texts(message: dict[str, Any]) -> tuple[str, str, bool]:
    """The answer of a message, its reasoning, and whether it calls a tool, which is an answer, too.

    Engines name the reasoning differently, and some give an answer as a list of parts.
    """
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(str(part.get("text") or "") for part in content)
    answer = str(content or message.get("refusal") or "")
    reasoning = str(message.get("reasoning_content") or message.get("reasoning") or "")
    answer, reasoning = sanity.parted(answer, reasoning)
    return answer, reasoning, bool(message.get("tool_calls") or message.get("function_call"))


def _mapping(value: Any, key: str) -> dict[str, Any]:
    inner = value.get(key)
    return inner if isinstance(inner, dict) else {}
