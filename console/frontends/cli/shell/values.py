"""What may stand in one place of a command line, for a shell's Tab key: quick, and never an error.

Names come from files that others may have written, and a shell puts them into a command line: only
those that no shell can take for more than a name are printed.
"""

from __future__ import annotations

import contextlib
import os
import re
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from console.common import paths
from console.common.errors import ConsoleError, Exit

SAFE = re.compile(r"[A-Za-z0-9_./@%+:,~=-]+")
MAX_OFFERED = 1000
ENDING = ".yaml"


def values(args: Namespace) -> int:
    """Print the values of a kind that begin with the first of the words, one a line; the others are
    the command line so far."""
    current, *line = [*args.words, ""][: max(1, len(args.words))]
    with contextlib.suppress(Exception):  # a shell has no use for an error in the middle of a line
        completions = KINDS[args.kind](current, line)
        fit = (
            completion
            for completion in completions
            if completion.startswith(current) and SAFE.fullmatch(completion)
        )
        print("\n".join(list(dict.fromkeys(fit))[:MAX_OFFERED]))
    return int(Exit.OK)


def _runs(current: str, line: Sequence[str]) -> Iterable[str]:
    """Newest first, as their ids begin with a date."""
    return sorted(_names(paths.runs_dir()), reverse=True)


def _playbooks(current: str, line: Sequence[str]) -> Iterable[str]:
    from console.config.locate import playbook_places

    return (name.removesuffix(ENDING) for place in playbook_places() for name in _names(place)
            if name.endswith(ENDING))  # fmt: skip


def _inputs(current: str, line: Sequence[str]) -> Iterator[str]:
    """`NAME=` for each input of the playbook on the line; `NAME=VALUE` where the values are known,
    or files where it is a path."""
    declared = _table(_document(_playbook(line)).get("inputs"))
    name, sign, given = current.partition("=")
    model = _table(declared.get(name))
    if not sign:
        # a secret is never given as an argument
        yield from (
            f"{input_name}="
            for input_name, two in declared.items()
            if _table(two).get("from") is None
        )
    elif model.get("type") == "bool":
        yield from (f"{name}=true", f"{name}=false")
    elif model.get("type") == "path":
        yield from (f"{name}={path}" for path in _paths(given))
    else:
        yield from (f"{name}={choice}" for choice in model.get("choices") or ())


def _input_names(current: str, line: Sequence[str]) -> Iterator[str]:
    declared = _table(_document(_playbook(line)).get("inputs"))
    yield from (name for name, two in declared.items() if _table(two).get("from") is None)


def _lessons(current: str, line: Sequence[str]) -> Iterable[str]:
    import console.config.lessons as lessons  # its registry would load the validation library

    places = (Path(lessons.__path__[0]) / "registry", paths.lessons_dir())
    return (name.removesuffix(ENDING) for place in places for name in sorted(_names(place))
            if name.endswith(ENDING))  # fmt: skip


def _services(current: str, line: Sequence[str]) -> Iterator[str]:
    from console.config.locate import site_file

    yield "baseline"
    for file in (_playbook(line), site_file(_option("--site", line))):
        yield from _table(_document(file).get("services"))


def _logs(current: str, line: Sequence[str]) -> Iterator[str]:
    """Services and steps of the run on the line, or of the newest, that have written something."""
    from console.journal.run_dir import RunDir

    run = RunDir(_run(line))
    for file in (run.log("x"), run.attempt_log("x", 1)):
        names = sorted(_names(file.parent))
        yield from (name.split(".")[0] for name in names if name.endswith(".log"))


def _steps(current: str, line: Sequence[str]) -> Iterator[str]:
    from console.journal.run_dir import RunDir

    for phase in _document(RunDir(_run(line)).playbook).get("phases") or ():
        yield from (_table(step).get("id", "") for step in _table(phase).get("steps") or ())


def _hosts(current: str, line: Sequence[str]) -> Iterator[str]:
    """Hosts of the fleet file, as the next of a list `A,B`."""
    from console.fleet.inventory import fleet_path

    before = current[: current.rfind(",") + 1]
    named = before.split(",")
    hosts = _table(_document(fleet_path(_option("--fleet", line))).get("hosts"))
    yield from (f"{before}{host}" for host in hosts if host not in named)


def _some_hosts(current: str, line: Sequence[str]) -> Iterator[str]:
    yield "all"
    yield from _hosts(current, line)


Kind = Callable[[str, Sequence[str]], Iterable[str]]
KINDS: dict[str, Kind] = {
    "runs": _runs, "playbooks": _playbooks, "inputs": _inputs, "lessons": _lessons,
    "services": _services, "logs": _logs, "steps": _steps, "input_names": _input_names,
    "hosts": _hosts, "some_hosts": _some_hosts,
}  # fmt: skip


def _names(place: Path) -> list[str]:
    try:
        return os.listdir(place)
    except OSError:
        return []


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _option(name: str, line: Sequence[str]) -> str | None:
    """What follows an option on the line."""
    return next((after for word, after in pairwise(line) if word == name), None)


def _playbook(line: Sequence[str]) -> Path | None:
    """The playbook that a word of the line names."""
    from console.config.locate import playbook_path

    for word in line[1:]:
        with contextlib.suppress(ConsoleError, OSError, ValueError):
            if not word.startswith("-") and (path := playbook_path(word)).is_file():
                return path
    return None


def _run(line: Sequence[str]) -> Path:
    """The run whose id, or the end of it, is on the line; else the newest."""
    every = sorted(_names(paths.runs_dir()), reverse=True)
    named = (run for word in line if len(word) >= 4 for run in every if run.endswith(word))
    return paths.runs_dir() / next(named, every[0] if every else "none")


def _document(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    import yaml  # a third of the time of the strict reader, which gives the place of every value

    from console.config.yaml import read_text

    return _table(yaml.load(read_text(file, ""), yaml.CSafeLoader))


def _paths(given: str) -> Iterator[str]:
    """Files and directories that a path goes on with, as it was begun."""
    head = given[: given.rfind("/") + 1]
    place = Path(os.path.expanduser(head or "."))
    for name in sorted(_names(place)):
        if not name.startswith(".") or given[len(head) :].startswith("."):
            yield f"{head}{name}{'/' if (place / name).is_dir() else ''}"
