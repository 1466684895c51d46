"""The level that decides."""

from __future__ import annotations

import pytest

from console.common.errors import Finding, Level, worst


@pytest.mark.parametrize(
    ("levels", "decides"),
    [
        ((), Level.OK),
        ((Level.OK, Level.WARN), Level.WARN),
        ((Level.WARN, Level.UNKNOWN, Level.OK), Level.UNKNOWN),
        ((Level.UNKNOWN, Level.FAIL, Level.WARN), Level.FAIL),
    ],
)
def test_what_is_not_known_is_no_good_news(levels: tuple[Level, ...], decides: Level) -> None:
    assert worst(Finding(level, "t", "w") for level in levels) is decides
