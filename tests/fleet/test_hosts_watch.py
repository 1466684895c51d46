"""Hosts that are asked over and over while somebody looks, for the page of hosts."""

import errno
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from console.fleet.inventory import Host
from console.fleet.known import Known
from console.fleet.protocol import LineLost
from console.frontends.tui.watch import hosts as module
from console.frontends.tui.watch.hosts import AGAIN_S, EVERY_S, HostsWatch
from tests.clock import FakeClock
from tests.fleet.standin import FarHost, Json
from tests.waiting import until


class Far(FarHost):
    """A host whose answer waits while it hangs, and that notes when its line is closed. `cut`:
    whether the line is lost at each of the first questions; `full`: whether nothing can be asked
    then."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.cut: list[bool] = []
        self.full: list[bool] = []
        self.free = threading.Event()
        self.free.set()

    def _state(self, asked: Json) -> Json:
        assert self.free.wait(60)
        if self.full and self.full.pop(0):
            raise OSError(errno.ENOSPC, "No space left on device")
        if self.cut and self.cut.pop(0):
            raise LineLost("a cannot be reached")
        return {"baseline": {"word": "serving"}}

    def close(self) -> None:
        self.asked.append("closed")


class Told:
    """What was told of the hosts; with `most` of them the watch is over."""

    def __init__(self, most: int = 10_000) -> None:
        self.found: list[Known] = []
        self.most = most
        self.watch: HostsWatch | None = None

    def __call__(self, one: Known) -> None:
        self.found.append(one)
        if len(self.found) == self.most and self.watch is not None:
            self.watch.close()


Begin = Callable[..., HostsWatch]


@pytest.fixture
def fars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Far]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    made = {name: Far(name) for name in "ab"}
    monkeypatch.setattr(module, "Line", lambda host, control: made[host.name])
    return made


@pytest.fixture
def begin(fars: dict[str, Far]) -> Iterator[Begin]:
    """A watch of the named hosts that has begun; all its threads end with the test."""
    before, made = threading.active_count(), list[HostsWatch]()

    def start(names: str, told: Told, clock: FakeClock | None = None) -> HostsWatch:
        watch = HostsWatch([Host(name, name) for name in names], None, told, clock)
        told.watch = watch
        made.append(watch)
        watch.start()
        return watch

    yield start
    for one in made:
        one.close()
    for far in fars.values():
        far.free.set()
    until(lambda: threading.active_count() <= before, "its threads have ended")


def test_a_machine_that_cannot_ask_for_a_moment_asks_again(
    fars: dict[str, Far], begin: Begin
) -> None:
    fars["a"].full = [True, True]
    told = Told(2)
    begin("a", told, FakeClock())
    until(lambda: len(told.found) == 2, "it is told of twice")
    assert told.found[0].trouble == "this machine cannot ask: No space left on device"
    assert told.found[1].trouble == ""


def test_a_host_that_hangs_holds_up_no_other(fars: dict[str, Far], begin: Begin) -> None:
    fars["a"].free.clear()
    told = Told()
    begin("ab", told)
    until(lambda: told.found, "b answers")
    assert {one.host for one in told.found} == {"b"}


def test_a_line_that_was_cut_is_opened_anew_and_a_host_that_is_gone_is_asked_ever_less(
    fars: dict[str, Far], begin: Begin
) -> None:
    clock, told = FakeClock(), Told(9)
    fars["a"].cut = [True, False, *[True] * 7]  # the first of seven is only a cut, too
    begin("a", told, clock)
    until(lambda: fars["a"].asked[-1:] == ["closed"], "it is over")
    assert [bool(one.trouble) for one in told.found] == [False, *[True] * 6, False, False]
    assert told.found[1].state["baseline"]["word"] == "serving", "as it was last known"
    assert clock.slept == [EVERY_S, *AGAIN_S, *[AGAIN_S[-1]] * 2, EVERY_S]


def test_nobody_who_looks_leaves_the_hosts_alone(fars: dict[str, Far], begin: Begin) -> None:
    told = Told()
    fars["a"].free.clear()
    watch = begin("a", told)
    until(lambda: fars["a"].asked == ["state"], "it is asked")
    watch.look(False)
    watch._clock = FakeClock()
    fars["a"].free.set()
    until(lambda: fars["a"].asked == ["state", "closed"], "its line is closed")
    assert len(told.found) == 1, "the answer that was on its way is told"
    watch.look(True)
    until(lambda: fars["a"].asked[2:3] == ["state"], "it is asked again")
    watch.close()
    watch.look(False)
    until(lambda: fars["a"].asked[-1] == "closed", "a watch that is over is not held up")


def test_what_comes_when_it_is_over_is_told_no_more(fars: dict[str, Far], begin: Begin) -> None:
    """The name may be another machine's by now: the page follows a changed fleet file so."""
    told = Told()
    fars["a"].free.clear()
    watch = begin("a", told)
    until(lambda: fars["a"].asked == ["state"], "it is asked")
    watch.close()
    fars["a"].free.set()
    until(lambda: fars["a"].asked[-1] == "closed", "its line is closed")
    assert told.found == []
