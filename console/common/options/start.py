"""What `env`, and a shell's own `NAME=VALUE`, do before the program that a command line starts."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

PYTHON = re.compile(r"(?:python|pypy)[\d.]*")
SHELL = re.compile(r"-?(?:ba|da|z|a|k)?sh")
SERVE = ("serve",)
_MORE = re.compile(r"[;&|$`<>(){}\n]")
"""What makes a script more than one plain command."""
_ASSIGNS = re.compile(r"[A-Za-z_]\w*=")
_SETS = re.compile(r"[^=]+=")
"""A variable that a shell sets for the command behind it, and one that `env` does."""
_VALUED = ("--unset", "--chdir", "--split-string", "--argv0")
_SHORT = {"u": "--unset", "C": "--chdir", "S": "--split-string", "a": "--argv0",
          "i": "--ignore-environment"}  # fmt: skip


class Start(NamedTuple):
    """A command line without `env` and its assignments, and the variables that its program has."""

    argv: list[str]
    env: dict[str, str]


def start(argv: Sequence[str], env: Mapping[str, str] | None = None) -> Start:
    """What a command line starts, and with which variables: those of `env` as its own `env` clears,
    unsets and sets them, which is the last word. Source: env.c of coreutils 9.7."""
    words, variables = list(argv), dict(env or {})
    if words and words[0].startswith("-"):
        return Start(words, variables)
    at = _assign(words, variables, _ASSIGNS)
    del words[:at]
    while (place := _env_at(words)) is not None:
        words[place:] = _behind_env(words[place + 1 :], variables)
    script = next((plain_command(words[at + 1 :]) for at, word in enumerate(words)
                   if SHELL.fullmatch(os.path.basename(word))), None)  # fmt: skip
    return Start(words, start(script, variables).env if script else variables)


def plain_command(words: Sequence[str]) -> list[str] | None:
    """The words of a shell's script that is one plain command (`-c "exec llama-server …"`)."""
    script = next((word for word in words if not word.startswith("-")), "").strip()
    if not script or _MORE.search(script):
        return None
    try:
        return shlex.split(script.removeprefix("exec "))
    except ValueError:
        return None


def is_program(word: str) -> bool:
    """Whether what stands behind this word is for an engine, its interpreter or a shell."""
    name = os.path.basename(word)
    return (
        name in SERVE or "llama-server" in name
        or bool(PYTHON.fullmatch(name) or SHELL.fullmatch(name))
    )  # fmt: skip


def _env_at(words: Sequence[str]) -> int | None:
    """The place of `env` where it starts what is behind it: first, or before a known program."""
    program = next((at for at, word in enumerate(words) if is_program(word)), 1)
    for at, word in enumerate(words[:program]):
        if word == "env" or word.endswith("/bin/env"):
            return at
    return None


def _behind_env(words: list[str], variables: dict[str, str]) -> list[str]:
    """The command behind `env`, whose options and assignments are applied."""
    unset: list[str] = []
    clears, at = False, 0
    while at < len(words) and words[at].startswith("-"):
        word = words[at]
        at += 1
        if word == "--":
            break
        name, value = _option(word)
        if name in _VALUED and value is None:
            value, at = "".join(words[at : at + 1]), at + 1
        if name == "--split-string":
            words[:at], at = _split(value or ""), 0
        clears = clears or name == "--ignore-environment" or (word[1:2] == "i") or word == "-"
        unset += [value or ""] if name == "--unset" else []
    if clears:
        variables.clear()
    for name in unset:
        variables.pop(name, None)
    rest = words[at:]
    return rest[_assign(rest, variables, _SETS) :]


def _option(word: str) -> tuple[str, str | None]:
    """An option of `env` by its long name, and the value that is written with it. Of short ones in
    one word the first that takes a value has the rest."""
    if word.startswith("--"):
        name, equals, value = word.partition("=")
        known = [full for full in (*_VALUED, _SHORT["i"]) if full.startswith(name)]
        return known[0] if len(known) == 1 else name, value if equals else None
    for place, letter in enumerate(word[1:], 1):
        if _SHORT.get(letter) in _VALUED:
            return _SHORT[letter], word[place + 1 :] or None
    return (_SHORT["i"] if "i" in word else word), None


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _assign(words: Sequence[str], variables: dict[str, str], form: re.Pattern[str]) -> int:
    """Set the variables that the first words assign; how many do."""
    for at, word in enumerate(words):
        if not form.match(word):
            return at
        name, _, value = word.partition("=")
        variables[name] = value
    return len(words)
