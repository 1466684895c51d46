"""The form of a doctor's check and finding, and the facts that several checks share.

Site, cards, container engine and runs are queried once for all checks. A call that may hang gets a
daemon thread, which is abandoned after a time limit. Every text in a finding is clean.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from console.common import paths
from console.common.errors import ConsoleError, EngineError, EngineTimeout, InvalidFile, Problem
from console.common.paths import module_argv
from console.common.text import clean_lines, decode, one_line
from console.host import children
from console.runtime.engine_api import RawEngine

if TYPE_CHECKING:
    from console.config.site.service import ServiceModel
    from console.config.site.site import BaselineModel, Site
    from console.host.gpu.nvml import Vram
    from console.journal.run_dir import RunDir
    from console.journal.run_view import RunView
    from console.recovery.rollback.records import Pointer


DETAIL_LIMIT = 600
HINT_LINES = 12

GROUPS = {
    "login": "This login",
    "machine": "Machine",
    "gpu": "GPU",
    "guard": "Sentinel",
    "engine": "Container engine",
    "baseline": "Baseline",
    "console": "Console",
}
"""First part of a check's id → the heading it stands under, in the order of the page."""

T = TypeVar("T")
Key = TypeVar("Key")

ASK_S = 2.0
"""How long one question to an engine, a server, a program or a disk may take, seconds."""
SHARED_S = 2.7
"""Seconds that a check waits for a shared answer: two questions in a row, and a margin."""
RUNS = 8
"""How many of the newest runs are examined."""
RUNS_S = 1.5


class Level(StrEnum):
    """How much a finding matters; only `failed` changes the exit code."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the page, clean: what was checked, what was found, what to do about it.

    `id` is the check's, like `gpu.cards`; a check that finds several things uses it again. `hint`
    may have several lines.
    """

    id: str
    level: Level
    what: str
    detail: str
    hint: str = ""

    def __post_init__(self) -> None:
        # Whatever a check was told by a driver, an engine or a file ends here.
        object.__setattr__(self, "what", one_line(self.what, 60))
        object.__setattr__(self, "detail", one_line(self.detail, DETAIL_LIMIT))
        hint = "\n".join(clean_lines(self.hint, DETAIL_LIMIT, HINT_LINES))
        object.__setattr__(self, "hint", hint)

    @property
    def group(self) -> str:
        return GROUPS[self.id.partition(".")[0]]


@dataclass(frozen=True, slots=True)
class Check:
    """One check. `look(facts, check)` returns its findings, none if there is nothing to report;
    `silent` is the level of "no answer in time"."""

    id: str
    what: str
    look: Callable[[Facts, Check], Iterable[Finding]]
    silent: Level = Level.FAILED

    def ok(self, detail: str) -> Finding:
        return self.finding(Level.OK, detail)

    def note(self, detail: str, hint: str = "") -> Finding:
        return self.finding(Level.NOTE, detail, hint)

    def warning(self, detail: str, hint: str = "") -> Finding:
        return self.finding(Level.WARNING, detail, hint)

    def failed(self, detail: str, hint: str = "") -> Finding:
        return self.finding(Level.FAILED, detail, hint)

    def finding(self, level: Level, detail: str, hint: str = "") -> Finding:
        return Finding(self.id, level, self.what, detail, hint)


@dataclass(frozen=True, slots=True)
class Answer:
    """The findings of one check; `position` is its place on the page, counted from 0."""

    position: int
    check: Check
    findings: tuple[Finding, ...]


def begun(name: str, call: Callable[[], T]) -> Future[T]:
    """Start `call` in a daemon thread; what it returns or raises arrives in the future."""
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # handed over whole to whoever waits
            future.set_exception(error)

    try:
        threading.Thread(target=work, name=f"doctor: {name}"[:60], daemon=True).start()
    except RuntimeError as error:  # the machine has no thread left, and the page says so
        future.set_exception(error)
    return future


def each(
    name: str, items: Iterable[Key], call: Callable[[Key], T], seconds: float
) -> list[tuple[Key, T | None]]:
    """Call `call` for every item at the same time; None for those without a result after `seconds`.

    For paths: one dead mount must not hide what is known about the others. Raises what the first
    failing call raised.
    """
    futures = [(item, begun(name, partial(call, item))) for item in items]
    done, _ = wait([future for _, future in futures], seconds)
    return [(item, future.result() if future in done else None) for item, future in futures]


class Silent(ConsoleError):
    """A shared question that another check has asked is not answered yet."""


@dataclass(frozen=True, slots=True)
class SiteFile:
    """The site file in use; `site` is None if it is unusable, or if the demo's is not made yet.
    `source` says who named it."""

    path: Path
    source: str
    demo: bool = False
    site: Site | None = None
    problems: tuple[Problem, ...] = ()
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Cards:
    """What NVML said: cards by UUID, or words. `there`: a driver is installed, working or not."""

    cards: dict[str, Vram]
    words: str = ""
    there: bool = True


@dataclass(frozen=True, slots=True)
class Seen:
    """One run from its journal; `trouble` says why the journal is not (fully) readable."""

    run: RunDir
    view: RunView | None
    alive: bool
    trouble: str = ""


class Docker(RawEngine):
    """The engine client, with the two questions that only a doctor asks."""

    def get(self, path: str) -> dict[str, Any]:
        """A JSON object from the engine. Raises EngineError."""
        value = self._json(f"GET {path}", self._call(f"GET {path}", "GET", path))
        if not isinstance(value, dict):
            raise EngineError(
                "the container engine's answer makes no sense", f"{path} is no object"
            )
        return value


class Facts:
    """Shared answers. Every method may be called from any check's thread; each waits at most
    SHARED_S and then raises Silent. `root` is where /proc and /sys are."""

    def __init__(self, site_given: str | None = None, root: Path = Path("/")) -> None:
        self.site_given = site_given
        self.root = root
        self._lock = threading.Lock()
        self._begun: dict[str, Future[Any]] = {}

    def site_file(self) -> SiteFile:
        return self._shared("the site file", lambda: _site_file(self.site_given))

    def site(self) -> Site | None:
        """The site, or None if there is no usable one."""
        try:
            return self.site_file().site
        except Silent:
            return None

    def cards(self) -> Cards:
        return self._shared("NVML", _cards)

    def engine(self) -> Docker:
        """A client for the site's engine. Raises EngineError for an unusable address."""
        site = self.site()
        return Docker(site.model.engine.host if site else "", call_s=ASK_S)

    def version(self) -> dict[str, Any]:
        """`/version` of the engine. Raises EngineError."""
        return self._shared("the container engine", lambda: self.engine().get("/version"))

    def engine_is_silent(self) -> bool:
        """Whether the engine was asked, and has not answered. Waits for nothing."""
        with self._lock:
            future = self._begun.get("the container engine")
        if future is None:
            return False
        return not future.done() or isinstance(future.exception(), EngineTimeout)

    def info(self) -> dict[str, Any]:
        """`/info` of the engine. Raises EngineError."""
        return self._shared("the engine's settings", lambda: self.engine().get("/info"))

    def runs(self) -> list[Seen]:
        """The newest runs, newest first; fewer if their journals take long to read."""
        return self._shared("the run directory", _runs)

    def live(self) -> Pointer | None:
        """The active run, whoever started it."""
        return self._shared("the pointers", _live)

    def engine_need(self) -> Level:
        """The level of a missing engine: a note if the site needs none, else a failure."""
        site = self.site()
        if site is None:
            return Level.NOTE
        return Level.NOTE if set(kinds(site)) <= {"process", "unit"} else Level.FAILED

    def _shared(self, what: str, call: Callable[[], T]) -> T:
        with self._lock:
            future: Future[T] = self._begun.get(what) or begun(what, call)
            self._begun[what] = future
        try:
            return future.result(SHARED_S)
        except TimeoutError:
            if future.done():  # the call's own error, or an answer in the last moment
                return future.result()
            raise Silent("not known", f"{what} did not answer") from None


def kinds(site: Site) -> list[str]:
    """What the baseline and each service are: container, compose, process or unit."""
    model = site.model
    every: list[BaselineModel | ServiceModel] = [model.baseline, *model.services.values()]
    return [
        next(kind for kind in entry.ONE_OF if getattr(entry, kind) is not None) for entry in every
    ]


def _site_file(given: str | None) -> SiteFile:
    from console.config.locate import site_file
    from console.config.site.site import load_site

    path = site_file(given)
    demo = path is None
    path = path or paths.demo_dir() / "site.yaml"
    source = "the embedded demo" if demo else _source(given)
    if demo and not path.exists():
        return SiteFile(path, source, demo)
    try:
        return SiteFile(path, source, demo, load_site(path))
    except InvalidFile as error:
        return SiteFile(path, source, demo, None, tuple(error.problems), error.hint)


def _source(given: str | None) -> str:
    if given:
        return "named by --site"
    if os.environ.get("OMNI_SITE"):
        return "named by OMNI_SITE"
    return "this machine's" if paths.default_site() == paths.SYSTEM_SITE else "this user's"


def _cards() -> Cards:
    argv = module_argv("console.host.gpu.nvml")
    try:
        code, out, error = children.run(argv, ASK_S, env=os.environ)
    except subprocess.TimeoutExpired:
        return Cards({}, f"NVML gave no answer within {ASK_S:g} s")
    words = one_line(decode(error).removeprefix("No GPU driver answers: "))
    try:
        table = json.loads(decode(out)) if out.strip() else {}
    except ValueError:
        return Cards({}, "NVML's answer cannot be read")
    if not code:
        return Cards(table)
    absent = any(sign in words for sign in ("Library Not Found", "cannot be loaded"))
    return Cards(table, words or f"exit code {code}", there=not absent)


def _live() -> Pointer | None:
    from console.host import process
    from console.recovery.rollback import records

    for pointer in records.find_all():
        if process.alive(pointer.pid, pointer.start):
            return pointer
    return None


def _runs() -> list[Seen]:
    from console.journal.run_dir import all_runs

    until = time.monotonic() + RUNS_S
    seen = []
    for run in all_runs()[:RUNS]:
        if time.monotonic() > until:
            break
        seen.append(_seen(run))
    return seen


def _seen(run: RunDir) -> Seen:
    from console.journal.fold import fold
    from console.journal.lock import runner_alive
    from console.journal.store import read_events

    try:
        view = fold(read_events(run.journal))
    except ConsoleError as error:
        return Seen(run, None, runner_alive(run), str(error))
    return Seen(run, view, runner_alive(run), one_line(next(iter(view.trouble), ""), 160))
