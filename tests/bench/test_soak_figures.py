"""What the lines of a soak add up to: figures as gates read them, growth, drift, live words."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.bench.metrics import SOAK_METRICS
from console.bench.soak_stats import Line, Tally
from console.bench.statistics import SPARK, drift, drift_interval, growth, rolling, spark
from console.config.playbook.threshold import parse_threshold
from console.config.playbook.verdict import Criterion, Evidence, Verdict, judge
from tests.waiting import some

MIB = 2**20


def taken(*lines: Line) -> Tally:
    tally = Tally()
    for line in lines:
        tally.take(line)
    return tally


def test_every_metric_a_gate_can_name_is_there_in_its_unit() -> None:
    figures = Tally().figures()
    assert {name: figure["unit"] for name, figure in figures.items()} == {
        name: metric.unit for name, metric in SOAK_METRICS.items()
    }
    assert all(figure["value"] is None and figure["n"] == 0 for n, figure in figures.items()
               if n != "requests")  # fmt: skip
    assert (figures["requests"]["value"], figures["requests"]["n"]) == (0, 0)


ASKED: Line = {"tok_s": 50.0, "ttft_s": 0.1, "context": 40}


def test_half_a_soak_is_never_go() -> None:
    """Every figure as good as can be, every threshold easy, and it ended early."""
    lines: list[Line] = [{"t": 0.0, "event": "began", "at": 1000.0}]
    for number in range(1, 121):
        lines.append({"t": number * 5.0, "ok": True, "error": "", **ASKED})
        lines.append(
            {"t": number * 5.0, "rss": MIB, "anon": MIB, "vram": MIB, "up": True, "log": True}
        )
    tally = taken(*lines)
    for figures, wanted in (
        (tally.figures(), Verdict.GO), (tally.void_figures("the server died"), Verdict.HOLD),
    ):  # fmt: skip
        for name, metric in SOAK_METRICS.items():
            unit = metric.unit
            figure = figures[name]
            limit = {"tok_s": ">= 1 tok/s", "ttft_s": "<= 10s", "observed_s": ">= 1s"}.get(name)
            limit = limit or (">= 0" if unit in ("count", "ratio") else "<= 1GiB")
            evidence = Evidence(figure["value"], unit, figure["n"], void=figure["void"])
            found = judge(Criterion(f"soak.{name}", go=parse_threshold(limit)), evidence)
            assert found.verdict is wanted, (name, found.why)
    assert all("samples" not in figure for figure in tally.void_figures("x").values())


def leaking(*more: Line) -> Tally:
    """1 MiB/s for two minutes, a look each second."""
    looks = [{"t": t + 1.0, "rss": t * MIB, "up": True, "log": True} for t in range(120)]
    return taken({"t": 0.0, "event": "began", "at": 1000.0}, *looks, *more)


@pytest.mark.parametrize("missed", ["rss", "vram", "up", "log"])
def test_what_was_seen_in_the_first_minute_of_an_hour_is_not_known(missed: str) -> None:
    """The NVML call hangs, or the thread that looks; requests go on."""
    told = {"rss": ("rss_peak", "rss_growth"), "vram": ("vram_peak", "vram_growth"),
            "up": ("restarts",), "log": ("critical_lines",)}  # fmt: skip
    seen: Line = {"rss": MIB, "anon": MIB, "vram": MIB, "up": True, "log": True}
    blind = seen | {missed: None if missed in ("rss", "vram") else False}
    looks = [{"t": t * 5.0, **(seen if t <= 12 else blind)} for t in range(720)]
    asked: Line = {"t": 3600.0, "ok": True, "error": "", "tok_s": 50.0, "ttft_s": 0.1}
    figures = taken({"t": 0.0, "event": "began", "at": 1000.0}, *looks, asked).figures()
    for name, metrics in told.items():
        for metric in metrics:
            assert (figures[metric]["value"] is None) is (name == missed), metric
    # one that was seen again: what lies between is unknown for a peak, and told by a counter
    late = taken(*looks, {"t": 3599.0, **seen}, asked).figures()
    assert late["restarts"]["value"] == late["critical_lines"]["value"] == 0
    assert (late["rss_peak"]["value"] is None) is (missed == "rss")


def test_a_leak_before_a_crash_is_told_and_one_across_a_restart_is_not() -> None:
    gone: Line = {"t": 120.0, "event": "gone", "at": 1120.0, "what": "ended by SIGKILL"}
    figure = leaking(gone).void_figures("it ended early: died")["rss_growth"]
    assert figure["value"] == pytest.approx(120 * MIB, rel=0.03)
    assert figure["n"] == 0
    anew: Line = {"t": 60.0, "event": "restart", "at": 1060.0, "what": "another process"}
    none = leaking(anew, gone).void_figures("it ended early: died")["rss_growth"]
    assert none["value"] is None
    assert none["why"].startswith("it ended early: died; ")


def test_samples_are_there_for_a_gate_to_resample_while_they_are_few() -> None:
    def tally(count: int) -> Tally:
        return taken(*({"t": n * 1.0, "ok": True, "error": "", "tok_s": 5.0, "ttft_s": 1.0}
                       for n in range(count)))  # fmt: skip

    assert tally(400).figures()["tok_s"]["samples"] == [5.0] * 400
    assert "samples" not in tally(401).figures()["tok_s"]
    assert "samples" not in tally(0).figures()["tok_s"]


def test_a_gap_has_no_length_in_what_is_observed() -> None:
    tally = taken(
        {"t": 10.0, "ok": True, "error": "", "tok_s": 5.0},
        {"t": 110.0, "event": "gap", "from": 10.0, "to": 110.0},
        {"t": 120.0, "ok": True, "error": "", "tok_s": 5.0},
        {"t": 120.0, "rss": 7, "anon": None, "vram": None},
    )
    assert (tally.t, tally.observed, tally.gaps) == (120.0, 20.0, [[10.0, 110.0]])
    assert tally.rates == [(10.0, 5.0), (20.0, 5.0)]
    assert tally.rss == [(20.0, 7.0)]


def test_lines_of_later_versions_are_passed_over() -> None:
    tally = taken({"t": 1.0, "event": "unheard of"}, {"t": 2.0}, {"t": 3.0, "event": "take"})
    assert (tally.t, tally.requests, tally.ended) == (3.0, [], "")


# -- growth and drift --------------------------------------------------------------------------


def series(size: object, count: int = 720) -> list[tuple[float, float]]:
    assert callable(size)
    return [(n * 5.0, float(size(n * 5.0))) for n in range(count)]


@pytest.mark.parametrize(
    ("size", "wanted"),
    [
        (lambda t: 100.0, 0.0),
        (lambda t: 100 + t, 3600.0),
        (lambda t: 100 - t, -3600.0),
        (lambda t: 5000 if t > 2700 else 100, 4900.0),  # late and at once: a slope sees little
        (lambda t: 100 + (t % 60 < 5) * 1e6, 0.0),  # a spike a minute
        (lambda t: 100 + min(t, 60) * 100, 0.0),  # a model that is paged in at the beginning
    ],
)
def test_growth(size: object, wanted: float) -> None:
    found = some(growth(series(size), 3600.0))
    assert found == pytest.approx(wanted, rel=0.15, abs=1)
    if wanted > 0:
        assert found >= wanted * 0.999, "never told smaller than it is"


@pytest.mark.parametrize("count", [0, 1, 5])
def test_growth_of_a_few_looks_is_not_told(count: int) -> None:
    assert growth(series(lambda t: t, count), 3600.0) is None


def test_growth_of_looks_at_one_moment_is_not_told() -> None:
    assert growth([(1.0, 1.0)] * 100, 3600.0) is None


def test_drift_needs_five_rates_in_each_part() -> None:
    rates = [(float(t), 10.0) for t in range(1, 61)]
    assert drift(rates, 60.0) == (0.0, 20)
    assert drift(rates[:4] + rates[20:], 60.0) == (None, 0)
    assert drift(rates[:-6], 60.0) == (None, 0)
    assert drift([], 0.0) == (None, 0)


MOMENTS = st.floats(0, 3600).map(lambda t: round(t, 3))
FIGURES = st.just(0.0) | st.floats(1e-6, 1e18)


@given(st.lists(st.tuples(MOMENTS, FIGURES), max_size=40).map(sorted), MOMENTS)
def test_nothing_here_is_nan(pairs: list[tuple[float, float]], t: float) -> None:
    """Of all that can be a rate or a size, at moments as a soak's lines have them."""
    found = [growth(pairs, t), drift(pairs, t)[0], rolling(pairs, t)]
    assert all(value is None or math.isfinite(value) for value in found)
    assert set(spark(pairs, t)) <= set(SPARK) | {" "}


# -- live --------------------------------------------------------------------------------------


def test_rolling_is_the_median_of_the_last_minute() -> None:
    rates = [(t * 10.0, float(t)) for t in range(1, 31)]
    assert rolling(rates, 300.0) == 27.5
    assert rolling(rates, 60.0) == 3.5
    assert rolling(rates, 400.0) is None
    assert rolling([], 10.0) is None


def test_a_sparkline_has_its_levels_from_zero() -> None:
    steady = [(t * 5.0, 10.0) for t in range(1, 721)]
    assert spark(steady, 3600.0) == "█" * 24
    half = [(t, 10.0 if t < 1800 else 5.0) for t, _ in steady]
    assert spark(half, 3600.0) == "█" * 12 + "▅" * 12
    assert spark([(t, v) for t, v in steady if not 900 < t <= 1800], 3600.0)[6:12] == " " * 6
    assert spark(steady, 12.0) == "██"
    assert spark([], 0.0) == " "


# -- intervals -----------------------------------------------------------------------------------


def test_a_drift_has_an_interval_as_wide_as_its_rates_are_apart() -> None:
    noise = [8.0, 12.0, 9.0, 11.5, 10.0, 7.5, 12.5, 10.5, 9.5, 11.0]
    wild = [(t + 1.0, noise[t * 7 % 10]) for t in range(60)]
    steady = [(t, 10.0) for t, _ in wild]
    assert drift_interval(steady, 60.0) == (0.0, 0.0)
    found = some(drift_interval(wild, 60.0))
    point, _ = drift(wild, 60.0)
    assert found[0] < 0 < found[1]
    assert found[0] <= some(point) <= found[1]
    assert found == drift_interval(wild, 60.0), "the same samples, the same interval"
    assert drift_interval(wild[:20], 60.0) is None


def test_a_slowdown_beyond_the_noise_has_an_interval_beyond_it() -> None:
    rates = [(t + 1.0, (20.0 if t < 1800 else 10.0) + t % 3) for t in range(3600)]
    found = some(drift_interval(rates, 3600.0))
    assert 0.4 < found[0] <= found[1] < 0.6


def test_the_metric_carries_its_interval_and_a_void_one_does_not() -> None:
    rows: list[Line] = [
        {"t": n + 1.0, "ok": True, "error": "", "tok_s": 10.0 + n % 3} for n in range(120)
    ]
    figure = taken(*rows).figures()["tok_s_drift"]
    assert figure["low"] <= figure["value"] <= figure["high"]
    void = taken(*rows).void_figures("it ended early")["tok_s_drift"]
    assert not {"low", "high"} & void.keys()
    assert void["why"] == "it ended early"
