"""The limit of a container that names none: below the machine, above what preflight calls GO."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.models.sizing.assessment import HOST_MARGIN
from console.runtime import spec
from console.runtime.docker.compose import Resolved, _memory, override_of
from console.runtime.spec import ComposeSpec, ContainerSpec

GIB = 1 << 30


@pytest.mark.parametrize(
    ("total", "expected"), [(377, 369), (64, 58.5), (24, 21.75), (4, 2), (2, 1), (0.25, 0.25)]
)
def test_a_reserve_is_left_that_grows_with_the_machine(total: float, expected: float) -> None:
    limit = spec.default_memory(int(total * GIB))
    assert limit is not None
    assert limit == pytest.approx(expected * GIB, abs=0.13 * GIB)
    assert limit < total * GIB


@pytest.mark.parametrize("total", [16, 24, 64, 128, 377, 1024])
def test_it_ends_nothing_that_preflight_calls_go(total: int) -> None:
    limit = spec.default_memory(total * GIB)
    assert limit is not None
    assert limit >= total * GIB - HOST_MARGIN


def test_a_little_less_ram_is_the_same_limit() -> None:
    """Else no older container would be found again after a kernel update."""
    total = 25276502016
    assert spec.default_memory(total) == spec.default_memory(total - (3 << 20))


def test_the_playbooks_own_limit_counts() -> None:
    assert spec.limited(ContainerSpec("i", memory_bytes=5)).memory_bytes == 5
    own = spec.limited(ContainerSpec("i")).memory_bytes
    assert own == spec.default_memory() == spec.default_memory(spec.total_memory())
    assert spec.limited(ContainerSpec("i")) == spec.limited(ContainerSpec("i"))


def test_ram_that_is_not_known_is_no_limit_and_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spec, "total_memory", lambda: None)
    assert spec.default_memory() is None


def test_a_compose_files_own_lower_limit_stays() -> None:
    runs = ComposeSpec((Path("c.yaml"),), "s")
    default = spec.default_memory()
    assert default is not None
    assert _memory(runs, {}, True) == default
    assert _memory(runs, {}, False) is None
    assert _memory(runs, {"mem_limit": str(GIB)}, True) == GIB
    deploy = {"deploy": {"resources": {"limits": {"memory": str(GIB)}}}}
    assert _memory(runs, deploy, True) == GIB
    assert _memory(runs, {"mem_limit": str(default * 2)}, True) == default
    assert _memory(ComposeSpec((), "s", memory_bytes=7), {"mem_limit": "5"}, True) == 7


def test_the_override_limits_ram_and_swap_alike() -> None:
    runs = ComposeSpec((Path("c.yaml"),), "s")
    resolved = Resolved({}, {}, "image", "sha", "digest", "project", GIB)
    made = override_of(resolved, {}, "run", runs, lambda kind, name: False)["services"]["s"]
    assert made["mem_limit"] == made["memswap_limit"] == GIB
    assert made["oom_score_adj"] == 1000
    assert "deploy" not in made
