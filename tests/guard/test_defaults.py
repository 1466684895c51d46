"""The levels scale with the machine, and none is out of proportion."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.models.sizing import assessment
from console.recovery.guard.config import GIB, MARGIN, Defaults, Limit, defaults

SIZES = (4, 8, 16, 24, 64, 128, 384, 2048)


def kills(found: Defaults, metric: str) -> list[Limit]:
    return [one for one in found.limits if one.metric == metric and one.act == "kill"]


def test_the_margin_is_preflights() -> None:
    assert MARGIN == assessment.HOST_MARGIN


@given(total=st.integers(1 * GIB, 8192 * GIB), swap=st.integers(0, 1024 * GIB))
def test_every_machine(total: int, swap: int) -> None:
    found = defaults(total, swap)
    assert 0 < found.floor < found.kept <= found.reserve < total // 4
    assert found.kept <= MARGIN, "what preflight calls GO must be let end"
    if total >= 16 * GIB:
        assert found.floor >= 2 * GIB
    assert found.floor <= total // 8
    (floor,) = kills(found, "host.ram_available")
    assert floor.below == found.floor
    assert bool(kills(found, "host.swap_growth")) == bool(swap)
    for limit in found.limits:
        assert Limit.from_json(limit.to_json()) == limit
        assert limit.source == "default"


@pytest.mark.parametrize("gib", SIZES)
def test_each_warning_comes_before_its_kill(gib: int) -> None:
    found = defaults(gib * GIB, gib * GIB)
    for metric in ("host.ram_available", "host.time_to_full"):
        (kill,) = kills(found, metric)
        warn = next(one for one in found.limits if one.metric == metric and one.act == "warn")
        assert (warn.below or 0) > (kill.below or 0)
        assert (warn.scarce or gib * GIB) >= kill.scarce


def test_swap_growth_can_be_reached() -> None:
    for total, swap in ((384, 207), (24, 1), (4, 64)):
        (limit,) = kills(defaults(total * GIB, swap * GIB), "host.swap_growth")
        assert 0 < (limit.above or 0) <= swap * GIB / 2
