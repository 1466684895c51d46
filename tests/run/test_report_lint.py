"""The report says what lint found before the run, and why it was gone past."""

from __future__ import annotations

from console.run.report_lessons import lessons
from console.run.report_lint import lint_lines
from console.run.view import RunView

ROW = {
    "place": "book.yaml:10:47", "rule": "split-mode-graph-moe", "severity": "error",
    "what": "--split-mode graph | HF_TOKEN=abc", "lessons": ["F-024"],
    "override": "override: a patched build",
}  # fmt: skip


def test_without_findings_there_is_no_section() -> None:
    assert lint_lines(RunView()) == []


def test_an_override_stands_with_its_reason_and_no_key() -> None:
    text = "\n".join(lint_lines(RunView(header={"lint": [ROW, "torn"]})))
    assert text.startswith("## Lint")
    assert "split-mode-graph-moe F-024 | override: a patched build" in text
    assert "abc" not in text


def test_an_override_is_a_lesson_to_be_judged() -> None:
    (one,) = [x for x in lessons(RunView(title="t", header={"lint": [ROW]})) if "lint" in x]
    assert "split-mode-graph-moe" in one
    assert "whether the rule is right here" in one
