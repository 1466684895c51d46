"""Several runs side by side, as numbers and with any text; their words are in test_words."""

from __future__ import annotations

import json

from hypothesis import example, given
from hypothesis import strategies as st

from console.journal.run_view import RunView
from console.render.report.compare import as_json, compare, lines, markdown
from tests.ground.harmful import harmful
from tests.run.unit.hostile import BAD, check_harmless, tables, view
from tests.run.unit.shown import attempts


def test_as_json_it_has_numbers() -> None:
    made = compare(attempts()[-2:])
    assert [one.short for one in made.attempts] == ["0000", "0001"], "oldest first"
    found = json.loads(json.dumps(as_json(made)))
    assert found["attempts"][0]["metrics"]["tok_s"] == 6.1
    assert found["attempts"][0]["metrics"]["stability"] is None
    assert found["inputs_that_differ"] == ["split"]


@given(st.text(st.one_of(st.characters(), st.sampled_from("|\\`\x1b\n\r#<*](")), max_size=40))
@example(BAD)
def test_any_text_keeps_the_table_in_shape(text: str) -> None:
    made = compare([(view(text), text), (view("ok"), "failed"), (RunView(), "pending")])
    check_harmless(markdown(made))
    assert len(tables(markdown(made))) == 1
    shown = lines(made, 80)
    assert [bad for line in shown for bad in harmful(line)] == []
    assert all(len(line) <= 80 for line in shown)
