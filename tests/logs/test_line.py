"""What a line of a log is taken for, and bytes cut into lines."""

import time
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from console.common.logs.buffer import at_most
from console.common.logs.line import HOLD_S, KEPT, LogLine, Splitter, kind_of, log_line, marker
from console.common.text import LINE_LIMIT
from tests.common.harmful import harmful

ERRORS = [
    "cat: cannot read /nvme/x: No such file or directory",
    "ERROR 11-05 12:00:00 [engine.py:12] boom",
    "(EngineCore pid=1) ERROR 11-05 12:00:00 worker died",
    "RuntimeError: CUDA error: device-side assert triggered",
    "Traceback (most recent call last):",
    "10 errors found",
    "llama_model_load: error loading model: unknown architecture",
    "E srv    load_model: failed",
    "0.00.035.060 E srv  operator(): no slot",
    "E0512 12:00:00.123456 1 server.cc:22] cannot bind",
    "thread 'main' panicked at src/main.rs:4",
    "panic: runtime error: index out of range",
    "terminate called after throwing an instance of 'std::runtime_error'",
    "Segmentation fault (core dumped)",
    "GGML_ASSERT(n_tokens <= n_batch) failed",
    'time="2026" level=error msg="x"',
    "Out of memory: Killed process 12 (python)",
    "CRITICAL: disk",
    "FATAL: the database system is starting up",
    "vllm.SomeException",
]
WARNINGS = [
    "WARNING 11-05 12:00 [x.py:1] deprecated",
    "W0512 12:00:00.1 1 x.cc:1] slow",
    "warning: n_ctx is small",
    "W srv  update_slots: shift",
    "NCCL WARN net plugin",
    "level=warn msg=x",
    "WARNING: retry after error",
    "[2025-03-07 21:49:33 TP13] Decode out of memory happened. #retracted_reqs: 1",
    "WARNING 10-10 10:00:00 [x.py:1] this may lead to a CUDA error",
]
PLAIN = [
    "",
    "0 errors",
    "errors: 0, warnings: 0",
    "error_rate=0",
    "error: none",
    "error=0.0",
    "no warnings",
    "finished without errors",
    'INFO: "GET /v1/error HTTP/1.1" 200 OK',
    "INFO 11-05 registered the error handler",
    'level=info msg="no error"',
    "an error-free run",
    "ggml_cuda_error handler set",
    "failed: 0",
    "E = mc2",
    "terror in the mirrors",
    "ERROR=0",
    "0 ERROR lines so far",
    "INFO: worker said RuntimeError: boom",
    "INFO 03-04 16:58:02 model_runner.py:692] If you are running out of memory, consider less",
    "Reduce max_num_seqs if it runs out of memory",
]


@pytest.mark.parametrize(
    ("kind", "texts"), [("error", ERRORS), ("warning", WARNINGS), ("plain", PLAIN)]
)
def test_what_a_line_is_taken_for(kind: str, texts: list[str]) -> None:
    assert [text for text in texts if kind_of(text) != kind] == []


@pytest.fixture
def half_an_hour_off(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A zone that is half an hour off, so that minutes are seen to be converted too."""
    from console.common.logs import line

    monkeypatch.setenv("TZ", "IST-05:30")
    time.tzset()
    line._local.cache_clear()
    yield
    monkeypatch.undo()
    time.tzset()
    line._local.cache_clear()


@pytest.mark.usefixtures("half_an_hour_off")
@pytest.mark.parametrize(
    ("raw", "text", "stamp"),
    [
        ("2026-05-05T12:34:56.123456789Z hello", "hello", "18:04:56.123"),
        ("2026-05-05T22:34:56Z E0512 1", "E0512 1", "04:04:56.000"),
        ("2026-05-05T12:34:56.5Z ", "", "18:04:56.500"),
        ("2026-05-05T12:34:56+02:00 hello", "hello", "2026-05-05T12:34:56+02:00"),
        ("2026-99-99T12:34:56Z x", "x", "12:34:56.000"),
        ("2026-05-05T12:34:56 no zone", "2026-05-05T12:34:56 no zone", ""),
        ("2026-05-05T12:34:56.1Zx", "2026-05-05T12:34:56.1Zx", ""),
        ("no stamp", "no stamp", ""),
    ],
)
def test_stamps(raw: str, text: str, stamp: str) -> None:
    assert log_line(raw) == LogLine(text, stamp, "error" if text == "E0512 1" else "plain")


def test_markers() -> None:
    assert log_line("--- 3 lines could not be written before this one ---").kind == "marker"
    assert marker("x\x1b[2Jy").text == "--- xy ---"
    # what a container says is behind a stamp: it cannot speak for the console
    assert log_line("2026-05-05T12:34:56.1Z --- 9 lines dropped ---").kind == "plain"
    assert log_line("--- a/file.py").kind == "plain"


@given(st.text(max_size=300))
def test_any_text_is_a_harmless_line(raw: str) -> None:
    line = log_line(raw)
    assert harmful(line.text + line.stamp) == []


@pytest.mark.parametrize("word", ["error ", "Error", "E ", "0 error ", "warn=", "(error:", "no "])
def test_no_line_is_slow_to_judge(word: str) -> None:
    with at_most(30.0):  # what takes a power of the line's length would take hours
        log_line(word * (4096 // len(word)))


# -- bytes into lines: any cut of the stream gives the same lines ----------------------------------

STAMP = b"2026-05-05T12:34:56.123456789Z "


def texts(*chunks: bytes) -> list[str]:
    splitter = Splitter()
    found = [line for chunk in chunks for line in splitter.feed(chunk, 0.0)]
    return [line.text for line in found + splitter.cut()]


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"a\r\nb\r\n", ["a", "b"]), (b"\n\na", ["", "", "a"]), (b"10%\r50%\r100%\n", ["100%"]),
        (b"\r10%\r\r50%\nx\n", ["50%", "x"]), (b"10%\r50%\r\n", ["50%"]),
        (b"10%\r\x1b[K50%\n", ["50%"]), (b"\xff\xfebad\ngood\n", ["\ufffd\ufffdbad", "good"]),
        (b"cut \xe6\xbc\nnext\n", ["cut \ufffd", "next"]), (STAMP + b"1\r2\r3\n", ["3"]), (b"", []),
    ],
)  # fmt: skip
def test_lines(data: bytes, lines: list[str]) -> None:
    assert texts(data) == lines
    assert texts(*(data[i : i + 1] for i in range(len(data)))) == lines


pieces = st.sampled_from(
    [b"a", b"\n", b"\r", b"\r\n", b" ", "é漢".encode(), b"\xff", STAMP, b"\n" + STAMP, b"\x1b[31m"]
)


@example(parts=[b"\r", STAMP, b"\r", STAMP], cuts=[2])
@example(parts=[b"a", b"\n", b"\r", STAMP], cuts=[3])
@given(st.lists(pieces, max_size=40), st.lists(st.integers(min_value=0, max_value=400)))
def test_where_the_stream_is_cut_makes_no_difference(parts: list[bytes], cuts: list[int]) -> None:
    data = b"".join(parts)
    at = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    chunks = [data[a:b] for a, b in pairwise(at)]
    assert texts(*chunks) == texts(data)


@given(st.binary(max_size=500))
def test_any_bytes_become_harmless_lines(data: bytes) -> None:
    assert [c for text in texts(data) for c in harmful(text)] == []


def test_a_stamp_survives_a_progress_bar() -> None:
    splitter = Splitter()
    assert splitter.feed(STAMP[:10], 0.0) == []
    assert splitter.feed(STAMP[10:] + b"10%\r20%\r", 0.0) == []
    (line,) = splitter.feed(b"30%\n", 0.0)
    assert (line.text, line.stamp[5:]) == ("30%", ":56.123")
    (line,) = splitter.feed(STAMP + b"1%\r2%\n", 0.0)
    assert (line.text, line.stamp[5:]) == ("2%", ":56.123")


def test_an_endless_progress_bar_keeps_moving() -> None:
    splitter = Splitter()
    for step in range(20_000):
        assert splitter.feed(f"{step:6} of many\r".encode(), 0.0) == []
    (line,) = splitter.overdue(HOLD_S)
    assert (line.text, line.open) == (" 19999 of many", True)


def test_a_line_without_its_end_is_held_back_then_shown_then_replaced() -> None:
    splitter = Splitter()
    assert splitter.feed(b"prompt> ", 10.0) == []
    assert splitter.overdue(10.0 + HOLD_S / 2) == []
    (line,) = splitter.overdue(10.0 + HOLD_S)
    assert (line.text, line.open) == ("prompt> ", True)
    assert splitter.overdue(10.0 + 5 * HOLD_S) == []
    splitter.feed(b"yes", 16.0)
    (line,) = splitter.overdue(16.0 + 2 * HOLD_S)
    assert (line.text, line.open) == ("prompt> yes", True)
    (line,) = splitter.feed(b"!\n", 19.0)
    assert (line.text, line.open) == ("prompt> yes!", False)
    assert splitter.overdue(99.0) == []


def test_of_a_line_of_many_megabytes_little_is_kept_and_it_is_cut() -> None:
    splitter = Splitter()
    chunk = b"x" * 65536
    for _ in range(400):
        assert splitter.feed(chunk, 0.0) == []
    assert len(splitter._held) <= KEPT
    found = [line.text for line in splitter.feed(b"\nnext\n", 0.0)]
    assert ([len(text) for text in found], found[1]) == ([LINE_LIMIT, 4], "next")
    assert texts(chunk * 16 + b"\nnext\n") == found, "in one piece it is cut the same way"
