"""A contract step in the report: its words, its rows, and what it makes of odd records."""

import re
from typing import Any

import pytest

from console.journal.run_view import RunView, StepMeasurement
from console.journal.store import event_of
from console.render.report.contract import MAX_ROWS, contract_lines
from tests.common.harmful import harmful

ROW = {"case": "haiku", "group": "answers", "part": "content", "fact": "text",
       "before": 'token 1: "a" (p 0.9)', "after": '"b" (p 0.4)'}  # fmt: skip


def said(**more: Any) -> str:
    found = {"of": "cand", "against": "the baseline", "words": "same tools", "compared": 47, **more}
    return "\n".join(
        contract_lines(RunView(measured={"like": StepMeasurement(contract=found)}), "like")
    )


def test_it_says_what_is_different_and_what_is_noise() -> None:
    text = said(changes=[ROW], noisy=["sql"], own_noise=["code", "list"], apart=["mine"])
    assert text.startswith(
        "## Answers of cand (`like`)\n\nAgainst the baseline, in 47 cases: **same"
    )
    for line in (
        '| `haiku` | text | `token 1: "a" (p 0.9)` | `"b" (p 0.4)` |',
        "The baseline differs from itself in sql.", "It differs from itself in code, list.",
        "Asked of one of them only: mine.",
    ):  # fmt: skip
        assert line in text


def test_what_has_no_room_is_counted() -> None:
    text = said(changes=[ROW] * (MAX_ROWS + 2), all=300, file="/x/like.1.contract.json")
    assert text.count("| `haiku` |") == MAX_ROWS
    assert "And 260 more; every answer is in `/x/like.1.contract.json`." in text


def test_nothing_of_a_server_reaches_the_page_as_it_is() -> None:
    hostile = "\x1b[31m| **x** <script> `y`"
    row = {**ROW, "before": hostile, "after": hostile, "case": hostile, "fact": hostile}
    text = said(changes=[row], words=hostile, of=hostile, noisy=[hostile])
    assert harmful(text.replace("\n", "")) == []
    prose = re.sub(r"(?<!\\)`[^`\n]*`", "", text)
    assert not re.search(r"(?<!\\)<script", prose)


@pytest.mark.parametrize("odd", [None, 3, ["x", 4], [{"case": 3, "before": {}}], {}])
def test_an_odd_record_is_no_traceback(odd: Any) -> None:
    assert said(changes=odd, noisy=odd, compared=odd, all=odd).startswith("## Answers of cand")


@pytest.mark.parametrize("odd", [{"changes": ["x"]}, {"noisy": 3}, {"changes": {}}])
def test_an_odd_event_is_left_out(odd: Any) -> None:
    assert event_of(1, 1.0, "metrics", "like", 1, {"contract": odd}).odd
    assert not event_of(1, 1.0, "metrics", "like", 1, {"contract": {"changes": [ROW]}}).odd
