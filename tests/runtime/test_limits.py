"""Limits of a container: its own, those for one that names none, and what is laid over compose."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from console.common.errors import ServiceError
from console.host.process import COOKIE
from console.models.sizing.assessment import HOST_MARGIN
from console.runtime import spec
from console.runtime.docker.compose import Resolved, _memory, _object, override_of
from console.runtime.docker.container import LOGGING
from console.runtime.spec import PIDS, ComposeSpec, ContainerSpec
from tests.waiting import some

GIB = 1 << 30
WEB = ComposeSpec((Path("/a.yaml"),), "web")


@pytest.mark.parametrize(
    ("total", "expected"), [(377, 369), (64, 58.5), (24, 21.75), (4, 2), (2, 1), (0.25, 0.25)]
)
def test_a_reserve_is_left_that_grows_with_the_machine(total: float, expected: float) -> None:
    limit = some(spec.default_memory(int(total * GIB)))
    assert limit == pytest.approx(expected * GIB, abs=0.13 * GIB)
    assert limit < total * GIB


@pytest.mark.parametrize("total", [16, 24, 64, 128, 377, 1024])
def test_it_ends_nothing_that_preflight_calls_go(total: int) -> None:
    limit = some(spec.default_memory(total * GIB))
    assert limit >= total * GIB - HOST_MARGIN


def test_a_little_less_ram_is_the_same_limit() -> None:
    """Else no older container would be found again after a kernel update."""
    total = 25276502016
    assert spec.default_memory(total) == spec.default_memory(total - (3 << 20))


def test_the_playbooks_own_limit_counts() -> None:
    assert spec.limited(ContainerSpec("i", memory_bytes=5)).memory_bytes == 5
    own = spec.limited(ContainerSpec("i")).memory_bytes
    assert own == spec.default_memory() == spec.default_memory(spec.total_memory())


def test_ram_that_is_not_known_is_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spec, "total_memory", lambda: None)
    assert spec.default_memory() is None


def deploy(**limits: Any) -> dict[str, Any]:
    return {"deploy": {"resources": {"limits": limits}}}


def test_a_compose_files_own_lower_limit_stays() -> None:
    default = some(spec.default_memory())
    assert _memory(WEB, {}, True) == default
    assert _memory(WEB, {}, False) is None
    assert _memory(WEB, {"mem_limit": str(GIB)}, True) == GIB
    assert _memory(WEB, deploy(memory=str(GIB)), True) == GIB
    assert _memory(WEB, {"mem_limit": str(default * 2)}, True) == default
    assert _memory(ComposeSpec((), "s", memory_bytes=7), {"mem_limit": "5"}, True) == 7


def laid_over(
    service: dict[str, Any],
    config: dict[str, Any] | None = None,
    there: Callable[[str, str], bool] = lambda kind, name: False,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is laid over a compose file, and of that what is laid over the service."""
    resolved = Resolved(config or {}, service, "image", "sha", "digest", "project", GIB)
    content = override_of(resolved, {"a": "b"}, "run-1", WEB, there)
    return content, content["services"]["web"]


def test_the_override_has_every_limit_and_nothing_of_the_services_environment() -> None:
    assert laid_over({"environment": {"WORD": "hf_canary"}})[1] == {
        "image": "image", "pull_policy": "never", "restart": "no", "pids_limit": PIDS,
        "mem_limit": GIB, "memswap_limit": GIB, "oom_score_adj": 1000, "labels": {"a": "b"},
        "environment": {COOKIE: "run-1"},
        "logging": {"driver": "json-file", "options": LOGGING}, "scale": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("service", "over"),
    [
        ({"deploy": {"restart_policy": {"condition": "any"}}},
         {"restart_policy": {"condition": "none"}}),
        (deploy(pids=5, memory="1g"), deploy(pids=PIDS, memory=str(GIB))["deploy"]),
    ],
)  # fmt: skip
def test_what_deploy_says_is_overruled_there(service: dict[str, Any], over: object) -> None:
    assert laid_over(service)[1]["deploy"] == over


@pytest.mark.parametrize("there", [True, False])
def test_volumes_and_networks_that_are_there_are_shared(there: bool) -> None:
    volume, bind = {"type": "volume", "source": "models", "target": "/m"}, {"type": "bind"}
    config = {
        "volumes": {"models": {"name": "p_models"}, "none": None},
        "networks": {"default": {"name": "p_default"}},
    }
    asked: set[tuple[str, str]] = set()
    content, service = laid_over(
        {"volumes": [volume, bind]}, config, lambda *at: not asked.add(at) and there
    )
    assert asked == {("volumes", "p_models"), ("networks", "p_default")}
    if not there:
        assert "volumes" not in service
        assert not {"volumes", "networks"} & content.keys()
        return
    assert service["volumes"] == [{**volume, "source": "omni-shared-models"}]
    assert content["volumes"] == {"omni-shared-models": {"name": "p_models", "external": True}}
    assert content["networks"] == {"default": {"name": "p_default", "external": True}}


@pytest.mark.parametrize("text", ["[]", "{", "[" * 100_000])
def test_a_configuration_that_is_none(text: str) -> None:
    with pytest.raises(ServiceError):
        _object(text)
