"""The flight recorder: what is written can be read, and what is torn is left out."""

import json
import math
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.host import process
from console.recovery.guard.config import CONFIG_FILE, DIRECTORY, RING
from console.recovery.guard.observe.snapshot import Memory
from console.recovery.guard.record import recorder as recorders
from console.recovery.guard.record.read import Recording, open_newest, open_ring
from console.recovery.guard.record.recorder import EVENT_MOST, LIVE, Recorder, create, place
from tests.clock import FakeClock
from tests.waiting import some

GIB = 1 << 30


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def written(tmp_path: Path, clock: FakeClock) -> Iterator[Recorder]:
    one = Recorder(tmp_path / "ring", "run-1", clock)
    yield one
    one.close()


def memory(clock: FakeClock, available: int = 100 * GIB) -> Memory:
    return Memory(clock.monotonic(), 377 * GIB, available, 207 * GIB, 5 * GIB)


def found(recorder: Recorder) -> Recording:
    return some(open_ring(recorder.path))


def fill(recorder: Recorder, clock: FakeClock, ticks: int = 100, level: str = "ok") -> None:
    for number in range(ticks):
        recorder.tick(memory(clock, number), 1.5, None, level)
        clock.sleep(0.02)


def test_who_wrote_it(written: Recorder) -> None:
    one = found(written)
    own = (process.start_time(os.getpid()), process.boot_id())
    assert (one.run_id, one.pid, one.start, one.boot, one.alive) == (
        "run-1",
        os.getpid(),
        *own,
        True,
    )
    assert one.path.stat().st_mode & 0o777 == 0o600
    for changes in ({"boot": "0" * 36}, {"start": one.start + 1}):
        fields = {name: getattr(one, name) for name in Recording.__slots__} | changes
        assert not Recording(**fields).alive, "another boot, or another process"


def test_samples_come_back(written: Recorder, clock: FakeClock) -> None:
    written.tick(memory(clock), 12.5, None, "warn")
    (sample,) = found(written).fast()
    assert (sample.mono, sample.wall) == (clock.time, clock.time)
    assert (sample.total, sample.available, sample.swap_used) == (377 * GIB, 100 * GIB, 5 * GIB)
    assert (sample.some, sample.full, sample.level) == (12.5, None, "warn")


def test_two_minutes_at_the_quickest_pace(written: Recorder, clock: FakeClock) -> None:
    fill(written, clock, 10_000)
    samples = found(written).fast(120)
    assert samples[-1].available == 9999
    assert samples[-1].mono - samples[0].mono == pytest.approx(120, abs=0.03)
    assert [one.available for one in samples] == list(range(10_000 - len(samples), 10_000))
    assert len(found(written).fast(1.01)) == 51


def test_two_minutes_of_seconds(written: Recorder, clock: FakeClock) -> None:
    for number in range(300):
        written.second({"cards": [{"uuid": "GPU-1", "used": number}]})
        clock.sleep(1)
    seconds = found(written).slow(120)
    assert [one["cards"][0]["used"] for one in seconds] == list(range(179, 300))


def test_the_last_64_events(written: Recorder) -> None:
    for number in range(100):
        written.event("armed", f"number {number}")
    events = found(written).events()
    assert [one["text"] for one in events] == [f"number {n}" for n in range(36, 100)]
    assert {one["what"] for one in events} == {"armed"}


@pytest.mark.parametrize("text", ["x" * 5000, "é" * 3000, '"\\' * 900, "\U0001f600" * 700])
def test_a_long_event_is_cut(written: Recorder, text: str) -> None:
    written.event("breach", text)
    (event,) = found(written).events()
    assert len(json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode()) <= EVENT_MOST
    assert event["text"].endswith("…")
    assert event["text"][:50] == text[:50]


def test_the_page_is_the_newest_and_torn_it_leaves_the_one_before(written: Recorder) -> None:
    for number in range(5):
        written.status({"number": number})
        assert (found(written).status() or {})["number"] == number
    tear(written.path, recorders.STATUS_AT + 5 % 2 * recorders.STATUS_SLOT + recorders.TEXT.size)
    assert (found(written).status() or {})["number"] == 3


def test_a_page_that_is_too_long_loses_the_ends_of_its_lists(written: Recorder) -> None:
    written.status({"level": "act", "loads": [{"name": "x" * 50}] * 1000, "reasons": ["why"]})
    page = found(written).status() or {}
    assert (page["cut"], page["level"], page["reasons"]) == (True, "act", ["why"])
    assert 0 < len(page["loads"]) < 1000
    for long in ({"a": "x" * 90_000}, {"a": {str(n): n for n in range(30_000)}}, {"a" * 90_000: 1}):
        written.status(long)
        assert (found(written).status() or {})["cut"] is True


def tear(path: Path, at: int) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 0xFF]))


def whole(recorder: Recorder, clock: FakeClock) -> bytes:
    fill(recorder, clock, 20)
    for number in range(3):
        recorder.second({"number": number})
        recorder.event("armed", str(number))
        recorder.status({"level": "ok", "number": number})
    return recorder.path.read_bytes()


def read_all(path: Path) -> tuple[int, int, int, bool] | None:
    one = open_ring(path)
    if one is None:
        return None
    return len(one.fast()), len(one.slow()), len(one.events()), one.status() is not None


WHOLE = (20, 3, 3, True)


def places(size: int) -> list[int]:
    """Every fifth byte of the header and of each area's first records, and a sample of the rest."""
    chosen = {*range(0, recorders.HEADER.size + 8, 5)}
    for at, length in (
        (recorders.STATUS_AT, 120),
        (recorders.STATUS_AT + recorders.STATUS_SLOT, 120),
        (recorders.FAST_AT, 3 * 64),
        (recorders.SLOW_AT + recorders.SLOW_SLOT, 80),
        (recorders.EVENT_AT + recorders.EVENT_SLOT, 80),
    ):
        chosen |= {*range(at, at + length, 5)}
    return sorted(chosen | {*random.Random(1).sample(range(size), 30)})


def test_one_wrong_byte_costs_one_record(written: Recorder, clock: FakeClock) -> None:
    data = whole(written, clock)
    seen = set()
    for at in places(len(data)):
        tear(written.path, at)
        seen.add(got := read_all(written.path))
        tear(written.path, at)
        if got is not None:
            assert sum(a - b for a, b in zip(WHOLE[:3], got[:3], strict=True)) <= 1, at
            assert got[3]
    assert None in seen  # a header is trusted as a whole or not at all
    assert (19, 3, 3, True) in seen
    assert (20, 2, 3, True) in seen
    assert (20, 3, 2, True) in seen
    assert read_all(written.path) == WHOLE


def test_a_file_that_is_cut_off_anywhere(
    written: Recorder, clock: FakeClock, tmp_path: Path
) -> None:
    data = whole(written, clock)
    cut = tmp_path / "cut"
    before = (0, 0, 0, False)
    for length in places(len(data)):
        cut.write_bytes(data[:length])
        got = read_all(cut) or before
        assert got >= before or got[3] >= before[3]
        before = got
    assert before[:2] == WHOLE[:2]


def test_garbage(tmp_path: Path) -> None:
    path = tmp_path / "garbage"
    path.write_bytes(random.Random(1).randbytes(recorders.SIZE))
    assert open_ring(path) is None
    header = recorders.HEADER.pack(
        recorders.MAGIC, recorders.VERSION, recorders.SIZE, b"\xff\x00run", 1, 2, b"\xff",
        math.nan, 0.0,
    )  # fmt: skip
    with open(path, "r+b") as file:
        file.write(recorders.sealed(header))
    assert read_all(path) == (0, 0, 0, False)


@pytest.mark.parametrize("text", [b"[]", b"1", b"{", b"\xff\xff", b"[" * 3000])
def test_records_that_are_no_table(written: Recorder, text: bytes) -> None:
    with open(written.path, "r+b") as file:
        for at in (recorders.STATUS_AT, recorders.SLOW_AT, recorders.EVENT_AT):
            file.seek(at)
            file.write(recorders.packed(1, text[:400]))
    assert read_all(written.path) == (0, 0, 0, False)


def test_a_link_is_neither_read_nor_followed(
    tmp_path: Path, written: Recorder, clock: FakeClock
) -> None:
    (tmp_path / "other").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "other")
    (tmp_path / "same").symlink_to(written.path)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    for name in ("same", "folder", "fifo", "nothing"):
        assert open_ring(tmp_path / name) is None
    Recorder(tmp_path / "link", "r", clock).close()
    assert (tmp_path / "other").read_text() == "precious"
    assert open_ring(tmp_path / "link") is not None


def test_the_newer_of_memory_and_disk(tmp_path: Path, clock: FakeClock) -> None:
    (tmp_path / DIRECTORY).mkdir()
    (tmp_path / DIRECTORY / CONFIG_FILE).write_text(json.dumps({"ring": str(tmp_path / "shm")}))
    shared = Recorder(tmp_path / "shm", "r", clock)
    fill(shared, clock, 3)
    (tmp_path / DIRECTORY / RING).write_bytes(shared.path.read_bytes())
    fill(shared, clock, 1)
    for name, samples in (("shm", 4), (RING, 3)):
        newest = some(open_newest(tmp_path))
        assert (newest.path.name, len(newest.fast())) == (name, samples)
        shared.close()
        shared.path.unlink(missing_ok=True)


@pytest.mark.parametrize("config", ["", "{", "[]", '{"ring": 5}', '{"ring": "nowhere"}'])
def test_a_run_without_a_usable_config(tmp_path: Path, clock: FakeClock, config: str) -> None:
    assert open_newest(tmp_path) is None
    (tmp_path / DIRECTORY).mkdir()
    (tmp_path / DIRECTORY / CONFIG_FILE).write_text(config)
    assert open_newest(tmp_path) is None
    Recorder(tmp_path / DIRECTORY / RING, "r", clock).close()
    assert open_newest(tmp_path) is not None


def test_where_there_is_no_room_it_lies_in_the_run(tmp_path: Path, clock: FakeClock) -> None:
    made = create(str(tmp_path / "no" / "such" / "ring"), tmp_path, "r", clock)
    made.close()
    assert made.path == tmp_path / LIVE
    for name in ("../../etc/ring", "a/b", "ring"):
        assert place(name, tmp_path)[0].parent == Path("/dev/shm"), name


def test_what_a_dead_sentinel_left_in_shared_memory_is_swept(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorders, "SHM", tmp_path)
    dead, alive, garbage, other = (
        tmp_path / f"omni-console.{who}.ring"
        for who in (f"{os.getuid()}.dead", f"{os.getuid()}.alive", f"{os.getuid()}.x", "9.y")
    )
    for path in (dead, alive):
        Recorder(path, "run-1", clock).close()
    for path in (garbage, other):
        path.write_bytes(b"x")
    header = bytearray(dead.read_bytes())
    header[8 + 8 + 96 : 8 + 8 + 100] = (2**22 + 1).to_bytes(4, "little")
    dead.write_bytes(header)
    made = dead.stat().st_mtime
    recorders.sweep(made + recorders.KEPT_S - 1)
    assert dead.exists()
    recorders.sweep(made, "alive")
    recorders.sweep(made, "x")
    assert (alive.exists(), garbage.exists()) == (True, False)
    recorders.sweep(made + recorders.KEPT_S + 60)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        path.name for path in (alive, other)
    )


def test_a_sentinel_that_takes_over_goes_on_with_the_recording(
    tmp_path: Path, clock: FakeClock
) -> None:
    first = Recorder(tmp_path / "ring", "run-1", clock)
    fill(first, clock, 30)
    first.second({"n": 1})
    first.event("breach", "RAM available")
    first.status({"level": "ok"})
    first.status({"level": "act"})
    first.close()  # as after a kill: no event says that it ended
    second = Recorder(tmp_path / "ring", "run-1", clock)
    assert (second.before, second.last["level"]) == (os.getpid(), "act")
    fill(second, clock, 10)
    second.second({"n": 2})
    second.event("armed", "big")
    one = found(second)
    assert [line["text"] for line in one.events()] == ["RAM available", "big"]
    assert [sample.available for sample in one.fast()] == [*range(30), *range(10)]
    assert [line["n"] for line in one.slow()] == [1, 2]
    second.close()


@pytest.mark.parametrize("run_id", ["run-1", "run-2"])
def test_nothing_of_another_run_or_boot_is_taken_over(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, run_id: str
) -> None:
    first = Recorder(tmp_path / "ring", "run-1", clock)
    first.event("breach", "RAM available")
    first.status({"level": "act"})
    first.close()
    if run_id == "run-1":
        monkeypatch.setattr(process, "boot_id", lambda: "another boot")
    second = Recorder(tmp_path / "ring", run_id, clock)
    assert (second.before, second.last, found(second).events()) == (0, {}, [])
    second.close()


def test_a_torn_recording_is_taken_over_as_far_as_it_is_whole(
    tmp_path: Path, clock: FakeClock
) -> None:
    path = tmp_path / "ring"
    for size in (0, 100, recorders.SIZE - 1, recorders.SIZE):
        path.write_bytes(random.Random(size).randbytes(size))
        one = Recorder(path, "run-1", clock)
        assert (one.before, found(one).events(), found(one).fast()) == (0, [], [])
        one.close()
