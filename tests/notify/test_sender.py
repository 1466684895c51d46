"""When what is sent: order, pauses after failures, the rate, and what a killed sender leaves."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from console.config.site.notify import NotifyModel
from console.notify import channels
from console.notify.channels import Answer
from console.notify.event import Event
from console.notify.outbox import Outbox, post
from console.notify.sender import BURST, EVERY_S, Sender
from tests.clock import FakeClock
from tests.notify.made import channel, event

YES, NO = Answer(True, "status 200"), Answer(False, "status 500")
ONE, TWO = channel(webhook="http://127.0.0.1:9/one"), channel(mail="root")
DAY = 86400.0


class Post:
    """An outbox with channels that answer what a test says, and whose clock only waits move."""

    def __init__(self, box: Outbox) -> None:
        self.box, self.clock = box, FakeClock()
        self.begun = self.clock.time
        self.sent: list[tuple[float, str, Event]] = []
        """Seconds since the beginning, way, event, in the order of sending."""
        self.answers: Callable[[NotifyModel, Event], Answer] = lambda channel, event: YES

    def deliver(self, channel: NotifyModel, event: Event) -> Answer:
        self.sent.append((self.clock.time - self.begun, channel.way, event))
        return self.answers(channel, event)

    def put(self, *keys: str, to: NotifyModel = ONE, kind: str = "run-end") -> None:
        for key in keys:
            self.clock.time += 0.001  # else only their names would order them
            post([to], event(key, kind), self.clock, start=False)

    def run(self) -> set[str]:
        return Sender(self.box, self.clock, self.deliver).run()

    @property
    def keys(self) -> list[str]:
        return [told.key for _, _, told in self.sent]

    @property
    def at(self) -> list[int]:
        return [round(at) for at, _, _ in self.sent]


@pytest.fixture
def mail(box: Outbox) -> Post:
    return Post(box)


def test_the_oldest_first_and_each_once(mail: Post) -> None:
    mail.put("b", "a", "c")
    assert mail.run() == set()
    assert mail.keys == ["b", "a", "c"]
    assert mail.box.items() == []
    mail.put("a", "b", "d")
    mail.run()
    assert mail.keys == ["b", "a", "c", "d"]


def test_a_failure_is_repeated_later_and_later_and_then_given_up(mail: Post) -> None:
    mail.answers = lambda channel, event: NO
    mail.put("a")
    mail.run()
    pauses = [after - before for before, after in zip(mail.at, mail.at[1:], strict=False)]
    assert pauses[:9] == [5, 10, 20, 40, 80, 160, 320, 640, 900]
    assert set(pauses[9:]) == {900}
    assert DAY - 900 <= mail.at[-1] <= DAY
    assert mail.box.items() == []
    last = mail.box.logged.read_text().splitlines()[-1]
    assert last.endswith(
        "webhook http://127.0.0.1:9: run-end a: given up: it could not be delivered within a day; "
        "last: status 500"
    )
    mail.put("a")
    mail.run()
    assert mail.at[-1] <= DAY, "what was given up is not posted again"


def test_a_channel_that_fails_keeps_no_other_waiting(mail: Post) -> None:
    mail.answers = lambda channel, event: NO if channel == ONE and len(mail.sent) < 6 else YES
    mail.put("a", "b", to=ONE)
    mail.put("c", "d", to=TWO)
    mail.run()
    ways = [(round(at), told.key) for at, way, told in mail.sent if way == "mail"]
    assert ways == [(0, "c"), (0, "d")]
    assert [told.key for _, way, told in mail.sent if way == "webhook"][-2:] == ["a", "b"]
    assert mail.box.state(ONE).fails == 0


def test_a_pause_outlives_the_sender(mail: Post) -> None:
    mail.answers = lambda channel, event: NO
    mail.put("a")
    Sender(mail.box, mail.clock, mail.deliver).round()
    sender = Sender(mail.box, mail.clock, mail.deliver)
    assert 4.9 < (sender.round() or 0) <= 5.0
    mail.clock.time -= 10 * DAY
    sender.round()
    assert mail.keys == ["a", "a"], "a clock that was set back makes nobody wait for days"


def test_a_flood_becomes_one_message(mail: Post) -> None:
    mail.put(*(f"k{number:02}" for number in range(22)))
    mail.put("urgent", kind="approval")
    mail.run()
    assert mail.keys[: BURST - 1] == ["k00", "k01", "k02", "k03"]
    assert len(mail.sent) == BURST
    told = mail.sent[-1][2]
    assert (told.title, told.kind, told.urgency) == ("and 19 more", "approval", 4)
    assert told.data["keys"] == [*(f"k{number:02}" for number in range(4, 22)), "urgent"]
    lines = told.text.splitlines()
    assert (lines[0], lines[-1], len(lines)) == ("title of k04", "… and 7 more", 13)
    assert mail.at == [0] * BURST
    mail.put("k04", "urgent")
    mail.run()
    assert len(mail.sent) == BURST, "what a summary stood for is done"


def test_after_a_flood_there_is_one_message_a_minute(mail: Post) -> None:
    mail.put(*(f"k{number:02}" for number in range(22)))
    mail.run()
    begun = mail.at[-1]
    mail.put("x", "y")
    mail.run()
    assert mail.sent[-1][2].data["keys"] == ["x", "y"]
    assert mail.at[-1] - begun == pytest.approx(EVERY_S, abs=1)
    mail.put("z")
    mail.run()
    assert mail.at[-1] - begun == pytest.approx(2 * EVERY_S, abs=1)
    mail.clock.time += BURST * EVERY_S
    before = len(mail.sent)
    mail.put(*"abcd")
    mail.run()
    assert mail.keys[before:] == [*"abcd"]


def test_a_summary_that_fails_stays_the_same_message(mail: Post) -> None:
    mail.answers = lambda channel, event: NO if event.key.startswith("and:") else YES
    mail.put(*(f"k{number:02}" for number in range(8)))
    sender = Sender(mail.box, mail.clock, mail.deliver)
    for _ in range(BURST):
        sender.round()
    (waiting,) = mail.box.items()
    assert waiting.event.title == "and 4 more"
    mail.put("late")
    mail.answers = lambda channel, event: YES
    mail.run()
    assert mail.keys[-3:] == [waiting.event.key, waiting.event.key, "late"]
    assert mail.box.items() == []


def killed(mail: Post, times: int) -> None:
    """Senders that died while a request was open."""

    def die(channel: NotifyModel, event: Event) -> Answer:
        mail.deliver(channel, event)
        raise KeyboardInterrupt

    for _ in range(times):
        with pytest.raises(KeyboardInterrupt):
            Sender(mail.box, mail.clock, die).run()


def test_a_sender_that_was_killed_in_the_middle_is_followed_by_one_repeat(mail: Post) -> None:
    mail.put("a", "b")
    killed(mail, 1)
    assert [one.begun for one in mail.box.items()] == [1, 0]
    mail.run()
    assert mail.keys == ["a", "a", "b"]


def test_and_after_the_second_it_is_given_up(mail: Post) -> None:
    mail.put("a")
    killed(mail, 2)
    mail.run()
    assert mail.keys == ["a", "a"]
    assert "its sender was killed twice in the middle of it" in mail.box.logged.read_text()
    assert mail.box.items() == []


def test_what_is_done_but_still_queued_is_not_sent(mail: Post) -> None:
    """A sender that died between the two writes after an answer."""
    mail.put("a")
    (item,) = mail.box.items()
    mail.box.finish(item)
    mail.box.write(item)
    mail.run()
    assert mail.keys == []
    assert mail.box.items() == []


def test_a_summary_whose_sender_was_killed_is_the_same_again(mail: Post) -> None:
    mail.put(*(f"k{number:02}" for number in range(8)))
    sender = Sender(mail.box, mail.clock, mail.deliver)
    for _ in range(BURST - 1):
        sender.round()
    killed(mail, 1)
    mail.run()
    assert mail.keys[-1] == mail.keys[-2]
    assert mail.sent[-1][2].title == "and 4 more"
    assert mail.box.items() == []


def test_without_its_variable_it_waits_for_a_sender_that_has_it(
    mail: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = channel(webhook={"env": "HOOK_URL"})
    mail.put("a", to=where)
    mail.put("b", to=TWO)
    real = channels.deliver
    mail.answers = lambda channel, event: real(channel, event) if channel == where else YES
    left = mail.run()
    assert mail.keys.count("a") == 1
    assert left == {one.name for one in mail.box.items()}
    assert "HOOK_URL is not set" in str(mail.box.state(where).answer)
    mail.answers = lambda channel, event: YES
    mail.run()
    assert mail.box.items() == []


def test_an_answer_that_comes_late_is_still_an_answer(mail: Post) -> None:
    def slow(channel: NotifyModel, event: Event) -> Answer:
        mail.clock.time += 3600.0
        return YES

    mail.answers = slow
    mail.put("a", "b")
    mail.run()
    assert mail.keys == ["a", "b"]
    assert replace(mail.sent[0][2], key="b", title="title of b") == mail.sent[1][2]
