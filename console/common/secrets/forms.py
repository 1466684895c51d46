"""Secrets that are known by their own form, whatever stands around them: tokens of services,
addresses of webhooks, hashes of passwords, and a user with a password in base64."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator

from console.common.patterns import lazy

_SHAPES = lazy(
    r"(?<![A-Za-z0-9])(?:hf_(?=[A-Za-z]*[A-Z0-9])[A-Za-z0-9]{12,}|sk-(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{4,}|sk-[A-Za-z0-9_-]{16,}"
    r"|gh[opusr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|xox[abeoprs]-[\w-]{10,}"
    r"|nvapi-[\w-]{16,}|(?:gsk|npm|r8|rpa|dop_v1|dckr_pat|[sr]k_live|whsec|lsv2_pt)_[\w-]{16,}"
    r"|(?:glrt|gldt|xai|pplx|csk|tvly|tskey)-[\w-]{16,}|pypi-Ag[\w-]{16,}|(?:pypi|pplx)-(?=[a-z_-]*[A-Z0-9])(?=[a-z0-9_-]*[A-Z])(?=[A-Za-z_-]*\d)[\w-]{10,}|SG\.[\w-]{16,}\.[\w-]{16,}"
    r"|(?:[rs]k_test|shpat|glsa|lin_api|tgp_v1|jina|syt)_\w{16,}|hvs\.[\w-]{16,}|dapi[0-9a-f]{32}"
    r"|xapp-\d-[\w-]{16,}|ATATT3[\w=-]{16,}|AGE-SECRET-KEY-1[A-Z0-9]{20,}"
    r"|eyJhdXRocyI6[\w+/=-]{8,}|LS0tLS1CRUdJTi(?!BDRVJU)[\w+/=-]{16,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{12,}|AIza[\w-]{24,}|ya29\.[\w-]{8,}"
    r"|eyJ[\w-]{6,}\.[\w-]{6,}(?:\.[\w-]*)?)"
    r"|(?<!\d)\d{8,10}:AA[\w-]{30,}"
    r"|(?<=hooks\.slack\.com/services/)[\w/]+|(?<=hooks\.slack\.com/workflows/)[\w/]+"
    r"|(?<=ntfy\.sh/)(?=[\w-]*\d)[\w-]{12,}|(?<=/api/webhooks/)[\w/-]+"
    r"|(?<=/webhook/)[\w@-]{20,}[\w@/.-]*|(?<=/webhookb2/)[\w@/.-]+"
    r"|\$(?:apr1|argon2\w{1,2}|2[abxy]|y|[156])\${1,2}[\w./$=,+-]{16,}"
)
"""Secrets that are known by their own form."""
_SHAPED = (
    "hf_", "sk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "hub_pat", "glpat-", "xox", "nvapi-",
    "gsk_", "npm_", "r8_", "rpa_", "dop_v1_", "dckr_pat_", "k_live_", "whsec_", "lsv2_pt_", "glrt-",
    "gldt-", "xai-", "pplx-", "csk-", "tvly-", "tskey-", "SG.", "pypi-", "AKIA", "ASIA", "AIza",
    "ya29.", "eyJ", ":AA", "hooks.slack", "/webhook", "$apr1$", "$argon2", "$2", "$y$",
    "$1$", "$5$", "$6$", "k_test_", "shpat_", "glsa_", "lin_api_", "tgp_v1_", "jina_", "syt_",
    "hvs.", "dapi", "xapp-", "ATATT3", "AGE-SECRET", "LS0tLS1CRUdJTi", "ntfy.sh/",
)  # fmt: skip
_BASIC = lazy(r"\bbasic\s{1,4}(?P<value>[a-z0-9+/]{6,1024}={0,2})(?![\w+/=-])", re.IGNORECASE)


_PGPASS = lazy(
    r"(?:(?:[\d.]{7,15}|[A-Za-z][\w.-]{0,252}|\*|/[\w./-]{1,100}):(?:\d{2,5}|\*)"
    r"(?::(?:[A-Za-z_][\w.-]{0,62}|\*)){2}:)"
    r"(?P<value>[^\s:]{4,512})"
)
"""A line of a .pgpass file: host, port, database, user and password."""
_SOURCE = lazy(r"[^:]*\.(?:py|pyx|cc?|cpp|cuh?|cxx|go|h|hpp|js|rs|ts):", re.IGNORECASE)
_LEVEL = lazy(r":(?:debug|info|warn|warning|error|critical|notice|trace)(?=:)", re.IGNORECASE)
"""What a logger puts into such a row: `server.py:42:main:INFO:ready`."""


def of_text(line: str, lower: str) -> Iterator[tuple[int, int]]:
    """Where such secrets begin and end; `lower` is the line in small letters."""
    word = line.rpartition(" ")[2]
    row = _PGPASS.fullmatch(word) if word.count(":") == 4 else None
    if row and not (_SOURCE.match(word) or _LEVEL.search(word)):
        begin = len(line) - len(word)
        yield begin + row.start("value"), begin + row.end("value")
    if any(map(line.__contains__, _SHAPED)):
        yield from (match.span() for match in _SHAPES.finditer(line))
    if "basic" in lower:
        yield from (
            match.span("value") for match in _BASIC.finditer(line) if _is_pair(match["value"])
        )


def _is_pair(value: str) -> bool:
    """Whether a word is the base64 of `user:password`: any other word may follow `basic`."""
    try:
        decoded = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return False
    return b":" in decoded and decoded.decode("utf-8", "replace").isprintable()
