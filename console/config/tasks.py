"""Small tasks with a known answer, as an operator writes them, and what counts as right."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from console.config.validation import OneOf, Pattern, Strict, Text, load

TITLE = "the tasks cannot be used"
HINT = "docs/reference/metrics.md describes the file"


class TaskModel(OneOf):
    """One question. `answer`: the whole answer, blanks at its ends and case aside; `matches`: a
    pattern that has to be found in it."""

    ONE_OF = ("answer", "matches")
    REFUSED = "a task has exactly one of answer or matches"

    ask: Text
    answer: Text | None = None
    matches: Pattern | None = None
    max_tokens: int = Field(64, ge=1, le=8192)

    def is_answer(self, text: str) -> bool:
        """Whether a text is the exact answer."""
        return self.answer is not None and text.strip().lower() == self.answer.strip().lower()


class TasksModel(Strict):
    schema_: Literal["omni.tasks/v1"] = Field(alias="schema")
    tasks: Annotated[list[TaskModel], Field(min_length=1, max_length=1000)]


def load_tasks(path: Path) -> list[TaskModel]:
    """The tasks of a file. Raises InvalidFile with every problem in it."""
    return load(TasksModel, path, TITLE, HINT).tasks
