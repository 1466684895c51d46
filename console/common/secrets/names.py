"""Which names are those of a secret, and which values may be one: `API_KEY`, not `eos_token`.

`console.common.redact` hides what stands behind such a name.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Any

from console.common.patterns import lazy
from console.common.secrets.sentences import KEPT_BY, OF

HIDDEN = "*****"

# A name ends with one of these. The first are a secret by themselves, the others with a flag's
# dash, in capitals (a variable), or behind one of the words of OF.
_BY_ITSELF = (
    r"password|passwd|passphrase|pwd|secret(?![-_ ]?(?:key|token))|credential|hft"
    r"|client[-_]key[-_]data|otlp[-_](?:(?:traces|metrics|logs)[-_])?headers"
)
SURE = "|".join([_BY_ITSELF, *(rf"{of}[-_ ]?(?:key|token)" for of in KEPT_BY.split("|"))])
WEAK = r"key|token|auth(?!orization)|pass|pat|jwt|sas|signature|sig"
BY_VALUE = r"session(?:[-_]?id)?|sid|csrf"
"""Names that any value may have: only one that looks made by a machine is a secret."""
WEAK_NAMES = frozenset(("key", "token", "auth", "pass", "pat", "jwt", "sas", "signature", "sig"))
HARMLESS = lazy(
    r"(?:^|[-_.])(?:audio|bos|cache|cls|end|eom|eos|eot|fim|first|foreign|group|hash|image|index|kv"
    r"|last|mask|max|min|new|next|num|pad|parent|partition|per|primary|prompt|public|sep|sort|start"
    r"|stop|think|thinking|unk|video)[-_.]$"
)
"""What stands before `token` or `key` where it is a token of a text, or a key of a table."""
_PATH = lazy(
    r"[\"']?(?:~|\.{0,2})/[\w./@+-]*(?:\.(?:pem|key|crt|cer|cert|p12|pfx|der|txt|json|ya?ml|conf)"
    r"|(?<=/)(?:run|secrets|etc|proc)/[\w./-]+)[\"',;)]*"
)
_NOTHING = frozenset({
    "none", "null", "nil", "true", "false", "yes", "no", "on", "off", "0", "1", "undefined", "",
    "unset", "optional", "required", HIDDEN,
    # it stands on the next line
    "|", "|-", "|+", ">", ">-", ">+", "\\", "!!str", "bearer", "basic",
    "│", "┃", "║", "*", "#", "generated", "below", "->", "=>", "→",
})  # fmt: skip
_FLAG = lazy(
    rf"--?(?P<before>(?:[\w.-]*[-_.])?(?:{OF})?)(?:(?P<sure>(?:{SURE})s?)|(?:{WEAK}))(?:_?\d{{1,3}})?",
    re.IGNORECASE,
)
_PLAINLY = lazy(
    rf"(?:.*[-_. ])?(?:(?:{SURE})|(?:{OF}|{KEPT_BY})[-_. ]?(?:key|token|secret|auth|pass))s?",
    re.IGNORECASE,
)
BY_VALUES = lazy(BY_VALUE)
_MADE = lazy(
    r"(?:\\?[\"']|[\[(]\s{0,8}\\?[\"']?)?(?!0[xX])(?P<value>[\w.~+/-]{8,}+={0,2}+)(?![\w.~+/=-])",
    re.ASCII,
)
_EDGES, _TURNS = lazy(r"(?=[A-Za-z][0-9]|[0-9][A-Za-z])"), lazy(r"(?=[a-z][A-Z])")
MIN_EDGES, MIN_MADE, MIN_TURNS, MAX_MADE = 3, 20, 5, 256
"""How often letters and digits meet in a value that looks made by a machine: in `Float32Array`, a
token of a text, it is twice. A longer one needs one such place, or so many small letters in front
of capitals: more than a name in a program has."""
_PLAIN_NAMES = frozenset({"key", "auth", "pass", "pat", "sas", "sig", "signature"})
"""Names of data that are a secret only in capitals (a variable)."""


def names(name: Any, value: Any) -> bool:
    """Whether a name is one of a secret, and its value holds one."""
    if not isinstance(name, str) or not isinstance(value, str) or is_nothing(value):
        return False
    lower = name.lower()
    if BY_VALUES.fullmatch(lower) or (lower in _PLAIN_NAMES and not name.isupper()):
        return made(value) is not None
    return "authorization" in lower or lower in ("cookie", "set-cookie") or is_flag(f"--{name}")


def is_flag(word: str) -> bool:
    """Whether a flag is followed by a secret: `--api-key`, not `--api-key-file`, `--bos-token`."""
    match = _FLAG.fullmatch(word) if word.startswith("-") else None
    if match is None:
        return False
    return match["sure"] is not None or not HARMLESS.search(match["before"])


def is_plainly(name: str) -> bool:
    """Whether a name is that of a secret whatever stands behind it, a word too."""
    lower = name.lower()
    header = "authorization" in lower or lower in ("cookie", "set-cookie")
    return header or name.isupper() or _PLAINLY.fullmatch(name) is not None


def is_nothing(value: str) -> bool:
    """Whether a value is no secret: a word of a setting, or where a file with one lies."""
    if value.startswith(('\\n"', '\\r\\n"')):  # the end of a record's message, in JSON
        return True
    bare = value.strip("\"',;)]}([{ ")
    return bare.lower() in _NOTHING or _PATH.fullmatch(value) is not None


def made(line: str, at: int = 0) -> tuple[int, int] | None:
    """Where a value stands that looks made by a machine: no token of a text, no word, number or
    address. Of a long one the beginning decides."""
    match = _MADE.match(line, at)
    if match is None or is_nothing(match["value"]):
        return None
    value = match["value"][:MAX_MADE]
    edges, turns = len(_EDGES.findall(value)), len(_TURNS.findall(value))
    mixed = not (value.islower() or value.isupper())
    long = mixed and len(value) >= MIN_MADE and (edges > 0 or turns >= MIN_TURNS)
    return match.span("value") if edges >= MIN_EDGES or long else None


class Looks(IntEnum):
    """How much a value looks like a secret: `MIXED` has letters and digits, `MADE` looks made by a
    machine or a careful person, `RANDOM` is surely neither a word nor the name of a model."""

    ANY = 0
    MIXED = 1
    MADE = 2
    RANDOM = 3


_MIXED = lazy(r"(?!0[xX])(?=[^\d]*\d)(?=[^A-Za-z]*[A-Za-z])[^\s/]{6,512}")
_STRONG = lazy(r"(?=.*[!@#$%^&*?+])(?=.*\d)(?=.*[A-Za-z])[^\s/<>()|]{10,64}")
_RANDOM = lazy(
    r"(?:^|[^A-Za-z0-9])(?=[A-Za-z]*\d)(?=[A-Z0-9]*[a-z])(?=[a-z0-9]*[A-Z])[A-Za-z0-9]{16,512}"
    r"|(?=\d*[a-f])(?=[a-f]*\d)[0-9a-f]{32,128}$"
)
_VARIABLE = lazy(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")


def looks(value: str) -> Looks:
    """How much a value looks like a secret."""
    strong = _STRONG.fullmatch(value) is not None
    if strong or _RANDOM.match(value) or _RANDOM.search(value[:MAX_MADE]):
        return Looks.RANDOM
    if made(value) is not None:
        return Looks.MADE
    return Looks.MIXED if _MIXED.fullmatch(value) and not _FILE.search(value) else Looks.ANY


_FILE = lazy(r"\.[a-z]{1,6}$|^v?\d+\.\d")


def is_name(value: str) -> bool:
    """Whether a value is itself the name of a variable, as in a list of those that are missing."""
    return _VARIABLE.fullmatch(value) is not None
