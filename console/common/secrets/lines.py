"""Secrets whose name stands on one line and whose value on the next: an argv printed word by word,
a long JSON or Python value, a block of YAML, a header, a private key.

`Stream` carries from line to line what is waited for, so that whoever reads a log line by line
hides the same as whoever has all of it. `console.common.secrets.labels` tells what a line leaves
to the next.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from console.common.patterns import lazy
from console.common.secrets import columns, frames, labels, refused
from console.common.secrets.labels import Waits
from console.common.secrets.names import HIDDEN, Looks, is_name, is_nothing, looks
from console.common.secrets.sentences import STATES, is_prose

MIN_COLUMN = 8
"""Blanks before a value that stands in the column of a logger's words."""
_PASSWORD = lazy(r"(?P<lead>\s{0,64}password\s+)(?P<plain>\S+)(?P<tail>\s*)")
"""The last line of a netrc file."""
_NO_VALUE = lazy(
    r"[\s|=*_#~+<>:.·•\u2500-\u259f-]{2,}|[|=:\u2500-\u259f]"  # a line drawn, a sign
    r"|\s{0,64}`{3,8}\w{0,20}\s{0,8}"  # the fence of a block
    r"|\s{0,64}<[A-Za-z][\w:-]{0,40}(?:\s[^<>]{0,200})?>\s{0,8}"  # the beginning of an element
)
"""What may stand between a name and its value, and is none."""
_DECORATED = (
    r"[\s>|│]{0,64}(?:(?:[-*•‣▸►»·➜→]|[-=]{1,2}>|\d{1,3}[.)]|[+$]\secho)\s{1,4})?"
    r"(?:<(?:string|value|data)>|[\[(<])?(?:[bru](?=[\\\"']))?"
)
"""What a program draws before a value: a bullet, an arrow, a number, a bracket."""
_LONE = lazy(
    rf"(?P<lead>{_DECORATED})"
    r"(?:\\?\"(?P<double>(?:[^\"\\]|\\(?!\"))+)\\?\"|'(?P<single>[^']+)'"
    r"|(?P<plain>[^\s\"'{}\[\]()<>:,;|][^\s\"'{}\[\]()<>,;|]{0,4096}))"
    r"(?P<tail>(?:</\w{1,20}>)?[\"']?[,;)\]}>\\\s]{0,64})"
)
"""A line that is one word, or one text in quotation marks."""
_OWNED = lazy(
    r"(?P<lead>\s{1,64}(?:[-*•]\s{1,4})?[\w.@-]{1,40}\s{0,4}[:=\s]\s{0,8}[\"']?)"
    r"(?P<plain>[^\s\"'{}\[\]()<>,;|]{4,4096})(?P<tail>[\"']?[,;]?\s{0,64})"
)
"""An entry of a list: whose it is, and a value."""
_SHARED = lazy(
    r"(?P<lead>\s{0,64}(?:[-*•]\s{1,4})?(?:[\w ]{1,24}:\s{1,16})?[\w.@+-]{1,60}\s{1,4}/\s{1,4}"
    r"[\"'`]?)"
    r"(?P<plain>[^\s\"'`{}\[\]()<>:,;|/]{3,256})(?P<tail>[\"'`]?\s{0,64})"
)
"""`admin / …`, below `Login credentials:`."""
_BESIDE = lazy(
    r"(?P<lead>[\s>]{0,64}(?i:pass(?:word|wd|phrase|code)?|pwd|pw)\s{0,4}[:=]?\s{1,16}[\"']?)"
    r"(?P<plain>[^\s\"']{3,4096})(?P<tail>[\"']?,?\s{0,64})"
)
_TITLED = lazy(r"\W{0,8}(?:[\w ]{1,24}\s)?(?i:pass(?:word|wd|phrase|code)?|pwd|pw)\W{0,8}")
"""The password of a user, and its name alone."""
_RULE = lazy(r"\s{0,64}[=_~\u2500\u2501\u2550-]{3,}\s{0,64}")
_KEY = lazy(
    r"(?P<lead>\s{0,64}[\"']?)(?!default\b|hostnames\b|volatile\b|~|\$|include\b|#)"
    r"(?P<plain>[^\s\"';{}]{3,4096})(?P<tail>[\"']?\s{1,64}[^;]{1,200};.{0,200})"
)
"""A row of a `map` of nginx."""
_PAIR = lazy(
    r"(?P<lead>[\s\"'-]*[^\s:\"'/]{1,64}:)(?!\d+\W*$|//)(?P<plain>[^\s\"',]+)(?P<tail>[\"']?,?)"
)
"""`user:password`, behind `-u`."""
_GIVEN = lazy(
    r"(?P<lead>.{0,64}?(?<![\w-])\\?[\"']?(?i:value)\\?[\"']?\s{0,4}[:=]\s{0,4})"
    r"(?:\\?[\"](?P<double>[^\"\\]+)\\?[\"]|'(?P<single>[^']+)'|(?P<plain>[^\s\"'{\[$<][^\r\n]{0,4096}?))"
    r"(?P<tail>\\?,?\s{0,8}\}?,?)"
)
_TEXT = lazy(r"(?P<lead>\s*)(?P<plain>\S.*)(?P<tail>)")
_RESTS = lazy(r"[\d.,:/%-]+|[=*_#.~+-]{2,}")
"""Figures and rules, which are no secret by themselves."""
_STATES = STATES | frozenset((
    "done", "exiting", "finished", "initialized", "initializing", "listening", "loading", "ready",
    "running", "shutdown", "started", "starting", "stopped", "stopping", "success", "warmup",
))  # fmt: skip
"""Words that tell how a program stands, not what a secret is."""
_ANEW = Waits("", 0)
"""What is waited for is to be read from the line itself."""


class Stream:
    """The lines of one text or log in their order."""

    __slots__ = ("_above", "_waits")

    def __init__(self) -> None:
        self._waits: Waits | None = None
        self._above = ""

    def shown(self, line: str) -> str:
        """The next line, clean, without what is the value of an earlier line's name."""
        if refused.HINT in line:
            line = refused.below(self._above, line)
        self._above = line
        if self._waits is None:  # most lines
            if labels.may_be(line):
                self._waits = labels.awaited(line)
            return line
        shown, self._waits = _hidden(line, self._waits)
        return shown

    def peeked(self, line: str) -> str:
        """The same for a line that is still being written: it comes again, longer."""
        if refused.HINT in line:
            line = refused.below(self._above, line)
        return line if self._waits is None else _hidden(line, self._waits)[0]

    def forget(self) -> None:
        """What comes next does not follow what came last."""
        self._waits, self._above = None, ""


def shown(rows: Iterable[str]) -> Iterator[str]:
    """The clean lines of one text, as `Stream` shows them."""
    stream = Stream()
    for row in rows:
        yield stream.shown(row)


def _hidden(line: str, waits: Waits) -> tuple[str, Waits | None]:
    """A line as it is shown, and what is waited for behind it."""
    if waits.kind == "pem":
        return _of_key(line, waits)
    frame = frames.of(line)
    start, end = frame.start, frame.end
    barred = waits.kind == "rows" and columns.is_row(line)
    boxed = frame.boxed and frame.shape == "|"
    # another program's line, one with words of its own, or one whose bars are no box
    if barred or not (boxed or frame.shape in ("", waits.shape)):
        start, end = 0, len(line)
    shown, after = _hidden_in(line[start:end], waits, boxed=frame.boxed)
    return line[:start] + shown + line[end:], labels.awaited(line) if after is _ANEW else after


def _hidden_in(body: str, waits: Waits, *, boxed: bool) -> tuple[str, Waits | None]:
    """The same for the words of a line; `_ANEW` if they end what was waited for."""
    left = replace(waits, left=waits.left - 1) if waits.left > 1 else None
    if not body.strip():
        return body, left
    if waits.kind == "rows":
        return _without_cells(body, waits, left)
    if waits.kind == "login":
        password = _PASSWORD.fullmatch(body)
        return (_without(password, waits), None) if password else (body, _ANEW)
    if waits.kind == "table":
        return _without_given(body, waits, left)
    if waits.kind == "user":
        return _of_user(body, waits)
    if waits.kind == "map":
        key = _KEY.fullmatch(body)
        return (_without(key, waits) if key else body), None if body.strip() == "}" else left
    if waits.kind == "rest" and len(body) - len(body.lstrip(" ")) != waits.indent:
        return body, _ANEW
    if waits.kind == "block" and not boxed:
        if len(body) - len(body.lstrip(" ")) <= waits.indent:
            return body, _ANEW
        text = _TEXT.fullmatch(body)
        return (_without(text, waits) if text else body), left
    shown, after = _without_value(body, waits, left)
    return shown, left if waits.kind == "rest" and after is not _ANEW else after


def _of_user(body: str, waits: Waits) -> tuple[str, Waits | None]:
    """What stands below a user's name: their password, its name, or something else."""
    at = frames.behind_place(body, waits.words)
    place, words = body[:at], body[at:]
    if HIDDEN in words:
        return body, None
    if _TITLED.fullmatch(words):
        return body, Waits("value", labels.MAX_GAP, shape=waits.shape, words=body)
    if beside := _BESIDE.fullmatch(words):
        return place + _without(beside, replace(waits, least=Looks.ANY)), None
    lone = _without_lone(words, waits) if "-" not in words else words
    return place + lone, None if lone != words else _ANEW


def _without_value(body: str, waits: Waits, left: Waits | None) -> tuple[str, Waits | None]:
    """The same for one value, or one of a list."""
    shown = _without_lone(body, waits)
    if shown == body and _NO_VALUE.fullmatch(body):
        titled = left and waits.least is Looks.MADE and _RULE.fullmatch(body)
        return body, replace(left, least=Looks.MIXED) if left and titled else left
    if shown == body and (at := frames.behind_place(body, waits.words)):
        if not body[at:].strip() or _NO_VALUE.fullmatch(body[at:]):
            return body, left
        shown = body[:at] + _without_lone(body[at:], waits)
    listed = waits.kind == "list"
    if shown == body and listed and (shared := _SHARED.fullmatch(body)):
        bullet = body.lstrip()[:1] in ("-", "*", "•")
        return _without(shared, replace(waits, least=Looks.MIXED if bullet else Looks.ANY)), left
    if shown == body and listed and (owned := _OWNED.fullmatch(body)):
        if len(body) - len(body.lstrip(" -")) <= waits.indent:
            return body, _ANEW
        return _without(owned, replace(waits, least=max(waits.least, Looks.MIXED))), left
    if shown == body:
        return body, _ANEW
    if body.lstrip().startswith(("+ echo ", "$ echo ")):  # the command; what it prints follows
        return shown, left
    if listed:
        return shown, None if body.rstrip().endswith(("]", ")")) else left
    return shown, _rest_of(body)


def _rest_of(body: str) -> Waits | None:
    """What is waited for behind a value: its rest, if a logger has wrapped it in its column."""
    indent = len(body) - len(body.lstrip(" "))
    if indent < MIN_COLUMN or looks(body.strip()) < Looks.MADE:
        return None
    return Waits("rest", labels.MAX_WRAPPED, indent, Looks.MIXED)


def _without_given(body: str, waits: Waits, left: Waits | None) -> tuple[str, Waits | None]:
    """The same for the value beside a name, in a table."""
    given = _GIVEN.fullmatch(body)
    if given is not None:
        return _without(given, waits), None
    if body.lstrip().startswith("#"):
        return body, left
    closed = body.strip().startswith(("}", "- ")) or labels.awaited(body) is not None
    return body, _ANEW if closed else left


def _without_cells(row: str, waits: Waits, left: Waits | None) -> tuple[str, Waits | None]:
    """A row of a table without its secrets; `_ANEW` behind the last one."""
    if _NO_VALUE.fullmatch(row):
        return row, left
    spans = [columns.cell_of(row, column) for column in waits.columns]
    if not any(spans):
        return row, _ANEW
    for column, span in sorted(zip(waits.columns, spans, strict=True), reverse=True):
        value = row[span[0] : span[1]].strip("\"'`") if span else ""
        least = Looks.MADE if column.weak else Looks.ANY
        if span and value and not _tells_nothing(value, least):
            row = row[: span[0]] + HIDDEN + row[span[1] :]
    return row, left


def _without_lone(body: str, waits: Waits) -> str:
    lone = (_PAIR if waits.kind == "pair" else _LONE).fullmatch(body)
    if lone is None:
        return body
    bracketed = lone["lead"].endswith("<")  # `<KEY>`, or the tag of an element
    least = max(waits.least, Looks.MIXED) if bracketed else waits.least
    return _without(lone, replace(waits, least=least))


def _of_key(line: str, waits: Waits) -> tuple[str, Waits | None]:
    ended = "-----end" in line.lower()
    shown = line if "-----" in line else HIDDEN
    return shown, None if ended or waits.left <= 1 else replace(waits, left=waits.left - 1)


def _without(match: re.Match[str], waits: Waits) -> str:
    """A line without its value, if that is one."""
    group = match.lastgroup if match.lastgroup != "tail" else None
    group = group or next(g for g in ("double", "single", "plain") if match.groupdict().get(g))
    value = match[group]
    start, end = match.span(group)
    start, end = start - match.start(), end - match.start()
    if _tells_nothing(value, waits.least):
        return match[0]
    return match[0][:start] + HIDDEN + match[0][end:]


def _tells_nothing(value: str, least: Looks) -> bool:
    if value.startswith(("--", "$", "%", "{")) or HIDDEN in value or is_nothing(value):
        return True
    if _RESTS.fullmatch(value) or _NO_VALUE.fullmatch(value) or is_prose(value) or is_name(value):
        return True
    return value.lower().strip(".,!?…") in _STATES or looks(value) < least
