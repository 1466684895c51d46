"""The baseline as the badge shows it: a thread checks whether it serves, one look at a time."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from console.common import paths
from console.common.errors import ConsoleError
from console.common.text import clean, one_line
from console.common.units import plural
from console.config.locate import site_file
from console.frontends.tui.watch.watch import Watch
from console.host import process
from console.host.ports import foreign
from console.host.process import BASELINE_COOKIE
from console.host.units import UnitSpec
from console.journal.run_files import Stamp, stamp
from console.recovery.rollback import proof, records
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback.sealed_plan import PLAN, ROLLBACK, SealedPlan
from console.runtime import proxy

if TYPE_CHECKING:
    from console.runtime.probe import Completion
    from console.runtime.proxy import Relay


ENOUGH = 64
"""Bytes of a status line that are examined."""

SERVING, LOADING, STOPPED, UNHEALTHY = "serving", "loading", "stopped", "unhealthy"
DEGRADED, UNKNOWN, NONE = "degraded", "unknown", "none"
CUT_OVER, DOWN = "cut over", "down"
BY_KEY = "; F12 brings the baseline back"
"""How the detail of CUT_OVER ends."""
HEALTH_S = 1.5
ENGINE_S = 1.0
OWNER_S = 10.0
"""Seconds between checks that it is the baseline that answers at its address."""
NEWEST = 20
"""How many sealed plans are searched for one of the configured site."""


def answers_200(url: str, path: str, timeout_s: float) -> bool:
    """A quick check before the first frame, without an HTTP library: one GET over a fresh
    connection under one deadline.

    False for everything but a clear yes (503, refused, https, garbage), which is checked again by
    `console.runtime.probe`: that has words for it, but takes time to import.
    """
    begun = time.monotonic()
    try:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            return False
        target = (parts.path.rstrip("/").removesuffix("/v1") + "/" + path.lstrip("/")) or "/"
        host = parts.netloc.rpartition("@")[2]
        request = f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        address = (parts.hostname, parts.port or 80)
        with socket.create_connection(address, timeout_s) as peer:
            peer.sendall(request.encode("ascii"))
            data = b""
            while len(data) < ENOUGH and b"\r\n" not in data:
                left = timeout_s - (time.monotonic() - begun)
                if left <= 0:
                    return False
                peer.settimeout(left)
                more = peer.recv(ENOUGH)
                if not more:
                    break
                data += more
    except (OSError, ValueError):
        return False
    words = data.split(b"\r\n")[0].split(b" ")
    return len(words) > 1 and words[0].startswith(b"HTTP/1.") and words[1] == b"200"


@dataclass(frozen=True, slots=True)
class BaselineView:
    """What is known of the baseline; texts are clean, rates in tokens a second.

    `word`: serving, loading, stopped, unhealthy, degraded, cut over (a candidate answers in its
    place), down (the run on show has stopped it), unknown or none (no baseline is configured).
    `proven_at`: Unix time, 0.0 for never.
    """

    word: str = NONE
    name: str = ""
    url: str = ""
    detail: str = ""
    tok_s: float | None = None
    proven_at: float = 0.0
    reference: float | None = None
    source: str = ""
    """The site file that names it."""


class BaselineWatch(Watch[BaselineView]):
    """Looks at the baseline and delivers a BaselineView after every look."""

    def __init__(
        self,
        deliver: Callable[[BaselineView], None] = lambda view: None,
        poll_s: float = 2.0,
        *,
        site: str | None = None,
    ) -> None:
        super().__init__("baseline-watch", deliver, poll_s)
        self._target = _Target(site)
        self._planned = False
        self._owner_looked = float("-inf")
        self._stranger = ""

    def follow(self, plan: SealedPlan | None, planned: bool = False) -> None:
        """Look at this plan's baseline; None: at the configured one. `planned`: a run that lives
        has stopped it and will bring it back."""
        if plan != self._target.aimed or planned != self._planned:
            self._target.aimed, self._planned = plan, planned
            self._wake.set()

    @property
    def plan(self) -> SealedPlan | None:
        """Whose baseline it looks at; None before the first look, or if none is configured."""
        return self._target.aimed or self._target.found

    def verify(self) -> str:
        """Get one completion now, in the caller's thread, and remember the proof; return the result
        in clean words; never raises."""
        try:
            plan = self._target.find()
        except (ConsoleError, OSError) as error:
            return f"no baseline to ask: {one_line(str(error))}"
        if plan is None:
            return "no baseline is known: there is no site file and no run yet"
        from console.runtime.probe import complete

        base = plan.baseline
        ask = base.completion
        if other := proof.instead_of_baseline(plan):
            return f"{other} answers at {base.url}: the baseline was not asked"
        done = complete(
            base.url, model=ask.model, prompt=ask.prompt, max_tokens=ask.max_tokens,
            timeout_s=ask.timeout_s,
        )  # fmt: skip
        words = self._note(plan, done)
        self.look()
        return words

    def _note(self, plan: SealedPlan, done: Completion) -> str:
        if not done.ok:
            return f"not serving: {_without(done.detail, plan.baseline.url)}"
        rate, base = done.decode_tok_s, plan.baseline
        speed = f", {rate:.1f} tok/s" if rate is not None else ""
        words = f"serving: {plural(done.tokens, 'token')}{speed}"
        from console.recovery.rollback import observe

        try:
            mine = observe.answers(plan, known=True)
        except OSError:
            mine = False
        if not mine:
            return f"{words}; whether it is the baseline that answered is not known"
        file = proof.proof_file(plan.site_name, base.url)
        slow = proof.still_degraded(file, rate, base.reference_tok_s, base.tolerance)
        proof.remember(file, time.time(), rate, slow)
        return words

    def _look(self) -> None:
        try:
            view = self._read()
        except (ConsoleError, OSError) as error:
            view = BaselineView(UNKNOWN, detail=one_line(str(error)))
        except Exception as error:  # the thread's last line of defence: it must go on looking
            view = BaselineView(UNKNOWN, detail=one_line(f"{type(error).__name__}: {error}"))
        self._publish(view)

    def _read(self) -> BaselineView:
        plan = self._target.find()
        if plan is None:
            return BaselineView()
        base = plan.baseline
        switched = proxy.recorded(plan.records_dir, base.url)
        if switched is not None:
            word, detail = CUT_OVER, self._switched(plan, switched)
        elif answers_200(base.url, base.ready_path, HEALTH_S):
            word, detail = self._serving(plan)
        else:
            word, detail = self._check_again(plan)
        if self._planned and word == STOPPED and detail != self._stranger:
            word, detail = DOWN, "for this run"
        name = base.container_name or plan.site_name or base.name
        view = BaselineView(
            word, clean(name, 60), clean(base.url, 200), detail, reference=base.reference_tok_s,
            source=clean(str(plan.site_path), 200),
        )  # fmt: skip
        proven = proof.last(proof.proof_file(plan.site_name, base.url))
        if proven is None or word == CUT_OVER:
            return view
        if word == SERVING and proven.degraded:
            view = replace(view, word=DEGRADED, detail="slower than its reference")
        return replace(view, tok_s=proven.tok_s, proven_at=proven.at)

    def _switched(self, plan: SealedPlan, found: Relay) -> str:
        """Who answers in the baseline's place, whether it does, and how to go back."""
        accepted = records.read_promotion(paths.runs_dir() / found.run)
        words = "promoted" if accepted else "not promoted"
        if not _answers(plan.baseline.url, plan.baseline.ready_path):
            words += ", AND DOES NOT ANSWER"
        return f"to {found.service}, {words}{BY_KEY}"

    def _check_again(self, plan: SealedPlan) -> tuple[str, str]:
        """Check again after an unclear answer, with words for the result."""
        from console.runtime.probe import Health, health

        base = plan.baseline
        state, detail = health(base.url, base.ready_path, HEALTH_S)
        detail = _without(detail, base.url)
        if state is Health.SERVING:
            return self._serving(plan)
        if state is Health.LOADING:
            return LOADING, detail if detail.startswith("HTTP") else f"503 {detail}"
        if state is Health.REFUSED:
            return _refused(plan, detail)
        return UNHEALTHY, detail

    def _serving(self, plan: SealedPlan) -> tuple[str, str]:
        """Serving, unless there are signs that another server answers there."""
        now = time.monotonic()
        if self.latest is None or self.latest.word not in (SERVING, DEGRADED):
            self._owner_looked, self._stranger = float("-inf"), ""
        if now - self._owner_looked >= OWNER_S:
            self._owner_looked = now
            self._stranger = _stranger(plan)
        return (STOPPED, self._stranger) if self._stranger else (SERVING, "")


def _stranger(plan: SealedPlan) -> str:
    """Who answers in the baseline's place, in words; "" for nobody. A process started by hand has
    no record: only the user of its socket can show that it is not the baseline."""
    if plan.baseline.kind != "container":
        if foreign(plan.baseline.url, here=True) is None:
            return ""
        from console.recovery.rollback import observe

        ours = observe.answers(plan, known=False)
        return "" if ours else "another user's server answers there"
    word, detail = _owner(plan)
    return f"something else answers there; {detail}" if word == STOPPED else ""


class _Target:
    """Where to look: the plan that was set, a sealed plan of the configured site, the site file."""

    def __init__(self, site: str | None) -> None:
        self.aimed: SealedPlan | None = None
        self._given = site
        self._stamp: Stamp = ()
        self.found: SealedPlan | None = None

    def find(self) -> SealedPlan | None:
        """The plan; None when nothing is configured. Raises ConsoleError, OSError."""
        if self.aimed is not None:
            return self.aimed
        site = site_file(self._given)
        demo = paths.demo_dir() / "site.yaml"
        now = stamp(site or demo, paths.runs_dir())
        if now != self._stamp:
            self.found = _sealed_for(site) or _from_site(site or demo)
            self._stamp = now
        return self.found


def _sealed_for(site: Path | None) -> SealedPlan | None:
    """The newest plan sealed for this version of the site file (for any site, without one)."""
    stamped: list[tuple[float, Path]] = []
    for path in paths.runs_dir().glob(f"*/{ROLLBACK}/{PLAN}"):
        with contextlib.suppress(OSError):
            stamped.append((path.stat().st_mtime, path))
    for _, path in sorted(stamped, reverse=True)[:NEWEST]:
        with contextlib.suppress(ConsoleError, OSError):
            plan = sealed.read(path).name_first
            if site is None:
                return plan
            same = os.path.realpath(plan.site_path) == os.path.realpath(site)
            if same and not plan.is_older_than(site):
                return plan
    return None


def _from_site(path: Path) -> SealedPlan | None:
    """A plan from the site file without look-ups: names, not ids. None without a file."""
    if not path.exists():
        return None
    from console.config.site.site import load_site
    from console.runner.prepare.baseline import written
    from console.runner.prepare.seal import sealed_plan

    site = load_site(path)
    return sealed_plan(site, written(site))


def _refused(plan: SealedPlan, detail: str) -> tuple[str, str]:
    """Nothing listens: tell whether it is starting or not running."""
    if not detail.endswith("Connection refused"):
        return UNKNOWN, detail
    word, more = _owner(plan)
    if word == LOADING:
        return LOADING, f"{more}, nothing listens yet"
    if word == STOPPED:
        return STOPPED, more
    return UNKNOWN, f"connection refused; {more}"


def _owner(plan: SealedPlan) -> tuple[str, str]:
    """State of the baseline's own container or process: loading (up), stopped or unknown; words."""
    base = plan.baseline
    if base.unit is not None:
        return _unit(base.unit)
    if base.kind != "process":
        from console.frontends.tui.watch.baseline_container import container_state

        return container_state(plan, ENGINE_S)
    if base.process is not None:
        running = process.known(plan.records_dir, base.name, base.process, BASELINE_COOKIE)
        if running is not None:
            return LOADING, f"pid {running[0]} is up"
    known = process.record_path(plan.records_dir, base.name).exists()
    return STOPPED, "it crashed, or was ended by hand" if known else "connection refused"


def _unit(unit: UnitSpec) -> tuple[str, str]:
    """State of a unit that does not answer, and its words."""
    from console.host import units

    try:
        state = units.look(unit)
    except ConsoleError as error:
        return UNKNOWN, str(error)
    if state.is_up:
        return LOADING, f"{unit.words} is {one_line(state.active, 40)}"
    return STOPPED, f"{unit.words} is {one_line(state.active, 40) or 'not there'}"


def _answers(url: str, path: str) -> bool:
    """Whether anything answers in HTTP: another engine may have another health path."""
    if answers_200(url, path, HEALTH_S):
        return True
    from console.runtime.probe import Health, health

    state, detail = health(url, path, HEALTH_S)
    return state in (Health.SERVING, Health.LOADING) or detail.startswith("HTTP")


def _without(detail: str, url: str) -> str:
    """A probe's words without the address, which is shown beside them."""
    head, found, tail = detail.partition(f": {url.rstrip('/').removesuffix('/v1')}")
    if not found:
        return one_line(detail)
    return one_line(f"{head}: {tail.partition(': ')[2]}")
