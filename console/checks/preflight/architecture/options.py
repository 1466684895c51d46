"""Whether the operator's own build takes the options of a command line: its own reader is asked.

Engines rename and remove options, and refuse to start with one that they do not have. The program
is started with the options and a model that no loader takes: its reader of options comes first, and
what is said of the model then means that the options were taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from console.checks.preflight import Finding, Level
from console.checks.preflight.architecture import names
from console.checks.preflight.architecture.support import Engine, called
from console.checks.preflight.checkpoint import OPTIONS
from console.checks.preflight.compatibility import Loader
from console.common.errors import ConsoleError
from console.common.options.command_line import Given, given
from console.common.options.table import Effect, table
from console.common.text import one_line
from console.models.sizing.loader_plan import Build

_REFUSED = re.compile(
    r"error: (?:invalid|unknown) (?:argument|parameter).*|error while handling argument.*"
)
_NOT_ASKED = frozenset((
    "--port", "--host", "--reuse-port", "--prio", "--prio-batch", "--agent", "--ui-mcp-proxy",
    "--warmup", "--threads", "--threads-batch",
))  # fmt: skip
"""What would reach beyond the one start: a port, the scheduler, programs; and what its reader takes
whatever it is."""
_PLAIN = ("flag", "int", "float")
_UNHEARD_OF = re.compile(r"invalid|unknown")
"""Of an option that the tables lack: whether it takes a value is not known, and the complaint that
one is missing says that the build has the option."""
MAX_STRANGE = 8
"""Most options that the tables lack and that a build is asked about, a start for each."""


def takes(build: Engine, words: Mapping[str, Sequence[str]]) -> dict[str, bool]:
    """What the build says of each of these options, by its name; what it does not tell is left out.
    Raises Cancelled."""
    answers = {name: _refusal(build, own) for name, own in words.items()}
    return {name: not refusal for name, refusal in answers.items() if refusal is not None}


_FEATURES = re.compile(r"system_info:.*\| (?:CUDA|ROCm) : ([^:]*)")
_NUMBER = re.compile(r"\d{4,6}$")
"""A number of ggml-org's commits; a shallow clone's build has number 1."""


def about(build: Engine) -> Build:
    """What the build tells of itself: its number, and whether its flash attention has kernels for
    all types of a cache, which its start lists. Raises Cancelled."""
    try:
        number = _NUMBER.search(build.build())
        lines = build.load(names.probe(names.PLAIN))
    except (ConsoleError, OSError):
        return Build()
    listed = next((match[1] for line in lines if (match := _FEATURES.search(line))), None)
    pairs = None if listed is None else "FA_ALL_QUANTS = 1" in listed
    return Build(int(number[0]) if number else None, pairs)


def findings(build: Engine, loader: Loader, *, sure: bool) -> list[Finding]:
    """What the build's own reader of options refuses of a command line: switches, numbers and words
    of a set, and options that the tables lack. What names files, cards and addresses is not tried.
    `sure`: this build is to load it."""
    options = table("ik_llama" if loader.engine == "ik_llama.cpp" else "llama_cpp")
    read = list(given(loader.args, options))
    words = [word for argument in read for word in _tried(argument)]
    refusal = (_refusal(build, words) if words else None) or _strange(build, read)
    if not refusal:
        return []
    level = Level.FAIL if sure else Level.UNKNOWN
    hint = "take the option out, or a build that has it" if sure else "is this the build it is for?"
    message = f"{called(build)} refuses the command line: {refusal}"
    return [Finding(level, OPTIONS, message, hint)]


def _tried(argument: Given) -> Iterator[str]:
    """The words of an option that may be tried on any machine."""
    option = argument.option
    if option is None or option.name in _NOT_ASKED or option.gone:
        return
    if option.effect in (Effect.UNCOUNTED, Effect.ENDS) or (option.bare and argument.value is None):
        return
    if option.kind.partition("(")[0] not in _PLAIN and not option.choices:
        return
    if option.kind == "flag":
        yield argument.spelling
    elif argument.value is not None:
        yield from (argument.spelling, argument.value)


def _strange(build: Engine, read: Sequence[Given]) -> str:
    """How the build refuses an option that the tables lack, or the way it is written (`-ngl=99`);
    "" if it refuses none, or does not tell."""
    strange = dict.fromkeys(
        argument.spelling for argument in read
        if argument.option is None and argument.stray is None and argument.spelling.startswith("-")
    )  # fmt: skip
    for word in list(strange)[:MAX_STRANGE]:
        refusal = _refusal(build, (word,))
        if refusal is None:
            return ""
        if _UNHEARD_OF.match(refusal.removeprefix("error: ")):
            return refusal
    return ""


def _refusal(build: Engine, words: Sequence[str]) -> str | None:
    """The line with which the build refuses these words; "" if it takes them, None if it does not
    tell. Asked twice, since a program that gives up may end before its log is written."""
    for _ in range(2):
        try:
            lines = build.load(names.probe(names.PLAIN), tuple(words))
        except (ConsoleError, OSError):
            return None
        refusal_match = next((match for line in lines if (match := _REFUSED.search(line))), None)
        if refusal_match:
            return one_line(refusal_match[0], names.LINE)
        if names.read(lines, names.PLAIN).accepted is not None:
            return ""
    return None
