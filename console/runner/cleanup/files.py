"""Downloads and run directories that trials left."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from console.common import paths
from console.common.errors import ConsoleError, UsageError
from console.common.text import one_line
from console.config.site.site import Site
from console.host import process
from console.journal.liveness import ladder_busy, runner_alive
from console.journal.run_dir import RunDir, all_runs
from console.journal.run_read import NEVER_BEGAN, read_view, word_of
from console.models.hub import taken
from console.models.hub.taken import Taken
from console.recovery.rollback import live
from console.recovery.rollback import sealed_plan as sealed
from console.runner.cleanup.leftover import Leftover
from console.runner.cleanup.spare import Spared, opened
from console.runtime import proxy

HIDDEN = Path(".cache/huggingface/download")


def downloads(spared: Spared) -> Iterator[Leftover]:
    """What `download` steps brought, a directory each; files of another size are not in it."""
    for one in taken.every():
        mine = one.mine()
        if mine:
            yield _download(one, mine, spared)


def _download(one: Taken, mine: dict[str, int], spared: Spared) -> Leftover:
    gone = len(one.files) - len(mine)
    more = f"; {gone} more are gone or changed, and not the console's any more" if gone else ""
    found = Leftover(
        f"d-{one.key}", "download", f"{_files(len(mine))} of {one.source}{more}", one.target,
        sum(mine.values()), _newest(one.target), one.runs[-1] if one.runs else "",
        remove=lambda: _remove_files(one),
    )  # fmt: skip
    why = next((w for name in mine if (w := spared.path_reason(f"{one.target}/{name}"))), "")
    if not why:
        why = _mentioned(one, mine, spared)
    held = "" if why else opened(f"{one.target}/{name}" for name in mine)
    return found.kept(why or (f"a process has {held} open" if held else ""))


def _files(count: int) -> str:
    return f"{count} file{'s' if count != 1 else ''}"


def _mentioned(one: Taken, mine: dict[str, int], spared: Spared) -> str:
    """A command line of the site or of something that runs speaks of it."""
    for name in (one.target, os.path.basename(one.target), *(os.path.basename(n) for n in mine)):
        big = name in (one.target, os.path.basename(one.target)) or _is_weight(name)
        if big and spared.mentions(name):
            return f"a command line of the site, or of what runs, names {one_line(name, 80)}"
    return ""


def _is_weight(name: str) -> bool:
    """Not config.json or README.md, which are everybody's names."""
    return name.endswith((".gguf", ".safetensors", ".bin", ".pt"))


def _newest(target: str) -> float:
    try:
        return os.stat(target).st_mtime
    except OSError:
        return 0.0


def _remove_files(one: Taken) -> int:
    """Exactly what is still the download's; directories only where they are empty then."""
    mine, top = one.mine(), Path(one.target)
    freed = 0
    for name, size in mine.items():
        (top / name).unlink()
        freed += size
        for tail in (".metadata", ".lock"):
            with contextlib.suppress(OSError):
                (top / HIDDEN / f"{name}{tail}").unlink()
    folders = {parent for name in mine for base in (Path(name), HIDDEN / name)
               for parent in base.parents}  # fmt: skip
    for folder in sorted(folders, key=lambda one: -len(one.parts)):
        with contextlib.suppress(OSError):  # not empty: somebody else's
            (top / folder).rmdir()
    if not one.mine():
        taken.forget(one)
    return freed


def runs(site: Site) -> Iterator[Leftover]:
    """Run directories, the oldest first: journal, logs, report, rollback plan."""
    found = all_runs()
    up = proxy.at(site.model.baseline.url)
    newest = _newest_plan(site, found)
    for run in reversed(found):
        one = Leftover(
            f"r-{run.id}", "run", _words(run), str(run.path), size_of(run.path), _newest(
                str(run.path)), run.id, remove=partial(_remove_run, run),
        )  # fmt: skip
        yield one.kept(_run_stays(run, up.run if up else "", newest))


def _words(run: RunDir) -> str:
    try:
        view = read_view(run)
        return one_line(f"{view.title}: {view.state} {view.decision}".rstrip(), 120)
    except ConsoleError:
        return "without a journal that can be read"


def _run_stays(run: RunDir, switched: str, newest: str) -> str:
    if runner_alive(run) or ladder_busy(run):
        return "it is on"
    if run.id == switched:
        return "clients are at its candidate: its plan is the way back"
    if run.id == newest:
        return "the newest plan of this site: a rollback goes by it"
    info = os.lstat(run.path)
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid():
        return "it is not this user's directory"
    left = [e.name for e in live.read(run.live)
            if e.kind == "process" and process.alive(e.pid, e.start)]  # fmt: skip
    if left:
        return f"its {one_line(left[0], 60)} still runs"
    try:
        view = read_view(run)
    except ConsoleError:
        return ""  # no journal: nothing can go on with it
    over = view.over or word_of(run, view, False) == NEVER_BEGAN
    return "" if over else f"it has not ended: omni-console resume {run.id[-4:]}, or rollback"


def _newest_plan(site: Site, found: list[RunDir]) -> str:
    """The run whose plan a rollback takes when no run is on."""
    for run in found:
        with contextlib.suppress(ConsoleError):
            plan = sealed.read(run.sealed)
            if os.path.realpath(plan.site_path) == os.path.realpath(site.path):
                return run.id
    return ""


def size_of(path: Path) -> int:
    """Bytes that a directory takes on the disk; links are not followed."""
    found = 0
    for folder, _, names in os.walk(path):
        for name in (*names, "."):
            with contextlib.suppress(OSError):
                found += os.lstat(os.path.join(folder, name)).st_blocks * 512
    return found


def _remove_run(run: RunDir) -> int:
    root = os.path.realpath(paths.runs_dir())
    if run.path.is_symlink() or os.path.dirname(os.path.realpath(run.path)) != root:
        raise UsageError(f"{run.path} is not one of this user's run directories")
    freed = size_of(run.path)
    shutil.rmtree(run.path)
    return freed
