"""The quota that gives a stand-in its speed is found by measuring."""

from __future__ import annotations

import pytest

from console.common.errors import ServiceError
from console.rehearsal.speed import calibrate


class Box:
    """A machine on which a token takes `cost` CPU seconds, and no more than `most` are made."""

    def __init__(self, cost: float, most: float = 1e9) -> None:
        self.cost, self.most, self.cpus = cost, most, 0.0

    def limit(self, cpus: float) -> None:
        self.cpus = cpus

    def measure(self) -> float:
        return min(self.most, self.cpus / self.cost)


@pytest.mark.parametrize("cost", [0.002, 0.008, 0.05])
def test_it_ends_near_the_aim_whatever_it_began_with(cost: float) -> None:
    box, said = Box(cost), list[str]()
    per = calibrate(box.measure, box.limit, 0.009, 10.9, said.append)
    assert per == pytest.approx(cost, rel=0.06)
    assert "10.9" in said[-1]


def test_a_machine_that_is_too_slow_is_refused() -> None:
    box = Box(0.008, most=4.0)
    with pytest.raises(ServiceError):
        calibrate(box.measure, box.limit, 0.009, 10.9, lambda _: None)
