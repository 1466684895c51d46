"""Frames: one bounded JSON object a line; what is not one is refused, and the next one is heard."""

import os
import resource
from collections.abc import Iterator

import pytest

from console.common.errors import ConsoleError, Exit, UsageError
from console.fleet import protocol
from console.fleet.protocol import BridgeError, Lines, failure, line, parsed, refusal

Pipe = tuple[int, int]
MANY = 1500
"""A descriptor that `select` refuses."""


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            pass


def test_lines_come_whole_however_they_arrive(pipe: Pipe) -> None:
    lines = Lines(pipe[0])
    os.write(pipe[1], b'{"a":1}\n{"b"')
    assert lines.next(1.0) == b'{"a":1}'
    with pytest.raises(TimeoutError):
        lines.next(0.0)
    os.write(pipe[1], b":2}\n")
    assert lines.next(1.0) == b'{"b":2}'
    os.write(pipe[1], b"torn")
    os.close(pipe[1])
    assert lines.next(1.0) is None, "what has no end is no line"


def test_a_line_that_is_too_long_is_refused_once_and_the_next_is_heard(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "MAX_FRAME", 100)
    lines = Lines(pipe[0])
    os.write(pipe[1], b"x" * 150)
    with pytest.raises(BridgeError) as refused:
        lines.next(1.0)
    assert refused.value.code == "too_large"
    os.write(pipe[1], b"x" * 150 + b"\n" + b"next\n")
    assert lines.next(1.0) == b"next"


def test_a_line_is_heard_by_a_process_that_has_many_files_open(pipe: Pipe) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard <= MANY:
        pytest.skip("no process here may have so many files open")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, MANY + 1), hard))
    os.dup2(pipe[0], MANY)
    try:
        os.write(pipe[1], b"one\n")
        assert Lines(MANY).next(5.0) == b"one"
    finally:
        os.close(MANY)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_frame_that_is_too_large_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "MAX_FRAME", 100)
    assert line({"a": 1}) == b'{"a":1}\n'
    with pytest.raises(BridgeError, match="too large"):
        line({"a": "x" * 100})


@pytest.mark.parametrize("data", [b"", b"[]", b"7", b"{", b"\xff", b"[" * 5000])
def test_what_is_no_object_is_no_frame(data: bytes) -> None:
    with pytest.raises(BridgeError) as refused:
        parsed(data)
    assert refused.value.code == "bad_frame"


@pytest.mark.parametrize(
    ("error", "code", "exit_code"),
    [
        (BridgeError("moved_on", "a", "b", "c"), "moved_on", Exit.FAILED),
        (UsageError("a", "b", "c"), "failed", Exit.USAGE),
        (ValueError("what"), "failed", Exit.INTERNAL),
    ],
)
def test_an_error_travels_with_code_and_exit_code(
    error: Exception, code: str, exit_code: Exit
) -> None:
    there = refusal(failure(error))
    assert (there.code, there.exit_code) == (code, exit_code)
    if isinstance(error, ConsoleError):
        assert (there.title, there.detail, there.hint) == ("a", "b", "c")


@pytest.mark.parametrize(
    "told",
    [None, [], {"exit": "x", "title": "\x1b[2Jgone"}, {"exit": 99}, {"exit": 0}, {"exit": False}],
)
def test_a_foreign_error_is_clean_whatever_it_is(told: object) -> None:
    there = refusal(told)
    assert there.exit_code is Exit.FAILED
    assert "\x1b" not in "".join(there.lines())


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_a_number_that_no_json_has_is_unknown(word: str) -> None:
    assert parsed(f'{{"tok_s": {word}, "ram": [{word}, 1.5]}}'.encode()) == {
        "tok_s": None, "ram": [None, 1.5],
    }  # fmt: skip
