"""What a line of a log says of itself: the level that it states, and the text behind the prefixes
that loggers, supervisors and containers put in front. Whoever judges a line asks here.

A program's words are not its state: `WARNING … this may lead to out of memory` ends no server.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from enum import IntEnum
from typing import Any, NamedTuple

from console.common.patterns import lazy


class Level(IntEnum):
    """How serious a line says it is; UNSAID if it says nothing."""

    UNSAID = 0
    LOW = 1
    """Information, debugging, traces."""
    WARNING = 2
    ERROR = 3


class Entry(NamedTuple):
    """A line without what stands in front of its own words."""

    text: str
    level: Level = Level.UNSAID


MAX_PREFIXES = 10
"""Prefixes taken off one line: a journal, a container, a process, a clock, a level, a place."""
MESSAGE_KEYS = ("message", "msg", "log", "event", "textPayload", "short_message", "MESSAGE", "M")
"""Where a record in JSON has its message."""
_LEVELS = {
    "trace": Level.LOW, "debug": Level.LOW, "info": Level.LOW, "notice": Level.LOW,
    "i": Level.LOW, "d": Level.LOW, "w": Level.WARNING, "warn": Level.WARNING,
    "warning": Level.WARNING, "e": Level.ERROR, "f": Level.ERROR, "c": Level.ERROR,
    "err": Level.ERROR, "error": Level.ERROR, "critical": Level.ERROR, "fatal": Level.ERROR,
}  # fmt: skip
LEVELS = r"TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERR(?:OR)?|CRITICAL|FATAL"
"""The levels as loggers write them, as a pattern."""
_DATE = r"\d{4}[-/]\d\d[-/]\d\d"
_TIME = r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
_PREFIX = lazy(
    # a syslog line of a journal: `Jun 27 22:57:42 host llama[44353]: `
    rf"(?:[A-Z][a-z]{{2}}|\d{{1,2}}月)[ ]+\d{{1,2}}[ ]{_TIME}[ ]\S+[ ][^\s:\[\]]+(?:\[\d+\])?:[ ]*"
    # brackets with a level: `[2025-01-01 10:00:00,1 E 13 13] `, `[inference][W] `
    rf"|\[[^\[\]]{{0,60}}?(?P<inside>(?<![\w=])(?:{LEVELS}|[IWEFD]))(?:[ ][^\[\]]{{0,40}})?\]:?[ ]*"
    rf"|(?:\[[A-Za-z][\w. -]{{0,30}}\][ ]?){{1,2}}(?=\[(?:{LEVELS}|[IWEFD])\])"
    # brackets with a clock: `[2025-07-29 15:06:51 TP0] `
    rf"|\[(?:{_DATE}|\d\d-\d\d)[T ]{_TIME}[^\[\]]{{0,40}}\]:?[ ]*"
    # a clock, perhaps with the host and program of a journal behind it
    rf"|\[?{_DATE}[T ]?(?:{_TIME})?(?:Z|[ ]?[+-]\d\d:?\d\d)?\]?[ ]*(?:[|:-][ ])?"
    r"(?:[\w.-]+[ ][\w.@-]+\[\d+\]:[ ])?"
    # compose: `llama-1  | `
    rf"|(?!(?:{LEVELS})\b)[\w.-]+[ ]+\|[ ]"
    # NCCL: `host:17:40 [0] `
    r"|[\w.-]+:\d+:\d+[ ]\[\d+\][ ]"
    # a process: `(EngineCore_DP0 pid=912) `, `(raylet) `, `[rank0]: `, `[56285] `, `<model> `
    r"|\([A-Za-z_][\w.:-]*(?:[ ][^()]{0,80})?\)[ ]+|\[(?:rank)?\d+\]:?[ ]*|<[\w.:/-]+>[ ]"
    # glog, also in brackets: `E0512 12:00:00.1 1 server.cc:22] `
    rf"|\[?(?P<glog>[IWEF])\d{{4}}[ ]{_TIME}[ ][^\]]{{0,60}}\][ ]*"
    # llama.cpp's clock, and its level
    r"|\d+\.\d\d\.\d{3}\.\d{3}[ ]|(?P<letter>[IWEFD])[ ]+(?=[\w ~]+[:\[(])"
    # a level in brackets: `[INFO] `
    rf"|\[[ ]?(?P<boxed>{LEVELS}|[IWEFD])[ ]?\]:?[ ]*"
    # a level: `ERROR 11-20 10:01:02 `, `INFO:root:`, `WARN[0000] `; then the place in the source
    rf"|(?P<word>{LEVELS})(?:[ ]+\d\d-\d\d[ ]{_TIME})?(?:\[\d+\])?(?:[ ]*[|:]|(?=[ \[]))[ ]*"
    r"|\[[\w./-]+\.\w{1,4}:\d+\][ ]?|[\w./-]+\.py:\d+[\]:]{1,2}[ ]?|root:|stderr[ ]\|[ ]"
    r"|time=\S+[ ]level=(?P<logfmt>\w+)[ ](?:source=\S+[ ])?(?:msg=)?"
    r"|[│┃][ ]",
    re.ASCII,
)  # fmt: skip
_LATER = lazy(
    rf"(?!.{{0,60}}NCCL WARN)(?:[^\s=:]+[ ]+){{1,4}}(?P<later>{LEVELS})(?=[ ]*[|:]|[ ])"
    rf"|[\w.-]+:[ ](?P<named>{LEVELS}):[ ]"
    rf"|.{{0,80}}?\blevel=\"?(?P<field>{LEVELS.lower()})\b"
    r"|(?:\S*?\.\w+:\d+:[ ])?(?P<warned>\w*Warning): ",
    re.ASCII,
)
"""A level behind words: a logger's name, a number; Python's `file.py:3: UserWarning: `. NCCL knows
no level above WARN: what ends it says so, too."""
_COUNTED = lazy(rf"(?:.*?\b)?(?:0|no|zero) (?:{LEVELS})\b", re.ASCII)
_LOWER = lazy(r"(?P<lower>warning|warn|info|debug): ", re.ASCII)
_BOXED_LOWER = lazy(r"\[(?P<box>trace|debug|info|warning|warn|error|critical|fatal)\][ ]*")
_PINO = {10: Level.LOW, 20: Level.LOW, 30: Level.LOW, 40: Level.WARNING, 50: Level.ERROR,
         60: Level.ERROR}  # fmt: skip


def read(line: str) -> Entry:
    """A clean line without its prefixes, and the level that it states. Of several levels the
    innermost counts: a supervisor marks whatever it reads from stderr as an error."""
    level, at = Level.UNSAID, 0
    if line.startswith('{"'):
        return _json(line)
    for prefix in _prefixes(line):
        at = prefix.end()
        level = _named(prefix, level)
    text = line[at:]
    if text.startswith('{"'):
        inner = _json(text)
        return Entry(inner.text, inner.level or level)
    if level is Level.UNSAID and (later := _LATER.match(text)) and not _COUNTED.match(text):
        level = _named(later, level)
        if later["later"]:
            text = text[later.end() :].lstrip(" :|")
    return Entry(text, level)


def words_at(line: str) -> int:
    """Where the own words of a clean line begin, behind its prefixes; 0 if it has none."""
    at = 0
    for prefix in _prefixes(line):
        at = prefix.end()
    return at


def _prefixes(line: str) -> Iterator[re.Match[str]]:
    at = 0
    for _ in range(MAX_PREFIXES):
        stripped = len(line) - len(line[at:].lstrip(" "))
        prefix = _prefix(line, stripped)
        if prefix is None or prefix.end() == stripped:
            break
        at = prefix.end()
        yield prefix


def _prefix(line: str, at: int) -> re.Match[str] | None:
    return _PREFIX.match(line, at) or _BOXED_LOWER.match(line, at) or _LOWER.match(line, at)


def _named(match: re.Match[str], before: Level) -> Level:
    group = match.lastgroup
    if group is None:
        return before
    return Level.WARNING if group == "warned" else _LEVELS.get(match[group].lower(), before)


def _json(line: str) -> Entry:
    """A line that is a JSON object: its message and its level."""
    try:
        fields: dict[str, Any] = json.loads(line)
    except (ValueError, RecursionError):
        return Entry(line)
    severity = fields.get("level", fields.get("severity", ""))
    level = _PINO.get(severity, Level.UNSAID) if isinstance(severity, int) else Level.UNSAID
    if isinstance(severity, str):
        level = _LEVELS.get(severity.lower(), Level.UNSAID)
    nested = fields.get("fields")
    places = (fields, nested if isinstance(nested, dict) else {})
    text = next(
        (place[key] for place in places for key in MESSAGE_KEYS if isinstance(place.get(key), str)),
        "",
    )
    if not text:
        return Entry(line, level)
    inner = read(text.strip()) if not text.startswith('{"') else Entry(text)
    error = fields.get("error") or fields.get("err")
    words = f"{inner.text}: {error}" if isinstance(error, str) else inner.text
    return Entry(words, inner.level or level)


# A hint stands before the words that it speaks of: `if you see OOM`, `to avoid out of memory`.
_HINT = lazy(
    r"\b(?:if (?:you|it|an?|there|exit code|the)\b[^.;!?]*|(?:in (?:case|the event) of"
    r"|(?:may|might|could|can|would)(?! ?not|')(?: \w+)? (?:lead to|cause|result in|run|trigger"
    r"|return|give|produce|throw|raise|report|go|hit|end in|fail with)|would be|please \w+"
    r"|sav(?:e|es|ing) from|to (?:avoid|prevent|reduce|address|handle|debug)|avoid(?:s|ing)?"
    r"|prevent(?:s|ing)?|how to"
    r"|when (?:you|it|there)|common cause|e\.g\.|such as|instead of|guards? against"
    r"|protect(?:s|ion)?|for example|risk of|recovered from)\b[^.;!?:]*)$",
    re.IGNORECASE,
)
_GUESS = lazy(
    r"\b(?:known (?:issue|bug|problem|limitation)s?"
    r"|(?:potential|possible|common|likely)(?: root)? causes?|what to do (?:on|when|if)"
    r"|(?:possible|potential|suggested|recommended|common) (?:solution|fix|workaround|remed)\w*)\b"
    r"|(?:\bwarnings\.warn|\blog(?:ger|ging)?\.(?:warn|warning|info|debug)(?:_once)?)\(",
    re.IGNORECASE,
)
"""Guesses and advice; also the source line that Python prints below a warning of its own."""
_MAY = lazy(
    r"\W*(?:errors? )?(?:may|might|could|can) (?:still )?(?:occur|happen|appear|arise|be )", re.I
)
_SETTING = lazy(
    r"\W{0,3}(?:(?:guard|protection|handl\w+|checks?|killer|polic\w+|detection|hook|retr\w+)\b)?"
    r"\W*[=:]\W*(?:true|false|on|off|yes|no|none|enabled|disabled)\W*$",
    re.IGNORECASE,
)
"""What follows words that are the name of a setting: `abort on out of memory = false`."""
_OPTION = lazy(r"\s*(?:-\w,?\s+)?--?[A-Za-z][\w-]*[\s=]|\s*[\w.-]+\s*[:=]\s*\S+\s+#\s[^#]*$")
"""How a line of a program's help begins, and the comment behind a setting."""
_NONE = lazy(
    r"(?:s|\(s\))?(?: (?:count|total|code|state|status))?\s*[:=]\s*"
    r"(?:(?:cuda|hip)?success|none|nil|no error|0(?![\dx.]))\b",
    re.IGNORECASE,
)
"""What says behind the words that there was none: `last CUDA error: cudaSuccess (0)`."""
_TERM = lazy(
    r"[ _-]?(?:watermark|threshold|score|counter|handler|polic(?:y|ies)|guard|margin)s?\b"
    r"(?! (?:was |were )?(?:called|invoked|hit|fired|triggered|exceeded|reached))"
    r"|[\"'`]? (?:messages?|lines?) |[\"'`] (?:is|are) not an? ",
    re.IGNORECASE,
)
"""What makes the words a part of a technical term, or what somebody speaks of."""
_MEMBER = lazy(
    r"\s*([\"'])(?!(?:message|msg|log|err|error|exception|detail|reason|stderr)s?\1)[\w.-]+\1\s*:"
    r"\s*[\"'][^\"']*$",
    re.IGNORECASE,
)
"""The beginning of a line of a configuration in JSON."""
_NEXT = lazy(
    r"(?:[;,.:()\]]|--?|\band|\bso)\s*(?:(?:and|so|but|now|we are|we)\s)*"
    r"(?:re-?trying|trying (?!to\b|hard)|continuing|proceeding|resuming|moving on|backing off"
    r"|(?:reduc|lower|shrink|flush|free|evict|offload|switch|halv|defer|requeue?|spill|dropp"
    r"|splitt|limit|captur|restrict|mov)ing\b"
    r"|(?:moved|reduced|lowered|limited|split|cleared|evicted|offloaded|retried)\b"
    r"|expected:|using\b[^.;]*\b(?:instead|host|cpu|system|pageable|\d+ layers)\b)"
    r"|, [\w ]+ (?:->|=>) (?:ok|fits|works)\b|;? (?:was |were |has been )?cleared\b",
    re.IGNORECASE,
)
"""What the program does next, behind the words."""
_TUNING = lazy(r"auto-?tun\w*|\btactics?\b|\bprobing\b|\brequests?\b.{0,40}\brejected\b", re.I)
"""A tuner tries what may not fit, and a request may be too large; other errors than those of
memory end the program all the same."""
_QUOTED = lazy(
    r"(?:[\"'](?:content|prompt|text|messages|input|query|arguments|role)[\"']\s*:|prompt: ['\"]"
    r"|\b(?:prompts?|messages|content)\s*=|\b(?:prompt|query|question)\s*[=:]\s*[\"'<]"
    r"|\b(?:answer|response)\s*[=:]\s*[\"'][A-Z][a-z']* "
    r"|^\s*(?:>+|(?:user|assistant|system|human):)\s|<\|(?:im_start|user|assistant|start_header_id)"
    r"|\[INST\]|<start_of_turn>).*$"
)
"""A request's own words, or those of an answer, echoed."""
_ACCESS = lazy(r"\"(?:GET|POST|PUT|HEAD|PATCH|DELETE|OPTIONS) [^\"]*HTTP/[\d.]+\" \d{3}\b")
"""A line of an access log, with an address and a user agent of somebody's choice."""
_HARMLESS = lazy(
    r"mlock|pinned memory|#retracted|decode out of memory happened"
    r"|set (?:\w+ )?(?:\w+ )?(?:priority|affinity)|numa_balancing|aborted last request|non-?fatal"
    r"|not fatal|fall(?:ing|s)? ?back|fallback|retrying|will (?:be )?retr|ignor(?:ed|ing)\b"
    r"|skip(?:ped|ping)\b|disabl(?:ed|ing)\b|recovered|was caught"
    r"|huge ?pages?",
    re.IGNORECASE,
)
_FINAL = lazy(
    r"terminate called|core dumped|traceback|panicked|aborting|cannot continue|GGML_ASSERT"
)
_ENDING = lazy(
    r"\bterminate called|core dumped|\bpanicked at|cannot continue|GGML_ASSERT"
    r"|[,;:.-]\s*(?:aborting|terminating|exiting|giving up|shutting down)"
    r"(?: (?:now|(?:the |this )?(?:process|program|server|engine|worker)))?\W*$"
    r"|\b(?:engine|worker|server|runner|scheduler|actor|process|rank|gpu|device)(?: [\w-]+){0,2}? "
    r"(?:is dead|(?:has |have )?died|crashed|is lost|was lost|was killed)\b|\bdevice lost\b",
    re.IGNORECASE,
)
"""How a line says that it is the program's last, whatever level it states."""
_DENIED = lazy(r"(?:\b(?:no|non|not|without|zero)[ -]|(?:^|[,;:(]\s*)0 )$", re.IGNORECASE)
_JOINTS = tuple("/=_-+")
_NAME = lazy(r"[\w/-]")
"""What stands before and behind words that are a part of a name: `/models/OOM-test/m.gguf`."""
GOES_ON = "the program goes on"
_NAMED_LEVEL = lazy(r"info|warn|debug|notice|trace(?!back)", re.IGNORECASE)


def names_level(pattern: str) -> bool:
    """Whether a pattern speaks of a level itself, and so means lines of that level, too."""
    return _NAMED_LEVEL.search(pattern) is not None


def is_low(line: str) -> bool:
    """Whether a clean line states a level below error, and not that the program ends."""
    return read(line).level in (Level.LOW, Level.WARNING) and not _ENDING.search(line)


def why_harmless(line: str, span: tuple[int, int]) -> str:
    """Why a clean line with fatal words at `span` is none to act on; "" if it is one."""
    return "it states a level below error" if is_low(line) else why_hint(line, span)


def why_hint(text: str, span: tuple[int, int]) -> str:
    """The same for a line whose level says nothing against it."""
    before, after = text[: span[0]], text[span[1] :]
    if _QUOTED.search(before) or _ACCESS.search(text):
        return "it repeats a request"
    if (
        _NONE.match(after)
        or _DENIED.search(before)
        or (before[-1:] in _JOINTS and _NAME.match(after))
    ):
        return "it is a name, or says that there was none"
    if _HINT.search(before) or _GUESS.search(before) or _MAY.match(after):
        return "it is a hint"
    if any(pattern.match(after) for pattern in (_SETTING, _TERM)) or any(
        pattern.match(before) for pattern in (_OPTION, _MEMBER)
    ):
        return "it is a setting"
    if _FINAL.search(text):
        return ""
    tuned = "memory" in text[span[0] : span[1]].lower() and _TUNING.search(before)
    return GOES_ON if _HARMLESS.search(text) or _NEXT.search(after) or tuned else ""
