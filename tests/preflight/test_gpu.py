"""Compute capability against kernels, CUDA and driver."""

from __future__ import annotations

import pytest

from console.checks.preflight.gpu import parse_archs, runs_on
from console.host.sample import Card

PRO = Card("PRO 6000", "GPU-1", compute=(12, 0))
ADA = Card("RTX 4090", "GPU-2", compute=(8, 9))
DARK = Card("?", "GPU-3")


@pytest.mark.parametrize(
    ("text", "archs"),
    [
        ("['sm_75', 'sm_80', 'sm_120']", ("sm_75", "sm_80", "sm_120")),
        ("sm_90a compute_90", ("sm_90a", "compute_90")),
        ("[]", ()),
        ("None", ()),
        ("", ()),
        ("Traceback (most recent call last)", None),
    ],
)
def test_pytorchs_list(text: str, archs: tuple[str, ...] | None) -> None:
    assert parse_archs(text) == archs


@pytest.mark.parametrize(
    ("archs", "capability", "runs"),
    [
        (["sm_120"], (12, 0), True),
        (["sm_120"], (12, 1), True),
        (["sm_121"], (12, 0), False),
        (["sm_90", "sm_100"], (12, 0), False),
        (["sm_80"], (8, 9), True),
        (["sm_90a"], (9, 0), True),
        (["sm_120a"], (12, 1), False),
        (["sm_120f"], (12, 1), True),
        (["compute_90"], (12, 0), True),
        (["compute_120"], (9, 0), False),
        (["compute_90a"], (12, 0), False),
        (["nonsense"], (12, 0), False),
        ([], (12, 0), False),
    ],
)
def test_what_runs_where(archs: list[str], capability: tuple[int, int], runs: bool) -> None:
    assert runs_on(archs, capability) is runs


DRIVERS: list[tuple[str, tuple[int, int] | None, str, str]] = [
    ("580.95.05", (13, 0), "6.8.0-45-generic", ""),
    ("570.86.15", (13, 0), "6.8.0", ""),
    ("525.60.13", (12, 8), "", ""),
    ("515.43", (12, 1), "", ""),
    ("580.95.05", None, "6.19.1", ""),
    ("580.126.09", None, "6.19.1", ""),
    ("580.95.05", (19, 0), "", ""),
    ("", (12, 8), "", ""),
    ("\x1b[31m", None, "", ""),
    ("580.95.05", None, "", "580.95.05"),
    ("580.95.05", None, "", "580.126"),
    ("590.1", None, "", "580.126.09"),
    ("", None, "", "580"),
]
"""Driver, CUDA, kernel, and the oldest driver that will do."""
