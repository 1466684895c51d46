"""What lies on the disks and the console did not make: other images, the build cache, stopped
containers of others, checkpoints. It is reported for the operator to remove; nothing here removes.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from console.common.errors import ConsoleError, EngineError
from console.common.options.engines import WEIGHTS
from console.common.text import clean, one_line
from console.common.units import plural
from console.config.site.site import Site
from console.host.children import within
from console.models.hub import local_files, settings
from console.runner.cleanup.clean import RUNS
from console.runner.cleanup.leftover import (
    LIST_S,
    Spared,
    Stored,
    Survey,
    opened,
    size_of,
    spared,
)
from console.runtime.docker.client import ask, send
from console.runtime.spec import BUILT_LABEL, ContainerSpec, role_of

if TYPE_CHECKING:
    from docker import DockerClient

KINDS = ("image", "build cache", "container", "checkpoint")
SCAN_S, LATE_S = 20.0, 5.0
"""Seconds for reading one directory of models, and for one that hangs beyond them."""
MAX_FOLDERS, DEEPEST = 20_000, 4
REGISTRY = ("docker.io/", "docker.io/library/")
_HUB, _BLOBS = "models--", "blobs"


@dataclass(frozen=True, slots=True)
class Foreign:
    """One thing, its texts clean. `bytes` is None if unknown, `since` when it was made or last
    written (Unix seconds, 0.0 if unknown), `used` what uses it, `how` the command that removes it,
    "" for what is in use."""

    kind: str
    what: str
    where: str
    bytes: int | None
    since: float
    used: str
    how: str


def foreign(
    site: Site, survey: Survey, more: Iterable[str] = ()
) -> tuple[list[Foreign], list[str]]:
    """Everything of that sort, and what could not be examined. `survey`: what `clean` found, with
    the engine and what must stay; `more`: directories to search beside the site's. Changes
    nothing."""
    entries: list[Foreign] = []
    notes: list[str] = []
    keep = survey.spared or spared(site)
    if survey.client is None:
        notes.append("images, build cache and containers were not searched")
    else:
        try:
            entries += _of_engine(survey.client, keep, survey.images)
        except EngineError as error:
            notes.append(f"not all of the engine was searched: {error}")
    scan = Scan(keep)
    for place in roots(site, more):
        try:
            within(SCAN_S + LATE_S, f"Reading {place}", partial(scan.read, place), "")
        except (ConsoleError, OSError) as error:
            notes.append(f"not all of {place} was seen: {error}")
    entries += scan.foreign
    notes += scan.notes
    if os.getuid() != 0:
        notes.append("files that only processes of other users have open count as not in use")
    return _once(entries), [one_line(note, 300) for note in notes]


def _once(entries: Iterable[Foreign]) -> list[Foreign]:
    """Each place once, since directories may lie in each other; the largest of a kind first."""
    kept = {(entry.kind, entry.where): entry for entry in entries}
    return sorted(kept.values(), key=lambda entry: (KINDS.index(entry.kind), -(entry.bytes or 0)))


def _of_engine(client: DockerClient, keep: Spared, images: Sequence[Stored]) -> Iterator[Foreign]:
    api: Any = client.api
    listing = partial(api.containers, all=True, size=True)
    rows = ask("Listing containers with their sizes", listing, LIST_S)
    for image in images:
        if BUILT_LABEL not in (image.row.get("Labels") or {}):
            yield _image(image, rows, keep)
    for row in rows:
        if role_of(row.get("Labels") or {}) == "" and row.get("State") not in RUNS:
            yield _container(row, keep)
    cached = _cache(client)
    if cached is not None:
        yield cached


def _name(row: dict[str, Any]) -> str:
    names = [str(name).lstrip("/") for name in row.get("Names") or ()]
    return one_line(names[0] if names else str(row.get("Id", ""))[:12], 80)


def _image(image: Stored, rows: Sequence[dict[str, Any]], keep: Spared) -> Foreign:
    tags = [str(t) for t in image.row.get("RepoTags") or () if t != "<none>:<none>"]
    users = [_name(row) for row in rows if row.get("ImageID") == image.id]
    used = f"container {', '.join(users)}" if users else ""
    digests = [str(d) for d in image.row.get("RepoDigests") or ()]
    # a site may spell out the registry that the engine leaves away
    spelled = {f"{where}{name}" for name in (*tags, *digests) for where in ("", *REGISTRY)}
    if not used and keep.images & {image.id, *spelled}:
        used = "the site"
    short = image.id.removeprefix("sha256:")[:12]
    what = one_line(", ".join(tags), 200) or f"{short}, without a tag"
    how = f"docker rmi {shlex.join(clean(tag, 300) for tag in tags) or short}"
    since = float(image.row.get("Created") or 0)
    return Foreign("image", what, clean(image.id), image.own, since, used, "" if used else how)


def _container(row: dict[str, Any], keep: Spared) -> Foreign:
    name, identity = _name(row), str(row.get("Id", ""))
    state = one_line(str(row.get("State", "")), 20)
    used = "the site: it is the baseline's, or protected" if keep.names & {identity, name} else ""
    return Foreign(
        "container", f"{name}: {one_line(str(row.get('Image', '')), 100)}, {state}",
        clean(identity), int(row.get("SizeRw") or 0), float(row.get("Created") or 0), used,
        "" if used else f"docker rm {shlex.quote(name)}",
    )  # fmt: skip


def _cache(client: DockerClient) -> Foreign | None:
    """The build cache as one thing; None where there is none, or the engine (Podman) has none."""
    params = {"type": "build-cache"}
    call = partial(send, client, "GET", "/system/df", params=params)
    rows = ask("Asking for the build cache", lambda: call().json(), LIST_S).get("BuildCache") or []
    if not rows:
        return None
    busy = sum(bool(row.get("InUse")) for row in rows)
    size = sum(int(row.get("Size") or 0) for row in rows if not row.get("Shared"))
    return Foreign(
        "build cache", plural(len(rows), "record"), "the engine's build cache", size, 0.0,
        f"a build in progress uses {busy} of them" if busy else "", "docker builder prune",
    )  # fmt: skip


def roots(site: Site, more: Iterable[str] = ()) -> list[Path]:
    """Directories to search: of the baseline's models and the one above, what services mount, where
    downloads went, the hub's cache, and those given."""
    folders = [Path(os.path.abspath(os.path.expanduser(name))) for name in more]
    for name in site.model.baseline.models:
        folder = (site.base / os.path.expanduser(name)).parent
        folders += [folder, folder.parent]
    for spec in site.service_specs().values():
        if isinstance(spec.runs, ContainerSpec):
            folders += [Path(mount.source) for mount in spec.runs.mounts]
    folders += [Path(download.target).parent for download in local_files.every_taken()]
    folders.append(settings.cache())
    too_wide = {"/", str(Path.home()), "/home", "/root", "/tmp", "/etc", "/usr", "/var"}
    real = dict.fromkeys(os.path.realpath(path) for path in folders)
    return [Path(root) for root in real if root not in too_wide and os.path.isdir(root)]


class Scan:
    """Finds directories with files of weights that no download step of the console fetched. What
    was found stays found, however a directory's reading ends."""

    def __init__(self, keep: Spared) -> None:
        self.foreign: list[Foreign] = []
        self.notes: list[str] = []
        self._keep = keep
        self._mine = {
            os.path.realpath(f"{download.target}/{name}")
            for download in local_files.every_taken() for name in download.mine()
        }  # fmt: skip
        self._counted: set[tuple[int, int]] = set()
        """Files by device and inode: one with two names takes its bytes once."""
        self._seen: set[str] = set()
        """Directories that were looked at, since those to search may lie in each other."""

    def read(self, top: Path) -> None:
        """Read one directory, until all, MAX_FOLDERS or what SCAN_S allows is seen."""
        until = time.monotonic() + SCAN_S
        for at, (folder, folders, names) in enumerate(os.walk(top)):
            if at >= MAX_FOLDERS or time.monotonic() > until:
                why = f"it has more than {at:,} directories, or takes longer than {SCAN_S:g} s"
                self.notes.append(f"not all of {top} was seen: {why}")
                return
            depth = len(Path(folder).relative_to(top).parts)
            folders[:] = [] if depth >= DEEPEST else sorted(folders)
            if folder in self._seen:
                continue
            self._seen.add(folder)
            if os.path.basename(folder).startswith(_HUB) and _BLOBS in folders:
                folders[:] = []
                self.foreign.append(_hub(Path(folder), self._keep))
                continue
            paths = [f"{folder}/{name}" for name in names if name.endswith(WEIGHTS)]
            # a link takes no bytes, and what it leads to is found where it lies
            paths = [path for path in paths if not os.path.islink(path) and path not in self._mine]
            if paths:
                self._checkpoint(folder, sorted(paths))

    def _checkpoint(self, folder: str, paths: Sequence[str]) -> None:
        size, newest = 0, 0.0
        for path in paths:
            try:
                info = os.stat(path)
            except OSError:
                continue
            key = info.st_dev, info.st_ino
            size += 0 if key in self._counted else info.st_size
            self._counted.add(key)
            newest = max(newest, info.st_mtime)
        ends = sorted({os.path.splitext(path)[1] for path in paths})
        inner = shlex.quote(folder)
        how = _typed("rm -i -- " + " ".join(f"{inner}/*{end}" for end in ends), folder)
        used = _used(paths, folder, self._keep)
        self.foreign.append(Foreign(
            "checkpoint", f"{plural(len(paths), 'file')} of weights", clean(folder),
            size, newest, used, "" if used else how,
        ))  # fmt: skip


def _hub(folder: Path, keep: Spared) -> Foreign:
    """A repository in the hub's cache, whose snapshots are links to its blobs."""
    name = folder.name.removeprefix(_HUB).replace("--", "/")
    files = [str(blob) for blob in (folder / _BLOBS).iterdir()]
    used = _used(files, str(folder), keep)
    if not used and keep.mentions(name):
        used = f"a command line names {one_line(name, 80)}"
    return Foreign(
        "checkpoint", f"{one_line(name, 120)} in the hub's cache", clean(str(folder)),
        size_of(folder), folder.stat().st_mtime, used,
        "" if used else _typed(f"rm -rI -- {shlex.quote(str(folder))}", str(folder)),
    )  # fmt: skip


def _typed(command: str, path: str) -> str:
    """The command, unless what can be shown of the path would name something else."""
    return command if clean(path) == path else "(its name has signs that cannot be shown)"


def _used(paths: Sequence[str], folder: str, keep: Spared) -> str:
    """What uses a checkpoint: the site, a command line, or a process that has it open; "" if
    nothing does that can be seen."""
    named = next((why for path in paths if (why := keep.path_reason(os.path.realpath(path)))), "")
    if named:
        return named
    # in a container the folder has another path, and its own name
    for word in (folder, os.path.basename(folder), *(os.path.basename(path) for path in paths)):
        if keep.mentions(word):
            return f"a command line of the site, or of what runs, names {one_line(word, 80)}"
    held = opened(paths)
    return f"a process has {one_line(held, 200)} open" if held else ""
