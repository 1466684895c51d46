"""Asking again: an argv with a deadline and a cap; what it says changes nothing."""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from console.config.lessons import use as module
from console.config.lessons.registry import Lesson, Recheck, load_lesson
from console.config.lessons.use import Answer, ask, recheck
from tests.lessons.conftest import Put
from tests.waiting import until

Outcome = tuple[int, str] | Exception


def asked(*argv: str, timeout: float = 60.0, **changes: str) -> Recheck:
    data = {"output": list(argv), "words": "w", **(changes or {"matches": "yes"})}
    return Recheck.model_validate(data).model_copy(update={"timeout": timeout})


@pytest.fixture
def lesson(put: Put) -> Lesson:
    return load_lesson(put("F-028"))


@pytest.mark.parametrize(
    ("outcome", "rule", "answer", "token"),
    [
        ((0, "yes"), {"matches": "^yes$"}, Answer.PASSED, ""),
        ((0, "no"), {"matches": "yes"}, Answer.CHANGED, "yes"),
        ((0, "no"), {"not_matches": "yes"}, Answer.PASSED, ""),
        ((0, "a\nyes\nb"), {"not_matches": "^yes$"}, Answer.CHANGED, "^yes$"),
        ((0, ""), {"matches": "yes"}, Answer.CHANGED, "yes"),
        ((3, "boom"), {}, Answer.FAILED, "3"),
        (TimeoutError(), {}, Answer.FAILED, "60 s"),
        (FileNotFoundError(2, "No such file or directory"), {}, Answer.FAILED, "x: No such file"),
        (ValueError("more than 5 bytes"), {}, Answer.FAILED, "5 bytes"),
    ],
)
def test_the_answer_is_in_the_output_and_none_is_no_news(
    lesson: Lesson, outcome: Outcome, rule: dict[str, str], answer: Answer, token: str
) -> None:
    def run(_: Recheck) -> tuple[int, str]:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    found = recheck(lesson, asked("x", **rule), run)
    assert found.answer is answer
    assert token in found.words


def test_a_pattern_that_would_never_end_is_no_answer(lesson: Lesson) -> None:
    found = recheck(lesson, asked("x", matches="(a+)+$"), lambda _: (0, "a" * 60 + "b"))
    assert found.answer is Answer.FAILED
    assert "(a+)+$" in found.words


def test_the_lesson_is_as_it_was(lesson: Lesson) -> None:
    before = lesson.path.read_bytes()
    recheck(lesson, asked("true", matches="never"))
    assert lesson.path.read_bytes() == before


def test_nothing_is_a_shell(lesson: Lesson, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    found = recheck(lesson, asked("echo", f"yes; touch {mark} $(id)"))
    assert found.answer is Answer.PASSED
    assert found.lines == (f"yes; touch {mark} $(id)",)
    assert not mark.exists()


def test_hostile_output_is_shown_harmless(lesson: Lesson) -> None:
    found = recheck(lesson, asked("printf", r"yes \033[2J\r\n\302\233x"))
    assert all(line.isprintable() for line in found.lines)


def test_only_the_end_is_shown(lesson: Lesson) -> None:
    found = recheck(lesson, asked("seq", "100", matches="^42$"))
    assert (found.answer, found.lines) == (Answer.PASSED, ("96", "97", "98", "99", "100"))


def test_what_never_ends_is_ended_with_all_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time is over as soon as the child of the child is there."""
    note, looks = tmp_path / "pid", itertools.count()

    def monotonic() -> float:
        begun = next(looks) == 0
        return 0.0 if begun or not note.exists() or not note.read_text() else 1000.0

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=monotonic))
    with pytest.raises(TimeoutError):
        ask(asked("sh", "-c", f"sleep 300 & echo $! > {note}; echo up; wait"))
    child = int(note.read_text())
    until(lambda: ended(child), f"process {child} has ended")


def ended(pid: int) -> bool:
    """Whether it runs no more, be it reaped or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_what_says_too_much_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 100_000)
    with pytest.raises(ValueError, match="100000 bytes"):
        ask(asked("yes"))


def test_it_reads_no_keyboard_and_sees_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN_OF_MINE", "hunter2")
    code = "import os, sys; print(sys.stdin.read() == '', 'hunter2' in str(os.environ))"
    assert ask(asked(sys.executable, "-c", code)) == (0, "True False\n")
    assert os.environ["HF_TOKEN_OF_MINE"] == "hunter2"
