"""A file that grows, ends without a newline, is cut, replaced or outruns its reader."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.common.logs.line import LogLine
from console.common.logs.tail import BATCH, BEHIND_LIMIT, BLOCK, END_LIMIT, Tail, keep_end
from console.runtime.service_logs import CappedFile
from tests.waiting import until

POLL_S = 0.01
HOSTILE = (
    b"\x1b]52;c;ZXZpbA==\x07copied\n\x1b[2J\x1b[31mred\x1bPq#0\x1b\\\n\xc2\x9b31mc1\n"
    + "bidi\u202e\u2066\n".encode()
    + b"nul\x00\n\xff\xfe\x80bad\n[/] [red]markup[/red] [@click=app.quit]\n"
)


class Reader:
    """A log, and what tails of it deliver; refuses while `full`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tails: list[Tail] = []
        self.lines: list[LogLine] = []
        self.sizes: list[int] = []
        self.full = False
        self.refused = 0

    def __call__(self, batch: list[LogLine]) -> bool:
        if self.full:
            self.refused += 1
            return False
        self.sizes.append(len(batch))
        for line in batch:
            if self.lines and self.lines[-1].open:
                self.lines.pop()
            self.lines.append(line)
        return True

    def follow(self, lines: int = 10_000) -> Tail:
        self.tails.append(Tail(self.path, self, lines=lines, poll_s=POLL_S).start())
        return self.tails[-1]

    def add(self, data: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(data)

    @property
    def texts(self) -> list[str]:
        return [line.text for line in self.lines]

    @property
    def plain(self) -> list[str]:
        return [line.text for line in self.lines if line.kind != "marker"]

    @property
    def markers(self) -> list[str]:
        return [line.text for line in self.lines if line.kind == "marker"]


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reader]:
    monkeypatch.setattr("console.common.logs.line.HOLD_S", 0.1)
    one = Reader(tmp_path / "x.log")
    yield one
    assert [tail.close(30) for tail in one.tails].count(False) == 0


def looks(tail: Tail, more: int) -> None:
    """Wait until it has looked at its file so often again."""
    done, count = tail._round, 0

    def counted() -> bool:
        nonlocal count
        count += 1
        return done()

    tail._round = counted  # type: ignore[method-assign]
    until(lambda: count > more, f"{more} looks")
    tail._round = done  # type: ignore[method-assign]


def test_a_missing_file_is_waited_for(reader: Reader) -> None:
    looks(reader.follow(), 3)
    reader.add(b"late\n")
    until(lambda: reader.texts == ["late"])


def test_only_the_last_lines_of_a_long_file(reader: Reader) -> None:
    reader.add(b"".join(b"line %d\n" % i for i in range(20_000)))
    reader.follow(lines=5000)
    until(lambda: len(reader.plain) == 5000)
    assert reader.plain[0] == "line 15000"
    assert reader.plain[-1] == "line 19999"
    assert "of older log are in the file" in reader.markers[0]
    assert max(reader.sizes) <= BATCH


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_the_last_lines_exactly(reader: Reader, end: bytes) -> None:
    reader.add(b"a\nb\nc" + end)
    for lines in (1, 2, 3):
        reader.lines.clear()
        reader.follow(lines=lines)
        until(lambda n=lines: reader.plain == ["a", "b", "c"][-n:])  # type: ignore[misc]


def test_two_gigabytes_are_opened_at_their_end(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader.add(b"")
    os.truncate(reader.path, 2 * 1024**3)
    reader.add(b"\nlast but one\nlast\n")
    read, pread = [], os.pread

    def counted(descriptor: int, size: int, at: int) -> bytes:
        read.append(size)
        return pread(descriptor, size, at)

    monkeypatch.setattr("console.common.logs.tail.os.pread", counted)
    reader.follow(lines=2)
    until(lambda: reader.plain == ["last but one", "last"])
    assert sum(read) <= 4 * BLOCK
    reader.add(b"new\n")
    until(lambda: reader.plain[-1] == "new")
    reader.follow()  # more lines than there are: only the end is looked at
    until(lambda: len(reader.plain) >= 6)
    assert len(reader.plain) < 20
    assert sum(read) <= 3 * END_LIMIT


def test_a_line_without_its_end_is_shown_after_a_while_and_replaced_by_what_comes(
    reader: Reader,
) -> None:
    reader.add(b"done\nmodel? ")
    reader.follow()
    until(lambda: reader.texts == ["done", "model? "])
    reader.add(b"llama\n")
    until(lambda: reader.texts == ["done", "model? llama"])


def test_a_capped_file_is_read_on_without_a_gap_or_a_repetition(reader: Reader) -> None:
    file = CappedFile(reader.path, cap_bytes=20_000)
    reader.follow()
    for number in range(3000):
        file.line(b"line %06d" % number)
        if number % 50 == 0:
            until(lambda n=number: f"line {n:06d}" in reader.texts[-50:])  # type: ignore[misc]
    file.close()
    until(lambda: reader.plain[-1] == "line 002999")
    assert reader.plain == [f"line {number:06d}" for number in range(3000)]


def test_a_log_cut_in_place_is_read_on(reader: Reader) -> None:
    wanted = [f"line {number:06d}" for number in range(2000)]
    reader.add("".join(f"{line}\n" for line in wanted).encode())
    reader.follow()
    until(lambda: reader.plain == wanted)
    assert keep_end(reader.path, 10_000)
    reader.add(b"after\n")
    until(lambda: reader.plain == [*wanted, "after"])


def test_a_truncated_file_is_read_from_its_start(reader: Reader) -> None:
    reader.add(b"old one\nold two\n")
    reader.follow()
    until(lambda: len(reader.texts) == 2)
    os.truncate(reader.path, 0)
    until(lambda: reader.markers == ["--- the log file was cut ---"])
    reader.add(b"new\n")
    until(lambda: reader.texts[-2:] == ["--- the log file was cut ---", "new"])


def test_a_file_cut_and_longer_again_is_noticed(reader: Reader) -> None:
    reader.add(b"old one\n")
    reader.follow()
    until(lambda: reader.texts == ["old one"])
    with reader.path.open("r+b") as file:  # in one step as far as any look at it can tell
        file.write(b"another beginning\nand more\n")
    until(lambda: reader.plain == ["old one", "another beginning", "and more"])
    assert len(reader.markers) == 1


def test_a_replaced_file_is_read_from_its_start_and_the_old_one_to_its_end(reader: Reader) -> None:
    reader.add(b"old\n")
    reader.follow()
    until(lambda: reader.texts == ["old"])
    with reader.path.open("ab") as old:
        fresh = reader.path.with_name("fresh")
        fresh.write_bytes(b"new\n")
        old.write(b"last words\n")
        old.flush()
        os.replace(fresh, reader.path)
    until(lambda: reader.plain == ["old", "last words", "new"])
    assert reader.texts[-2] == "--- the log file was replaced by a new one ---"


def test_a_removed_file_ends_nothing(reader: Reader) -> None:
    reader.add(b"old\n")
    tail = reader.follow()
    until(lambda: reader.texts == ["old"])
    reader.path.unlink()
    looks(tail, 3)
    reader.add(b"new\n")
    until(lambda: reader.plain == ["old", "new"])


@pytest.mark.parametrize("kind", ["folder", "pipe", "forbidden"])
def test_what_cannot_be_read_is_said_once(reader: Reader, kind: str) -> None:
    if kind == "folder":
        reader.path.mkdir()
    elif kind == "pipe":
        os.mkfifo(reader.path)
    else:
        reader.path.symlink_to(reader.path)  # a loop: even root cannot open it
    tail = reader.follow()
    until(lambda: reader.markers)
    looks(tail, 3)
    assert len(reader.texts) == 1
    assert "cannot be read" in reader.texts[0]
    assert tail.close(30)


def test_a_file_that_runs_away_is_skipped_and_the_bytes_are_counted(reader: Reader) -> None:
    reader.add(b"first\n")
    reader.follow()
    until(lambda: reader.texts == ["first"])
    reader.full = True
    reader.add(b"held\n")
    until(lambda: reader.refused)
    line = b"x" * 99 + b"\n"
    reader.add(line * (2 * BEHIND_LIMIT // 100) + b"last\n")
    reader.full = False
    until(lambda: reader.plain[-1] == "last")
    assert reader.plain[:2] == ["first", "held"]
    (words,) = reader.markers
    skipped = int(words.removeprefix("--- ").partition(" ")[0].replace(",", ""))
    shown = sum(len(text) + 1 for text in reader.plain)
    assert skipped + shown == reader.path.stat().st_size
    assert skipped > BEHIND_LIMIT


def test_closing_does_not_wait_for_a_reader_that_is_behind(reader: Reader) -> None:
    reader.full = True
    reader.add(b"one\n")
    tail = Tail(reader.path, reader, poll_s=60).start()
    until(lambda: reader.refused)
    assert tail.close(30)
    assert Tail(reader.path, reader).close(), "one that never started"
    assert "tail of x.log" not in {thread.name for thread in threading.enumerate()}
