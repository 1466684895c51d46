"""Options of engines, as they are really written."""

from __future__ import annotations

from console.rehearsal.inside.settings import value

BENCH = ["-m", "x.gguf", "-ngl", "19", "-ts", "75/25", "-r", "5", "-o", "json", "--port=8001"]


def test_a_long_short_option_is_no_short_one() -> None:
    assert value(BENCH, "-n", "--n-gen", default="128") == "128"
    assert value(BENCH, "-ngl") == "19"
    assert value(BENCH, "-r", "--repetitions") == "5"
    assert value(BENCH, "--port") == "8001"
    assert value(["-c"], "-c", default="1") == ""
    assert value(["-c", "1", "-c", "2"], "-c") == "2"
