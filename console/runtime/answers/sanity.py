"""Whether the text of an answer is an answer at all, or what a broken build, a wrong setting or a
damaged file makes of one.

A broken engine is healthy by every other sign: it accepts requests, counts tokens and is often
faster than a sound one. What it says gives it away: newlines for ever, one token repeated,
replacement characters (llama.cpp#13461, ik_llama.cpp#1045). The judgement is careful in one
direction: an odd answer (another language, code, a number, an emoji, a refusal, one word) is sane,
because a server may be restarted and a benchmark declared void for an answer that is not.

How an answer ended says much of it. A broken engine seldom finds the end. So an answer that ended
by itself may be a row of digits, bases, laughter or symbols, and one that ran into its limit while
it said one thing again and again is garbled even where it is short.

Standard library only, because the emergency side judges answers, too.
"""

from __future__ import annotations

import contextlib
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

MIN_TOKENS = 4
"""Tokens that an answer must have cost before missing text in it means something: a server may
end after one or two without a word."""
MIN_SYMBOLS, MIN_LETTERS, MIN_EMOJI = 4, 6, 16
"""From how many repetitions on one character, and nothing else, is no answer. `OK!!!` has others
beside it, and people do write `hmmmm` and rows of emoji."""
MIN_WORDS = 6
"""From how many repetitions on one word, and nothing else, is no answer."""
MIN_MOSTLY, MOSTLY, MIN_WORD = 40, 0.9, 3
"""A text of so many words or symbols is garbled if that share of them is one word of so many
letters, or one symbol. Shorter words are tags and syllables that are sung."""
MIN_REPEATS, MIN_LOOP, LOOP_SHARE = 4, 48, 0.9
"""A loop repeats its piece so often, is so many characters long, and is that much of the text.
Small models that are kept from ending fall into loops after a sane beginning."""
MAX_PIECE = 200
"""Characters of the longest piece whose repetition is looked for."""
MAX_SAME = 8
"""Characters quoted of a text that is one character again and again."""
MAX_TEXT = 8192
"""Characters of the end of a text that are searched for a loop."""
MIN_ENDED, MIN_DRAWN = 64, 256
"""From how many repetitions on one thing is no answer where it ended by itself; MIN_DRAWN for
digits, bases, lines and other symbols."""
MIN_SHORT, MIN_SHORT_REPEATS = 8, 6
"""From how many tokens on an answer that was cut off may be a loop although it is short, and how
often it repeats its piece then."""
MIN_LINE_ENDS, MIN_BLANKS = 16, 64
"""White space behind which nothing came any more: more than any text or indentation has."""
MIN_SURE = 32
"""Tokens from which on symbols and nothing else are no table, rule or picture that begins."""
FOREIGN_SHARE = 0.3
"""From which share of replacement and control characters on a text is no text."""
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


_SPECIAL = re.compile(
    r"<unk>|<pad>|</?s>|</?think>|<(?:bos|eos|mask)>|\[(?:PAD|UNK|CLS|SEP|MASK)\d*\]|<\|[^|<>\n]{1,40}\|>"
    r"|<unused\d+>|<0x[0-9A-Fa-f]{2}>"
)
"""A token that stands for none of a text: a broken vocabulary or a wrong one shows it."""
_RAW = re.compile(
    r"(?:^|(?<=[^\W\d_A-Z\u010a\u0120\u0126\u017b]|[.,:;!?]))[\u010a\u0120]+|\u2581(?=[^\W\d_])|\w</w>"
    r"|[\u00e2-\u00ef][\u00a1-\u00bf\u0122-\u0143]{2}|(?:[\u00d0\u00d1][\u00a1-\u00bf\u0122-\u0143]){2}"
)
"""What a tokenizer writes for blanks, line ends, ends of words and the bytes of other scripts. No
Maltese word has its \u0120 behind a small letter."""
MIN_RAW = 2
"""From how many such marks on a text was put together by nobody, if they outnumber its blanks."""
_UNSEEN = frozenset("\u2800\u3164\u115f\u1160\uffa0")
"""Characters that are letters or symbols by their category, and show nothing."""
MIN_TAIL = 32
"""How often one letter or mark stands at the end of a text that ends in garbage."""
_TAIL = re.compile(r"[^\W\d_]|[!?@$%&]")
"""What such a tail is made of. Digits and lines of - or = are not meant."""
_MARKS = ".,;:!?'\"" + string.whitespace
_GLUED = re.compile(r"(\S{4,40}?)\1{3,}\S{0,40}")
"""A piece of four characters and more, four times without a blank between."""
VALUES = frozenset({"true", "false", "null", "none", "nan", "yes"})
"""Words that fill tables."""
_DRAWN = frozenset("-=_.*#~+|/\\<>()[]{}^`AfF")
"""What lines, pictures, brackets, zeroes in base64 and ones in hexadecimal numbers are made of."""
_BASES = frozenset("ACGTUN")
_ENDED = frozenset({"stop", "eos", "eos_token", "end_turn", "stop_sequence"})
_CUT = frozenset({"length", "max_tokens", "limit"})
"""Finish reasons."""
THINK, THOUGHT = "<think>", "</think>"
"""Between these an engine without a parser for it gives the reasoning."""


class TooSlow(Exception):
    """The pattern of `expect` would take years over an answer, which is no fault of the answer."""


class Kind(StrEnum):
    """Why a text is no answer."""

    EMPTY = "no text"
    BLANK = "nothing but white space"
    REPLACEMENT = "replacement or control characters"
    CHARACTER = "one character repeated"
    WORD = "one word repeated"
    SYMBOLS = "no letters, digits or emoji"
    LOOP = "one piece repeated to the end"
    RAW = "the marks of a tokenizer in place of blanks"
    SPECIAL = "special tokens, and no text"
    TAIL = "one mark or letter repeated to the end"
    BLANK_TAIL = "white space from some word on to the end"
    UNANSWERED = "an end after reasoning, without an answer"
    DEGENERATE = "repetition and stray pieces in place of a text"
    UNEXPECTED = "not what `expect` asks for"


@dataclass(frozen=True, slots=True)
class Garbled:
    """Why an answer is garbled; `words` is clean and says it with a piece of the text, quoted."""

    kind: Kind
    words: str
    weak: bool = False
    """It is so short that it may as well be how a sane answer begins: no ground to restart."""


@dataclass(frozen=True, slots=True)
class _Limits:
    """From how many repetitions on one thing is no answer; `drawn` for digits and what lines are
    made of, `only_symbols` for different symbols. `loop`: characters of a loop."""

    symbols: int = MIN_SYMBOLS
    letters: int = MIN_LETTERS
    emoji: int = MIN_EMOJI
    drawn: int = 0
    words: int = MIN_WORDS
    glued: int = MIN_REPEATS
    mostly: int = MIN_MOSTLY
    only_symbols: int = 2 * MIN_SYMBOLS
    tail: int = MIN_TAIL
    repeats: int = MIN_REPEATS
    loop: int = MIN_LOOP


_USUAL, _OF_CUT = _Limits(), _Limits(emoji=MIN_LETTERS)
_OF_ENDED = _Limits(
    symbols=MIN_ENDED, letters=MIN_ENDED, emoji=MIN_ENDED, drawn=MIN_DRAWN, words=MIN_ENDED,
    glued=MIN_ENDED, mostly=MIN_ENDED, only_symbols=MIN_DRAWN, tail=MIN_ENDED, repeats=MIN_ENDED,
)  # fmt: skip


def judge(
    answer: str, reasoning: str = "", *, tokens: int = 0, finish: str = "", expect: str = "",
    limit_reached: bool = False, sentence: bool = False,
) -> Garbled | None:  # fmt: skip
    """Return why an answer is garbled, None if it is sane or too short to be judged.

    `tokens` is what the server says that the whole answer cost. `finish` is its finish reason: with
    `length` an answer that is all reasoning was only cut off, with anything else the model ended
    without one. What ended by itself (`stop`) may repeat itself far more often than what was cut.
    `expect` is a pattern that the answer has to match somewhere; it is not applied to
    an answer that was cut off while it reasoned, and a pattern that takes too long says nothing:
    see `unexpected`. `limit_reached` says the same as `length`, for engines that give no finish
    reason. `sentence`: what was asked wants words, as a proof does, so that repetition is none the
    better for having ended. The texts are foreign.
    """
    cut = is_cut(finish) or limit_reached
    ended = finish in _ENDED and not cut
    answer, reasoning = parted(answer, reasoning)
    if answer.strip() or not reasoning.strip():
        # beside reasoning nobody knows how many tokens the answer cost
        count = 0 if reasoning.strip() else tokens
        garbled = _of_text(answer or reasoning, count, cut=cut, ended=ended)
        if garbled is None and ended and sentence and not answer.strip().isdigit():
            strict = _of_text(answer, count, cut=False, ended=False)
            garbled = strict if strict and strict.kind in (Kind.CHARACTER, Kind.WORD) else None
    else:
        garbled = _of_text(reasoning, tokens, cut=cut, ended=ended)
        if garbled is None and not cut and finish:
            return Garbled(Kind.UNANSWERED, f"{Kind.UNANSWERED}: {quoted(reasoning)}")
    only_reasoned = cut and not answer.strip()
    if garbled is None and expect and not only_reasoned:
        with contextlib.suppress(TooSlow):
            return unexpected(answer, expect)
    return garbled


def is_cut(finish: str) -> bool:
    """Whether a finish reason says that an answer ran into its limit."""
    return finish in _CUT


def parted(answer: str, reasoning: str = "") -> tuple[str, str]:
    """The answer without the reasoning that an engine may leave in front of it; all reasoning."""
    if not answer.lstrip().startswith(THINK):
        return answer, reasoning
    thought, closed, rest = answer.lstrip().removeprefix(THINK).partition(THOUGHT)
    return (rest if closed else ""), reasoning + thought


def unexpected(answer: str, expect: str) -> Garbled | None:
    """Return a Garbled if the answer matches the pattern nowhere. Raises TooSlow."""
    from console.host import matching  # only where it is wanted: the watch has a budget of memory

    try:
        if matching.quick(expect, [answer[:MAX_TEXT]])[0] is not None:
            return None
    except matching.TooSlow as error:
        raise TooSlow(str(error)) from error
    return Garbled(Kind.UNEXPECTED, f"it does not match `expect`: {quoted(answer)}")


def _of_text(text: str, tokens: int, *, cut: bool, ended: bool) -> Garbled | None:
    stripped = text.strip()
    if not any(_is_seen(char) for char in stripped):
        if tokens < MIN_TOKENS and len(text) < MIN_TOKENS:
            # An engine may count its end as a token; a proof asks again for such an answer.
            return Garbled(Kind.EMPTY, Kind.EMPTY, weak=True) if tokens else None
        kind = Kind.BLANK if text else Kind.EMPTY
        return Garbled(kind, f"{kind}: {quoted(text)}" if text else str(kind))
    foreign = sum(1 for char in stripped if _is_foreign(char, private=not ended))
    too_foreign = foreign >= 2 and foreign >= FOREIGN_SHARE * len(stripped)
    if too_foreign or stripped == REPLACEMENT:
        return Garbled(Kind.REPLACEMENT, f"{Kind.REPLACEMENT}: {quoted(stripped)}")
    if _is_raw(stripped):
        return Garbled(Kind.RAW, f"{Kind.RAW}: {quoted(stripped)}")
    long_enough = tokens >= MIN_SHORT
    limits = _OF_ENDED if ended else _OF_CUT if cut and long_enough else _USUAL
    repetition = (
        _one_thing(stripped, 0 if ended else tokens, limits)
        or (Kind.LOOP if _loops(stripped, limits) else None)
        or (Kind.LOOP if cut and long_enough and _is_short_loop(stripped) else None)
        or (Kind.TAIL if _ends_in_marks(stripped, limits.tail) else None)
    )
    if repetition is None:
        return _blank_tail(text) if cut else None
    few = tokens < MIN_SURE and len(stripped) < 2 * MIN_SURE
    words = f"{repetition}: {quoted(stripped)}"
    return Garbled(repetition, words, weak=repetition is Kind.SYMBOLS and few)


def _is_raw(text: str) -> bool:
    """Whether a text is the pieces of a tokenizer, glued. XML may have elements of the name `w`."""
    count = len(_RAW.findall(text[:MAX_TEXT]))
    blanks = sum(map(str.isspace, text[:MAX_TEXT]))
    return count >= MIN_RAW and count > blanks and "<w" not in text


def _blank_tail(text: str) -> Garbled | None:
    """What an answer is that was cut off while it gave nothing but white space."""
    tail = text[len(text.rstrip()) :]
    if tail.count("\n") < MIN_LINE_ENDS and len(tail) < MIN_BLANKS:
        return None
    return Garbled(Kind.BLANK_TAIL, f"{Kind.BLANK_TAIL}: {quoted(tail)}")


def _one_thing(text: str, tokens: int, limits: _Limits) -> Kind | None:
    """The kind if a text is one thing again and again, or has nothing that could mean anything."""
    if len(_SPECIAL.findall(text)) > 1 and not _SPECIAL.sub("", text).strip():
        return Kind.SPECIAL
    bare = "".join(text.split())
    if len(set(bare)) == 1 and len(bare) >= _min_repeats(bare[0], limits):
        return Kind.CHARACTER
    words = text.split()
    if len(words) >= limits.words and len(set(words)) == 1 and not _is_drawn(bare, limits):
        return Kind.WORD
    if any(map(str.isalpha, text)) and _is_glued(text, limits.glued):
        return Kind.WORD
    # a value in each line is a list, of labels perhaps, and may be the same nearly everywhere
    in_lines = len(words) <= 2 * len(text.splitlines())
    if not in_lines and _is_mostly_one_word(words, limits.mostly):
        return Kind.WORD
    if _is_mostly_one_symbol(text, bare, limits.mostly):
        return Kind.CHARACTER
    meaningful = any(char.isalnum() or _is_pictorial(char) for char in bare) or _is_code(text)
    long_enough = len(bare) >= limits.only_symbols or tokens >= 2 * MIN_TOKENS
    return Kind.SYMBOLS if not meaningful and long_enough else None


def _is_drawn(text: str, limits: _Limits) -> bool:
    """Whether a text is made of digits, bases or lines, and too short to be one of too many."""
    return len(text) < limits.drawn and all(map(_is_of_drawings, text))


def _is_of_drawings(char: str) -> bool:
    return char.isdigit() or char in _DRAWN or char.upper() in _BASES


def _is_glued(text: str, repeats: int) -> bool:
    """Whether a text is one word again and again, without anything between: assistantassistant."""
    glued = _GLUED.fullmatch(text[:MAX_TEXT])
    if glued is None or len(set(glued[1])) <= 2:
        return False
    return len(text) >= repeats * len(glued[1])


def _is_short_loop(text: str) -> bool:
    """Whether a text that was cut off is a loop although it is short. Decimals have periods, and
    bases are alike."""
    piece = loop(text, least=0, repeats=MIN_SHORT_REPEATS, shortest=2)
    return len(set(piece)) > 1 and not piece.strip().isdigit() and not is_of_bases(piece)


def _loops(text: str, limits: _Limits) -> bool:
    piece = loop(text, least=limits.loop, repeats=limits.repeats)
    return bool(piece) and not _is_drawn(text, limits)


def _is_code(text: str) -> bool:
    """Whether symbols alone may mean something: brackets in pairs, or Morse."""
    pairs = [(text.count(a), text.count(b)) for a, b in ("()", "[]", "{}")]
    brackets = any(a for a, _ in pairs) and all(a == b for a, b in pairs)
    return brackets or set(text) == set("-. ") or set(text) == set("-. /")


def _ends_in_marks(text: str, least: int) -> bool:
    tail, marks = text[-least:], text[len(text.rstrip(_MARKS)) :]
    if len(tail) == least and len(set(tail)) == 1 and _TAIL.match(tail):
        return not is_of_bases(text)
    return len(marks) >= least and len(set(marks.split())) > 2


def _mode(values: Sequence[str]) -> tuple[str, int]:
    """The value that occurs most often, and how often. `Counter.most_common` would load a module in
    the middle of a rollback."""
    counts = Counter(values)
    value = max(counts, key=counts.__getitem__)
    return value, counts[value]


def _is_mostly_one_word(words: list[str], least: int) -> bool:
    """Whether a long text is hardly anything but one word, as sampling makes of garbage."""
    bare = [word.casefold().strip(string.punctuation) for word in words]
    word, count = _mode(bare)
    return (
        len(words) >= least
        and count >= MOSTLY * len(words)
        and len(word) >= MIN_WORD
        and word.isalpha()
        and word not in VALUES
    )


def _is_mostly_one_symbol(text: str, bare: str, least: int) -> bool:
    """The same of one letter or mark in at least two runs: a cry and a line that underlines have
    one. A picture or a table has many lines."""
    if len(bare) < least or sum(1 for line in text.splitlines() if line.strip()) > 2:
        return False
    symbol, count = _mode(bare)
    drawn = symbol in _DRAWN or not (symbol.isalpha() or unicodedata.category(symbol)[0] in "PS")
    if drawn or _is_pictorial(symbol) or is_of_bases(bare):
        return False
    behind = bare.lstrip(symbol) if bare[0] == symbol else bare.partition(symbol)[2].lstrip(symbol)
    return count >= MOSTLY * len(bare) and symbol in behind


def is_of_bases(text: str) -> bool:
    """Whether a text may be a sequence of DNA or RNA, which often ends in many an A."""
    return set(text.upper()) <= _BASES


def _is_seen(char: str) -> bool:
    """Whether a character shows something: white space and formatting do not."""
    return not char.isspace() and char not in _UNSEEN and unicodedata.category(char) != "Cf"


def _min_repeats(char: str, limits: _Limits) -> int:
    if _is_pictorial(char):
        return limits.emoji
    usual = limits.letters if char.isalnum() else limits.symbols
    return max(usual, limits.drawn) if _is_of_drawings(char) else usual


def _is_pictorial(char: str) -> bool:
    """An emoji or another picture, which may well be a whole answer."""
    return unicodedata.category(char) == "So" and char != REPLACEMENT


def _is_foreign(char: str, *, private: bool) -> bool:
    """`private`: characters of private use count, too, which some fonts give a meaning."""
    categories = ("Cc", "Cn", "Co") if private else ("Cc", "Cn")
    return char == REPLACEMENT or (
        unicodedata.category(char) in categories and char not in "\t\n\r\x1b"
    )


def loop(
    text: str, least: int = MIN_LOOP, repeats: int = MIN_REPEATS, shortest: int = 1
) -> str:  # fmt: skip
    """The piece that a text repeats to its end; "" if it does not, or only after a sane beginning.

    `least`: characters of all repetitions; `repeats`: how many; `shortest`: of the piece. The
    last repetition may be cut off. It takes at most MAX_PIECE passes over the text.
    """
    text = text[-MAX_TEXT:]
    size = len(text)
    for length in range(shortest, min(MAX_PIECE, size // repeats) + 1):
        if text[-1] != text[-1 - length]:
            continue
        start = size - length
        while start > 0 and text[start - 1] == text[start - 1 + length]:
            start -= 1
        covered = size - start
        if covered >= max(least, LOOP_SHARE * size, repeats * length):
            return text[start : start + length]
    return ""


def quoted(text: str, limit: int = 60) -> str:
    """A piece of a foreign text on one line, with what cannot be seen written out.

    The result is clean: white space and everything that is not printable appear as escapes. Of one
    character again and again a few are enough.
    """
    limit = min(limit, MAX_SAME) if len(set(text)) == 1 else limit
    shown = text[:limit].encode("unicode_escape", "backslashreplace").decode("ascii")
    readable = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[:limit])
    picked = readable if len(readable) <= len(shown) else shown
    return f"“{picked}{'…' if len(text) > limit else ''}”"
