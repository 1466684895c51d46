"""The command line of a foreign process, quoted so far as it is known to be harmless.

No list of flags that hold a secret is ever whole (`--requirepass X`, `-pX`). So whoever names a
process that is not the console's own quotes its program, the script or module of an interpreter and
the values of the few options below; every other word is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath

from console.common import redact
from console.common.text import LINE_LIMIT, one_line

LEFT_OUT = "…"
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*")
_INTERPRETER = re.compile(r"(?:python|pypy|node|ruby|perl|java|bun|deno)[\d.]*|-?\w{0,2}sh|busybox")
_SHELL = re.compile(r"-?\w{0,2}sh|busybox")
_SCRIPTS = frozenset({".sh", ".bash", ".zsh", ".fish"})
_ENGINE = re.compile(r"llama|vllm|sglang|kobold|whisper|mistral|text-generation|tabby", re.I)
_SCRIPT = re.compile(r"[\w.+~-]*/[\w./+~@-]+|[\w+~-][\w.+~-]*\.(?:py|[cm]?js|ts|rb|pl|sh|lua|jar)")
_MODULE = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*")
_BARE = re.compile(r"-[uPIEsSBOqvdxbi]+")
"""Flags of Python that take no value, as Python's own help lists them."""
_SERVE = frozenset({"serve", "server", "runserver", "start", "run"})
_NUMBER = re.compile(r"\d{1,5}")
_HOST = re.compile(r"[\d.]{7,15}|\[?[\da-f]{0,4}(?::[\da-f]{0,4}){2,7}\]?|localhost|\*", re.I)
_NAME = re.compile(r"[\w.+~-]*(?:[/:][\w.+~@-]+)*")
_OPTIONS = {
    "--port": _NUMBER, "-host-port": _NUMBER, "-container-port": _NUMBER,
    "--host": _HOST, "--bind": _HOST, "-host-ip": _HOST, "-container-ip": _HOST,
    "--model": _NAME, "--model-path": _NAME, "--alias": _NAME, "--served-model-name": _NAME,
}  # fmt: skip
_SHORT = {"-m": _NAME, "-a": _NAME}
"""What these mean to an engine; to others they may be a message, or a password (`redis-cli -a`)."""
MAX_NAME = 160
_NOBODY = frozenset({"server", "main", "app", "api", "api_server", "run", "serve", "start"})
"""Names of many scripts and modules: that two programs share one says nothing."""
_WRAPPERS = frozenset({
    "env", "nohup", "setsid", "nice", "ionice", "chrt", "taskset", "numactl", "stdbuf", "time",
    "timeout", "sudo", "unbuffer", "prlimit", "catchsegv",
})  # fmt: skip
_VALUES = frozenset({"all", "idle", "root"})
"""Values that an option of a wrapper has behind it (`numactl -i all`)."""
_SHORTEST = 3
_OPTION = re.compile(r"--[a-z][a-z_-]*|-[A-Za-z]|-[a-z]{2,4}")
_ASSIGNED = re.compile(r"--?[a-z]+(?:[_-][a-z]+)*")
"""The name of an option, the second before `=`: `-pX` may have its value in the same word."""
_HEAD = re.compile(r"[A-Za-z]\w*(?=[:.])")


def quoted(argv: Iterable[str], limit: int = LINE_LIMIT) -> str:
    """The command line of a process that is not ours as one clean line: what is known to be
    harmless, and `…` for each stretch of other words."""
    words = [word for word in argv if word]
    if not words:
        return ""
    shown: list[str] = []
    for word in _shown(words):
        if word != LEFT_OUT or shown[-1:] != [LEFT_OUT]:
            shown.append(word)
    return one_line(" ".join(shown), limit)


def started(argv: Iterable[str]) -> list[str]:
    """The program of a command line, and the script or module that an interpreter runs. A title
    that a process has given itself (`nginx: master process …`) is cut behind its first word."""
    words = [word for word in argv if word]
    return _started(words)[0] if words else []


def option_of(argv: Sequence[str], at: int) -> str:
    """The name of the option that is the word `at` of a command line, or that has it as its value;
    "" if it is none that is known to be nothing but a name."""
    flag, equals, _ = argv[at].partition("=")
    if not flag.startswith("-") and not equals and at > 1:
        flag = argv[at - 1]
    form = _ASSIGNED if equals else _OPTION
    return flag if form.fullmatch(flag) and redact.text(flag) == flag else ""


def may_have_started(spec: Iterable[str], argv: Iterable[str]) -> bool:
    """Whether the program of `spec` may be what the command line `argv` of a process started, as
    when a server was started by hand with other flags: they start a program, script or module of
    the same name, or `spec` has none."""
    names = names_of(spec)
    words = [word for word in argv if word]
    return not names or bool(names & _names(_begun(words)))


def has_other_flags(spec: Iterable[str], argv: Iterable[str]) -> bool:
    """Whether a command line of the program of `spec` tells other things to it, in whatever order
    and spelling: `--port=80` is `--port 80`, and a file is known by its name. False where that
    cannot be told: `spec` is a start script, or the process has given itself a title."""
    spec_words, argv_words = ([word for word in words if word] for words in (spec, argv))
    program = names_of(spec_words) & _names(_begun(argv_words))
    if not argv_words[1:] or not program:
        return False
    wanted, others = words_behind(spec_words), list[str]()
    for word in _arguments(argv_words):
        same = next((wanted_word for wanted_word in wanted if _is_same(wanted_word, word)), None)
        if same is None:
            others.append(word)
        else:
            wanted.remove(same)
    return bool(others or wanted)


def words_behind(spec: Iterable[str]) -> list[str]:
    """The words that `spec` tells to its program, each value as one of its own. What stands before
    the program is a wrapper's (`numactl … llama-server`)."""
    words = [word for word in spec if word]
    program = names_of(words)
    first = next((at for at, word in enumerate(words) if _names([word]) & program), 0)
    return _arguments(words[first:]) if words else []


def _arguments(words: list[str]) -> list[str]:
    """The words behind the program of a command line, each value as one of its own."""
    behind = _started(words)[1]
    return [part for word in behind for part in _parts(word) if part]


def _parts(word: str) -> list[str]:
    return word.split("=", 1) if word.startswith("-") else [word]


def _is_same(word: str, other: str) -> bool:
    """Whether two words are the same, or one is the end of the other's path."""
    short, long = sorted((word, other), key=len)
    return short == long or ("/" in long and long.endswith(f"/{short.removeprefix('./')}"))


def names_of(spec: Iterable[str]) -> set[str]:
    """The names by which a program is known again in another command line, in small letters: of the
    program and its script or module, also behind a wrapper (`numactl … llama-server`). None for a
    start script, of which it is not known what it starts. What flags name, as a model, is none:
    two programs may serve the same one."""
    words = [word for word in spec if word]
    behind: list[str] = []
    while words and PurePath(words[0]).name in _WRAPPERS:
        words = _wrapped(words[1:])
        behind = _wrapped(words[1:])  # the first may be the value of an option (`sudo -u me`)
    begun = [*_begun(words), *_begun(behind)[:2]]
    if any(PurePath(word).suffix in _SCRIPTS or _SHELL.fullmatch(PurePath(word).name)
           for word in begun):  # fmt: skip
        return set()
    return _names(begun)


def _wrapped(words: list[str]) -> list[str]:
    """The command line behind the options of a wrapper: from its first word on that names a program
    by its path or by letters, and is neither a setting nor the value of an option."""
    for at, word in enumerate(words):
        plain = not word.startswith("-") and "=" not in word and not word[:1].isdigit()
        if plain and PurePath(word).name.lower() not in _VALUES:
            return words[at:]
    return []


def _begun(words: list[str]) -> list[str]:
    """The program of a command line, with the script or module that an interpreter runs."""
    return [word for word in (_started(words)[0] if words else []) if not word.startswith("-")]


def _names(words: list[str]) -> set[str]:
    """The names of programs, scripts and modules. A process may give itself a title: the head of
    `VLLM::APIServer` and of a module's dotted name counts, too."""
    names = set()
    for word in words:
        name = PurePath(word).name.lower()
        names |= {name, *_HEAD.findall(name)[:1]}
    return {
        name for name in names - _NOBODY
        if len(name) >= _SHORTEST and name.isprintable() and not _INTERPRETER.fullmatch(name)
    }  # fmt: skip


def _started(words: list[str]) -> tuple[list[str], list[str]]:
    """As `started`, and the words behind it."""
    title, space, _ = words[0].partition(" ")
    program = title if space and not words[1:] else words[0]
    shown, rest = [redact.text(program)], words[1:]
    if space and not rest:
        return [*shown, LEFT_OUT], []
    name = PurePath(program).name
    if not _INTERPRETER.fullmatch(name):
        return shown, rest
    python = _PYTHON.fullmatch(name) is not None
    while python and rest and _BARE.fullmatch(rest[0]):
        shown.append(rest.pop(0))
    if python and rest[:1] == ["-m"] and rest[1:] and _MODULE.fullmatch(rest[1]):
        return [*shown, *rest[:2]], rest[2:]
    if rest and _harmless(_SCRIPT, rest[0]):
        return [*shown, rest[0]], rest[1:]
    return shown, rest


def _shown(words: list[str]) -> Iterator[str]:
    begun, rest = _started(words)
    yield from begun
    engine = any(_ENGINE.search(PurePath(word).name) for word in begun)
    options = {**_OPTIONS, **(_SHORT if engine else {})}
    wanted: re.Pattern[str] | None = None
    first = True
    for word in rest:
        flag, equals, value = word.partition("=")
        form = options.get(flag)
        if form is not None:
            fits = not equals or _harmless(form, value)
            yield word if fits else f"{flag}={LEFT_OUT}"
        elif wanted is not None and _harmless(wanted, word):
            yield word
        elif first and engine and word in _SERVE:
            yield word
            form = _NAME
        else:
            yield LEFT_OUT
        wanted, first = (None if equals else form), False


def _harmless(form: re.Pattern[str], value: str) -> bool:
    """Whether a value has the form that it should have, and nothing in it looks like a secret."""
    if value.startswith("-") or len(value) > MAX_NAME or not form.fullmatch(value):
        return False
    return redact.text(value) == value
