"""Lessons as lines of clean text, for a shell and for a screen alike. Pure."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator
from datetime import date

from console.common.text import clean
from console.common.units import plural
from console.config.lessons.registry import KINDS, Lesson, LessonModel, Registry, due_by

Line = tuple[str, str]
"""A line and its tone: "", bold, dim, good, warn, bad, accent."""

LABEL = 13
_TONES = {
    "blocked": "bad", "rejected": "bad", "open": "warn", "deferred": "warn", "draft": "warn",
    "superseded": "dim", "worked": "good", "resolved": "good", "resurrected": "good",
}  # fmt: skip


def tone_of(lesson: Lesson) -> str:
    return _TONES.get(lesson.model.status, "")


def row(lesson: Lesson) -> str:
    """`F-022   blocked      2026-01-27  Loading Meituan's INT8 weights took the machine down`."""
    model = lesson.model
    own = " (yours)" if lesson.own else ""
    return f"{model.id:<7} {model.status:<12} {model.date}  {clean(model.title)}{own}"


def entry(registry: Registry, lesson: Lesson, width: int, today: date) -> list[Line]:
    """A whole lesson, at most `width` wide except for code; empty parts are left out."""
    model = lesson.model
    out: list[Line] = [(text, "bold") for text in _wrap(f"{model.id}  {clean(model.title)}", width)]
    out += [(text, tone_of(lesson)) for text in _wrap(_head(model), width)]
    for label, texts, tone in _parts(registry, lesson, today):
        out += list(_block(label, texts, width, tone))
    for label, code, tone in (("wrong", model.wrong, "bad"), ("right", model.right, "good")):
        out += _code(label, code, tone)
    out += [("", ""), (clean(f"{'yours: ' if lesson.own else ''}{lesson.path}"), "dim")]
    return out


def due_words(lesson: Lesson, today: date) -> str:
    """`due since 2026-04-27 (209 days)`, or when it will be due."""
    day = lesson.model.due or ""
    days = (today - date.fromisoformat(day)).days if day else 0
    if not day:
        return "no date"
    if days <= 0:
        return f"due on {day}" if days else f"due today, {day}"
    return f"due since {day} ({plural(days, 'day')})"


def _head(model: LessonModel) -> str:
    facts = [KINDS[model.id[0]], model.status, model.severity, model.date]
    facts += [f"updated {model.updated}" if model.updated else "", model.version, model.component]
    return ", ".join(clean(fact) for fact in facts if fact)


def _parts(registry: Registry, lesson: Lesson, today: date) -> Iterator[tuple[str, list[str], str]]:
    """(label, paragraphs, tone) in reading order."""
    model = lesson.model
    yield "lesson", [model.lesson], "bold"
    yield "contradicts", _contradictions(registry, model), "warn"
    yield "seen", [model.symptom], ""
    yield "because", [model.cause], ""
    yield "tried", [f"{attempt.what}: {attempt.result}" for attempt in model.tried], ""
    yield "done", [model.resolution], ""
    yield "evidence", list(model.evidence), ""
    yield "in runs", list(model.runs), ""
    yield (
        "history",
        [f"{change.date} {change.status}: {change.words}" for change in model.history],
        "",
    )
    yield (
        "avoid",
        [
            f"{quick_row.avoid}: {quick_row.why}. Rather {quick_row.instead}"
            for quick_row in model.quick
        ],
        "",
    )
    yield "asked", [f"{exchange.question} {exchange.answer}" for exchange in model.questions], ""
    yield "since then", list(model.notes), "accent"
    yield "see", [f"{_titled(registry, link.to)} – {link.words}" for link in model.links], ""
    yield "linked from", [", ".join(registry.linking_to(model.id))], "dim"
    yield "lint rules", [", ".join(model.rules)], ""
    yield "sources", [", ".join(model.sources)], ""
    yield "review", _review(lesson, today), "warn" if due_by(lesson, today) else ""


def _review(lesson: Lesson, today: date) -> list[str]:
    model = lesson.model
    if model.due is None and model.recheck is None:
        return []
    paragraphs = [due_words(lesson, today)]
    paragraphs += [model.review] if model.review else []
    if model.recheck is not None:
        paragraphs.append(f"{model.recheck.words}: $ {shlex.join(model.recheck.output)}")
    return paragraphs


def _contradictions(registry: Registry, model: LessonModel) -> list[str]:
    """Its own contradictions, then those that only other lessons state."""
    paragraphs, lesson_ids = [], {to for conflict in model.contradictions for to in conflict.with_}
    for contradiction in model.contradictions:
        others = ("with itself" if other == model.id else other for other in contradiction.with_)
        paragraphs.append(f"{', '.join(others)}: {contradiction.words}")
    return paragraphs + [
        f"told in {other.id}: {conflict.words}"
        for other, conflict in registry.contradicting(model.id)
        if other.id not in lesson_ids
    ]


def _titled(registry: Registry, lesson_id: str) -> str:
    other = registry.get(lesson_id)
    return f"{lesson_id} {other.model.title}" if other else lesson_id


def _block(label: str, texts: list[str], width: int, tone: str) -> Iterator[Line]:
    texts = [clean(" ".join(text.split())) for text in texts if text.strip()]
    if texts:
        yield "", ""
    narrow = width < 50
    lead = " " * (2 if narrow else LABEL)
    if texts and narrow:
        yield label, "dim"
    for at, text in enumerate(texts):
        first = f"{label:<{LABEL}}" if not at and not narrow else lead
        sign = "- " if len(texts) > 1 else ""
        lines = textwrap.wrap(
            text, max(20, width), initial_indent=first + sign,
            subsequent_indent=lead + " " * len(sign), break_on_hyphens=False,
        )  # fmt: skip
        yield from ((line, tone) for line in lines)


def _code(label: str, code: str, tone: str) -> list[Line]:
    lines = [(f"    {clean(line)}".rstrip(), tone) for line in code.splitlines()]
    return [("", ""), (label, tone), *lines] if lines else []


def _wrap(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(20, width), break_on_hyphens=False)
