"""A log stream against an engine that answers as scripted: gaps, restarts, refusals, half lines."""

import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from console.common.errors import EngineTimeout
from console.runtime.docker import log_stream
from console.runtime.docker.log_stream import LogStream, _unix
from tests.clock import FakeClock
from tests.runtime.test_words import refusal

DAY = "2026-11-22T"
CREATED = DAY + "10:00:00.000000000Z"
NEVER = "0001-01-01T00:00:00Z"


def look(alive: bool, started: str = "10:00:01", finished: str = "", **more: str) -> dict[str, Any]:
    state = {
        "Running": alive, "StartedAt": f"{DAY}{started}.000000000Z",
        "FinishedAt": f"{DAY}{finished}.000000000Z" if finished else NEVER,
    }  # fmt: skip
    return {"Created": CREATED, "State": state, **more}


def entry(at: str, text: str) -> bytes:
    return f"{DAY}{at}.000000000Z {text}".encode()


STAMP = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")


class Script:
    """`looks` and `streams` in their order; an exception in either is raised. Behind them the last
    look and stream stay. A stream begins with the second that is asked for, as an engine's does."""

    def __init__(
        self, looks: list[Any], streams: list[Any], since: float | None = None, engine: str = ""
    ) -> None:
        self.engine, self.last, self.whole = engine, looks[-1], streams[-1]
        self.looks, self.streams, self.asked = iter(looks), iter(streams), list[Any]()
        self.got, self.notes = list[str](), list[str]()
        self.clock = FakeClock()
        client: Any = SimpleNamespace(api=self)
        stream = LogStream(
            client, "c", entry=lambda stamp, line: self.got.append(line.decode()),
            note=self.notes.append, since=since, clock=self.clock,
        )  # fmt: skip
        stream.follow()
        assert list(self.looks) == []

    def inspect_container(self, ref: str) -> Any:
        self.last = next(self.looks, self.last)
        if isinstance(self.last, Exception):
            raise self.last
        return self.last

    def version(self) -> Any:
        return {"Components": [{"Name": self.engine}]}

    def logs(self, ref: str, **options: Any) -> Iterator[bytes]:
        self.asked.append(options.get("since"))
        found: Any = next(self.streams, self.whole)
        if isinstance(found, Exception):
            raise found

        def chunks() -> Iterator[bytes]:
            for one in found:
                if isinstance(one, Exception):
                    raise one
                begun = STAMP.match(one)
                if begun is None or _unix(begun[0]) >= (options.get("since") or 0):
                    yield one

        return chunks()


TEN = 1795341600
"""That day at ten, Unix seconds."""
ONE, TWO, THREE = (
    entry(f"10:00:0{at}", f"{word}\n") for at, word in ((2, "one"), (3, "two"), (4, "three"))
)


def test_a_stream_that_breaks_off_goes_on_after_a_mark() -> None:
    found = Script([look(True)] * 3 + [look(False)] * 2, [[ONE, OSError()], [ONE, TWO], []])
    assert found.got == ["one\n", "two\n"]
    assert len(found.notes) == 1
    assert "gap" in found.notes[0]
    assert found.asked == [None, TEN + 1, TEN + 2], "the second before the newest that was seen"


def test_an_end_without_a_gap_is_no_gap() -> None:
    found = Script([look(True), look(False), look(False)], [[ONE, TWO], []])
    assert (found.got, found.notes) == (["one\n", "two\n"], [])


def test_an_engine_that_was_away_is_a_gap() -> None:
    away = OSError("gone")
    found = Script([look(True), away, look(False), look(False)], [[ONE], [ONE, TWO]])
    assert (found.got, len(found.notes)) == (["one\n", "two\n"], 1)


def test_a_restart_is_marked_as_one() -> None:
    again = look(True, "10:00:03", "10:00:03")
    found = Script([look(True), again, again, look(False), look(False)], [[ONE], [TWO], []])
    assert found.got == ["one\n", "two\n"]
    assert len(found.notes) == 1
    assert "started again" in found.notes[0]


def test_a_log_that_cannot_be_read_is_said_once() -> None:
    refused = refusal(501, "the driver does not support reading")
    found = Script([look(True), look(True), look(False), look(False)], [refused, refused, refused])
    assert (found.got, len(found.notes)) == ([], 1)
    assert "does not support reading" in found.notes[0]


def test_half_a_line_counts_once_its_container_has_ended() -> None:
    half = entry("10:00:03", "half")
    found = Script([look(False), look(False)], [[ONE, half[:9], half[9:]]])
    assert found.got == ["one\n", "half"]
    found = Script([look(False), look(False)], [[half, THREE]])
    assert found.got == ["half", "three\n"], "a former life ended within a line"
    looks, broken = [look(True), look(False), look(False)], [EngineTimeout("late"), [OSError()]]
    assert Script(looks, [[ONE, half], [ONE]]).got == ["one\n", "half"]
    assert Script(looks, [[ONE, half], [ONE, half, b"!\n"]]).got == ["one\n", "half!\n"]
    again = Script([look(True), look(False)], [[ONE], *broken, [ONE, TWO, half]])
    assert again.got == ["one\n", "two\n", "half"], "one that breaks off is asked once more"
    found = Script([look(False), look(False)], [[half, THREE]], engine="Podman Engine")
    assert found.got == ["halfthree\n"], "Podman stamps each part of a line"


def test_a_container_that_is_gone_ends_it() -> None:
    gone = refusal(404, "No such container")
    assert Script([look(True), gone], [[ONE]]).got == ["one\n"]


@pytest.mark.parametrize(
    ("seen", "since", "got"),
    [
        (look(True, "10:00:04", "10:00:02"), None, ["two\n", "three\n"]),
        (look(False, "10:00:06", "10:00:09"), None, ["three\n"]),
        (look(False, "10:00:01", "10:00:09"), None, ["one\n", "two\n", "three\n"]),
        (look(True), TEN + 3.0, ["two\n", "three\n"]),
    ],
    ids=["between two lives", "of the last life", "of the first", "as asked"],
)
def test_what_is_older_is_left_out(
    seen: dict[str, Any], since: float | None, got: list[str]
) -> None:
    ended = look(False, seen["State"]["StartedAt"][11:19], "10:00:09")
    looks = [seen, ended, ended] if seen["State"]["Running"] else [seen, ended]
    found = Script(looks, [[ONE, TWO, THREE], []], since)
    assert found.got == got


def test_a_busy_engine_is_asked_again_for_the_log_of_an_ended_container() -> None:
    """Four lost connections within a second once ended the log in silence."""
    lost = [EngineTimeout("late"), [OSError()], [ONE, OSError()]] * 3
    found = Script([look(True), look(False)], [[ONE], *lost, [ONE, TWO, THREE]])
    assert found.got == ["one\n", "two\n", "three\n"]
    assert not any("cannot be read" in note for note in found.notes)


def test_what_an_engine_writes_behind_the_end_of_its_container_is_read() -> None:
    found = Script([look(False)], [[ONE], [ONE, TWO], [ONE, TWO, THREE], [THREE]])
    assert (found.got, found.notes) == (["one\n", "two\n", "three\n"], [])


@pytest.mark.parametrize(
    "ever",
    [{"streams": [[ONE], *[EngineTimeout("late")] * 999]},
     {"looks": [look(False), EngineTimeout("late")]}],
    ids=["its log", "the engine"],
)  # fmt: skip
def test_what_never_answers_again_is_given_up_and_said(ever: dict[str, Any]) -> None:
    found = Script(**{"looks": [look(False)], "streams": [[ONE]], **ever})
    assert found.got == ["one\n"]
    assert [note for note in found.notes if "cannot be read to its end" in note]
    assert sum(found.clock.slept) < 2 * log_stream.DRAIN_S


def test_an_entry_without_a_time_is_read_once() -> None:
    found = Script([look(False)], [[b"bare\n"]] * 99)
    assert (found.got, found.notes) == (["bare\n"], [])
