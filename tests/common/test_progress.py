"""How far something is: the arithmetic, and what programs print of their own progress."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.common.progress import (
    Figures,
    Printed,
    Progress,
    advanced,
    left_s,
    loaded,
    share,
)

ANY = st.floats(allow_nan=True, allow_infinity=True)
WHOLE = st.none() | ANY


@given(ANY, WHOLE)
def test_a_share_is_never_above_one_nor_below_zero(done: float, total: float | None) -> None:
    found = share(done, total)
    assert found is None or 0 <= found <= 1
    if total is None or total <= 0:
        assert found is None


@given(
    st.lists(st.tuples(ANY, WHOLE, st.sampled_from(["B", "run", ""]), st.floats(0, 1e9))),
    ANY, st.none() | st.floats(0, 1e9), st.floats(0, 1e10),
)  # fmt: skip
def test_a_time_left_is_never_negative_and_a_share_never_too_large(
    said: list[tuple[float, float | None, str, float]], gone: float, usual: float | None, now: float
) -> None:
    progress: Progress | None = None
    for done, total, unit, at in said:
        progress = advanced(progress, Figures(done, total, unit), at)
    if progress is not None:
        assert progress.share is None or 0 <= progress.share <= 1
        assert 0 <= progress.made <= 1
    left = left_s(progress, gone, usual, now)
    assert left is None or 0 <= left <= 1e9
    if usual is None and (progress is None or progress.figures.total is None):
        assert left is None


def after(*said: tuple[float, float], total: float | None = 100.0) -> Progress:
    """A count after (time, done) pairs."""
    progress: Progress | None = None
    for at, done in said:
        progress = advanced(progress, Figures(done, total, "B"), at)
    assert progress is not None
    return progress


def test_the_pace_of_what_this_run_did_itself_tells_the_time_left() -> None:
    # it went on at 40 of 100: 20 in ten seconds, so the other 40 take twenty
    going = after((0, 40), (10, 60))
    assert going.left_s(10) == 20
    assert going.left_s(15) == 15, "the time left goes on without new figures"
    assert going.left_s(31) is None, "it is late: nobody knows"
    assert after((0, 0), (60, 6)).left_s(130) is None, "it stands still"
    assert after((0, 0), (60, 6)).left_s(110) == 60 / 6 * 94 - 50


def test_earlier_runs_tell_it_until_a_tenth_is_done_here() -> None:
    early, later = after((0, 0), (5, 5)), after((0, 0), (5, 20))
    assert left_s(early, 5, 60, 5) == 55
    assert left_s(later, 5, 60, 5) == 20
    assert left_s(None, 5, 60, 5) == 55
    assert left_s(None, 61, 60, 61) is None, "longer than usual: nobody knows"
    assert left_s(after((0, 0), (61, 5)), 61, 60, 61) == 61 / 5 * 95, "only its own pace is left"


def test_a_whole_that_is_not_known_has_no_share_and_no_end() -> None:
    growing = after((0, 10), (10, 90), total=None)
    assert (growing.share, growing.left_s(10)) == (None, None)


def test_what_is_complete_says_nothing_of_what_follows() -> None:
    full = after((0, 0), (10, 100))
    assert full.share == 1
    assert left_s(full, 10, 60, 10) == 50
    assert left_s(full, 10, None, 10) is None


def test_another_unit_and_less_than_before_begin_anew() -> None:
    begun = after((0, 0), (10, 50))
    fewer = advanced(begun, Figures(10, 100, "B"), 20)
    assert (fewer.first, fewer.since) == (10, 20)
    other = advanced(begun, Figures(3, 7, "shard"), 20)
    assert (other.first, other.since) == (3, 20)


@pytest.mark.parametrize(
    ("lines", "figures"),
    [
        ("no count here\n12/345 of the way", None),
        ("[12/345] Building CXX object a.o", (12, 345, "file")),
        ("#9 93.12 [ 12/345] Building CUDA object", (12, 345, "file")),
        ("[ 43%] Building CXX object", (43, 100, "%")),
        ("Step 3/7 : RUN make", (2, 7, "step")),
        ("#5 [builder 1/7] FROM x\n#6 [builder 3/7] RUN y\n#7 [2/4] COPY z", (3, 11, "step")),
        ("#8 [linux/amd64 builder  2/12] RUN make\n#8 0.31 make: nothing", (1, 12, "step")),
        ("#3 [internal] load build definition\n#5 CACHED", None),
        ("model.safetensors:  17%|█▋        | 1.2G/7G", (17, 100, "%")),
        ("\x1b[2J[9/3] more than all", None),
        ("[2024/02/30] a date\n[5/0] nothing", None),
    ],
)
def test_what_commands_print(lines: str, figures: tuple[float, float, str] | None) -> None:
    printed = Printed()
    printed.take(lines.splitlines())
    assert printed.figures == figures


@pytest.mark.parametrize(
    ("log", "figures"),
    [
        ("load_tensors: CPU model buffer size = 9 MiB\n" + "." * 43, (43, 100, "%")),
        ("...\nserver is listening", None),
        ("please wait ...", None),
        ("Loading shards:  43% Completed | 3/7 [00:12<00:16]\rLoading shards:  57% Completed | 4/7",
         (4, 7, "shard")),
        ("", None),
    ],
)  # fmt: skip
def test_what_servers_log_in_a_load(log: str, figures: tuple[float, float, str] | None) -> None:
    assert loaded(log) == figures


@given(st.text(max_size=300))
def test_no_output_makes_more_of_it_than_all(text: str) -> None:
    printed = Printed()
    printed.take(text.splitlines())
    for found in (printed.figures, loaded(text)):
        assert found is None or share(found.done, found.total) is not None
