"""Guards of the site: its runs' defaults, held against the machine it declares."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.config.site.guard import trouble
from console.host.sample import Card, Machine
from console.recovery.guard.config import Limit
from tests.site.test_load import BASELINE, load

GIB = 1 << 30
MACHINE = "machine: {ram: 377GiB, swap: 207GiB}\n"
GPUS = "gpus: [{uuid: GPU-a, memory: 96GiB}, {uuid: GPU-b, memory: 32GiB}]\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "site.yaml"


def test_guards_and_a_lease(path: Path) -> None:
    text = BASELINE + MACHINE + "lease: 30m\nguards:\n"
    site = load(path, text + "- {metric: host.ram_available, below: 24GiB, for: 2s}\n")
    assert site.model.lease == 1800.0
    assert site.guards == (
        Limit("host.ram_available", below=24 * GIB, for_s=2.0, source="site, line 7"),
    )


def test_a_site_without_them(path: Path) -> None:
    site = load(path, BASELINE)
    assert (site.guards, site.model.lease) == ((), None)


def test_what_fits(path: Path) -> None:
    text = BASELINE + MACHINE + GPUS + "guards:\n"
    text += "- {metric: gpu.memory_used, above: 126GiB, of: sum}\n"
    text += "- {metric: gpu.memory_used, above: 31GiB, of: GPU-b}\n"
    text += "- {metric: host.swap_used, above: 100GiB}\n"
    assert len(load(path, text).guards) == 3


def test_what_is_not_known_of_a_machine_decides_nothing() -> None:
    for limit in (
        Limit("host.ram_available", below=1e15), Limit("host.swap_used", above=1e15),
        Limit("gpu.memory_used", above=1e15, of="sum"), Limit(log="x", matches="y"),
    ):  # fmt: skip
        assert trouble(limit, Machine()) == ""
    half = Machine(cards=(Card("a", "GPU-a", 96 * GIB), Card("b", "GPU-b")))
    assert trouble(Limit("gpu.memory_used", above=1e15, of="sum"), half) == ""
    assert trouble(Limit("host.swap_free", below=1 * GIB), Machine(swap_total=0)) == ""
