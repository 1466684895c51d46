"""What compose refuses of a file for its form alone: keys that are written twice or that it does
not know, values of the wrong kind, sizes and durations that are none.

The keys are those of the Compose Specification of July 2026 (compose-spec.json, under definitions;
github.com/compose-spec/compose-go). A value with a variable, and one that is empty, is not judged.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from console.checks.lint.unit import Hit, Place
from console.checks.lint.yaml_tree import Node, Tree

KINDS = {"text": "a text or number", "word": "a text: a number or a truth wants quotes",
         "list": "a list", "map": "a mapping", "size": "a size, like 64g",
         "bytes": "a size with its unit, or in quotes",
         "time": "a duration, like 30s", "int": "a whole number", "number": "a number",
         "count": "a number, or `all`", "flag": "true or false",
         "cname": "letters, digits, `_`, `.` and `-`, two at least"}  # fmt: skip
NUMBER = re.compile(
    r"[-+]?(0b[01_]+|0o?[0-7_]+|0x[\da-f_]+|\d[\d_]*|(\.\d+|\d+(\.\d*)?)(e[-+]?\d+)?|\.inf)|\.nan",
    re.IGNORECASE,
)
TRUTH = re.compile(r"true|false", re.IGNORECASE)
_SIZE = re.compile(r"-1|(\d+(\.\d*)?|\.\d+) ?([kmgtp]i?b|[kmgtpb])?", re.IGNORECASE)
SCALARS = {
    "size": _SIZE,
    "bytes": _SIZE,
    "time": re.compile(r"-?(\d+(\.\d+)?(ns|us|µs|ms|s|m|h|d|w))+"),
    "int": re.compile(r"[-+]?(0x[\da-f_]+|0o[0-7_]+|\d[\d_]*)", re.IGNORECASE),
    "number": NUMBER,
    "count": re.compile(r"all|-?\d+", re.IGNORECASE),
    "flag": re.compile(r"true|false|y|yes|n|no|on|off", re.IGNORECASE),
    "cname": re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]+"),
    "pull": re.compile(
        r"always|never|build|if_not_present|missing|refresh|daily|weekly|every_(\d+[wdhms])+"
    ),
}
ONE_OF = "one:"
"""How a kind begins that is one of these words, with commas."""
NOTHING = ("", "~", "null", "Null", "NULL")
_NAME = re.compile(r"[a-zA-Z0-9._-]+")
OTHER_TOOLS = frozenset({"steps", "pipeline", "jobs", "stages", "kind", "apiVersion", "schema"})
"""Keys of files with `services:` that are not for compose."""
MAX_FINDINGS = 50
"""What is said of one file."""

MARKS = ("", "*", "!", "[]", "=")
"""Keys of a shape that are none of a file."""
Shape = str | Mapping[str, Any]
"""Kinds of a value, or its keys: "" has its kinds (a mapping without), "*" the shape under names
that the operator gives, "[]" the kinds of what a list has, "!" the keys that have to be there, "="
that a list has nothing twice. Keys of a list are those of its mappings."""


def _keys(words: str, kinds: str = "text", **more: Shape) -> dict[str, Shape]:
    return {**dict.fromkeys(words.split(), kinds), **more}


def _of(kinds: str, shape: Mapping[str, Shape]) -> dict[str, Shape]:
    return {**shape, "": kinds}


_LIST = _of("list", {"[]": "word"})
_ONCE = _of("list", {"[]": "word", "=": "once"})
_FREE = _of("map", {"*": "text"})
_WORDS = _of("word list", {"[]": "word"})
_PAIRS = _of("list map", {"*": "text", "[]": "word"})
_NAMED = _keys("name", external="flag map", labels=_PAIRS)
_DRIVEN = {**_NAMED, **_keys("driver", "word", driver_opts=_FREE)}
_ROLLING = _keys(
    "failure_action", parallelism="int", max_failure_ratio="number", delay="time", monitor="time",
    order="one:start-first,stop-first",
)  # fmt: skip
_HOOK = _of("list", _keys(
    "user working_dir image", "word", privileged="flag", per_replica="flag", command=_WORDS,
    environment=_PAIRS, **{"!": "command", "[]": "map"},
))  # fmt: skip
_GRANT = _of("list", _keys("source target uid gid mode", **{"!": "source", "[]": "word map"}))
_DEVICE = _keys("driver", count="count", capabilities=_ONCE, device_ids=_ONCE, options=_PAIRS)
_RATES = _of("list", _keys("path rate", **{"!": "path", "[]": "map"}))
_WEIGHTS = _of("list", _keys("path weight", **{"!": "path", "[]": "map"}))
_ULIMITS = _of("map", {"*": _of("int map", _keys("soft hard", "int", **{"!": "soft hard"}))})
_DEVICES = _of("list", {**_DEVICE, "!": "capabilities", "[]": "map"})
_BUILD = _keys(
    "context dockerfile dockerfile_inline network target isolation", "word",
    **_keys("provenance sbom"), no_cache="flag", pull="flag", privileged="flag",
    shm_size="size", entitlements="list", args=_PAIRS, ssh="list map", labels=_PAIRS,
    cache_from="list", cache_to="list", no_cache_filter=_WORDS, additional_contexts=_PAIRS,
    extra_hosts="list map", secrets=_GRANT, tags=_LIST, ulimits=_ULIMITS, platforms=_LIST,
)  # fmt: skip
_DEPLOY = _keys(
    "mode endpoint_mode", replicas="int",
    labels=_PAIRS, rollback_config=_ROLLING, update_config=_ROLLING,
    resources={
        "limits": _keys("cpus", "number", pids="int", memory="bytes"),
        "reservations": _keys("cpus", "number", memory="bytes", generic_resources="list",
                              devices=_DEVICES),
    },
    restart_policy=_keys("condition", max_attempts="int", delay="time", window="time"),
    placement=_keys("max_replicas_per_node", "int", constraints=_LIST, preferences="list"),
)  # fmt: skip
_NETWORK = _keys(
    "interface_name ipv4_address ipv6_address mac_address", "word", priority="number",
    gw_priority="number", aliases=_LIST, link_local_ips=_LIST, driver_opts="map",
)  # fmt: skip
_VOLUME = _of("list", _keys(
    "source target consistency",
    **{"!": "type", "[]": "word map"}, read_only="flag",
    type="one:bind,volume,tmpfs,cluster,npipe,image",
    bind=_keys("propagation recursive selinux", create_host_path="flag"),
    volume=_keys("subpath", nocopy="flag", labels=_PAIRS),
    tmpfs=_keys("mode", size="size"), image=_keys("subpath"),
))  # fmt: skip
_DEPENDS = _keys(
    "", restart="flag", required="flag",
    condition="one:service_started,service_healthy,service_completed_successfully",
)  # fmt: skip
_WATCH = _of("list", _keys(
    "path target", ignore=_WORDS, include=_WORDS, exec="map", initial_sync="flag",
    action="one:rebuild,sync,restart,sync+restart,sync+exec",
    **{"!": "path action", "[]": "map"},
))  # fmt: skip
_SERVICE = _keys(
    "cgroup_parent cpuset domainname hostname ipc isolation mac_address network_mode "
    "pid platform pull_refresh_after restart runtime stop_signal user uts userns_mode working_dir",
    "word",
    **_keys("cpu_count cpu_percent cpu_shares cpu_quota cpu_period cpu_rt_period cpu_rt_runtime",
            "number"),
    cgroup="one:host,private", image="word set", mem_swappiness="size",
    **_keys("attach init oom_kill_disable privileged read_only stdin_open tty use_api_socket",
            "flag"),
    cpus="number", oom_score_adj="int", pids_limit="int", scale="int", container_name="cname",
    pull_policy="pull",
    mem_limit="size", mem_reservation="size", memswap_limit="size", shm_size="size",
    stop_grace_period="time", annotations=_PAIRS, build=_of("word map set", _BUILD), deploy=_DEPLOY,
    blkio_config=_keys(
        "", weight="int", weight_device=_WEIGHTS, device_read_bps=_RATES, device_read_iops=_RATES,
        device_write_bps=_RATES, device_write_iops=_RATES,
    ), cap_add=_LIST, cap_drop=_LIST, command=_WORDS, entrypoint=_WORDS,
    configs=_GRANT, secrets=_GRANT, credential_spec=_keys("config file registry"),
    depends_on=_of("list map", {"[]": "word", "*": _of("map set", {**_DEPENDS, "!": "condition"})}),
    develop={"watch": _WATCH}, device_cgroup_rules=_LIST,
    devices=_of("list", _keys("source target permissions", **{"!": "source", "[]": "word map"})),
    dns=_WORDS, dns_opt=_LIST, dns_search=_WORDS,
    env_file=_of("word list", _keys("path", format="one:raw", required="flag",
                                    **{"!": "path", "[]": "word map"})),
    label_file=_WORDS, environment=_PAIRS, expose=_of("list", {"[]": "text"}),
    extends=_of("word map", _keys("service file", "word", **{"!": "service"})),
    provider=_of("map set", _keys("", type="word set", options="map", **{"!": "type"})),
    external_links=_LIST,
    extra_hosts="list map",
    gpus=_of("one:all list", {**_DEVICE, "[]": "map"}), group_add=_of("list", {"=": "once"}),
    healthcheck=_keys("", disable="flag", retries="number", test=_WORDS, interval="time",
                      timeout="time", start_period="time", start_interval="time"),
    labels=_PAIRS, links=_LIST, logging=_keys("driver", options=_of("map", {"*": "text"})),
    models=_of("list map", {"*": _keys("endpoint_var model_var"), "[]": "word"}),
    networks=_of("list map", {"*": _NETWORK, "[]": "word", "=": "once"}),
    ports=_of("list", _keys("name mode host_ip target published protocol app_protocol",
                            **{"[]": "text map"})),
    pre_start=_HOOK, post_start=_HOOK, pre_stop=_HOOK, profiles=_LIST, security_opt=_LIST,
    sysctls=_PAIRS, storage_opt="map", tmpfs=_WORDS,
    ulimits=_ULIMITS, volumes=_VOLUME, volumes_from=_LIST,
)  # fmt: skip
_IPAM = _keys(
    "driver", options="map",
    config=_of("list", _keys("subnet ip_range gateway", aux_addresses="map", **{"[]": "map"})),
)  # fmt: skip
FILE: Mapping[str, Shape] = _keys(
    "version name", "word",
    include=_of("list", {**_keys("project_directory"), "path": _WORDS, "env_file": _WORDS}),
    services={"*": _SERVICE},
    models={"*": _keys("name model", context_size="int", runtime_flags=_LIST, **{"!": "model"})},
    networks={"*": {**_DRIVEN, **_keys("internal enable_ipv4 enable_ipv6 attachable", "flag",
                                        ipam=_IPAM)}},
    volumes={"*": _DRIVEN},
    secrets={"*": _of("map set", {**_DRIVEN, **_keys("environment file template_driver")})},
    configs={"*": _of("map set", {
        **_NAMED, **_keys("environment file template_driver", content="word"),
    })},
)  # fmt: skip


def is_for_compose(tree: Tree) -> bool:
    """Whether a file with `services:` has no key by which it is another tool's."""
    return not OTHER_TOOLS & set(tree.root.fields or {})


def refused(tree: Tree, *, sure: bool) -> Iterator[Hit]:
    """What compose refuses, in no order. `sure`: whether the file is known to be for compose, so
    that its first level is judged, too."""
    if not is_for_compose(tree):
        return
    for key, place, first in tree.doubled[:MAX_FINDINGS]:
        what = f"`{key}` is there twice: it stands in line {first.line} already"
        yield Hit(place, what, fix="one of them, with what both have")
    yield from islice(_unfit(tree.root, FILE, "", set(), sure), MAX_FINDINGS)


def _unfit(
    node: Node, shape: Shape, path: str, seen: set[tuple[int, int]], sure: bool = True
) -> Iterator[Hit]:
    """`seen`: values that were judged by a shape: an alias shows the same one in many places."""
    if (id(node), id(shape)) in seen:
        return
    seen.add((id(node), id(shape)))
    kinds = (shape if isinstance(shape, str) else str(shape.get("", "map"))).split()
    if not _is_fit(node, kinds):
        yield Hit(node.place, f"{path or 'the file'} is {_describe(node)}", fix=_wanted(kinds))
    elif not isinstance(shape, str):
        for child in node.each():
            if child.fields is not None:
                yield from _below(child, shape, f"{path}[]", seen)
            yield from _misfit(child, shape, path)
        if "=" in shape:
            yield from _twice(node, path)
        if node.fields is not None:
            yield from _below(node, shape, path, seen, sure)


def _misfit(item: Node, shape: Mapping[str, Shape], path: str) -> Iterator[Hit]:
    """What a list has, if it may not have it."""
    kinds = str(shape.get("[]", "text list map")).split()
    is_nothing = "[]" in shape and item.plain and item.text in NOTHING
    if is_nothing or not _is_fit(item, kinds):
        content = "nothing" if is_nothing else _describe(item)
        yield Hit(item.place, f"{path} has {content}", fix=_wanted(kinds))


def _twice(node: Node, path: str) -> Iterator[Hit]:
    seen: set[str] = set()
    for item in node.each():
        if item.text is not None and "$" not in item.text and item.text in seen:
            yield Hit(item.place, f"{path} has `{item.text}` twice", fix="once")
        seen.add(item.text or "")


def _below(
    node: Node, keys: Mapping[str, Shape], path: str, seen: set[tuple[int, int]], sure: bool = True
) -> Iterator[Hit]:
    for wanted in str(keys.get("!", "")).split():
        if node.get(wanted) is None:
            yield Hit(
                node.place, f"{path} has no `{wanted}`", fix=f"`{wanted}:`, which compose wants"
            )
    for key, value in node.pairs():
        below = f"{path}.{key}" if path else key
        if key in keys and key not in MARKS:
            yield from _unfit(value, keys[key], below, seen)
        elif key.startswith("x-") or key == "<<" or "$" in key:
            continue
        elif "*" in keys and (keys["*"] == "text" or _NAME.fullmatch(key)):
            yield from _unfit(value, keys["*"], below, seen)
        elif sure:
            yield _unknown(node.keys.get(key, value.place), key, keys, path)


def _describe(node: Node) -> str:
    if node.fields is not None:
        return "a mapping"
    return "a list" if node.items is not None else f"`{node.text}`"


def _is_fit(node: Node, kinds: Sequence[str]) -> bool:
    if node.fields is not None:
        return "map" in kinds
    if node.items is not None:
        return "list" in kinds
    text = node.text or ""
    if "$" in text or "text" in kinds:
        return True
    if node.plain and text in NOTHING:
        return "set" not in kinds
    return any(_is_of(node, text, kind) for kind in kinds)


def _is_of(node: Node, text: str, kind: str) -> bool:
    if kind.startswith(ONE_OF):
        return text in kind.removeprefix(ONE_OF).split(",")
    is_number = node.plain and NUMBER.fullmatch(text) is not None
    if kind == "word":
        return not is_number and not (node.plain and TRUTH.fullmatch(text))
    if kind in ("flag", "time", "bytes") and is_number:
        return False
    if kind == "size" and is_number and not text.startswith("-"):
        return True
    return kind in SCALARS and SCALARS[kind].fullmatch(text) is not None


def _wanted(kinds: Sequence[str]) -> str:
    """What a value may be, in words."""
    words = []
    for kind in kinds:
        if kind.startswith(ONE_OF):
            words += kind.removeprefix(ONE_OF).split(",")
        elif kind == "pull":
            words += ["always", "missing", "never", "build", "daily", "weekly", "every_12h"]
        elif kind in KINDS:
            words.append(KINDS[kind])
    return " or ".join(words)


def _unknown(place: Place, key: str, keys: Mapping[str, Shape], path: str) -> Hit:
    where = f"in {path}" if path else "at its first level"
    if "*" in keys:
        return Hit(place, f"{key} is no name {where}", fix="letters, digits, `.`, `_` and `-`")
    near = difflib.get_close_matches(
        key, [known_key for known_key in keys if known_key not in MARKS], 1, 0.7
    )
    fix = f"`{near[0]}`" if near else "leave it out; keys of your own begin with `x-`"
    return Hit(place, f"compose knows no key `{key}` {where}", fix=fix)
