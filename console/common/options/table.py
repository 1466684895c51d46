"""An engine's options as a table: spellings, kinds of values, and what each does to the memory.

A table is a text file beside this module, one option a line:

    EFFECT  KIND  SPELLINGS  [env=NAME,NAME]  [gone=WHEN[: INSTEAD]]  [bare=WHEN[: INSTEAD]]
                             [lacks=FORK]  [safe=VALUE,VALUE]

Columns are parted by two blanks or more, spellings by one, and `#` begins a comment, the first
of which names engine and version. The last spelling is the one for messages. `gone`: builds from
then on refuse the option; `bare`: builds from then on refuse it without a value. Builds before take
it so, and INSTEAD is what newer ones have. `lacks`: the fork that does not have it. `safe`: the
values of a harmless option that do no harm; with another one it is uncounted.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, lru_cache
from pathlib import Path

FOLDER = Path(__file__).parent


class Effect(StrEnum):
    """What an option does. READ: a sum has it. UNCOUNTED: it changes the memory, or whether the
    engine takes the model, and no sum has it. ENDS: the program prints something and ends.
    HARMLESS: none of these: it takes no memory, and is refused for no value but what its kind, its
    safe values and the rows of beside.txt say."""

    READ = "read"
    UNCOUNTED = "uncounted"
    ENDS = "ends"
    HARMLESS = "harmless"


@dataclass(frozen=True, slots=True)
class Option:
    """One option. `kind`: flag, str, human, opt (a value or none), list (one value or more), two,
    or what its value has to be (`console.common.options.values`), like {a,b} or int(0..2). `env`:
    variables that give its value as well. `gone` and `bare`: since when newer builds refuse it, or
    refuse it without a value, and what they have instead; "" where all known builds take it.
    `lacks`: the fork of the engine that does not have it; "" for none. `safe`: the values that do
    no harm; none where all do none."""

    effect: Effect
    kind: str
    spellings: tuple[str, ...]
    env: tuple[str, ...] = ()
    gone: str = ""
    bare: str = ""
    lacks: str = ""
    safe: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.spellings[-1]

    @property
    def takes_many(self) -> bool:
        """Whether it takes more words than one."""
        return self.kind.partition("(")[0] in ("list", "two")

    @property
    def choices(self) -> tuple[str, ...]:
        """The only values that the engine takes; none where it takes others as well."""
        return tuple(self.kind[1:-1].split(",")) if self.kind.startswith("{") else ()


@dataclass(frozen=True, slots=True)
class Grammar:
    """How an engine reads its words. `underscores`: they stand for dashes in long options.
    `equals`: it takes `--name=value`. `beginnings`: a long option may be cut short as long as it is
    the only one that begins so. `dotted`: `--name.key` is a part of the option's JSON. `python`:
    Python's argparse reads the words, with numbers as Python writes them. `model`: it takes one
    word beside the options, the model; `served`: where `serve` begins them. `refusal`: what it says
    of other words."""

    underscores: bool = False
    equals: bool = False
    beginnings: bool = False
    dotted: bool = False
    python: bool = False
    model: bool = False
    served: bool = False
    refusal: str = "unrecognized arguments"


GRAMMARS: Mapping[str, Grammar] = {
    "llama_cpp": Grammar(underscores=True, refusal="invalid argument"),
    "ik_llama": Grammar(underscores=True, refusal="unknown argument"),
    "vllm": Grammar(
        underscores=True, equals=True, beginnings=True, dotted=True, python=True, model=True
    ),
    "sglang": Grammar(equals=True, beginnings=True, python=True, served=True),
}
"""By the table's name. Sources: common/arg.cpp of llama.cpp and common/common.cpp of ik_llama.cpp
(a value is the next word), FlexibleArgumentParser of vLLM, argparse in SGLang's server_args.py."""


@dataclass(frozen=True, slots=True)
class Table:
    """All options of an engine's server. `of`: engine and version, as the table's head says."""

    name: str
    of: str
    grammar: Grammar
    options: tuple[Option, ...]
    _by_spelling: dict[str, Option] = field(default_factory=dict)
    _sorted: list[str] = field(default_factory=list)

    def option(self, spelling: str) -> Option | None:
        """The option of a spelling, which is normalised as the engine does it."""
        normal = self.normal(spelling)
        exact_match = self._by_spelling.get(normal)
        if exact_match is None and self.grammar.beginnings and normal.startswith("--"):
            return self._only_one(normal)
        return exact_match

    def _only_one(self, beginning: str) -> Option | None:
        """The option whose spellings alone begin so."""
        only_option = None
        for at in range(bisect_left(self._sorted, beginning), len(self._sorted)):
            if not self._sorted[at].startswith(beginning):
                break
            option = self._by_spelling[self._sorted[at]]
            if only_option is not None and option is not only_option:
                return None
            only_option = option
        return only_option

    def normal(self, spelling: str) -> str:
        if self.grammar.underscores and spelling.startswith("--"):
            return spelling.replace("_", "-")
        return spelling


@cache
def table(name: str) -> Table:
    """The table of an engine, by a name in GRAMMARS."""
    rows = (FOLDER / f"{name}.txt").read_text().splitlines()
    grammar = GRAMMARS[name]
    options = tuple(_option(row) for row in rows if row and not row.startswith("#"))
    made = Table(name, rows[0].lstrip("# ").strip(), grammar, options)
    for option in options:
        for spelling in option.spellings:
            made._by_spelling[made.normal(spelling)] = option
    made._sorted.extend(sorted(made._by_spelling))
    return made


def spellings(name: str, engines: Iterable[str] = tuple(GRAMMARS)) -> tuple[str, ...]:
    """Every spelling of an option in the first of these engines that has it; none without one."""
    for engine in engines:
        option = table(engine).option(name)
        if option is not None and table(engine).normal(name) in option.spellings:
            return option.spellings
    return ()


@lru_cache(16384)
def is_same(spelling: str, other: str, engines: tuple[str, ...] = tuple(GRAMMARS)) -> bool:
    """Whether two spellings give one option to any of these engines: `-c` and `--ctx_size`."""
    if spelling == other:
        return True
    pairs = ((table(engine).option(spelling), table(engine).option(other)) for engine in engines)
    return any(first is not None and first is second for first, second in pairs)


def _option(row: str) -> Option:
    effect, kind, spellings, *rest = re.split(r"\s{2,}", row.strip())
    more = dict(column.split("=", 1) for column in rest)
    env, safe = (_words(more.pop(name, "")) for name in ("env", "safe"))
    return Option(Effect(effect), kind, tuple(spellings.split()), env, safe=safe, **more)


def _words(column: str) -> tuple[str, ...]:
    return tuple(filter(None, column.split(",")))
