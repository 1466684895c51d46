"""Drafts: they load as they are, and nothing is written over."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from console.config.lessons import use
from console.config.lessons.registry import load_lesson
from console.config.lessons.use import Found

FOUND = Found(
    run="20261122-031245-demo-5750", day="2026-11-22", title="Is it faster? – NO-GO (retain)",
    playbook="demo", outcome="succeeded, NO-GO (retain)",
    symptom='Gate go said NO-GO: bench.tok_s 36.91 tok/s: "too slow".',
    candidates=("Attempted: x. Result: NO-GO.",), figures=("bench: tok_s 36.91 tok/s",),
    lines=("CUDA error: no kernel image",), lessons=("F-002", "F-777"),
)  # fmt: skip


def test_a_draft_loads_with_all_that_is_on_record(tmp_path: Path) -> None:
    lesson = load_lesson(use.write("F-028", use.drafted("F-028", FOUND), tmp_path))
    model = lesson.model
    assert (model.id, model.status, model.date) == ("F-028", "draft", "2026-11-22")
    assert model.symptom == FOUND.symptom
    assert model.cause == use.TO_BE_FOUND
    assert model.runs == [FOUND.run]
    assert model.evidence == [
        "run 20261122-031245-demo-5750: succeeded, NO-GO (retain)", "Attempted: x. Result: NO-GO.",
        "bench: tok_s 36.91 tok/s", "log: CUDA error: no kernel image",
    ]  # fmt: skip
    assert [link.to for link in model.links] == ["F-002"]


def test_the_next_look_is_proposed_a_quarter_later() -> None:
    assert "# due: 2027-02-21 " in use.drafted("F-028", FOUND)


def test_no_text_breaks_the_file(tmp_path: Path) -> None:
    for number, text in enumerate((
        "a: b # c", "- x", "\x1b[2Jboo\u202e", 'q"\\', "{[*&!|>%@`", "x\n  y: z", "", "yes",
        "\ud800", "é" * 700,
    ), 28):  # fmt: skip
        found = replace(FOUND, title=text, symptom=text, lines=(text,), playbook=text)
        one = f"F-{number:03d}"
        model = load_lesson(use.write(one, use.drafted(one, found), tmp_path)).model
        assert all(one.isprintable() for one in (model.title, model.symptom, *model.evidence))


def test_nothing_is_written_over(tmp_path: Path) -> None:
    path = use.write("F-028", "first", tmp_path)
    with pytest.raises(FileExistsError):
        use.write("F-028", "second", tmp_path)
    assert path.read_text() == "first"
    (tmp_path / "F-029.yaml").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        use.write("F-029", "x", tmp_path)
    assert not (tmp_path / "elsewhere").exists()
