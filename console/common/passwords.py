"""Where well-known programs take a secret on their command line without a name that marks it.

`mysql -pX` and `docker login -p X` are secrets, `docker run -p 8080:80` and `ps -p 123` are none:
only the program tells. `console.common.redact` hides what this finds, in argv and in text alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from console.common.patterns import lazy
from console.common.secrets.sentences import STATES, is_prose

MAX_WORDS = 48
"""Words behind a program's name in a text that are read as its command line."""


@dataclass(frozen=True, slots=True)
class _Takes:
    """How a program is given a secret: behind one of `flags`, or as a word without any.

    `behind`: only what follows this sign is secret, and without the sign nothing is. `command`: the
    word of the program that has to come before. `place`: which word behind it is the secret.
    `attached`: never as a word of its own. `first`: only before the first word that is no flag and
    stands behind none of these.
    """

    flags: str = ""
    behind: str = ""
    command: tuple[str, ...] = ()
    place: int = 0
    attached: bool = False
    first: tuple[str, ...] = ()


_LOGIN = _Takes("p", command=("login",))
_PROGRAMS: dict[str, tuple[_Takes, ...]] = {
    "sshpass": (_Takes("p", first=("-P", "-f", "-d")),),
    "curl": (_Takes("uU", ":"), _Takes("b", "=")),
    "redis-cli valkey-cli keydb-cli": (_Takes("a"),),
    "docker podman nerdctl buildah skopeo helm oras crane regctl oc az nerdctl.lima": (_LOGIN,),
    "mysql mysqldump mysqladmin mysqlimport mysqlcheck mysqlshow mysqlslap mysqlbinlog mysqlsh"
    " mysqlpump mariadb mariadb-dump mariadb-admin mariadb-import mariadb-check mariadb-show"
    " mariadb-backup mycli 7z 7za 7zr 7zz rar unrar": (_Takes("p", attached=True),),
    "snmpget snmpwalk snmpset snmpbulkwalk": (_Takes("c"),),
    "mc": (_Takes(command=("set",), place=4),),
    "mongo mongosh mongodump mongorestore mongoexport mongoimport mongostat mongotop":
        (_Takes("p"),),
    "ldapsearch ldapmodify ldapadd ldapdelete ldapwhoami ldappasswd ldapcompare": (_Takes("w"),),
    "sqlcmd bcp zip unzip zipcloak": (_Takes("P"),),
    "http https xh xhs": (_Takes("a", ":"),),
    "smbclient rpcclient smbget smbcacls": (_Takes("U", "%"),),
    "ttyd gotty": (_Takes("c", ":"),),
    "influx": (_Takes("t"),),
    "ipmitool": (_Takes("P"),),
    "doctl": (_Takes("t"),),
    "ngrok": (_Takes(command=("authtoken", "add-authtoken", "add-api-key"), place=1),),
    "wandb vault": (_Takes(command=("login",), place=1),),
    "cloudflared": (_Takes(command=("install",), place=1),),
    "htpasswd": (_Takes(command=("-b", "-cb", "-bc", "-bB", "-Bb", "-nb"), place=3),),
}  # fmt: skip
_TAKES = {name: takes for names, takes in _PROGRAMS.items() for name in names.split()}
_NAMED = lazy(
    rf"(?<![\w.:@=+-])(?:{'|'.join(sorted(map(re.escape, _TAKES), key=len, reverse=True))})"
    r"(?![\w.:/@=+-])"
)
_WORD = lazy(r"(?:\"[^\"]{0,300}\"|'[^']{0,300}'|[^\s\"'])+")
_AROUND = "\"'`,[]()"
_OPERATORS = frozenset(("|", "||", "&&", "&", ";", ">", ">>", "<", "2>&1"))
_PORTS = lazy(r"(?:[\d.]+:)?\d{1,5}(?:-\d+)?:\d{1,5}(?:-\d+)?(?:/\w+)?")
_PROSE = lazy(r"[a-z]+[.,;:!?)'\"`]*|.*(?:://|\.\.\.|…).*|[<$({\[*].*")
"""What stands behind `wandb login` in a sentence, or in its manual."""
_GROUPS = frozenset(("registry", "acr", "auth", "config", "service", "alias"))
"""Words of a program that come before its command."""

_FLAG = (
    r"--?(?:[\w.-]{0,40}[-_.])?(?:psk|pw|(?P<pin>pin)|t?otp|passcode|bearer|creds|access[-_]code|hmac"
    r"|(?:require|store|key|user|http|ftp|smtp|proxy|rpc|vnc)pass|masterauth"
    r"|root[-_]token[-_]id|(?P<made>encrypt)|(?P<pair>login|basicauth)|(?P<cookie>cookies?)|(?P<openssl>pass(?:in|out)))"
)
"""Flags of any program behind which a secret stands, if the value is none of a setting."""
_SOFT = lazy(_FLAG, re.IGNORECASE)
_FLAGGED = lazy(
    rf"(?<![\w.-]){_FLAG}(?:=|[\"']?,?\s+)(?!-|\*{{5}})"
    r"(?:\"(?P<double>[^\"]+)|'(?P<single>[^']+)|(?P<plain>[^\s\"']+))",
    re.IGNORECASE,
)
_IN_FLAGS = (
    "psk",
    "pw",
    "token",
    "encrypt",
    "pin",
    "otp",
    "pass",
    "bearer",
    "creds",
    "code",
    "hmac",
    "auth",
    "login",
    "cookie",
)
_IN_VARIABLES = ("pw=", "psk=", "pin=", "otp=", "passcode=", "sshpass=", "creds=", "hmac=")
_IN_PARAMETERS = ("code=", "verifier=", "assertion=", "ticket=", "session", "sid=")
_IN_SETTINGS = ("requirepass", "masterauth", "config set", "configure set", "'set'", '"set"')
_WITH_FLAGS = ("sshpass", "curl", "-cli", "mysql", "mariadb", "mycli", "7z", "rar", "mongo", "ldap",
               "sqlcmd", "bcp", "zip", "http", "xh", "smb", "rpcclient", "influx", "doctl", "snmp",
               "htpasswd", "ipmitool", "ttyd", "gotty")  # fmt: skip
_WITH_WORDS = ("login", "ngrok", "cloudflared", "mc alias", "'mc'", '"mc"')
_SIGNS = {"pair": ":", "cookie": "=", "openssl": "pass:"}
_VARIABLE = lazy(
    r"(?<![A-Za-z])(?:PSK|psk|PIN|T?OTP|PASSCODE|SSHPASS|CREDS|HMAC|PW|pw)=[\"']?(?P<value>[^\s\"']+)"
)
_BETWEEN = r"[\"']?,?\s+[\"']?"
_SETTING = lazy(
    rf"(?:(?:^|[\s'\"])(?:requirepass|masterauth)|\bconfig(?:ure)?{_BETWEEN}set{_BETWEEN}"
    r"[\w./:@-]{0,80}(?:access_key|session_token|_auth(?:token)?|password|secret|api[-_]?key))"
    rf"{_BETWEEN}([^\s\"']+)",
    re.IGNORECASE,
)
_PARAMETER = lazy(
    r"[?&;#](?:(?P<code>code)|code_verifier|assertion|ticket|session(?:_?id)?|sid)="
    r"(?P<value>[^&\s#\"'<>]{4,})",
    re.IGNORECASE,
)
_GENERATED = lazy(
    r"(?!(?:aes|chacha|des|rsa|sha|tls|ssl|xts)[\d-])(?=\S*\d)(?=\S*[A-Za-z])[\w+/-]{8,}={0,2}",
    re.IGNORECASE,
)
"""A key of `-encrypt`: what other programs encrypt is a file, a cipher or a switch."""
_SETTINGS = frozenset(("true", "false", "none", "null", "yes", "no", "on", "off", "0", "1"))
_CORES = lazy(r"\d{1,3}(?:[-,:]\d{1,3})*")
"""What other programs pin something to."""


def of_argv(words: Sequence[str]) -> dict[int, int]:
    """The secret words of a command: which, and from which of its characters on."""
    secret: dict[int, int] = {}
    for at, word in enumerate(words):
        takes = _TAKES.get(word.rpartition("/")[2])
        if takes is not None:
            secret.update((at + 1 + i, start) for i, start in _of_program(takes, words[at + 1 :]))
        before = f"{' '.join(words[max(0, at - 2) : at + 1])} x"
        if at + 1 < len(words) and (setting := _SETTING.search(before)) and setting[1] == "x":
            secret[at + 1] = 0
        flag, equals, value = word.partition("=")
        named = _SOFT.fullmatch(flag) if flag.startswith("-") else None
        if named is None:
            continue
        if equals and (start := _start(named, value)) >= 0:
            secret[at] = len(flag) + 1 + start
        elif (
            not equals
            and not (value := "".join(words[at + 1 : at + 2])).startswith("-")
            and (start := _start(named, value)) >= 0
        ):
            secret[at + 1] = start
    return secret


def of_text(line: str, lower: str) -> Iterator[tuple[int, int]]:
    """Where such secrets begin and end in a text; `lower` is the same text in small letters. A
    plain search for what marks them comes first, as most lines have none of it."""
    if "=" in line:
        for pattern, hints in ((_VARIABLE, _IN_VARIABLES), (_PARAMETER, _IN_PARAMETERS)):
            for match in pattern.finditer(line) if _has(lower, hints) else ():
                if not match["value"].isdigit() or len(match["value"]) > 3:
                    yield match.span("value")
    if _has(lower, _IN_SETTINGS):
        for setting in _SETTING.finditer(line):
            alone = not line[: setting.start()].strip("# ") and setting.end() == len(line)
            if alone or not _PROSE.fullmatch(setting[1]):
                yield setting.span(1)
    dashed = line[:1] == "-" or " -" in line or "'-" in line or '"-' in line or "=-" in line
    if dashed and _has(lower, _IN_FLAGS):
        for flag in _FLAGGED.finditer(line):
            begins, ends = flag.span(str(flag.lastgroup))
            start = _start(flag, line[begins:ends])
            if start >= 0 and not is_prose(line[begins:ends]):
                yield begins + start, ends
    if (dashed and _has(lower, _WITH_FLAGS)) or _has(lower, _WITH_WORDS):
        for program in _NAMED.finditer(line):
            yield from _of_command(line, program)


def _has(line: str, hints: tuple[str, ...]) -> bool:
    return any(map(line.__contains__, hints))


def _of_command(line: str, program: re.Match[str]) -> Iterator[tuple[int, int]]:
    at = program.end() + (line[program.end() : program.end() + 1] in ("'", '"', "`"))
    words, places = list[str](), list[int]()
    for token in _WORD.finditer(line, at):
        word = token[0].lstrip(_AROUND)
        if token[0] in _OPERATORS or len(words) == MAX_WORDS:
            break
        if not word:  # between the words of a list
            continue
        places.append(token.end() - len(word))
        words.append(word.rstrip(_AROUND))
        if token[0].endswith(";"):
            break
    for index, offset in _of_program(_TAKES[program[0]], words):
        word = words[index]
        if offset or not _PROSE.fullmatch(word) or _is_told(words, index):
            yield places[index] + offset, places[index] + len(words[index])


def _is_told(words: Sequence[str], index: int) -> bool:
    """Whether a word in small letters is the value of a flag, and not of a sentence: then another
    flag stands before that one."""
    word, before = words[index], words[: max(0, index - 1)]
    flagged = words[index - 1].startswith("-") and any(
        earlier_word.startswith("-") for earlier_word in before
    )
    return flagged and word.isalpha() and word not in STATES


def _of_program(takes: Sequence[_Takes], words: Sequence[str]) -> Iterator[tuple[int, int]]:
    for usage in takes:
        begin = _behind_command(usage.command, words)
        if begin is None:
            continue
        positions = _placed(usage, words, begin) if usage.place else _flagged(usage, words, begin)
        yield from positions


def _behind_command(command: Sequence[str], words: Sequence[str]) -> int | None:
    """Where the words behind a program's own command begin; None if it is another command."""
    if not command:
        return 0
    for at, word in enumerate(words):
        if word in command:
            return at + 1
        of_flag = at > 0 and words[at - 1].startswith("-")
        if not word.startswith("-") and not of_flag and word not in _GROUPS:
            return None
    return None


def _placed(usage: _Takes, words: Sequence[str], begin: int) -> Iterator[tuple[int, int]]:
    place = 0
    for at in range(begin, len(words)):
        word = words[at]
        if word.startswith("-"):
            continue
        place += 1
        if place == usage.place:
            yield at, 0
            return


def _flagged(usage: _Takes, words: Sequence[str], begin: int) -> Iterator[tuple[int, int]]:
    """Behind `-p` as the next word or attached, and at the end of a cluster (`-sp X`)."""
    waits = False
    for at in range(begin, len(words)):
        word = words[at]
        if waits:
            waits = False
            yield from _secret(usage, at, word, 0)
            continue
        if usage.first and not word.startswith("-") and words[max(0, at - 1)] not in usage.first:
            return
        if len(word) < 2 or word[0] != "-" or word[1] == "-":
            continue
        if word[1] in usage.flags and len(word) > 2:
            yield from _secret(usage, at, word, 3 if word[2] == "=" else 2)
        elif word[-1] in usage.flags and word[1:].isalpha() and len(word) <= 5:
            waits = not usage.attached


def _secret(usage: _Takes, at: int, word: str, start: int) -> Iterator[tuple[int, int]]:
    if usage.behind:
        sign = word.find(usage.behind, start)
        if sign < 0 or (usage.behind == ":" and word[sign + 1 : sign + 3] == "//"):
            return
        start = sign + 1
    if start < len(word) and not _PORTS.fullmatch(word, start):
        yield at, start


def _start(flag: re.Match[str], value: str) -> int:
    """From which of its characters on the value of a flag is secret; -1 for none."""
    if not value or (flag["pin"] and _CORES.fullmatch(value)) or value.lower() in _SETTINGS:
        return -1
    if flag["made"] and not _GENERATED.fullmatch(value):
        return -1
    sign = next((sign for name, sign in _SIGNS.items() if flag[name]), "")
    at = value.find(sign)
    start = at + len(sign)
    if at < 0 or (flag["openssl"] and at) or value.startswith("//", start):
        return -1
    return start if start < len(value) else -1
