"""What a runner posts: news of what it records, from one place, and what an earlier one missed."""

import os

import pytest

from console.config.site.notify import NotifyModel
from console.journal import events
from console.journal.state import RunState
from console.notify import outbox
from console.notify.event import Event
from console.runner.context import Context
from tests.runner.unit.conftest import Bench

MAIL = NotifyModel.model_validate({"mail": "root"})


@pytest.fixture
def posted(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """What the run of the bench posts to its one channel."""
    found: list[Event] = []

    def post(channels: list[NotifyModel], event: Event) -> None:
        assert channels == [MAIL]
        found.append(event)

    monkeypatch.setattr(outbox, "post", post)
    tells(bench.context)
    return found


def tells(context: Context) -> None:
    site = context.plan.site
    site.model = site.model.model_copy(update={"notify": [MAIL]})


def test_what_is_recorded_is_posted_with_the_place_of_its_event(
    bench: Bench, posted: list[Event]
) -> None:
    context = bench.context
    context.record(events.RunCreated(run_id="r1", playbook="trial", site="ws", steps=[]))
    context.enter(RunState.PAUSED, "step_failed", "up: exit_code")
    context.enter(RunState.RUNNING)
    context.record(events.Guard(sign="breach", words="RAM is full", killed=[]))
    context.enter(RunState.FAILED)
    context.record(events.RunFinished())
    assert [one.kind for one in posted] == ["waiting", "guard-kill", "run-end"]
    assert posted[-1].key == f"r1:{context.view.seq}"
    assert posted[-1].at == bench.clock.time


def test_what_was_missed_is_posted_with_the_same_keys(bench: Bench, posted: list[Event]) -> None:
    context = bench.context
    context.record(events.RunCreated(run_id="r1", playbook="trial", site="ws", steps=[]))
    context.enter(RunState.PAUSED, "step_failed", "up: exit_code")
    first = posted.copy()
    context.tell_missed()
    assert posted == first * 2
    bench.clock.time += 86400.0
    context.tell_missed()
    assert posted == first * 2, "nobody is told of what is a day old"


def test_another_user_who_closes_the_run_repeats_nothing(
    bench: Bench, posted: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.context.enter(RunState.PAUSED, "step_failed", "up: exit_code")
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000)
    bench.context.tell_missed()
    bench.context.enter(RunState.FAILED)
    bench.context.record(events.RunFinished())
    assert [one.kind for one in posted] == ["waiting", "run-end"]


def test_a_site_that_tells_nobody_has_no_outbox(bench: Bench) -> None:
    bench.context.enter(RunState.FAILED)
    bench.context.record(events.RunFinished())
    bench.context.tell_missed()
    assert not outbox.paths.notify_dir().exists()
