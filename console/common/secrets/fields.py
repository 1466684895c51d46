"""Secrets in a field beside their label, wherever a program lays fields out: in the columns and
bars of a table, in brackets, in markup, as a pair, and in the conditions of a proxy.

One table says how. `console.common.redact` hides what it finds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from console.common.patterns import lazy
from console.common.secrets import hints
from console.common.secrets.sentences import KEPT_BY, OF

_BEGINS = r"(?:(?<![A-Za-z])|(?-i:(?<=[a-z])(?=[A-Z])))"
"""Where a word of a name begins: `api` in `openai-api-key` and `Key` in `apiKey`."""
_LABEL = (
    rf"{_BEGINS}(?:(?:{KEPT_BY}|{OF})[-_. ]?(?:key|token)|pass(?:word|phrase|wd|code)|secret"
    r"|credential)(?:s|\(s\))?(?![\w-])"
)
_FOREIGN = (
    r"密码|密钥|口令|令牌|パスワード|비밀번호|passwort|kennwort|contraseña|mot de passe|пароль"
)
_CLOSED = r"[\"'`*_)\]]{0,4}"
_UNIT = (
    r"(?:[kmgt]?i?b(?:it)?|[mnu]s|s|sec|min|h|d|days?|hours?|tok|tokens?|reqs?|requests?|[rt]p[ms])"
)
_FIGURE = (
    rf"(?!0x|\d{{4}}-\d\d-\d\d|\d\d:\d\d:|[\d.,]+{_UNIT}?(?:/{_UNIT})?(?![\w-])|v\d+\.\d"
    r"|sha\d{3}|md5|https?:|~/|[$%])"
)
_OPENED = (
    r"(?:[\"'`*\[({]|\\(?=[\"'])|[bru](?=[\"'])|(?:some|default|current|value|env|secret\w{0,8})"
    r"(?:\(|[:=]?\s))"
)
_VALUE = (
    rf"{_OPENED}{{0,6}}(?P<value>{_FIGURE}(?=[^\s\"'`,;()<>{{}}\[\]|│┃]{{0,512}}\d)"
    r"(?=[^\s\"'`,;()<>{}\[\]|│┃]{0,512}[a-z])(?!/?(?:[\w.-]{1,64}/){1,16}[\w.-]{1,64}\.[a-z]{2,5}\b)"
    r"[^\s\"'`,;()<>{}\[\]|│┃]{6,512})"
)
"""Letters and digits in one word: no figure with its unit, time, digest, address or file."""
_BETWEEN = (
    r"(?:\s{0,64}[|│┃║]\s{0,64}(?:(?:str|string|text|secret)\s{0,64}[|│┃║]\s{0,64})?"  # a table
    r"|\s{2,64}"  # columns
    r"|\s{0,4}(?=[\[(])"  # brackets
    r"|[;,](?=\S)"  # separated values
    r"|\s{0,8}:\s{0,8}(?:[|>][+-]?|!!?\w{1,10}|&\w{1,10})\s{1,8})"  # YAML
)
_GIVEN = r"(?P<value>(?![$%{<*]|:?//)[^\s\"'<>]{1,512})"
_NAME = r"(?P<name>[\w.-]{2,64})"
_IS = r"\\?[\"']?\s{0,8}[:=]\s{0,8}b?\\?[\"']?"
_TEXT = r"(?P<value>[^\s\"'\\,;)}&<>|]{1,4096}|(?<=[\"'])[^\"'\\]{1,4096})"

_TABLE = tuple(hints.row(words, pattern) for words, pattern in (
    # `| API key | … |`, `API_KEY    …`, `API key […]`, `api_key (default: …)`, `api_key: >- …`
    (("",), rf"{_LABEL}{_CLOSED}{_BETWEEN}{_VALUE}"),
    # `{"Name": "API_KEY", "Value": "…"}`, `EnvVar(name='…', value='…')`, `<add key="…" value="…"/>`
    (('value"', "value'", "value=", "value:"),
     rf"\b(?:name|key){_IS}{_NAME}\\?[\"']?\s{{0,4}}[,;]?\s{{0,8}}\\?[\"']?value{_IS}{_TEXT}"),
    (('value"', "value'", "value=", "value:"),
     rf"(?<![\w-])value{_IS}{_TEXT}\\?[\"']?\s{{0,4}}[,;]?\s{{0,8}}\\?[\"']?(?:name|key){_IS}{_NAME}"),
    # `- value: …`, whose name stands on the next line: only what is surely no word
    (("value\"", "value:"),
     r"^\s{0,40}[-{,]\s{0,4}\\?[\"']?value\\?[\"']?\s{0,4}:\s{0,4}\\?[\"']?(?P<value>(?P<random>"
     r"[\w.~+/-]{16,512}={0,2}))\\?[\"']?,?\s{0,8}$"),
    # `"api_key": {"type": "…", "value": "…"}`; a token of a text has no `value`
    (('value"', "value'"),
     rf"\\?[\"']{_NAME}\\?[\"']\s{{0,8}}:\s{{0,8}}\{{[^{{}}]{{0,300}}?\\?[\"']value\\?[\"']\s{{0,8}}:"
     r"\s{0,8}\\?[\"'](?P<value>[^\"'\\]{1,4096})"),
    # `{"loc": ["body", "api_key"], "msg": "…", "input": "…"}`, what pydantic repeats of a request
    (('loc"', "loc'", 'loc\\"'),
     rf"\bloc\\?[\"']\s{{0,4}}:\s{{0,4}}[\[(][^\])]{{0,300}}?\\?[\"']{_NAME}\\?[\"'](?:,\s{{0,4}}\d{{0,6}})?"
     r"\s{0,4}[\])][^{}]{0,500}?\binput\\?[\"']\s{0,4}:\s{0,4}[\[(]?\s{0,4}\\?[\"'](?P<value>[^\"'\\]{1,4096})"),
    # `<meta name="api-key" content="…">`
    (('content="', "content='"),
     rf"<meta\s{{1,4}}name=[\"']{_NAME}[\"']\s{{1,4}}content=[\"'](?P<value>[^\"'<>]{{1,4096}})"),
    # `Digest username="…", response="…"`
    (('response="',), r"\bresponse=\"(?P<value>(?=[^\"]*\d)[\w+/=-]{8,512})\""),
    # `basicauth.users=admin:…`
    (("auth.users=", "auth.users:", 'auth.users"'),
     r"auth\.users[\"']?\s{0,4}[=:]\s{0,4}[\"']?[\w.@-]{1,64}:(?P<value>[^\s\"'<>]{1,4096})"),
    # `<password>…</password>`, `<entry key="password">…</entry>`
    (("</",),
     r"<(?:\w{1,20}\s{1,4}(?:key|name)=[\"'])?(?P<name>[\w.:-]{2,64})[\"']?>"
     r"(?P<value>[^<>]{1,4096})</"),
    # `auth=('admin', '…')`, `BasicAuth(login='admin', '…')`
    (("('", '("', "['", '["', "='", '="'),
     r"(?:auth|login|credentials)[\"']?\s{0,4}[:=]?\s{0,4}[\[(]{1,3}(?:\w{1,20}=)?[\"']"
     r"(?!authorization)[^\"']{0,200}[\"'],\s{0,4}[\"'](?P<value>[^\"']{1,512})"),
    # `auth: admin:…`
    (("auth:", "auth=", "auth =", "auth\"", "auth'", "credentials"),
     r"(?:(?<![a-z])auth|basic_?auth|credentials)[\"']?\s{0,4}[:=]\s{0,4}[\"']?[\w.@-]{1,64}:"
     r"(?!//|[\d:]+(?!\w))" + _GIVEN),
    # `hdr(x-api-key) -m str …`, `$http_x_api_key != "…"`, `map $http_x_api_key $ok { "…" 1; }`
    (("hdr(", "header(", "cook("),
     rf"\b(?:hdr|header|cook)\(\s{{0,4}}{_NAME}\s{{0,4}}\)(?:\s{{1,4}}-(?:i|m\s{{1,4}}\w{{1,8}}))"
     rf"{{0,3}}\s{{1,4}}\\?[\"']?(?:bearer\s|basic\s)?(?!-|\}}){_GIVEN}"),
    (("$http_", "$arg_", "$cookie_"),
     rf"\$(?:http|arg|cookie)_{_NAME}(?:\s{{0,4}}!?[=~]=?\*?|\s{{1,4}}\$\w{{1,64}}\s{{1,4}}\{{)"
     rf"\s{{0,4}}[\"']?(?:bearer\s|basic\s)?{_GIVEN}"),
    (("pw:", "psk:"), rf"(?<![\w-])(?:pw|psk):\s{{0,4}}{_VALUE}"),
    (("identified by", "requirepass"),
     rf"\b(?:identified\s+by|requirepass[\"']?\s{{1,8}}(?:value:|\d\)))\s{{1,8}}[\"']?{_GIVEN}"),
    # `OPENAI_API_KEYS='…;…'`, `API_KEYS=[…,…]`: a whole list; `MAX_TOKENS=512` counts
    (("keys=", "tokens=", "passwords=", "secrets=", "credentials="),
     r"(?<![\w-])(?-i:(?!(?:MAX|MIN|NUM|N|TOTAL|STOP|SPECIAL|EOS|BOS|BAD|ADDED|NEW)_)(?:[A-Z0-9]{1,30}_)"
     r"{0,4}(?:KEYS|TOKENS|PASSWORDS|SECRETS|CREDENTIALS))=[\"'\[]?(?P<value>(?![\d.,]+(?![\w.,;-])"
     r"|true\b|false\b|[$%{<])(?:(?<=[\"'\[])[^\"'\]]{1,4096}|[^\s\"'\]]{1,4096}))"),
    # `TOKEN_HUGGINGFACE=…`, `API_KEY_OPENAI=…`
    (("_key_", "token_", "password_", "secret_"),
     r"(?<![\w-])(?-i:(?:[A-Z0-9]{1,20}_)?(?:TOKEN|API_KEY|PASSWORD|SECRET)_[A-Z0-9_]{2,30})"
     r"\s{0,4}[:=]\s{0,4}[\"']?(?P<value>(?P<made>[\w.~+/-]{8,512}={0,2}))"),
))  # fmt: skip
"""Words in small letters of which a line needs one, and how the value is laid out. What has a
`name`, too, is a secret if that is the name of one; what is `made`, if it looks made by a machine.
"""
_FIELD, *_ROWS = _TABLE
_IN_FOREIGN = lazy(rf"(?:{_FOREIGN}){_CLOSED}\s{{0,8}}[:=：|│]\s{{0,8}}{_VALUE}", re.IGNORECASE)
_FOREIGN_HINTS = tuple(_FOREIGN.split("|"))


def of_text(line: str, lower: str, *, labelled: bool) -> Iterator[re.Match[str]]:
    """Where a line has such fields. `lower` is the line in small letters; `labelled`: whether a
    word of it names a secret and one may be its value."""
    if labelled:
        yield from hints.matches((_FIELD,), line, lower)
    yield from hints.matches(_ROWS, line, lower)
    foreign = not line.isascii() or "passwort" in lower or "kennwort" in lower
    if foreign and any(map(lower.__contains__, _FOREIGN_HINTS)):
        yield from _IN_FOREIGN.finditer(line)
