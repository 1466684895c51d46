"""What stands around the words of a line: what collectors and loggers of logs set before it, the
record in JSON that carries it, the box that is drawn around it.

Two lines of one program have frames of the same shape, whatever their clocks and places say.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from console.common.logs.level import LEVELS, MESSAGE_KEYS, words_at
from console.common.patterns import lazy

MAX_FRAMES, MAX_PLACE = 6, 12
"""Frames around one line, and words of a place (`srv  init:`) behind them."""

_COLLECTOR = lazy(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[^\s]{0,24}\s|\(\w{1,24} pid=\d{1,9}\)\s"
    r"|[\w.-]{1,64}\s{1,24}\|\s"
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S{1,64} [^\s\[]{1,64}\[\d{1,9}\]:\s"
    r"|\[\d,\d{1,4}\]<std(?:out|err)>:"
)
_KEYS = "|".join(MESSAGE_KEYS)
_MESSAGE = lazy(
    rf"\"(?:{_KEYS})\"\s{{0,4}}:\s{{0,4}}\"(?P<words>(?:[^\"\\]|\\.)*+)"
    rf"|\\\"(?:{_KEYS})\\\"\s{{0,4}}:\s{{0,4}}\\\"(?P<inner>(?:[^\"\\]|\\[^\"])*+)"
)
"""The message of a record, also of one that is itself the message of another."""
_FIELDS = lazy(
    rf"(?:[\w.@-]{{1,40}}=(?:\"(?:[^\"\\]|\\.){{0,200}}\"|[^\s\"]{{0,200}})\s){{0,12}}?(?:{_KEYS})="
    r"(?:\"(?P<words>(?:[^\"\\]|\\.)*+)\"|(?P<word>[^\s\"]+))"
)
"""The message of a record in logfmt."""
_FIELD = lazy(r"[\w.@-]{1,40}=")
_NEWLINE = lazy(r"(?:\\{1,2}[nr])+$")
SIDES = "|│┃║*#"
"""What the sides of a box are drawn with."""
_BAR = lazy(rf"\s{{0,64}}[{SIDES}](?=\s)")
_BLOCK = lazy(r":\s\|$")
"""The end of a name in YAML whose value is a block: no box."""
_FIGURES, _LETTERS = lazy(r"\d+"), lazy(r"[A-Za-z_]+")
_SAME = lazy(rf"\d+|\b(?:{LEVELS})\b")
"""What differs in the places of two lines of one logger."""
_PLACE_END = lazy(rf"\S*[^\w\s]|{LEVELS}|\S*\d\d:\d\d\S*|[A-Z]|AM|PM")
"""The last word of a place: what ends in a sign, a level, a clock, a letter."""
_WORD = lazy(r"\S+")


class Frame(NamedTuple):
    """`start`, `end`: where a line's own words stand; `shape`: what of the frame is the same in
    each line of its program, beside what a collector sets before it; `boxed`: whether a box's
    right side was taken off."""

    start: int
    end: int
    shape: str = ""
    boxed: bool = False


def of(line: str) -> Frame:
    """The frame of a clean line."""
    start, end, shape, barred = 0, len(line), list[str](), False
    for _ in range(MAX_FRAMES):
        words = line[start:end]
        if collector := _COLLECTOR.match(words):
            start += collector.end()
        elif bar := _BAR.match(words):
            barred = True
            start += bar.end() + 1
            shape.append("|")
        elif words.startswith(('{"', '{\\"')) and (message := _MESSAGE.search(words)):
            start, end = _inside(message, start)
            end -= len(_end_of_line(line[start:end]))
            shape.append("{}")
        elif _FIELD.match(words) and (fields := _FIELDS.match(words)):
            start, end = _inside(fields, start)
            shape.append("=")
        elif at := words_at(words):
            kept = words[:at].rstrip()
            start += min(at, len(kept) + 1)  # what follows one space is the words' own indent
            shape.append(_LETTERS.sub("a", _FIGURES.sub("0", " ".join(kept.split()))))
        else:
            break
    words = line[start:end].rstrip()
    boxed = barred and words.endswith(tuple(SIDES)) and not _BLOCK.search(words)
    if boxed:
        end = start + len(words.rstrip(f"{SIDES} "))
    return Frame(start, max(start, end), " ".join(shape), boxed)


def behind_place(words: str, before: str) -> int:
    """Where the words of a line go on behind the place (`srv  init: `, `server - INFO - `) that
    those of the line before it begin with, too; 0 if they begin with none."""
    end = 0
    others = before.split()[: MAX_PLACE + 1]
    for word, other in zip([*_WORD.finditer(words)][:-1], others[:-1], strict=False):
        if _SAME.sub("0", word[0]) != _SAME.sub("0", other):
            break
        if _PLACE_END.fullmatch(word[0]):
            end = word.end() + 1
    return end


def _inside(message: re.Match[str], start: int) -> tuple[int, int]:
    """Where the message of a record stands in its line."""
    group = message.lastgroup or "words"
    return start + message.start(group), start + message.end(group)


def _end_of_line(words: str) -> str:
    newline = _NEWLINE.search(words)
    return newline[0] if newline else ""
