"""Fatal lines in logs: what is counted, what is skipped, and what is reported about it."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.recovery.guard.observe import log_patterns
from console.recovery.guard.observe.log_patterns import Logs, Tail

MIB = 1 << 20


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    path.write_text("FATAL before\n")
    return path


@pytest.fixture
def logs(log: Path) -> Iterator[Logs]:
    """Count one fatal pattern in the log of an armed service."""
    one = Logs()
    watch(one, log)
    yield one
    one.close()


def watch(logs: Logs, log: Path, *patterns: tuple[int, str, str]) -> None:
    logs.set({"big": str(log)}, list(patterns or [(0, "big", "FATAL")]))
    logs.arm({"big": 1})


def add(path: Path, text: str | bytes) -> None:
    with open(path, "ab") as file:
        file.write(text if isinstance(text, bytes) else text.encode())


def counts(logs: Logs) -> list[int]:
    logs.read()
    return [one.count for one in logs.limits]


def test_fatal_lines_count_from_the_arming(log: Path) -> None:
    logs = Logs()
    logs.set({"big": str(log), "other": str(log)}, [(4, "big", "FATAL")])
    assert list(logs.tails) == ["big"], "only logs that a limit is on"
    add(log, "FATAL unarmed\n")
    assert counts(logs) == [0]
    logs.arm({"big": 1})
    add(log, "fine\nFATAL one\nfatal two\nFATAL th")
    assert counts(logs) == [1]
    add(log, "ree\n")
    assert counts(logs) == [2]
    assert (logs.limits[0].limit, logs.limits[0].line) == (4, "FATAL three")
    for arming, count in ((1, 2), (2, 0)):
        logs.arm({"big": arming})
        assert counts(logs) == [count]
    logs.close()


def test_a_log_that_comes_later_is_read_from_its_start(
    logs: Logs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs.set({"big": str(tmp_path / "later")}, [(0, "big", "FATAL"), (1, "other", "FATAL")])
    logs.arm({"big": 1, "other": 1})
    assert counts(logs) == [0, 0]
    assert [bool(one["why"]) for one in logs.hits()] == [False, True], "it may come yet"
    monkeypatch.setattr(log_patterns, "LOST_S", 0.0)
    assert "No such file" in logs.hits()[0]["why"]
    add(tmp_path / "later", "FATAL\n")
    assert counts(logs) == [1, 0]
    assert (logs.tails["big"].why, logs.hits()[0]["why"]) == ("", "")


def test_a_log_that_is_replaced_or_cut(logs: Logs, log: Path) -> None:
    add(log, "FATAL last of the old\n")
    log.rename(log.with_name("old"))
    add(log, "FATAL first of the new\n")
    assert counts(logs) == [1]
    assert counts(logs) == [2]
    log.write_text("FATAL\n")
    assert counts(logs) == [3]


def test_a_read_that_fails_is_trouble_and_the_log_is_read_on_later(
    logs: Logs, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    add(log, "FATAL one\n")
    with monkeypatch.context() as broken:
        broken.setattr(log_patterns.os, "pread", fails)
        assert counts(logs) == [0]
    assert "Input/output error" in logs.tails["big"].why
    assert counts(logs) == [1]
    assert logs.tails["big"].why == ""


def test_what_the_cap_kept_is_not_counted_twice(logs: Logs, log: Path) -> None:
    add(log, "padding " * 50 + "\nFATAL one\nmore\n")
    assert counts(logs) == [1]
    log.write_text("--- 400 bytes of older log dropped ---\nFATAL one\nmore\n")
    # the rest of the old lines is shorter than what was remembered: counted again, reported once
    assert counts(logs) == [2]
    kept = "x" * 5000 + "\nFATAL two\n" + "y" * 5000 + "\n"
    add(log, kept)
    assert counts(logs) == [3]
    log.write_text("--- 900 bytes of older log dropped ---\n" + kept[100:] + "FATAL three\n")
    assert counts(logs) == [4]


def test_a_flood_and_a_line_without_an_end(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_patterns, "AT_ONCE", MIB)
    monkeypatch.setattr(log_patterns, "BEHIND", 3 * MIB)
    monkeypatch.setattr(log_patterns, "LONGEST", MIB)
    tail = Tail(str(log))
    add(log, b"x" * (4 * MIB))
    assert [list(tail.lines()) for _ in range(3)] == [[], [], []]
    assert tail.skipped == 3 * MIB, "one too far behind, two of too long a line"
    assert "3.0 MiB" in tail.trouble
    add(log, b"\nnext\n")
    first, second = tail.lines()
    assert (len(first), second) == (MIB, b"next")
    tail.close()


def test_what_is_far_back_has_no_end_or_ends_in_a_return_is_found(
    logs: Logs, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_patterns, "AT_ONCE", MIB)
    add(log, b"FATAL first\n" + (b"x" * 99 + b"\n") * 25_000)
    assert counts(logs) == [1]
    assert [counts(logs) for _ in range(3)] == [[1]] * 3
    add(log, b"loading 1 %\rloading 2 %\rFATAL two\r")
    assert counts(logs) == [2]
    add(log, b"y" * 9000 + b" FATAL three, a long line\n")
    assert counts(logs) == [3]
    assert "FATAL three" in logs.limits[0].line
    add(log, b"FATAL four, and its process died")
    assert [counts(logs) for _ in range(3)] == [[3], [4], [4]]
    add(log, b" of it\n")
    assert counts(logs) == [4]
    assert logs.hits()[0]["why"] == ""


def test_what_was_skipped_is_said_until_the_next_arming(
    logs: Logs, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_patterns, "BEHIND", MIB)
    add(log, (b"x" * 99 + b"\n") * 20_000)
    for _ in range(2):
        logs.read()
        assert logs.hits()[0]["why"]
    logs.arm({"big": 2})
    assert logs.hits()[0]["why"] == ""


def test_lines_are_clean(logs: Logs, log: Path) -> None:
    add(log, b"\x1b[31mFATAL\x1b[0m \xff\x00 \x1b]52;c;eA==\x07out\n")
    assert counts(logs) == [1]
    assert logs.limits[0].line.isprintable()


def test_a_machine_that_stalls_makes_no_pattern_slow(
    logs: Logs, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The alarm counted seconds of the clock once: a fatal line was passed over under pressure."""
    monkeypatch.setattr(log_patterns, "SEARCH_S", 0.02)
    real = logs.limits[0].pattern

    class Stalled:
        pattern = real.pattern

        def finditer(self, text: str) -> Iterator[re.Match[str]]:
            time.sleep(0.1)
            return real.finditer(text)

    monkeypatch.setattr(logs.limits[0], "pattern", Stalled())
    add(log, "ERROR app: FATAL\n" * 4)
    assert counts(logs) == [4]
    assert logs.limits[0].timeouts == 0


def test_a_catastrophic_pattern_is_given_up(
    logs: Logs, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_patterns, "SEARCH_S", 0.02)
    watch(logs, log, (0, "big", "(a+)+$"), (1, "big", "b"), (2, "big", "("))
    assert list(logs.bad) == [2]
    add(log, ("a" * 60 + "b\n") * 4)
    assert counts(logs) == [0, 4]
    assert logs.bad[0] == log_patterns.TOO_LONG
    add(log, "aaa\n")
    assert counts(logs) == [0, 4]
    told = {one["limit"]: (one["count"], one["why"]) for one in logs.hits()}
    assert (told[0], told[1]) == ((0, log_patterns.TOO_LONG), (4, ""))
    assert told[2][1]
    # another limit is added: a pattern that was given up is not tried again
    logs.set({"big": str(log)}, [(0, "big", "(a+)+$"), (1, "big", "c")])
    assert logs.hits()[0]["why"] == log_patterns.TOO_LONG


def test_lines_that_are_not_counted_for_their_level_are_counted_apart(
    log: Path, logs: Logs
) -> None:
    """Spared lines are named: who wonders why nothing was killed sees that they were read."""
    add(log, "2026-01-01 12:00:00 INFO app: FATAL is only a word here\n" * 3)
    assert counts(logs) == [0]
    assert logs.uncounted() == {"big": "3 matching lines were not counted: stated as information"}
    add(log, "ERROR app: FATAL\n")
    assert counts(logs) == [1]
    logs.arm({"big": 2})
    assert logs.uncounted() == {}
