"""How far something long is: what is done of what, how fast it went, and when it will be done.

Pure arithmetic on figures, and the forms in which programs print their own progress. A share is
never above 1, a time left never below 0, and what is not known is None.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from console.common.text import clean
from console.common.units import format_bytes

OWN_SHARE = 0.1
"""Share that a run has to do itself before its own pace counts more than earlier runs."""
MIN_SHARE = 0.03
"""Less than this tells no pace at all: a server's first pages are those of its program."""
PATIENCE_S = 10.0
"""A silence that is no longer says nothing."""

FIRST_GAP_S, LONGEST_GAP_S = 1.0, 60.0
"""Seconds between two lines of a log about the same thing."""
MINUTE, HOUR = 60, 3600
GIB = 1 << 30


class Figures(NamedTuple):
    """So much is done, of so much if that is known. `unit`: B, s, % or the name of what is
    counted, in the singular."""

    done: float
    total: float | None = None
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    """Figures as they came: the newest, and those with which the same count began. Unix seconds."""

    figures: Figures
    at: float
    first: float
    """What was done already when the count began: a download that goes on."""
    since: float

    @property
    def share(self) -> float | None:
        """The part that is done, 0 to 1; None if the whole is not known."""
        return share(self.figures.done, self.figures.total)

    def left_s(self, now: float) -> float | None:
        """Seconds until all is done at the pace so far; None while that says nothing, and once it
        is late, or silent for as long as it took to come here."""
        done, total, _ = self.figures
        made, took = done - self.first, self.at - self.since
        if share(done, total) is None or total is None or made <= 0 or took <= 0:
            return None
        silent = max(0.0, now - self.at)
        left = finite((total - done) * took / made) - silent
        return left if left >= 0 and silent <= max(took, PATIENCE_S) else None

    @property
    def made(self) -> float:
        """The share that was done while it was watched, 0 to 1."""
        total = self.figures.total
        return share(self.figures.done - self.first, total) or 0.0


def share(done: float, total: float | None) -> float | None:
    """`done / total` within 0 and 1; None for a whole that is unknown or no amount."""
    if total is None or not math.isfinite(total) or not math.isfinite(done) or total <= 0:
        return None
    return min(1.0, max(0.0, done / total))


def finite(seconds: float) -> float:
    """The seconds, or the longest that can be said."""
    return seconds if math.isfinite(seconds) else 1e9


def advanced(before: Progress | None, figures: Figures, at: float) -> Progress:
    """The progress after new figures. Another unit or whole, or less than before, begins anew."""
    same = (
        before is not None
        and before.figures[1:] == figures[1:]
        and figures.done >= before.figures.done
        and at >= before.at
    )
    if before is None or not same:
        return Progress(figures, at, figures.done, at)
    return Progress(figures, at, before.first, before.since)


def left_s(
    progress: Progress | None, gone_s: float, usual_s: float | None, now: float
) -> float | None:
    """Seconds left: by the pace of this run once it has done a tenth itself, before that by how
    long it usually takes; None if neither says anything, or it takes longer than usual.

    `gone_s`: since it began. A count that is complete says nothing of what follows it.
    """
    usual = None
    if usual_s is not None and gone_s <= usual_s:
        usual = usual_s - max(0.0, gone_s)
    if progress is None or progress.share == 1 or progress.made < MIN_SHARE:
        return usual
    own = progress.left_s(now) if progress.made >= OWN_SHARE or usual is None else None
    return usual if own is None else own


# -- in words --------------------------------------------------------------------------------------


def clock(seconds: float) -> str:
    """A duration as a clock shows it: `0:07`, `5:10`, `1h07`."""
    whole = int(max(0.0, seconds))
    if whole < HOUR:
        return f"{whole // MINUTE}:{whole % MINUTE:02d}"
    return f"{whole // HOUR}h{whole % HOUR // MINUTE:02d}"


def left_words(seconds: float) -> str:
    """An estimate, no finer than it is good for: `~8 s left`, `~5:10 left`, `~9 min left`."""
    if seconds < 10:
        return f"~{seconds:.0f} s left"
    if seconds < MINUTE:
        return f"~{_round(seconds, 5)} s left"
    if seconds < 9 * MINUTE:
        return f"~{clock(_round(seconds, 10))} left"
    if seconds < 100 * MINUTE:
        return f"~{_round(seconds, MINUTE) // MINUTE} min left"
    return f"~{clock(_round(seconds, 5 * MINUTE))} left"


def _round(seconds: float, step: int) -> int:
    return round(seconds / step) * step


def count_words(figures: Figures) -> str:
    """`run 4/9`, `12.3/377 GiB`, `43 %`, `2:05/10:00`; without a whole `812.0 MiB`, `point 4`."""
    done, total, unit = figures
    if unit == "B":
        if total is not None and total >= GIB:
            whole = f"{total / GIB:.1f}" if total < 100 * GIB else f"{total / GIB:.0f}"
            return f"{max(0.0, done) / GIB:.1f}/{whole} GiB"
        of = f" of {format_bytes(total)}" if total is not None else ""
        return f"{format_bytes(max(0.0, done))}{of}"
    if unit == "s":
        return clock(done) if total is None else f"{clock(done)}/{clock(total)}"
    if unit == "%" and (known := share(done, total)) is not None:
        return f"{100 * known:.0f} %"
    of = f"/{total:.0f}" if total is not None else ""
    name = "" if unit == "%" else clean(unit, 20)
    return f"{name} {done:.0f}{of}".strip()


def far_words(progress: Progress, left: float | None, message: str = "") -> str:
    """A progress for a line of a log: `run 4/9, 44 %, ~5:10 left`, without what it `message`."""
    count = count_words(progress.figures)
    words = [count] if count not in message else []
    if progress.share is not None and progress.figures.unit != "%":
        words.append(f"{100 * progress.share:.0f} %")
    return ", ".join(words + ([left_words(left)] if left is not None else []))


class Pace:
    """Which words about something long are worth a line of a log: the first, those at each tenth
    of what it counts, and others ever more seldom, so that an hour is some seventy lines."""

    def __init__(self) -> None:
        self._of: object = None
        self._tenth = -1
        self._due = 0.0
        self._gap = FIRST_GAP_S

    def due(self, of: object, progress: Progress | None, now: float) -> bool:
        """Whether to print what is told now, in monotonic seconds; `of` names what is long."""
        share = progress.share if progress is not None else None
        tenth = int(10 * share) if share is not None else self._tenth
        if self._of != of:
            self._of, self._gap = of, FIRST_GAP_S
        elif tenth == self._tenth and now < self._due:
            return False
        else:
            self._gap = min(LONGEST_GAP_S, self._gap * 1.5)
        self._tenth, self._due = tenth, now + self._gap
        return True


# -- what programs print ---------------------------------------------------------------------------

_STEP = re.compile(r"^Step (\d{1,4})/(\d{1,4}) : ")
"""Of the older builder of Docker."""
_STAGE = re.compile(r"^#\d+ \[(?:([^\]]{1,80}?) )?\s*(\d{1,3})/(\d{1,3})\] ")
"""Of BuildKit: `#12 [builder 3/7] RUN …`."""
_INNER = re.compile(r"^(?:#\d+ +\d+\.\d+ )?\[ *(\d{1,6})/(\d{1,6})\] ")
"""Of ninja, in a build of an image too: `#12 93.1 [12/345] Building …`."""
_PERCENT = re.compile(r"^(?:#\d+ +\d+\.\d+ )?\[ *(\d{1,3})%\] ")
"""Of make with CMake: `[ 43%] Building …`."""
_BAR = re.compile(r"(?<![\d.])(\d{1,3})%(?:\||  ?Completed)")
"""Of tqdm, and of the engines that load checkpoints with it: `43% Completed | 3/7`."""
_SHARDS = re.compile(r"% Completed \| (\d{1,4})/(\d{1,4})")
_DOTS = re.compile(r"(?:^|\s)(\.{4,100})\s*\Z")
"""Of llama.cpp: a dot for each percent that is loaded."""


class Printed:
    """The progress that a command's output tells, in the newest of the forms that it uses."""

    def __init__(self) -> None:
        self.figures: Figures | None = None
        """None while the output has told nothing."""
        self._stages: dict[str, tuple[int, int]] = {}

    def take(self, lines: Iterable[str]) -> None:
        """Take these lines of output, in their order."""
        for line in lines:
            self.figures = self._line(line[:400].strip()) or self.figures

    def _line(self, line: str) -> Figures | None:
        if stage := _STAGE.match(line):
            name, number, of = stage[1] or "", int(stage[2]), int(stage[3])
            self._stages[name] = (max(number, self._stages.get(name, (0, 0))[0]), of)
            done = sum(max(0, at - 1) for at, _ in self._stages.values())
            return Figures(done, sum(most for _, most in self._stages.values()), "step")
        if step := _STEP.match(line):
            return _counted(int(step[1]) - 1, int(step[2]), "step")
        if inner := _INNER.match(line):
            return _counted(int(inner[1]), int(inner[2]), "file")
        if percent := _PERCENT.match(line) or _BAR.search(line):
            return _counted(int(percent[1]), 100, "%")
        return None


def _counted(done: int, total: int, unit: str) -> Figures | None:
    return Figures(done, total, unit) if 0 <= done <= total and total else None


def loaded(log: str) -> Figures | None:
    """How much of a model is loaded, by the end of its server's log; None if it does not say."""
    last = log.replace("\r", "\n").rstrip("\n").rpartition("\n")[2]
    if shards := _SHARDS.search(last):
        return _counted(int(shards[1]), int(shards[2]), "shard")
    if bar := _BAR.search(last):
        return _counted(int(bar[1]), 100, "%")
    if dots := _DOTS.search(last):
        return Figures(len(dots[1]), 100, "%")
    return None
