"""Secrets that look like words and are told by where they stand: `Invalid token …`, `key=…`,
`The token provided (…)`, `"token": "…"` in a server's answer.

`console.common.redact` hides what it finds. Most of these places hold a plain word (`token limit`),
a token of a text or a name as well, so each says which values are a secret there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from console.common.patterns import lazy
from console.common.secrets.sentences import Clues

_PLAIN = lazy(
    r"[A-Z]?[a-z]+(?:[-_/.][a-z]+)*|[A-Z]+(?:[-_/.][A-Z]+)*|[A-Z][a-z]+(?:[-_/.][A-Z][a-z]+)*"
)
"""A word, or several that are joined."""
_CAMEL = lazy(r"[A-Z]?[a-z]+(?:[A-Z][a-z]+)*\d{0,4}(?:[A-Z]?[a-z]+)*|0[xX][0-9a-fA-F]+")
"""A name in a program, like `Float32Array` and `getElementById`, a word with a number, or that."""
_DATE = lazy(r"\d{4}-\d\d-\d\d")
_FILE = lazy(r"\.[a-z]{1,6}$|^[\w-]{1,40}\.\d+\.")
MIN_WORD = 6


def _coined(value: str) -> bool:
    """No word, number, name in a program, file or date."""
    if len(value) < MIN_WORD or not any(map(str.isalpha, value)):
        return False
    if _PLAIN.fullmatch(value) or _CAMEL.fullmatch(value) or _FILE.search(value):
        return False
    return _DATE.search(value) is None


def _mixed(value: str) -> bool:
    """Coined, with a digit in it."""
    return _coined(value) and any(map(str.isdigit, value))


def _cased(value: str) -> bool:
    """Mixed, in small letters and capitals: names of objects in a cluster have no capitals."""
    return _mixed(value) and not value.islower() and not value.isupper()


def _word(value: str) -> bool:
    """Anything but a token of a text that a program marks."""
    return len(value) >= MIN_WORD and value[0] not in "<[|"


_V = r"(?P<value>[A-Za-z0-9][\w.~+/-]{4,511}={0,2})(?![\w(\[])"
_STRONG = r"(?:api[-_ ]?key|pass(?:word|phrase|code)|credential)"
_NOUN = rf"(?:{_STRONG}|token|secret)"
_REFUSED = r"(?:invalid|incorrect|bad|wrong|expired|revoked|rejected|refused|unauthori[sz]ed|using)"
Row = tuple[tuple[str, ...], re.Pattern[str], Callable[[str], bool]]


def _row(words: tuple[str, ...], pattern: str, judge: Callable[[str], bool]) -> Row:
    return words, lazy(pattern, re.IGNORECASE), judge


_TABLE = (
    # `Invalid token …`, `Using token: …`, `incorrect password "…"`
    _row(("valid", "correct", "bad ", "wrong", "expired", "revoked", "reject", "refused",
          "unauthor", "using "),
         rf"\b{_REFUSED}\s{{1,4}}(?:\w{{1,12}}\s)?{_NOUN}\s{{0,4}}[:=]?\s{{0,4}}[\"'`(]?{_V}",
         _mixed),
    # `the token … has expired`, `api key … is invalid`
    _row((" is ", " was ", " has "),
         rf"\b(?!secret){_NOUN}\s{{1,4}}[\"'`(]?{_V}[\"'`)]?\s{{1,4}}(?:is|was|has)\b", _mixed),
    _row(("api",), rf"\bapi[-_ ]?key\s{{1,4}}{_V}\s{{1,4}}(?:is|was|has)\b", _coined),
    # `The token provided (…)`, `token given: …`, `passphrase "…"`
    _row(("provided", "given", "received", "supplied", "sent", "used"),
         rf"\b{_NOUN}\s(?:provided|given|received|supplied|sent|used)\s{{0,4}}[:=]?\s{{0,4}}"
         rf"[\"'`(]?{_V}", _mixed),
    _row(("api", "pass", "credential"),
         rf"\b{_STRONG}\s{{0,4}}[:=]?\s{{0,4}}[\"'`(]{_V}[\"'`)]", _coined),
    _row(("secret ",), rf"\bsecret\s{{1,4}}[\"'`(]?{_V}", _cased),
    _row(("key=",), rf"(?<![\w-])key=[\"']?{_V}", _cased),
    _row(("token: ",), rf"(?<![\w-])token:\s{{1,4}}[\"'`]?{_V}", _cased),
    # LiteLLM: `Key Hash (Token) =…`
    _row(("(token)",), rf"\(token\)\s{{0,4}}[:=]\s{{0,4}}[\"'`]?{_V}", _word),
)  # fmt: skip
"""Words in small letters of which a line needs one, where the value stands, and what it has to be
like there to be a secret."""
_COOKIE = lazy(
    r"\bcookies?\b[\s:\"'`(]{1,4}(?!(?:path|domain|expires|max-age|samesite|secure|httponly|name)=)"
    r"[\w.-]{1,40}=(?P<value>[^\s;,\"'`)/$%{<][^\s;,\"'`)]{3,4095})",
    re.IGNORECASE,
)
_MEMBER = lazy(
    r"(?P<quote>\\?[\"'])token(?P=quote)\s{0,8}:\s{0,8}(?P=quote)(?P<value>[^\"'\\\s]{1,4096})"
    r"(?P=quote)",
    re.IGNORECASE,
)
_MEMBERS = ('"token', "'token")
_OF_A_TEXT = ("prob", "bytes", "piece", "tok_str", "token_id", '"id"', "'id'", "special", "lstrip")
"""What stands beside `token` in an object of an engine where it is one of a text."""


def of_text(line: str, lower: str, clues: Clues) -> Iterator[re.Match[str]]:
    """Where a line has such values. `lower` is the line in small letters, `clues` what
    `sentences.tells` says of it."""
    if clues.value or (clues.noun and ("api" in lower or "passw" in lower or "passp" in lower)):
        for words, pattern, judge in _TABLE:
            if any(map(lower.__contains__, words)):
                for match in pattern.finditer(line):
                    if judge(match["value"].rstrip(".")):
                        yield match
    if "cookie" in lower:
        yield from _COOKIE.finditer(line)
    if clues.noun and (_MEMBERS[0] in lower or _MEMBERS[1] in lower):
        judge = _mixed if any(map(lower.__contains__, _OF_A_TEXT)) else _of_answer(lower)
        yield from (member for member in _MEMBER.finditer(line) if judge(member["value"]))


def _of_answer(lower: str) -> Callable[[str], bool]:
    """In an object that stands whole in its line a word is a secret, too; else it may be one of a
    text, whose probability stands on the next line."""
    return _word if "{" in lower and "}" in lower else _mixed
