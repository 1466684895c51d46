"""What the values of options have to be, as the kinds of a table say it.

    int(-1,1..)         whole numbers: -1, or 1 and more
    float(>0) float(>0..1) float(0..<1)
                        a number: more than 0, up to 1, from 0 to below 1
    human(1..)          a number that may have a unit, and is 1 or more
    list(1..3)          so many words
    name                a name without a colon, which would be an adapter's (SGLang)
    map                 a JSON object, of whatever content
    {a,b}  some{a,b}    one of these words; some of them, parted by commas
    json  object        JSON of any kind; an object
    layers              a number of layers, auto or all
    floats  mask  range  bias  host
                        numbers parted by commas; a processor mask in hex; FIRST-LAST of
                        processors; TOKEN+BIAS; an address to listen at
    grammar  template  device
                        text that nobody here can judge
    file  dir  path     something that is there when the server starts (see `opened`)
    jinja  jinja{a,b}   a template: itself, its file, or one of these words
    repo                a directory, or a repository's name

llama.cpp takes the number at the beginning of a word, so only how a number begins is judged.
Sources: common/arg.cpp of llama.cpp, and what llama-server b11669 answers to each of these values.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from console.common.options.command_line import Given, from_environment, given
from console.common.options.table import Effect, table

FILES = ("file", "dir", "path")
EITHER = {"jinja": "file", "repo": "dir"}
"""Kinds of values that are a file or a directory if they are a whole path."""
MAX_THREADS = 512
"""Processors that a range of llama.cpp can name (GGML_MAX_N_THREADS)."""
THREADS = ("--threads", "--threads-batch", "--threads-http", "--threads-draft",
           "--spec-draft-threads", "--spec-draft-threads-batch", "--threads-batch-draft",
           "--threads-mtmd")  # fmt: skip
MAX_STARTED = 1024
"""Threads that llama-server was seen to start."""
_INT = re.compile(r"\s*([+-]?\d+)")
_FLOAT = re.compile(r"\s*[+-]?(\d|\.\d|inf|nan)", re.IGNORECASE)
_NUMBER = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)")
_IPV4 = re.compile(r"\d+(?:\.\d+){3}")
WHOLE = re.compile(r"[+-]?\d{1,18}(?:_\d{1,18}){0,6}")
"""Whole numbers as Python's `int` takes them."""
_SHORT_NUMBER = re.compile(r"([:\[,]\s*\d+(?:\.\d+)?)[kKmMgGtT]\b")
_OF_RUNAI = re.compile(r"(?:s3|gs|az)://", re.IGNORECASE)
"""The addresses of object stores, which SGLang takes for names as well."""
MAX_FLOAT = 3.5e38
"""No float of 32 bits is larger."""
_VARIABLE = re.compile(r"\$[\w{(]|%\w+%|\{\{")
_ELSEWHERE = re.compile(r"[$`{}~*\n]|://")
"""What a shell or a template makes something else of."""


def wanted(argument: Given) -> str:
    """What the engine wants in place of an option's value, in words; "" if it takes the value, as
    far as can be told without the machine it runs on."""
    option = argument.option
    if option is None or option.kind in ("flag", "opt"):
        return ""
    if argument.value is None:
        return "" if option.takes_many or option.bare else "a value"
    value = argument.value.strip()
    if option.choices:
        if not value and option.bare:
            return ""
        return "" if value in option.choices else "one of " + ", ".join(option.choices[:12])
    name, _, limits = option.kind.partition("(")
    if name.startswith("some{"):
        return _some(name[len("some{") : -1].split(","), value)
    if "." in argument.spelling.lstrip("-") and name in ("json", "object"):
        return ""  # a part of the JSON
    if (
        name in FILES
        and not value
        and argument.spelling.startswith("-")
        and option.name != "--path"
    ):
        return "a path"
    check = _CHECKS.get(name)
    return "" if check is None else check(value, limits.rstrip(")"))


def wanted_in_python(argument: Given) -> str:
    """The same where Python's `argparse` reads the options, as in vLLM and SGLang. What a sum reads
    has a reader of its own, which knows the suffixes of numbers."""
    option, value = argument.option, (argument.value or "").strip()
    if option is None or option.kind in ("flag", "opt"):
        return ""
    if argument.value is None:
        return "" if option.takes_many or option.bare else "a value"
    if option.choices:
        return "" if value in option.choices else "one of " + ", ".join(option.choices[:12])
    if option.name == "--host" and "," in value:
        return "one address"
    if option.effect is Effect.READ:
        return ""
    name, _, limits = option.kind.rstrip(")").partition("(")
    if name in ("json", "map") and "." not in argument.spelling.lstrip("-"):
        good = _is_json_in_python(value)
        return "JSON" if not good else _object(value, "") if name == "map" else ""
    if name == "int" and not WHOLE.fullmatch(value):
        return "a whole number"
    if name == "float" and not is_python_float(value):
        return "a number"
    if name == "list" and limits:
        return _int(str(len(value.split())), limits) and f"{_span(limits)} values"
    if name == "name":
        return "a name without a colon" if ":" in value and not _OF_RUNAI.match(value) else ""
    return _CHECKS[name](value, limits) if limits and name in ("int", "float", "human") else ""


def doubtful(argument: Given) -> str:
    """Why a value cannot be judged here, in words; "" where it can."""
    kind, value = argument.option.kind if argument.option else "", (argument.value or "").strip()
    if argument.option is not None and argument.option.name in THREADS:
        count = _INT.match(value)
        if count is not None and int(count[1]) > MAX_STARTED:
            return f"{count[1]} threads, which few machines can start (100,000 end llama-server)"
    if kind == "grammar" and value:
        return "nobody here can tell whether the engine can read this grammar"
    if kind == "object" and value.strip("{} \t\n"):
        return "nobody here can tell whether the engine can make a grammar of this schema"
    if kind == "device" and value != "none":
        return "nobody here can tell which devices the build has"
    if kind.startswith("jinja{") and re.fullmatch(r"[\w-]+", value):
        known = value in kind[len("jinja{") : -1].split(",")
        return "" if known else f"{value} is none of the templates that are known here"
    if kind == "template" and ("{{" in value or "{%" in value):
        return "nobody here can tell whether the engine can read this template"
    return ""


def is_variable(argument: Given) -> bool:
    """Whether a value that has to have a form is a name that a shell has still to expand."""
    free = argument.option is None or argument.option.kind.partition("{")[0] in (
        *FILES, *EITHER, "str", "list", "template", "grammar",
    )  # fmt: skip
    return not free and _VARIABLE.match((argument.value or "").strip()) is not None


class Opened(NamedTuple):
    """A path that an engine opens at its start: the option, and whether it is a file, a dir, or any
    path."""

    option: str
    path: str
    kind: str


def opened(
    engine: str, argv: Sequence[str], env: Mapping[str, str] | None = None
) -> Iterator[Opened]:
    """The paths that a server with this table of options opens at its start, without those that a
    shell has still to expand. A certificate or its key alone is not opened."""
    options = table(engine)
    last = {
        argument.name: argument
        for argument in (*from_environment(env or {}, options), *given(argv, options))
        if argument.value and _opens(argument)
    }
    if sum(name in last for name in ("--ssl-key-file", "--ssl-cert-file")) == 1:
        last.pop("--ssl-key-file", None)
        last.pop("--ssl-cert-file", None)
    for name, last_argument in last.items():
        for path in (
            (last_argument.value or "").split(",")
            if name == "--lora"
            else [last_argument.value or ""]
        ):
            if path and not _ELSEWHERE.search(path):
                kind = last_argument.option.kind if last_argument.option else ""
                yield Opened(name, path, EITHER.get(kind.partition("{")[0], kind))


def _opens(argument: Given) -> bool:
    """Whether a value is something that the engine opens."""
    kind = argument.option.kind.partition("{")[0] if argument.option else ""
    return kind in FILES or (kind in EITHER and (argument.value or "").startswith("/"))


def is_there(path: Path, kind: str) -> bool:
    """Whether a path of this machine is what an option of this kind wants."""
    if kind == "dir":
        return path.is_dir()
    return path.exists() and not (kind == "file" and path.is_dir())


def _int(value: str, limits: str) -> str:
    match = _INT.match(value)
    if match is None:
        return "a whole number"
    number = int(match[1])
    good = not limits or any(_is_within(number, part) for part in limits.split(","))
    return "" if good else " or ".join(map(_span, limits.split(",")))


def _layers(value: str, limits: str) -> str:
    return "" if value in ("auto", "all") or _INT.match(value) else "a number, auto or all"


def _span(part: str) -> str:
    """Limits in words: `0..2` is "0 to 2", `1..` is "1 or more"."""
    low, dots, high = part.partition("..")
    return f"{low} to {high}" if high else f"{low} or more" if dots else low


def _is_within(number: int, part: str) -> bool:
    low, dots, high = part.partition("..")
    if not dots:
        return number == int(low)
    return number >= int(low) and (not high or number <= int(high))


def _float(value: str, limits: str) -> str:
    if not _FLOAT.match(value):
        return "a number"
    match = _NUMBER.match(value)
    number = float(match[1]) if match is not None else None
    if number is not None and abs(number) > MAX_FLOAT:
        return "a number of 32 bits"
    if not limits or number is None:
        return ""
    low, _, high = limits.partition("..")
    above, below = low.startswith(">"), high.startswith("<")
    floor, ceiling = float(low.lstrip(">")), float(high.lstrip("<") or "inf")
    good = floor <= number <= ceiling and not (above and number == floor)
    if good and not (below and number == ceiling):
        return ""
    start = f"more than {floor:g}" if above else f"{floor:g} or more"
    return start if not high else f"{start}, {'below' if below else 'up to'} {ceiling:g}"


def _human(value: str, limits: str) -> str:
    """A number with a unit is as large as any limit from below asks."""
    return _int(value, limits) if WHOLE.fullmatch(value) else ""


def _floats(value: str, limits: str) -> str:
    good = all(_FLOAT.match(part) for part in value.split(","))
    return "" if good else "numbers parted by commas"


def _json(value: str, limits: str) -> str:
    try:
        json.loads(value)
    except (ValueError, RecursionError):
        return "JSON"
    return ""


def _object(value: str, limits: str) -> str:
    try:
        return "" if isinstance(json.loads(value), dict) else "a JSON object"
    except (ValueError, RecursionError):
        return "a JSON object"


def _is_json_in_python(value: str) -> bool:
    """Whether a value is JSON, in which vLLM takes numbers like 80m as well; some options take the
    path of a file with it, too."""
    is_path = not value.startswith("{") and ("/" in value or value.endswith((".json", ".yaml")))
    return is_path or not _json(_SHORT_NUMBER.sub(r"\1", value), "")


def is_python_float(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def _mask(value: str, limits: str) -> str:
    good = re.fullmatch(r"(0[xX])?[0-9a-fA-F]*", value)
    return "" if good else "a processor mask in hex, like 0xff"


def _range(value: str, limits: str) -> str:
    match = re.match(r"(\d{0,9})-(\d{0,9})", value)
    good = match is not None and all(int(end or 0) < MAX_THREADS for end in match.groups())
    return "" if good else f"FIRST-LAST, processors below {MAX_THREADS}"


def _bias(value: str, limits: str) -> str:
    matches = [re.match(r"\s*\d+\s*[+-](.+)", part) for part in value.split(",")]
    good = all(match is not None and _FLOAT.match(match[1]) for match in matches)
    return "" if good else "TOKEN+BIAS or TOKEN-BIAS"


def _host(value: str, limits: str) -> str:
    if not value:
        return "an address"
    if "," in value:
        return "one address"
    if _IPV4.fullmatch(value.strip()):
        try:
            ipaddress.IPv4Address(value.strip())
        except ValueError:
            return "an address: its numbers go up to 255"
    return ""


def _some(words: Sequence[str], value: str) -> str:
    good = all(part.strip() in words for part in value.split(","))
    return "" if good else "some of " + ", ".join(words)


_CHECKS: Mapping[str, Callable[[str, str], str]] = {
    "int": _int, "float": _float, "floats": _floats, "json": _json,
    "object": _object, "mask": _mask, "range": _range, "bias": _bias, "host": _host,
    "layers": _layers, "human": _human,
}  # fmt: skip
