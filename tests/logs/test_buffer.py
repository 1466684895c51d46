"""A bounded log whose line numbers hold still; filtered and searched in slices of time."""

import gc
import sys
import time
from sys import getsizeof

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.common.logs.buffer import MATCHED, LogBuffer, Pattern, TooSlow, at_most, pattern
from console.common.logs.line import LogLine, log_line
from tests.waiting import some


def lines(*texts: str) -> list[LogLine]:
    return [log_line(text) for text in texts]


def visible(buffer: LogBuffer) -> list[str]:
    return [buffer.line(buffer.number(at)).text for at in range(buffer.visible)]


def finish(buffer: LogBuffer, slice_s: float = 1.0) -> None:
    while buffer.work(slice_s):
        pass


def wanted(words: str) -> Pattern:
    return some(pattern(words, may_invert=True))


def test_numbers_hold_still_while_old_lines_are_dropped() -> None:
    buffer = LogBuffer(max_lines=3)
    buffer.append(lines("a", "b", "c", "d", "e"))
    assert (buffer.first, buffer.end, buffer.dropped, len(buffer)) == (2, 5, 2, 3)
    assert buffer.line(4).text == "e"
    assert [buffer.index(number) for number in (0, 2, 4, 9)] == [0, 0, 2, 3]
    with pytest.raises(IndexError):
        buffer.line(1)
    buffer.clear()
    assert (buffer.end, buffer.visible, buffer.held_bytes) == (0, 0, 0)


@given(st.lists(st.integers(min_value=0, max_value=4000), max_size=60))
def test_memory_is_what_the_lines_really_take(sizes: list[int]) -> None:
    buffer = LogBuffer(max_lines=20, max_bytes=20_000)
    buffer.append([LogLine("漢" * size if size % 2 else "x" * size) for size in sizes])
    held = sum(getsizeof(buffer.line(n).text) for n in range(buffer.first, buffer.end))
    assert buffer.held_bytes == held
    assert held <= 20_000
    assert len(buffer) <= 20
    assert buffer.dropped + len(buffer) == len(sizes)
    buffer.append([LogLine("x" * 30_000)])
    assert len(buffer) == 1, "larger than the bound alone"


def test_an_open_line_is_replaced_where_it_stands() -> None:
    buffer = LogBuffer()
    buffer.show(wanted("o"))
    buffer.search(wanted("o"))
    buffer.append([LogLine("error: go", kind="error", open=True)])
    finish(buffer)
    assert (visible(buffer), buffer.error(-1, 1), buffer.match(-1, 1)) == (["error: go"], 0, 0)
    buffer.append([LogLine("fine")])
    finish(buffer)
    assert (visible(buffer), buffer.error(-1, 1), buffer.match(-1, 1)) == ([], None, None)
    assert (buffer.end, buffer.line(0).text) == (1, "fine")


words = st.sampled_from(["a", "b", "ab", "error a", "x", "", "error b"])


@given(
    st.lists(st.one_of(st.lists(words, max_size=6), st.sampled_from(["filter", "search", "work"]))),
    st.sampled_from(["a", "!a", "^a$", "b", "!x"]),
    st.sampled_from(["a", "b", "."]),
)
def test_filter_search_and_errors_are_those_of_a_plain_list(
    deeds: list[list[str] | str], filtered: str, sought: str
) -> None:
    buffer = LogBuffer(max_lines=7)
    everything: list[str] = []
    for deed in deeds:
        if deed == "filter":
            buffer.show(wanted(filtered))
        elif deed == "search":
            buffer.search(wanted(sought))
        elif deed == "work":
            buffer.work(0.0)
        else:
            buffer.append(lines(*deed))
            everything += deed
    finish(buffer)
    kept = list(enumerate(everything))[-7:]
    chosen = buffer.filter.pattern if buffer.filter else None
    shown = [(n, text) for n, text in kept if chosen is None or chosen.accepts(text)]
    assert visible(buffer) == [text for _, text in shown]
    errors = [n for n, text in shown if text.startswith("error")]
    found = buffer.searched.pattern if buffer.searched else None
    matches = [n for n, text in shown if found and found.accepts(text)]
    for at in range(-1, len(everything) + 1):
        for numbers, ask in ((errors, buffer.error), (matches, buffer.match)):
            after = [n for n in numbers if n > at] or numbers
            before = [n for n in numbers if n < at] or numbers
            assert ask(at, 1) == (after[0] if after else None)
            assert ask(at, -1) == (before[-1] if before else None)


def test_a_long_pass_is_cut_into_slices() -> None:
    buffer = LogBuffer()
    buffer.append(lines(*["x" * 500] * 10_000))
    buffer.show(wanted("x.*x.*y"))
    slices = 1
    while buffer.work(0.001):
        slices += 1
    assert slices > 5
    assert buffer.visible == 0


@pytest.mark.parametrize("words", ["(a+)+$", "(a|aa)+$", "(.*)*b$", "a*a*a*a*a*a*a*a*c"])
def test_a_pattern_that_never_ends_is_taken_as_text(
    words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("console.common.logs.buffer.SLOW_CPU_S", 0.02)
    buffer = LogBuffer()
    buffer.append(lines(*["a" * 1900 + "b!"] * 500, f"said {words} here"))
    buffer.show(wanted(words))
    finish(buffer, 0.02)
    assert some(buffer.filter).too_slow
    assert visible(buffer) == [f"said {words} here"]


@pytest.mark.parametrize(
    ("words", "text", "accepted"),
    [
("error", "ERROR", True), ("Error", "ERROR", False), (r"\Sx", "aX", True),
        ("a(b", "xa(b", True), ("a(b", "ab", False), ("[[a]", "[[a]", True), ("!a", "a", False),
        ("!a", "b", True), ("!a(", "xa(", False), ("x{99999999999999}", "x{99999999999999}", True),
        ("b", "a" * (MATCHED - 1) + "b", True), ("b", "a" * MATCHED + "b", False),
    ],
)  # fmt: skip
def test_patterns(words: str, text: str, accepted: bool) -> None:
    assert wanted(words).accepts(text) is accepted
    assert pattern("") is pattern("!", may_invert=True) is None
    assert pattern("!") is not None


@given(st.text(max_size=30), st.text(max_size=60))
def test_any_words_and_any_text_work(words: str, text: str) -> None:
    found = pattern(words, may_invert=True)
    if found is not None:
        found.accepts(text)
        assert all(0 <= a < b <= len(text) for a, b in found.spans(text))


def spin(cpu_s: float) -> None:
    end = time.process_time() + cpu_s
    while time.process_time() < end:
        pass


def test_the_guard_ends_what_does_not_end_and_leaves_nothing_behind() -> None:
    def burn(guard_s: float, cpu_s: float) -> None:
        with at_most(guard_s):
            spin(cpu_s)

    with pytest.raises(TooSlow):
        burn(0.05, 60.0)
    burn(30.0, 0.01)
    with at_most(0.05):
        pass
    spin(0.2)


def test_an_alarm_that_a_destructor_swallows_rings_again(monkeypatch: pytest.MonkeyPatch) -> None:
    lost: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lost.append)

    class Slow:
        def __del__(self) -> None:
            spin(60.0)

    def body() -> None:
        Slow()  # it is gone at once, and with it the first alarm
        spin(60.0)

    with pytest.raises(TooSlow), at_most(0.05):
        body()
    assert len(lost) == 1


def test_what_collects_garbage_waits_for_a_match() -> None:
    called: list[str] = []

    def callback(phase: str, _: dict[str, int]) -> None:
        called.append(phase)

    gc.callbacks.append(callback)
    try:
        with at_most(30.0):
            kept = [[number] for number in range(100_000)]
            meanwhile = list(called)
        assert (len(kept), meanwhile) == (100_000, [])
        assert gc.isenabled()
    finally:
        gc.callbacks.remove(callback)
