"""What was last known of each host, kept on the operator's machine: a host that does not answer is
unknown since then, and may serve all the same. It is known of the machine that was asked: under
another ssh name, or by another command, the same name is another host."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from console.common import paths, record
from console.common.errors import ConsoleError
from console.common.files import write_atomically
from console.common.record import Key, RecordError
from console.common.text import clean, cleaned, one_line
from console.common.units import number
from console.fleet.inventory import Host
from console.fleet.line import Line, at_once
from console.fleet.protocol import MAX_KEPT, BridgeError, part

if TYPE_CHECKING:
    from console.journal.run_view import RunView

PRIVATE = 0o600
LATEST = 2.0**36
"""No real time is later, Unix seconds: calendars end before that."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a host. `at`: when it answered last, Unix seconds of this machine, 0.0 for
    never; `trouble`: why it did not answer now, "" if it did. `refused`: it was reached, and its
    console could not answer."""

    host: str
    at: float = 0.0
    state: dict[str, Any] = field(default_factory=dict)
    trouble: str = ""
    refused: bool = False

    def since(self, now: float) -> str:
        """`unknown since 12:03`; "" for a host that has answered."""
        if not self.trouble:
            return ""
        return f"unknown since {clock(self.at, now)}" if self.at else "unknown: it never answered"

    def part(self, name: str) -> dict[str, Any]:
        """A table of the state; empty where there is none."""
        return part(self.state, name)

    @property
    def back_at(self) -> float | None:
        """When its lease brings the baseline back unless somebody attaches, by this machine's
        clock; None if none was counted, or none that a clock could show."""
        left = number(self.part("guard").get("lease_s"))
        back = self.at + left if left is not None and self.at else 0.0
        return back if 0 < back < LATEST else None


@dataclass(frozen=True, slots=True)
class _Kept:
    """A host's answer on disk. `machine`: which one gave it."""

    at: float = 0.0
    state: dict[str, Any] = field(default_factory=dict)
    machine: Annotated[list[str], Key("asked")] = field(default_factory=list)


def clock(at: float, now: float) -> str:
    """A time of day, with the date where that is another one."""
    here, today = time.localtime(at), time.localtime(now)
    return time.strftime("%H:%M" if here[:3] == today[:3] else "%Y-%m-%d %H:%M", here)


def look(hosts: tuple[Host, ...], control: Path | None) -> list[Known]:
    """Ask all hosts at the same time; one that does not answer is as it was last known."""
    return at_once([Line(host, control) for host in hosts], _ask)


def _ask(line: Line) -> Known:
    """The state of one host, remembered; never raises for a host that cannot answer."""
    try:
        return ask_over(line)
    finally:
        line.close()


def ask_over(line: Line) -> Known:
    """The same over a line that may be open already, and stays so where it can."""
    try:
        state = line.ask("state")
    except ConsoleError as error:
        why = ": ".join(filter(None, (error.title, error.detail)))
        words = one_line("; ".join(filter(None, (why, error.hint))), 300)
        before = last(line.host)
        return Known(line.name, before.at, before.state, words, isinstance(error, BridgeError))
    return remember(line.host, state, time.time())


def note(host: Host, run: str, view: RunView, lease_s: float | None, now: float) -> None:
    """Remember of a run that is followed what a lost line makes wanted: its outage and lease."""
    state = last(host).state
    table = {"id": run, "playbook": view.playbook, "state": str(view.state), "over": view.over,
             "alive": not view.over, "outage": view.outage}  # fmt: skip
    base = {"word": "down"} if view.outage else state.get("baseline")
    guard = {"lease_s": lease_s}
    remember(host, {**state, "run": table, "baseline": base, "guard": guard}, now)


def remember(host: Host, state: dict[str, Any], now: float) -> Known:
    """Keep what a host has answered."""
    known, path = Known(host.name, now, cleaned(state)), _path(host.name)
    data = record.plain(_Kept(known.at, known.state, _address(host)))
    try:
        paths.make(path.parent)
        write_atomically(path, json.dumps(data), PRIVATE, durable=False)
    except OSError:
        pass  # it is known now all the same
    return known


def last(host: Host) -> Known:
    """What was known when the host answered last; nothing where another machine had that name."""
    try:
        kept = record.lenient(_Kept, record.load(_path(host.name), MAX_KEPT))
    except (OSError, RecordError):
        return Known(host.name)
    if kept.machine != _address(host) or not 0 < kept.at < LATEST:
        return Known(host.name)
    return Known(host.name, kept.at, cleaned(kept.state))


def _address(host: Host) -> list[str]:
    """Which machine it is, as far as its operator says."""
    return [host.ssh, host.command]


def words_of(host: Known, now: float) -> str:
    """When a host that cannot be reached has its baseline back by itself, as far as is known."""
    run, base = host.part("run"), clean(str(host.part("baseline").get("word", "")), 30)
    if not host.at:
        return "nothing is known of it"
    name, seen, alive = clean(str(run.get("id", "")), 100), clock(host.at, now), run.get("alive")
    # the sentinel of a run whose runner has died counts its lease all the same
    if (back := host.back_at) is not None and (alive or run.get("outage")):
        word = "comes back" if back > now else "should be back since"
        at = clock(back, now)
        return (
            f"the baseline {word} {'at ' if back > now else ''}{at} by the lease of run {name}, "
            "unless somebody is attached there"
        )
    if run.get("outage"):
        runner = "its runner was on" if alive else "its runner was gone"
        return (
            f"at {seen} run {name} had the baseline down, {runner}, and no lease was known; "
            "whether the baseline is back is not known"
        )
    if not alive:
        return f"at {seen} no run was active, baseline {base or 'unknown'}"
    return f"at {seen} run {name} had not taken the baseline down"


def _path(host: str) -> Path:
    return paths.fleet_dir() / "hosts" / f"{paths.file_name(host)}.json"
