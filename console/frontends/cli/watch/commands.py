"""`watch`: the process that watches the baseline, the unit that starts it, and what it knows."""

from __future__ import annotations

import os
import sys
import time
from argparse import Namespace
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from console.common import redact
from console.common.errors import Exit, InvalidFile, UsageError
from console.common.paths import module_argv
from console.common.text import clean, one_line
from console.common.units import number, plural
from console.config.locate import demo_site, own_site, site_file
from console.host import systemd
from console.journal import watch_record as record
from console.journal.watch_record import CUT_OVER, PLANNED, WatchState
from console.recovery.rollback.sealed_plan import SealedPlan
from console.render.watch.status import lines
from console.watch import plan as plans
from console.watch.plan import ENVIRONMENT, OPTIONS, Settings, WatchPlan

if TYPE_CHECKING:
    from console.config.site.notify import NotifyModel

SLOWER, FASTER, LESSONS = "slower", "faster", "lessons-due"
FIELDS = ("key", "title", "text")


def run(args: Namespace) -> int:
    """Write the plan of the watch and become the watch, which loads nothing of this."""
    path, trouble = site_file(args.site) or demo_site(), ""
    try:
        made = _own(path, bool(args.site or os.environ.get("OMNI_SITE")))
        plans.write(made, record.file(made.site, record.PLAN))
    except (InvalidFile, UsageError, OSError) as error:
        # Neither an editor's slip nor a full disk nor another site's name may leave the baseline
        # alone: the last plan goes on.
        earlier = plans.of_site_file(path, current=False)
        if earlier is None:
            raise
        why = str(error) if isinstance(error, OSError) else error.detail
        made, trouble = earlier, one_line(f"the site file cannot be used: {why}", 300)
        print(trouble, file=sys.stderr, flush=True)
    program, *rest = module_argv("console.watch.daemon")
    argv = [program, *OPTIONS, *rest, str(record.file(made.site, record.PLAN))]
    os.environ.update(ENVIRONMENT)
    os.execv(program, [*argv, *([trouble] if trouble else [])])


def _own(path: Path, given: bool) -> WatchPlan:
    """The plan from a site file whose name no other site has. Raises InvalidFile, UsageError."""
    from console.config.site.site import load_site
    from console.runner.prepare import namesakes

    namesakes.refuse(load_site(path))
    return _made(path, given)


def _made(path: Path, given: bool) -> WatchPlan:
    """The plan from the site file; nothing is looked up. Raises InvalidFile."""
    from console.config.site.site import load_site
    from console.runner.prepare.baseline import written
    from console.runner.prepare.seal import sealed_plan

    site = load_site(path)
    keys = site.model.watch.model_dump()
    settings = Settings(keys.pop("interval"), metrics=keys.pop("metrics") or "", **keys)
    from console.notify.outbox import plain

    notify = tuple(plain(channel) for channel in site.model.notify)
    return WatchPlan(settings, sealed_plan(site, written(site)), given, notify)


def install(args: Namespace) -> int:
    """Install the unit and start it. Raises ConsoleError."""
    from console.watch.unit import text_of

    if (path := site_file(args.site)) is not None:
        _own(path, True)  # what cannot be used is said here, not in the journal
    unit = systemd.unit(args.system, systemd.WATCH)
    command = "omni-console watch install"
    systemd.install(unit, lambda: text_of(unit, args.site, dict(os.environ)), command, now=True)
    return _say(args, f"installed and started: {unit.path}", unit=str(unit.path))


def uninstall(args: Namespace) -> int:
    """Stop and remove the unit; 0 even if there is none."""
    unit = systemd.unit(args.system, systemd.WATCH)
    gone = systemd.remove(unit, now=True)
    return _say(args, f"removed: {unit.path}" if gone else f"nothing to remove: {unit.path}")


def status(args: Namespace) -> int:
    """What the watch knows; 0 when it runs and the baseline serves, or is away as a run or a
    cutover has planned it; else 5, as metrics say 0 then."""
    from console.recovery.rollback.look import Looker

    sealed = sealed_of(args.site)
    state = record.read(sealed.site_name)
    known = Looker().state(sealed)
    installed_unit = systemd.installed(systemd.WATCH)
    running = state is not None and state.looks_on(time.time())
    if args.json:
        unit = str(installed_unit.path) if installed_unit is not None else ""
        state_fields = None if state is None else asdict(state)
        baseline = {"state": str(known.word), "reasons": known.reasons, "since": known.since}
        print(redact.dumped(
            {"running": running, "unit": unit, "baseline": baseline, "state": state_fields}
        ))  # fmt: skip
    else:
        print("\n".join(lines(state, _running(state, installed_unit), time.time(), known)))
    planned = state is not None and state.word in (PLANNED, CUT_OVER)
    fine = running and (known.up or planned)
    return int(Exit.OK if fine else Exit.FAILED)


def _running(state: WatchState | None, unit: systemd.Unit | None) -> str:
    if state is not None and (stands := state.stands_still(time.time())):
        return f"stands still, pid {state.pid}: {stands}"
    if state is not None and state.alive:
        return f"runs, pid {state.pid}" + (f", {unit.name}" if unit is not None else ", by hand")
    if unit is None:
        return "does not run: omni-console watch install"
    if not unit.lingers:
        return f"{unit.path} waits for a login: sudo loginctl enable-linger {unit.user}"
    return f"does not run, although {unit.name} is installed: systemctl status {unit.name}"


def sealed_of(given: str | None) -> SealedPlan:
    """The baseline of a site; from the plan of its watch if that is of today's file, for no parser
    is loaded then, or if the file cannot be used. Raises InvalidFile, or UsageError without it."""
    path = own_site(given)
    if (known := plans.of_site_file(path, current=True)) is not None:
        return known.sealed
    try:
        return _made(path, True).sealed
    except InvalidFile:
        if (earlier := plans.of_site_file(path, current=False)) is None:
            raise
        return earlier.sealed


def post(args: Namespace) -> int:
    """Post what the watch has told within a day to the channels of the site, and once a week which
    lessons are due; each once, by its key. The watch starts this. Raises InvalidFile."""
    from console.notify.event import Event
    from console.notify.outbox import Outbox, post, wake

    (site, channels), now = _site_channels(args), time.time()
    for channel in channels:
        known = Outbox().known(channel, now)
        for line in record.memory(site):
            at, kind = number(line.get("at")), str(line.get("event", ""))
            if line.get("kind") == "event" and at is not None and at > known:
                key, title, text = (clean(str(line.get(name, "")), 600) for name in FIELDS)
                # A channel that is told of a slowdown is told of its end.
                kind = SLOWER if kind == FASTER else kind
                post([channel], Event(kind, key, title, text, at, site), start=False)
        if LESSONS in channel.on and (due := _lessons_due(date.fromtimestamp(now))):
            week = "-".join(map(str, date.fromtimestamp(now).isocalendar()[:2]))
            key = f"{LESSONS}@{site}@{week}:{','.join(due)}"
            title = f"{plural(len(due), 'lesson')} due for review"
            text = f"{', '.join(due)}: omni-console lessons --due"
            post([channel], Event(LESSONS, key, title, text, now, site), start=False)
    if channels and Outbox().items():
        wake()
    return int(Exit.OK)


def _site_channels(args: Namespace) -> tuple[str, list[NotifyModel]]:
    """The site's name, and whom its file tells; from the plan of the watch while the file cannot be
    used, for an outage does not wait for an editor. Raises InvalidFile without a plan."""
    from console.config.locate import site as site_of
    from console.config.site.notify import NotifyModel

    try:
        site = site_of(args.site)
        return site.name, site.model.notify
    except InvalidFile:
        path = site_file(args.site) or demo_site()
        if (earlier := plans.of_site_file(path, current=False)) is None:
            raise
        return earlier.site, [NotifyModel.model_validate(channel) for channel in earlier.notify]


def _lessons_due(today: date) -> list[str]:
    from console.config.lessons.registry import due_by, load_registry

    return [lesson.id for lesson in load_registry().lessons if due_by(lesson, today)]


def _say(args: Namespace, words: str, unit: str = "") -> int:
    print(redact.dumped({"unit": unit, "detail": words}) if args.json else clean(words))
    return int(Exit.OK)
