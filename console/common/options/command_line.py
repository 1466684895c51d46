"""Reads a command line as its engine does: which options it gives, and with what values."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from console.common.options.table import Option, Table

_NUMBER = re.compile(r"-\d|-\.\d")
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*")
_SHELL = re.compile(r"-?(?:ba|da|z|a|k)?sh")
_SERVE = ("serve",)
_BLANK = re.compile(r"\s")
_MORE = re.compile(r"[;&|$`<>(){}\n]")
"""What makes a script more than one plain command."""


@dataclass(frozen=True, slots=True)
class Given:
    """An option that is given. `option` None: the engine's table does not have it. `spelling` as it
    stands on the command line, or the name of a variable; `value` None where it has none."""

    spelling: str
    value: str | None
    option: Option | None

    @property
    def name(self) -> str:
        return self.option.name if self.option is not None else self.spelling


def given(argv: Sequence[str], table: Table) -> Iterator[Given]:
    """Every option of a command line in its order; words that belong to none are passed over.

    `argv` begins with the program, with a wrapper's, or with the first option.
    """
    words = own_words(argv)
    if words is None:
        yield Given("a shell's script", None, None)
        return
    place = 0
    while place < len(words):
        word = words[place]
        place += 1
        if not word.startswith("-") or word == "-" or _NUMBER.match(word):
            continue
        spelling, equals, value = word.partition("=")
        option = table.option(spelling)
        if option is None and table.grammar.dotted and "." in spelling:
            option = table.option(spelling.partition(".")[0])
        if option is None and re.fullmatch(r"-O\d", spelling):  # attached, as a compiler takes it
            option, equals, value = table.option("-O"), "=", spelling[2:]
        if equals and not table.grammar.equals:
            yield Given(word, None, None)
            continue
        if option is None:
            yield Given(spelling, value if equals else None, None)
            continue
        if equals or option.kind == "flag":
            yield Given(spelling, value if equals else None, option)
            continue
        taken = _values(words[place:], option, table)
        place += len(taken)
        yield Given(spelling, " ".join(taken) if taken else None, option)


def _values(words: Sequence[str], option: Option, table: Table) -> Sequence[str]:
    """The words behind an option that are its values."""
    if option.kind in ("list", "two"):
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
    for option in table.options:
        for name in option.env:
            if name in env:
                yield Given(name, env[name].strip(), option)


def value_of(
    argv: Sequence[str], name: str, table: Table, env: Mapping[str, str] | None = None
) -> str | None:
    """The value that an option has in the end, whatever it is called: on the command line, or by a
    variable where it does not stand there; None where neither gives it. The last one counts."""
    option = table.option(name)
    found = [*from_environment(env or {}, table), *given(argv, table)]
    values = [one.value for one in found if one.option is not None and one.option is option]
    return values[-1] if values else None


def own_words(argv: Sequence[str]) -> list[str] | None:
    """The engine's own words: without wrapper, interpreter, program, and `serve`; None where they
    are in a shell's script that is more than one plain command.

    A word of a compose file that holds an option with its value (`--ctx-size 8192`) counts as two.
    """
    words = _behind_program([word for word in argv if word])
    if words is None:
        return None
    parted = (
        word.split() if word.startswith("-") and _BLANK.search(word) and "{" not in word else [word]
        for word in words
    )
    return [word for part in parted for word in part]


def _behind_program(words: list[str]) -> list[str] | None:
    if not words or words[0].startswith("-"):
        return words
    for at, word in enumerate(words):
        name, behind = PurePath(word).name, words[at + 1 :]
        if _SHELL.fullmatch(name):
            return _of_script(behind)
        if _PYTHON.fullmatch(name):
            return _of_python(behind)
        if name in _SERVE or "llama-server" in name:
            return behind
    return words[1:]


def _of_python(words: list[str]) -> list[str]:
    """The words behind `-m MODULE`, or behind a script, whatever options Python has before it."""
    for at, word in enumerate(words):
        if word == "-m":
            return words[at + 2 :]
        if word.endswith(".py"):
            return words[at + 1 :]
    return words


def _of_script(words: list[str]) -> list[str] | None:
    """The words of a shell's script that is one plain command (`sh -c "exec llama-server …"`)."""
    script = next((word for word in words if not word.startswith("-")), "").strip()
    if not script or _MORE.search(script):
        return None
    try:
        return _behind_program(shlex.split(script.removeprefix("exec ")))
    except ValueError:
        return None
