"""Several runs side by side: what differs, what was measured, what went wrong."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from console.run.compare import as_json, compare, lines, markdown
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


def test_the_same_metric_of_two_steps_is_named_with_its_step() -> None:
    made = reported.no_go()
    made.metrics["again"], made.benchmarks["again"] = made.metrics["bench"], {}
    assert compare([(made, "failed"), *attempts()]).metrics[0] == "bench.tok_s"


def test_it_fits_the_terminal() -> None:
    for width in (40, 80, 100, 300):
        found = lines(compare(attempts()), width)
        assert max(map(len, found)) <= width
        text = "\n".join(found)
        for words in ("1a2b", "9f3c", "6.1 tok/s (-43.3 %)", "split", "port=8001"):
            assert words in text, width


def test_as_json_it_has_numbers() -> None:
    found = json.loads(json.dumps(as_json(compare(attempts()))))
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
