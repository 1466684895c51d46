"""Containers and images that trials left, by the marks that the console gave them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from console.common.errors import ServiceError
from console.common.text import one_line
from console.common.units import format_bytes
from console.runner.cleanup.layer import Stored, listed
from console.runner.cleanup.leftover import Leftover
from console.runner.cleanup.spare import Spared
from console.runtime.docker.client import NotFound, ask
from console.runtime.spec import BUILT_LABEL, RUN_LABEL, SERVICE_LABEL, role_of

if TYPE_CHECKING:
    from docker import DockerClient

ROLES = ("candidate", "oneoff")
LIST_S = 60.0
"""Sizes are counted file by file: a big writable layer takes its time."""
REMOVE_S = 120.0
RUNS = ("running", "paused", "restarting")
_ASIDE = re.compile(r"\.[0-9a-f]{6}-\d+$")


def containers(client: DockerClient, spared: Spared) -> Iterator[Leftover]:
    """Candidates and one-offs, running or not. Raises EngineError."""
    api: Any = client.api
    rows = ask(
        "Listing containers with their sizes",
        lambda: api.containers(all=True, size=True, filters={"label": RUN_LABEL}), LIST_S,
    )  # fmt: skip
    for row in rows:
        labels = row.get("Labels") or {}
        if role_of(labels) in ROLES:
            yield _container(client, row, labels, spared)


def _container(
    client: DockerClient, row: dict[str, Any], labels: dict[str, str], spared: Spared
) -> Leftover:
    identity = str(row["Id"])
    names = [str(name).lstrip("/") for name in row.get("Names") or ()]
    name = one_line(names[0] if names else identity[:12], 80)
    state = one_line(str(row.get("State", "")), 20)
    role = "one-off" if role_of(labels) == "oneoff" else labels.get(SERVICE_LABEL, "candidate")
    aside = ", renamed aside" if _ASIDE.search(name) else ""
    found = Leftover(
        f"c-{identity[:12]}", "container", f"{name}: {one_line(role, 60)}, {state}{aside}",
        identity, int(row.get("SizeRw") or 0), float(row.get("Created") or 0),
        one_line(labels.get(RUN_LABEL, ""), 100), remove=lambda: _remove_container(client, row),
    )  # fmt: skip
    if spared.names & {identity, *names}:
        return found.kept("the baseline's, or protected")
    if state in RUNS:
        return found.kept(f"it is {state}: stop it first")
    return found


def _remove_container(client: DockerClient, row: dict[str, Any]) -> int:
    """Never by force: what has been started since is refused by the engine itself."""
    api: Any = client.api
    ask(
        f"Removing container {row['Id'][:12]}",
        lambda: api.remove_container(row["Id"], v=True, force=False), REMOVE_S,
    )  # fmt: skip
    return int(row.get("SizeRw") or 0)


def images(client: DockerClient, spared: Spared, every: Sequence[Stored]) -> Iterator[Leftover]:
    """Those of all images that a `build` step made. Raises EngineError."""
    api: Any = client.api
    users = ask("Listing containers", lambda: api.containers(all=True), LIST_S)
    for one in every:
        if BUILT_LABEL in (one.row.get("Labels") or {}):
            yield _image(client, one, users, spared)


def _image(
    client: DockerClient, one: Stored, users: list[dict[str, Any]], spared: Spared
) -> Leftover:
    identity, labels = one.id, one.row.get("Labels") or {}
    tags = [tag for tag in one.row.get("RepoTags") or () if tag != "<none>:<none>"]
    built = labels.get(BUILT_LABEL, "")
    what = one_line(", ".join(tags) or f"an older {built}, without a tag", 120)
    if one.shared:
        what += f"; {format_bytes(one.shared)} more that other images have too"
    found = Leftover(
        f"i-{identity.removeprefix('sha256:')[:12]}", "image", what, identity,
        one.own, float(one.row.get("Created") or 0), one_line(labels.get(RUN_LABEL, ""), 100),
        remove=lambda: _remove_image(client, identity, tags),
    )  # fmt: skip
    if spared.images & {identity, *tags}:
        return found.kept("the baseline, the site or something that runs needs it")
    if tags and built not in tags:
        return found.kept(f"it was made from {one_line(built, 80)}, not by a build step itself")
    holders = tuple(f"c-{one['Id'][:12]}" for one in users if one.get("ImageID") == identity)
    if holders:
        made = f"{', '.join(holders)} {'is' if len(holders) == 1 else 'are'} made of it"
        return replace(found.kept(f"{made}: name that too, or first"), waits=holders)
    return found


def _remove_image(client: DockerClient, identity: str, tags: list[str]) -> int | None:
    """Tag by tag, never by force: an image with a tag of somebody else's stays."""
    api: Any = client.api
    # What it shared with one that went a moment ago is its own now.
    own = next((one.own for one in listed(client) if one.id == identity), None)
    for name in tags or [identity]:
        remove = partial(api.remove_image, name, force=False)
        ask(f"Removing image {one_line(name, 80)}", remove, REMOVE_S)
    try:
        ask("Looking for the image", lambda: api.inspect_image(identity))
    except NotFound:
        return own
    raise ServiceError("the image is still there", "something else refers to it")


def inspected(client: DockerClient, refs: list[str]) -> list[dict[str, Any]]:
    """The baseline's container and everything that runs, with their arguments. Raises
    EngineError."""
    api: Any = client.api
    running = [str(row["Id"]) for row in ask("Listing containers", lambda: api.containers())]
    found = []
    for ref in dict.fromkeys((*refs, *running)):
        try:
            one = ask(f"Looking at {one_line(ref, 40)}", partial(api.inspect_container, ref))
        except NotFound:
            continue
        labels = (one.get("Config") or {}).get("Labels") or {}
        if ref in refs or role_of(labels) not in ROLES:
            found.append(one)
    return found
