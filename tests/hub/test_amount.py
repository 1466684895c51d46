"""Two units for one number, and what a line needs for it."""

from __future__ import annotations

import pytest

from console.hub.amount import download_time, rate, seconds_for
from console.units import both_units


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (642 << 30, "642.0 GiB (689.3 GB)"),
        (688_900_000_000, "641.6 GiB (688.9 GB)"),
        (999, "999 B"),
        (1000, "1000 B (1.0 kB)"),
        (999_960_000, "953.6 MiB (1.0 GB)"),
        (0, "0 B"),
        (None, "unknown"),
    ],
)
def test_both_units(count: int | None, text: str) -> None:
    assert both_units(count) == text


def test_download_time() -> None:
    assert seconds_for(689_000_000_000, 57.3e6) == pytest.approx(12024, abs=1)
    words = download_time(689_000_000_000, 57.3e6, "measured")
    assert words == "3 h 20 min at 57.3 MB/s (measured)"
    assert download_time(0, None) == "nothing to download"
    assert download_time(None, 1e6) == "unknown: sizes are missing"
    assert "neither measured nor given" in download_time(5, None)
    assert "neither measured nor given" in download_time(5, 0.0)
    assert rate(None) == "unknown"
