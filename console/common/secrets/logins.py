"""Passwords beside their user, and keys in the settings and commands of servers and tools: what no
name directly before them marks.

One table says how. `console.common.redact` hides what it finds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from console.common.secrets import hints
from console.common.secrets.sentences import STATES, Clues

_WHOSE = (
    r"accounting|admin|ansible|archive|auth|become|bind|bmc|db|ftp|grafana|http|idrac|ilo|imap|ipmi"
    r"|kafka|keystore|ldap|login|mail|mongo|mqtt|mysql|pg|postgres|proxy|rabbit|rabbitmq|redis|root"
    r"|rpc|sasl|smtp|sql|ssh|storage|sudo|svc|truststore|user|vnc|web|wifi|zip"
)
"""Whose `pass` or `pw` is a password: a `forward_pass` is one of a computation."""
_USER = r"\b(?:user(?:name)?|log-?in|e-?mail|account)\b"
_PASS = r"(?<![\w-])(?:pass(?:word|wd|phrase|code)?|pwd|pw)"
_STATE = "|".join(sorted(STATES))
_OPEN = r"[\"'`*]{0,3}"
_NO_STATE = rf"(?!(?:{_STATE})(?![\w!@#$^&+-])|\d{{1,3}}(?!\S)|[$%{{<\[(*]|:?//|\\?n?[\"'])"
_ANY = rf"{_OPEN}(?P<value>{_NO_STATE}[^\s\"'`,;|)*]{{3,256}})"
_ALONE = (
    rf"{_OPEN}(?P<value>{_NO_STATE}[^\s\"'`,;|)*]{{3,256}}"
    r"(?=[\"'`*]{0,3}(?:\s*$|[,;|)]|\s{1,4}[\w-]{2,24}\s?[=:])))"
)
"""A value behind which nothing of a sentence follows."""
_MIXED = (
    rf"{_OPEN}(?P<value>{_NO_STATE}(?!0x|/|~|https?:)(?=[^\s\"'`]{{0,256}}\d)(?=[^\s\"'`]{{0,256}}[a-z])"
    r"[^\s\"'`,;()<>=|*]{6,256})"
)
_MADE = r"[\"'`(]{0,2}(?P<value>(?P<made>[\w.~+/-]{8,512}={0,2}))"

_OF_PASSWORDS = (
    # `Creating a new user: me@host with password: …`, `user="admin" pass="…"`
    rf"{_USER}[^\n]{{1,120}}?{_PASS}[\"']?\s?[:=]\s{{0,4}}(?!=){_ALONE}",
    rf"{_USER}[^\n:=]{{1,80}}?{_PASS}\s{{1,4}}{_MIXED}",
    rf"{_USER}[^\n:=]{{1,60}}?\bcreated\swith\s(?:the\s)?pass(?:word|phrase)\s{{1,4}}(?!auth|hash|prot)"
    rf"{_ALONE}",
    # `username and password (admin/…)`, `… are both …`
    r"\buser(?:name)?\s?(?:and|&|/)\s?pass(?:word)?(?:\s(?:is|are|was))?\s?[\s(\"'`:=]{1,4}"
    r"[\w.@-]{1,40}\s?/\s?(?P<value>[^\s/)\"'`,;]{3,64})",
    rf"\buser(?:name)?\sand\spassword\sare\sboth\s{_ANY}",
    # `Password for user me@host is **…**`
    rf"\bpass(?:word|phrase|code)\sfor\s(?:user\s)?\S{{1,80}}\s{{1,4}}(?:is|was)\s{{1,4}}{_MIXED}",
    # `ansible_ssh_pass=…`, `AccountingStoragePass=…`
    rf"(?<![A-Za-z0-9])(?:[\w.-]{{0,40}}[-_.])?(?:accounting)?(?:{_WHOSE})[-_.]?(?:pass|pw)[\"']?"
    rf"\s{{0,4}}[:=]\s{{0,4}}{_ANY}",
    r"\b(?:set\spassword\sfor[^=\n]{1,80}=|with\s(?:encrypted\s)?password)\s{0,4}(?:password\()?"
    r"[\"'](?P<value>[^\"']{3,256})[\"']",
    rf"\bpass(?:word|phrase|code)>\s{{0,4}}{_ANY}",
    rf"\binsecure-password\s{{1,4}}{_ANY}",
)
_OF_KEYS = (
    # `SASL_PASSWORD …`, `HF_TOKEN …`
    (("_password ", "_passwd ", "_secret ", "_token ", "_key "), (
        r"(?<![\w$-])(?-i:(?!(?:MAX|MIN|NUM|EOS|BOS|PAD|STOP|EOT|UNK|MASK|SEP|CLS)_)[A-Z][A-Z0-9]{0,30}_"
        rf"(?:[A-Z0-9]{{1,30}}_){{0,4}}(?:PASSWORD|PASSWD|SECRET|TOKEN|API_?KEY))\s{{1,8}}{_MIXED}",
    )),
    # `HfFolder.save_token('…')`
    (("_token(", "_key(", "_password("), (
        r"\b(?:save|set|store|write|use)_?(?:\w{1,12}_)?(?:token|api_?key|password)\(\s{0,4}b?"
        r"[\"'](?P<value>[^\"']{4,512})[\"']",
    )),
    (("authorized ", "rejected ", "revoked ", "expired ", "leaked ", "exposed "), (
        rf"\b(?:unauthorized|rejected|revoked|expired|leaked|exposed)\s(?:key|token)\s{{1,4}}{_MADE}",
    )),
    # `Appending key for api.wandb.ai: …`
    (("key for ", "token for "), (
        rf"\b(?:key|token)\sfor\s(?:[\w-]{{1,40}}\.){{1,5}}[a-z]{{2,12}}\s?:\s{{1,4}}{_MADE}",
    )),
    (("created", "generated", "issued", "added", "minted"), (
        r"\b(?:virtual|project|team|user|personal|shared|service)\s(?:key|token)\s"
        rf"(?:created|generated|issued|added|minted)\s?[:=]\s{{0,4}}{_MIXED}",
    )),
    (("set-var(",), (
        r"\bset-var\([\w.]{0,40}(?:key|token|secret|auth|pass\w{0,8})\)\s{1,4}str\(\s?[\"']?"
        r"(?P<value>[^\s\"')]{3,512})",
    )),
    (("secret",), (rf"\bsecret[-_]?id\b[\"']?\s?[:=]\s{{0,24}}{_MADE}",)),
)  # fmt: skip
_TABLE = (
    (("pass", "pw"), _OF_PASSWORDS),
    (("users=", "accounts=", "logins="), (
        # `EJABBERD_USERS=me@host:…`
        r"(?<![\w-])(?-i:[A-Z][A-Z0-9_]{0,40}(?:USERS|ACCOUNTS|LOGINS))=[\"']?[\w.@+-]{1,80}:"
        r"(?!\d+(?!\S)|//)(?P<value>[^\s\"',;]{3,256})",
    )),
    (("secure_link_",), (
        r"\bsecure_link_secret\s{1,8}[\"']?(?P<value>[^\s\"';$]{3,256})",
        r"\bsecure_link_md5\s{1,8}\\?[\"'][^\"'\n]{0,200}?\s(?P<value>[^\s\"'$]{3,256})\\?[\"']",
        r"\bsecure_link_md5\s{1,8}\\?[\"'](?P<value>[^\s\"'$]{3,256})\$",
    )),
    (("auth",), (
        # what a monitor of Redis shows, and what is typed there
        r"\"auth\"\s(?:\"[^\"\s]{1,64}\"\s)?\"(?P<value>[^\"\s]{3,256})\"\s*$",
        rf"^[>\s]{{0,8}}(?-i:AUTH)\s(?-i:default)\s{_ANY}\s*$",
        rf"^[>\s]{{0,8}}(?-i:AUTH)\s{_MIXED}\s*$",
    )),
    ((" code", "pin:", "pin is"), (
        r"(?<![\w-])(?:(?:otp|one-time|pairing|unlock|verification|log-?in)[-\s]code(?:\sis|\s?[:=])?"
        r"|pin(?:\sis|:))\s{1,4}[\"'`]?(?P<value>(?!0x)(?:\d{4,10}(?![\w.:/%-])|(?=\S{0,64}\d)(?=\S{0,64}[a-z])"
        r"[\w!@#$^&+-]{6,64}(?![\w./:])))",
    )),
    (("echo ", "printf "), (
        r"\b(?:echo|printf)\s{1,4}(?:-\w{1,3}\s{1,4}){0,2}[\"']?(?P<value>[^\s\"'|$`(]{3,256})[\"']?"
        r"\s{0,4}\|\s{0,4}(?:sudo\s{1,4}(?:-\w\s)?-S\b|[^|\n]{0,120}?(?:-stdin\b|\bsecret\screate\b"
        r"|--with-token\b|\bchpasswd\b|\bopenssl\spasswd\b|\bcryptsetup\b|\bhtpasswd\s-i))",
    )),
    (("$arg_", "$http_", "$cookie_"), (
        r"\$(?:arg|http|cookie)_\w{0,40}(?:key|token|auth|pass\w{0,5}|secret)\s{0,4}!?[=~]=?\*?\s{0,4}"
        r"[\"']?(?:bearer\s|basic\s)?(?P<value>[^\s\"')$]{3,256})",
    )),
    (("sec-websocket-p",), (
        r"sec-websocket-protocol[\"']?\s?[:=]\s{0,4}[\"']?bearer,\s{0,4}(?P<value>[^\s\"',]{4,4096})",
    )),
)  # fmt: skip
_ROWS = tuple(hints.row(words, *patterns) for words, patterns in _TABLE)
_KEYS = tuple(hints.row(words, *patterns) for words, patterns in _OF_KEYS)
"""Words in small letters of which a line needs one, and how the value is told. What is `made` is a
value if it looks made by a machine."""


def of_text(line: str, lower: str, clues: Clues) -> Iterator[re.Match[str]]:
    """Where a line has such values; `lower` is the line in small letters, `clues` what
    `sentences.tells` says of it."""
    yield from hints.matches(_ROWS, line, lower)
    if clues.value:
        yield from hints.matches(_KEYS, line, lower)
