"""The baseline in one line, and the emergency key in the same: always in view."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from console.common.units import format_duration
from console.render.glyph import glyphs
from console.render.keymap import EMERGENCY
from widgets.rows import Row, Rows, spread, width_of

if TYPE_CHECKING:
    from console.frontends.tui.watch.baseline import BaselineView

TONE = {
    "serving": "good", "degraded": "warn", "loading": "warn", "stopped": "bad",
    "cut over": "warn", "unhealthy": "bad", "unknown": "dim", "none": "dim",
}  # fmt: skip


def badge(view: BaselineView | None, now: float, width: int) -> Row:
    """`● SERVING deepseek-r1  10.9 tok/s, proven 14:03`; words before colour, cut from the end."""
    if view is None:
        return (("baseline: looking ", "dim"), (glyphs().ellipsis, "dim"))
    if view.word == "none":
        return (("no baseline known: ", "bold"), ("no site file and no run yet", "dim"))
    tone = TONE.get(view.word, "dim")
    row: list[tuple[str, str]] = [
        (f"{glyphs().dot} {view.word.upper()}", tone), (f" {view.name}", "bold"),
    ]  # fmt: skip
    facts = []
    if view.tok_s is not None and view.word in ("serving", "degraded", "loading"):
        of = f" of {view.reference:g}" if view.reference and view.word == "degraded" else ""
        facts.append(f"{rate(view.tok_s)}{of} tok/s")
    if view.proven_at:
        facts.append(f"proven {_when(view.proven_at, now)}")
    elif view.word == "serving":
        facts.append("not proven yet: v asks it")
    if view.word not in ("serving", "degraded") and view.detail:
        facts.insert(0, view.detail)
    for fact in facts:
        if width_of(row) + len(fact) + 2 <= width or fact is view.detail:
            row.append((f"  {fact}", "" if fact is not view.detail else tone))
    return tuple(row)


def rate(tok_s: float) -> str:
    """Tokens a second, three figures: 3.68, 10.9, 205, 6150."""
    return f"{tok_s:.3g}" if tok_s < 999.5 else f"{tok_s:.0f}"


def _when(at: float, now: float) -> str:
    """A time of day; with the date where it is older than half a day."""
    form = "%H:%M:%S" if now - at < 43_200 else "%Y-%m-%d %H:%M"
    return time.strftime(form, time.localtime(at))


def emergency(
    live: bool, climb: str, restore_s: float | None, readonly: bool, width: int = 80
) -> Row:
    """What the emergency key does now, and how long it takes; shorter where it is narrow."""
    key = EMERGENCY.first
    if readonly:
        return (("READ-ONLY", "warn"), (" omni-console rollback from a shell", "dim"))
    if climb:
        return (
            (climb.upper(), "alarm" if climb == "rolling back" else "warn"),
            (f" {key} shows it", ""),
        )
    back = "" if restore_s is None else f", back in {format_duration(restore_s)}"
    if live:
        words = f" stops candidates, restores the baseline{back or ', time not measured yet'}"
        if len(words) + 5 > width:
            words = f" restores the baseline{back}"
        return ((f" {key} ", "alarm"), (words, "bold"))
    return ((f"{key} restores the baseline{back}", "dim"),)


class BaselineBadge(Rows):
    """Badge and emergency line: one row where both fit, two where they do not."""

    def draw(self, left: Row, right: Row, width: int) -> None:
        if width_of(left) + width_of(right) + 2 <= width:
            self.show([spread(left, right, width)])
        else:
            self.show([left, right])
