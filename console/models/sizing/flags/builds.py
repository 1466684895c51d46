"""Options that some builds of an engine take and others refuse: what is said of them depends on the
build, which can be asked (`console.checks.preflight.architecture.options`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from console.common import redact
from console.common.options.command_line import Given, from_environment, given
from console.common.options.since import Arrival, arrivals
from console.common.options.table import Option, Table, table
from console.common.text import one_line
from console.models.sizing.flags.reading import Reading, written
from console.models.sizing.loader_plan import Build

Takes = Mapping[str, bool | str]
"""What is known of the build at hand: an option's own name, and whether it takes it as it stands on
the command line; the name of a build that refuses it and may be another one. An option that is not
there is not known."""


_RELEASE = re.compile(r"(?:^|/)gg(?:ml-org|erganov)/llama\.cpp:[a-z0-9-]*-b(\d{4,6})(?:@|$)")


def build_of_image(image: str) -> Build:
    """What the name of an official image tells: a release's number is its tag's end, and no
    Dockerfile of ggml-org's (.devops/) has GGML_CUDA_FA_ALL_QUANTS."""
    match = _RELEASE.search(image)
    return Build(int(match[1]), pairs=False) if match else Build()


def contested(
    engine: str, argv: Sequence[str], env: Mapping[str, str] | None = None
) -> dict[str, tuple[str, ...]]:
    """The options of a command line and its variables that some builds refuse, by their own names,
    as the words that the build is to be asked with."""
    words_by_option = {}
    options = table(engine)
    for argument in (*from_environment(env or {}, options), *given(argv, options)):
        if argument.option is not None and _since(argument):
            value = argument.value if argument.option.kind != "flag" else None
            spelling = argument.spelling if argument.spelling.startswith("-") else argument.name
            words_by_option[argument.name] = (spelling, *([value] if value else ()))
    newer = [
        word
        for argument in given(argv, options)
        if _arrived(argument, engine) and argument.option and _may_be_asked(argument.option)
        for word in (argument.spelling, argument.value) if word
    ]  # fmt: skip
    return words_by_option | ({NEWER: tuple(newer)} if newer else {})


NEWER = "newer options"
"""What stands for all options that not every build has, which are asked about in one start."""


def _may_be_asked(option: Option) -> bool:
    """Whether nothing of this machine has to be there for the build to take the option."""
    return option.kind.partition("(")[0] in ("flag", "int", "float") or bool(option.choices)


def _arrived(argument: Given, engine: str) -> Arrival | None:
    return arrivals(engine).get(argument.spelling)


def newer_of(options: Iterable[Given], takes: Takes, of: Table) -> Iterator[Arrival]:
    """What of these options not every build has, without what the build at hand was asked about and
    has taken. A variable that a build does not know it passes over."""
    known = takes.get(NEWER) is True
    for argument in options:
        arrival, option = _arrived(argument, of.name), argument.option
        if arrival and option and not (known and _may_be_asked(option)):
            yield arrival


NEVER = {"--draft-model": "--model-draft"}
"""Options that no build has ever had, and what is meant by them (atomantic/PortOS#4653)."""


def of_build(
    options: Iterable[Given], reading: Reading, takes: Takes, of: Table
) -> Iterator[Given]:
    """The options that the build takes. What it refuses is named, and what is not known of it makes
    the plan unsettled. A variable that it does not know is passed over, as the build does."""
    for argument in options:
        if refusal := _in_no_build(argument, of):
            reading.refuse(refusal)
            continue
        since = _since(argument)
        taken = takes.get(argument.name) if since else True
        if taken is None or isinstance(taken, str):
            reading.unsettled.append(_doubt(argument, since, taken or ""))
        elif not taken:
            if argument.spelling.startswith("-"):
                reading.refuse(
                    f"{_shown(argument)}: this build has no such option{_instead(since)}"
                )
            continue
        elif since:
            reading.got["older"] = True
        yield argument


def _in_no_build(argument: Given, of: Table) -> str:
    """Why no build takes an option as it is written; "" where one may. Their readers compare whole
    words (common/arg.cpp, and common/common.cpp of ik_llama.cpp)."""
    if argument.option is not None or argument.stray is not None:
        return ""
    name, equals, _ = argument.spelling.partition("=")
    if equals and of.option(name) is not None:
        shown = one_line(redact.argv((argument.spelling,))[0], 60)
        return f"{shown}: no build takes a value in the same word ({of.grammar.refusal})"
    instead = NEVER.get(of.normal(argument.spelling))
    return f"{one_line(argument.spelling, 60)}: no build has it; it is {instead}" if instead else ""


def _since(argument: Given) -> str:
    """Since when builds refuse an option as it is given, and what they have instead; "" if all
    known builds take it."""
    if argument.option is None:
        return ""
    return argument.option.gone or (argument.option.bare if argument.value is None else "")


def _doubt(argument: Given, since: str, refuses: str) -> str:
    when = since.partition(":")[0]
    does = "refuse it" if argument.spelling.startswith("-") else "pass it over"
    known = f"as {refuses} does: is it the one?"
    if not refuses:
        known = "and which one it is is not known here"
    explanation = f"builds since {when} {does}{_instead(since)}, {known}"
    return f"whether this build takes {_shown(argument)}: {explanation}"


def _shown(argument: Given) -> str:
    alone = (
        argument.option is not None and argument.option.kind != "flag" and argument.value is None
    )
    own = written(argument) if argument.spelling.startswith("-") else argument.spelling
    return f"{one_line(own, 60)}{' without a value' if alone else ''}"


def _instead(since: str) -> str:
    instead = since.partition(":")[2].strip()
    return f" (there it is {instead})" if instead else ""
