"""The watch as a process: one look after the other, until SIGTERM; its lock, its helpers, and what
it does when the site file changes."""

from __future__ import annotations

import fcntl
import gc
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from console.common import paths
from console.common.clock import SystemClock
from console.common.errors import ConsoleError, Exit, HostBusy
from console.common.files import open_untrusted
from console.common.paths import module_argv
from console.common.text import decode, one_line
from console.common.units import format_duration
from console.host import process
from console.journal import watch_record as record
from console.recovery.rollback.sealed_plan import site_script
from console.watch import fingerprint
from console.watch.fingerprint import Print, Server
from console.watch.look import Look, Looker, held_by
from console.watch.plan import WatchPlan, usual_environment
from console.watch.scrape import Scrape
from console.watch.watcher import Hands, Restored, Watcher

POLL_S, RETRY_S, DAY_S = 0.5, 60.0, 86_400.0
DRIVER = Path("/proc/driver/nvidia/version")


def run(plan: WatchPlan, trouble: str = "") -> int:
    """Watch until a signal ends it. Raises HostBusy if the site has a watch."""
    held = _locked(plan.site)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    site = _Site(plan)
    scrape = Scrape(plan.settings.metrics, plan.sealed.site_path, plan.settings.interval_s)
    try:
        try:
            scrape.start()
        except ConsoleError as error:  # figures that nobody can read leave no baseline alone
            trouble = f"{trouble}; {error}" if trouble else str(error)
            print(one_line(trouble, 300), file=sys.stderr, flush=True)
        post = _Post(plan)
        watcher = _watcher(plan, stop, post)
        watcher.state.trouble = one_line(trouble, 300)
        gc.collect()
        gc.freeze()
        _watch(watcher, stop, site, post)
    finally:
        scrape.close()
        os.close(held)
    return 0


def _watch(watcher: Watcher, stop: threading.Event, site: _Site, post: _Post) -> None:
    clock, last_word = watcher.clock, ""
    post.begin()
    while not stop.is_set():
        try:
            before = sum(watcher.state.events.values())
            wait = watcher.tick()
            if sum(watcher.state.events.values()) != before or post.is_due():
                post.begin()
            if last_word != watcher.state.word:
                last_word = watcher.state.word
                print(one_line(f"{last_word}: {watcher.state.detail}", 300), flush=True)
        except OSError as error:
            # A full disk, no memory for a moment: the next look may succeed.
            print(one_line(f"this look failed: {error}", 300), file=sys.stderr, flush=True)
            wait = watcher.plan.settings.interval_s
        if clock.wait(stop, wait):
            return
        if site.changed():
            site.begin_anew()


def _watcher(plan: WatchPlan, stop: threading.Event, post: _Post) -> Watcher:
    looker, server = Looker(plan.sealed, plan.settings), Server(plan.sealed)
    eyes = _Eyes(looker, server)

    def restore() -> Restored:
        post.begin()  # that it is down is told now: a restore takes as long as the model loads
        return _restore(plan, stop)

    hands = Hands(
        SystemClock(), eyes.look, eyes.fingerprint, restore, in_a_child,
        lambda: held_by(plan.sealed),
    )  # fmt: skip
    return Watcher(plan, hands, (os.getpid(), process.start_time(os.getpid()) or 0))


class _Eyes:
    """Looks with NVML beside it, where there is a driver: in a process of its own, which sees the
    clocks while the answer is made."""

    def __init__(self, looker: Looker, server: Server) -> None:
        self._looker, self._server = looker, server
        self._cards: tuple[Print, dict[str, float]] = ({}, {})

    def look(self) -> Look:
        if not DRIVER.exists():
            return self._looker.look(self._server.pid())
        from console.host.gpu.clocks import Watch

        watch = Watch()
        watch.start()
        try:
            return self._looker.look(self._server.pid())
        finally:
            cards = fingerprint.cards(watch.stop()[0])
            # A quick answer may be over before NVML has said anything: then nothing is known of
            # the clocks of this look, and the power limit is what it was.
            self._cards = cards if cards[0] else (self._cards[0], {})

    def fingerprint(self) -> tuple[Print, dict[str, float]]:
        fixed, moving = self._cards
        facts = {**fingerprint.machine(), **self._server.look(), **fixed}
        return facts, {**fingerprint.gauges(), **moving}


def in_a_child(
    values: Sequence[float], headline: str, against: Sequence[float]
) -> tuple[float, float] | None:
    """`console.bench.statistics.interval` in a child, whose libraries end with it."""
    given = json.dumps([values, headline, against])
    program = (
        "import json, sys; from console.bench.statistics import interval; "
        "print(json.dumps(interval(*json.load(sys.stdin))))"
    )
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", program], input=given.encode(), capture_output=True,
            timeout=60, check=True,
        )  # fmt: skip
        bounds = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return None if bounds is None else (float(bounds[0]), float(bounds[1]))


def _restore(plan: WatchPlan, stop: threading.Event) -> Restored:
    """By `omni-console rollback`, or where that cannot be run, as in the middle of an upgrade, by
    the script that the newest run on the site has sealed."""
    done = _by_command(plan, stop)
    return done if done.begun else _by_script(plan, stop, done.detail)


def _by_script(plan: WatchPlan, stop: threading.Event, why: str) -> Restored:
    path, clock = site_script(plan.sealed.site_name), SystemClock()
    if not path.is_file():
        return Restored(False, f"{why}, and no run on this site has sealed a script", begun=False)
    begun = clock.monotonic()
    try:
        child = subprocess.Popen(
            ["/bin/sh", str(path)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True, env=usual_environment(),
        )  # fmt: skip
    except OSError as error:
        return Restored(False, f"{why}, nor {path}: {error.strerror}", begun=False)
    if not _ends(child, stop):
        return Restored(False, "the watch has ended meanwhile, and the rollback goes on")
    if child.returncode == 0:
        took = format_duration(clock.monotonic() - begun)
        return Restored(True, f"{path} took {took}: {why}")
    return Restored(False, f"{path} failed: exit {child.returncode}; {why}")


def _ends(child: subprocess.Popen[bytes], stop: threading.Event) -> bool:
    """Whether a child has ended before the watch does."""
    clock = SystemClock()
    while child.poll() is None:
        if clock.wait(stop, POLL_S):
            return False
    return True


def _by_command(plan: WatchPlan, stop: threading.Event) -> Restored:
    """A process of its own, which goes on when the watch ends."""
    argv = [*module_argv("console.cli"), "rollback", "--json", "--by", "watch"]
    # by name, so that no run of another site is taken for what is to be restored
    argv += ["--site", plan.sealed.site_path] if plan.sealed.site_path else []
    clock, begun = SystemClock(), SystemClock().monotonic()
    try:
        child = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True,
            env=usual_environment(),
        )  # fmt: skip
    except OSError as error:
        words = f"omni-console rollback cannot be started: {error.strerror}"
        return Restored(False, words, begun=False)
    if not _ends(child, stop):
        return Restored(False, "the watch has ended meanwhile, and the rollback goes on")
    assert child.stdout is not None
    report: dict[str, Any] = {}
    for line in decode(child.stdout.read()).splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        report = value if isinstance(value, dict) else report
    child.stdout.close()
    serving = child.returncode == 0 and report.get("serving") is True
    took = format_duration(clock.monotonic() - begun)
    words = one_line(str(report.get("detail") or report.get("error") or ""), 300)
    if serving:
        return Restored(True, f"omni-console rollback took {took}")
    if not report and child.returncode not in (Exit.OK, Exit.ROLLBACK_FAILED):
        # with --json it says how it ended, whatever happens: it was not this program that ran
        words = f"omni-console rollback could not be run: exit {child.returncode}"
        return Restored(False, words, begun=False)
    return Restored(False, f"omni-console rollback failed: {words or f'exit {child.returncode}'}")


class _Post:
    """`omni-console watch post` as a process of its own: what posts events loads more than the
    watch may have. It is also started with the watch, for what an earlier one left."""

    def __init__(self, plan: WatchPlan) -> None:
        self._argv = [*module_argv("console.cli"), "watch", "post"]
        self._argv += ["--site", plan.sealed.site_path] if plan.given else []
        self._children: list[subprocess.Popen[bytes]] = []
        self._clock = SystemClock()
        self._begun = self._clock.monotonic()
        self._failed = False

    def is_due(self) -> bool:
        """Whether nothing was posted for a day, as some news come by the calendar alone, or for a
        minute after what posts could not be run."""
        self._failed |= any(child.poll() not in (None, 0) for child in self._children)
        return self._clock.monotonic() - self._begun > (RETRY_S if self._failed else DAY_S)

    def begin(self) -> None:
        self._begun, self._failed = self._clock.monotonic(), False
        self._children = [child for child in self._children if child.poll() is None]
        try:
            child = subprocess.Popen(
                self._argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                start_new_session=True, env=usual_environment(),
            )  # fmt: skip
        except OSError as error:
            print(one_line(f"events cannot be posted: {error}"), file=sys.stderr, flush=True)
            self._failed = True
            return
        self._children.append(child)


class _Site:
    """The site file, by its date: when it changes, the watch begins anew with what it says now."""

    def __init__(self, plan: WatchPlan) -> None:
        self._path, self._given = plan.sealed.site_path, plan.given
        self._stamp = self._now()

    def changed(self) -> bool:
        """Whether to begin anew; where the program's own files are gone, the last plan stays at
        work until they are there again."""
        now = self._now()
        return now is not None and now != self._stamp and not paths.lost_file()

    def begin_anew(self) -> None:
        """Become `omni-console watch run`, as the same process."""
        argv = [*module_argv("console.cli"), "watch", "run"]
        argv += ["--site", self._path] if self._given else []
        os.execve(argv[0], argv, usual_environment())

    def _now(self) -> tuple[int, int, int] | None:
        try:
            info = os.stat(self._path)
        except OSError:
            return None
        return info.st_mtime_ns, info.st_size, info.st_ino


def _locked(site: str) -> int:
    """The descriptor of the lock of a site's watch. Raises HostBusy and ConsoleError."""
    path = record.file(site, record.LOCK)
    try:
        paths.make(path.parent)
        descriptor = open_untrusted(path, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise ConsoleError("the watch cannot keep its files", f"{path}: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise HostBusy(
            "another watch of this site runs", "", "omni-console watch status shows it"
        ) from None
    return descriptor
