"""What a rollback measures while others use the baseline, and answers of which one is garbled: said
with the rate, and in the words of the state."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from console.common.clock import SystemClock
from console.recovery.rollback import evidence
from console.recovery.rollback.baseline_state import Word
from console.recovery.rollback.context import RollbackContext
from console.recovery.rollback.procedure import Procedure
from console.recovery.rollback.progress import Line, Report, Result, new_trigger
from console.recovery.rollback.sealed_plan import Proof, SealedPlan
from console.recovery.rollback.stages import measure
from console.runtime.answers.completion import Completion
from console.runtime.occupancy import Occupancy
from tests.rollback.conftest import Stage, serving


def beside(stage: Stage, lines: Path, rate: float, **told: Any) -> tuple[SealedPlan, Result]:
    """How a rollback of a baseline that answers at this rate ends, of a reference of 50 tok/s."""
    stage.base(reference_tok_s=50.0)
    plan = replace(stage.plan, site_name="used")
    serving(stage, lines, rate=rate, **told)
    return plan, Procedure(plan, emit=stage.lines.append).run()


def test_a_rate_beside_requests_of_others_degrades_nobody(stage: Stage, lines: Path) -> None:
    busy = [{"id": 0, "id_task": 7, "is_processing": True}, {"id": 1, "is_processing": False}]
    plan, result = beside(stage, lines, 12.0, slots=busy)
    assert (result.serving, result.degraded, result.tok_s) == (True, False, 12.0)
    assert result.beside == "1 request of others"
    [words] = stage.said("measure", "ok")
    assert words == (
        "12.00 tok/s, reference 50.00; measured beside others (1 request of others)"
    )  # fmt: skip
    state = evidence.state(plan)
    assert (state.word, state.proven) == (Word.SERVING, True)
    assert "12 tok/s beside others" in state.speed_words(time.time())


def test_a_rate_beside_connected_clients_degrades_nobody(stage: Stage, lines: Path) -> None:
    stage.base(completion=Proof(timeout_s=5.0))
    with contextlib.ExitStack() as stack:
        stage.start_baseline()
        stage.until_it_is()
        for _ in range(2):
            stack.enter_context(socket.create_connection(("127.0.0.1", stage.port)))
        stage.base(reference_tok_s=50.0)
        lines.write_text(json.dumps({"rate": 12.0}))
        result = stage.roll_back()
    assert (result.serving, result.degraded, result.tok_s) == (True, False, 12.0)
    assert "2 clients are connected, and it does not say for whom it works" in result.beside


def test_a_slow_server_that_nobody_else_uses_is_degraded(stage: Stage, lines: Path) -> None:
    idle = [{"id": 0, "is_processing": False}]
    plan, result = beside(stage, lines, 12.0, slots=idle)
    assert (result.degraded, result.beside) == (True, "")
    assert evidence.state(plan).word is Word.DEGRADED


def test_a_request_of_others_between_two_looks_is_seen_by_its_number() -> None:
    before = Occupancy(0, 2, tasks=frozenset({(0, 4)}), live=True)
    after = Occupancy(0, 2, tasks=frozenset({(0, 9), (1, 7)}), live=True)
    assert measure.beside_words(before, after) == "1 request of others"
    assert measure.beside_words(before, replace(before, tasks=frozenset({(0, 9)}))) == ""
    # a gauge of /metrics may still show the request of ours that has just ended
    assert measure.beside_words(Occupancy(0), Occupancy(1)) == ""
    assert measure.beside_words(Occupancy(0), Occupancy(3)) == "2 requests of others"


def test_one_garbled_answer_of_three_is_in_the_words_of_the_state(
    stage: Stage, lines: Path
) -> None:
    plan = replace(stage.plan, site_name="odd")
    serving(stage, lines)

    def say(line: Line) -> None:
        if (line["rung"], line["state"]) == ("serving", "ok"):
            texts = ["GGGGGGGGGGGG", "I am ready.", "I am ready."]
            lines.write_text(json.dumps({"messages": texts}))

    result = Procedure(plan, emit=say).run()
    assert result.serving
    assert result.remark.startswith("one of three answers was garbled: ")
    state = evidence.state(plan)
    assert (state.word, state.proven) == (Word.SERVING, True)
    [words] = state.reasons
    assert re.fullmatch(r"one of three answers was garbled: .*, at [\d:]+ by a rollback", words)


APART = [  # what a real model of a wrong setting said within 64 tokens; none is garbled by itself
    "Theres.\n\nTheres.\n\nTheres.\n\nTheres.\n\nTheres.\n3\n\n\n\n\n\n\n\n\n\nIThe\n\n\n\n\nI",
    "[111]\n[111]\n[111]\n[111]\n[111]\n[111]You()\n\n\n\n\n\n\n\n\n\nHH\n\n\nH",
    "The 1111111111111111111111111111111 the\n\n\n\n\n\n\n\n\n\nH H",
]
WELL = "I am ready. What would you like to talk about today"


@pytest.mark.parametrize(
    ("texts", "serves"),
    [
        (APART[::2], False), ([APART[0], WELL, APART[2]], False), ([APART[0], WELL, WELL], True),
        ([WELL, APART[1], "GGGGGGGGGGGG"], False),
        ([APART[1], APART[1]], True),  # one kind of sign alone, which a form may have
    ],
)  # fmt: skip
def test_answers_that_fall_apart_are_judged_together(
    stage: Stage, lines: Path, texts: list[str], serves: bool
) -> None:
    plan = replace(stage.plan, site_name="apart")
    serving(stage, lines)

    def say(line: Line) -> None:
        if (line["rung"], line["state"]) == ("serving", "ok"):
            lines.write_text(json.dumps({"messages": texts}))

    stage.base(completion=Proof(timeout_s=5.0))
    result = Procedure(plan, emit=say).run()
    assert result.serving is serves, result
    if not serves:
        assert "garbled, repetition and stray pieces in place of a text: " in result.detail
        assert evidence.state(plan).word is Word.GARBLED


@pytest.mark.parametrize(
    ("works", "words"),
    [
        (True, "others use it"),
        (False, "clients are connected, and it does not say for whom it works"),
    ],
)
def test_others_use_a_slow_server_only_if_it_was_seen_at_work_for_them(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, works: bool, words: str
) -> None:
    stage.base(reference_tok_s=50.0)
    monkeypatch.setattr(measure, "busy", lambda *_, **__: works)
    monkeypatch.setattr(measure, "is_used_silently", lambda _: True)
    plan = stage.plan
    clock = SystemClock()
    report = Report(stage.root / "lines", new_trigger(clock), clock, None)
    context = RollbackContext(plan, clock, report, None)
    samples = measure.Samples()
    late = Completion(False, "no answer", "", 0, 9.0, None)
    assert measure._ends(context, samples, late, 9.0)
    report.close()
    assert (samples.beside, samples.bounds) == (words, [])
