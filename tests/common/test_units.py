"""Bytes and durations: parsed strictly, printed with a unit, nothing infinite."""

import math
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.common.units import (
    BYTES_FORM,
    DURATION_FORM,
    format_bytes,
    format_duration,
    format_number,
    parse_bytes,
    parse_duration,
)

HUGE = "9" * 400
BYTES = {
    "0B": 0, "1B": 1, "1kB": 1000, "1KB": 1000, "1KiB": 1024, "1MB": 10**6, "1MiB": 2**20,
    "24GiB": 25769803776, "117GB": 117 * 10**9, "2TB": 2 * 10**12, "1.5TiB": 3 * 2**39,
    " 7 GiB ": 7 * 2**30, "0.5kB": 500,
}  # fmt: skip
NO_BYTES = [
    "", "24", "24G", "24gib", "24GIB", "24 Gi", "GiB", "-1GiB", "+1GiB", "1e3B", "1,5GiB",
    ".5GiB", "5.GiB", "1GiB 1MiB", "24GiBs", "0x10B", "٢GiB", "1_000B", "nanB", "infGiB",
    HUGE + "B", HUGE + "TiB", "24kiB", "24PB",
]  # fmt: skip
DURATIONS = {
    "0s": 0.0, "250ms": 0.25, "90s": 90.0, "15m": 900.0, "1h30m": 5400.0, "1h 30m": 5400.0,
    "2d": 172800.0, "1.5h": 5400.0, "1m30s": 90.0, " 5 s ": 5.0, "1s500ms": 1.5,
}  # fmt: skip
NO_DURATIONS = [
    "", "15", "m", "15min", "15M", "-5s", "+5s", "1h30", "1,5h", ".5s", "1e3s", "22:30",
    "1 5m", "1m s", "5 m s", "s5", "5ss", "٥s", "infs", "nans", HUGE + "s", HUGE + "d",
]  # fmt: skip
SIZES = {
    0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 641.7 * 2**30: "641.7 GiB", 3 * 2**40: "3.0 TiB",
    -2048: "-2.0 KiB", math.nan: "unknown", math.inf: "unknown",
}  # fmt: skip
TIMES = {
    0: "0.00 s", 0.48: "0.48 s", 12.34: "12.3 s", 74: "1 min 14 s", 119.6: "2 min 00 s",
    3599.6: "1 h 00 min", 7500: "2 h 05 min", math.nan: "unknown", math.inf: "unknown",
}  # fmt: skip
NUMBERS = {
    (1.23456e27, ""): "1.23e27", (-4e15, "tok/s"): "-4e15 tok/s", (12345678901, ""): "12345678901",
    (20, "tok/s"): "20 tok/s", (10.753, "tok/s"): "10.75 tok/s", (1234.5, ""): "1234",
    (2**30, "B"): "1.0 GiB", (0.5, "s"): "0.50 s", (0.0, "ratio"): "0 %",
    (0.075, "ratio"): "7.5 %", (0.05, "s"): "50 ms", (-5.0, "s"): "-5.00 s", (9.0, "count"): "9",
    (math.nan, "s"): "unknown", (math.inf, "ratio"): "unknown", (math.nan, "tok/s"): "unknown",
    (-math.inf, ""): "unknown", (math.nan, "B"): "unknown",
}  # fmt: skip


def test_what_is_read() -> None:
    assert {text: parse_bytes(text) for text in BYTES} == BYTES
    assert {text: parse_duration(text) for text in DURATIONS} == pytest.approx(DURATIONS)


@pytest.mark.parametrize(
    ("parse", "texts", "form"),
    [(parse_bytes, NO_BYTES, BYTES_FORM), (parse_duration, NO_DURATIONS, DURATION_FORM)],
)
def test_what_is_refused(parse: Callable[[str], float], texts: list[str], form: str) -> None:
    for text in texts:
        with pytest.raises(ValueError, match=f"^{re.escape(form)}$"):
            parse(text)


def test_what_is_printed() -> None:
    assert {count: format_bytes(count) for count in SIZES} == SIZES
    assert {seconds: format_duration(seconds) for seconds in TIMES} == TIMES
    assert {one: format_number(*one) for one in NUMBERS} == NUMBERS


@given(st.text(max_size=40))
def test_any_text_is_a_finite_figure_or_refused(text: str) -> None:
    for parse in (parse_bytes, parse_duration):
        try:
            value = parse(text)
        except ValueError:
            continue
        assert math.isfinite(value)
        assert value >= 0


@given(st.integers(0, 2**53), st.sampled_from(["B", "kB", "MB", "KiB", "GiB"]))
def test_whole_bytes_round_trip(count: int, unit: str) -> None:
    factor = parse_bytes(f"1{unit}")
    assert parse_bytes(f"{count}{unit}") == pytest.approx(count * factor, rel=1e-15)


@given(st.integers(0, 10**6), st.integers(0, 59), st.integers(0, 59))
def test_parts_of_a_duration_add_up(hours: int, minutes: int, seconds: int) -> None:
    assert parse_duration(f"{hours}h{minutes}m{seconds}s") == hours * 3600 + minutes * 60 + seconds


@given(st.floats(0, 2**55))
def test_a_printed_size_reads_back_as_nearly_the_same(count: float) -> None:
    assert parse_bytes(format_bytes(count)) == pytest.approx(count, rel=0.06, abs=0.51)


@given(st.floats(), st.sampled_from(["", "B", "s", "tok/s", "ratio"]))
def test_every_float_can_be_printed(value: float, unit: str) -> None:
    assert format_number(value, unit)
