"""Loading a playbook: every problem in one pass, each with its place, nothing ignored."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.common.errors import InvalidFile, UsageError
from console.config.playbook.load import load_playbook
from tests.playbook.book import Book, steps_text

NOTE = steps_text("{id: a, note: hi}")


def test_the_smallest_playbook(book: Book) -> None:
    loaded = book.load(NOTE)
    assert (loaded.name, loaded.base) == ("x", book.path.parent)
    assert [(phase, s.id, s.kind) for phase, s in loaded.steps()] == [("p", "a", "note")]


def test_the_digest_is_that_of_the_text(book: Book) -> None:
    first, second = book.load(NOTE), book.load(NOTE + "# another\n")
    assert first.digest == book.load(NOTE).digest != second.digest
    assert len(first.digest) == 64


def test_a_gate_on_a_broken_step_is_not_reported_on_top_of_it(book: Book) -> None:
    broken = "{id: b, benchmark: {service: cand, runs: none}}"
    (said,) = book.step_problems(broken, "{id: g, gate: [{metric: b.tok_s, go: '>= 2'}]}")
    assert "'runs' is 'none'" in said


def test_outputs_can_be_judged_in_their_unit(book: Book) -> None:
    measured = "{id: m, run: [x], outputs: {size: {pattern: '([0-9]+)', unit: B}}}"
    book.steps(measured, "{id: g, gate: [{metric: m.size, go: '<= 20GiB'}]}")
    (said,) = book.step_problems(measured, "{id: g, gate: [{metric: m.size, go: '<= 20'}]}")
    assert said.startswith("<= 20 ")


def test_a_service_of_the_site_cannot_be_taken(book: Book) -> None:
    (said,) = book.problems(
        "services: {cand: {process: {argv: [x]}, url: 'http://a:1'}}\n" + NOTE,
        site_services=frozenset({"cand"}),
    )
    assert said.startswith("4:12: service 'cand'")


def test_services_of_the_site_can_be_used(book: Book) -> None:
    loaded = book.steps("{id: a, service: {start: other}}", site_services=frozenset({"other"}))
    assert next(loaded.steps())[1].service.target == "other"


def test_what_finally_may_do(book: Book) -> None:
    for kind in ("run: [x]", "script: x", "note: x", "report: {}"):
        loaded = book.load(NOTE + f"finally: [{{id: z, {kind}}}]\n")
        assert [s.id for s in loaded.model.finally_] == ["z"]


def test_what_a_cutover_may_do(book: Book) -> None:
    up, back = "{id: up, service: {start: cand}}", "{id: cut, cutover: {to: cand}}"
    for steps in (
        (up, back), (up, "{id: cut, cutover: {to: cand, then: stay}}", "{id: n, note: x}"),
        (up, back, "{id: up2, service: {start: cand}}", "{id: cut2, cutover: {to: cand}}"),
        (up, "{id: c, cutover: {to: cand, port: 8000, listen: 0.0.0.0, watch: 1h, every: 5s}}"),
    ):  # fmt: skip
        assert book.steps(*steps)


def test_what_cannot_be_used_says_where_the_format_is(book: Book) -> None:
    with pytest.raises(InvalidFile) as caught:
        book.load("", head="")
    assert "docs/reference/playbooks.md" in caught.value.hint


def test_planning_refuses_everything_else(book: Book) -> None:
    assert "unknown key" in book.problems(NOTE + "nope: 1\n", planning=True)[0]


def test_an_unknown_input_on_the_command_line(book: Book) -> None:
    with pytest.raises(UsageError, match="'prot'") as caught:
        book.load("inputs: {port: {type: int, default: 1}}\n" + NOTE, {"prot": "1"})
    assert "port" in caught.value.detail


def test_the_shipped_playbook_loads() -> None:
    path = Path(__file__).parents[2] / "playbooks" / "demo.yaml"
    assert load_playbook(path, site_services=frozenset({"fast", "slow"})).name == "demo"
