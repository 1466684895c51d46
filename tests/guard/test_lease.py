"""The countdown of the lease runs while the baseline is down; an attached operator renews it."""

from __future__ import annotations

import pytest

from console.recovery.guard.decide.policy import Lease


def test_it_counts_only_while_the_baseline_is_down() -> None:
    lease = Lease(60)
    assert lease.left(0) is None
    lease.attended(10)
    assert lease.left(1000) is None
    assert not lease.expired(1000)
    lease.outage(True, 1000)
    assert lease.left(1000) == 60
    assert lease.left(1059) == pytest.approx(1)
    assert not lease.expired(1059.9)
    assert lease.expired(1060)
    lease.outage(False, 1061)
    assert lease.left(2000) is None
    assert not lease.expired(2000)


def test_who_is_attached_renews_it() -> None:
    lease = Lease(60)
    lease.outage(True, 0)
    for at in (10, 50, 100):
        lease.attended(at)
    assert lease.left(100) == 60
    lease.attended(20)  # this message came late
    assert lease.left(100) == 60
    assert lease.expired(160)


def test_said_again_an_outage_does_not_begin_anew() -> None:
    lease = Lease(60)
    lease.attended(-10)  # before the outage, so it adds no time
    for on, at, left in ((True, 0, 60), (True, 50, 10), (False, 55, None), (True, 70, 60)):
        lease.outage(on, at)
        assert lease.left(at) == left


def test_without_a_length_it_never_runs_out_and_nothing_left_is_never_negative() -> None:
    for length, left in ((0, None), (-1, None), (5, 0.0)):
        lease = Lease(length)
        lease.outage(True, 0)
        assert lease.left(1e9) == left
        assert lease.expired(1e9) == (length > 0)
