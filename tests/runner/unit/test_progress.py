"""How far a step, a run and a rollback are, as rows of cells and as words of a log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.common.progress import Figures, Pace, Progress, advanced, count_words, left_words
from console.journal.fold import fold
from console.journal.run_view import RunView, StepView
from console.journal.state import RunState, StepState
from console.journal.store import event_of
from console.recovery.rollback.shell.printing import LoadNotes
from console.render import progress
from console.render.cells import ASCII, UNICODE, Row, cells, plain, use_ascii, width_of
from console.render.progress import (
    bar,
    load_of,
    rollback_progress,
    run_left_s,
    run_progress,
    run_share,
    step_progress,
    step_words,
)

FINE = st.floats(-1e18, 1e18)
STATES = st.sampled_from(list(StepState))
FIGURES = st.builds(
    Figures, FINE, st.none() | FINE, st.sampled_from(["B", "s", "%", "run", "", "\x1b[2J"])
)


def counted(*said: tuple[float, Figures]) -> Progress | None:
    far: Progress | None = None
    for at, figures in said:
        far = advanced(far, figures, at)
    return far


STEPS = st.builds(
    StepView,
    id=st.just("a"), title=st.just("A"), phase=st.just("p"),
    kind=st.sampled_from(["run", "gate", "benchmark", "approval"]),
    takes_s=st.none() | st.floats(0, 1e7), limit_s=st.none() | st.floats(0, 1e7), state=STATES,
    started=st.floats(0, 2e9), duration_s=st.none() | st.floats(0, 1e7),
    progress=st.lists(st.tuples(st.floats(0, 2e9), FIGURES), max_size=3).map(
        lambda said: counted(*said)
    ),
)  # fmt: skip


def running(
    *said: tuple[float, Figures], takes: float | None = None, limit: float | None = 600.0
) -> StepView:
    """A step that began at 1000."""
    return StepView(
        "bench", "Benchmark", "Trial", "benchmark", takes, limit_s=limit, state=StepState.RUNNING,
        started=1000.0, progress=counted(*said),
    )  # fmt: skip


def runs(number: int) -> Figures:
    return Figures(number, 9, "run")


@given(STEPS, st.floats(0, 2e9), st.integers(0, 200))
def test_a_row_of_a_step_fits_and_is_clean(step: StepView, now: float, width: int) -> None:
    row = step_progress(step, now, width)
    assert width_of(row) <= width
    assert all(char.isprintable() for char in plain(row) + step_words(step, now))
    left = progress.step_left_s(step, now)
    assert left is None or left >= 0
    far = step.progress
    if far is None or far.share is None:
        assert "%" not in step_words(step, now), "no percentage of what is not known"


@given(st.lists(STEPS, max_size=5), st.floats(0, 2e9), st.integers(0, 200))
def test_a_run_is_never_more_than_done(steps: list[StepView], now: float, width: int) -> None:
    view = RunView(steps=steps, created=1.0, state=RunState.RUNNING)
    done, left = run_share(view, now), run_left_s(view, now)
    assert done is None or 0 <= done <= 1
    assert left is None or left >= 0
    row = run_progress(view, now, width)
    assert width_of(row) <= width
    assert left is not None or "%" not in plain(row)
    going = [one for one in steps if one.state in progress.BEFORE]
    assert not going or done is None or done < 1


@given(st.floats(-1, 2), st.integers(0, 80), st.sampled_from([UNICODE, ASCII]))
def test_a_bar_has_its_width_and_is_full_only_at_the_end(
    done: float, width: int, signs: progress.Glyphs
) -> None:
    drawn = bar(done, width, signs)
    assert cells(drawn) == width
    assert (drawn == signs.done * width) is (done >= 1 or width == 0)
    assert signs is UNICODE or drawn.isascii()


@given(st.floats(0, 1e9))
def test_an_estimate_is_short_and_never_below_zero(seconds: float) -> None:
    assert len(left_words(seconds)) <= 20
    assert "-" not in left_words(seconds)


def test_how_a_benchmark_is_drawn() -> None:
    step = running((1010.0, runs(0)), (1240.0, runs(4)))
    drawn = [plain(step_progress(step, 1245.0, width)) for width in (60, 46, 30, 12)]
    assert drawn == [
        "run 4/9 ━━━━━━━━━━━━╸─────────────── ~4:40 left, limit 10:00",
        "run 4/9 ━━━━━━╸─────── ~4:40 left, limit 10:00",
        "run 4/9 ━━━━╸────── ~4:40 left",
        "run 4/9",
    ]
    assert step_words(step, 1245.0) == "run 4/9, 44 %, ~4:40 left"


def test_signs_of_a_plain_terminal() -> None:
    use_ascii(True)
    try:
        row = step_progress(running((1000.0, runs(0)), (1240.0, runs(4))), 1240.0, 46)
    finally:
        use_ascii(False)
    assert plain(row) == "run 4/9 ======>------- ~5:00 left, limit 10:00"


@pytest.mark.parametrize(
    ("step", "now", "words"),
    [
        (running(takes=52.0), 1038.0,
         "0:38/0:52 ━━━━━━━━━━━━━━━━━━━╸────── ~15 s left, limit 10:00"),
        (running(takes=52.0), 1058.0, "0:58, usually 0:52, limit 10:00"),
        (running(limit=None), 1038.0, "0:38 gone"),
        (running((1001.0, Figures(92 << 20, None, "B"))), 1002.0, "92.0 MiB, limit 10:00"),
        (running((1001.0, Figures(0, 377 << 30, "B")), (1061.0, Figures(94 << 30, 377 << 30, "B"))),
         1061.0, "94.0/377 GiB ━━━━━╸───────────────── ~3:00 left, limit 10:00"),
        (running((1001.0, Figures(43, 100, "%")), limit=None), 1001.0,
         "43 % ━━━━━━━━━━━━━━━━━━━━╸───────────────────────────"),
        (running((1001.0, Figures(125, 600, "s")), limit=None), 1001.0,
         "2:05/10:00 ━━━━━━━━━━╸─────────────────────────────────────"),
    ],
)  # fmt: skip
def test_how_others_are_drawn(step: StepView, now: float, words: str) -> None:
    assert plain(step_progress(step, now, 60)) == words


def test_what_waits_for_a_person_or_does_not_run_has_no_row() -> None:
    step = running((1001.0, runs(4)))
    step.kind = "approval"
    assert step_progress(step, 1100.0, 60) == ()
    done = running((1001.0, runs(4)))
    done.state = StepState.SUCCEEDED
    assert step_progress(done, 1100.0, 60) == ()


def view(*rows: tuple[str, StepState, float | None, float | None]) -> RunView:
    """A run that began at 1000: kind, state, how long it takes, how long it took."""
    steps = [
        StepView(f"s{n}", "", "p", kind, takes, state=state, duration_s=took, started=1060.0)
        for n, (kind, state, takes, took) in enumerate(rows)
    ]
    return RunView(steps=steps, created=1000.0, state=RunState.RUNNING)


DONE, NOW, LATER = StepState.SUCCEEDED, StepState.RUNNING, StepState.PENDING


def test_a_run_by_the_time_of_its_steps() -> None:
    made = view(
        ("run", DONE, None, 60.0), ("run", NOW, 60.0, None), ("gate", LATER, None, None),
        ("approval", LATER, None, None), ("restore", LATER, 74.0, None),
    )  # fmt: skip
    assert run_left_s(made, 1090.0) == 30.0 + 74.0
    assert run_share(made, 1090.0) == 90.0 / (90.0 + 104.0)
    assert plain(run_progress(made, 1090.0, 60)) == (
        "1/5 ━━━━━━━━━━━━━╸─────────────── 46 % 1:30 gone, ~1:40 left"
    )


def test_a_run_with_a_step_of_unknown_length_says_no_percentage() -> None:
    made = view(("run", DONE, None, 60.0), ("run", NOW, 60.0, None), ("run", LATER, None, None))
    assert (run_left_s(made, 1090.0), run_share(made, 1090.0)) == (None, None)
    assert plain(run_progress(made, 1090.0, 40)) == "1/3 ━━━━━━━━╸───────────────── 1:30 gone"


def test_a_step_that_takes_longer_than_usual_stops_no_estimate_of_the_rest() -> None:
    made = view(("run", NOW, 60.0, None), ("restore", LATER, 74.0, None))
    assert run_left_s(made, 1500.0) == 74.0


def test_a_run_that_is_over_has_no_row() -> None:
    made = view(("run", DONE, None, 60.0))
    made.state = RunState.SUCCEEDED
    assert run_progress(made, 1090.0, 60) == ()


def line(at: float, rung: str, state: str = "ok", **more: object) -> dict[str, object]:
    return {"at": at, "rung": rung, "state": state, **more}


def test_a_rollback_and_the_load_that_it_waits_for() -> None:
    lines = [line(1000.0, "fence"), line(1001.0, "start", "begin")]
    assert plain(rollback_progress(lines, 74.0, 1010.0, 60)) == (
        "start 4/7 ━━━╸──────────────────────── 0:10 gone, ~1:00 left"
    )
    lines += [line(1002.0, "ready", "begin")]
    for at, done in ((1004.0, 10), (1006.0, 40), (1008.0, 70)):
        far = {"done": done << 30, "total": 100 << 30, "unit": "B"}
        lines.append(line(at, "ready", "note", **far))
    row = plain(rollback_progress(lines, None, 1008.0, 70))
    assert row.startswith("ready 5/7 70.0/100 GiB ━━")
    assert row.endswith("0:08 gone, ~2 s left")
    assert rollback_progress([*lines, line(1009.0, "done")], None, 1010.0, 70) == ()
    assert load_of([*lines, line(1009.0, "ready")]) is None
    assert rollback_progress([], 74.0, 1000.0, 60) == ()


@given(
    st.lists(st.fixed_dictionaries(
        {}, optional={name: st.none() | FINE | st.text(max_size=5) for name in
                      ("at", "rung", "state", "done", "total", "unit")})),
    st.none() | st.floats(0, 1e7), st.floats(0, 2e9), st.integers(0, 120),
)  # fmt: skip
def test_any_lines_of_a_rollback_are_drawn(
    lines: list[dict[str, object]], usual: float | None, now: float, width: int
) -> None:
    row: Row = rollback_progress(lines, usual, now, width)
    assert width_of(row) <= width


def test_the_journal_tells_how_far_a_step_is() -> None:
    created = {"steps": [{"id": "a", "title": "A", "phase": "p", "kind": "run", "limit_s": 60.0}]}
    said = [
        ("run.created", created), ("step.state", {"state": "running"}),
        ("step.say", {"text": "one", "done": 1, "total": 4, "unit": "run"}),
        ("step.say", {"text": "two", "done": 2, "total": 4, "unit": "run"}),
        ("step.say", {"text": "words alone"}),
        ("rung", {"rung": "ready", "state": "note", "detail": "x", "done": 3.0, "total": None}),
        ("rung", {"rung": "ready", "state": "ok", "detail": "y"}),
    ]  # fmt: skip
    events = [event_of(n, 1000.0 + n, kind, "a", 1, data) for n, (kind, data) in enumerate(said)]
    far = fold(events[:5]).steps[0]
    assert (far.message, far.limit_s) == ("words alone", 60.0)
    assert far.progress == Progress(Figures(2.0, 4, "run"), 1003.0, 1.0, 1002.0)
    whole = fold(events)
    assert whole.steps[0].message == "ready: y"
    assert len(whole.stages) == 1, "the figures of a load are no stage"
    again = [*events, event_of(9, 1010.0, "step.state", "a", 2, {"state": "running"})]
    assert fold(again).steps[0].progress is None


def test_an_hour_of_a_step_is_a_page_of_a_log() -> None:
    pace = Pace()
    step = running()
    printed = 0
    for second in range(3600):
        step.progress = counted((1000.0 + second, Figures(second, 3600, "s")))
        printed += pace.due("a", step.progress, float(second))
    assert 20 < printed < 90


def test_the_first_word_and_each_tenth_are_printed() -> None:
    pace, step = Pace(), running()
    assert pace.due("a", step.progress, 0.0)
    assert not pace.due("a", step.progress, 0.5)
    step.progress = counted((1.0, runs(1)))
    assert pace.due("a", step.progress, 0.6)
    assert not pace.due("a", step.progress, 0.7)
    assert pace.due("b", step.progress, 0.8)


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        (Figures(4, 9, "run"), "run 4/9"),
        (Figures(4, None, "point"), "point 4"),
        (Figures(3 << 20, 9 << 20, "B"), "3.0 MiB of 9.0 MiB"),
        (Figures(3 << 30, None, "B"), "3.0 GiB"),
        (Figures(7, None, ""), "7"),
    ],
)
def test_what_is_done_of_what(figures: Figures, words: str) -> None:
    assert count_words(figures) == words


def test_a_rollback_in_a_shell_says_a_load_s_tenths_and_little_else() -> None:
    load = LoadNotes()
    assert load.take(line(1000.0, "ready", "note")) == ""
    told = []
    for second in range(2, 1202, 2):
        far = {"done": second << 28, "total": 1200 << 28, "unit": "B"}
        told.append(load.take(line(1000.0 + second, "ready", "note", **far)))
    assert told[2:4] == [", 1.5/300 GiB, 0 %", None], "a load that has just begun has no pace"
    assert ", 30.0/300 GiB, 10 %, ~18 min left" in told
    assert told[-1] == ", 300.0/300 GiB, 100 %"
    assert 10 < sum(one is not None for one in told) < 40
