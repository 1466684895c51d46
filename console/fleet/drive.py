"""Takes a playbook to several hosts, one after the other: the next begins only when the last one
was done with GO. Each step is on disk before the next is taken: the same command goes on there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from console.common.clock import Clock
from console.common.errors import ConsoleError, Exit, UsageError
from console.common.text import clean
from console.common.units import number
from console.fleet.inventory import Host
from console.fleet.known import clock as time_of
from console.fleet.known import last, note, remember, words_of
from console.fleet.line import ANSWER_S, PLAN_S, START_S
from console.fleet.protocol import TOO_LATE, Asks, BridgeError, LineLost, code_of, part
from console.fleet.report import events_of
from console.fleet.rollout import FRESH, Leg, Rollout, read
from console.fleet.starts import GONE, LETTERS, NOT_BEGUN, STARTING, Wanted
from console.journal.run_view import RunView
from console.journal.store import Event

POLL_S, WAIT_S = 1.0, 5.0
"""Seconds between two questions about a run, and about a job that waits."""
AGAIN_S = (0.2, 1.0, 2.0, 5.0)
"""Seconds between two tries to reach a host; the last one stays."""
TRIES = 4
"""Tries to reach a host on which nothing was started."""
BUSY_S = 120.0
"""How long a host may be busy with the start whose answer was lost."""
SHOWN = 8
"""Digits of a plan's hash that a person types."""
NOTE_S = 10.0
"""Seconds between two times that what is known of a followed run is kept on disk."""
BY_UNIT = "the runner is gone; the host's boot unit is to bring the baseline back"
CLEANUP_S = 5.0
"""Seconds for a rollback that nobody has begun yet, where a run's runner is gone."""


class Viewer(Protocol):
    """What the events of a run are told to."""

    finished: bool
    view: RunView

    def take(self, events: Sequence[Event]) -> None: ...
    def conclude(self) -> Exit: ...


@dataclass
class Driver:
    """Goes from host to host. `line`: makes the line to a host; `agree`: whether a person takes the
    plan that was just shown; `viewer`: what follows a run on a host."""

    rollout: Rollout
    wanted: Wanted
    line: Callable[[Host], Asks]
    say: Callable[[str], None]
    agree: Callable[[Host, dict[str, Any]], bool]
    viewer: Callable[[Host], Viewer]
    clock: Clock
    headless: bool = True
    _unkept: bool = field(default=False, init=False)

    def go(self, hosts: Sequence[Host]) -> Exit:
        """Every host in turn; the exit code is the last run's. A plan that nobody takes changes
        nothing, neither there nor in what is kept of the rollout. Raises BridgeError for a host
        that refuses: nothing has begun on it then."""
        code = Exit.OK
        for host, leg in zip(hosts, self.rollout.legs, strict=True):
            try:
                if leg.exit is None and not self._run_host(host, leg):
                    return Exit.FAILED
            except BridgeError as error:
                if not leg.run and error.code != GONE:
                    self._say_done(host)
                raise
            code = Exit(leg.exit if leg.exit is not None else Exit.FAILED)
            if code is not Exit.OK:
                left = [open_leg.host for open_leg in self.rollout.legs if open_leg.exit is None]
                if left:
                    self.say(f"stopped at {host.name}: not begun on {', '.join(left)}")
                break
        self.rollout.over = True
        self._keep()
        return code

    def _keep(self) -> None:
        """Keep how far it is. That a run was asked for is on disk by now, so that the same command
        finds it: where the disk has become full since, the run is followed all the same."""
        try:
            self.rollout.save()
        except OSError as error:
            if not self._unkept:
                self.say(clean(f"how far this rollout is cannot be kept: {error}", 300))
            self._unkept = True

    def _say_done(self, refuses: Host) -> None:
        """Where the rollout stands when a host refuses to begin, if others are done."""
        done = [leg.host for leg in self.rollout.legs if leg.exit is not None]
        if done:
            self.say(
                f"done on {', '.join(done)}, stopped before {refuses.name}: the same command goes "
                "on there"
            )

    def _run_host(self, host: Host, leg: Leg) -> bool:
        """A host's part, to its end; False if nobody took its plan."""
        at = _Reached(host, self.line(host), self.say, self.clock, begun=bool(leg.hash))
        try:
            self.say(f"== {host.name}")
            if not leg.run:
                leg.run = self._waited(at, leg)
            if not leg.run and not self._begun(at, host, leg):
                return False
            self._keep()
            leg.exit = int(self._follow(at, host, leg))
            self._keep()
            return True
        except BridgeError as error:
            if error.code == NOT_BEGUN:
                self.say("\n".join(error.lines()))
                leg.exit = int(error.exit_code)
                self._keep()
                return True
            error.hint = FRESH if error.code in (GONE, "no_run") else error.hint
            raise
        finally:
            at.line.close()

    def _begun(self, at: _Reached, host: Host, leg: Leg) -> bool:
        """Plan, have the plan confirmed, start. False if nobody agreed. Raises BridgeError."""
        plan = at.insist("plan", PLAN_S, **_plan_request(self.wanted, host))
        problems, hashed = _read_plan(host.name, plan)
        if problems:
            code = code_of(plan.get("exit")) or Exit.LINT  # an older console tells none
            words = f"{host.name}: a run would be refused; nothing was started"
            raise BridgeError("not_started", words, "\n".join(problems), "", code)
        if host.slurm and not plan.get("slurm"):
            words = f"{host.name}: its console knows no Slurm; nothing was started"
            raise BridgeError("version", words, "", "the same omni-console on both sides")
        if not self.agree(host, plan):
            self.say(f"nothing was started on {host.name}")
            return False
        leg.hash = hashed
        self.rollout.save()
        leg.run = self._started(at, leg) or self._waited(at, leg)
        return True

    def _started(self, at: _Reached, leg: Leg) -> str:
        """Start, again and again until it is known which run it is: the request is the same, so
        that the host starts one run whatever is lost. "" where the run waits for an allocation.
        Raises BridgeError; a leg whose only start was refused has not begun."""
        lost_at: float | None = None
        late, last_message = 0, ""
        while True:
            try:
                return _run_in(at.line.name, at.line.act(
                    "start", START_S, request=leg.request, hash=leg.hash,
                    headless=self.headless, said=lambda text: self.say(f"{at.line.name}: {text}"),
                ))  # fmt: skip
            except LineLost as error:
                lost_at = self.clock.monotonic()
                at.lost(error)
            except BridgeError as error:
                # a start whose answer was lost may still be under way there
                waits = lost_at is not None and self.clock.monotonic() - lost_at < BUSY_S
                busy = error.code == STARTING or (waits and error.exit_code is Exit.BUSY)
                late += error.code == TOO_LATE  # the line stood still, and nothing was done
                if not busy and not (error.code == TOO_LATE and late < TRIES):
                    if lost_at is None and not last_message:  # it heard each start, and began none
                        leg.hash = ""
                        self._keep()
                    raise
                if str(error) != last_message:
                    last_message = str(error)
                    self.say(clean(f"{last_message}; asking again", 300))
                self.clock.sleep(POLL_S)
            answer = at.insist("started", request=leg.request)
            run = _run_in(at.line.name, answer)
            if run or part(answer, "job"):
                return run

    def _waited(self, at: _Reached, leg: Leg) -> str:
        """The run of a leg, which may wait for an allocation of Slurm's as long as that takes; ""
        for a leg that was not begun. Raises BridgeError."""
        last_message = ""
        while True:
            answer = at.insist("started", request=leg.request)
            run, job = _run_in(at.line.name, answer), part(answer, "job")
            if run or not job:
                return run
            words = f"{at.line.name}: Slurm job {job.get('job')}: {job.get('words')}"
            if words != last_message:
                last_message = words
                self.say(clean(words, 300))
            self.clock.sleep(WAIT_S)

    def _follow(self, at: _Reached, host: Host, leg: Leg) -> Exit:
        """Follow a run to its end and renew its lease; with the line lost it goes on there."""
        seen, seq, gone_since = self.viewer(host), 0, None
        noted, has_announced_unit = (float("-inf"), (False, False)), False
        self.say(f"run {clean(leg.run, 100)} on {host.name}")
        while not seen.finished:
            page = at.insist("journal", run=leg.run, since=seq, attend=True)
            events = events_of(page)
            seen.take(events)
            before, seq = seq, max([seq, *(event.seq for event in events)])
            if (page.get("more") and seq > before) or seen.finished:
                continue
            # the lease begins with the outage, and is told a moment later
            lease_s = number(part(page, "status").get("lease"))
            now, stands = self.clock.monotonic(), (seen.view.outage, lease_s is not None)
            if now - noted[0] >= NOTE_S or stands != noted[1]:
                noted = now, stands
                note(host, leg.run, seen.view, lease_s, self.clock.now())
            if page.get("unit") and not has_announced_unit:
                has_announced_unit = True
                self.say(f"{host.name}: {BY_UNIT}")
            gone_since = None if page.get("goes_on") else gone_since or now
            if gone_since is not None and now - gone_since > CLEANUP_S:
                self.say(f"{host.name}: the runner is gone, its run is interrupted")
                return Exit.HOLD
            self.clock.sleep(POLL_S)
        with suppress(ConsoleError):
            remember(host, at.line.ask("state"), self.clock.now())
        return seen.conclude()


class _Reached:
    """A line that is opened anew for as long as it takes; what is asked over it may be repeated.
    `begun`: something was started there; without that, a host that never answers is given up."""

    def __init__(
        self, host: Host, line: Asks, say: Callable[[str], None], clock: Clock, *, begun: bool
    ) -> None:
        self._host, self.line, self._say = host, line, say
        self._clock, self._begun = clock, begun
        self._tries = 0
        self._answered = 0.0

    def insist(self, question: str, limit_s: float = ANSWER_S, **more: Any) -> dict[str, Any]:
        """The answer, however long the host is out of reach. Raises BridgeError."""
        while True:
            try:
                answer = self.line.ask(question, limit_s, **more)
            except LineLost as error:
                self.lost(error)
                continue
            if self._tries > 1:
                self._say(f"{self.line.name} answers again")
            self._tries, self._answered = 0, self._clock.now()
            return answer

    def lost(self, error: LineLost) -> None:
        """Say once that the host is unknown from now on, and wait until the next try."""
        name = self.line.name
        self._tries += 1
        if not self._begun and not self._answered and self._tries > TRIES:
            words = f"{name} cannot be reached; nothing was started on it"
            hint = error.hint or f"`ssh {self._host.ssh} true` has to work without a question"
            raise BridgeError("unreachable", words, error.detail, hint, Exit.HOLD)
        if self._tries == 2:  # a connection that was only cut is back at once, and costs no words
            since = self._answered or last(self._host).at
            words = (
                f"unknown since {time_of(since, self._clock.now())}"
                if since
                else "unknown: it never answered"
            )
            self._say(f"{name}: {words} ({error.detail})")
            known = words_of(last(self._host), self._clock.now())
            self._say(f"  while it is up, what runs there goes on; {known}")
            tried = "until it answers" if self._begun or self._answered else "a few more times"
            self._say(f"  it is tried {tried}; Ctrl-C ends this command, and no run")
        self._clock.sleep(AGAIN_S[min(self._tries, len(AGAIN_S)) - 1])


def _run_in(name: str, answer: Mapping[str, Any]) -> str:
    """The run that an answer names; "" where it says that there is none. Raises BridgeError."""
    run = answer.get("run", "")
    if run is None or (isinstance(run, str) and run):
        return run or ""
    raise _senseless(name, "it does not say which run there is")


def _read_plan(name: str, plan: Mapping[str, Any]) -> tuple[list[str], str]:
    """What a run would be refused for, and the hash by which a person takes the plan: never one
    that Enter alone would be. Raises BridgeError."""
    problems, hashed = plan.get("problems") or [], plan.get("hash")
    if not isinstance(problems, list):
        raise _senseless(name, "it does not say whether a run would be refused")
    reasons = [clean(str(problem), 1000) for problem in problems]
    if reasons:
        return reasons, ""
    if isinstance(hashed, str) and len(hashed) >= SHOWN and LETTERS.issuperset(hashed):
        return [], hashed
    raise _senseless(name, "its plan has no hash")


def _senseless(name: str, why: str) -> BridgeError:
    words = f"{name}: its answer makes no sense"
    return BridgeError("version", words, why, "the same omni-console on both sides")


def _plan_request(wanted: Wanted, host: Host) -> dict[str, Any]:
    """The playbook as it travels; a lease of the command line goes before the fleet file's."""
    lease_s = wanted.lease_s if wanted.lease_s is not None else host.lease_s
    slurm = {**host.slurm, **wanted.slurm} if host.slurm else {}
    return {**asdict(wanted), "lease_s": lease_s, "slurm": slurm}


def require_none_waits(fresh: Rollout, hosts: Sequence[Host], line: Callable[[Host], Asks]) -> None:
    """Ask the hosts on which an earlier rollout of the same command has begun what it knows no end
    of. Raises Waits where that waits for Slurm, or may: begun anew, it would run twice."""
    if not fresh.path.exists():
        return
    with suppress(UsageError):
        for host, leg in zip(hosts, read(fresh.path).legs, strict=True):
            if not leg.hash or leg.exit is not None:
                continue
            try:
                job = _job(line(host), leg)
            except LineLost as error:
                if not host.slurm:
                    continue
                words = f"it is not known whether its earlier job still waits: {error.detail}"
                hint = "try again once it answers; without --fresh the earlier rollout goes on"
                raise Waits(f"{host.name}: --fresh might run it twice", words, hint) from error
            if job:
                words = f"Slurm job {job} of an earlier rollout of this command still waits there"
                hint = f"without --fresh it is followed; `scancel {job}` there gives it up"
                raise Waits(f"{host.name}: --fresh would run it twice", words, hint)


class Waits(ConsoleError):
    """What was begun before still waits."""

    exit_code = Exit.BUSY


def _job(line: Asks, leg: Leg) -> str:
    """The job that a leg waits for; "" for none, and for a host that knows of no such leg. Raises
    LineLost."""
    try:
        answer = line.ask("started", request=leg.request)
        return clean(str(part(answer, "job").get("job") or ""), 40)
    except BridgeError:
        return ""
    finally:
        line.close()
