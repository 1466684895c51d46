"""`note` and `report`: words."""

from __future__ import annotations

from console.common.text import one_line
from console.journal.state import Cause
from console.render.report.document import write_report
from console.runner.context import Attempt, Context, Done, StepFailed
from console.runner.prepare.plan import PlannedStep


def execute(context: Context, planned: PlannedStep, attempt: Attempt) -> Done:
    """A note is shown and kept in the journal."""
    step = planned.step
    assert step is not None
    return Done(one_line(step.note or "", 300))


def report(context: Context, planned: PlannedStep, attempt: Attempt) -> Done:
    """The run's report into its directory, and to `to` when given."""
    step = planned.step
    assert step is not None
    assert step.report is not None
    copy = context.path(step.report.to) if step.report.to else None
    try:
        path = write_report(context.run, context.view, copy)
    except OSError as error:
        where = one_line(str(error.filename or copy))
        raise StepFailed(Cause.OUTPUT_INVALID, f"{where}: {error.strerror}") from error
    return Done(str(path))
