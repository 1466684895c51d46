"""Compute capability against kernels, CUDA and driver."""

from __future__ import annotations

import pytest

from console.fit.machine import Card
from console.preflight.finding import Level
from console.preflight.gpu import check_archs, check_cuda, check_driver, parse_archs, runs_on

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


def test_kernels_that_are_not_there() -> None:
    found = check_archs([PRO, ADA], ("sm_75", "sm_86", "sm_89"), "PyTorch 2.1")
    assert (found.level, found.lessons) == (Level.FAIL, ("F-001", "F-012"))
    assert "PRO 6000 (sm_120)" in found.words
    assert "4090" not in found.words
    assert check_archs([PRO, ADA], ("sm_86", "sm_120"), "PyTorch").level is Level.OK


def test_an_empty_list_proves_nothing() -> None:
    found = check_archs([PRO], (), "PyTorch")
    assert (found.level, found.lessons) == (Level.UNKNOWN, ("F-014",))
    assert "_cuda_getArchFlags" in found.hint


def test_what_is_not_known_stays_unknown() -> None:
    assert check_archs([PRO], None, "PyTorch").level is Level.UNKNOWN
    assert check_archs([DARK], ("sm_120",), "PyTorch").level is Level.UNKNOWN
    assert check_archs([PRO, DARK], ("sm_120",), "PyTorch").level is Level.UNKNOWN
    assert check_cuda([PRO], None, "image")[0].level is Level.UNKNOWN
    assert check_cuda([Card("new", compute=(15, 0))], (13, 0), "image")[0].level is Level.UNKNOWN
    assert check_cuda([DARK], (12, 8), "image") == ()


def test_cuda_before_blackwell() -> None:
    (found,) = check_cuda([PRO, PRO], (12, 4), "image x")
    assert found.level is Level.FAIL
    assert "F-012" in found.lessons
    assert "12.8" in found.words
    assert "PyTorch 2.7" in found.hint
    assert [one.level for one in check_cuda([PRO, ADA], (12, 8), "x")] == [Level.OK, Level.OK]


DRIVERS: list[tuple[str, tuple[int, int] | None, str, str, Level]] = [
    ("580.95.05", (13, 0), "6.8.0-45-generic", "", Level.OK),
    ("570.86.15", (13, 0), "6.8.0", "", Level.FAIL),
    ("525.60.13", (12, 8), "", "", Level.OK),
    ("515.43", (12, 1), "", "", Level.FAIL),
    ("580.95.05", None, "6.19.1", "", Level.WARN),
    ("580.126.09", None, "6.19.1", "", Level.OK),
    ("580.95.05", (19, 0), "", "", Level.UNKNOWN),
    ("", (12, 8), "", "", Level.UNKNOWN),
    ("\x1b[31m", None, "", "", Level.UNKNOWN),
    ("580.95.05", None, "", "580.95.05", Level.OK),
    ("580.95.05", None, "", "580.126", Level.FAIL),
    ("590.1", None, "", "580.126.09", Level.OK),
    ("", None, "", "580", Level.UNKNOWN),
]
"""Driver, CUDA, kernel, the oldest driver that will do, and what comes of it."""


def test_the_driver() -> None:
    for driver, cuda, kernel, least, level in DRIVERS:
        found = check_driver(driver, cuda, kernel, least=least)
        assert found.level is level, (driver, cuda, kernel, least)
        assert found.text.isprintable()
