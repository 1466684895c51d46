"""Every card's figures, queried from NVML in a process of its own: NVML can hang for good.

`python -m console.host.gpu.child --every SECONDS` prints one JSON line a tick, `{"gpus": […],
"trouble": "…"}`, with the fields of GpuSample, until its stdin or stdout closes. `ages` is there if
a card has not answered at this tick: {UUID: seconds since it did}. Each card has a thread, so a
hanging call leaves the other cards' figures live. An unusable NVML is tried again every few
seconds, so a driver that comes back is noticed.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from console.host.gpu import nvml as known
from console.host.gpu.figures import FIGURES, Figure, GpuSample
from console.host.gpu.nvml import CardWorker

RETRY_S = 3.0
"""Seconds between two tries at an unusable NVML."""
REOPEN_S = 30.0
"""Seconds between reopenings of a session with a lost card: old handles stay dead for good."""
FRESH_S = 30.0
"""Seconds after which the process restarts: a library that mismatches its driver stays loaded."""
SLOW_S = 30.0
"""Seconds between queries of name, power limit and MIG mode, which hardly change."""
FIRST_S = 4.0
"""Seconds that a card may take to wake, before the others are shown without it."""
PATIENCE_S = 0.5
"""Seconds that a tick waits for a card that has answered before, or has long been silent."""
SILENT_S = 3.0
"""A card without an answer for longer has no figures."""


@dataclass(slots=True)
class Card:
    """One card of an open session, with the facts not queried at each tick."""

    handle: Any
    sample: GpuSample
    mig: bool = False
    slow_at: float = 0.0
    plain_memory: bool = False
    problems: list[str] = field(default_factory=list)


class Session:
    """NVML, opened when possible; `look` never raises what NVML raises."""

    def __init__(self, load: Callable[[], Any] = known.load) -> None:
        self._load = load
        self._nvml: Any = None
        self._cards: dict[int, Card] = {}
        self._workers: dict[int, CardWorker[GpuSample]] = {}
        self._last: dict[int, GpuSample] = {}
        self._seen: dict[str, GpuSample] = {}
        self._session = 0
        self.ages: dict[str, float] = {}
        self._trouble = ""
        self._misfit_since: float | None = None
        self._retry_at = self._reopen_at = 0.0

    def stuck(self, now: float) -> bool:
        """Whether only a fresh process can help: NVML loads, but has refused for long."""
        return self._misfit_since is not None and now - self._misfit_since >= FRESH_S

    def look(self, now: float) -> tuple[list[GpuSample], str]:
        """All cards, or why there are none; `now` in monotonic seconds. `ages` is kept."""
        self.ages = {}
        if self._nvml is None and not self._start(now):
            return [], self._trouble
        try:
            count = self._nvml.nvmlDeviceGetCount()
            gpus = self._all(count, now)
        except self._nvml.NVMLError as error:
            self._fail(error, now)
            return [], self._trouble
        gpus += self._missing(gpus)
        dead = any(gpu.why in (known.LOST, known.RESET) for gpu in gpus)
        if dead and now >= self._reopen_at and not self._hangs:
            self.close()
        return gpus, "" if gpus else "no NVIDIA card: the driver lists none"

    def close(self) -> None:
        """Forget all handles; the next look opens NVML again."""
        library, self._nvml = self._nvml, None
        self._session += 1
        self._cards.clear()
        self._last.clear()
        # A library must not be shut down under a call that is still inside it.
        if library is not None and not self._hangs:
            try:
                library.nvmlShutdown()
            except library.NVMLError:
                pass  # a lost card can take the shutdown along

    def _start(self, now: float) -> bool:
        if self._trouble and now < self._retry_at:
            return False
        try:
            library = self._load()
        except ImportError:
            self._trouble = known.MISSING
            self._retry_at = now + RETRY_S
            return False
        try:
            library.nvmlInit()
        except library.NVMLError as error:
            self._fail(error, now)
            return False
        self._nvml, self._trouble, self._misfit_since = library, "", None
        self._reopen_at = now + REOPEN_S
        return True

    def _fail(self, error: Exception, now: float) -> None:
        self.close()
        self._trouble = known.words(error)
        self._retry_at = now + RETRY_S
        if known.code_of(error) == known.LIBRARY_NOT_FOUND:
            self._misfit_since = None  # nothing is loaded: the next try looks for it again
        elif self._misfit_since is None:
            self._misfit_since = now

    @property
    def _hangs(self) -> bool:
        return any(worker.busy for worker in self._workers.values())

    def _all(self, count: int, now: float) -> list[GpuSample]:
        """Every card, each queried in its own thread; one that hangs is not waited for again."""
        workers = [self._workers.setdefault(i, CardWorker(f"card-{i}")) for i in range(count)]
        for index, worker in enumerate(workers):
            if not worker.busy:
                worker.begin(partial(self._read_card, index, now), now)
        begun = time.monotonic()
        samples = []
        for index, worker in enumerate(workers):
            first = worker.answered_at is None and worker.asked_at == now
            worker.wait(begun + (FIRST_S if first else PATIENCE_S) - time.monotonic())
            samples.append(self._answer(index, worker, now))
        return samples

    def _answer(self, index: int, worker: CardWorker[GpuSample], now: float) -> GpuSample:
        """A card's answer, or its last one and its time while it does not answer."""
        if not worker.busy and worker.asked_at == now:
            gpu = self._last[index] = worker.result()
            return gpu
        since = worker.answered_at if worker.answered_at is not None else worker.asked_at
        age = now - (since if since is not None else now)
        last = self._last.get(index)
        if last is None or age > SILENT_S:
            words = f"{known.SILENT} for {age:.0f} s: a call hangs in the driver"
            last = replace(self._identity(index), why=words)
        self.ages[last.uuid] = age
        return last

    def _read_card(self, index: int, now: float) -> GpuSample:
        """One card; a lost card keeps its name, loses its figures and says so."""
        card = self._cards.get(index)
        try:
            if card is None:
                card = self._cards[index] = self._meet(index)
            if now >= card.slow_at:
                self._slow(card, now)
            return self._quick(card)
        except self._nvml.NVMLError as error:
            if known.code_of(error) in (known.NOT_INITIALISED, known.DRIVER_NOT_LOADED):
                raise  # not this card: the session is over
            self._cards.pop(index, None)
            return replace(self._identity(index), why=known.words(error))

    def _meet(self, index: int) -> Card:
        handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
        uuid = known.text(self._nvml.nvmlDeviceGetUUID(handle))
        card = Card(handle, GpuSample(uuid, index, ""))
        name = self._ask(card, self._nvml.nvmlDeviceGetName)
        card.sample = GpuSample(uuid, index, known.text(name) if name else "")
        self._seen[uuid] = card.sample
        return card

    def _slow(self, card: Card, now: float) -> None:
        card.mig = known.mig_on(self._nvml, card.handle)
        card.sample = replace(card.sample, **self._figures(card, slow=True))
        card.slow_at = now + SLOW_S

    def _quick(self, card: Card) -> GpuSample:
        """Figures that change. Under MIG, NVML's utilisation is a meaningless zero: not queried."""
        card.problems.clear()
        total, used, why = self._memory(card)
        figures = self._figures(card, slow=False)
        why = known.MIG if card.mig else why or next(iter(card.problems), "")
        return replace(card.sample, used_bytes=used, total_bytes=total, **figures, why=why)

    def _figures(self, card: Card, *, slow: bool) -> dict[str, Any]:
        queried = [figure for figure in FIGURES if figure.query and figure.slow == slow]
        return {figure.field: self._figure(card, figure) for figure in queried}

    def _figure(self, card: Card, figure: Figure) -> float | None:
        """A figure in its unit; None if the card has none, or if NVML gave an impossible number."""
        query = figure.query
        if query is None or (card.mig and figure.of_instances):
            return None
        more = (getattr(self._nvml, query.argument),) if query.argument else ()
        answer = self._ask(card, getattr(self._nvml, query.call), *more)
        if answer is None:
            return None
        scaled = float(getattr(answer, query.part) if query.part else answer) * query.scale
        return scaled if 0 <= scaled <= query.most else None

    def _memory(self, card: Card) -> tuple[int | None, int | None, str]:
        """Total, used, and why both are missing; used excludes the driver's own, as in
        `nvidia-smi`, if the driver can tell them apart."""
        library, ask = self._nvml, self._nvml.nvmlDeviceGetMemoryInfo
        memory_info = None
        if not card.plain_memory:
            memory_info = self._ask(card, ask, library.nvmlMemory_v2)
            card.plain_memory = memory_info is None and not card.problems
        if memory_info is None:
            memory_info = self._ask(card, ask)
        if memory_info is None:
            return None, None, "" if card.problems or card.mig else known.UNIFIED
        total, used = int(memory_info.total), int(memory_info.used)
        if not total:  # GB10 and its like: the driver answers with zeros
            return None, None, known.UNIFIED
        return total, used if used <= total else None, ""

    def _ask(self, card: Card, call: Callable[..., Any], *arguments: Any) -> Any:
        """One query's answer; None if the card has none. Raises when the card is gone."""
        try:
            return call(card.handle, *arguments)
        except self._nvml.NVMLError as error:
            code = known.code_of(error)
            if code in known.GONE or code in (known.NOT_INITIALISED, known.DRIVER_NOT_LOADED):
                raise
            if code not in known.ABSENT:
                card.problems.append(known.words(error))
            return None

    def _identity(self, index: int) -> GpuSample:
        """The card last seen at this index, if any."""
        cards = list(self._cards.items())  # another card's thread may add to it
        here = {card.sample.uuid for place, card in cards if place != index}
        seen = (
            sample for sample in list(self._seen.values())
            if sample.index == index and sample.uuid not in here
        )  # fmt: skip
        return next(seen, GpuSample(f"index:{index}", index, ""))

    def _missing(self, gpus: list[GpuSample]) -> list[GpuSample]:
        """Cards seen before that the driver no longer lists."""
        listed = {gpu.uuid for gpu in gpus}
        return [replace(sample, why=known.LOST) for uuid, sample in self._seen.items()
                if uuid not in listed]  # fmt: skip


def _leave_with_parent() -> None:
    """End with stdin; runs in its own thread, which a hanging call cannot block."""
    try:
        while os.read(0, 4096):
            pass
    except OSError:
        pass
    os._exit(0)


def _every(argv: list[str]) -> float:
    if len(argv) != 2 or argv[0] != "--every":
        raise SystemExit("usage: python -m console.host.gpu.child --every SECONDS")
    return max(0.05, float(argv[1]))


def main(argv: list[str]) -> int:
    """Print a line a tick, until the reader is gone."""
    every, parent = _every(argv), os.getppid()
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    session = Session()
    while os.getppid() == parent:
        begun = time.monotonic()
        gpus, trouble = session.look(begun)
        line: dict[str, Any] = {"gpus": [asdict(gpu) for gpu in gpus], "trouble": trouble}
        if session.ages:
            line["ages"] = {uuid: round(age, 1) for uuid, age in session.ages.items()}
        try:
            os.write(1, json.dumps(line).encode() + b"\n")
        except OSError:
            break
        if session.stuck(begun):
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
        time.sleep(max(0.05, every - (time.monotonic() - begun)))
    # not exit(): that would wait for a library that hangs
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
