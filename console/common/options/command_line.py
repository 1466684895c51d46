"""Reads a command line as its engine does: which options it gives, and with what values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from console.common.options.start import PYTHON, SERVE, SHELL, is_program, plain_command, start
from console.common.options.table import Effect, Option, Table

_NUMBER = re.compile(r"-\d|-\.\d")
_BLANK = re.compile(r"\s")
_EXPANDED = re.compile(r"[;&|$`<>(){}*?~#%\\\n]")
"""What a shell, or a template, makes something else of."""
_QUOTED = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"", re.DOTALL)
_ESCAPED = re.compile(r"\\([\"\\$`])")
_DASHES = tuple("\N{HYPHEN}\N{NON-BREAKING HYPHEN}\N{FIGURE DASH}\N{EN DASH}\N{EM DASH}"
                "\N{HORIZONTAL BAR}\N{MINUS SIGN}")  # fmt: skip
"""What web pages and word processors make of the dashes before an option."""
MAX_LINE = 1 << 14
"""Characters of a line of options in one word that is read with its quotes and braces."""
_ONCE_VALUED = ("--enable-chunked-prefill",)
"""Switches that took true or false as a word in older releases."""
_SWITCHED = ("on", "off", "true", "false", "yes", "no")


@dataclass(frozen=True, slots=True)
class Stray:
    """A word that belongs to no option. `behind`: the option before it, or "". `sure`: whether the
    engine refuses it; else it may be its model, a wrapper's, or what a shell makes of it."""

    behind: str
    sure: bool


@dataclass(frozen=True, slots=True)
class Given:
    """An option that is given. `option` None: the engine's table does not have it. `spelling` as it
    stands on the command line, or the name of a variable; `value` None where it has none. `stray`:
    no option at all, but a word (`spelling`) beside them."""

    spelling: str
    value: str | None
    option: Option | None
    stray: Stray | None = None

    @property
    def name(self) -> str:
        return self.option.name if self.option is not None else self.spelling


def given(argv: Sequence[str], table: Table) -> Iterator[Given]:
    """Every option of a command line in its order, and the words that belong to none.

    `argv` begins with the program, with a wrapper's, or with the first option. Words behind an
    option that the table does not have may be its values, and are passed over.
    """
    argv = start(argv).argv
    words = own_words(argv)
    if words is None:
        yield Given("a shell's script", None, None)
        return
    serves = table.grammar.served and "serve" in argv[: len(argv) - len(words)]
    takes_model = table.grammar.model or serves
    strays = _Strays(table, _is_plain(argv, words), takes_model)
    place = 0
    while place < len(words):
        word = words[place]
        place += 1
        if not _is_option(word):
            yield from strays.of(word)
            continue
        argument, place = _option(word, words, place, table)
        strays.behind = argument
        yield argument


def _option(word: str, words: Sequence[str], place: int, table: Table) -> tuple[Given, int]:
    """The option that a word begins, and the place behind its values."""
    spelling, equals, value = word.partition("=")
    option = table.option(spelling)
    if option is None and table.grammar.dotted and "." in spelling:
        option = table.option(spelling.partition(".")[0])
    if option is None and re.fullmatch(r"-O\d", spelling):  # attached, as a compiler takes it
        option, equals, value = table.option("-O"), "=", spelling[2:]
    if equals and not table.grammar.equals:
        return Given(word, None, None), place
    if option is None or equals or option.kind == "flag":
        return Given(spelling, value if equals else None, option), place
    taken = _values(words[place:], option, table)
    return Given(spelling, " ".join(taken) if taken else None, option), place + len(taken)


@dataclass
class _Strays:
    """Tells what the words beside the options are. `sure`: the engine gets just these words.
    `takes_model`: one of them is its model. `behind`: the option before the next word."""

    table: Table
    sure: bool
    takes_model: bool
    behind: Given | None = None
    has_model: bool = False

    def of(self, word: str) -> Iterator[Given]:
        if word.startswith(_DASHES):
            yield Given(word, None, None, Stray("", self.sure))
            self.behind = Given(word, None, None)
        elif self.behind is None and (self._is_model(word) or not self.sure):
            return
        elif self.behind is None or self.behind.option is not None:
            sure = self.sure and not _EXPANDED.search(word) and self._is_refused(word)
            behind = self.behind.spelling if self.behind is not None else ""
            if not (self.behind and self._is_model(word)):
                yield Given(word, None, None, Stray(behind, sure))

    def _is_model(self, word: str) -> bool:
        """Whether this is the one word that an engine takes beside its options, its model's path or
        name. Behind the options only what cannot be anything else counts as one."""
        if not self.takes_model or self.has_model:
            return False
        self.has_model = self.behind is None or "/" in word
        return self.has_model

    def _is_refused(self, word: str) -> bool:
        if self.behind is None:
            return not self.table.grammar.python  # newer ones may take a model so
        option = self.behind.option
        if option is None or option.effect is Effect.UNCOUNTED or option.name in _ONCE_VALUED:
            return False  # other builds take more values, and nothing is a GO here anyway
        looks_like_value = word.lower() in _SWITCHED or word[:1].isdigit()
        return looks_like_value or self.has_model or not self.takes_model


def _is_plain(argv: Sequence[str], words: Sequence[str]) -> bool:
    """Whether the engine gets these words as they stand: what runs it is known, and no word was
    parted here."""
    before = (PurePath(word).name for word in argv[: len(argv) - len(words)])
    known = any(
        name in SERVE or "llama-server" in name or PYTHON.fullmatch(name) for name in before
    ) or not argv or _is_no_program(argv[0])  # fmt: skip
    whole = len(words) <= len(argv) and tuple(argv[len(argv) - len(words) :]) == tuple(words)
    return known and whole


def _is_no_program(word: str) -> bool:
    """Whether a command line without its program begins with this word."""
    return word.startswith(("-", *_DASHES)) or word.endswith(".gguf")


def _values(words: Sequence[str], option: Option, table: Table) -> Sequence[str]:
    """The words behind an option that are its values."""
    if option.takes_many:
        most = 2 if option.kind == "two" else len(words)
        at = next((i for i, word in enumerate(words[:most]) if _is_option(word)), most)
        return words[:at]
    if not words or (option.kind == "opt" and _is_option(words[0])):
        return ()
    if table.option(words[0].partition("=")[0]) is not None:
        return ()
    return words[:1]


def _is_option(word: str) -> bool:
    return word.startswith("-") and word != "-" and not _NUMBER.match(word)


def from_environment(env: Mapping[str, str], table: Table) -> Iterator[Given]:
    """The options that variables give, in the table's order; the command line comes after them."""
    for option in table.options if env else ():
        for name in option.env:
            if name in env:
                yield Given(name, env[name].strip(), option)


def value_of(
    argv: Sequence[str], name: str, table: Table, env: Mapping[str, str] | None = None
) -> str | None:
    """The value that an option has in the end, whatever it is called: on the command line, or by a
    variable where it does not stand there; None where neither gives it. The last one counts."""
    option = table.option(name)
    arguments = [*from_environment(env or {}, table), *given(argv, table)]
    values = [
        argument.value
        for argument in arguments
        if argument.option is not None and argument.option is option
    ]
    return values[-1] if values else None


def own_words(argv: Sequence[str]) -> list[str] | None:
    """The engine's own words: without wrapper, interpreter, program, and `serve`; None where they
    are in a shell's script that is more than one plain command.

    A word of a compose file that holds an option with its value (`--ctx-size 8192`) counts as two,
    and a whole command line in one word as its words.
    """
    words = _behind_program(start(argv).argv)
    if words is None:
        return None
    parted = (
        _parted(word) if word.startswith("-") and _BLANK.search(word) else [word] for word in words
    )
    return [word for part in parted for word in part]


def _parted(text: str) -> list[str]:
    """The words of a line of options. A shell's quotes are taken away; an object in braces keeps
    its own, and blanks do not end it (`--x={"a": 1}` is what the engine gets). Where an object does
    not end, or in what is no line of options by its length, every blank ends a word."""
    if "{" not in text or len(text) > MAX_LINE:
        return text.split()
    words, place = [""], 0
    while place < len(text):
        quoted = _QUOTED.match(text, place)
        end = quoted.end() if quoted else _end_of_object(text, place)
        if not end:
            return text.split()
        part = text[place:end]
        if quoted:
            words[-1] += part[1:-1] if part[0] == "'" else _ESCAPED.sub(r"\1", part[1:-1])
        elif part.isspace():
            words.append("")
        else:
            words[-1] += part
        place = end
    return [word for word in words if word]


def _end_of_object(text: str, start: int) -> int:
    """The place behind the object that begins here, or behind one sign where none does; 0 where it
    does not end."""
    if text[start] != "{":
        return start + 1
    depth, place = 0, start
    while place < len(text):
        quoted = _QUOTED.match(text, place)
        depth += 0 if quoted else (text[place] == "{") - (text[place] == "}")
        place = quoted.end() if quoted else place + 1
        if not depth:
            return place
    return 0


def _behind_program(words: list[str]) -> list[str] | None:
    if not words or _is_no_program(words[0]):
        return words
    at = next((at for at, word in enumerate(words) if is_program(word)), 0)
    name, behind = PurePath(words[at]).name, words[at + 1 :]
    if SHELL.fullmatch(name):
        script = plain_command(behind)
        return None if script is None else _behind_program(start(script).argv)
    return _of_python(behind) if PYTHON.fullmatch(name) else behind


def _of_python(words: list[str]) -> list[str]:
    """The words behind `-m MODULE`, or behind a script, whatever options Python has before it."""
    for at, word in enumerate(words):
        if word == "-m":
            return words[at + 2 :]
        if word.endswith(".py"):
            return words[at + 1 :]
    return words
