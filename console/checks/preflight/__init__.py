"""What can be known before paying for a load or download: architecture, size, memory, host. Each
check returns findings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from console.common.text import one_line

WORDS_LIMIT = 600


class Level(StrEnum):
    """How much a finding matters. `unknown` means that a fact is missing: never good news."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was checked, what was found, what to do next; one line each.

    `lessons` are ids of the operator's registry (F-008, S-005); `source` says where a rule comes
    from, empty for what was seen on this machine; `place` is the file and line it is about, if any.
    `holds`: from which release on, where that is not known of the engine at hand.
    """

    level: Level
    title: str
    words: str
    hint: str = ""
    lessons: tuple[str, ...] = ()
    source: str = ""
    place: str = ""
    holds: str = ""

    def __post_init__(self) -> None:
        # Whatever a check was told by an engine, a driver or an image ends here.
        limits = {"title": 80, "words": WORDS_LIMIT, "hint": WORDS_LIMIT, "place": 300}
        for name, limit in limits.items():
            object.__setattr__(self, name, one_line(getattr(self, name), limit))

    @property
    def text(self) -> str:
        """The finding as one line without its hint: `fail  title: words (F-008)`, the title after
        its place if it has one."""
        cited = f" ({', '.join(self.lessons)})" if self.lessons else ""
        where = f"{self.place}: " if self.place else ""
        return f"{self.level:<7} {where}{self.title}: {self.words}{cited}"


_ORDER = (Level.OK, Level.WARN, Level.UNKNOWN, Level.FAIL)


def worst(findings: Iterable[Finding]) -> Level:
    """The worst level, which decides; OK without findings."""
    return max((finding.level for finding in findings), key=_ORDER.index, default=Level.OK)
