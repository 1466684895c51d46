"""Other site files with the name of a site. Records, log, restore times and watch are kept by name,
so that two baselines under one name would be taken for each other.

A site whose file was moved, or whose address was changed, is no other one: what counts is what each
file that is known here says now.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from urllib.parse import quote

from console.common import paths, record
from console.common.errors import ConsoleError, UsageError
from console.common.record import RecordError
from console.common.text import one_line
from console.config.site.site import Site, load_site
from console.host import process
from console.host.process import ProcessSpec
from console.journal import watch_record
from console.recovery.rollback import evidence, records, sealed_plan


def refuse(site: Site) -> None:
    """Raise UsageError if another site file of this name, whose baseline is at another address, is
    in use. A rollback never asks this."""
    for path in _files():
        other = _namesake(path, site.name, site.path)
        if other is None or not process.Owner(str(path), other.model.baseline.url).is_other(
            site.owner
        ):
            continue
        if use := _use(other):
            raise UsageError(
                f"another site has the name {one_line(site.name, 60)}",
                f"{one_line(str(path), 200)}, with its baseline at {other.model.baseline.url}, "
                f"{use}; this one, {one_line(str(site.path), 200)}, has its own at "
                f"{site.model.baseline.url}",
                "give one of them another name: `name:` in its file; then omni-console adopt --site"
                " FILE, where its baseline is a process",
            )


def free_name(wanted: str, own: str, path: Path) -> str:
    """The name for a new site file: the wanted one, or where another site on this machine has that
    already, with `own` behind it, and a number if need be."""
    longer = f"{wanted}-{own}"
    names = chain((wanted, longer), (f"{longer}-{number}" for number in count(2)))
    return next(name for name in names if not _taken(name, path))


def _taken(name: str, path: Path) -> bool:
    if any(_namesake(other, name, path) is not None for other in _files()):
        return True
    # a container's or unit's site is known by what was seen of its baseline alone; the usual file
    # keeps its name, as it may merely have been written anew
    if path.exists() or path == paths.default_site().absolute():
        return False
    directory = evidence.directory(name, "").parent
    begins = f"{paths.file_name(name)}@{quote('http', safe='')}"
    with contextlib.suppress(OSError):
        return any(entry.startswith(begins) for entry in os.listdir(directory))
    return False


def _namesake(path: Path, name: str, mine: Path) -> Site | None:
    """The site of another file than `mine` that has this name now."""
    if os.path.realpath(path) == os.path.realpath(mine):
        return None
    with contextlib.suppress(ConsoleError, OSError):
        other = load_site(path, lacking=True)
        return other if other.name == name else None
    return None


def _files() -> list[Path]:
    """Every site file that is known on this machine: the usual one, and those that runs, watches
    and recorded processes of this user are of."""
    known = [str(paths.default_site()), *_of_records(), *_of_watches(), *_of_runs()]
    paths_found = dict.fromkeys(os.path.realpath(path) for path in known if path)
    return [Path(path) for path in paths_found if os.path.exists(path)]


def _of_records() -> Iterator[str]:
    for file in sorted(paths.records_dir("").glob("*/*.json")):
        yield process.owner_of(file.parent, file.stem).file


def _of_watches() -> Iterator[str]:
    for file in sorted(paths.records_dir("").glob(f"*/{watch_record.PLAN}")):
        yield _watched(file)


@dataclass(frozen=True, slots=True)
class _Sealed:
    site_path: str


@dataclass(frozen=True, slots=True)
class _WatchPlan:
    """What of a watch's plan is asked here."""

    sealed: _Sealed


def _watched(file: Path) -> str:
    """The site file that a watch's plan was made of; "" where that cannot be read."""
    with contextlib.suppress(OSError, RecordError):
        return record.read(_WatchPlan, file).sealed.site_path
    return ""


def _of_runs() -> Iterator[str]:
    pointer = records.read(os.getuid())
    if pointer is not None:
        yield pointer.site
    for file in sealed_plan.copies():
        with contextlib.suppress(ConsoleError):
            yield sealed_plan.read(file).site_path


def _use(other: Site) -> str:
    """What uses another site now, in clean words; "" for nothing."""
    own = os.path.realpath(other.path)
    live = records.read(os.getuid())
    runs_now = live is not None and process.alive(live.pid, live.start)
    if live is not None and runs_now and os.path.realpath(live.site) == own:
        return f"has run {one_line(live.run_id, 60)} under way"
    plan = watch_record.file(other.name, watch_record.PLAN)
    if plan.exists() and os.path.realpath(_watched(plan) or "/") == own:
        return "is watched"
    runs, directory = other.baseline_spec().runs, paths.records_dir(other.name)
    if isinstance(runs, ProcessSpec):
        running = process.read_record(directory, "baseline", runs)
        return f"has pid {running[0]} as its baseline" if running is not None else ""
    return ""
