"""The log pane: what it takes in, how soon it answers a key in a flood, and what it keeps."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from textual import events
from textual.app import App, ComposeResult

from console.common.logs.buffer import LogBuffer
from console.common.logs.line import LogLine, Splitter
from console.common.logs.tail import BLOCK, Tail
from tests.benchmarks import surroundings
from tests.benchmarks.figures import Bar, Row
from widgets.log_pane import LogPane

ROUNDS = 5
LINES = 100_000
KEYS = 120
FLOOD_PER_S = 10_000
MANY = 10_000_000
BAR = Bar(most_ratio=1.0)
INPUT_BAR_S, KEY_BAR_S, GROWTH_BAR_MB = 1.0, 0.050, 10.0
_STAMP = "2026-05-05T12:{:02}:{:02}.123456789Z "
_SAID = (
    "INFO 11-05 12:00:00 [loggers.py:123] Engine 000: Avg prompt throughput: 102.3 tokens/s, "
    "Avg generation throughput: 42.0 tokens/s, Running: 4 reqs, Waiting: 0 reqs",
    "slot update_slots: id  0 | task 17 | prompt done, n_past = 512, n_tokens = 512",
    '\x1b[32mINFO\x1b[0m:     127.0.0.1:52314 - \x1b[1m"POST /v1/completions HTTP/1.1"\x1b[0m 200',
    "WARNING 11-05 12:00:01 [scheduler.py:77] Sequence group is preempted: not enough KV cache",
    "srv  log_server_r: request: POST /completion 127.0.0.1 200 — 完了 ✓",
    "ERROR 11-05 12:00:02 [engine.py:9] RuntimeError: CUDA error: out of memory",
    "\tat frame 3\tin worker",
)
_WEIGHTS = (60, 20, 8, 4, 4, 2, 2)


def run(say: Callable[[str], None]) -> list[Row]:
    """Each side of a row that is called a bar is the bar itself: there is no peer to measure."""
    data = sample(LINES)
    say(f"{LINES:,} lines of {len(data) / LINES:.0f} bytes: stamps, colours, wide text, errors")
    with surroundings.workplace() as place:
        path = place / "x.log"
        took = [_input(data) for _ in range(ROUNDS)]
        say(f"at its input {LINES / statistics.median(took):,.0f} lines/s")
        shown = [_drawn(path, data) for _ in range(ROUNDS)]
        say(f"file to drawn pane {LINES / statistics.median(shown):,.0f} lines/s")
        calm = [_keys(path, 0, long_line=False) for _ in range(2)]
        flood = [_keys(path, FLOOD_PER_S, long_line=False) for _ in range(ROUNDS)]
        long_ = [_keys(path, FLOOD_PER_S, long_line=True) for _ in range(ROUNDS)]
    say(f"key to screen p95: calm {_worst(calm)}, flood {_worst(flood)}, long line {_worst(long_)}")
    growth = _growth()
    say(f"{MANY:,} lines grew RSS by {growth:.1f} MB (in the row below, 1 ms is 1 MB)")
    rate, answer = f"the bar: {LINES:,} in 1 s", "the bar: 50 ms"
    return [
        Row("bytes to buffer, 100,000 lines", rate, took, [INPUT_BAR_S] * ROUNDS, BAR),
        Row("file to drawn pane, 100,000 lines", rate, shown, [INPUT_BAR_S] * ROUNDS),
        Row("key p95, 10,000 lines/s", answer, flood, [KEY_BAR_S] * ROUNDS, BAR),
        Row("key p95, and a 1 MB line", answer, long_, [KEY_BAR_S] * ROUNDS, BAR),
        Row("RSS after 10 M lines", "the bar: 10 MB", [growth / 1e3], [GROWTH_BAR_MB / 1e3], BAR),
    ]


def sample(lines: int, first: int = 0) -> bytes:
    """A log as engines write it, each line its own."""
    said = [text for text, weight in zip(_SAID, _WEIGHTS, strict=True) for _ in range(weight)]
    found = [
        f"{_STAMP.format(n // 6000 % 60, n // 100 % 60)}{said[n * 37 % 100]} #{n}\n"
        for n in range(first, first + lines)
    ]
    return "".join(found).encode()


def blocks(data: bytes) -> Iterator[bytes]:
    """The data as it is read from a file."""
    for at in range(0, len(data), BLOCK):
        yield data[at : at + BLOCK]


def _input(data: bytes) -> float:
    """Bytes to decoded, cleaned, judged lines in the buffer."""
    splitter, buffer = Splitter(), LogBuffer()
    begun = time.perf_counter()
    for block in blocks(data):
        buffer.append(splitter.feed(block, 0.0))
    took = time.perf_counter() - begun
    assert buffer.end == LINES
    return took


class _Pane(LogPane):
    """Says when what a key asked for stands on the screen."""

    done: asyncio.Event | None = None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if self.done is not None:  # the action comes next, then the frame that shows it
            self.call_after_refresh(self.done.set)
            self.done = None
        return super().check_action(action, parameters)


class _Shown(App[None]):
    """A pane that a tail feeds, as a screen does it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.pane = _Pane()
        self.waiting = 0
        self.tail = Tail(path, self.deliver, poll_s=0.02)
        self.loop: asyncio.AbstractEventLoop | None = None

    def compose(self) -> ComposeResult:
        yield self.pane

    def on_mount(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.pane.attach("api", "nothing yet")
        self.pane.focus()
        self.tail.start()

    def deliver(self, batch: list[LogLine]) -> bool:
        if self.waiting >= 4 or self.loop is None:
            return False
        self.waiting += 1
        self.loop.call_soon_threadsafe(self._take, batch)
        return True

    def _take(self, batch: list[LogLine]) -> None:
        self.waiting -= 1
        self.pane.take(batch)


def _drawn(path: Path, data: bytes) -> float:
    """From the first byte in the file to its last line on the screen."""

    async def scene() -> float:
        path.write_bytes(b"")
        app = _Shown(path)
        async with app.run_test(size=(120, 40)) as pilot:
            await pilot.pause()
            begun = time.perf_counter()
            with path.open("ab") as file:
                for block in blocks(data):
                    file.write(block)
                    file.flush()
                    while file.tell() - app.tail._source._at > 4 * BLOCK:
                        await asyncio.sleep(0.001)
            last = f"#{LINES - 1}"
            page = app.pane.view.place
            while not (page.page and page.page[-1].line.text.endswith(last)):
                await asyncio.sleep(0.001)
            took = time.perf_counter() - begun
            app.tail.close()
        return took

    return asyncio.run(scene())


def _keys(path: Path, per_s: int, *, long_line: bool) -> float:
    """p95 of the time from a key to the pane drawn as the key wants it."""

    async def scene() -> list[float]:
        path.write_bytes(sample(10_000) + (b"x" * 1_000_000 + b"\n" if long_line else b""))
        app = _Shown(path)
        stop = threading.Event()
        flood = threading.Thread(target=_flood, args=(path, per_s, stop))
        async with app.run_test(size=(120, 40)) as pilot:
            while len(app.pane.buffer) < 10_000:
                await pilot.pause(0.01)
            if long_line:
                await pilot.press("w")
            flood.start()
            found = []
            for number in range(KEYS):
                await asyncio.sleep(0.013)
                found.append(await _press(app, ("k", "G", "pageup", "f", "w", "j")[number % 6]))
            stop.set()
            flood.join()
            app.tail.close()
        return found

    return statistics.quantiles(asyncio.run(scene()), n=20)[-1]


async def _press(app: _Shown, key: str) -> float:
    """Hand a key to the app as its driver does, and wait for the frame that shows it."""
    done = app.pane.done = asyncio.Event()
    begun = time.perf_counter()
    app.post_message(events.Key(key, key if len(key) == 1 else None))
    await done.wait()
    return time.perf_counter() - begun


def _flood(path: Path, per_s: int, stop: threading.Event) -> None:
    """Write so many lines a second, a hundredth of them every 10 ms; none at all for 0."""
    begun, number = time.monotonic(), 10_000
    with path.open("ab", buffering=0) as file:
        while per_s and not stop.wait(0.01):
            due = 10_000 + int((time.monotonic() - begun) * per_s)
            file.write(sample(due - number, number))
            number = due


def _worst(seconds: list[float]) -> str:
    return f"{statistics.median(seconds) * 1e3:.1f} ms (worst {max(seconds) * 1e3:.1f})"


def _growth() -> float:
    """MB of RSS that MANY lines add once the buffer is full, in a process of its own."""
    argv = [sys.executable, "-c", "from tests.benchmarks import logpane; logpane.swallow()"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return float(done.stdout)


def swallow() -> None:
    """Print the growth of this process's RSS over MANY lines through splitter and buffer."""
    splitter, buffer, data = Splitter(), LogBuffer(), sample(LINES)

    def feed() -> None:
        for block in blocks(data):
            buffer.append(splitter.feed(block, 0.0))

    feed()
    before = _rss()
    for _ in range(MANY // LINES):
        feed()
    print((_rss() - before) / 1e6)


def _rss() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096
