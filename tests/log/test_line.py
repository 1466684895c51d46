"""What a line of a log is taken for."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.common.logs.buffer import at_most
from console.common.logs.line import LogLine, kind_of, log_line, marker
from tests.ground.harmful import harmful

ERRORS = [
    "cat: cannot read /nvme/x: No such file or directory",
    "ERROR 11-05 12:00:00 [engine.py:12] boom",
    "(EngineCore pid=1) ERROR 11-05 12:00:00 worker died",
    "RuntimeError: CUDA error: device-side assert triggered",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
    "Traceback (most recent call last):",
    "[2026-05-05 TP0] Scheduler hit an exception: Traceback (most recent call last):",
    "10 errors found",
    "error: failed to load model",
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
    "INFO: worker said RuntimeError: boom",
]
WARNINGS = [
    "WARNING 11-05 12:00 [x.py:1] deprecated",
    "W0512 12:00:00.1 1 x.cc:1] slow",
    "warning: n_ctx is small",
    "W srv  update_slots: shift",
    "NCCL WARN net plugin",
    "level=warn msg=x",
    "WARNING: retry after error",
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
        ("2026-05-05T22:34:56Z hello", "hello", "04:04:56.000"),
        ("2026-05-05T12:34:56.5Z ", "", "18:04:56.500"),
        ("2026-05-05T12:34:56+02:00 hello", "hello", "2026-05-05T12:34:56+02:00"),
        ("2026-99-99T12:34:56Z x", "x", "12:34:56.000"),
        ("2026-05-05T12:34:56 no zone", "2026-05-05T12:34:56 no zone", ""),
        ("2026-05-05T12:34:56.1Zx", "2026-05-05T12:34:56.1Zx", ""),
        ("no stamp", "no stamp", ""),
    ],
)
def test_stamps(raw: str, text: str, stamp: str) -> None:
    assert log_line(raw) == LogLine(text, stamp)


def test_a_level_is_found_behind_the_stamp() -> None:
    line = log_line("2026-05-05T12:34:56.123456789Z E0512 12:00:00 bad")
    assert (line.kind, line.text) == ("error", "E0512 12:00:00 bad")


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
