"""What somebody before a terminal is told while no token comes; on a clock of the test's."""

from console.bench.benchmark import Benchmark, Protocol
from console.bench.client import Waiting
from tests.bench.scripted import reply, scripted, streams

TEXT = '{"choices": [{"delta": {"content": "x"}}]}'
ROLE = '{"choices": [{"delta": {"role": "assistant"}}]}'


class Told:
    """Silences that were said, looked for once a second."""

    def __init__(self) -> None:
        self.now = 100.0
        self.said: list[float] = []
        self.waiting = Waiting(self.said.append, lambda: self.now)
        self.waiting.begin()

    def go(self, seconds: int, *events: str) -> list[float]:
        for _ in range(seconds):
            self.now += 1
            for event in events:
                self.waiting.take(event)
            self.waiting.look()
        found, self.said[:] = list(self.said), []
        return found


def test_a_silence_is_said_after_5_s_and_each_10_s() -> None:
    told = Told()
    assert told.go(4) == []
    assert told.go(32) == [5, 15, 25, 35]


def test_tokens_end_it_and_roles_do_not() -> None:
    told = Told()
    assert told.go(6, ROLE) == [5]
    assert told.go(30, ROLE, TEXT, ROLE) == []
    assert told.go(6, ROLE) == [5], "it begins anew at the last token"


def test_more_events_than_it_looks_at_are_no_silence() -> None:
    told = Told()
    assert told.go(20, *[TEXT] * 500) == []


def test_the_next_request_begins_anew() -> None:
    told = Told()
    told.go(4)
    told.waiting.begin()
    assert told.go(4) == []


def test_a_benchmark_lets_it_hear_every_event_of_its_requests() -> None:
    class Heard(Waiting):
        def take(self, data: str) -> None:
            heard.append(data)

    heard: list[str] = []
    with scripted(streams(reply(8))) as server:
        waiting = Heard(lambda silent: None)
        Benchmark(server.url, Protocol(max_tokens=8, runs=2, max_runs=2), waiting=waiting).run()
    assert heard.count("[DONE]") == 3, "the warm-up too"
