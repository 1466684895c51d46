"""A number in a command's output is read whole and in its unit, or it is no figure."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.config.playbook.captured import base_unit, read_output
from tests.playbook.conftest import Book

NUMBER = "([0-9.]+)"


READ = [
    ("GB", "omni/ik-llama sm120 12.5GB", 12.5e9, "B"), ("GB", "size 12.5 GB", 12.5e9, "B"),
    ("GiB", "used: 2GiB of 4GiB", 4.0 * 2**30, "B"), ("MiB", "used: 500MiB", 500.0 * 2**20, "B"),
    ("MiB", "1234MiB / 24576.", 24576.0 * 2**20, "B"), ("KB", "7 kB", 7000.0, "B"),
    ("kB", "7 KB", 7000.0, "B"), ("TiB", "1.5Ti", 1.5 * 2**40, "B"), ("B", "123 bytes", 123.0, "B"),
    ("B", "size=123, next", 123.0, "B"), ("ms", "ttft 950 ms", 0.95, "s"),
    ("min", "took 3 min", 180.0, "s"), ("h", "2h", 7200.0, "s"), ("s", "12.5s (cold)", 12.5, "s"),
    ("%", "95.5 %", 0.955, "ratio"), ("tok/s", "25.31 tokens per second", 25.31, "tok/s"),
    ("tok/s", "tg: 25.3 t/s", 25.3, "tok/s"), ("count", "3 errors", 3.0, "count"),
    ("count", "720 requests, 0x", 0.0, "count"), ("", "build 6123", 6123.0, ""),
    ("s", "1.5 on gpu 0, waited 2.5 on average", 2.5, "s"),
]  # fmt: skip


def test_in_the_unit_it_is_written_in() -> None:
    for unit, text, value, base in READ:
        pattern = NUMBER if unit != "s" else r"([0-9]+\.[0-9]+)"
        assert read_output(pattern, unit, text) == pytest.approx(value, rel=1e-12), text
        assert base_unit(unit) == base


def test_a_plain_number_may_have_a_unit_that_the_pattern_spells() -> None:
    """It can then be no other: what prints MB does not match."""
    assert read_output("([0-9.]+) ?GB", "", "12.5 GB") == 12.5
    with pytest.raises(ValueError, match="GB"):
        read_output("([0-9.]+) ?GB", "", "980 MB")


def test_what_is_no_number_is_none() -> None:
    for text in ("tg: NaN", "tg: inf", "tg: 1e400", "tg: ERROR", "tg: 10,5"):
        assert read_output(r"tg: (\S+)", "tok/s", text) is None
    assert read_output("tg: (?:([0-9]+)|-)", "tok/s", "tg: -") is None


def test_a_pattern_may_be_of_a_whole_line_and_the_last_match_counts() -> None:
    assert read_output(r"^tg: ([0-9.]+)$", "tok/s", "load\ntg: 12.5\nbye\n") == 12.5
    assert read_output("tg: ([0-9.]+)", "tok/s", "tg: 3\ntg: 25.5\npp: 7") == 25.5


@given(
    st.integers(0, 10**6), st.integers(0, 999),
    st.sampled_from(["GB", "GiB", "MB", "MiB", "kB", "TB", "B"]),
    st.sampled_from(["GB", "GiB", "MB", "MiB", "kB", "TB", "B"]),
    st.sampled_from(["([0-9]+)", "([0-9.]+)", "([0-9]+)[A-Z]", "([0-9.,]+)", r"\b([0-9.]+)"]),
    st.sampled_from([".", ","]),
)  # fmt: skip
def test_never_another_number_than_the_one_that_is_printed(
    whole: int, part: int, printed: str, declared: str, pattern: str, point: str
) -> None:
    """Whatever the pattern takes out of it: the number in its unit, or nothing."""
    text = f"size {whole}{point}{part:03d}{printed}"
    try:
        found = read_output(pattern, declared, text)
    except ValueError:
        return
    if found is not None:
        assert (point, printed) == (".", declared)
        scale = read_output("([0-9]+)", declared, f"1{declared}")
        assert scale is not None
        assert math.isclose(found, float(f"{whole}.{part:03d}") * scale)


def test_a_gate_judges_in_the_base_unit(book: Book) -> None:
    """A captured unit is converted: a threshold in any unit of the same kind fits."""
    steps = (
        "{id: m, run: [x], outputs: {size: {pattern: '([0-9.]+)GB', unit: GB}, "
        "ttft: {pattern: '([0-9]+) ms', unit: ms}, share: {pattern: '([0-9]+)%', unit: '%'}}}"
    )
    gate = (
        "{id: g, gate: [{metric: m.size, go: '< 10GiB'}, {metric: m.ttft, go: '< 2s'}, "
        "{metric: m.share, go: '> 95 %'}]}"
    )
    assert book.steps(steps, gate)
    (said,) = book.step_problems(steps, "{id: g, gate: [{metric: m.size, go: '< 10 s'}]}")
    assert "a duration" in said
