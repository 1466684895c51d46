"""One thing that a trial left: what it is, where, how big, and why it must stay, if so.

Image layers are shared, so an image's size here is what its removal frees: only the layers that no
other image uses. The engine's list instead counts a shared layer in every image.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from console.common.errors import BaselineNotReady, ConsoleError, EngineError
from console.common.text import decode
from console.config.site.site import Site
from console.host.process import ProcessSpec, ancestry
from console.host.units import UnitSpec
from console.runner.prepare.baseline import container_ref
from console.runtime.docker.client import NotFound, ask, engine_host, send
from console.runtime.docker.compose import base_argv, compose
from console.runtime.docker.engine_state import silent
from console.runtime.spec import ComposeSpec, ContainerSpec

if TYPE_CHECKING:
    from docker import DockerClient


KINDS = ("container", "image", "download", "run")

LIST_S = 60.0
"""Seconds allowed for listing: the engine counts file by file, so a big writable layer is slow, and
an old engine counts volumes and containers too when asked what images share."""
COMPOSE_S = 20.0
UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Leftover:
    """`id` is `c-`, `i-`, `d-` or `r-` and what identifies the item. `bytes` is what removing it
    alone frees, None if unknown. `stays` is why it must not be removed, "" if it may be."""

    id: str
    kind: str
    what: str
    where: str
    bytes: int | None
    since: float = 0.0
    """When it was made, Unix seconds; 0.0 if unknown."""
    run: str = ""
    stays: str = ""
    waits: tuple[str, ...] = ()
    """Ids of items to remove first, if these are all that keeps this one."""
    remove: Callable[[], int | None] | None = field(default=None, repr=False, compare=False)
    """Removes the item and returns the bytes freed. Raises ConsoleError, OSError."""

    def kept(self, why: str) -> Leftover:
        """Return a copy that must stay because of `why`, unless it has a reason already."""
        return replace(self, stays=self.stays or why)


@dataclass(frozen=True, slots=True)
class Survey:
    """Everything that was found; `notes` says what could not be examined, and why."""

    items: tuple[Leftover, ...]
    notes: tuple[str, ...] = ()
    images: tuple[Stored, ...] = ()
    """Every image on the engine, since layers shared with other images are not freed."""
    spared: Spared | None = None
    """What must stay, by which others' things are judged as well."""
    client: DockerClient | None = field(default=None, repr=False, compare=False)
    """The engine, None if it cannot be asked."""

    @property
    def removable(self) -> list[Leftover]:
        return [leftover for leftover in self.items if not leftover.stays]

    def freed(self, items: list[Leftover]) -> tuple[int, bool]:
        """Bytes freed if all of these are removed, counting known sizes only; False if it may be
        more."""
        images = {leftover.where for leftover in items if leftover.kind == "image"}
        layers, exact = together(images, self.images)
        return layers + sum(
            leftover.bytes or 0 for leftover in items if leftover.kind != "image"
        ), exact


@dataclass(frozen=True, slots=True)
class Stored:
    """One image: `size` of all its layers, the part `shared` with other images (bytes), and its
    layers from the bottom up, empty if unknown."""

    id: str
    size: int
    shared: int
    layers: tuple[str, ...] = ()
    row: Any = None
    """The engine's own line about it."""

    @property
    def own(self) -> int:
        """Bytes freed if this image alone is removed."""
        return self.size - self.shared


def stored(client: DockerClient) -> tuple[Stored, ...]:
    """Every image on the engine, with layers. Raises EngineError."""
    return tuple(
        Stored(image.id, image.size, image.shared, _layers(client, image.id), image.row)
        for image in listed(client)
    )


def listed(client: DockerClient) -> list[Stored]:
    """Every image on the engine, without layers. Raises EngineError."""
    api: Any = client.api
    # The library's own call does not know the parameter.
    call = partial(send, client, "GET", "/images/json", params={"shared-size": 1})
    rows: list[dict[str, Any]] = ask("Listing images", lambda: call().json(), LIST_S)
    if any(row.get("SharedSize", UNKNOWN) == UNKNOWN for row in rows):  # before API 1.42
        rows = ask("Listing what images share", api.df, LIST_S).get("Images") or rows
    return [
        Stored(str(row["Id"]), int(row.get("Size") or 0), max(0, int(row.get("SharedSize") or 0)),
               row=row)
        for row in rows
    ]  # fmt: skip


def _layers(client: DockerClient, identity: str) -> tuple[str, ...]:
    api: Any = client.api
    try:
        image = ask("Looking at an image", partial(api.inspect_image, identity))
    except NotFound:
        return ()
    return tuple((image.get("RootFS") or {}).get("Layers") or ())


def together(going: Collection[str], every: Sequence[Stored]) -> tuple[int, bool]:
    """Bytes freed if these images (ids) are removed together, and whether that is exact: layers of
    unknown size are left out, so otherwise it is a minimum."""
    known = _sizes_of_stacks(every)
    there = [other.layers for other in every if other.id not in going]
    freed, exact = 0, True
    for image in every:
        if image.id in going:
            below = (
                known.get(image.layers[: _shared(image.layers, there)]) if image.layers else None
            )
            freed += image.own if below is None else image.size - below
            exact = exact and below is not None
            there.append(image.layers)
    return freed, exact


def _sizes_of_stacks(every: Sequence[Stored]) -> dict[tuple[str, ...], int]:
    """Bytes of each stack of layers that is a whole image or shared between images."""
    sizes: dict[tuple[str, ...], int] = {}
    for image in every:
        others = [other.layers for other in every if other is not image]
        sizes[image.layers[: _shared(image.layers, others)]] = image.shared
        sizes[image.layers] = image.size
    sizes[()] = 0
    return sizes


def _shared(layers: tuple[str, ...], others: Sequence[tuple[str, ...]]) -> int:
    """The largest number of layers, from the bottom, that another image shares."""
    return max((_alike(layers, other) for other in others), default=0)


def _alike(layers: tuple[str, ...], other: tuple[str, ...]) -> int:
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(layers, other, strict=False))
    return sum(1 for _ in pairs)


@dataclass(frozen=True)
class Spared:
    """What must never be removed: what the site names, what is protected, what is in use. `names`
    are container names or ids, `images` references and ids, `paths` real paths, `words` all
    arguments of the baseline, of the site's services and of everything running."""

    names: frozenset[str]
    images: frozenset[str]
    paths: frozenset[str]
    words: tuple[str, ...]

    def path_reason(self, path: str) -> str:
        """Why a path stays: the site names it, or something inside it or above it."""
        for named_path in self.paths:
            if named_path == path or _inside(named_path, path):
                return f"the site names {named_path}"
            if _inside(path, named_path):
                return f"it lies in {named_path}, which the site names"
        return ""

    def mentions(self, name: str) -> bool:
        """Whether one of these command lines has this name as a whole word: `llama.gguf` does not
        mention `a.gguf`."""
        whole = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")
        return len(name) > 2 and any(whole.search(word) for word in self.words)


def _inside(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")


def baseline_refs(site: Site, client: DockerClient) -> list[str]:
    """The baseline's container, running or not, and the protected ones."""
    spec = site.baseline_spec()
    refs = list(site.model.protected)
    if not isinstance(spec.runs, ProcessSpec | UnitSpec):
        try:
            refs.append(container_ref(spec, client))
        except BaselineNotReady as error:
            raise EngineError("the baseline's container is not known", str(error)) from error
    return refs


def compose_images(site: Site) -> tuple[set[str], list[str]]:
    """The images of the site's compose services, which need no container to be wanted, and which
    of them are not known."""
    images: set[str] = set()
    notes: list[str] = []
    for spec in (site.baseline_spec(), *site.service_specs().values()):
        runs = site.equipped(spec).runs
        if not isinstance(runs, ComposeSpec):
            continue
        argv = base_argv(runs.files, runs.project, runs.profiles)
        host = engine_host(site.model.engine.host or None)
        try:
            text = compose([*argv, "config", "--format", "json"], host, dict(runs.env),
                           "Reading the compose file", COMPOSE_S, silent)  # fmt: skip
            images.add(_tagged(str(json.loads(text)["services"][runs.service]["image"])))
        except (ConsoleError, ValueError, KeyError, TypeError) as error:
            notes.append(f"the image of compose service {runs.service} is not known: {error}")
    return images, notes


def spared(
    site: Site, containers: Iterable[dict[str, Any]] = (), wanted: Iterable[str] = ()
) -> Spared:
    """`containers`: the engine's inspection of the baseline's container and all running ones;
    `wanted`: images that are to stay besides."""
    model = site.model
    base = model.baseline
    names = {*model.protected, *([base.container] if base.container else [])}
    images = set(wanted)
    words = [*base.args]
    paths = {os.path.realpath(site.base / file) for file in base.models}
    if base.process is not None:
        words += base.process.argv
    if base.compose is not None:
        paths.add(os.path.realpath(site.base / base.compose.file))
        names.add(base.compose.service)
    for spec in site.service_specs().values():
        if isinstance(spec.runs, ContainerSpec):
            images.add(_tagged(spec.runs.image))
            words += [*spec.runs.command, *spec.runs.entrypoint]
            paths |= {os.path.realpath(m.source) for m in spec.runs.mounts if _is_file(m.source)}
        else:
            words += [str(word) for word in getattr(spec.runs, "argv", ())]
    for container in containers:
        config = container.get("Config") or {}
        words += [str(w) for part in ("Entrypoint", "Cmd") for w in config.get(part) or ()]
        images |= {str(container.get("Image", "")), str(config.get("Image", ""))}
        names |= {str(container.get("Id", "")), str(container.get("Name", "")).lstrip("/")}
    return Spared(
        frozenset(n for n in names if n), frozenset(i for i in images if i), frozenset(paths),
        (*words, *running_words()),
    )  # fmt: skip


def _tagged(ref: str) -> str:
    """An image reference as the engine lists it."""
    return ref if ":" in ref.rpartition("/")[2] or "@" in ref else f"{ref}:latest"


def _is_file(path: str) -> bool:
    """Whether a mount is a file: mounting a model file names it, mounting a directory does not."""
    return Path(path).is_file()


def running_words() -> list[str]:
    """Arguments of all processes except this one and its parents, which name what to remove."""
    mine = ancestry(os.getpid())
    words: list[str] = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) not in mine:
            with contextlib.suppress(OSError):
                words += map(decode, Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0"))
    return [word for word in words if word]


def size_of(path: Path) -> int:
    """Bytes that a directory takes on the disk; links are not followed."""
    total = 0
    for folder, _, names in os.walk(path):
        for name in (*names, "."):
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
    return total


def opened(files: Iterable[str]) -> str:
    """The first of these files that a process of this user has open or mapped; "" for none."""
    wanted: dict[tuple[int, int], str] = {}
    for file in files:
        wanted |= dict.fromkeys(_files([Path(file)]), file)
    for process in Path("/proc").glob("[0-9]*"):
        for held in (*_open(process / "fd"), *_mapped(process / "maps")):
            if held in wanted:
                return wanted[held]
    return ""


def _open(folder: Path) -> list[tuple[int, int]]:
    """(device, inode) of every open file."""
    try:
        return _files(folder / name for name in os.listdir(folder))
    except OSError:
        return []


def _mapped(maps: Path) -> list[tuple[int, int]]:
    """(device, inode) of every mapped file: engines close a model file after mapping it."""
    try:
        rows = [row.split(None, 5) for row in maps.read_bytes().split(b"\n")]
    except OSError:
        return []
    return list(dict.fromkeys(_files(row[5] for row in rows if len(row) == 6 and row[4] != b"0")))


def _files(paths: Iterable[Path | bytes]) -> list[tuple[int, int]]:
    inodes = []
    for path in paths:
        with contextlib.suppress(OSError):
            info = os.stat(path)
            inodes.append((info.st_dev, info.st_ino))
    return inodes
