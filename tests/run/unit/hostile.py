"""A run in which every text is what a test says, and what a report of it must not do."""

from __future__ import annotations

import re
from typing import Any

from console.journal.run_view import RunView, fold
from console.journal.store import Event
from tests.ground.harmful import harmful

BAD = "\x1b]52;c;eA==\x07\x1b[31m|\u202e\x9b1m\r\n## Injected\n| a | b |\x00\u2028\ud800\\|<!-- `**"


Rows = list[tuple[str, str, dict[str, Any]]]


def begun(text: str) -> Rows:
    steps = [
        {"id": "a", "title": text, "phase": text, "kind": "run", "takes_s": 5.0},
        {"id": "g", "title": text, "phase": text, "kind": "gate"},
        {"id": "s", "title": text, "phase": text, "kind": "soak"},
    ]
    return [
        ("run.created", "", {
            "run_id": "r1", "title": text, "playbook": text, "site": text, "owner": text,
            "inputs": {"port": 8001, text: text}, "steps": steps, "objective": text,
            "digest": text, "lessons": [text], "version": text,
            "targets": [{"gate": "g", "metric": text, "of": text, "go": text, "no_go": text}],
            "baseline": {"url": text, "runs": [text], "args": [text], "reference": 10.75},
            "machine": {"kernel": text, "cpu": text, "driver": text, "cards_why": text,
                        "cards": [{"uuid": text, "name": text, "memory": 1}], "cores": 2},
        }),
        ("step.state", "a", {"state": "running", "effects": [text]}),
        ("step.state", "a", {
            "state": "failed", "cause": "exit_code", "detail": text, "lines": [text, text],
            "duration_s": 2.0,
        }),
    ]  # fmt: skip


def seen(text: str, figures: dict[str, Any]) -> Rows:
    bench = {
        "model": text, "build": text, "flags": [text], "url": text, "voids": [{"reason": text}],
        "cold": {"tok_s": 1.0}, "levels": [{"streams": text, "valid": text}],
        "context": {"server": {"argv": [text], "image": text},
                    "cards": {text: {"name": text, "slowed": {text: 1}}}},
    }  # fmt: skip
    soak = {
        "errors": {text: 2}, "hangs": [{"t": 1.0, "what": text}], "critical": [text],
        "restarts": [{"t": 1.0, "what": text}], "early": text, "last_error": text,
    }  # fmt: skip
    asked = {"value": 3, "unit": text, "n": 3, "why": text}
    point = {"phase": text, "at_s": None, "ram": 5, "page_cache": 0, "vram": {text: 7}, "swap": 0}
    return [
        ("metrics", "a", {
            "metrics": {"tok_s": figures, text: {"value": None}}, "benchmark": bench,
        }),
        ("metrics", "s", {
            "metrics": {"requests": asked, text: {"value": 1.0, "unit": text}}, "soak": soak,
        }),
        ("peaks", "s", {"gpu": {text: {"used": None, "why": {"used": text}}},
                        "host": {"ram_used": 5, "why": {"swap_used": text}}, "n": 1}),
        ("envelope", "a", {"envelope": {"schema": 1, "points": [point]}}),
    ]  # fmt: skip


def view(text: str = "ok", state: str = "failed", **figures: Any) -> RunView:
    """A run in which every text of the journal is `text`."""
    figures = {"value": 20.0, "unit": "tok/s", "n": 9, "median": 19.5, **figures}
    criteria = [{"metric": text, "verdict": "NO-GO", "why": text}]
    rows = [
        *begun(text), *seen(text, figures),
        ("verdict", "g", {
            "verdict": "NO-GO", "outcome": text, "criteria": criteria, "overridden": text,
        }),
        ("verb", "a", {"verb": "skip", "who": text, "why": text}),
        ("serving", "", {"tok_s": 10.5, "degraded": True}),
        ("run.state", "", {"state": state, "reason": text}),
    ]  # fmt: skip
    return fold(
        Event(seq, 1000.0 + seq, kind, step, 1, data)
        for seq, (kind, step, data) in enumerate(rows, 1)
    )


def columns(row: str) -> int:
    """Cells of a table row, as a Markdown reader splits it."""
    return len(re.findall(r"(?:\\[\\|]|[^|])*\|", row)) - 1


def tables(text: str) -> list[list[str]]:
    found: list[list[str]] = [[]]
    for line in text.split("\n"):
        if line.startswith("|"):
            found[-1].append(line)
        elif found[-1]:
            found.append([])
    return [table for table in found if table]


def check_harmless(text: str) -> None:
    assert [found for line in text.split("\n") for found in harmful(line)] == []
    for table in tables(text):
        assert len({columns(row) for row in table}) == 1, table
    for line in text.split("\n"):
        if not line.startswith("    "):  # a block is literal
            outside = re.sub(r"(?<!\\)`[^`]*`", "", line)
            assert not re.search(r"(?<!\\)(\\\\)*<[A-Za-z/!?]", outside), line
