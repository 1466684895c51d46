"""Secrets in text: found by what marks them, hidden wherever the text is shown or kept.

`console.common.text.clean` applies `text` to everything that comes from outside. What is executed,
compared or loaded again never passes there, and the sealed copies of mode 0600 keep every byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from console.common import passwords
from console.common.patterns import lazy
from console.common.secrets import fields, forms, given, lines, logins, refused, sentences
from console.common.secrets.bare import bare
from console.common.secrets.names import (
    BY_VALUE,
    BY_VALUES,
    HARMLESS,
    SURE,
    WEAK,
    WEAK_NAMES,
    Looks,
    is_flag,
    is_nothing,
    looks,
    made,
)
from console.common.secrets.names import (
    HIDDEN as HIDDEN,
)
from console.common.secrets.names import (
    names as names,
)
from console.common.secrets.sentences import OF, STATES, is_prose

SHORTEST, SHORTEST_WORD = 6, 12
"""Least characters of a value that is hidden everywhere, and of one that may be a word. Shorter
ones occur in normal text, so they are hidden only next to their flag or name."""
MAX_PASSES = 4
MAX_NAME = 48
"""Characters in front of a mark in which the whole of its name is looked for: what makes a long
line take no more than its length."""

_GIVEN = lazy(
    r"(?!(?:[a-z]+|0[xX][0-9a-fA-F]+|[\d._]+(?:e[+-]?\d+)?)(?![^\s,;)]))(?![<\[{$%])"
    r"[!#$%*+./0-9:<-z{}~-]{6,}+(?!\()"
)
"""What stands directly behind `token=`: a person or a program has given it, unless it is a number,
a word, a part of a text (`<|end|>`), a variable or a call."""
_GIVEN_BY = WEAK_NAMES - {"key", "sig", "signature"}
_QUALIFIED = lazy(rf"-*(?:.*[-_.])?(?:{OF})[-_.]?")
_MARK = lazy(
    rf"{SURE}|{WEAK}|{BY_VALUE}|authorization|cookie|bearer|://"
    r"|-----begin [a-z ]{0,30}private key"
)
"""Each way begins with a letter of its own: `re` then looks for those few at full speed."""
_HINTS = (
    "key", "pass", "secret", "auth", "://", "bearer", "credential", "cookie", "hft", "pwd",
    "session", "csrf", "jwt", "signature", "sid\"", "sid'", "otlp",
)  # fmt: skip
_TOKENS = lazy(r"token(?:\S{0,8}[ \t]{0,8}(?:[=:]|%3[ad])|(?<=[-_]token)\\?[\"',]*\s)")
"""`token` where a value may follow: most lines of an engine's log count tokens of a text."""
_RARE = lazy(r"(?:sig|signature|jwt|sas|pat|sid)=")
_PAIRED = lazy(
    r"(?:(?P<first>[\[(]\s{0,4}b?))?(?P<quote>\\?[\"'])(?P<name>[\w.-]{2,64})(?P=quote)\s{0,8}"
    r"(?:,\s{0,8}(?P<beside>\\?[\"']value\\?[\"']\s{0,8}:\s{0,8})?|:\s{0,8}\{\s{0,8}\\?[\"']\w{1,20}"
    r"\\?[\"']\s{0,8}:(?P<inside>\s{0,8}))b?\\?[\"'](?P<value>[^\"'\\]{1,4096})"
)
"""A name and its value side by side: as the two items of a list or tuple (headers), as entries
`name` and `value` of a table (variables), or one table deeper."""
_KEY_LINE = lazy(r"\s*[A-Za-z0-9+/]{60,}={0,2}\s*")

_WORD = lazy(r"[\w.-]*")
_ENDS = lazy(r"(s|\(s\)|)(?:_?\d{1,3})?(?![\w-])", re.ASCII)
_SEPARATOR = lazy(
    r"(?:\\?[\"'\]]?|[\"'`][)\]]|\*\*?|`| \((?:type=)?\w{1,12}\))[ \t]{0,8}"
    r"(?P<sign>=>|->|→|[:?+]=|={1,2}|%3[dD]|(?:%22)?%3[aA](?:%22)?|:(?!//))(?:\*\*(?!\*))?"
    r"(?:[ \t]?(?:Optional\[)?(?:str|bytes|SecretStr)[\w\[\] |]{0,16}=)?[ \t]{0,8}"
    r"(?:\"\"(?=\")|''(?='))?"
    r"|(?P<gap>\\?[\"']?,?\s{1,8}|\\?[\"'],\s{0,8})"
)
_QUOTATIONS = {"”": "“", "’": "‘", "»": "«", "“": "„"}
_BARE = lazy(r"([a-z]+)(?=[.,;:)]{0,3}(?:\s|$))")
_LONE = lazy(r"([a-z]+)(?=\s{0,64}(?:[,}|│#]|$))")
_BEGUN = lazy(r"[\s#>|│•*-]{0,40}[\"'`]?")
"""What stands before the name of a setting that has the line for itself."""
_VALUE = lazy(
    r"\\\"(?P<escaped>(?:[^\\]|\\(?!\"))*)|\"(?P<double>(?:[^\"\\]|\\.)*)|'(?P<single>[^']*)"
    r"|(?P<list>[\[(][^\])]*|\{(?=\s{0,8}b?[\"'][^\"':]{1,512}[\"']\s{0,8}[,}])[^}]*)|(?P<plain>[^\s\"'][^\s]*)"
)
_PARAMETER = lazy(r"[^&\s#\"'<>]+")
_SCHEME = lazy(r"\\?[\"']?(?:(?:basic|bearer|digest|negotiate|token|apikey)\s+)?", re.I)
_COOKIE = lazy(r"[\w.!#$%&*+^`|~-]{1,100}=[^\"'\r\n]+")
_CREDENTIALS = lazy(r"[^\s\"']+")
_BEARER = lazy(
    r"(?:\\?[\"'],\s{0,4}(?=\\?[\"'])|(?:\\?[\"'])?[\s:=\\]{1,8}+)(?:\\?[\"'])?(?=[.~+/=-]*\w)(?P<value>[\w.~+/=-]++)(?!\*)"
)
_QUERY = lazy(r"(?<=://)(?<!unix://)(?:(?!://)[^\s?#\"'<>]){1,2048}\?(?P<query>[^\s\"'<>#]+)")
_PARAMETERS = lazy(r"(?<![^?&;])(?:[^&;=]*=)?([^&;]+)")
_SWITCH = lazy(r"\d{1,7}|true|false|yes|no|on|off|none|null|\*+", re.IGNORECASE)
_USER = lazy(r"(?P<name>[^\s/?#@:\"'<>]*)(?::(?P<password>[^\s/?#]+))?@")
_LOOSE = lazy(r"[^\s/?#@:\"'<>]*:(?!\d{1,5}[/?#\s])(?P<password>[^\s\"'<>]{1,256})@")
_PROSE = frozenset({"authentication", "authorization", "credentials", "challenge", "token"})
_ASSIGNED = lazy(r"(?P<name>[A-Za-z_][\w.-]*)=(?P<value>.+)", re.DOTALL)
_OPENED = lazy(r"[\[{]\s*(?:\\?[\"']|$)")
_SHORT_FLAGS = ("-k", "-u", "--user", "--proxy-user")
_LISTS = lazy(r"--?(?:[\w-]*[-_])?api[-_]keys?", re.IGNORECASE)
_MORE = lazy(r"[\"']?,?\s+[\"']?(?=[\w*])(?P<value>[\w.+/=~*-]+)(?=[\"'\s,\])]|$)")
"""One value more of a flag that takes several."""
_NEXT = lazy(r"[\"']?,\s{0,4}[\"']?(?P<value>[\w.+/~-]{2,512}={0,2})(?=[\"'\s,\])]|$)")
_COUNT = lazy(r"\d{1,6}(?![\w-])")
"""`api_keys: 3` tells how many there are."""


def text(line: str) -> str:
    """A text without what flags, variables, headers, addresses and its own form mark as secret."""
    if "\n" in line:
        return "\n".join(lines.shown(map(text, line.split("\n"))))
    for _ in range(MAX_PASSES):  # what is hidden may bring two marks together
        shown = _hidden(line)
        if shown == line:
            break
        line = shown
    return line


def argv(words: Iterable[str]) -> list[str]:
    """The words of a command, to be shown: values of secret flags are hidden, word by word."""
    shown: list[str] = []
    waits = several = False
    before = ""
    words = list(words)
    by_program = passwords.of_argv(words)
    for at, word in enumerate(words):
        flag, equals, value = word.partition("=")
        secret = is_flag(flag)
        if secret and (not equals or not value):
            shown.append(word)
        elif secret:
            shown.append(word if is_nothing(value) else f"{flag}={HIDDEN}")
        elif waits or (several and not word.startswith("-")):
            shown.append(word if is_nothing(word) and not several else HIDDEN)
        elif before in _SHORT_FLAGS:
            whole = text(f"{before} {word}").removeprefix(f"{before} ")
            shown.append(HIDDEN if before == "-k" and whole != word else whole)
        elif at in by_program:
            shown.append(word[: by_program[at]] + HIDDEN)
        else:
            shown.append(_assigned(word))
        several = (secret and not equals and _LISTS.fullmatch(flag) is not None) or (
            several and not word.startswith("-")
        )
        waits = secret and not equals
        before = word
    return shown


def data(value: Any, shown: Any = text, parent: str = "") -> Any:
    """JSON-like data with every string in it passed through `shown`, keys too, and without the
    values of secret names and flags. `parent`: the name that the data has."""
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, dict):
        secret = secret_keys(value, parent)
        return {
            data(key, shown): HIDDEN if key in secret else data(member, shown, str(key))
            for key, member in value.items()
        }
    if isinstance(value, list | tuple):
        if len(value) == 2 and _names_beside(value[0], value[1]):
            return [data(value[0], shown), HIDDEN]
        words = all(isinstance(element, str) for element in value)
        return [data(element, shown) for element in (argv(value) if words else value)]
    return value


def secret_keys(table: dict[Any, Any], parent: str = "") -> set[Any]:
    """The keys of a JSON-like table whose values are secret: by themselves, beside the name of a
    variable (`{"name": "API_KEY", "value": …}`), by the name of the table, `parent`, or as what
    pydantic repeats of a request (`{"loc": ["body", "api_key"], "input": …}`)."""
    loc, given = table.get("loc"), table.get("input")
    loc = loc if isinstance(loc, list | tuple) else []
    beside = next(
        (value for key, value in table.items() if str(key).lower() in ("name", "key")), None
    )
    return {
        key for key, value in table.items()
        if names(key, value) or (key == "input" and any(_names_any(part, given) for part in loc))
        or (str(key).lower() == "value"
                               and (_names_beside(beside, value) or names(parent, value)))
    }  # fmt: skip


def _names_any(name: Any, value: Any) -> bool:
    """Whether a name is one of a secret, and its value, or one of a list of them, holds one."""
    values = value if isinstance(value, list | tuple) else [value]
    return any(names(name, each) for each in values)


def dumped(value: Any, indent: int | None = None) -> str:
    """The JSON of an answer that is printed or sent: `data` goes over every string of it."""
    return json.dumps(data(value), indent=indent)


def named(name: str, value: str) -> str:
    """A value as it is shown beside its name."""
    return HIDDEN if names(name, value) else text(value)


def is_secret(name: str, value: str) -> bool:
    """Whether a variable's value is to be hidden, by its name or by what it holds."""
    return bool(value) and (names(name, value) or text(value) != value)


@dataclass(frozen=True, slots=True)
class Known:
    """Values that are secret everywhere, the longest first."""

    values: tuple[str, ...] = ()

    @classmethod
    def of(cls, *documents: Any) -> Known:
        """The secret values in the plain data of files."""
        parts = [
            part
            for document in documents
            for value in _secrets(document)
            for part in value.split("\n")
        ]
        return cls(tuple(sorted({part for part in parts if _telling(part)}, key=len, reverse=True)))

    def __or__(self, other: Known) -> Known:
        return Known(tuple(sorted({*self.values, *other.values}, key=len, reverse=True)))

    def text(self, line: str) -> str:
        for value in self.values:
            line = line.replace(value, HIDDEN)
        return text(line)

    def raw(self, line: bytes) -> bytes:
        """A line of a program's output, unchanged except for the values."""
        for value in self.values:
            line = line.replace(value.encode(), HIDDEN.encode())
        return line

    def data(self, value: Any) -> Any:
        """JSON-like data, as `data` does it, without these values either."""
        return data(value, self.text)


NONE = Known()


def _spans(line: str) -> Iterator[tuple[int, int]]:
    """Where the secrets of a line begin and end. A plain search for what marks them comes first:
    most lines have none of it, and then no pattern is tried."""
    lower = line.lower()
    if len(lower) != len(line):  # some letters have a longer small form: places would differ
        lower = "".join(
            character.lower() if character.isascii() else character for character in line
        )
    if _is_marked(lower):
        hidden = 0
        for mark in _MARK.finditer(lower):
            if mark.end() + 4 < hidden:
                continue  # inside of what is hidden already, so that no part is read twice
            span = _marked(line, lower, mark)
            if span is not None and 0 <= span[0] < span[1]:
                hidden = max(hidden, span[1])
                yield span
    if "://" in line and "?" in line:
        yield from _queries(line)
    yield from forms.of_text(line, lower)
    if "'" in line or '"' in line:
        yield from _paired(line, lower)
    clues = sentences.tells(lower)
    for field in chain(
        sentences.of_text(line, lower, clues),
        fields.of_text(line, lower, labelled=clues.labelled),
        logins.of_text(line, lower, clues),
        given.of_text(line, lower, clues),
    ):
        groups = field.groupdict()
        value = groups["value"]
        if is_nothing(value) or is_prose(value):
            continue
        if "name" in groups and not names(groups["name"], value):
            continue
        if "random" in groups and looks(value) < Looks.RANDOM:
            continue
        if "made" not in groups or made(groups["made"]):
            yield field.span("value")
    if refused.HINT in line:
        yield from refused.of_text(line)
    yield from passwords.of_text(line, lower)
    if _KEY_LINE.fullmatch(line) and not line.isupper() and not line.islower():
        yield 0, len(line)


def _hidden(line: str) -> str:
    spans = list(_spans(line))
    if read := bare(line):
        as_read, places = read
        spans += ((places[start], places[end - 1] + 1) for start, end in _spans(as_read))
    if not spans:
        return line
    out, at = list[str](), 0
    for start, end in sorted(spans):
        if start > at or not out:  # two that touch are one
            out += (line[at:start], HIDDEN)
        at = max(at, end - _closes(line, start, end))
    return "".join((*out, line[at:]))


def _closes(line: str, start: int, end: int) -> bool:
    """Whether the last character of a secret closes a quotation that was opened in front of it."""
    opening = _QUOTATIONS.get(line[end - 1 : end])
    if opening is None or end - start < 2:
        return False
    before = line[:start]
    return before.count(opening) > before.count(line[end - 1]) and opening not in line[start:end]


def _is_marked(lower: str) -> bool:
    for hint in _HINTS:
        if hint in lower:
            return True
    if "token" in lower and _TOKENS.search(lower):
        return True
    return "=" in lower and _RARE.search(lower) is not None


def _marked(line: str, lower: str, mark: re.Match[str]) -> tuple[int, int] | None:
    """The secret that belongs to a mark."""
    kind, end = mark[0], mark.end()
    if kind == "://":
        return _in_url(line, end)
    if kind == "bearer":
        return _behind_bearer(line, end)
    if kind in ("authorization", "cookie"):
        return _of_header(line, kind, end)
    if kind.startswith("-"):
        closed = lower.find("-----end", end)
        return line.find("-", end), closed if closed >= 0 else len(line)
    return _of_name(line, lower, mark)


def _of_name(line: str, lower: str, mark: re.Match[str]) -> tuple[int, int] | None:
    """The value behind a name, if the name is one of a secret."""
    start, end = mark.span()
    if (ends := _ENDS.match(line, end)) is None:
        return None
    behind = _SEPARATOR.match(line, ends.end())
    if behind is None:
        return None
    before = _WORD.match(lower[max(0, start - MAX_NAME) : start][::-1])
    first = start - len(before[0] if before else "")
    flag = lower.startswith("-", first)
    prefix = lower[first:start]
    camel = line[start].isupper() and line[start - 1].islower()
    known = camel or mark[0].startswith(("passw", "secret")) or _QUALIFIED.fullmatch(prefix)
    if prefix and prefix[-1].isalnum() and not known:
        return None
    in_url = prefix == prefix.lstrip("-") and first > 0 and line[first - 1] in "?&;#"
    sign = behind["sign"] or ""
    if not sign and not flag:
        return None
    many = bool(ends[1])
    by_value = mark[0] not in WEAK_NAMES and BY_VALUES.fullmatch(mark[0]) is not None
    if mark[0] in WEAK_NAMES and not (in_url and sign == "="):
        capitals = line[start:end].isupper() and sign in ("=", ":")
        quoted = mark[0] == "auth" and line[first - 1 : first] in ("'", '"')
        named = _QUALIFIED.fullmatch(prefix) is not None
        if HARMLESS.search(prefix):
            return None
        by_value = not named and (many or not (flag or capitals or quoted))
    if in_url and sign == "=" and not by_value:
        match = _PARAMETER.match(line, behind.end())
        return match.span() if match else None
    quote = line[first - 1 : first] if first else ""
    if sign == "=" and quote in ("'", '"') and behind[0].lstrip()[:1] == "=":
        closed = line.find(quote, behind.end())  # `"NAME=two words"`
        closed = closed if closed >= 0 else len(line)
        value = line[behind.end() : closed]
        return None if is_nothing(value) else (behind.end(), closed)
    if by_value:
        bare = behind[0] == "=" and not (prefix or many) and mark[0] in _GIVEN_BY
        return _by_its_form(line, behind.end(), bare=bare, many=many) if sign else None
    if many and _COUNT.match(line, behind.end()):
        return None
    is_labelled = sign in (":", "->", "→")
    setting = is_labelled and _is_setting(line, first, end)
    span = _value(line, behind.end(), word=not is_labelled, setting=setting, gap=not sign)
    if span is None or (many and sign):
        return span and (span[0], _end_of_listed(line, span[1]))
    if not flag or sign or not _LISTS.fullmatch(line, first, ends.end()):
        return span
    return span[0], _end_of_list(line, span[1], many=many)


def _by_its_form(line: str, at: int, *, bare: bool, many: bool) -> tuple[int, int] | None:
    """The value behind a name that may be anything's, if its form is that of a secret; with `many`
    also those after it."""
    if bare and (given := _GIVEN.match(line, at)):
        return given.span()
    first = made(line, at)
    while many and first and (more := _NEXT.match(line, first[1])):
        if not made(line, more.start("value")):
            break
        first = first[0], more.end("value")
    return first


def _is_setting(line: str, first: int, end: int) -> bool:
    """Whether a name is written as one of a program, or begins its line."""
    name = line[first:end]
    written = "_" in name or "-" in name or name.isupper() or not (name.islower() or name.istitle())
    return (written and " " not in name) or _BEGUN.fullmatch(line, 0, first) is not None


def _end_of_listed(line: str, at: int) -> int:
    """Where the last of several values ends that stand behind a sign, with commas between."""
    if line[at - 1] == "," and _NEXT.match(line, at - 1):
        at -= 1
    while (more := _NEXT.match(line, at)) is not None and not is_nothing(more["value"]):
        if more["value"].isalpha() and more["value"].islower():
            break
        at = more.end("value")
    return at


def _end_of_list(line: str, at: int, *, many: bool) -> int:
    """Where the last value of a flag ends that takes several. Behind a flag in the singular what
    looks like a word is one of a sentence."""
    if line[at - 1] == "," and line[at : at + 1] not in ("'", '"'):
        return at
    while (more := _MORE.match(line, at)) is not None:
        value = more["value"]
        if value != HIDDEN and (is_nothing(value) or (not many and value.isalpha())):
            break
        at = more.end("value")
    return at


def _value(line: str, at: int, *, word: bool, setting: bool, gap: bool) -> tuple[int, int] | None:
    """Where the value that begins at a place ends; None if it says nothing. `word`: a word may be
    one; `setting`: it may if it stands alone and is none of a state."""
    match = _VALUE.match(line, at)
    if match is None:
        return None
    start, end = match.span(match.lastgroup or "plain")
    value = line[start:end]
    if match.lastgroup == "plain":
        if _OPENED.match(value):  # what is inside has names of its own
            return None
        listed = line[at - 2 : at] == ", " and value.startswith("-")
        if gap and (listed or is_prose(value) or is_flag(value.partition("=")[0].rstrip("\"',"))):
            return None
        if not word and _BARE.match(line, at):  # after a colon a word is prose
            alone = _LONE if line[at - 1] in " \t" else _BARE
            lone = alone.match(line, at) if setting else None
            return lone.span(1) if lone and lone[1] not in STATES else None
        if not gap and value[:1] in "\"'":
            start += 1
    return None if is_nothing(value) else (start, end)


def _queries(line: str) -> Iterator[tuple[int, int]]:
    """The values in the queries of a line's URLs: any but a switch or a small number may let its
    reader in."""
    for address in _QUERY.finditer(line):
        start, end = address.span("query")
        end = start + len(line[start:end].rstrip(".,;:)]}"))
        for parameter in _PARAMETERS.finditer(line, start, end):
            if not _SWITCH.fullmatch(parameter[1]):
                yield parameter.span(1)


def _paired(line: str, lower: str) -> Iterator[tuple[int, int]]:
    """The values of secret names that stand side by side with them."""
    if not _is_marked(lower) and "token'" not in lower and 'token"' not in lower:
        return
    for pair in _PAIRED.finditer(line):
        if pair["first"] is None and pair["beside"] is None and pair["inside"] is None:
            continue
        if _names_beside(pair["name"], pair["value"]):
            yield pair.span("value")


def _names_beside(name: Any, value: Any) -> bool:
    """Whether a name that stands side by side with a value is one of a secret. A weak one may be a
    word like its neighbour: there the value has to look made."""
    if not names(name, value):
        return False
    return name.lower() not in WEAK_NAMES or made(value) is not None


def _in_url(line: str, at: int) -> tuple[int, int] | None:
    """The password in front of a host, or a user's name that looks like a token."""
    match = _USER.match(line, at)
    if match is None:
        match = _LOOSE.match(line, at)
        return match.span("password") if match else None
    if match["password"] is not None:
        return match.span("password")
    name = match["name"]
    scheme = line[max(0, at - 8) : at].lower()
    looks_like_token = len(name) >= 16 or any(character.isdigit() for character in name)
    return (
        match.span("name")
        if looks_like_token and scheme.endswith(("http://", "https://"))
        else None
    )


def _behind_bearer(line: str, at: int) -> tuple[int, int] | None:
    match = _BEARER.match(line, at)
    if match is None or match["value"].lower() in _PROSE:
        return None
    value = match["value"]
    looks_like_token = len(value) >= 8 or not (value.isalpha() and value.islower())
    return match.span("value") if looks_like_token else None


def _of_header(line: str, name: str, at: int) -> tuple[int, int] | None:
    """What an `Authorization:` or `Cookie:` carries."""
    behind = _SEPARATOR.match(line, at)
    if behind is None or not behind["sign"]:
        return None
    scheme = _SCHEME.match(line, behind.end())
    start = scheme.end() if scheme else behind.end()
    if line[behind.end() : start].lower().lstrip("\\\"'").startswith("digest"):
        return start, len(line.rstrip("\"'"))  # names and values to the end of the header
    match = (_COOKIE if name == "cookie" else _CREDENTIALS).match(line, start)
    return None if match is None or is_nothing(match[0]) else match.span()


def _assigned(word: str) -> str:
    """A word of a command that sets a secret variable, or is a text with a secret in it."""
    match = _ASSIGNED.fullmatch(word)
    if match and names(match["name"], match["value"]):
        return f"{match['name']}={HIDDEN}"
    return text(word)


def _secrets(document: Any) -> Iterator[str]:
    if isinstance(document, str):
        yield from (document[start:end].strip("\"';,&|)") for start, end in _spans(document))
    elif isinstance(document, dict):
        for key, value in document.items():
            if names(key, value):
                yield value.rpartition(" ")[2] if key.lower() == "authorization" else value
            yield from _secrets(value)
    elif isinstance(document, list):
        if all(isinstance(element, str) for element in document):
            yield from _behind_flags(document)
        for value in document:
            yield from _secrets(value)


def _behind_flags(words: Sequence[str]) -> Iterator[str]:
    for word, shown in zip(words, argv(words), strict=True):
        if shown == HIDDEN:
            yield word
        elif shown != word and shown.endswith(f"={HIDDEN}"):
            yield word.partition("=")[2]


def _telling(value: str) -> bool:
    """Whether a value is unmistakable: no variable, no word of the console's own."""
    value = value.strip()
    if value.startswith(("$", "-")) or value.lower() in ("true", "false"):
        return False
    is_word = value.isalpha() and (value.islower() or value.isupper() or value.istitle())
    return len(value) >= (SHORTEST_WORD if is_word or value.isdigit() else SHORTEST)
