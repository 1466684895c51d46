"""Accepting a cutover: proved once more, recorded with who and why; nothing is moved by it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from console.common import paths
from console.common.errors import BaselineNotReady, ConsoleError, UsageError
from console.common.text import one_line
from console.config.playbook.load import load_playbook
from console.config.site.load import load_site
from console.config.site.site import Site
from console.journal.liveness import ladder_busy, runner_alive
from console.journal.lock import HostLock
from console.journal.run_dir import RunDir
from console.journal.run_read import read_view
from console.journal.run_view import RunView
from console.journal.store import Journal
from console.recovery.rollback import promotion
from console.recovery.rollback.promotion import Promotion
from console.render.report.document import write_report
from console.runtime import proxy as relay
from console.runtime.probe import Completion, complete
from console.runtime.proxy import Relay
from console.runtime.spec import ServiceSpec


@dataclass(frozen=True, slots=True)
class CutOver:
    """A cutover that stands: its relay, its run, and what clients reach."""

    relay: Relay
    run: RunDir
    view: RunView
    spec: ServiceSpec


def standing(site: Site) -> CutOver:
    """The cutover to accept. Raises UsageError where there is none, or its run is still on."""
    url = site.model.baseline.url
    found = relay.at(url)
    if found is None:
        raise UsageError(
            "there is nothing to promote", f"clients of {url} are not at a candidate",
            "a playbook's step `cutover: {to: …, then: stay}` leaves them there",
        )  # fmt: skip
    run = RunDir(paths.runs_dir() / found.run)
    if not found.run or not run.readable:
        raise UsageError("the run that cut over is not on record", f"relay, pid {found.pid}")
    if runner_alive(run) or ladder_busy(run):
        raise UsageError(
            f"run {run.id} is still on", "it may yet go back",
            f"omni-console attach {run.id[-4:]}; promote when it has ended",
        )  # fmt: skip
    view = read_view(run)
    if view.rehearsal:
        raise UsageError("a rehearsal cannot be promoted", "stand-ins answered, not the engine")
    if not view.over or view.cutover.get("what") not in ("stays", "promoted"):
        raise UsageError(
            f"run {run.id} did not end with its cutover proven", f"its state is {view.state}",
            f"omni-console resume {run.id[-4:]}, or omni-console rollback",
        )  # fmt: skip
    return CutOver(found, run, view, _spec(run, found.service))


def _spec(run: RunDir, name: str) -> ServiceSpec:
    """The service as the run started it, by the run's own copies. Raises ConsoleError."""
    from pathlib import Path

    meta, site = run.meta(), load_site(run.site)
    site.base = Path(meta.site_base)
    playbook = load_playbook(
        run.playbook, meta.inputs, base=Path(meta.base), planning=True, pinned=True,
        site_services=frozenset(site.model.services), aliases=site.model.names,
    )  # fmt: skip
    return {**site.service_specs(), **playbook.services()}[name]


def proven(site: Site) -> Completion:
    """One completion on the production port, now. Raises BaselineNotReady."""
    ask, url = site.model.baseline.completion, site.model.baseline.url
    done = complete(url, prompt=ask.prompt, max_tokens=ask.max_tokens, timeout_s=ask.timeout)
    if not done.ok:
        raise BaselineNotReady(
            "not promoted: clients are not served", f"{url}: {done.detail}",
            "omni-console rollback brings the baseline back",
        )  # fmt: skip
    return done


def accept(cut: CutOver, who: str, why: str) -> Promotion:
    """Record it in the run's directory, journal and report. Raises HostBusy, OSError,
    ConsoleError; no run is on meanwhile."""
    lock = HostLock()
    try:
        made = Promotion(cut.relay.service, one_line(who, 60), one_line(why, 300), time.time())
        promotion.write(cut.run.path, made)
        journal = Journal(cut.run.journal)
        try:
            data = {"what": "promoted", "who": made.who, "why": made.why}
            journal.append(made.at, "verb", "", 0, {**data, "verb": "promote"})
            journal.append(made.at, "cutover", "", 0, data)
        finally:
            journal.close()
        _report(cut.run)
        return made
    finally:
        lock.release()


def _report(run: RunDir) -> None:
    """The report says it too; it is written anew as far as it can be."""
    import contextlib

    with contextlib.suppress(OSError, ConsoleError):
        write_report(run, read_view(run), None)
