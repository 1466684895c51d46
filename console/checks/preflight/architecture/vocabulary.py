"""Whether the operator's own build knows a file's tokenizer and pre-tokenizer.

Every build has a list of both, and refuses a file with any other ("unknown pre-tokenizer type").
The first witness is its loader, given a header of a few keys that names them and has no tokens: it
looks both up before it misses the tokens. The second are the names in its library, of which only an
absent one is a proof, and only where the library keeps such names as strings at all.
"""

from __future__ import annotations

import re
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from console.checks.preflight import Finding, Level
from console.checks.preflight.architecture import names
from console.checks.preflight.architecture.names import LoaderAnswer, Presence
from console.checks.preflight.architecture.support import Engine
from console.checks.preflight.header import TITLE
from console.common.errors import ConsoleError
from console.common.text import one_line
from console.models.gguf.header import ARCHITECTURE, Header, ValueType
from console.models.loader.complaints import BYTE_PAIRS, MERGES, PRE, TOKENIZER

SHARED_TOKENIZERS = frozenset({"llama", "gpt2", "bert", "t5", "rwkv", "none", "no_vocab"})
SHARED_PRE = frozenset({
    "", "default", "gpt-2", "llama-bpe", "deepseek-llm", "deepseek-coder", "falcon", "mpt",
    "starcoder", "command-r", "qwen2", "refact", "stablelm2", "olmo", "dbrx", "smaug-bpe",
})  # fmt: skip
"""Names that builds of the last years have, whosever they are; they are not asked for."""
PRE_MARK = b"unknown pre-tokenizer type: '"
"""A string of the file that has the list."""
CONTROLS = ("mpt", "refact", "smaug-bpe", "poro-chat", "deepseek-coder")
"""Names of the list, short and long, that a library has to hold as strings before the absence of
another says anything: a compiler may keep the short ones as numbers."""
_REFUSED = re.compile(r"unknown (?:pre-)?tokenizer(?: type)?: '.*|unknown (?:pre-)?tokenizer.*")
_KNOWN = re.compile(r"cannot find tokenizer vocab in model file|tensor 'token_embd\.weight'")
"""The next thing that the header lacks; a model without a vocabulary goes on to its tensors."""
_KEYS: tuple[tuple[str, int, Any], ...] = (
    ("llama.context_length", ValueType.UINT32, 64),
    ("llama.embedding_length", ValueType.UINT32, 32),
    ("llama.block_count", ValueType.UINT32, 1),
    ("llama.feed_forward_length", ValueType.UINT32, 32),
    ("llama.attention.head_count", ValueType.UINT32, 1),
    ("llama.attention.layer_norm_rms_epsilon", ValueType.FLOAT32, 1e-5),
)


@dataclass(frozen=True, slots=True)
class WordsVerdict:
    """What a build says of the names that stand for a file's vocabulary."""

    build: str
    tokenizer: str
    pre: str
    reply: LoaderAnswer

    def finding(self) -> Finding:
        what = f"tokenizer '{one_line(self.tokenizer, 60)}'"
        if self.pre:
            what += f", pre-tokenizer '{one_line(self.pre, 60)}'"
        if self.reply.accepted:
            return Finding(Level.OK, TITLE, f"{self.build} knows {what}")
        if self.reply.accepted is False:
            hint = "take a newer build, or a file whose tokenizer this build knows"
            return Finding(
                Level.FAIL, TITLE, f"{self.build} refuses {what}: {self.reply.line}", hint
            )
        words = names.not_known(self.build, what, self.reply.line)
        words += names.since([self.pre])
        hint = "load any small model with this tokenizer with the build first"
        return Finding(Level.UNKNOWN, TITLE, words, hint)


def verdict_on(
    header: Header, engine: Engine, cancelled: threading.Event | None = None
) -> WordsVerdict | None:
    """What the build says of a header's tokenizer; None if the header names none. Raises Cancelled;
    whatever else fails is said in the verdict."""
    tokenizer = header.text(TOKENIZER)
    if tokenizer is None:
        return None
    pre = (header.text(PRE) or "") if tokenizer in BYTE_PAIRS else ""
    try:
        build = engine.identity().text
    except (ConsoleError, OSError) as error:
        return WordsVerdict("the build", tokenizer, pre, LoaderAnswer(None, one_line(str(error))))
    answer = LoaderAnswer(None)
    try:
        for _ in range(2):  # llama.cpp logs from another thread, and may end before it has written
            answer = read(engine.load(probe(tokenizer, pre), cancelled=cancelled))
            if answer.accepted is not None:
                return WordsVerdict(build, tokenizer, pre, answer)
    except (ConsoleError, OSError) as error:
        answer = LoaderAnswer(None, one_line(str(error)))
    if pre and tokenizer in SHARED_TOKENIZERS:
        answer = _scanned(pre, engine, answer)
    return WordsVerdict(build, tokenizer, pre, answer)


def findings(
    build: Engine, header: Header, *, sure: bool, always: bool = False,
    cancelled: threading.Event | None = None,
) -> list[Finding]:  # fmt: skip
    """What a build says of a header's tokenizer where not every build has it, or `always`. `sure`:
    see `tensor_types.findings`."""
    if not always and named_shared(header):
        return []
    verdict = verdict_on(header, build, cancelled)
    if verdict is None:
        return []
    finding = verdict.finding()
    if sure or finding.level is Level.OK:
        return [finding]
    hint = "is this the build that is to load it? `check gguf` asks another one"
    return [replace(finding, level=Level.UNKNOWN, hint=hint)]


def named_shared(header: Header) -> bool:
    """Whether every build has the tokenizer and the pre-tokenizer that a header names."""
    tokenizer, pre = header.text(TOKENIZER), header.text(PRE) or ""
    return tokenizer in SHARED_TOKENIZERS and (tokenizer not in BYTE_PAIRS or pre in SHARED_PRE)


def probe(tokenizer: str, pre: str) -> bytes:
    """A header that makes a loader look a tokenizer and a pre-tokenizer up: the keys that come
    before them, one merge, no tokens."""
    texts = [(ARCHITECTURE, "llama"), (TOKENIZER, tokenizer), *([(PRE, pre)] if pre else [])]
    pairs = [
        _string(key) + struct.pack("<I", ValueType.STRING) + _string(text) for key, text in texts
    ]
    for key, kind, value in _KEYS:
        pairs.append(
            _string(key) + struct.pack("<If" if kind == ValueType.FLOAT32 else "<II", kind, value)
        )
    merges = struct.pack("<IIQ", ValueType.ARRAY, ValueType.STRING, 1) + _string("a b")
    pairs.append(_string(MERGES) + merges)
    head = struct.pack("<4sIQQ", b"GGUF", 3, 0, len(pairs)) + b"".join(pairs)
    return head.ljust(-(-len(head) // names.ALIGNMENT) * names.ALIGNMENT, b"\0")


def _string(text: str) -> bytes:
    data = text.encode("utf-8", "surrogateescape")
    return struct.pack("<Q", len(data)) + data


def read(lines: Sequence[str]) -> LoaderAnswer:
    """What a program's output says of the two names that it was given."""
    last = ""
    for line in lines:
        words = one_line(line, names.LINE)
        if refusal := _REFUSED.search(words):
            return LoaderAnswer(False, refusal[0])
        if _KNOWN.search(words):
            return LoaderAnswer(True, words)
        if names.FAILED in words and not last:
            last = words[words.index(names.FAILED) :]
    return LoaderAnswer(None, last or (one_line(lines[-1], names.LINE) if lines else ""))


def _scanned(pre: str, engine: Engine, answer: LoaderAnswer) -> LoaderAnswer:
    """Without the loader: a name that is absent from a library which holds its like is refused."""
    try:
        scans = [engine.scan(name, PRE_MARK) for name in (pre, *CONTROLS)]
    except (ConsoleError, OSError):
        return answer
    first, *controls = scans
    kept = all(
        control is not None and control.presence is not Presence.ABSENT for control in controls
    )
    if first is None or not kept or first.presence is not Presence.ABSENT:
        return answer
    words = f"unknown pre-tokenizer type: '{one_line(pre, 60)}'"
    return LoaderAnswer(False, f"{words} ({first.path} does not hold it; the loader did not say)")
