"""Where the reader is: a page against a plain list of rows."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from console.common.logs.buffer import LogBuffer, pattern
from console.common.logs.line import LogLine
from console.common.logs.viewport import Place

MOST = 30


class Reading(RuleBasedStateMachine):
    """Lines come, are dropped and filtered while somebody moves about."""

    @initialize(height=st.integers(min_value=1, max_value=8), tall=st.booleans())
    def open(self, height: int, tall: bool) -> None:
        self.buffer = LogBuffer(max_lines=MOST)
        self.place = Place(self.buffer)
        self.place.height = height
        self.place.rows = (lambda line: 1 + len(line.text) % 3) if tall else (lambda line: 1)
        self.place.turn()

    def rows(self) -> list[tuple[int, int]]:
        numbers = [self.buffer.number(at) for at in range(self.buffer.visible)]
        return [(n, p) for n in numbers for p in range(self.place.rows(self.buffer.line(n)))]

    def page(self) -> list[tuple[int, int]]:
        return [(row.number, row.part) for row in self.place.page]

    @rule(texts=st.lists(st.sampled_from(["", "a", "bb", "abc"]), min_size=1, max_size=40))
    def come(self, texts: list[str]) -> None:
        before, follow = self.page(), self.place.follow
        full = len(before) == self.place.height
        self.buffer.append([LogLine(text) for text in texts])
        self.buffer.work(9.0)
        self.place.turn()
        if not follow and full:
            assert self.page() == before

    @rule(by=st.integers(min_value=-20, max_value=20))
    def move(self, by: int) -> None:
        before, gone = self.page(), self.place.gone
        self.place.move(by)
        self.place.turn()
        rows = self.rows()
        if gone or not before:
            return
        at = rows.index(before[0])
        last = max(0, len(rows) - self.place.height)
        there = min(max(0, at + by), max(last, at) if by <= 0 else last)
        assert self.page() == rows[there : there + self.place.height]

    @rule()
    def top(self) -> None:
        self.place.to_top()
        self.place.turn()
        assert self.page() == self.rows()[: self.place.height]

    @rule()
    def end(self) -> None:
        self.place.to_end()
        self.place.turn()

    @rule(words=st.sampled_from(["", "a", "!a"]))
    def filter(self, words: str) -> None:
        before = self.page()
        self.buffer.show(pattern(words, may_invert=True))
        self.buffer.work(9.0)
        self.place.anew()
        self.place.turn()
        rows = self.rows()
        assert bool(self.page()) is bool(rows)
        if not self.place.follow and rows:
            # where nothing was shown before, no row of the page tells where the reader was
            top = before[0] if before else self.page()[0]
            at = next((i for i, row in enumerate(rows) if row >= top), len(rows))
            at = min(at, max(0, len(rows) - self.place.height))
            assert self.page() == rows[at : at + self.place.height]

    @rule(data=st.data())
    def bring(self, data: st.DataObject) -> None:
        if self.buffer.visible:
            at = data.draw(st.integers(min_value=0, max_value=self.buffer.visible - 1))
            number = self.buffer.number(at)
            self.place.bring(number)
            self.place.turn()
            assert (number, 0) in self.page()

    @invariant()
    def the_end_is_shown_when_following(self) -> None:
        if self.place.follow:
            assert self.page() == self.rows()[-self.place.height :]
            assert self.place.new == 0

    @invariant()
    def new_lines_are_counted(self) -> None:
        assert 0 <= self.place.new <= self.buffer.end


def test_a_filter_that_hides_the_top_line_shows_the_next_one_from_its_first_row() -> None:
    reading = Reading()
    reading.open(height=3, tall=True)
    reading.come(["bb", "a"])  # three rows and two: the page begins in the middle of the first
    reading.place.bring(1)
    reading.filter("a")
    assert reading.page() == [(1, 0), (1, 1)]


def test_a_filter_that_hides_every_line_loses_no_place() -> None:
    reading = Reading()
    reading.open(height=1, tall=False)
    reading.come(["a", "a", "a"])
    reading.move(-1)
    reading.filter("!a")
    assert reading.page() == []
    reading.filter("")
    assert reading.page() == [(1, 0)]


Reading.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestReading = Reading.TestCase
