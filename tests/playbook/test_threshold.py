"""The grammar of thresholds, and which units go together."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.config.playbook.threshold import THRESHOLD_FORM, Threshold, compatible, parse_threshold

ABSOLUTE = {
    ">= 20": (">=", 20.0, ""), ">=20 tok/s": (">=", 20.0, "tok/s"),
    "> 10.75tok/s": (">", 10.75, "tok/s"), "<= 117GB": ("<=", 117e9, "B"),
    "< 20GiB": ("<", 20 * 2**30, "B"), "< 5 kB": ("<", 5000.0, "B"), "< 64 MB": ("<", 64e6, "B"),
    "== 0": ("==", 0.0, ""), "<= 900 ms": ("<=", 0.9, "s"), "<= 1.5s": ("<=", 1.5, "s"),
    "< 15m": ("<", 900.0, "s"), "< 1 h": ("<", 3600.0, "s"), "< 7 %": ("<", 0.07, "ratio"),
    "< 400MiB/s": ("<", 400 * 2**20, "B/s"), "  >=   20   tok/s ": (">=", 20.0, "tok/s"),
    "> -1 GiB": (">", -(2**30), "B"),
}  # fmt: skip


def test_what_is_read() -> None:
    expected = {text: Threshold(*parts) for text, parts in ABSOLUTE.items()}
    assert {text: parse_threshold(text) for text in ABSOLUTE} == expected
    for text in (">= 1.15 x baseline", ">=1.15x baseline", ">= 1.15 × baseline"):
        assert parse_threshold(text) == Threshold(">=", 1.15, "", True)


WRONG = [
    "", "20", ">=", ">= ", "=> 20", "= 20", "!= 20", ">> 20", ">= twenty", ">= nan", ">= inf",
    ">= 1e3", ">= 20 tok", ">= 20 parsecs", ">= 20 tok/s extra", ">= 20 gb", ">= 1,000",
    ">= 20 tok/s x baseline", ">= baseline", ">= 1.1 x", ">= 1.1 x base", ">= .5", ">= +5",
    ">= ٢٠", ">= 20 tok/s\n>= 30", ">= " + "9" * 400, "< " + "9" * 300 + "GiB", ">= 20 /s",
    ">= 20 ms/s", ">= - 5", ">= 0 x baseline", ">= -1 x baseline", ">= 5 tok/s/s",
]  # fmt: skip


def test_wrong_forms_say_the_expected_one() -> None:
    for text in WRONG:
        with pytest.raises(ValueError, match="like >="):
            parse_threshold(text)


def test_the_form_in_the_error_is_the_grammar() -> None:
    examples = THRESHOLD_FORM.partition("like ")[2].replace(" or ", ", ").split(", ")
    assert len([parse_threshold(example) for example in examples]) == 3


@given(st.text(max_size=40))
def test_any_text_parses_or_is_a_value_error(text: str) -> None:
    try:
        threshold = parse_threshold(text)
    except ValueError:
        return
    assert math.isfinite(threshold.value)


FITS = {
    (">= 10 s", "tok/s"): False, (">= 10 tok/s", "s"): False, (">= 10 GB", "tok/s"): False,
    (">= 10", "tok/s"): True, (">= 0.1", "ratio"): True, ("== 0", "count"): True,
    ("== 0", ""): True, ("<= 900", "s"): False, ("<= 117", "B"): False, ("<= 117", "B/s"): False,
    ("== 0", "B"): False, ("<= 117GB", "B"): True, ("<= 117GB", "B/s"): False,
    ("<= 900ms", "s"): True, ("<= 1%", "ratio"): True, ("<= 90%", "%"): True, ("<= 90", "%"): True,
    ("<= 1%", "count"): False, ("<= 1 tok/s", ""): False, (">= 1.1 x baseline", "s"): True,
    (">= 1.1 x baseline", "B"): True,
}  # fmt: skip
MET = {
    (">= 20", 20.0): True, ("> 20", 20.0): False, ("<= 20", 20.0): True, ("< 20", 20.0): False,
    ("== 20", 20.0): True, ("== 20", 20.1): False, (">= 7%", 0.07): True, ("<= 900ms", 0.9): True,
    (">= 20", None): False, (">= 20", math.nan): False, ("< 20", math.nan): False,
    (">= 20", math.inf): False, ("< 20", -math.inf): False,
}  # fmt: skip


def test_units_go_together() -> None:
    wrong = {one: compatible(parse_threshold(one[0]), one[1]) for one in FITS}
    assert {one: said is None for one, said in wrong.items()} == FITS
    assert [one for one, said in wrong.items() if said and one[0] not in said] == []


def test_satisfied() -> None:
    assert {one: parse_threshold(one[0]).satisfied(one[1]) for one in MET} == MET


def test_percent_against_a_metric_in_percent() -> None:
    threshold = parse_threshold("<= 90%")
    assert threshold.satisfied(85.0, unit="%")
    assert not threshold.satisfied(95.0, unit="%")


def test_no_usable_baseline_never_satisfies() -> None:
    threshold = parse_threshold(">= 1.1 x baseline")
    for baseline in (None, math.nan, math.inf, -1.0, 0.0):
        assert threshold.limit(baseline) is None
        assert not threshold.satisfied(1e9, baseline)


def test_relative_to_the_baseline() -> None:
    threshold = parse_threshold(">= 1.15 x baseline")
    assert threshold.satisfied(12.6, 10.9)
    assert not threshold.satisfied(12.5, 10.9)


def test_no_more_errors_than_a_baseline_without_any() -> None:
    threshold = parse_threshold("<= 1 x baseline")
    assert threshold.satisfied(0.0, 0.0)
    assert not threshold.satisfied(0.1, 0.0)
