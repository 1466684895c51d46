"""Log files: nothing lost in silence, nothing twice, capped, and read from the end."""

import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import docker
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from console.common.logs.tail import keep_end, read_last
from console.runtime.docker.client import connect
from console.runtime.docker.container import ContainerDriver, unix_host
from console.runtime.docker.log_stream import _Position
from console.runtime.service_logs import CappedFile, Tailer
from console.runtime.spec import ExistingContainer, Handle
from tests.licences import CANDIDATE
from tests.runtime.containers import Line, Place, fake_daemon, on_every_engine, only_real, unique
from tests.waiting import until

COUNT = "i=0; while [ $i -lt {n} ]; do echo line-$i; i=$((i+1)); done; {last}"
UNTIL_TOLD = (
    'trap over=1 TERM; i=0; while [ -z "$over" ]; do echo line-$i; i=$((i+1)); sleep 0.01; done'
)
STAMPED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z ")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "service.log"


@pytest.fixture
def line(client: docker.DockerClient) -> Iterator[tuple[Line, docker.DockerClient]]:
    """A line to the engine that can be cut, and a client at its end."""
    cuttable = Line(unix_host(client).removeprefix("unix://"))
    with fake_daemon(cuttable.answer) as host, closing(connect(host)) as through:
        yield cuttable, through
        cuttable.cut()


class Follow:
    """A file that follows containers."""

    def __init__(self, place: Place, path: Path) -> None:
        self.place, self.api, self.path = place, place.client.api, path

    def start(self, script: str) -> Handle:
        return self.place.shell(script).start(self.place.launch)

    def tail(
        self, handle: Handle, client: docker.DockerClient | None = None, **more: Any
    ) -> Tailer:
        tailer = Tailer(client or self.place.client, handle, self.path, **more)
        tailer.start()
        return tailer

    def whole(self, handle: Handle, **more: Any) -> None:
        """Follow it to its end."""
        self.over(self.tail(handle, **more))

    def over(self, tailer: Tailer) -> None:
        until(lambda: tailer.finished, "the tailer has ended")

    def written(self, handle: Handle) -> list[int]:
        """The numbers of all lines that the engine has of a container that has ended."""
        lines = self.api.logs(handle.container).decode().splitlines()
        return [int(line.rpartition("-")[2]) for line in lines]

    def ended(self, handle: Handle) -> None:
        until(lambda: not self.api.inspect_container(handle.container)["State"]["Running"])

    def adopted(self, script: str, policy: str) -> tuple[ContainerDriver, Handle]:
        """Somebody else's container, that its engine starts again."""
        name = unique("restarting")
        self.place.create("sh", "-c", script, name=name, policy=policy)
        driver = self.place.driver("x", ExistingContainer(name))
        return driver, driver.start(self.place.launch)


@pytest.fixture
def follow(place: Place, path: Path) -> Follow:
    return Follow(place, path)


def numbers(path: Path) -> list[int]:
    return [int(line.rpartition("-")[2]) for line in read_last(path, 10**6) if "line-" in line]


def markers(path: Path) -> list[str]:
    return [line for line in read_last(path, 10**6) if line.startswith("---")]


@on_every_engine
def test_all_lines_arrive_once_and_the_tailer_ends_with_the_container(
    follow: Follow, path: Path
) -> None:
    handle = follow.start(COUNT.format(n=3000, last="printf unfinished-line-3000"))
    follow.whole(handle)
    assert numbers(path)[:3000] == list(range(3000))
    # an engine may close its log before it has written last words without a newline
    assert numbers(path)[3000:] in ([3000], [])
    assert follow.written(handle)[:3000] == list(range(3000))
    assert markers(path) == []
    assert all(STAMPED.match(line) for line in read_last(path, 5000))
    assert path.read_bytes().endswith(b"\n")


def test_a_quiet_container_can_be_left(follow: Follow, path: Path) -> None:
    tailer = follow.tail(follow.start("echo line-0; while :; do sleep 0.1; done"))
    until(lambda: numbers(path) == [0], "its lines are there")
    assert tailer.stop(join_s=60.0)
    assert tailer.finished


def test_a_lost_engine_leaves_a_mark_and_no_line_is_lost_or_doubled(
    line: tuple[Line, docker.DockerClient], follow: Follow, path: Path
) -> None:
    cuttable, through = line
    handle = follow.start(UNTIL_TOLD)
    tailer = follow.tail(handle, through)
    for round_ in range(3):
        least = len(numbers(path)) + 40
        until(lambda least=least: len(numbers(path)) > least, "its lines are there")
        cuttable.cut()
        cuttable.up.set()
        until(lambda most=round_: len(markers(path)) > most, "the mark is there")
    follow.api.kill(handle.container, "TERM")
    follow.over(tailer)
    assert numbers(path) == follow.written(handle)
    assert len(numbers(path)) > 120
    form = r"--- gap: log stream lost \d\d:\d\d:\d\d, reconnected \d\d:\d\d:\d\d ---"
    assert len(markers(path)) == 3
    assert all(re.fullmatch(form, marker) for marker in markers(path))


def test_an_end_while_the_engine_is_away_is_caught_up_with(
    line: tuple[Line, docker.DockerClient], follow: Follow, path: Path
) -> None:
    cuttable, through = line
    handle = follow.start(UNTIL_TOLD)
    tailer = follow.tail(handle, through)
    until(lambda: len(numbers(path)) > 5, "its lines are there")
    cuttable.cut()
    until(lambda: cuttable.refused, "the tailer has met the silence")
    follow.api.kill(handle.container, "TERM")
    follow.ended(handle)
    assert not tailer.finished
    cuttable.up.set()
    follow.over(tailer)
    assert numbers(path) == follow.written(handle)
    assert len(markers(path)) == 1


def test_a_container_that_has_ended_at_once_is_read_in_full(follow: Follow, path: Path) -> None:
    """Its recorded end can lie before its recorded start."""
    for _ in range(3):
        handle = follow.start("echo line-1; printf line-2")
        follow.ended(handle)
        follow.whole(handle)
        assert numbers(path) in ([1, 2], follow.written(handle))
        path.unlink()


@only_real
def test_restarts_are_marked(follow: Follow, path: Path) -> None:
    driver, handle = follow.adopted("echo line-7; exit 1", "on-failure")
    tailer = follow.tail(handle)
    until(lambda: any("started again" in marker for marker in markers(path)))
    driver.stop(CANDIDATE, handle, 1)
    assert tailer.stop(drain_s=60, join_s=60)
    assert len(numbers(path)) >= 2


@only_real
def test_a_life_that_ended_within_a_line_is_not_told_twice(follow: Follow, path: Path) -> None:
    script = "echo line-1; [ -e /m ] || { touch /m; printf line-2; exit 1; }"
    follow.whole(follow.adopted(script, "on-failure")[1], since=1.0)
    assert numbers(path) in ([1, 2, 1], [1, 1])  # an engine may lose words without a newline


def test_one_enormous_line_is_split_as_the_engine_splits_it(follow: Follow, path: Path) -> None:
    follow.whole(follow.start("head -c 100000 /dev/zero | tr '\\0' x; echo; echo line-1"))
    lines = path.read_bytes().splitlines()
    assert sum(line.count(b"x") for line in lines) == 100_000
    assert max(len(line) for line in lines) < 17_000
    assert numbers(path) == [1]


def test_a_terminal_container_is_followed_too(follow: Follow, path: Path) -> None:
    made = follow.place.create("sh", "-c", "echo line-0; echo line-1", tty=True)
    follow.api.start(made)
    follow.whole(Handle("tty", "container", container=made))
    assert [text[31:].rstrip("\ufffd") for text in read_last(path, 5)] == ["line-0", "line-1"]


@only_real
def test_a_log_that_cannot_be_read_is_said(follow: Follow, path: Path) -> None:
    config = follow.api.create_host_config(log_config={"Type": "none", "Config": {}})
    made = follow.place.create("sleep", "0.2", host_config=config)
    follow.api.start(made)
    handle = Handle("mute", "container", container=made)
    follow.whole(handle)
    (marker,) = markers(path)
    assert "the log cannot be read" in marker
    (line,) = follow.place.driver("mute", ExistingContainer("mute")).last_lines(handle, 5)
    assert line.startswith("(no log: ")


@settings(deadline=None)
@given(
    offsets=st.lists(st.integers(0, 4_000), min_size=1, max_size=60),
    cuts=st.lists(st.integers(0, 60), max_size=4),
    begin=st.none() | st.integers(1_700_000_000, 1_700_000_003),
)
@example(offsets=[500, 1200, 1300], cuts=[2], begin=1_700_000_001)
def test_a_position_goes_on_where_it_stopped(
    offsets: list[int], cuts: list[int], begin: int | None
) -> None:
    """Against a model of the engine: an ordered file, a filter by whole seconds. A connection may
    break off before it has come to where the one before ended.

    Stamps go back by up to a second, as those of stdout and stderr do.
    """
    times = [1_700_000_000_000 + at for at in _nearly_sorted(offsets)]
    stamps = [
        time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at // 1000)).encode()
        + b".%03d000000Z" % (at % 1000)
        for at in times
    ]
    position, got = _Position(), list[int]()
    position.begin = begin
    for stop in [*(min(cut, len(times)) for cut in cuts), len(times)]:
        since = position.since()
        wanted = [i for i, at in enumerate(times) if since is None or at >= since * 1000]
        got += [i for i in wanted if i < stop and position.fresh(stamps[i])]
    assert got == [i for i, at in enumerate(times) if begin is None or at >= begin * 1000]


def _nearly_sorted(offsets: list[int]) -> list[int]:
    now, out = 0, []
    for offset in offsets:
        now = max(now, offset)
        out.append(max(offset, now - 900))
    return out


def test_a_file_above_its_cap_keeps_the_newest_half(path: Path) -> None:
    file = CappedFile(path, cap_bytes=10_000)
    with path.open("ab"):
        pass
    reader = path.open("rb")
    for number in range(5_000):
        file.line(b"line-%d" % number)
        assert path.stat().st_size <= 10_000
    file.close()
    kept = numbers(path)
    assert kept == list(range(kept[0], 5_000))
    assert len(kept) > 300
    first, *others = markers(path)
    assert re.fullmatch(r"--- .* of older log dropped \d\d:\d\d:\d\d ---", first)
    assert others == []
    assert reader.read(7) == b"line-0\n"
    reader.close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_full_disk_loses_lines_but_says_so() -> None:
    file = CappedFile(Path("/dev/full"), cap_bytes=10_000)
    for _ in range(3):
        file.line(b"lost")
    assert file.unwritten == 3
    file.close()


def test_after_a_full_disk_the_loss_is_written_down(path: Path) -> None:
    file = CappedFile(path / "missing" / "service.log")
    file.line(b"lost")
    file.line(b"lost too")
    file.path.parent.mkdir(parents=True)
    file.line(b"line-2")
    file.close()
    assert read_last(file.path, 5) == [
        "--- 2 lines could not be written before this one ---",
        "line-2",
    ]


def test_reading_the_end_of_a_file(path: Path) -> None:
    assert read_last(path, 5) == []
    path.write_bytes(b"")
    assert read_last(path, 5) == []
    path.write_bytes(b"a\nb\xff\x1b[31m\nlast without newline")
    assert read_last(path, 2) == ["b\ufffd", "last without newline"]
    assert read_last(path, 99) == ["a", "b\ufffd", "last without newline"]
    assert read_last(path, 0) == []
    assert read_last(path.parent, 3) == []


def test_only_the_end_of_a_large_file_is_read(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(50 * 1024**3)
        file.seek(0, os.SEEK_END)
        file.write(b"\nline-1\nline-2\n")
    assert read_last(path, 2) == ["line-1", "line-2"]
    assert read_last(path, 9)[-1] == "line-2"


def test_writer_and_reader_at_once(path: Path) -> None:
    over = threading.Event()

    def write() -> None:
        file, number = CappedFile(path, cap_bytes=20_000), 0
        while not over.is_set():
            file.line(b"line-%d" % number)
            number += 1
        file.close()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        until(path.exists)
        for _ in range(80):
            found = numbers(path)[:-1]  # the last line may be half written
            assert found == sorted(found)
    finally:
        over.set()
        writer.join()


def test_a_log_above_the_cap_keeps_its_end_and_its_writer(tmp_path: Path) -> None:
    path = tmp_path / "engine.log"
    writer = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(writer, b"".join(b"line %06d\n" % n for n in range(1000)))
        assert not keep_end(path, 12_000)
        os.write(writer, b"".join(b"line %06d\n" % n for n in range(1000, 2000)))
        assert keep_end(path, 12_000)
        os.write(writer, b"after\n")
    finally:
        os.close(writer)
    lines = read_last(path, 10_000)
    assert lines[0].startswith("--- ")
    assert lines[-2:] == ["line 001999", "after"]
    assert lines[1:-1] == [f"line {n:06d}" for n in range(2000 - len(lines[1:-1]), 2000)]
    assert path.stat().st_size < 12_000


def test_a_missing_log_is_no_trouble(tmp_path: Path) -> None:
    assert not keep_end(tmp_path / "none.log", 10)
