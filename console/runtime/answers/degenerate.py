"""Weak signs that an answer falls apart, which mean something only together.

A model of which a setting or a file is wrong need not repeat one thing to the end, as `sanity`
looks for. It says a few words, then `1111111111111111`, then twenty line ends, `Youc Youc Youc
Youc`, `A _The A_ _-_ A----------` and words again. Each of these alone has a sane explanation: a
large number, a song, a form, a picture, a name in a program. So one sign in one answer is nothing.
Many in one answer that was cut off are, and so are signs in most answers of a measurement.

Standard library only, as `sanity` is.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Sequence
from enum import StrEnum
from itertools import groupby

from console.runtime.answers.sanity import MAX_TEXT, VALUES, Garbled, Kind, is_of_bases, quoted

MIN_CHARACTERS = 12
"""From how many on the same letter in a row is a sign: cries and laughter are shorter."""
MIN_DIGITS = 10
"""From how many on the same digit in a row is a sign: amounts of money have fewer zeroes, and
numbers of cards, accounts and bytes change before."""
MIN_LINE_ENDS = 6
"""From how many on line ends in a row are a sign, before a text or in it: between two parts of one
there are two or three."""
MIN_SAID = 4
"""From how many times in a row on the same word is a sign: three are a way to speak."""
MIN_PIECES, MAX_PIECE = 4, 12
"""From how many times in a row on the same piece of so many characters is a sign."""
MIN_ODD_UNDERSCORES = 2
"""From how many underscores on that belong to no name and no emphasis is a sign."""
MIN_ECHO = 4
"""Words of a question from which on it is one that somebody asked: `How so?` is an answer."""
MIN_ANSWERS, MIN_KINDS = 2, 2
"""From how many answers to one prompt on, and how many kinds of signs in them, several are garbled
together, of which none is by itself."""
MIN_SIGNS = 3
"""From how many different signs on an answer that was cut off is garbled by itself. A song has
one, a program or a table that draws may have two, and none of these has one that is `telling`."""


class Sign(StrEnum):
    """One way in which an answer falls apart."""

    CHARACTER = "one letter in a row"
    DIGIT = "one digit in a row"
    LINE_ENDS = "line ends in a row"
    WORD = "one word in a row"
    PIECE = "one piece in a row"
    PHRASE = "one phrase in a row"
    UNDERSCORES = "underscores between words"
    RULE = "a rule that begins in a word"
    ECHO = "the question again"


EXPLAINED = frozenset(
    {Sign.DIGIT, Sign.CHARACTER, Sign.WORD, Sign.PIECE, Sign.PHRASE, Sign.UNDERSCORES}
)
"""What a prompt may ask for: a large number, a cry, a song, a program with its names and with lines
that are alike."""

_LINE_ENDS = re.compile(rf"(?:\n[^\S\n]*){{{MIN_LINE_ENDS}}}")
_RULE = re.compile(r"(?:(?<![\w:])[^\W_]{1,12}|_)[-=*#~]{8}|[-=_]{8}[,;]{2}|(?:_-){2}|(?:-_){2}")
"""A rule stands on a line of its own, behind a blank, a corner or a label with a colon."""
_EMPHASIS = re.compile(r"(?<!\S)([_*]{1,3})\w[^_\n]*\w\1(?![^\W_])|`[^`\n]*`|__\w+__")
_NAME = re.compile(r"_?[a-z0-9]+(?:_[a-z0-9]+)*|[A-Z0-9]+(?:_[A-Z0-9]+)*|_{3,}|\w+\(\S*", re.ASCII)
_PIECE = re.compile(rf"(\S{{2,{MAX_PIECE}}}?)\1{{{MIN_PIECES - 1},}}")
_PHRASE = re.compile(r"(\S.{11,59}?)\1{2}", re.DOTALL)
_WORDS = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")


def signs(text: str) -> frozenset[Sign]:
    """The ways in which a text falls apart; none for most texts."""
    text = text[:MAX_TEXT]
    return frozenset(sign for sign, shows in _SIGNS.items() if shows(text))


def telling(answer_signs: frozenset[Sign]) -> bool:
    """Whether one of these signs is such that no prompt asks for it."""
    return bool(answer_signs - EXPLAINED)


def broken(answer_signs: frozenset[Sign]) -> bool:
    """Whether an answer of these signs that was cut off is garbled, whatever the others are."""
    return len(answer_signs) >= MIN_SIGNS and telling(answer_signs)


def together(several: Sequence[frozenset[Sign]]) -> bool:
    """Whether answers to one prompt, all cut off, are garbled together: several have a sign that
    no prompt asks for, and they fall apart in more than one way."""
    odd = [answer_signs for answer_signs in several if telling(answer_signs)]
    return len(odd) >= MIN_ANSWERS and len(frozenset().union(*odd)) >= MIN_KINDS


def echoes(answer: str, prompt: str) -> bool:
    """Whether a question is answered with its own words, and nothing but a question."""
    words, prompt_words = _WORDS.findall(answer.casefold()), _WORDS.findall(prompt.casefold())
    question = answer.rstrip().endswith("?") and prompt.rstrip().endswith("?")
    return question and len(words) >= MIN_ECHO and set(words) <= set(prompt_words)


def degenerate(text: str, text_signs: frozenset[Sign]) -> Garbled:
    """What is wrong with a text of such signs, as `sanity` says it."""
    which = ", ".join(sorted(text_signs))
    return Garbled(Kind.DEGENERATE, f"{Kind.DEGENERATE}: {which}: {quoted(text.strip())}")


def _runs(text: str) -> list[tuple[str, int]]:
    return [(char, sum(1 for _ in same)) for char, same in groupby(text)]


def _one_character(text: str) -> bool:
    return any(
        count >= MIN_CHARACTERS and char.isalpha() and char not in "fFwW" and not is_of_bases(char)
        for char, count in _runs(text)
    )


def _one_digit(text: str) -> bool:
    return any(count >= MIN_DIGITS and char.isdigit() for char, count in _runs(text))


def _one_word(text: str) -> bool:
    bare = [word.casefold().strip(string.punctuation) for word in text.split()]
    return any(
        len(list(same)) >= MIN_SAID and len(word) > 1 and word.isalpha() and word not in VALUES
        for word, same in groupby(bare)
    )


def _one_piece(text: str) -> bool:
    return any(
        sum(map(str.isalpha, piece)) > 1 and len(set(piece)) > 1 and not is_of_bases(piece)
        for piece in _PIECE.findall(text)
    )


def _one_phrase(text: str) -> bool:
    """Words are wanted in it: rows of figures, and of values in data, are often the same."""
    return any(
        len({word.casefold() for word in _WORDS.findall(phrase) if len(word) > 1} - VALUES) > 1
        for phrase in _PHRASE.findall(text)
    )


def _odd_underscores(text: str) -> bool:
    """Underscores that stand alone, at one end of a word, or between words that are no name."""
    odd = 0
    for word in _EMPHASIS.sub(" ", text).split():
        bare = word.strip(string.punctuation.replace("_", ""))
        odd += "_" in bare and not _NAME.fullmatch(bare) and "/" not in word and "=" not in word
    return odd >= MIN_ODD_UNDERSCORES


_SIGNS: dict[Sign, Callable[[str], object]] = {
    Sign.CHARACTER: _one_character,
    Sign.DIGIT: _one_digit,
    Sign.WORD: _one_word,
    Sign.LINE_ENDS: _LINE_ENDS.search,
    Sign.PIECE: _one_piece,
    Sign.PHRASE: _one_phrase,
    Sign.UNDERSCORES: _odd_underscores,
    Sign.RULE: _RULE.search,
}
