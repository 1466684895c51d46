"""Requests of others at a measured server and beside it: what counts as theirs, what waits for
them, and what is said where nobody can know."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from console.bench.benchmark import MAX_FAILURES, WAIT_S, WAITS_S, Benchmark, Protocol
from console.bench.beside.users import NOT_KNOWN, STALE_S, Users, WatchedServer, saw_others
from console.bench.interference import Engine
from console.bench.sample import Sample
from console.bench.soak_requests import Asker
from console.runtime.occupancy import Occupancy
from tests.bench.machine import Host, still
from tests.bench.scripted import reply, scripted, streams

CAND, BASE = "http://cand", "http://base"
OURS = Sample(tok_s=20.0, completion_tokens=100, prompt_tokens=30)
IDLE = Occupancy(0, 2, None, 1000.0, 500.0, frozenset({(0, 4)}), live=True)
AFTER = replace(IDLE, generated=1100.0, prompted=530.0, tasks=frozenset({(0, 5)}))
"""A server of llama.cpp before and after our request alone."""
SILENT = Occupancy(why="/slots says HTTP 501, /metrics says HTTP 501")

NEVER_S = 1e6
"""Seconds between two polls, for a test that counts the looks."""


@dataclass
class Told:
    """What the servers say, each look the next one of its list; the last one repeats."""

    of: dict[str, list[Occupancy]] = field(default_factory=dict)
    now: float = 100.0

    def __call__(self, url: str) -> Occupancy:
        rows = self.of.get(url, [Occupancy(why="connection refused", refused=True)])
        return rows.pop(0) if len(rows) > 1 else rows[0]

    def users(self, *others: str) -> Users:
        return Users(
            WatchedServer("cand", CAND),
            [WatchedServer("baseline", url) for url in others],
            self,
            lambda: self.now,
        )

    def judged(self, *others: str, sample: Sample = OURS) -> str:
        """What is said of one request of ours; "busy: …" if it would not have been sent."""
        users = self.users(*others)
        before = users.look()
        if words := users.busy(before):
            return f"busy: {words}"
        with users.following():
            pass
        return users.judge([sample], before, users.look())


def gauge(running: int, tokens: float = 0.0, read: float = 0.0) -> Occupancy:
    """A server that has /metrics alone."""
    return Occupancy(running, generated=tokens, prompted=read)


@pytest.mark.parametrize(
    ("looks", "words"),
    [
        ([IDLE, AFTER], ""),
        ([replace(IDLE, processing=2), AFTER], "busy: the server answers 2 requests of others"),
        ([IDLE, replace(AFTER, processing=1)], "1 request"),
        ([IDLE, replace(AFTER, tasks=frozenset({(0, 5), (1, 6)}))], "1 request"),
        ([IDLE, replace(AFTER, generated=1400.0)], "300 tokens more generated"),
        ([IDLE, replace(AFTER, prompted=9000.0)], "8470 tokens more read"),
        ([IDLE, replace(AFTER, generated=1108.0, prompted=531.0)], ""),  # a template, a last token
        ([replace(IDLE, generated=None, prompted=None), AFTER], ""),  # /metrics is off
        ([IDLE, replace(AFTER, generated=3.0, prompted=1.0)], ""),  # it was started again
        ([gauge(0, 10, 10), gauge(0, 110, 40)], ""),
        ([gauge(0, 10, 10), gauge(1, 110, 40)], ""),  # a gauge shows our own for a while
        ([gauge(0, 10, 10), gauge(2, 110, 40)], "1 request"),
        ([gauge(0, 10, 10), gauge(0, 710, 40)], "600 tokens more generated"),
        ([SILENT, SILENT], ""),
        ([IDLE, SILENT], "is not known (/slots says HTTP 501"),
    ],
)
def test_what_was_not_ours_at_the_measured_server(looks: list[Occupancy], words: str) -> None:
    found = Told({CAND: looks}).judged()
    assert words in found
    assert bool(found) is bool(words)


@pytest.mark.parametrize(
    ("looks", "words"),
    [
        ([IDLE, IDLE], ""),
        ([replace(IDLE, processing=1)], "busy: baseline answers 1 request of others"),
        ([IDLE, replace(IDLE, processing=1)], "others used baseline at the same time (1 request)"),
        ([IDLE, AFTER], "others used baseline at the same time (1 request)"),
        ([gauge(0, 10), gauge(0, 90)], "(80 tokens more generated than ours)"),
        ([SILENT, SILENT], ""),
    ],
)
def test_what_others_asked_of_the_server_beside_it(looks: list[Occupancy], words: str) -> None:
    found = Told({CAND: [IDLE, AFTER], BASE: looks}).judged(BASE)
    assert words in found
    assert bool(found) is bool(words)


def test_a_server_that_is_down_beside_it_is_used_by_nobody() -> None:
    told = Told({CAND: [IDLE, AFTER]})
    assert told.judged(BASE) == ""
    users = told.users(BASE)
    users.look()
    assert [one["name"] for one in users.close()] == ["cand"]
    assert users.flags() == []


def test_what_nobody_tells_is_said() -> None:
    users = Told({CAND: [SILENT], BASE: [IDLE]}).users(BASE)
    assert users.busy(users.look()) == ""
    [said] = users.flags()
    assert said == f"whether others used the server is not known: {SILENT.why}"
    assert [(one["name"], one["known"]) for one in users.close()] == [
        ("cand", False), ("baseline", True),
    ]  # fmt: skip


def test_clients_of_one_that_does_not_tell_are_counted_and_told() -> None:
    told = Told({CAND: [SILENT], BASE: [SILENT]})
    users = replace(told.users(BASE), clients_at=lambda url: 2)
    for _ in range(3):
        assert users.busy(users.look()) == ""
    assert [one["connected"] for one in users.close()] == [3, 0]
    assert users.flags()[0].endswith("; clients of others were connected to it at 3 looks")
    telling = replace(Told({CAND: [IDLE]}).users(), clients_at=lambda url: 2)
    telling.look()
    assert telling.close()[0]["connected"] == 0


def test_a_server_that_stops_telling_is_not_quiet() -> None:
    users = Told({CAND: [IDLE, SILENT]}).users()
    users.look()
    assert users.busy(users.look()) == "the server does not say whether it answers others"


def test_a_server_that_has_ended_is_not_waited_for() -> None:
    """A candidate that was killed in its benchmark: the next request fails, and tells that."""
    users = Told({CAND: [IDLE, Occupancy(why="connection refused", refused=True)]}).users()
    users.look()
    assert users.busy(users.look()) == ""


def test_one_address_under_two_names_is_one_server() -> None:
    told = Told({CAND: [IDLE, AFTER]})
    assert told.judged(CAND) == ""


def test_a_gauge_may_be_as_old_as_half_a_minute() -> None:
    """SGLang goes on showing our last request while it is idle."""
    told = Told({CAND: [gauge(0), gauge(1)]})
    users = told.users()
    users.look()
    with users.following():
        pass
    assert users.busy(users.look()) == ""
    told.now += STALE_S
    assert users.busy(users.look()) == "the server answers 1 request of others"


def test_as_many_of_ours_as_streams() -> None:
    crowd = replace(IDLE, processing=3)
    told = Told({CAND: [IDLE, *[crowd] * 2, replace(AFTER, generated=1300.0, prompted=590.0)]})
    users = told.users()
    before = users.look()
    users._polled, users._streams = [{CAND: crowd}], 3
    assert users.judge([OURS] * 3, before, users.look()) != "", "the last look shows three more"
    users._streams, users._polled = 2, [{CAND: crowd}]
    assert "(1 request)" in users.judge([OURS] * 3, before, {CAND: AFTER})


def test_a_short_request_is_seen_while_ours_is_out() -> None:
    """One slot: another one has had it before ours, which only its number tells."""
    polled = [replace(IDLE, processing=1, tasks=frozenset({(0, task)})) for task in (5, 6)]
    bare = replace(IDLE, generated=None, prompted=None)
    users = Told({CAND: [bare, replace(bare, tasks=frozenset({(0, 6)}))]}).users()
    before = users.look()
    users._polled = [{CAND: one} for one in polled]
    assert users.judge([OURS], before, users.look()) == (
        "others used the server at the same time (1 request)"
    )


# -- a benchmark -------------------------------------------------------------------------------


class Skipping:
    """A clock whose waits take no time; `at` is called with the seconds that have passed."""

    def __init__(self, at: Callable[[float], None] = lambda _: None) -> None:
        self.passed, self._at = 0.0, at

    def monotonic(self) -> float:
        return self.passed

    def now(self) -> float:
        return self.passed

    def sleep(self, seconds: float) -> None:
        self.wait(threading.Event(), seconds)

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self.passed += seconds
        self._at(self.passed)
        return event.is_set()


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return still(tmp_path)


def measured(
    host: Host, looks: Callable[[str], Occupancy], clock: Skipping, **more: Any
) -> tuple[Any, list[str], int]:
    """A benchmark beside others: its result, what was said while it waited, requests sent."""
    said: list[str] = []
    quick = Protocol(max_tokens=8, runs=3, max_runs=6, warmup=0, cv_target=9.0, **more)
    with scripted(streams(reply(8), 0.001)) as server:
        around = host.surroundings(known=False)
        around.users.server, around.users.look_at = WatchedServer("it", server.url), looks
        around.users.poll_s = NEVER_S
        result = Benchmark(
            server.url, quick, clock=clock, surroundings=around, held=said.append
        ).run()
        return result, said, len(server.requests)


def test_a_request_waits_until_others_are_answered(host: Host) -> None:
    busy = [True]
    clock = Skipping(lambda passed: busy.__setitem__(0, passed < 20.0))
    result, said, sent = measured(host, lambda _: Occupancy(int(busy[0]), 1, live=True), clock)
    assert (result.metrics["runs"].value, result.voids, sent) == (3, [], 3)
    assert said == ["waits: the server answers 1 request of others"]
    assert "waited 20.0 s in all while others were answered" in result.flags
    assert result.context["requests"][0]["known"] is True


def test_it_waits_for_so_long_and_sends_nothing_to_a_server_that_others_use(host: Host) -> None:
    """What it would measure tells nothing, and it would hold up whoever uses the server."""
    clock = Skipping()
    result, _, sent = measured(host, lambda _: Occupancy(1, 1, live=True), clock)
    assert (result.metrics["tok_s"].n, sent) == (0, 0)
    assert len(result.runs) == MAX_FAILURES
    assert clock.passed == MAX_FAILURES * WAIT_S <= WAITS_S
    assert {void["reason"] for void in result.voids} == {
        "not sent: the server answers 1 request of others"
    }
    assert "stopped, as others went on using the servers" in result.flags


def test_a_sample_beside_others_is_void_and_another_one_is_taken(host: Host) -> None:
    counts = iter([0.0, 500.0, 500.0, *[500.0 + 8 * n for n in range(1, 99)]])
    looks: list[float] = []

    def look(_: str) -> Occupancy:
        # two looks a request
        looks.append(next(counts) if not looks or len(looks) % 2 else looks[-1])
        return Occupancy(0, 1, generated=looks[-1], live=True)

    result, _, sent = measured(host, look, Skipping())
    assert result.voids == [
        {"run": 1, "reason": "others used the server at the same time "
                             "(492 tokens more generated than ours)"}
    ]  # fmt: skip
    assert (result.metrics["runs"].value, sent) == (3, 4)


def test_a_server_that_does_not_tell_is_measured_and_it_is_said(host: Host) -> None:
    result, said, _ = measured(host, lambda _: SILENT, Skipping())
    assert (result.metrics["runs"].value, said) == (3, [])
    assert f"whether others used the server is not known: {SILENT.why}" in result.flags


def test_a_crowd_beside_others_has_no_figures(host: Host) -> None:
    rows = iter([0.0, 8.0] * 3 + [0.0, 900.0])

    def look(_: str) -> Occupancy:
        return Occupancy(0, 4, generated=next(rows), live=True)

    result, _, _ = measured(host, look, Skipping(), levels=(2,))
    [level] = result.levels
    assert (level.valid, level.tok_s) == (0, None)
    [why] = level.voids
    assert why.startswith("others used the server at the same time")


def test_the_answer_of_a_soak_beside_others_counts_without_its_rate() -> None:
    rows = {"n": iter([0.0, 8.0, 8.0, 500.0])}
    with scripted(streams(reply(8), 0.001)) as server:

        def look(_: str) -> Occupancy:
            return Occupancy(0, 1, generated=next(rows["n"]), live=True)

        users = Users(WatchedServer("it", server.url), (), look, poll_s=NEVER_S)
        asker = Asker(server.url, 8, "m", users=users)
        answers = []
        for _ in range(2):
            out = asker("hello")
            assert out.ended.wait(30)
            answers.append(out.answer())
    assert [bool(answer.void) for answer in answers] == [False, True]
    assert [answer.error for answer in answers] == ["", ""]
    assert users.spoilt == 1
    assert len(users.flags()) == 1


def test_an_answer_of_a_soak_beside_nobody_knows_whom_is_not_said_to_have_been_beside_others() -> (
    None
):
    """A server that hangs for a while does not tell in time who it answers."""
    quiet = Occupancy(0, 1, live=True)
    rows = iter([quiet, quiet, quiet, Occupancy(why="/slots: no answer; in time")])
    with scripted(streams(reply(8), 0.001)) as server:
        users = Users(WatchedServer("it", server.url), (), lambda _: next(rows), poll_s=NEVER_S)
        asker = Asker(server.url, 8, "m", users=users)
        for _ in range(2):
            out = asker("hello")
            assert out.ended.wait(30)
    assert "is not known (/slots: no answer, in time)" in out.answer().void
    assert (users.spoilt, users.unsure) == (0, 1)
    assert users.flags() == [
        "whether others were answered at the same time as 1 answer is not known, so that its rate "
        "is not used"
    ]


def test_a_benchmark_that_waits_for_a_server_that_does_not_say_names_nobody_else(
    host: Host,
) -> None:
    looks = iter([Occupancy(1, 1, live=True)])
    clock = Skipping()
    result, _, sent = measured(host, lambda _: next(looks, SILENT), clock)
    assert sent == 0
    said = "a server does not say whether it answers others"
    assert f"stopped, as {said}" in result.flags
    assert f"waited 3 min 00 s in all while {said}" in result.flags
    assert not any("others were" in flag or "others went" in flag for flag in result.flags)


def test_a_reason_of_which_a_part_was_seen_tells_of_others() -> None:
    seen = "others used the server at the same time (1 request)"
    blind = f"whether others used base {NOT_KNOWN} (/slots says HTTP 501)"
    assert [saw_others(words) for words in (seen, blind, f"{blind}; {seen}", "")] == [
        True, False, True, False,
    ]  # fmt: skip


def test_surroundings_ask_the_servers_that_have_an_address(host: Host) -> None:
    around = host.surroundings()
    assert around.users.look() == {}
    assert around.close()["requests"] == []
    assert Engine("x").url == ""
