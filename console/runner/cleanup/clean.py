"""Finds containers, images, downloads and run directories that trials left behind, and removes
those that the operator names.

Containers and images are found by the console's own labels.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from console.common import paths
from console.common.errors import (
    ConsoleError,
    EngineError,
    ServiceError,
    UsageError,
)
from console.common.options.engines import WEIGHTS
from console.common.text import one_line
from console.common.units import format_bytes, plural
from console.config.site.site import Site
from console.host import licence, process
from console.host.process import ProcessSpec
from console.journal.lock import HostLock, closer_alive, ladder_busy, runner_alive
from console.journal.run_dir import RunDir, all_runs
from console.journal.run_files import NEVER_BEGAN, read_view, word_of
from console.models.hub import local_files
from console.models.hub.local_files import Taken
from console.recovery.rollback import live
from console.recovery.rollback import sealed_plan as sealed
from console.recovery.rollback.stages import left
from console.runner.cleanup.leftover import (
    KINDS,
    LIST_S,
    Leftover,
    Spared,
    Stored,
    Survey,
    baseline_refs,
    compose_images,
    listed,
    opened,
    size_of,
    spared,
    stored,
)
from console.runtime import proxy
from console.runtime.docker.client import NotFound, ask, connect
from console.runtime.docker.engine_state import is_made_here
from console.runtime.spec import BUILT_LABEL, RUN_LABEL, SERVICE_LABEL, role_of

if TYPE_CHECKING:
    from docker import DockerClient

ROLES = ("candidate", "oneoff")
REMOVE_S = 120.0
RUNS = ("running", "paused", "restarting")
_ASIDE = re.compile(r"\.[0-9a-f]{6}-\d+$")

HIDDEN = Path(".cache/huggingface/download")


@dataclass(frozen=True, slots=True)
class Removal:
    """The result of one removal: `freed` bytes, or an `error`."""

    item: Leftover
    freed: int | None
    error: str = ""


def survey(site: Site) -> Survey:
    """List everything that trials left, and why some of it must stay. Changes nothing."""
    leftovers: list[Leftover] = []
    notes: list[str] = []
    running: list[dict[str, object]] = []
    images: tuple[Stored, ...] = ()
    client: DockerClient | None = None
    try:
        client = connect(site.model.engine.host or None)
        running = inspected(client, baseline_refs(site, client))
    except ConsoleError as error:
        notes.append(f"containers and images were not searched: {error}")
        client = None
    wanted, unknown = compose_images(site) if client is not None else (set(), [])
    notes += unknown
    keep = spared(site, running, wanted)
    if client is not None:
        try:
            leftovers += _containers(client, keep)
            images = stored(client)
            leftovers += _images(client, keep, images)
        except EngineError as error:
            notes.append(f"not all containers and images were searched: {error}")
    for kept in _downloads(keep):
        blind = client is None and not kept.stays
        leftovers.append(kept.kept("the engine cannot say whether a container uses it") if blind and
                     not isinstance(site.baseline_spec().runs, ProcessSpec) else kept)  # fmt: skip
    leftovers += _runs(site)
    notes += _still_running()
    return Survey(tuple(leftovers), tuple(notes), images, keep, client)


def remove(site: Site, ids: list[str]) -> Iterator[Removal]:
    """Remove exactly these items, containers first; none at all if one of them must stay.

    The survey is repeated right before. Raises UsageError, and HostBusy while a run is active.
    """
    lock = HostLock()
    try:
        wanted = _chosen(survey(site), ids)
        for item in sorted(wanted, key=lambda leftover: KINDS.index(leftover.kind)):
            yield _remove(item)
    finally:
        lock.release()


def _chosen(listing: Survey, ids: list[str]) -> list[Leftover]:
    known = {item.id: item for item in listing.items}
    unknown = [name for name in ids if name not in known]
    if unknown:
        raise UsageError(
            f"nothing was removed: {one_line(unknown[0], 60)} is not in the list",
            hint="omni-console clean prints the list with its ids",
        )
    wanted = [known[name] for name in dict.fromkeys(ids)]
    going = {item.id for item in wanted}
    for leftover in wanted:
        if leftover.stays and not (leftover.waits and going.issuperset(leftover.waits)):
            raise UsageError(
                f"nothing was removed: {leftover.id} stays", f"{leftover.what}: {leftover.stays}"
            )
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
    """Log who removed what in the state directory, one line per removal. Raises OSError."""
    item = done.item
    line = {"at": time.time(), "uid": os.getuid(), "id": item.id, "kind": item.kind,
            "what": item.what, "where": item.where, "freed": done.freed}  # fmt: skip
    with open(paths.state_dir() / "clean.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def _containers(client: DockerClient, spared: Spared) -> Iterator[Leftover]:
    """Candidates' and one-off containers, running or not. Raises EngineError."""
    api: Any = client.api
    rows = ask(
        "Listing containers with their sizes",
        lambda: api.containers(all=True, size=True, filters={"label": RUN_LABEL}), LIST_S,
    )  # fmt: skip
    for row in rows:
        labels = row.get("Labels") or {}
        if role_of(labels) in ROLES and is_made_here(client, row):
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
    leftover = Leftover(
        f"c-{identity[:12]}", "container", f"{name}: {one_line(role, 60)}, {state}{aside}",
        identity, int(row.get("SizeRw") or 0), float(row.get("Created") or 0),
        one_line(labels.get(RUN_LABEL, ""), 100), remove=lambda: _remove_container(client, row),
    )  # fmt: skip
    if spared.names & {identity, *names}:
        return leftover.kept("it is the baseline's, or protected")
    if state in RUNS:
        return leftover.kept(f"it is {state}: stop it first")
    return leftover


def _remove_container(client: DockerClient, row: dict[str, Any]) -> int:
    """Remove without force, so that the engine refuses a container started since."""
    api: Any = client.api
    ask(
        f"Removing container {row['Id'][:12]}",
        lambda: api.remove_container(row["Id"], v=True, force=False), REMOVE_S,
    )  # fmt: skip
    return int(row.get("SizeRw") or 0)


def _images(client: DockerClient, spared: Spared, every: Sequence[Stored]) -> Iterator[Leftover]:
    """The images of all `build` steps, as leftovers. Raises EngineError."""
    api: Any = client.api
    users = ask("Listing containers", lambda: api.containers(all=True), LIST_S)
    for image in every:
        if BUILT_LABEL in (image.row.get("Labels") or {}):
            yield _image(client, image, users, spared)


def _image(
    client: DockerClient, image: Stored, users: list[dict[str, Any]], spared: Spared
) -> Leftover:
    identity, labels = image.id, image.row.get("Labels") or {}
    tags = [tag for tag in image.row.get("RepoTags") or () if tag != "<none>:<none>"]
    built = labels.get(BUILT_LABEL, "")
    what = one_line(", ".join(tags) or f"an older {built}, without a tag", 120)
    if image.shared:
        what += f"; {format_bytes(image.shared)} more that other images have too"
    leftover = Leftover(
        f"i-{identity.removeprefix('sha256:')[:12]}", "image", what, identity,
        image.own, float(image.row.get("Created") or 0), one_line(labels.get(RUN_LABEL, ""), 100),
        remove=lambda: _remove_image(client, identity, tags),
    )  # fmt: skip
    if spared.images & {identity, *tags}:
        return leftover.kept("the baseline, the site or something that runs needs it")
    if tags and built not in tags:
        return leftover.kept(f"it was made from {one_line(built, 80)}, not by a build step itself")
    holders = tuple(f"c-{user['Id'][:12]}" for user in users if user.get("ImageID") == identity)
    if holders:
        made = f"{', '.join(holders)} {'is' if len(holders) == 1 else 'are'} made of it"
        return replace(leftover.kept(f"{made}: name that too, or first"), waits=holders)
    return leftover


def _remove_image(client: DockerClient, identity: str, tags: list[str]) -> int | None:
    """Remove tag by tag without force, so that an image with somebody else's tag stays."""
    api: Any = client.api
    # What it shared with one that went a moment ago is its own now.
    own = next((image.own for image in listed(client) if image.id == identity), None)
    for name in tags or [identity]:
        remove = partial(api.remove_image, name, force=False)
        ask(f"Removing image {one_line(name, 80)}", remove, REMOVE_S)
    try:
        ask("Looking for the image", lambda: api.inspect_image(identity))
    except NotFound:
        return own
    raise ServiceError("the image is still there", "something else refers to it")


def inspected(client: DockerClient, refs: list[str]) -> list[dict[str, Any]]:
    """Inspect the baseline's container and all running ones, for their arguments. Raises
    EngineError."""
    api: Any = client.api
    running = [str(row["Id"]) for row in ask("Listing containers", lambda: api.containers())]
    containers = []
    for ref in dict.fromkeys((*refs, *running)):
        try:
            container = ask(f"Looking at {one_line(ref, 40)}", partial(api.inspect_container, ref))
        except NotFound:
            continue
        labels = (container.get("Config") or {}).get("Labels") or {}
        if ref in refs or role_of(labels) not in ROLES:
            containers.append(container)
    return containers


def _downloads(spared: Spared) -> Iterator[Leftover]:
    """What `download` steps fetched, one item per directory, without files whose size changed."""
    for download in local_files.every_taken():
        mine = download.mine()
        if mine:
            yield _download(download, mine, spared)


def _download(download: Taken, mine: dict[str, int], spared: Spared) -> Leftover:
    files, gone = plural(len(mine), "file"), len(download.files) - len(mine)
    more = f"; {plural(gone, 'more file')} changed or gone since, and left alone" if gone else ""
    leftover = Leftover(
        f"d-{download.key}", "download", f"{files} of {download.source}{more}", download.target,
        sum(mine.values()), _newest(download.target), download.runs[-1] if download.runs else "",
        remove=lambda: _remove_files(download),
    )  # fmt: skip
    why = next((w for name in mine if (w := spared.path_reason(f"{download.target}/{name}"))), "")
    if not why:
        why = _mentioned(download, mine, spared)
    held = "" if why else opened(f"{download.target}/{name}" for name in mine)
    return leftover.kept(why or (f"a process has {held} open" if held else ""))


def _mentioned(download: Taken, mine: dict[str, int], spared: Spared) -> str:
    """Whether a command line of the site or of a running process names the file."""
    # not config.json or README.md, which are everybody's names
    weights = (os.path.basename(n) for n in mine if n.endswith(WEIGHTS))
    for name in (download.target, os.path.basename(download.target), *weights):
        if spared.mentions(name):
            return f"a command line of the site, or of what runs, names {one_line(name, 80)}"
    return ""


def _newest(target: str) -> float:
    try:
        return os.stat(target).st_mtime
    except OSError:
        return 0.0


def _remove_files(download: Taken) -> int:
    """Delete only files that are still the download's, and directories left empty."""
    mine, top = download.mine(), Path(download.target)
    freed = 0
    for name, size in mine.items():
        (top / name).unlink()
        freed += size
        for tail in (".metadata", ".lock"):
            with contextlib.suppress(OSError):
                (top / HIDDEN / f"{name}{tail}").unlink()
    folders = {parent for name in mine for base in (Path(name), HIDDEN / name)
               for parent in base.parents}  # fmt: skip
    for folder in sorted(folders, key=lambda path: -len(path.parts)):
        with contextlib.suppress(OSError):  # not empty: somebody else's
            (top / folder).rmdir()
    if not download.mine():
        local_files.forget_taken(download)
    return freed


def _runs(site: Site) -> Iterator[Leftover]:
    """Run directories, oldest first: journal, logs, report, rollback plan."""
    runs = all_runs()
    up = proxy.at(site.model.baseline.url)
    newest = _newest_plan(site, runs)
    for run in reversed(runs):
        leftover = Leftover(
            f"r-{run.id}", "run", _words(run), str(run.path), size_of(run.path), _newest(
                str(run.path)), run.id, remove=partial(_remove_run, run),
        )  # fmt: skip
        yield leftover.kept(_run_stays(run, up.run if up else "", newest))


def _still_running() -> list[str]:
    """What runs that are over have left running, in words: what they have recorded, and what
    answers at their candidates' addresses, whoever started it. Where clients are at a candidate, it
    is what serves them, through its relay."""
    seen: dict[int, str] = {}
    switched = {relay.run for relay in proxy.every()}
    for run in all_runs():
        if run.id in switched or runner_alive(run) or closer_alive(run) or ladder_busy(run):
            continue
        entries, baselines = live.read(run.live), list(licence.baselines())
        for e in entries:
            stat = process.stat(e.pid) if e.kind == "process" else None
            if stat is None or stat.start != e.start or stat.state in "ZX":
                continue
            if not any(baseline.has(stat) for baseline in baselines):
                seen.setdefault(e.pid, f"pid {e.pid}, {e.name} of run {run.id}, still runs")
        with contextlib.suppress(ConsoleError):
            plan = sealed.read(run.sealed)
            for pid, words in left.answering(plan, entries, set).items():
                seen.setdefault(pid, f"{words}: run {run.id} may have left it behind")
    return [
        f"{words}; `ps -o pid,user,lstart,args -p {pid}` shows whose it is"
        for pid, words in seen.items()
    ]


def _words(run: RunDir) -> str:
    try:
        view = read_view(run)
        return one_line(f"{view.title}: {view.state} {view.decision}".rstrip(), 120)
    except ConsoleError:
        return "without a readable journal"


def _run_stays(run: RunDir, switched: str, newest: str) -> str:
    if runner_alive(run) or closer_alive(run) or ladder_busy(run):
        return "it is on"
    if run.id == switched:
        return "clients are at its candidate: a rollback needs its plan"
    if run.id == newest:
        return "it is this site's newest run: a rollback uses its plan"
    info = os.lstat(run.path)
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid():
        return "it is not this user's directory"
    names = [e.name for e in live.read(run.live)
             if e.kind == "process" and process.alive(e.pid, e.start)]  # fmt: skip
    if names:
        return f"its {one_line(names[0], 60)} still runs"
    try:
        view = read_view(run)
    except ConsoleError:
        return ""  # no journal: nothing can go on with it
    over = view.over or word_of(run, view, False) == NEVER_BEGAN
    return "" if over else f"it has not ended: omni-console resume {run.id[-4:]}, or rollback"


def _newest_plan(site: Site, runs: list[RunDir]) -> str:
    """The run whose sealed plan a rollback uses when no run is active."""
    for run in runs:
        with contextlib.suppress(ConsoleError):
            plan = sealed.read(run.sealed)
            if os.path.realpath(plan.site_path) == os.path.realpath(site.path):
                return run.id
    return ""


def _remove_run(run: RunDir) -> int:
    root = os.path.realpath(paths.runs_dir())
    if run.path.is_symlink() or os.path.dirname(os.path.realpath(run.path)) != root:
        raise UsageError(f"{run.path} is not one of this user's run directories")
    freed = size_of(run.path)
    shutil.rmtree(run.path)
    return freed
