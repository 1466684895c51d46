"""The baseline as the badge shows it: a thread looks at it, and says what is known of it in all."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from console.common import paths
from console.common.errors import ConsoleError
from console.common.text import clean, one_line
from console.common.units import plural
from console.config.locate import site_file
from console.frontends.tui.watch.watch import Watch
from console.journal.run_files import LogFile, Stamp, baseline_log, stamp
from console.recovery.rollback import evidence
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback.baseline_state import BaselineState, Evidence, Witness, Word
from console.recovery.rollback.look import Looker, identity, reach_of, without
from console.recovery.rollback.sealed_plan import PLAN, ROLLBACK, SealedPlan

if TYPE_CHECKING:
    from console.runtime.answers.completion import Completion

NONE = "none"
"""The word where no baseline is configured."""
NEWEST = 20
"""How many sealed plans are searched for one of the configured site."""


@dataclass(frozen=True, slots=True)
class BaselineView:
    """What is known of the baseline: its state, and what it is; texts are clean, the reference is
    in tokens a second.

    `planned`: it is down because the run on show has stopped it, and will bring it back. `site`:
    the name of its site.
    """

    state: BaselineState | None = None
    """None where no baseline is configured."""
    name: str = ""
    url: str = ""
    reference: float | None = None
    source: str = ""
    """The site file that names it."""
    planned: bool = False
    site: str = ""

    @property
    def word(self) -> str:
        """The state's word; `none` where no baseline is configured."""
        return NONE if self.state is None else str(self.state.word)

    def as_json(self) -> dict[str, object]:
        """For programs: times in Unix seconds, rates in tokens a second, null for the unknown."""
        state = self.state or BaselineState()
        rate = state.figure
        return {
            "word": self.word, "name": self.name, "url": self.url,
            "detail": "; ".join(state.reasons),
            "since": state.since or None, "seen_at": state.at or None, "seen_by": state.by or None,
            "tok_s": rate.tok_s if rate is not None else None,
            "tok_s_at": rate.at if rate is not None else None,
            "tok_s_by": rate.by if rate is not None else None,
            "tok_s_beside_others": rate.beside if rate is not None else None,
            "proven_at": state.proven_at or None, "proven_by": state.proven_by or None,
            "proven": state.proven, "reference": self.reference,
        }  # fmt: skip


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
        self._stopped: SealedPlan | None = None
        self._looker = Looker()
        self._kept: tuple[object, ...] = ()
        """The word of the look that was kept last, and of which baseline it was."""
        self.log: LogFile | None = None
        """Where a baseline that is a host process writes to, as of the last look."""

    def follow(
        self, plan: SealedPlan | None, planned: bool = False, *, stopped: SealedPlan | None = None
    ) -> None:
        """Look at this plan's baseline; None: at the configured one. `planned`: a run that lives
        has stopped it and will bring it back; `stopped`: that run's plan, which may be of another
        baseline than the configured one."""
        self._stopped = stopped
        if plan != self._target.aimed or planned != self._planned:
            self._target.aimed, self._planned = plan, planned
            self._wake.set()

    @property
    def plan(self) -> SealedPlan | None:
        """Whose baseline it looks at; None before the first look, or if none is configured."""
        return self._target.aimed or self._target.configured

    def verify(self) -> str:
        """Get one completion now, in the caller's thread, and remember the proof; return the result
        in clean words; never raises."""
        try:
            plan = self._target.find()
        except (ConsoleError, OSError) as error:
            return f"no baseline to ask: {one_line(str(error))}"
        if plan is None:
            return "no baseline is known: there is no site file and no run yet"
        from console.runtime.answers.completion import prove_longer

        base = plan.baseline
        ask = base.completion
        from console.recovery.rollback import observe

        if other := observe.instead_of_baseline(plan):
            return f"{other} answers at {base.url}: the baseline was not asked"
        arrivals = reach_of(plan, observe.OWNER_S)
        done = prove_longer(
            base.url, model=ask.model, prompt=ask.prompt, max_tokens=ask.max_tokens,
            timeout_s=ask.timeout_s, expect=ask.expect,
        )  # fmt: skip
        words = _note(plan, done, missed=arrivals.missed)
        self.look()
        return words

    def _look(self) -> None:
        try:
            view = self._read()
        except (ConsoleError, OSError) as error:
            view = unknown(one_line(str(error)))
        except Exception as error:  # the thread's last line of defence: it must go on looking
            view = unknown(one_line(f"{type(error).__name__}: {error}"))
        self._publish(view)

    def _read(self) -> BaselineView:
        plan = self._target.find()
        if plan is None:
            return BaselineView()
        seen = self._looker.look(plan)
        other = bool(self._looker.stranger) or self._looker.cut_over
        mine = self._stopped is None or self._stopped.has_baseline_of(plan)
        planned = self._planned and mine and seen.word is Word.DOWN and not other
        if planned:
            seen = replace(seen, detail="for this run")
        self._keep(plan, seen, planned)
        state = evidence.state(plan, seen)
        base = plan.baseline
        self.log = baseline_log(plan) if base.log else None
        name = base.container_name or plan.site_name or base.name
        return BaselineView(
            state, clean(name, 60), clean(base.url, 200), base.reference_tok_s,
            clean(str(plan.site_path), 200), planned, plan.site_name,
        )  # fmt: skip

    def _keep(self, plan: SealedPlan, seen: Evidence, planned: bool) -> None:
        """Keep a look that differs from the one before: another face may not have seen that the
        server was away. What the run on show does, its rollback tells."""
        kept = (seen.word, *identity(plan))
        if kept != self._kept and not planned and not self._looker.cut_over:
            self._kept = kept
            evidence.record(plan, seen)


def unknown(detail: str) -> BaselineView:
    """What is shown where nobody could look."""
    return BaselineView(BaselineState(detail=detail))


def _note(plan: SealedPlan, done: Completion, *, missed: bool) -> str:
    """Keep what a completion says, if the baseline gave it; in clean words. `missed`: nothing of it
    has reached the baseline."""
    from console.recovery.rollback import observe
    from console.runtime import reach

    if missed:
        return f"{observe.ELSE}: {reach.NOTHING_CAME}: {reach.HINT}"
    try:
        mine = observe.answers(plan, known=done.ok)
    except OSError:
        mine = False
    if mine:
        seen = evidence.of_completion(done, Witness.VERIFY, time.time())
        evidence.record(plan, observe.known_start(plan, seen) if done.ok else seen)
    if not done.ok:
        return f"not serving: {without(done.why, plan.baseline.url)}"
    rate = done.decode_tok_s
    speed = f", {rate:.1f} tok/s" if rate is not None else ""
    words = f"serving: {plural(done.tokens, 'token')}{speed}"
    return words if mine else f"{words}; whether it is the baseline that answered is not known"


class _Target:
    """Where to look: the plan that was set, a sealed plan of the configured site, the site file."""

    def __init__(self, site: str | None) -> None:
        self.aimed: SealedPlan | None = None
        self._given = site
        self._stamp: Stamp = ()
        self.configured: SealedPlan | None = None

    def find(self) -> SealedPlan | None:
        """The plan; None when nothing is configured. Raises ConsoleError, OSError."""
        if self.aimed is not None:
            return self.aimed
        site = site_file(self._given)
        demo = paths.demo_dir() / "site.yaml"
        now = stamp(site or demo, paths.runs_dir())
        if now != self._stamp:
            self.configured = _sealed_for(site) or _from_site(site or demo)
            self._stamp = now
        return self.configured


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
