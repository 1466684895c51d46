"""One look at the baseline now, as evidence: whether it answers, and who has it if it does not.

Every face that shows the present (header, status page, metrics, fleet, doctor) takes the same look.
A look asks no completion, so it proves nothing: it says that something answers, or that nothing
does. The console's screens take one every two seconds, and nothing that they need before their
first frame loads an HTTP library.
"""

from __future__ import annotations

import contextlib
import socket
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from console.common import paths, redact
from console.common.errors import ConsoleError, EngineError
from console.common.text import one_line
from console.common.units import format_duration, plural
from console.host import process
from console.host.process import BASELINE_COOKIE
from console.host.units import UnitSpec
from console.recovery.rollback import evidence, records
from console.recovery.rollback.baseline_state import (
    BY_KEY,
    BaselineState,
    Evidence,
    Kind,
    Witness,
    Word,
)
from console.recovery.rollback.sealed_plan import SealedPlan
from console.runtime import proxy, reach

if TYPE_CHECKING:
    from console.runtime.probe import Health
    from console.runtime.proxy import Relay

MAX_LINE = 64
"""Bytes of a status line that are examined."""
HEALTH_S = 1.5
SILENT = f"no answer in time: nothing within {HEALTH_S:.2f} s"
SLOW = f"its answer comes slowly: not even a whole line within {HEALTH_S:.2f} s"
ENGINE_S = 1.0
QUICK_S = 0.5
"""How long the engine may take where a whole look follows within the same deadline."""
OWNER_S = 10.0
"""Seconds between checks that it is the baseline that answers at its address."""
PAUSED = "container paused"
LOOPS, LOOP_S = 3, 60.0
"""A container that its engine has started again so often ends again and again, unless its newest
start is so many seconds ago."""


class Looker:
    """Looks at a baseline, again and again; it keeps for OWNER_S who answers there, and nothing of
    one baseline when it is given the plan of another."""

    def __init__(self) -> None:
        self.stranger = ""
        """Who answers in the baseline's place, in words; "" for nobody."""
        self.cut_over = False
        """Whether clients are given to a candidate, which says nothing of the baseline itself."""
        self._life = ""
        self._main: tuple[int, int] | None = None
        """The first process of this life, and its start, where this machine has it."""
        self._remark = ""
        self._other = ""
        self._owner_looked = float("-inf")
        self._answered = self._heard = False
        """Whether it answered well, and whether anybody took the connection at all."""
        self._owner_of: Word | None = None
        """What was seen when it was looked at last whose answer that was."""
        self._of = ("", "", "")
        self._known: tuple[str, float] = ("", 0.0)
        """For which relay it was seen, and when, that the candidate itself is in place."""

    def state(self, plan: SealedPlan) -> BaselineState:
        """How the baseline is now: what is seen, and all that is known of before."""
        return evidence.state(plan, self.look(plan))

    def look(self, plan: SealedPlan) -> Evidence:
        """What is seen now. Raises ConsoleError and OSError only for files that cannot be read."""
        # it may have been removed and made anew under its name since the plan was sealed
        plan = plan.name_first
        if (seen_of := identity(plan)) != self._of:
            self._of, self.stranger = seen_of, ""
            self._owner_of = None
        at = time.time()  # of its beginning: a proof that is over before the look is, is newer
        self._heard = False
        word, detail = self._seen(plan)
        self._heard = self._heard and not self.cut_over
        self._owner_of = self._owner_of if self._heard else None
        self._answered = word is Word.SERVING and not self.cut_over
        seen = _evidence(word, detail, at)
        life, remark = (self._life, self._remark) if self._answered else ("", "")
        other = self._other if self._heard else ""
        target = evidence.target_of(plan)
        return replace(
            seen, target=target, life=life, remark=remark, other=other, cut_over=self.cut_over
        )

    def _seen(self, plan: SealedPlan) -> tuple[Word, str]:
        switched = proxy.recorded(plan.records_dir, plan.baseline.url)
        self.cut_over = switched is not None
        if switched is not None:
            return self._switched(plan, switched)
        word, detail = self._at_address(plan)
        lost = word in (Word.DOWN, Word.UNKNOWN) and not self.stranger
        cut = records.cut_over(plan) if lost else None
        self.cut_over = cut is not None
        if cut is not None:
            given = _given(cut.run, cut.service)
            return word, f"cut over {given}, but its relay is gone: {detail}{BY_KEY}"
        return word, detail

    def _switched(self, plan: SealedPlan, switched: Relay) -> tuple[Word, str]:
        """Who is to answer in the baseline's place, and how to go back; what is wrong with that one
        if anything is."""
        words, now = _given(switched.run, switched.service), time.monotonic()
        recent = self._known[0] == switched.life and now - self._known[1] < OWNER_S
        word, trouble = in_its_place(plan, switched, quick=recent)
        if trouble:
            self._known = ("", 0.0)
            return word, f"cut over {words}, {trouble}{BY_KEY}"
        self._known = self._known if recent else (switched.life, now)
        return Word.CUT_OVER, f"{words}{BY_KEY}"

    def _at_address(self, plan: SealedPlan) -> tuple[Word, str]:
        """How what answers at the baseline's own address is."""
        base = plan.baseline
        begun = time.monotonic()
        came = first_bytes(base.url, base.ready_path, HEALTH_S)
        if says_200(came):
            return self._serving(plan)
        if time.monotonic() - begun >= HEALTH_S:  # whoever asks again waits for nothing again
            word, detail = (Word.UNKNOWN, SLOW) if came else _paused(plan) or (Word.UNKNOWN, SILENT)
            return self._whose(plan, word, detail, spoke=bool(came))
        return self._check_again(plan)

    def _check_again(self, plan: SealedPlan) -> tuple[Word, str]:
        """Check again after an unclear answer, with words for the result."""
        from console.runtime.probe import PAGE, Health, health

        base = plan.baseline
        state, detail = health(base.url, base.ready_path, HEALTH_S)
        detail = without(detail, base.url)
        if state is Health.SERVING:
            return self._serving(plan)
        if state is Health.REFUSED:
            self.stranger = ""
            return _refused(plan, detail)
        if state is Health.LOADING and not detail.startswith("HTTP"):
            detail = f"HTTP 503 {detail}" if PAGE in detail else f"503 {detail}"
        word, spoke = word_of(state, detail), state is not Health.UNHEALTHY or "HTTP" in detail
        if word is Word.UNKNOWN and detail.startswith("HTTP"):
            detail = f"its health path says {detail}"
        return self._whose(plan, word, detail, spoke=spoke)

    def _serving(self, plan: SealedPlan) -> tuple[Word, str]:
        """Serving, unless there are signs that another server answers there."""
        return self._whose(plan, Word.SERVING, "")

    def _whose(
        self, plan: SealedPlan, word: Word, detail: str, *, spoke: bool = True
    ) -> tuple[Word, str]:
        """What was heard at the address, unless it was not the baseline that was heard: whose
        answer it is comes first, and so does whose silence."""
        from console.recovery.rollback import observe

        self._heard = True
        now = time.monotonic()
        due = now - self._owner_looked >= OWNER_S or self._has_ended()
        if word is not self._owner_of or due:
            self._owner_looked, self._owner_of = now, word
            self.stranger = _stranger(plan) if spoke else _holder(plan)
            well = word is Word.SERVING and not self.stranger
            self._life = observe.life(plan) if well else ""
            self._main = _first_process(self._life)
            self._remark = _renamed(plan) if well else ""
            does = observe.ANSWERS if spoke else observe.HAS_PORT
            self._other = "" if self.stranger else observe.another_process(plan, does)
        if not self.stranger:
            return word, detail
        if self.stranger.startswith(reach.PUBLISHED_NOWHERE):  # perhaps a proxy of its own answers
            return Word.UNKNOWN, f"{self.stranger}: {detail}" if detail else self.stranger
        # one that shares the address says nothing of the baseline, which may be well beside it
        shares = self.stranger.partition(":")[0].endswith(", too")
        words = f"{self.stranger}: {detail}" if detail else self.stranger
        return Word.UNKNOWN if shares else Word.DOWN, words

    def _has_ended(self) -> bool:
        """Whether the process that was seen to answer is gone: a proxy in front of it may go on
        answering."""
        return self._main is not None and process.start_time(self._main[0]) != self._main[1]


def _first_process(life: str) -> tuple[int, int] | None:
    """The process whose pid a life begins with, and its start; None where this machine has none."""
    pid = life.partition(" ")[0]
    start = process.start_time(int(pid)) if pid.isdecimal() else None
    return (int(pid), start) if start is not None else None


def reach_of(plan: SealedPlan, limit_s: float) -> reach.Reach:
    """The reach of a plan's container as its engine describes it within `limit_s`; one that never
    says "missed" for any other baseline, and where the engine does not answer."""
    from console.recovery.rollback.observe import inspected
    from console.runtime.engine_api import RawEngine

    container: dict[str, Any] | None = None
    if plan.baseline.kind == "container":
        engine = RawEngine(plan.engine.socket or plan.engine.docker_host, limit_s)
        with contextlib.suppress(EngineError):
            container = inspected(plan, engine)
    return reach.Reach(container, plan.baseline.url)


def identity(plan: SealedPlan) -> tuple[str, str, str]:
    """Site, address and target of a baseline: what is seen of one says nothing of another."""
    return plan.site_name, plan.baseline.url, evidence.target_of(plan)


def of_health(state: Health, detail: str, at: float) -> Evidence:
    """What the health path's answer at the Unix time `at` says of a server."""
    return _evidence(word_of(state, detail), detail, at)


def _evidence(word: Word, detail: str, at: float) -> Evidence:
    kind = Kind.ANSWERS if word is Word.SERVING else Kind.AWAY
    return Evidence(kind, word, at, Witness.HEALTH, one_line(redact.text(detail), 200))


def word_of(state: Health, detail: str) -> Word:
    """What the health path's answer says of a server, in one word. One that answers with an error
    may serve all the same: only a completion tells. A page is a proxy's, which knows no loading."""
    from console.runtime.probe import PAGE

    if state == "loading" and PAGE in detail:
        return Word.UNKNOWN
    if state in ("serving", "loading"):
        return Word(state)
    if state == "refused":
        return Word.DOWN
    if state == "refusing":
        return Word.REFUSING
    return Word.UNKNOWN


def answers_200(url: str, path: str, timeout_s: float) -> bool:
    """Whether the first line of what comes in time is HTTP 200: see `first_bytes`.

    False for everything but a clear yes (503, refused, https, garbage), which is checked again by
    `console.runtime.probe`: that has words for it, but takes time to import.
    """
    return says_200(first_bytes(url, path, timeout_s))


def says_200(data: bytes) -> bool:
    line, ended, _ = data.partition(b"\r\n")
    words = line.split(b" ")
    whole = bool(ended) or len(data) >= MAX_LINE
    return whole and len(words) > 1 and words[0].startswith(b"HTTP/1.") and words[1] == b"200"


def first_bytes(url: str, path: str, timeout_s: float) -> bytes:
    """How the answer to a GET begins, as far as it comes in time; b"" for none. A quick check
    before the first frame: without an HTTP library, over a fresh connection, under one deadline."""
    data, begun = b"", time.monotonic()
    try:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            return b""
        target = (parts.path.rstrip("/").removesuffix("/v1") + "/" + path.lstrip("/")) or "/"
        host = parts.netloc.rpartition("@")[2]
        request = f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        address = (parts.hostname, parts.port or 80)
        with socket.create_connection(address, timeout_s) as peer:
            peer.sendall(request.encode("ascii"))
            while len(data) < MAX_LINE and b"\r\n" not in data:
                left = timeout_s - (time.monotonic() - begun)
                if left <= 0:
                    break
                peer.settimeout(left)
                more = peer.recv(MAX_LINE)
                if not more:
                    break
                data += more
    except (OSError, ValueError):
        return data
    return data


def in_its_place(
    plan: SealedPlan, switched: Relay | None, path: str = "", *, quick: bool = False
) -> tuple[Word, str]:
    """What is wrong with the candidate that clients were given to, in words that follow its name;
    cut over and "" for nothing. Down where clients get nothing of it; one that does not answer in
    time may compute. `path`: its health path, if that is not the baseline's; `quick`: it was seen a
    moment ago that the candidate itself is there."""
    word, trouble = silence(plan.baseline.url, path or plan.baseline.ready_path)
    if not trouble and switched is not None and not quick:
        word, trouble = who_is_there(plan, switched)
    if trouble or switched is None:
        return word, trouble
    candidate_evidence = evidence.of_candidate(plan, switched.life)
    if candidate_evidence is None or not (
        candidate_evidence.word in (Word.GARBLED, Word.REFUSING) or candidate_evidence.dead
    ):
        return Word.CUT_OVER, ""
    what = (
        "ANSWERS GARBAGE"
        if candidate_evidence.word is Word.GARBLED
        else "DOES NOT DO WHAT IT IS ASKED"
    )
    word = Word.DOWN if candidate_evidence.dead else candidate_evidence.word
    return word, f"AND {what}: {candidate_evidence.detail.removeprefix('garbled, ')}"


def who_is_there(plan: SealedPlan, switched: Relay) -> tuple[Word, str]:
    """Whether it is the run's candidate that a relay leads to, as `promote` judges it. Another
    user's relay, or one whose run is not known, says nothing of that."""
    from console.recovery.rollback import live
    from console.runtime.engine_api import NoSuchContainer, RawEngine

    run = paths.runs_dir() / switched.run
    if not switched.run or not run.is_dir():
        return Word.CUT_OVER, ""

    def inspect(container: str) -> dict[str, Any] | None:
        engine = RawEngine(plan.engine.socket or plan.engine.docker_host, ENGINE_S)
        try:
            return engine.inspect(container)
        except NoSuchContainer:
            return None

    return live.in_its_place(run, switched.service, f"http://{switched.to}", inspect)


def _given(run: str, service: str) -> str:
    accepted = records.read_promotion(paths.runs_dir() / run)
    return f"to {service}, {'promoted' if accepted else 'not promoted'}"


def _stranger(plan: SealedPlan) -> str:
    """Who answers in the baseline's place, or beside it, in words; "" for nobody. Of a process that
    was started by hand there is no record: only the user of its socket shows whose it is."""
    if plan.baseline.kind != "container":
        from console.recovery.rollback import observe

        return observe.somebody_else(plan)
    word, detail = _owner(plan)
    if word is not Word.LOADING:
        return f"something else answers there; {detail}" if word is Word.DOWN else ""
    from console.recovery.rollback import observe

    arrivals = reach_of(plan, ENGINE_S)
    asks = arrivals.is_known and first_bytes(plan.baseline.url, plan.baseline.ready_path, HEALTH_S)
    if asks and arrivals.missed:
        return f"{reach.NOTHING_CAME}; only a proof tells who answers"
    return observe.somebody_else(plan)


def _holder(plan: SealedPlan) -> str:
    """Who has the address instead of the baseline, in words, where nobody answers there; "" for
    nobody who can be named: a baseline that does not run is no stranger's doing."""
    words = "" if plan.baseline.kind == "container" else _stranger(plan)
    return words.replace(" answers ", " listens ", 1) if ": " in words else ""


def _paused(plan: SealedPlan, limit_s: float = ENGINE_S) -> tuple[Word, str] | None:
    """The state of a container that is silent because it was paused; None for any other. Its kernel
    takes connections all the same."""
    if plan.baseline.kind != "container":
        return None
    word, words = container_state(plan, limit_s)
    return (word, words) if words.startswith(PAUSED) else None


def paused_words(plan: SealedPlan) -> str:
    """That the baseline's container is paused, and the command that unpauses it; "" for any other,
    and where the engine does not say within QUICK_S."""
    pause = _paused(plan, QUICK_S)
    return pause[1] if pause is not None else ""


def _renamed(plan: SealedPlan) -> str:
    """Which other name the container of a baseline that serves has by now, and what to do about it;
    "" if it has its own, as far as known."""
    from console.recovery.rollback.observe import inspected, renamed
    from console.runtime.engine_api import RawEngine

    if plan.baseline.kind != "container":
        return ""
    try:
        engine = RawEngine(plan.engine.socket or plan.engine.docker_host, ENGINE_S)
        return renamed(plan.baseline, inspected(plan, engine))
    except EngineError:
        return ""


def _refused(plan: SealedPlan, detail: str) -> tuple[Word, str]:
    """Nothing listens: tell whether it is starting or not running."""
    if not detail.endswith("Connection refused"):
        return Word.UNKNOWN, detail
    word, more = _owner(plan)
    if word is Word.LOADING:
        from console.recovery.rollback.observe import elsewhere

        if other := elsewhere(plan) or _unpublished(plan):
            return Word.DOWN, f"{more}, but {other}"
        return Word.LOADING, f"{more}, nothing listens yet"
    if word is Word.DOWN:
        return Word.DOWN, more
    return Word.UNKNOWN, f"connection refused; {more}"


def _unpublished(plan: SealedPlan) -> str:
    """That nobody can listen for a container that is published nowhere; "" for any other."""
    if plan.baseline.kind != "container":
        return ""
    from console.recovery.rollback.observe import inspected
    from console.runtime.engine_api import RawEngine

    engine = RawEngine(plan.engine.socket or plan.engine.docker_host, ENGINE_S)
    with contextlib.suppress(EngineError):
        if reach.is_unpublished(inspected(plan, engine), plan.baseline.url):
            return f"{reach.PUBLISHED_NOWHERE}: {reach.HINT}"
    return ""


def _owner(plan: SealedPlan) -> tuple[Word, str]:
    """State of the baseline's own container or process: loading (up), stopped or unknown; words."""
    base = plan.baseline
    if base.unit is not None:
        return _unit(base.unit)
    if base.kind != "process":
        return container_state(plan, ENGINE_S)
    if base.process is not None:
        running = process.known(plan.records_dir, base.name, base.process, BASELINE_COOKIE)
        if running is not None:
            return Word.LOADING, f"pid {running[0]} is up"
    known = process.record_path(plan.records_dir, base.name).exists()
    return Word.DOWN, "its process has ended" if known else "connection refused"


def _unit(unit: UnitSpec) -> tuple[Word, str]:
    """State of a unit that does not answer, and its words."""
    from console.host import units

    try:
        state = units.look(unit)
    except ConsoleError as error:
        return Word.UNKNOWN, str(error)
    if state.has_ended:
        sub = f", {one_line(state.sub, 40)}" if state.sub else ""
        return Word.DOWN, f"{unit.words} is {one_line(state.active, 40)}{sub}"
    if state.is_up:
        return Word.LOADING, f"{unit.words} is {one_line(state.active, 40)}"
    return Word.DOWN, f"{unit.words} is {one_line(state.active, 40) or 'not there'}"


def silence(url: str, path: str) -> tuple[Word, str]:
    """How a server is that does not serve, and that in words: nothing answers, nothing did in time,
    or its health path says an error. Serving and "" for an answer, whatever it is: another engine
    may have another health path."""
    begun = time.monotonic()
    came = first_bytes(url, path, HEALTH_S)
    if says_200(came):
        return Word.SERVING, ""
    late = Word.UNKNOWN, "AND DOES NOT ANSWER IN TIME"
    if time.monotonic() - begun >= HEALTH_S:
        return (Word.SERVING, "") if came else late
    from console.runtime.probe import TIMEOUT, Health, health

    state, detail = health(url, path, HEALTH_S)
    if state in (Health.SERVING, Health.LOADING, Health.REFUSING, Health.SLOW):
        return Word.SERVING, ""
    if detail.startswith(TIMEOUT):
        return late
    if detail.startswith("HTTP"):  # only a completion tells
        return Word.UNKNOWN, f"AND ITS HEALTH PATH SAYS: {one_line(redact.text(detail), 80)}"
    return Word.DOWN, "AND DOES NOT ANSWER"


def without(detail: str, url: str) -> str:
    """A probe's words without the address, which is shown beside them."""
    head, separator, tail = detail.partition(f": {url.rstrip('/').removesuffix('/v1')}")
    if not separator:
        return one_line(detail)
    return one_line(f"{head}: {tail.partition(': ')[2]}")


def container_state(plan: SealedPlan, limit_s: float) -> tuple[Word, str]:
    """Loading when it is up, else down or unknown; clean words. Never raises EngineError."""
    from console.recovery.rollback.observe import inspected, renamed
    from console.runtime.engine_api import NoSuchContainer, RawEngine

    try:
        engine = RawEngine(plan.engine.socket or plan.engine.docker_host, limit_s)
        container = inspected(plan, engine)
    except NoSuchContainer as error:
        base = plan.baseline
        of_compose = f"of {base.compose_argv[-1]}" if base.compose_argv else ""
        name = base.container_name or base.container_id[:12] or of_compose
        if not name:
            return Word.UNKNOWN, "which container it is nobody knows before the first run"
        other = f"; {one_line(error.hint, 120)}" if error.hint else ""
        return Word.DOWN, f"there is no container {one_line(name, 60)}{other}"
    except EngineError as error:
        return Word.UNKNOWN, one_line(str(error), 120)
    word, words = judge(container, time.time())
    other = renamed(plan.baseline, container)
    return word, f"{words}; {other}" if other else words


def judge(container: dict[str, Any], now: float) -> tuple[Word, str]:
    """The same for one inspected container; `now` in Unix seconds."""
    from console.runtime.engine_api import time_of

    state = container.get("State")
    if not isinstance(state, dict):
        return Word.UNKNOWN, "the container engine's answer makes no sense"
    if state.get("Paused") is True:
        name = one_line(str(container.get("Name") or "").lstrip("/"), 60)
        return Word.DOWN, f"{PAUSED}: docker unpause {name}" if name else PAUSED
    again = _starts_again(container)
    if state.get("Restarting") is True:
        return Word.DOWN, f"container ended ({_code(state)}), and is to be started again{again}"
    if state.get("Running") is True:
        started = time_of(state, "StartedAt")
        young = started is not None and now - started < LOOP_S
        if young and _restarts(container) >= LOOPS:
            return Word.DOWN, f"container ends again and again{again}"
        return Word.LOADING, f"container is up{again}"
    status = one_line(str(state.get("Status", "")), 20) or "stopped"
    if status == "created":
        return Word.DOWN, "container created, never started"
    return Word.DOWN, f"container {status} ({_code(state)}){_ago(state, now)}"


def _code(state: dict[str, Any]) -> str:
    """The exit code of the container's last end, and whether the kernel ended it for memory."""
    code = state.get("ExitCode")
    why = ", out of memory" if state.get("OOMKilled") is True else ""
    return f"{code if isinstance(code, int) else '?'}{why}"


def _restarts(container: dict[str, Any]) -> int:
    """How often the engine has started it again by itself since somebody has started it."""
    count = container.get("RestartCount")
    return count if isinstance(count, int) else 0


def _starts_again(container: dict[str, Any]) -> str:
    """How often that was, and where its end is explained; "" for never."""
    name = one_line(str(container.get("Name") or "").lstrip("/"), 60)
    restarts = _restarts(container)
    see = f": docker logs {name}" if name else ""
    times = plural(restarts, "time")
    return f" (its engine started it again {times}{see})" if restarts > 0 else ""


def _ago(state: dict[str, Any], now: float) -> str:
    from console.runtime.engine_api import time_of

    at = time_of(state, "FinishedAt")
    if at is None:
        return ""
    past = max(0.0, now - at)
    if past < 60:
        return f" {past:.0f} s ago"
    return f" {past // 60:.0f} min ago" if past < 3600 else f" {format_duration(past)} ago"
