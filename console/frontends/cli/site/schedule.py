"""`schedule`: runs by the clock, listed, installed and removed; and `run --at`."""

from __future__ import annotations

import time
from argparse import Namespace
from typing import Any

from console.common import redact
from console.common.errors import Exit, UsageError
from console.common.text import clean, one_line
from console.common.units import format_duration
from console.config.locate import inputs_of
from console.config.locate import site as site_of
from console.runner.unattended import schedule as timers
from console.runner.unattended.schedule import Entry

PARTS = ("install", "remove", "start")


def schedule(args: Namespace) -> int:
    """List, install or remove runs by the clock. Exit 0, or 2 for bad usage."""
    if args.part == "start":
        run = timers.start(args.name)
        print(f"run {run.id} goes on; omni-console attach {run.id[-4:]}")
        return int(Exit.OK)
    if args.part == "remove":
        return _remove(args)
    if args.part == "install":
        return _install(args)
    if args.part:
        raise UsageError(
            f"schedule takes no '{one_line(args.part, 40)}'", f"there are: {', '.join(PARTS[:2])}"
        )
    return _listed(args)


def at(args: Namespace, lease_s: float | None) -> int:
    """Have a playbook start later, once: `run --at`."""
    if args.yes or args.step:
        raise UsageError("--at with --yes or --step", "a run without a person approves nothing")
    site = site_of(args.site)
    entry = timers.once(args.playbook, args.at, inputs_of(args.input), lease_s, site, time.time())
    timers.install(entry)
    _print(args, [entry], f"{entry.playbook} starts at {entry.at}")
    return int(Exit.OK)


def _install(args: Namespace) -> int:
    site = site_of(args.site)
    wanted = timers.of_site(site)
    path = str(site.path.resolve())
    there = {timer.name for timer in timers.installed() if timer.site == path and not timer.once}
    gone = sorted(there - {timer.name for timer in wanted})
    for name in gone:  # first: a timer of what was taken out must not outlive a fault elsewhere
        timers.remove(name)
    if not wanted and not gone:
        raise UsageError(
            "this site schedules nothing", clean(str(site.path)),
            "docs/how-to/night-shift.md describes `schedule:`",
        )  # fmt: skip
    for entry in wanted:
        timers.install(entry)
    _print(args, wanted, f"{len(wanted)} installed")
    return int(Exit.OK)


def _remove(args: Namespace) -> int:
    names = [args.name] if args.name else [timer.name for timer in timers.installed()]
    for name in names:
        if not timers.remove(name):
            there = ", ".join(timer.name for timer in timers.installed()) or "none"
            raise UsageError(
                f"no run is scheduled as '{one_line(name, 40)}'", f"there are: {there}"
            )
    if args.json:
        print(redact.dumped({"removed": names}))
    else:
        print(f"removed {', '.join(names)}" if names else "nothing is scheduled")
    return int(Exit.OK)


def _listed(args: Namespace) -> int:
    entries = timers.installed()
    here = {entry.name for entry in entries}
    waiting = [entry for entry in timers.of_site(site_of(args.site)) if entry.name not in here]
    if not entries and not args.json:
        print("nothing is scheduled: omni-console run PLAYBOOK --at 02:00, or `schedule:` in the "
              "site file")  # fmt: skip
    _print(args, entries, "")
    if waiting and not args.json:
        names = ", ".join(entry.name for entry in waiting)
        print(f"not installed yet: {names}; omni-console schedule install")
    return int(Exit.OK)


def _print(args: Namespace, entries: list[Entry], words: str) -> None:
    following = timers.following(entries)
    if args.json:
        rows: list[dict[str, Any]] = [
            {"name": run.name, "playbook": run.playbook, "at": run.at, "lease_s": run.lease_s,
             "once": run.once, "next": following[run.name], "missed_at": run.missed_at}
            for run in entries
        ]  # fmt: skip
        print(redact.dumped({"scheduled": rows}))
        return
    for entry in entries:
        when = following[entry.name] or "not any more"
        print(f"{entry.name:<20} {clean(entry.playbook, 60)}  at {entry.at}, next {when}, lease "
              f"{format_duration(entry.lease_s)}")  # fmt: skip
        if entry.missed_at is not None:
            missed = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.missed_at))
            print(f"  it did not start at {missed}: omni-console could not be run then; "
                  f"omni-console run {clean(entry.playbook, 60)} starts it now")  # fmt: skip
    if words:
        print(words)
