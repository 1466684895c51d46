"""Several runs side by side: what differs, what was measured, what went wrong."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.run.compare import INPUTS, as_json, compare, lines, markdown
from console.run.view import RunView
from tests.ground.harmful import harmful
from tests.run.unit import reported
from tests.run.unit.hostile import BAD, check_harmless, tables, view


def attempts() -> list[tuple[RunView, str]]:
    slow, fast = reported.no_go(), reported.soaked()
    fast.run_id, fast.inputs = f"{fast.run_id[:-4]}9f3c", {"split": "layer", "port": 8001}
    fast.created += 86_400
    return [(fast, "rolled_back"), (slow, "rolled_back")]


def test_attempts_stand_oldest_first_with_what_differs() -> None:
    made = compare(attempts())
    assert [one.short for one in made.attempts] == ["1a2b", "9f3c"]
    assert (made.inputs, made.same) == (("split",), {"port": "8001"})
    assert made.metrics[:3] == ("tok_s", "prompt_tok_s", "ttft_s"), "what all have comes first"
    slow, fast = made.attempts
    assert slow.metrics["tok_s"] == "6.1 tok/s (-43.3 %)"
    assert fast.metrics["tok_s"] == "21.34 tok/s (+98.5 %)"
    assert fast.metrics["stability"] == "99.1 %"
    assert slow.outcome == "NO-GO (retain), rolled_back"
    assert slow.wrong.startswith("bench.tok_s 6.1 tok/s misses >= 20 tok/s")


def test_runs_of_different_playbooks_have_their_inputs_in_one_column() -> None:
    found = attempts()
    found[0][0].playbook = "other"
    made = compare(found)
    assert made.inputs == (INPUTS,)
    assert made.attempts[0].inputs[INPUTS] == "split=graph"
    assert "split=graph" in "\n".join(lines(made, 80))


def test_a_step_that_failed_an_override_and_a_slow_baseline_are_said() -> None:
    rows = reported.trial(6.1)
    reported.done(rows, rows[-1][0], "soak", 5.0, "failed", cause="not_ready", detail="died",
                  lines=["CUDA error"])  # fmt: skip
    made = reported.view_of(reported.ending(rows, "failed", degraded=True))
    made.verdicts[0].overridden = "ann: seen"
    one = compare([(made, "failed"), *attempts()]).attempts[0]
    assert one.wrong == (
        "step soak failed (not_ready): died; it said: CUDA error; OVERRIDDEN by ann: seen; "
        "the baseline came back DEGRADED"
    )
    assert one.outcome == "no decision, failed"


def test_the_same_metric_of_two_steps_is_named_with_its_step() -> None:
    made = reported.no_go()
    made.metrics["again"], made.benchmarks["again"] = made.metrics["bench"], {}
    assert compare([(made, "failed"), *attempts()]).metrics[0] == "bench.tok_s"


@pytest.mark.parametrize("width", [40, 80, 100, 300])
def test_it_fits_the_terminal(width: int) -> None:
    found = lines(compare(attempts()), width)
    assert all(len(line) <= width for line in found)
    text = "\n".join(found)
    for words in ("1a2b", "9f3c", "6.1 tok/s (-43.3 %)", "split", "port=8001"):
        assert words in text
    assert ("split=graph" in text) == (width < 300), "a table has columns instead"


def test_at_eighty_columns_each_attempt_is_a_block() -> None:
    found = lines(compare(attempts()), 80)
    assert re.fullmatch(
        r"1a2b  \S+ \d\d:\d\d  ik-llama-phase2  NO-GO \(retain\), rolled_back", found[0]
    )
    assert found[1] == "  split=graph"
    assert found[2] == "  tok_s 6.1 tok/s (-43.3 %)   prompt_tok_s 56.12 tok/s (-43.3 %)"
    assert found.index("") == 5


def test_as_markdown_it_is_one_table_and_as_json_it_has_numbers() -> None:
    made = compare(attempts())
    assert len(tables(markdown(made))) == 1
    assert "| `graph` | 6.1 tok/s (-43.3 %) |" in markdown(made)
    assert "The same in all: `port` `8001`." in markdown(made)
    found = json.loads(json.dumps(as_json(made)))
    assert found["attempts"][0]["metrics"]["tok_s"] == 6.1
    assert found["attempts"][0]["metrics"]["stability"] is None
    assert found["inputs_that_differ"] == ["split"]


@given(st.text(st.one_of(st.characters(), st.sampled_from("|\\`\x1b\n\r#<*](")), max_size=40))
def test_any_text_keeps_the_table_in_shape(text: str) -> None:
    made = compare([(view(text), text), (view("ok"), "failed"), (RunView(), "pending")])
    check_harmless(markdown(made))
    assert [bad for line in lines(made, 80) for bad in harmful(line)] == []


def test_hostile_text_breaks_nothing() -> None:
    made = compare([(view(BAD), BAD), (view("ok"), "failed")])
    assert len(tables(markdown(made))) == 1
    assert all(len(line) <= 80 for line in lines(made, 80))
