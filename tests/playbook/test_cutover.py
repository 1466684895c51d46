"""`cutover` as it is written, and what has to be true around it."""

from __future__ import annotations

import pytest

from tests.playbook.book import Book, steps_text

SERVICES = """\
services:
  cand: {process: {argv: [x]}, url: "http://127.0.0.1:8001"}
  other: {process: {argv: [x]}, url: "http://127.0.0.1:8002"}
"""
UP = "{id: up, service: {start: cand}}"
BACK = "{id: cut, cutover: {to: cand}}"
STAY = "{id: cut, cutover: {to: cand, then: stay}}"


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ((BACK,), "'cand' is not running when clients are to reach it"),
        ((UP, "{id: cut, cutover: {to: nope}}"), "unknown service 'nope'"),
        ((UP, "{id: cut, cutover: {to: baseline}}"), "unknown service 'baseline'"),
        ((UP, "{id: d, service: {stop: cand}}", BACK), "is not running"),
        ((UP, BACK, "{id: b, benchmark: {service: cand}}"), "stopped by the way back of cutover"),
        ((UP, STAY, "{id: d, service: {stop: cand}}"), "what clients reach by then"),
        ((UP, STAY, "{id: again, cutover: {to: cand}}"), "clients stay at 'cand' already"),
        ((UP, "{id: cut, cutover: {to: cand, watch: 5s}}"), "watch is shorter than every"),
        ((UP, "{id: cut, cutover: {to: cand}, timeout: 1m}"), "timeout ends the watch"),
        ((UP, "{id: cut, cutover: {to: cand}, on_failure: continue}"), "that fails goes back"),
        ((UP, "{id: cut, cutover: {to: cand}, retry: {attempts: 3}}"), "that fails goes back"),
        ((UP, "{id: cut, cutover: {to: cand, then: promote}}"), "'then' is 'promote'"),
    ],
)
def test_what_could_not_work_is_said_when_it_loads(
    book: Book, steps: tuple[str, ...], said: str
) -> None:
    problems = book.problems(SERVICES + steps_text(*steps))
    assert [line for line in problems if said in line] != [], problems


@pytest.mark.parametrize(
    "steps",
    [
        (UP, BACK),
        (UP, STAY, "{id: n, note: x}"),
        (UP, BACK, "{id: up2, service: {start: cand}}", "{id: cut2, cutover: {to: cand}}"),
        (UP, "{id: cut, cutover: {to: cand, port: 8000, listen: 0.0.0.0, watch: 1h, every: 5s}}"),
    ],
)
def test_what_works_loads(book: Book, steps: tuple[str, ...]) -> None:
    book.load(SERVICES + steps_text(*steps))


def test_the_relays_own_name_is_taken(book: Book) -> None:
    text = SERVICES.replace("other:", "cutover:") + steps_text(UP)
    assert [line for line in book.problems(text) if "the console's own relay" in line] != []
