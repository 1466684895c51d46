"""What is seen of a trial from outside, without the console, and which promises it breaks."""

from __future__ import annotations

import contextlib
import http.client
import json
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

SUCCESS, FAILED = 0, 7
ADVICE = ("by hand:", "omni-console ", "sh ", "docker ", "export ")
"""A failed rollback says what to type: one of these stands in what it prints."""


@dataclass(frozen=True)
class Command:
    """One rollback, resume or run that came to its own end. `serves`: whether the baseline itself
    answered a completion right after; None where something else was still going on."""

    name: str
    code: int
    text: str
    serves: bool | None
    beside: str = ""
    """A runner that was known before the rollback ended, and outlived it."""


@dataclass(frozen=True)
class Row:
    """One event of a journal as it is stored."""

    seq: int
    kind: str
    step: str
    data: str


@dataclass
class Facts:
    """What is seen when everything has come to rest."""

    serves: bool = True
    holders: Sequence[str] = ("baseline",)
    """Who listens on the baseline's port: baseline, candidate or other."""
    candidate_listens: bool = False
    orphans: Sequence[str] = ()
    temp: Sequence[str] = ()
    """Temporary files in the host directory and the runs'."""
    kills: int = 0
    both_s: float = 0.0
    """The longest time for which baseline and candidate were up together, seconds."""
    effects: Sequence[str] = ()
    """A line `RUN STEP` for each time a step really acted."""
    journals: Mapping[str, Sequence[Row] | str] = field(default_factory=dict)
    """Rows by run; a text where it cannot be read."""
    commands: Sequence[Command] = ()
    ended: Sequence[str] = ()
    """The servers of other sites that ran beside the trial and do not any more."""


BOTH_S = 1.0


def violations(facts: Facts) -> list[str]:
    """Every promise that these facts break, one line each: `kind: what`."""
    found = []
    if not facts.serves:
        found.append("down: the baseline answers no completion")
    elif list(facts.holders) != ["baseline"]:
        found.append(
            f"owner: the baseline's port belongs to {', '.join(facts.holders) or 'nobody'}"
        )
    if facts.candidate_listens:
        found.append("orphan: the candidate's port is listened on")
    found += [f"orphan: {one}" for one in facts.orphans]
    found += [f"stranger: {one} was ended" for one in facts.ended]
    if len(facts.temp) > facts.kills:
        found.append(f"temp: {len(facts.temp)} left by {facts.kills} kills: {list(facts.temp)[:4]}")
    if facts.both_s > BOTH_S:
        found.append(f"both: baseline and exclusive candidate were up for {facts.both_s:.1f} s")
    for command in facts.commands:
        found += _judged(command)
    for run, rows in facts.journals.items():
        found += [f"journal: {run}: {words}" for words in _whole(rows)]
    return found + _twice(facts)


def _judged(command: Command) -> list[str]:
    name, code = command.name, command.code
    said = " ".join(command.text.split())[-400:]
    found = []
    if "Traceback (most recent call last)" in command.text:
        found.append(f"traceback: {name}: {said}")
    if command.beside:
        found.append(f"control: {name} said {code}, and {command.beside} went on")
    if name == "rollback" and code not in (SUCCESS, FAILED):
        found.append(f"exit: {name} ended with {code}: {said}")
    if command.serves is False and code == SUCCESS:
        found.append(f"exit: {name} said 0, and the baseline does not serve: {said}")
    if command.serves is True and code == FAILED:
        found.append(f"exit: {name} said 7, and the baseline serves: {said}")
    if code == FAILED and name == "rollback" and not any(one in command.text for one in ADVICE):
        found.append(f"advice: {name} failed and does not say what to type: {said}")
    return found


def _whole(rows: Sequence[Row] | str) -> list[str]:
    if isinstance(rows, str):
        return [rows]
    found = []
    if [row.seq for row in rows] != list(range(1, len(rows) + 1)):
        found.append("the sequence has a gap")
    for row in rows:
        try:
            whole = isinstance(json.loads(row.data), dict)
        except ValueError:
            whole = False
        if not whole:
            found.append(f"event {row.seq} does not parse")
    return found


def _twice(facts: Facts) -> list[str]:
    found = []
    for line, count in Counter(facts.effects).items():
        run, _, step = line.partition(" ")
        rows = facts.journals.get(run)
        if not rows:
            found.append(f"effect: {step} acted in {run}, which has no journal")
        elif count > 1 and not _excused(rows, step):
            found.append(f"effect: {step} of {run} acted {count} times")
    return found


def _excused(rows: Sequence[Row] | str, step: str) -> bool:
    """Whether the journal says that nobody knew, or that somebody asked for it again."""
    words = ("in_doubt", "retry")
    return not isinstance(rows, str) and any(
        row.step == step and any(word in row.kind or word in row.data for word in words)
        for row in rows
    )


def after_the_proof(text: str, killed: float) -> bool:
    """Whether a baseline that was killed then (Unix time) had been measured before by the rollback
    that printed `text`: no rollback answers for what comes later. A world's clock may be whole
    hours ahead."""
    measured = None
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            said = json.loads(line)
            if isinstance(said, dict) and said.get("rung") == "measure" and "at" in said:
                measured = None if said.get("state") == "begin" else float(said["at"])
    return measured is not None and (killed - measured) % 3600 < 60


# -- looking ------------------------------------------------------------------------------------


def completes(port: int) -> bool:
    """Whether a completion is answered on this port, by a request of the driver's own."""
    asked = {"messages": [{"role": "user", "content": "ready?"}], "max_tokens": 2}
    try:
        status, said = _ask(port, "POST", "/v1/chat/completions", json.dumps(asked))
        return status == 200 and bool(json.loads(said)["choices"])
    except (OSError, http.client.HTTPException, ValueError, KeyError):
        return False


def healthy(port: int) -> bool:
    try:
        return _ask(port, "GET", "/health")[0] == 200
    except (OSError, http.client.HTTPException):
        return False


def _ask(port: int, verb: str, path: str, body: str | None = None) -> tuple[int, bytes]:
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=5.0)
    with contextlib.closing(link):
        link.request(verb, path, body, {"Content-Type": "application/json"})
        reply = link.getresponse()
        return reply.status, reply.read()


def listeners(port: int, pids: Sequence[int]) -> list[int]:
    """Those of these processes that listen on a port of loopback."""
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            for one in psutil.Process(pid).net_connections("tcp"):
                if one.status == psutil.CONN_LISTEN and one.laddr.port == port:
                    found.append(pid)
    return found


def journals(runs: Path) -> dict[str, Sequence[Row] | str]:
    """The rows of every run, read as a plain database."""
    found: dict[str, Sequence[Row] | str] = {}
    for file in sorted(runs.glob("*/journal.db")):
        try:
            with contextlib.closing(sqlite3.connect(file, timeout=10)) as database:
                [[state]] = database.execute("PRAGMA integrity_check").fetchall()
                rows = database.execute("SELECT seq, kind, step, data FROM event ORDER BY seq")
                found[file.parent.name] = [Row(*row) for row in rows] if state == "ok" else state
        except sqlite3.Error as error:
            empty = "no such table" in str(error)  # killed before the first event: it never was
            found[file.parent.name] = [] if empty else str(error)
    return found
