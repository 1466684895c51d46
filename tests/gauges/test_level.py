"""Thresholds, and what a level means."""

from __future__ import annotations

import pytest

from console.host.sample import (
    LIMITS,
    MIB,
    DiskSample,
    GpuSample,
    Level,
    MemorySample,
    disk_level,
    gpu_levels,
    memory_levels,
)

OK, WARN, CRITICAL, UNKNOWN = Level.OK, Level.WARN, Level.CRITICAL, Level.UNKNOWN


@pytest.mark.parametrize(
    ("gauge", "fine", "worry", "bad"),
    [
        ("vram", 0.899, 0.90, 0.97),
        ("ram", 0.10, 0.099, 0.049),
        ("swap", 0.49, 0.50, 0.90),
        ("swap_in", 100 * MIB, 101 * MIB, 401 * MIB),
        ("pressure", 10, 10.1, 40.1),
        ("temperature", 82.9, 83, 90),
        ("disk", 0.10, 0.099, 0.029),
    ],
)
def test_every_threshold(gauge: str, fine: float, worry: float, bad: float) -> None:
    limits = LIMITS[gauge]
    assert [limits.level(one) for one in (fine, worry, bad, None)] == [OK, WARN, CRITICAL, UNKNOWN]


def test_every_gauge_has_a_test() -> None:
    assert set(LIMITS) == {"vram", "ram", "swap", "swap_in", "pressure", "temperature", "disk"}


def test_the_worst_is_the_greatest_and_marks_need_no_colour() -> None:
    assert max(UNKNOWN, OK, WARN) is WARN
    assert [level.mark for level in Level] == ["", "", "!", "!!"]


def test_of_samples() -> None:
    gpu = GpuSample("u", 0, "n", used_bytes=98, total_bytes=100, temperature_c=84)
    assert gpu_levels(gpu) == {"vram": CRITICAL, "temperature": WARN}
    assert set(gpu_levels(GpuSample("u", 0, "n")).values()) == {UNKNOWN}
    memory = MemorySample(100, 4, 0, 0, pressure_some=11.0)
    assert memory_levels(memory) == {
        "ram": CRITICAL, "swap": UNKNOWN, "swap_in": UNKNOWN, "pressure": WARN,
    }  # fmt: skip
    assert disk_level(DiskSample("/", 100, 9)) is WARN
    assert disk_level(DiskSample("/", None, None, "gone")) is UNKNOWN
