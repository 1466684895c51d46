"""What is laid over a compose file: limits in both places, no restart, the operator's volumes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from console.common.errors import ServiceError
from console.host.process import COOKIE
from console.runtime.docker.compose import Resolved, _object, override_of
from console.runtime.docker.container import LOGGING
from console.runtime.spec import PIDS, ComposeSpec


def test_restart_policy_of_deploy_is_overruled() -> None:
    runs = ComposeSpec((Path("/a.yaml"),), "web")
    service = {"deploy": {"restart_policy": {"condition": "any"}}}
    resolved = Resolved({}, service, "image", "sha", "digest", "project")
    content = override_of(resolved, {}, "run", runs, lambda kind, name: False)
    assert content["services"]["web"]["deploy"] == {"restart_policy": {"condition": "none"}}
    resolved = replace(resolved, service={})
    content = override_of(resolved, {}, "run", runs, lambda kind, name: False)
    assert "deploy" not in content["services"]["web"]


@pytest.mark.parametrize("there", [True, False])
def test_volumes_and_networks_that_are_there_are_shared(there: bool) -> None:
    runs = ComposeSpec((Path("/a.yaml"),), "web")
    volume, bind = {"type": "volume", "source": "models", "target": "/m"}, {"type": "bind"}
    config = {
        "volumes": {"models": {"name": "p_models"}, "none": None},
        "networks": {"default": {"name": "p_default"}},
    }
    resolved = Resolved(config, {"volumes": [volume, bind]}, "image", "sha", "digest", "project")
    asked: set[tuple[str, str]] = set()
    content = override_of(resolved, {}, "run", runs, lambda *at: not asked.add(at) and there)
    assert asked == {("volumes", "p_models"), ("networks", "p_default")}
    if not there:
        assert "volumes" not in content["services"]["web"]
        assert not {"volumes", "networks"} & content.keys()
        return
    assert content["services"]["web"]["volumes"] == [{**volume, "source": "omni-shared-models"}]
    assert content["volumes"] == {"omni-shared-models": {"name": "p_models", "external": True}}
    assert content["networks"] == {"default": {"name": "p_default", "external": True}}


@pytest.mark.parametrize("text", ["[]", "{", "[" * 100_000])
def test_a_configuration_that_is_none(text: str) -> None:
    with pytest.raises(ServiceError):
        _object(text)


def test_a_limit_in_both_places_of_the_file_is_overruled_in_both() -> None:
    runs = ComposeSpec((Path("/a.yaml"),), "web")
    deploy = {"deploy": {"resources": {"limits": {"pids": 5, "memory": "1g"}}}}
    resolved = Resolved({}, deploy, "image", "sha", "digest", "project", 1 << 30)
    content = override_of(resolved, {"a": "b"}, "run-1", runs, lambda kind, name: False)
    made = content["services"]["web"]
    limits = {"pids": PIDS, "memory": str(1 << 30)}
    assert made["deploy"] == {"resources": {"limits": limits}}
    assert (made["image"], made["pull_policy"], made["restart"]) == ("image", "never", "no")
    assert (made["labels"], made["environment"]) == ({"a": "b"}, {COOKIE: "run-1"})
    assert made["logging"] == {"driver": "json-file", "options": LOGGING}
