"""What is posted is queued once, on disk, and costs whoever posts nothing but the write."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from console.notify import outbox
from console.notify.outbox import ChannelState, Outbox, channel_id, post
from tests.clock import FakeClock
from tests.notify.made import channel, event
from tests.wrong_files import wrong_files

HOOK = {"webhook": "http://127.0.0.1:9/x"}


@pytest.fixture
def woken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """No sender is started; a number for each time that one was asked for."""
    found: list[int] = []
    monkeypatch.setattr(outbox, "wake", lambda: found.append(1))
    return found


def test_a_file_for_each_channel_that_is_told_of_it(box: Outbox, woken: list[int]) -> None:
    every = [channel(**HOOK), channel(mail="root", on=["approval"]), channel(command=["true"])]
    post(every, event(), FakeClock(5.0))
    found = {one.channel.way: one for one in box.items()}
    assert found.keys() == {"webhook", "command"}
    assert (found["webhook"].event, found["webhook"].posted) == (event(), 5.0)
    assert woken == [1]
    modes = {path.stat().st_mode & 0o777 for path in (box.path / "queue").iterdir()}
    assert modes == {0o600}


def test_the_usual_kinds_are_all_but_due_lessons(box: Outbox, woken: list[int]) -> None:
    post([channel(**HOOK)], event(kind="lessons-due"))
    assert (box.items(), woken) == ([], [])
    post([channel(**HOOK, on=["lessons-due"])], event(kind="lessons-due"))
    assert len(box.items()) == 1


def test_what_is_posted_twice_is_queued_once_and_after_its_delivery_never(
    box: Outbox, woken: list[int]
) -> None:
    one = channel(**HOOK)
    for _ in range(2):
        post([one], event())
    (item,) = box.items()
    assert woken == [1, 1], "a sender that died is started by the second"
    box.finish(item)
    post([one], event())
    assert (box.items(), woken) == ([], [1, 1])
    post([one], event("r1:8"))
    assert [found.event.key for found in box.items()] == ["r1:8"]


def test_the_oldest_comes_first_and_a_channel_is_known_by_where_it_leads(
    box: Outbox, woken: list[int]
) -> None:
    first, second = channel(**HOOK), channel(**HOOK, headers={"A": "b"}, on=["run-end"])
    clock = FakeClock()
    for number in range(9):
        clock.sleep(1.0)
        post([first], event(f"r1:{number}"), clock)
    post([second], event("r1:0"), clock)
    assert [one.event.key for one in box.items()] == [f"r1:{number}" for number in range(9)]
    assert channel_id(first) == channel_id(second) != channel_id(channel(ntfy=HOOK["webhook"]))


def test_a_secret_is_in_no_file(
    box: Outbox, woken: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_TOKEN", "Bearer hunter2hunter2")
    where = channel(**HOOK, headers={"Authorization": {"env": "HOOK_TOKEN"}})
    post([where], event())
    (path,) = (box.path / "queue").iterdir()
    assert "hunter2" not in path.read_text()
    kept = json.loads(path.read_text())["channel"]
    assert kept["headers"] == {"Authorization": {"env": "HOOK_TOKEN"}}
    assert box.items()[0].channel == where


def test_a_place_that_cannot_be_written_is_no_trouble_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, woken: list[int]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    post([channel(**HOOK)], event())
    assert woken == []


def test_nor_is_a_sender_that_does_not_start(box: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox.subprocess, "Popen", lambda *args, **more: 1 / 0)
    post([channel(**HOOK)], event())
    assert len(box.items()) == 1


def test_what_nobody_can_read_is_left_out_and_goes_with_the_old_names(
    box: Outbox, woken: list[int]
) -> None:
    for name, text in (("a", "{"), ("b", "[]"), ("c", '{"channel": {}, "event": 3}')):
        (box.path / "queue" / name).write_text(text)
    post([channel(**HOOK)], event())
    (item,) = box.items()
    box.finish(item)
    (done,) = (box.path / "done").iterdir()
    now = done.stat().st_mtime
    box.forget(now + outbox.KNOWN_S - 1)
    assert done.exists()
    box.forget(now + outbox.KNOWN_S + 1)
    assert not done.exists()
    assert not os.listdir(box.path / "queue")


def test_an_item_with_one_wrong_value_is_left_out(box: Outbox, woken: list[int]) -> None:
    post([channel(**HOOK)], event(), FakeClock(5.0))
    (path,) = (box.path / "queue").iterdir()
    for key, text in wrong_files(path.read_text(), leave="event.data"):
        path.write_text(text)
        assert box.items() == [], key


def test_a_wrong_value_of_a_channels_state_is_not_known(box: Outbox) -> None:
    """The sender ended with an error at each of its next starts."""
    where = channel(**HOOK)
    state = ChannelState(*[1.0] * 7, "refused", "r1:7")
    box.keep(where, state)
    (path,) = (box.path / "channels").iterdir()
    for key, text in wrong_files(path.read_text()):
        path.write_text(text)
        name = "answer" if key == "said" else key
        kept = ChannelState() if key == "no object" else replace(state, **{name: None})
        assert box.state(where) == kept, key
        assert box.known(where, 1e6) >= 0
    box.keep(where, ChannelState(since=1.0))
    assert json.loads(path.read_text()) == {"since": 1.0}, "as earlier versions have it"


def test_the_log_is_begun_anew_when_it_is_long(
    box: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "MAX_LOG", 20)
    for words in ("first\n\x1b[31mred " + "x" * 30, "second"):
        box.log(words)
    assert box.logged.read_text() == "second\n"
    assert box.logged.with_suffix(".log.1").read_text() == f"first red {'x' * 30}\n"
