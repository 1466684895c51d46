"""Looking for everything that trials left, and removing what a person named."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from console.common import paths
from console.common.errors import BaselineNotReady, ConsoleError, EngineError, UsageError
from console.common.text import one_line
from console.config.site.site import Site
from console.host.process import ProcessSpec
from console.journal.lock import HostLock
from console.runner.cleanup import find
from console.runner.cleanup.leftover import Leftover, Stored, Survey, spared, stored
from console.runner.prepare.baseline import container_ref

if TYPE_CHECKING:
    from docker import DockerClient

ORDER = {"container": 0, "image": 1, "download": 2, "run": 3}


@dataclass(frozen=True, slots=True)
class Removal:
    """What became of one removal: `freed` bytes, or an `error`."""

    item: Leftover
    freed: int | None
    error: str = ""


def survey(site: Site) -> Survey:
    """Everything, with what has to stay marked. Changes nothing."""
    found: list[Leftover] = []
    notes: list[str] = []
    running: list[dict[str, object]] = []
    images: tuple[Stored, ...] = ()
    client: DockerClient | None = None
    try:
        client = _connect(site)
        running = find.inspected(client, _baseline(site, client))
    except ConsoleError as error:
        notes.append(f"containers and images were not looked for: {error}")
        client = None
    keep = spared(site, running)
    if client is not None:
        try:
            found += find.containers(client, keep)
            images = stored(client)
            found += find.images(client, keep, images)
        except EngineError as error:
            notes.append(f"containers and images were not all looked for: {error}")
    for kept in find.downloads(keep):
        blind = client is None and not kept.stays
        found.append(kept.kept("the engine cannot say whether a container uses it") if blind and
                     not isinstance(site.baseline_spec().runs, ProcessSpec) else kept)  # fmt: skip
    found += find.runs(site)
    return Survey(tuple(found), tuple(notes), images)


def _connect(site: Site) -> DockerClient:
    from console.runtime.docker.client import connect

    return connect(site.model.engine.host or None)


def _baseline(site: Site, client: DockerClient) -> list[str]:
    """The baseline's container, running or not, and the protected ones."""
    spec = site.baseline_spec()
    refs = list(site.model.protected)
    if not isinstance(spec.runs, ProcessSpec):
        try:
            refs.append(container_ref(spec, client))
        except BaselineNotReady as error:
            raise EngineError("the baseline's container is not known", str(error)) from error
    return refs


def remove(site: Site, ids: list[str]) -> Iterator[Removal]:
    """Remove exactly these, containers first; nothing at all where one of them may not be.

    Looked for anew right before. Raises UsageError, and HostBusy while a run is on.
    """
    lock = HostLock()
    try:
        wanted = _chosen(survey(site), ids)
        for item in sorted(wanted, key=lambda one: ORDER[one.kind]):
            yield _remove(item)
    finally:
        lock.release()


def _chosen(found: Survey, ids: list[str]) -> list[Leftover]:
    known = {one.id: one for one in found.items}
    unknown = [name for name in ids if name not in known]
    if unknown:
        raise UsageError(
            f"nothing was removed: {one_line(unknown[0], 60)} is not in the list",
            hint="omni-console clean prints the list with its ids",
        )
    wanted = [known[name] for name in dict.fromkeys(ids)]
    going = {one.id for one in wanted}
    for one in wanted:
        if one.stays and not (one.waits and going.issuperset(one.waits)):
            raise UsageError(f"nothing was removed: {one.id} stays", f"{one.what}: {one.stays}")
    return wanted


def _remove(item: Leftover) -> Removal:
    assert item.remove is not None
    try:
        done = Removal(item, item.remove())
    except (ConsoleError, OSError) as error:
        return Removal(item, None, one_line(str(error), 300))
    _note(done)
    return done


def _note(done: Removal) -> None:
    """Who removed what: one line a removal, in the state directory. Raises OSError."""
    item = done.item
    line = {"at": time.time(), "uid": os.getuid(), "id": item.id, "kind": item.kind,
            "what": item.what, "where": item.where, "freed": done.freed}  # fmt: skip
    with open(paths.state_dir() / "clean.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
