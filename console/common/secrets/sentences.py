"""Secrets that a sentence or a line of settings tells: `Your admin key is: …`, `api_key …`.

One table says how. `console.common.redact` hides what it finds, and reads the words of secrets and
of prose here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from console.common.patterns import lazy
from console.common.secrets import hints

KEPT_BY = r"api|auth|access|account|secret|private|hf|hub"
OF = (
    r"admin|anthropic|app|azure|bearer|bot|client|csrf|dashboard|db|deploy|device|encryption"
    r"|functions|gateway|github|gitlab|huggingface|id|identity|join|jupyter|jwt|kube|license|master"
    r"|ngrok|openai|personal|proxy|refresh|registry|root|security|server|service|session|shared"
    r"|signing|slack|sso|storage|subscription|telegram|user|vault|wandb|webhook|xet"
)
"""Words before `key` or `token` that make a secret of both: those of KEPT_BY wherever they stand,
those of OF as a part of the name."""
PROSE = frozenset({
    "a", "after", "an", "and", "are", "as", "at", "be", "because", "before", "but", "by", "can",
    "cannot", "could", "did", "differ", "differs", "do", "does", "for", "from", "given", "had",
    "has", "have", "if", "in", "into", "is", "it", "its", "may", "missing", "must", "needs",
    "no", "nor", "not", "of", "on", "only", "or", "set", "should", "so", "than", "that", "the",
    "then", "there", "this", "to", "too", "unless", "until", "was", "were", "when", "where",
    "which", "while", "who", "will", "with", "without", "would",
})  # fmt: skip
"""What stands behind the name of an option in a sentence."""

STATES = PROSE | frozenset({
    "absent", "accepted", "any", "auto", "automatic", "bad", "bool", "bytes", "changed", "checked",
    "configured", "correct", "created", "default", "defined", "denied", "disabled", "empty",
    "enabled", "env", "environment", "error", "expired", "failed", "false", "file", "found",
    "generated", "given", "hidden", "ignored", "incorrect", "int", "invalid", "loaded", "lost",
    "mandatory", "masked", "mismatch", "needed", "nil", "none", "null", "object", "off", "ok",
    "omitted", "optional", "password", "present", "provided", "read", "redacted", "refused",
    "rejected", "removed", "required", "revoked", "rotated", "secret", "specified", "str",
    "string", "supplied", "text", "token", "true", "undefined", "unknown", "unset", "unused",
    "updated", "used", "valid", "wrong", "yes",
})  # fmt: skip
"""Words behind a secret's name that tell how it stands, not what it is."""


class Clues(NamedTuple):
    """`noun`: whether a line names a key, token or password; `value`: whether a word of it may be
    the value of one, too; `labelled`: whether it then names one that is secret."""

    noun: bool = False
    value: bool = False
    labelled: bool = False


_OWN = r"pass(?:word|phrase|wd|code)|secret|credential"
_STRONG = rf"(?:(?:{KEPT_BY}|{OF}|unseal|recovery)[-_ ]?(?:key|token)|{_OWN})s?\"?"
_NOUN = rf"(?:{_STRONG}|tokens?\"?)"
_VALUE = (
    r"[\"'`]?(?P<value>(?!0[xX]|https?:|~/|[\"'`<>(){}\[\]$%*])(?=[^\s\"'`]{0,512}\d)"
    r"(?=[^\s\"'`]{0,512}[A-Za-z])(?!/?(?:[\w.-]{1,64}/){1,16}[\w.-]{1,64}\.[a-z]{2,5}\b)"
    r"[^\s\"'`,;()<>]{6,512})"
)
"""Letters and digits in one word: no address, file or variable."""
_DIGIT, _LETTER = lazy(r"\d"), lazy(r"[a-z]")
MIN_VALUE, MIN_LONG = 6, 20
"""Least characters of a word that may be a value: with digits and letters, and of any."""
_STATE = "|".join(sorted(STATES))
_PREDICATE = (
    "about|again|already|always|ambiguous|another|around|assistant|beyond|control|duplicate|during"
    "|either|enough|equals|exactly|greater|higher|identifier|inside|instead|larger|longer|lower|more"
    "|newline|nothing|number|optional|outside|padding|plaintext|prefix|punctuation|random|reserved"
    "|response|same|sentence|sequence|shorter|similar|simply|smaller|something|subword|suffix|system"
    "|twice|unchanged|unique|usually|visible|whatever|whitespace|within|write|written"
)
"""Words that tell what a key or token of a text is like."""
_NO_ADJECTIVE = "".join(
    rf"(?<!{end})"
    for end in (
        "ed",
        "ing",
        "ble",
        "ive",
        "al",
        "ent",
        "ant",
        "ory",
        "ful",
        "less",
        "ous",
        "ly",
        "tion",
        "tions",
        "ment",
        "ments",
        "ect",
        "weak",
        "strong",
        "short",
        "safe",
        "secure",
        "sensitive",
        "ic",
        "ness",
        "ity",
    )
)
_HEADERS = (
    r"proxy_set_header|(?:set|add)-header|header_up|(?:grpc_set|add)_header"
    r"|requestheader\s{1,4}(?:set|add)"
)
_OWN_NOUNS = ("secret", "credential", "passw", "passphrase", "passcode")
_NOUNS, _LABELS = ("key", "token", *_OWN_NOUNS), ("label",)
_QUALIFIERS = tuple(f"{KEPT_BY}|{OF}|unseal|recovery".split("|"))
_NAMED = lazy("key|token")
MAX_QUALIFIER = 16
"""Characters in front of `key` or `token` in which a word of OF may stand."""
_TABLE = tuple((words, hints.row(words, pattern)) for words, pattern in (
    # `Incorrect API key provided: …`, `the token was …`, `Unseal Key 1: …`
    (_NOUNS,
     rf"\b(?:{_NOUN}\s{{1,4}}(?:(?:provided|given|received|supplied|generated|is|was"
     r"|(?:(?:has|is|was)\s(?:been\s)?)?set\sto)"
     rf"\b\s{{0,4}}[:=]?|:)|{_STRONG}(?:\s#?\d)?\s{{0,4}}[:=])\s{{0,4}}(?<=[\s:=]){_VALUE}"),
    # `Password for user 'admin': …`, `a password is provided for this session: …`
    (_LABELS,
     rf"\b{_STRONG}\s{{1,4}}(?:for|from|of|is|was|has)(?:\s{{1,4}}(?!(?:not|missing|wrong|invalid"
     rf"|required)\b)[\w'\"-]{{1,40}}){{1,5}}(?:\s?:|\s(?:is|was))\s{{1,4}}{_VALUE}"),
    # `using API key …`, `Proxy initialized with master key …`
    (_LABELS,
     r"\b(?:your|generated|created|new|using|default|initial|temporary|random|with|set|expected"
     r"|received|got|invalid|incorrect|bad|wrong)\s{1,4}"
     rf"(?:\w{{1,20}}\s{{1,4}}){{0,2}}?{_STRONG}\s{{1,4}}(?:to\s)?{_VALUE}"),
    # `the API key "…" is not valid`; behind `secret` stands its name
    (_LABELS,
     rf"\b(?!secret|credential){_STRONG}\s{{1,4}}(?=[\"'`]){_VALUE}"),
    # `the api key … was refused`, `API key -> …`; behind `secret` alone stands the name of one
    (_NOUNS,
     rf"\b(?!(?:secret|credential)s?\s{{1,4}}(?!key|token)){_NOUN}\s{{1,4}}"
     r"(?:(?:->|=>|→)\s{0,4})?[(\"'`]{0,2}(?P<value>(?P<made>"
     r"[\w.~+/-]{8,512}={0,2}))"),
    (_NOUNS,
     rf"\b(?:your|generated|new)\skey\s{{0,4}}(?:is\b\s{{0,4}}:?|:)\s{{1,4}}{_VALUE}"),
    (_NOUNS,
     r"\b(?:the|your|this|my|its)\skey\s{1,4}(?:is|was)\b\s{0,4}:?\s{1,4}[\"'`]?"
     r"(?P<value>(?P<made>[\w.~+/-]{8,512}={0,2}))"),
    (_LABELS, rf"\bpass(?:word|phrase)\"?\s{{1,4}}:?\s{{0,4}}{_VALUE}"),
    # `api_key …`: a name that is no word of a sentence
    (_LABELS,
     rf"(?<![\w-])(?:[\w-]{{0,40}}[-_])?(?:(?:{KEPT_BY}|{OF})[-_](?:key|token|secret|password)"
     rf"|apikey|authtoken|cookie[-_]secret|secret[-_]key[-_]base)[\"']?\s{{1,4}}{_VALUE}"),
    # `No api key passed in. got …`
    (_LABELS,
     rf"\b{_STRONG}\s{{1,4}}(?:passed|provided|given|supplied)(?:\sin)?[.,;:]?\s{{1,4}}(?:but\s)?"
     rf"(?:got|received)\b:?\s{{1,4}}{_VALUE}"),
    # `expected key '…'`, `Key … is not authorized`
    (_NOUNS,
     r"\b(?:expected|received|got|invalid|incorrect|wrong|bad)\s{1,4}key\s{1,4}[\"'`]?"
     r"(?P<value>(?P<made>[\w.~+/-]{8,512}={0,2}))"),
    (_NOUNS,
     r"\bkey\s{1,4}[\"'`]?(?P<value>(?P<made>[\w.~+/-]{8,512}={0,2}))[\"'`]?\s{1,4}(?:is|was)\s{1,4}"
     r"(?:not\s{1,4})?(?:authori[sz]ed|allowed|permitted|valid|invalid|revoked|expired|disabled)\b"),
    # `API KEY ...... …`, `API key (save it, it is shown once): …`, `JWT secret …`
    (_LABELS,
     rf"\b{_STRONG}\s{{0,4}}(?:\.{{3,80}}|\([^()]{{1,80}}\)\s{{0,4}}[:=])\s{{0,4}}{_VALUE}"),
    (_LABELS, rf"\b(?:{OF})[-_ ]secret\s{{1,4}}{_VALUE}"),
    # `using key … for auth`, `rate limit for key …`
    (_NOUNS,
     r"\b(?:using|with|for|via|by)\s{1,4}(?:the\s{1,4})?key\s{1,4}[\"'`]?(?P<value>(?P<made>"
     r"[\w.~+/-]{8,512}={0,2}))"),
    # `Admin user: admin / …`, `basic auth admin:…`, `login admin:… refused`
    (("user", "login", "auth ", "auth:", "credentials"),
     r"\b(?:user(?:name)?(?:\s?/\s?pass(?:word)?)?|log-?in|basic[-_ ]?auth|credentials)\s{0,2}:?"
     rf"\s{{1,4}}[\"'`]?[A-Za-z][\w.@-]{{0,40}}(?::|\s/\s)(?!/){_VALUE}"),
    (("setx", "env"),
     r"\b(?:setx|setenv|(?-i:ENV))\s{1,4}(?P<name>\w{1,64})\s{1,4}[\"']?(?P<value>[^\s\"']+)"),
    (("header",),
     rf"\b(?:{_HEADERS})\s{{1,4}}[\"']?(?P<name>[\w-]{{1,64}})[\"']?\s{{1,4}}[\"']?"
     r"(?:(?:bearer|basic|token)\s{1,4})?(?![$%{<*])(?P<value>[^\s\"';]+)"),
    (("stats auth ",), r"\bstats\s+auth\s+[^\s:]{1,64}:(?P<value>[^\s\"']+)"),
    (("api key ", "master key ", "access key "),
     rf"\b(?:api|master|access) key\s(?:is\s)?[\"'`]?(?P<value>[a-z]{{16,64}})"
     rf"{_NO_ADJECTIVE}(?![\w-])"),
    (("login ",), r"\blogin\s+\S+\s+(?:account\s+\S+\s+)?password\s+(?!auth)(?P<value>\S+)"),
    (("-u",),
     r"(?<!\S)(?:-u|--(?:proxy-)?user)[= ]+[\"']?[^\s:\"']+:(?!\d+\b|//)(?P<value>[^\s\"']+)"),
    (("-k",),
     r"(?<!\S)-k[ =]+(?!-|/|\./|~|https?:|[\d.,]+[nr]?(?:[;)\s]|$))[\"']?(?P<value>[^\s\"']+)"),
))  # fmt: skip
"""Words in small letters of which a line needs one, and how the value is told. What has a `name`,
too, is a secret if that is the name of one; what is `made`, if it looks made by a machine."""
_TELLING = tuple(row.patterns[0] for words, row in _TABLE if words is _NOUNS)
_LABELLED = tuple(row.patterns[0] for words, row in _TABLE if words is _LABELS)
_OTHERS = tuple(row for words, row in _TABLE if words not in (_NOUNS, _LABELS))
_QUALIFIED = rf"(?:(?:{KEPT_BY}|{OF}|unseal|recovery)[-_ ])"
_OWN_WORD = (
    r"(?:[a-z]{1,12}\s){0,2}?(?:password|passphrase|passcode|secret)"
    rf"|{_QUALIFIED}?(?:key|token)"
)
_WORD = rf"[\"'`]?(?!(?:{_STATE}|{_PREDICATE})\b)(?P<value>[a-z]{{6,64}}){_NO_ADJECTIVE}"
_IN_LETTERS = lazy(
    # `your password is …`, `The admin password was …`, `Auth token is …`
    rf"(?:\b(?:your|the|this|my|its)\s(?:{_OWN_WORD})|^\W*(?:(?:[a-z]{{1,12}}\s)?(?:password|passphrase)"
    rf"|{_QUALIFIED}(?:key|token)))(?:\s(?:for|of)(?:\s[\w'-]{{1,24}}){{1,3}}?)?"
    rf"(?:\s(?:is|was):?|:)\s{_WORD}(?:[\"'`.!]?\s*$|[\"'`]?[,;]\s)",
    re.IGNORECASE,
)
_BEHIND_ARROW = lazy(
    # `Token -> …`; a token of a text has a number, or quotation marks
    rf"^\W*{_QUALIFIED}?token\s{{0,4}}(?:->|=>|→)\s{{0,4}}(?!(?:{_STATE}|{_PREDICATE})\b)"
    rf"(?P<value>[a-z]{{8,64}}){_NO_ADJECTIVE}\s*$",
    re.IGNORECASE,
)
_VERBS = (
    "key is", "key was", "token is", "token was", "secret is", "secret was", "word is", "word was",
    "phrase is", "code is", "word: ", "phrase: ", "key for", "word for", "token for", "word of",
)  # fmt: skip
_ARROWS = ("->", "=>", "→")
_NOTHING, _NOUN_ALONE = Clues(), Clues(noun=True)


def _of_letters(line: str, lower: str) -> Iterator[re.Match[str]]:
    """Where a sentence tells a secret in letters alone: no word that says how it stands."""
    if any(map(lower.__contains__, _VERBS)):
        yield from _IN_LETTERS.finditer(line)
    if "token" in lower and any(map(lower.__contains__, _ARROWS)):
        yield from _BEHIND_ARROW.finditer(line)


def tells(lower: str) -> Clues:
    """What a plain search finds in a line in small letters."""
    if not any(map(lower.__contains__, _NOUNS)):
        return _NOTHING
    return Clues(True, True, _is_labelled(lower)) if _may_have_value(lower) else _NOUN_ALONE


def of_text(line: str, lower: str, clues: Clues) -> Iterator[re.Match[str]]:
    """Where a line tells such values; `lower` is the line in small letters, `clues` what `tells`
    says of it."""
    yield from hints.matches(_OTHERS, line, lower)
    for pattern in (*_TELLING, *_LABELLED) if clues.labelled else _TELLING if clues.value else ():
        yield from pattern.finditer(line)
    if clues.noun:
        yield from _of_letters(line, lower)


def _is_labelled(lower: str) -> bool:
    """Whether a line names a secret. A plain search: most lines with `token` count those of a
    text."""
    return any(map(lower.__contains__, _OWN_NOUNS)) or any(
        lower[max(0, noun.start() - MAX_QUALIFIER) : noun.start()]
        .rstrip("-_. ")
        .endswith(_QUALIFIERS)
        for noun in _NAMED.finditer(lower)
    )


def is_prose(value: str) -> bool:
    """Whether a word behind the name of an option is one of a sentence."""
    return value.strip("\"'`.,;:!?()").lower() in PROSE


def _may_have_value(lower: str) -> bool:
    """Whether a word of a line may be a value: most lines that count tokens have none."""
    return any(
        len(word) >= MIN_LONG or (len(word) >= MIN_VALUE and not word.isalpha()
                                  and _DIGIT.search(word) and _LETTER.search(word))
        for word in lower.split()
    )  # fmt: skip
