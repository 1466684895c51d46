"""All checks together: order, deadlines, and checks that break."""

import os
import threading
from collections.abc import Iterator

import pytest

from console.checks.doctor import baseline
from console.checks.doctor.facts import GROUPS, Answer, Check, Facts, Finding, Level, begun
from console.checks.doctor.run import CHECKS, counts, in_order, iterate, run
from console.common.errors import ConsoleError
from tests.common.harmful import harmful
from tests.doctor.conftest import PATIENT_S


def quick(facts: Facts, check: Check) -> Iterator[Finding]:
    yield check.ok("fine")


class Stuck:
    """A check that hangs until it is let go; which of its threads are left can be asked."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.begun = threading.Event()
        self.threads: list[threading.Thread] = []

    def __call__(self, facts: Facts, check: Check) -> list[Finding]:
        self.threads.append(threading.current_thread())
        self.begun.set()
        assert self.gate.wait(PATIENT_S)
        return [check.ok("late")]

    def end(self) -> None:
        self.gate.set()
        for thread in self.threads:
            thread.join(PATIENT_S)


@pytest.fixture
def stuck() -> Iterator[Stuck]:
    hanging = Stuck()
    yield hanging
    hanging.end()


def test_a_check_that_hangs_holds_up_nobody(stuck: Stuck) -> None:
    checks = (Check("gpu.cards", "cards", stuck), Check("machine.kernel", "kernel", quick))
    answers = iterate(checks=checks, deadline_s=PATIENT_S)
    first = next(answers)
    assert (first.position, first.findings[0].detail) == (1, "fine")
    stuck.gate.set()
    assert next(answers).findings[0].detail == "late"
    assert list(answers) == []


@pytest.mark.parametrize("level", [Level.FAILED, Level.NOTE])
def test_silence_is_a_finding(stuck: Stuck, level: Level) -> None:
    checks = (Check("gpu.cards", "cards", stuck, level),)
    (answer,) = iterate(checks=checks, deadline_s=0.05)
    (found,) = answer.findings
    assert (found.id, found.level, "0.05 s" in found.detail) == ("gpu.cards", level, True)
    assert "reboot" in found.hint


def test_silence_on_a_busy_machine_asks_for_no_reboot(
    stuck: Stuck, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (900.0, 9.0, 9.0))
    (answer,) = iterate(checks=(Check("gpu.cards", "cards", stuck),), deadline_s=0.05)
    assert "the load average is 900 on " in answer.findings[0].hint
    assert "busy" not in answer.findings[0].hint, "who is busy, nobody knows"
    assert "reboot" not in answer.findings[0].hint


@pytest.mark.parametrize(
    ("silent", "need", "at_work", "hint"),
    [
        (True, Level.FAILED, "", "the container engine does not answer: is dockerd frozen?"),
        (True, Level.NOTE, "its process is stopped by a signal", "its process is stopped by a"),
        (False, Level.FAILED, "its processes compute", "its processes compute"),
        (False, Level.FAILED, "", "the load average is 900"),
    ],
)
def test_what_is_known_of_the_baseline_comes_before_the_load(
    stuck: Stuck, monkeypatch: pytest.MonkeyPatch, silent: bool, need: Level, at_work: str,
    hint: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(os, "getloadavg", lambda: (900.0, 9.0, 9.0))
    monkeypatch.setattr(Facts, "engine_is_silent", lambda _: silent)
    monkeypatch.setattr(Facts, "engine_need", lambda _: need)
    monkeypatch.setattr(baseline, "at_work", lambda _: at_work)
    (answer,) = iterate(checks=(Check("baseline.health", "health", stuck),), deadline_s=0.05)
    assert answer.findings[0].detail.startswith("this check was not over within")
    assert answer.findings[0].hint.startswith(hint)


def test_an_engine_is_silent_from_its_question_to_its_answer() -> None:
    gate, facts = threading.Event(), Facts()
    assert not facts.engine_is_silent()
    facts._begun["the container engine"] = begun("engine", lambda: gate.wait(PATIENT_S))
    assert facts.engine_is_silent()
    gate.set()
    facts._begun["the container engine"].result(PATIENT_S)
    assert not facts.engine_is_silent()


def test_a_check_that_hangs_does_not_keep_the_process(stuck: Stuck) -> None:
    (answer,) = iterate(checks=(Check("gpu.cards", "cards", stuck),), deadline_s=0.01)
    assert answer.findings[0].level is Level.FAILED
    assert stuck.begun.wait(PATIENT_S)
    assert [thread.daemon for thread in stuck.threads] == [True]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (KeyError("no\x1b[31m"), "this check broke: KeyError: "),
        (ConsoleError("title", "detail", "what to do"), "title: detail"),
        (PermissionError(13, "Permission denied", "/x"), "/x: Permission denied"),
    ],
)
def test_a_check_that_breaks_is_a_finding(error: Exception, said: str) -> None:
    def broken(facts: Facts, check: Check) -> Iterator[Finding]:
        yield check.ok("one thing")
        raise error

    checks = (Check("gpu.cards", "cards", broken), Check("machine.kernel", "kernel", quick))
    one, other = in_order(iterate(checks=checks, deadline_s=PATIENT_S))
    assert [found.level for found in one.findings] == [Level.OK, Level.FAILED]
    assert one.findings[1].detail.startswith(said)
    assert other.findings[0].level is Level.OK
    assert harmful(one.findings[1].detail) == []


def test_answers_are_put_in_order_as_soon_as_they_can() -> None:
    checks = [Check("login.x", str(n), quick) for n in range(4)]
    seen: list[int] = []

    def arriving() -> Iterator[Answer]:
        for position in (1, 0, 3, 2):
            seen.append(position)
            yield Answer(position, checks[position], ())

    ordered = in_order(arriving())
    assert next(ordered).position == 0
    assert seen == [1, 0]
    assert [answer.position for answer in ordered] == [1, 2, 3]


def test_the_whole_page_of_a_bare_login() -> None:
    findings = run()
    places = [[check.id for check in CHECKS].index(found.id) for found in findings]
    assert places == sorted(places)
    assert {found.group for found in findings} == set(GROUPS.values())
    assert counts(findings)[0] == 0, [f for f in findings if f.level is Level.FAILED]


def test_foreign_text_is_clean_whoever_brings_it() -> None:
    found = Finding("gpu.cards", Level.OK, "a\x1b]0;b\x07", "c\x9b31m\nd\u202e", "e\x1b[2J\n  f\r")
    assert harmful(found.what + found.detail + found.hint.replace("\n", "")) == []
    assert (found.detail[0], found.hint.splitlines()[1]) == ("c", "  f")
