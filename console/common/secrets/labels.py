"""What a line says of the secret on the lines below it: a name with a sign behind it, a title, a
sentence that announces one, the header of a table, the beginning of a private key.

`console.common.secrets.lines` asks here and waits for the value.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from console.common.patterns import lazy
from console.common.secrets import columns, frames
from console.common.secrets.names import Looks, is_flag, is_plainly, names
from console.common.secrets.sentences import KEPT_BY, OF

MAX_BLOCK, MAX_TABLE, MAX_KEY = 64, 8, 400
"""Lines after which a list or block, the table of one name, and a private key are given up."""
MAX_GAP = 6
"""Lines behind a name, with blank ones and rules, in which its one value has to come."""
MAX_USER, MAX_USER_LINE = 3, 160
"""Lines below a user's name in which their password has to come, and characters of its line."""
MAX_WRAPPED = 6
"""Lines more over which a logger wraps one value."""
MAX_LABEL = 512
"""Characters at the end of a line in which its label is looked for."""
MAX_NOUN, MAX_WORD = 100, 12
"""Characters at its end in which a word of the name has to stand, and the last word itself."""

_ENDS = frozenset(":=,\"'[({|>\\+- )}→│┃║*#：\r")
"""What a line ends with whose value may come on the next one."""
_CLOSED = frozenset(f"}}{frames.SIDES}")
"""What a line ends with whose name may stand far before its end: a record in JSON, a box."""
_LAST = frozenset((
    "earer", "EARER", "basic", "Basic", "piKey", "token", "Token", "KEY--", "*****",
    "sword", "SWORD", "ecret", "ECRET", "TOKEN", "I_KEY", "i_key", "<<EOF", "<-EOF", "<<END",
    *(f"{last} {key}" for last in "IinrtsyNRTSY" for key in ("key", "Key", "KEY")),
    *(f"{end}{sign}" for end in ("elow", "safe", "gain", "once") for sign in ".!"),
))  # fmt: skip
"""The end of a header's scheme, of a private key's first line, of a title, and of a sentence that
says what comes."""
_COMMENTS = frozenset("#;/")
"""What a comment begins with, which may be the title of the line below."""
_COMMENT = lazy(r"\s{0,64}(?:#{1,6}|//|;{1,2})\s{0,4}")
_NOUNS = (
    "key", "token", "pass", "secret", "auth", "bearer", "cookie", "credential", "pwd", "hft",
    "session", "csrf", "jwt", "pat", "sas", "sig", "sid", "basic", "-u", "user",
)  # fmt: skip
_SIGNED = lazy(
    r"(?<![\w.-])(?P<dash>-{0,2})(?P<name>[A-Za-z_.][\w.-]{1,63}"
    r"(?:\s(?i:keys?|tokens?|passwords?|secrets?))?)(?:\s(?:is|was))?"
    r"\\?[\"'`*\])]{0,4}\s{0,4}(?:[=-]>|→|:=|[:=：])\s{0,4}"
    r"(?:(?P<block>[|>][+-]?\d?)|(?P<list>\[)|(?P<table>\{)|\(|\\|(?P<quote>[\"'*])|(?:!!?\w{1,10}))?$"
)
"""`"api_key":`, `API key:`, `api_key: |`, `"tokens": [`, `export API_KEY=\\`."""
_SCHEME = lazy(
    r"(?i:(?<![\w-])authorization[\"']?\s{0,4}[:=,]\s{0,4}[\"']?)?"
    r"(?:Bearer|bearer|BEARER|Basic|basic|ApiKey|(?i:authorization[\"']?\s{0,4}[:=]\s{0,4}[\"']?token))"
    r"\s{0,4}\\?$"
)
_HEADED = lazy(
    r"(?:\w{1,20}\s){0,5}?(?P<name>[A-Za-z][\w-]{1,40}(?:\s(?i:key|token|password|secret))?)"
)
"""`Your API key`, alone in a box."""
_TITLE = lazy(_HEADED.pattern + r"(?:\s(?:for|of|to)\s[\w\s./-]{1,60})?[.:]?")
"""`# API key for the gateway`."""
_BULLET = lazy(r"[^\w\"'`<\[({-]{1,8}\s")
"""What may stand before a title: a sign, a picture."""
_ACCOUNT = lazy(r"\s{0,64}(?:machine|login|account)\s+\S+(?:\s+(?:login|account)\s+\S+)*\s*")
"""The first lines of a netrc file."""
_USER = lazy(
    r"(?:\[[\w -]{1,24}\]\s{1,4})?\W{0,16}"
    r"(?:(?:(?P<login>log-?in)|user(?:[- ]?name)?|e-?mail|account)[\"'`*]{0,3}\s{0,8}[:=]"
    r"\s{0,8}"
    r"|(?-i:USER (?=[\w.@+-]{0,40}[a-z])))[\"'`*]{0,3}[\w.@+-]{1,80}[\"'`*]{0,3},?\s{0,8}",
    re.IGNORECASE,
)
"""`login: admin`, whose password may stand below."""
_USERS, _SIGNS = ("user", "name", "login", "log-in", "mail", "account"), (":", "=", " ", "*")
"""How what stands before a user's name ends, and the signs behind that."""
_MAP = lazy(
    r"\s{0,64}map\s{1,8}[\"']?\$(?:http|arg|cookie)_(?P<name>\w{2,64})[\"']?\s{1,8}\$\w{1,64}\s{0,8}\{"
)
"""A table of nginx by a header: its keys are the values that are let in."""
_REMARK = lazy(r"\s{0,4}\((?P<remark>[^()]{1,90})\)(?P<sign>[.:：]?)$")
_KEPT = lazy(r"\b(?:save|keep|store|copy|note|write|shown?|once|again|below)\b", re.IGNORECASE)
"""What a remark behind a name says of a value that follows: `(save it, it is not shown again)`."""
_LEFT_OUT = lazy(
    r"\b(?:not?|none|unset|empty|disabled|missing|optional|required|default|env\w*|file|hidden"
    r"|masked|redacted|type|str\w*)\b",
    re.IGNORECASE,
)
"""What a remark says where no value follows: `API key: (not set)`."""
_GENERATED = lazy(
    r"\b(?i:generated|created|new|your|initial|temporary|random|default)\s{1,4}(?:\w{1,20}\s{1,4}){0,2}?"
    r"(?P<name>[A-Za-z][\w-]{1,40}(?:\s(?i:key|token|password|secret))?)\b[^:=]{0,60}$"
)
_SECRET = lazy(
    rf"(?<![\w-])(?:(?P<sure>(?:{KEPT_BY}|{OF}|unseal|recovery)[-_ ]?(?:key|token)"
    r"|(?:client|shared|jwt|signing|webhook)[-_ ]secret|pass(?:word|phrase|code)|credential)"
    r"|(?:key|token|secret))(?P<many>(?:s|\(s\))?)(?![\w-])",
    re.IGNORECASE,
)
"""What a sentence calls a secret, surely or perhaps."""
_ANNOUNCED = lazy(
    r"\b(?:copy|paste|save|store|keep|note|use|enter|following|below|here|your|new|generated|created"
    r"|shown)\b",
    re.IGNORECASE,
)
"""What a sentence says of a key or token that comes."""
_COMES = lazy(
    r"\s*(?:(?:(?:has|have)\sbeen|is|are|was|were|will\sbe)\s)?(?:now\s)?"
    r"(?:(?:auto(?:matically)?[- ])?(?:generated|created|set|reset|shown|printed|given"
    r"|issued|changed)\s?)?(?:to|as)?(?:(?:shown\s)?(?:below|here|now|follows))?"
    r"(?:\s*(?:to|when\syou)\s(?:connect|log\s?in|sign\sin|use|access|authenticate|call|reach)\b"
    r"[\w\s./-]{0,40})?\s*",
    re.IGNORECASE,
)
"""What stands between such a word and the colon where nothing but the value follows."""
_REFUSED = lazy(
    r"\b(?:invalid|unexpected|bad|wrong|incorrect|unknown|rejected|leaked|exposed)\s(?:\w{1,20}\s)?$",
    re.IGNORECASE,
)
_BELOW = lazy(
    r"\b(?:below|following|here|next line|shown (?:again|once)|(?:copy|save|store) it)\b",
    re.IGNORECASE,
)
_NAMED = lazy(r"(?:key|token|pass|secret|credential)", re.IGNORECASE)
_STOP = lazy(r"(?<=[.!?;])\s")
_COLON = lazy(r"[:：]\s{0,4}[\"'`*]{0,3}\s{0,64}$")
_WORD = lazy(r"(?:^|[\s\[(\"',])(?P<word>--?[\w.-]{1,80})[\"']?\s{0,4}[,\\]?$")
_ITEM = lazy(r"[\[(\s]*[\"'](?P<name>[\w-]{2,64})[\"'],$")
_ENTRY = lazy(
    r"(?:^|[\s{,-])\\?[\"']?(?i:name|key)\\?[\"']?\s{0,4}[:=]\s{0,4}\\?[\"']?(?P<name>[\w.-]{2,64})\\?[\"']?,?$"
)
_ELEMENT = lazy(
    r"<(?:\w{1,20}\s{1,4}(?:key|name)=[\"'])?(?P<name>[\w.:-]{2,64})[\"']?>$"
    r"|<(?P<tag>key|name)>(?P<inner>[\w.:-]{2,64})</(?P=tag)>$"
)
"""`<password>`, `<entry key="password">`, `<key>password</key>`: the value is the next element."""
_HERE = lazy(
    r"(?:(?P<name>[A-Za-z_]\w{1,63})=\S{0,8}\s{0,2}(?:cat\s{0,2})?)<<[-~]?\s?[\"']?\w{1,20}[\"']?$"
)
"""`API_KEY=$(cat <<EOF`."""
_LISTS = lazy(r"--?(?:[\w-]*[-_])?api[-_]keys?", re.IGNORECASE)
_ANY_VALUE = "Xx1Xx1Xx1Xx1"


@dataclass(frozen=True, slots=True)
class Waits:
    """For what a stream waits: `value`, `list`, `block`, `table`, `pair`, `pem`, `rows` of a table
    in columns, the `rest` of a value that was wrapped, `login` of a netrc file, keys of a `map`, or
    what belongs to a `user`.

    `left`: for how many lines more; `indent`: of the line that began it; `least`: how a value has
    to look at least to be a secret; `shape`, `words`: the frame of that line, and its words."""

    kind: str
    left: int
    indent: int = 0
    least: Looks = Looks.ANY
    shape: str = ""
    words: str = ""
    columns: tuple[columns.Column, ...] = ()


def may_be(line: str) -> bool:
    """Whether a line may leave something to the next. A quick look for every line of a log: only
    its ends are looked at."""
    last = line.rfind(" ") + 1
    return (
        line[-1:] in _ENDS
        or line.find("-", last, last + 1) == last
        or line.find(":--", last) >= 0
        or line[-5:] in _LAST
        or ("name: " in line)
        or line[:1] in _COMMENTS
        or "machine " in line
        or "login " in line
        or columns.may_head(line)
        or (line[last - 2 : last - 1] in _SIGNS and _names_user(line[:last]))
        or line[:5] == "USER "
    )


def _names_user(begin: str) -> bool:
    return len(begin) < MAX_USER_LINE and begin.lower().rstrip(" :=*\"'`").endswith(_USERS)


def awaited(line: str) -> Waits | None:
    """What a clean line leaves to the next."""
    lower = line.lower()
    if "-----begin" in lower and "private key" in lower and "-----end" not in lower:
        return Waits("pem", MAX_KEY)
    if ("machine " in line or "login " in line) and _ACCOUNT.fullmatch(line):
        return Waits("login", MAX_GAP)
    framed = line[-1:] in _CLOSED
    if (user := _of_user(line)) is not None:
        return user
    if not any(map((lower if framed else lower[-MAX_NOUN:]).__contains__, _NOUNS)):
        return None
    frame = frames.of(line)
    bare = line[frame.start : frame.end].rstrip()
    waits = _of_header(line if columns.is_row(line) else bare) or _of_words(bare)
    if frame.boxed:
        waits = waits or _of_heading(bare)
    else:
        waits = waits or _of_remark(bare) or _of_sentence(bare) or _of_title(line, bare)
    waits = waits or _of_end(bare)
    return waits and replace(waits, shape=frame.shape, words=bare[:MAX_LABEL])


def _of_user(line: str) -> Waits | None:
    """The same for a user's name that has its line for itself."""
    if len(line) >= MAX_USER_LINE or not any(map(line.lower().__contains__, _USERS)):
        return None
    frame = frames.of(line)
    bare = line[frame.start : frame.end].rstrip()
    user = _USER.fullmatch(bare)
    if user is None:
        return None
    least = Looks.MIXED if user["login"] else Looks.RANDOM
    return Waits("user", MAX_USER, least=least, shape=frame.shape, words=bare)


def _of_words(bare: str) -> Waits | None:
    """What the words of a line leave to the next."""
    end = bare[-MAX_LABEL:]
    indent = len(bare) - len(bare.lstrip(" -"))
    if _SCHEME.search(end):
        return Waits("value", MAX_GAP, indent)
    if (entry := _ENTRY.search(end)) and names(entry["name"], _ANY_VALUE):
        return Waits("table", MAX_TABLE, indent, _least(entry["name"]))
    if signed := _SIGNED.search(end):
        return _behind(signed, indent)
    if (word := _WORD.search(end)) and word["word"] in ("-u", "--user", "--proxy-user"):
        return Waits("pair", 1, indent)
    if word and is_flag(word["word"]):
        return Waits("list" if _LISTS.fullmatch(word["word"]) else "value", MAX_BLOCK, indent)
    if (item := _ITEM.fullmatch(end)) and names(item["name"], _ANY_VALUE):
        return Waits("value", 1, indent, _least(item["name"]))
    if end.endswith(">") and (element := _ELEMENT.search(end)):
        return _named(element["name"] or element["inner"])
    if "<<" in end and (here := _HERE.search(end)):
        return _named(here["name"])
    if end.endswith("{") and (table := _MAP.fullmatch(end)) and names(table["name"], _ANY_VALUE):
        return Waits("map", MAX_BLOCK, indent)
    return None


def _of_heading(bare: str) -> Waits | None:
    """The same for what stands alone in a box: a name needs no sign there."""
    heading = _HEADED.fullmatch(bare.strip())
    return _named(heading["name"]) if heading else None


def _of_header(bare: str) -> Waits | None:
    """The same for the header of a table in columns."""
    secret_columns = columns.of_header(bare)
    return Waits("rows", MAX_BLOCK, columns=secret_columns) if secret_columns else None


def _of_title(line: str, bare: str) -> Waits | None:
    """The same for what stands alone without a box: a name in a comment, or a name on a line of its
    own, behind which only what looks made is a value."""
    comment = _COMMENT.match(line)
    words = _BULLET.sub("", _COMMENT.sub("", bare.strip(), count=1), count=1)
    title = _TITLE.fullmatch(words) if len(words) <= MAX_NOUN else None
    waits = _named(title["name"]) if title else None
    if waits is None or comment is not None:
        return waits
    return replace(waits, least=max(waits.least, Looks.MADE))


def _of_remark(bare: str) -> Waits | None:
    """The same for words with a remark behind them, and perhaps a colon behind that."""
    end = bare[-MAX_LABEL:]
    remark = _REMARK.search(end)
    if remark is None:
        return None
    before, kept = end[: remark.start()], _KEPT.search(remark["remark"])
    if _LEFT_OUT.search(remark["remark"]) and not kept:
        return None
    if signed := _SIGNED.search(before):
        return _behind(signed, 0)
    if remark["sign"] in (":", "：") and before:
        return _of_words(f"{before}:") or _of_sentence(f"{before}:")
    match = _GENERATED.search(before) if kept else None
    return _named(match["name"]) if match else None


def _of_sentence(bare: str) -> Waits | None:
    """The same for a sentence that ends with a colon and names a secret within."""
    end = bare[-MAX_LABEL:]
    colon = _COLON.search(end)
    sentence = _STOP.split(end[: colon.start()])[-1] if colon else ""
    secret = _secret_of(sentence)
    if secret is None:
        return None
    announced = _ANNOUNCED.search(sentence) is not None
    if not (secret["sure"] or announced):
        return None
    least = Looks.RANDOM
    if secret["sure"] and _COMES.fullmatch(sentence, secret.end()):
        least = Looks.ANY
    elif not (secret["sure"] or secret["many"]):
        least = Looks.MADE
    if secret["many"]:
        return Waits("list", MAX_BLOCK, least=max(least, Looks.MIXED))
    return Waits("value", MAX_GAP, least=least)


def _of_end(bare: str) -> Waits | None:
    """The same without the colon: only what is surely no word is a value."""
    sentence = bare[-MAX_LABEL:].rstrip(".! ")
    if not (_NAMED.search(sentence[-MAX_WORD:]) or _BELOW.search(sentence)):
        return None
    secret = _secret_of(sentence)
    if secret is None:
        return None
    after = sentence[secret.end() :]
    ends = not after and (secret["sure"] or _REFUSED.search(sentence, 0, secret.start()))
    below = secret["sure"] and _BELOW.search(after)
    return Waits("value", MAX_GAP, least=Looks.RANDOM) if ends or below else None


def _secret_of(sentence: str) -> re.Match[str] | None:
    """The last word of a sentence that is surely a secret's, or else perhaps."""
    secrets = [*_SECRET.finditer(sentence)]
    return next(
        (secret for secret in reversed(secrets) if secret["sure"]), secrets[-1] if secrets else None
    )


def _least(name: str) -> Looks:
    return Looks.ANY if is_plainly(name) else Looks.MADE


def _named(name: str) -> Waits | None:
    name = name.replace(" ", "_")
    if not names(name, _ANY_VALUE):
        return None
    return Waits("value", MAX_GAP, least=Looks.MADE if name.endswith("s") else _least(name))


def _behind(signed: re.Match[str], indent: int) -> Waits | None:
    name = signed["name"].replace(" ", "_")
    many = name.lower().endswith("s")
    if not (names(name, _ANY_VALUE) or (signed["dash"] and is_flag(f"--{name}"))):
        return None
    least = Looks.ANY if signed["dash"] else _least(name)
    if many and " " in signed["name"]:  # `API keys:` of words may be followed by whose they are
        least = max(least, Looks.MIXED)
    if signed["table"]:
        return Waits("table", MAX_TABLE, indent, least)
    if signed["block"]:
        return Waits("block", MAX_BLOCK, indent, least)
    if signed["list"] or many:
        return Waits("list", MAX_BLOCK, indent, least)
    return Waits("value", MAX_GAP, indent, least)
