"""Runs that start by the clock: a timer of systemd's for each, and the start itself.

A run without a person has a lease, approves nothing and promotes nothing: an approval waits until
it expires or the lease does, and then the baseline is brought back.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from console.common import paths, record
from console.common.clock import SystemClock
from console.common.errors import ConsoleError, UsageError
from console.common.files import write_atomically
from console.common.paths import module_argv
from console.common.record import RecordError
from console.common.text import clean, one_line
from console.config.locate import playbook_of
from console.config.site.schedule import AT_FORM, NAME, TIME, USUAL_LEASE_S
from console.config.site.site import Site, load_site
from console.host import systemd
from console.host.systemd import SYSTEMD, Unit
from console.journal.run_dir import RunDir

SERVICE = """\
[Unit]
Description=Starts a playbook of omni-console by the clock
{order}
[Service]
Type=oneshot
{user}{environment}ExecStart={command}
TimeoutStartSec=infinity
# the run goes on in a process of its own
KillMode=process
OOMPolicy=continue
"""
TIMER = """\
[Unit]
Description=When {playbook} of omni-console starts

[Timer]
OnCalendar={at}
AccuracySec=1s

[Install]
WantedBy=timers.target
"""
NAME_FORM = re.compile(NAME)
MAX_TIME = 1 << 33
DUE = 'date +%s >"$0"; exec "$@"'
"""Runs a command behind a mark of when it was due, which the command itself removes: it stays where
the program cannot be run, as in the middle of an upgrade."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One run by the clock. `once`: at an absolute time, and then no more; `inputs` as they are
    typed; `site`: its file, "" for the usual one."""

    name: str
    playbook: str
    at: str
    lease_s: float
    inputs: dict[str, str] = field(default_factory=dict)
    once: bool = False
    site: str = ""

    @property
    def unit(self) -> Unit:
        return systemd.unit(False, f"run-{self.name}")

    @property
    def timer(self) -> Path:
        return self.unit.path.with_suffix(".timer")

    @property
    def due(self) -> Path:
        return folder() / f"{self.name}.due"

    @property
    def missed_at(self) -> float | None:
        """When the timer fired last and the program could not be run, Unix seconds; None if it
        could."""
        try:
            return float(min(int(self.due.read_bytes()), MAX_TIME))
        except (OSError, ValueError):
            return None

    @property
    def calendar(self) -> str:
        """The time as systemd reads it."""
        return f"*-*-* {self.at}:00" if TIME.fullmatch(self.at) else self.at


def of_site(site: Site) -> list[Entry]:
    """What a site's file wants to be started."""
    given = str(site.path.resolve())
    lease_s = site.model.lease or USUAL_LEASE_S
    return [
        Entry(
            entry.name, entry.playbook, entry.at, entry.lease or lease_s,
            {name: _typed(value) for name, value in entry.inputs.items()}, site=given,
        )
        for entry in site.model.schedule
    ]  # fmt: skip


def _typed(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def once(
    playbook: str, at: str, inputs: dict[str, str], lease_s: float | None, site: Site, now: float
) -> Entry:
    """A run at the next `HH:MM`, or at `YYYY-MM-DD HH:MM` of this machine's clock. Raises
    UsageError for another form, and for a time that has passed."""
    moment = _moment(at.strip(), now)
    if moment <= now:
        raise UsageError(f"--at {one_line(at, 40)}", "that time has passed")
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))
    name = f"at-{time.strftime('%m%d-%H%M', time.localtime(moment))}-{os.urandom(2).hex()}"
    lease = lease_s or site.model.lease or USUAL_LEASE_S
    return Entry(name, playbook, when, lease, inputs, once=True, site=str(site.path.resolve()))


def _moment(at: str, now: float) -> float:
    if TIME.fullmatch(at):
        here, hour, minute = time.localtime(now), int(at[:2]), int(at[3:])
        # a day has 23 hours or 25 where clocks are changed: mktime finds the next day's time
        moments = (
            time.mktime((here.tm_year, here.tm_mon, here.tm_mday + day, hour, minute, 0, 0, 0, -1))
            for day in (0, 1)
        )
        return next((moment for moment in moments if moment > now), 0.0)
    try:
        return time.mktime(time.strptime(at, "%Y-%m-%d %H:%M"))
    except ValueError:
        form = "a time of day like 02:00, or a date with it like 2026-11-27 02:00"
        raise UsageError(f"--at {one_line(at, 40)}", f"expected {form}") from None


# -- timers ----------------------------------------------------------------------------------------


def folder() -> Path:
    return paths.state_dir() / "schedule"


def install(entry: Entry) -> None:
    """Write what is started and its timer, and start the timer. The playbook has to load on the
    site now. Raises ConsoleError; then nothing is left."""
    _possible(entry)
    site = load_site(Path(entry.site)) if entry.site else _usual_site()
    pairs = [f"{name}={value}" for name, value in entry.inputs.items()]
    playbook_of(entry.playbook, pairs, site)
    unit = entry.unit
    argv = [*module_argv("console.cli"), "schedule", "start", entry.name]
    argv = ["/bin/sh", "-c", DUE, str(entry.due), *argv]
    service = systemd.filled(SERVICE, unit, argv, dict(os.environ))
    paths.make(folder())
    unit.path.parent.mkdir(parents=True, exist_ok=True)
    named = one_line(entry.playbook, 80).replace("%", "%%")
    texts = {
        folder() / f"{entry.name}.json": record.text(entry, indent=1),
        unit.path: service, entry.timer: TIMER.format(playbook=named, at=entry.calendar),
    }  # fmt: skip
    before = {path: path.read_text("utf-8") for path in texts if path.exists()}
    for path, text in texts.items():
        write_atomically(path, text)
    try:
        unit.systemctl("daemon-reload")
        unit.systemctl("enable", "--now", entry.timer.name)
    except ConsoleError as error:
        # an earlier timer of this name goes on, if there is one
        for path, text in before.items():
            write_atomically(path, text)
        if before.keys() != texts.keys():
            remove(entry.name)
        hint = f"`at` is {AT_FORM}; `systemd-analyze calendar` explains one"
        raise ConsoleError(
            f"the timer of {entry.name} cannot be started", str(error), hint
        ) from None


def _possible(entry: Entry) -> None:
    if not SYSTEMD.exists() or not shutil.which("systemctl"):
        hint = "cron can start `omni-console run PLAYBOOK --detach --lease TIME` instead"
        raise UsageError("this machine is not run by systemd", str(SYSTEMD), hint)
    if not entry.unit.lingers:
        raise UsageError(
            f"{entry.unit.user} does not linger: nothing would start while nobody is logged in", "",
            f"sudo loginctl enable-linger {entry.unit.user}",
        )  # fmt: skip


def remove(name: str) -> bool:
    """Stop and delete a timer and what it starts; False if there was none. A run that it has
    started goes on. Raises ConsoleError."""
    if not NAME_FORM.fullmatch(name):
        return False
    entry = Entry(name, "", "", 0.0)
    files = (entry.timer, entry.unit.path, folder() / f"{name}.json", entry.due)
    if not any(path.exists() for path in files):
        return False
    with contextlib.suppress(ConsoleError):  # systemd has not loaded one with a wrong time
        entry.unit.systemctl("disable", "--now", entry.timer.name)
    for path in files:
        path.unlink(missing_ok=True)
    entry.unit.systemctl("daemon-reload")
    return True


def installed() -> list[Entry]:
    """What has a timer, by name. A file that cannot be read is left out."""
    entries = []
    for path in sorted(folder().glob("*.json")):
        with contextlib.suppress(OSError, RecordError):
            entries.append(record.read(Entry, path, name=path.stem))
    return entries


def following(entries: Iterable[Entry]) -> dict[str, str]:
    """When each timer fires next, in systemd's words; "" for one that does not any more."""
    next_times = {}
    for entry in entries:
        try:
            words = entry.unit.systemctl(
                "show", entry.timer.name, "--property=NextElapseUSecRealtime", "--value"
            )
        except ConsoleError:
            words = ""
        next_times[entry.name] = clean(words.strip(), 80)
    return next_times


# -- the start -------------------------------------------------------------------------------------


def start(name: str) -> RunDir:
    """Start what a timer stands for, detached; one that is started once is removed. What keeps it
    from starting is told as the site's `notify:` says. Raises ConsoleError."""
    if not NAME_FORM.fullmatch(name):
        raise UsageError(f"no run is scheduled as '{one_line(name, 40)}'")
    entry = next(
        (scheduled_run for scheduled_run in installed() if scheduled_run.name == name), None
    )
    if entry is None:
        raise UsageError(f"no run is scheduled as '{name}'", str(folder()), "omni-console schedule")
    entry.due.unlink(missing_ok=True)
    try:
        return _begin(entry)
    finally:
        if entry.once:
            remove(entry.name)


def _begin(entry: Entry) -> RunDir:
    from console.runner.launch import begin

    site = load_site(Path(entry.site)) if entry.site else _usual_site()
    try:
        pairs = [f"{name}={value}" for name, value in entry.inputs.items()]
        playbook = playbook_of(entry.playbook, pairs, site)
        return begin(
            site, playbook, entry.inputs, step=False, say=lambda text: print(text, flush=True),
            lease_s=entry.lease_s,
        )  # fmt: skip
    except ConsoleError as error:
        tell(site, entry.playbook, f"schedule:{entry.name}", str(error))
        raise


def tell(site: Site, playbook: str, key: str, why: str) -> None:
    """Tell whom the site names that nothing has begun. `key`: what was to begin it, and its
    name."""
    from console.notify.event import Event
    from console.notify.outbox import post

    now = SystemClock().now()
    words = f"It did not start: {why}. The baseline was not touched."
    title = f"{one_line(playbook, 60)} did not start"
    what, _, name = key.partition(":")
    data = {"playbook": playbook, what: name}
    event = Event("run-end", f"{key}:{now:.0f}", title, clean(words, 1500), now,
                  site.name, "", data)  # fmt: skip
    post(site.model.notify, event)


def _usual_site() -> Site:
    from console.config.locate import site

    return site(None)
