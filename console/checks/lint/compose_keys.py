"""What compose refuses of a file for its form alone: keys that are written twice or that it does
not know, values of the wrong kind, sizes and durations that are none.

The keys are those of the Compose Specification of July 2026 (compose-spec.json, under definitions;
github.com/compose-spec/compose-go). A value with a variable, and one that is empty, is not judged.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from console.checks.lint.unit import Hit, Place
from console.checks.lint.yaml_tree import Node, Tree

KINDS = {"text": "a text or number", "list": "a list", "map": "a mapping",
         "size": "a size, like 64g", "time": "a duration, like 30s"}  # fmt: skip
SCALARS = {
    "size": re.compile(r"-1|\d+(\.\d+)? ?([kmgtp]i?b?|b)?", re.IGNORECASE),
    "time": re.compile(r"(\d+(\.\d+)?(ns|us|µs|ms|s|m|h|d|w))+|\d+"),
}
_NAME = re.compile(r"[a-zA-Z0-9._-]+")
OTHER_TOOLS = frozenset({"steps", "pipeline", "jobs", "stages", "kind", "apiVersion", "schema"})
"""Keys of files with `services:` that are not for compose."""
MOST = 50
"""What is said of one file."""

Shape = str | Mapping[str, Any]
"""Kinds of a value, or its keys: "" has its kinds (a mapping without), "*" the shape under names
that the operator gives. Keys of a list are those of its mappings."""


def _keys(words: str, **more: Shape) -> dict[str, Shape]:
    return {**dict.fromkeys(words.split(), "text"), **more}


def _of(kinds: str, shape: Mapping[str, Shape]) -> dict[str, Shape]:
    return {**shape, "": kinds}


_PAIRS = "list map"
_WORDS = "text list"
_NAMED = _keys("name", external="text map", labels=_PAIRS)
_DRIVEN = {**_NAMED, **_keys("driver", driver_opts="map")}
_ROLLING = _keys("parallelism failure_action max_failure_ratio order", delay="time", monitor="time")
_HOOK = _of("list", _keys("user privileged working_dir image per_replica",
                          command=_WORDS, environment=_PAIRS))  # fmt: skip
_GRANT = _of("list", _keys("source target uid gid mode"))
_DEVICES = _of("list", _keys("count driver", capabilities="list", device_ids="list",
                             options=_PAIRS))  # fmt: skip
_BUILD = _keys(
    "context dockerfile dockerfile_inline no_cache network pull target isolation privileged "
    "provenance sbom",
    shm_size="size", entitlements="list", args=_PAIRS, ssh="text list map", labels=_PAIRS,
    cache_from="list", cache_to="list", no_cache_filter=_WORDS, additional_contexts=_PAIRS,
    extra_hosts=_PAIRS, secrets=_GRANT, tags="list", ulimits="map", platforms="list",
)  # fmt: skip
_DEPLOY = _keys(
    "mode endpoint_mode replicas",
    labels=_PAIRS, rollback_config=_ROLLING, update_config=_ROLLING,
    resources={
        "limits": _keys("cpus pids", memory="size"),
        "reservations": _keys("cpus", memory="size", generic_resources="list", devices=_DEVICES),
    },
    restart_policy=_keys("condition max_attempts", delay="time", window="time"),
    placement=_keys("max_replicas_per_node", constraints="list", preferences="list"),
)  # fmt: skip
_NETWORK = _keys(
    "interface_name ipv4_address ipv6_address mac_address priority gw_priority",
    aliases="list", link_local_ips="list", driver_opts="map",
)  # fmt: skip
_VOLUME = _of("list", _keys(
    "type source target read_only consistency",
    bind=_keys("propagation create_host_path recursive selinux"),
    volume=_keys("nocopy subpath", labels=_PAIRS),
    tmpfs=_keys("mode", size="size"), image=_keys("subpath"),
))  # fmt: skip
_SERVICE = _keys(
    "attach cgroup cgroup_parent container_name cpu_count cpu_percent cpu_shares cpu_quota "
    "cpu_period cpu_rt_period cpu_rt_runtime cpus cpuset domainname hostname image init ipc "
    "isolation mac_address mem_swappiness network_mode oom_kill_disable oom_score_adj pid "
    "pids_limit platform privileged pull_policy pull_refresh_after read_only restart runtime scale "
    "stdin_open stop_signal tty use_api_socket user uts userns_mode working_dir",
    mem_limit="size", mem_reservation="size", memswap_limit="size", shm_size="size",
    stop_grace_period="time", annotations=_PAIRS, build=_of("text map", _BUILD), deploy=_DEPLOY,
    blkio_config="map", cap_add="list", cap_drop="list", command=_WORDS, entrypoint=_WORDS,
    configs=_GRANT, secrets=_GRANT, credential_spec=_keys("config file registry"),
    depends_on=_of(_PAIRS, {"*": _keys("condition restart required")}),
    develop={"watch": "list"}, device_cgroup_rules="list",
    devices=_of("list", _keys("source target permissions")), dns=_WORDS, dns_opt="list",
    dns_search=_WORDS, env_file=_of(_WORDS, _keys("path format required")), label_file=_WORDS,
    environment=_PAIRS, expose="list", extends=_of("text map", _keys("service file")),
    provider=_keys("type", options="map"), external_links="list", extra_hosts=_PAIRS,
    gpus=_of(_WORDS, _DEVICES), group_add="list",
    healthcheck=_keys("disable retries", test=_WORDS, interval="time", timeout="time",
                      start_period="time", start_interval="time"),
    labels=_PAIRS, links="list", logging=_keys("driver", options="map"),
    models=_of(_PAIRS, {"*": _keys("endpoint_var model_var")}),
    networks=_of(_PAIRS, {"*": _NETWORK}),
    ports=_of("list", _keys("name mode host_ip target published protocol app_protocol")),
    pre_start=_HOOK, post_start=_HOOK, pre_stop=_HOOK, profiles="list", security_opt="list",
    sysctls=_PAIRS, storage_opt="map", tmpfs=_WORDS, ulimits="map", volumes=_VOLUME,
    volumes_from="list",
)  # fmt: skip
FILE: Mapping[str, Shape] = _keys(
    "version name",
    include=_of("list", {**_keys("project_directory"), "path": _WORDS, "env_file": _WORDS}),
    services={"*": _SERVICE},
    models={"*": _keys("name model context_size", runtime_flags="list")},
    networks={"*": {**_DRIVEN, **_keys("internal enable_ipv4 enable_ipv6 attachable", ipam="map")}},
    volumes={"*": _DRIVEN},
    secrets={"*": {**_DRIVEN, **_keys("environment file template_driver")}},
    configs={"*": {**_NAMED, **_keys("content environment file template_driver")}},
)  # fmt: skip


def refused(tree: Tree, *, sure: bool) -> Iterator[Hit]:
    """What compose refuses, in no order. `sure`: whether the file is known to be for compose, so
    that its first level is judged, too."""
    if OTHER_TOOLS & set(tree.root.fields or {}):
        return
    for key, place, first in tree.doubled[:MOST]:
        what = f"`{key}` is there twice: it stands in line {first.line} already"
        yield Hit(place, what, fix="one of them, with what both have")
    yield from islice(_unfit(tree.root, FILE, "", set(), sure), MOST)


def _unfit(
    node: Node, shape: Shape, path: str, seen: set[tuple[int, int]], sure: bool = True
) -> Iterator[Hit]:
    """`seen`: values that were judged by a shape: an alias shows the same one in many places."""
    if (id(node), id(shape)) in seen:
        return
    seen.add((id(node), id(shape)))
    kinds = str(shape if isinstance(shape, str) else shape.get("", "map"))
    if not _is_fit(node, kinds.split()):
        wanted = " or ".join(KINDS[one] for one in kinds.split())
        yield Hit(node.place, f"{path or 'the file'} is {_said(node)}", fix=wanted)
    elif not isinstance(shape, str):
        for one in node.each():
            if one.fields is not None:
                yield from _below(one, shape, f"{path}[]", seen)
        yield from _below(node, shape, path, seen, sure)


def _below(
    node: Node, keys: Mapping[str, Shape], path: str, seen: set[tuple[int, int]], sure: bool = True
) -> Iterator[Hit]:
    for key, value in node.pairs():
        below = f"{path}.{key}" if path else key
        if key and key in keys:
            yield from _unfit(value, keys[key], below, seen)
        elif key.startswith("x-") or key == "<<" or "$" in key:
            continue
        elif "*" in keys and _NAME.fullmatch(key):
            yield from _unfit(value, keys["*"], below, seen)
        elif sure:
            yield _unknown(node.keys.get(key, value.place), key, keys, path)


def _said(node: Node) -> str:
    if node.fields is not None:
        return "a mapping"
    return "a list" if node.items is not None else f"`{node.text}`"


def _is_fit(node: Node, kinds: list[str]) -> bool:
    if node.fields is not None:
        return "map" in kinds
    if node.items is not None:
        return "list" in kinds
    text = node.text or ""
    if text in ("", "~", "null", "Null", "NULL") or "$" in text:
        return True
    scalars = [one for one in kinds if one in SCALARS]
    return "text" in kinds or any(SCALARS[one].fullmatch(text) for one in scalars)


def _unknown(place: Place, key: str, keys: Mapping[str, Shape], path: str) -> Hit:
    where = f"in {path}" if path else "at its first level"
    if "*" in keys:
        return Hit(place, f"{key} is no name {where}", fix="letters, digits, `.`, `_` and `-`")
    near = difflib.get_close_matches(key, [one for one in keys if one], 1, 0.7)
    fix = f"`{near[0]}`" if near else "leave it out; keys of your own begin with `x-`"
    return Hit(place, f"compose knows no key `{key}` {where}", fix=fix)
