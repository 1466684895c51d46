"""The doctor's checks of the machine: memory, disks, kernel, and the site's figures for them.

A declared figure overrides a measured one in every verdict, so a wrong one must be shown.
"""

from __future__ import annotations

import errno
import os
import platform
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from console.checks.doctor.facts import ASK_S, Check, Facts, Finding, Level, each
from console.common import paths
from console.common.units import format_bytes
from console.host import children
from console.host.machine import existing, numa_nodes, space
from console.host.memory import meminfo

if TYPE_CHECKING:
    from console.config.site.site import MachineModel, Site
    from console.host.sample import Machine


SCARCE_MEMORY = 0.05
BUSY_SWAP = 0.5
PRESSURE_PERCENT = 10.0
"""Share of the last ten seconds in which everything waited for memory."""
SCARCE_DISK = 1 << 30
FULL_DISK = 50 << 20
"""With less free space than this, a run's journal may fail to be written."""
TRIED = 4096
OLDEST_KERNEL = (5, 3)
LADDER_SCORE = -900
_RELEASE = re.compile(r"(\d+)\.(\d+)")

NEAR = 0.05
"""Tolerated ratio to the declared figure: the kernel reserves memory, and figures are rounded."""


def memory(facts: Facts, check: Check) -> Iterator[Finding]:
    table = meminfo(facts.root / "proc/meminfo")
    total, available = table.get("MemTotal", 0), table.get("MemAvailable")
    if not total or available is None:
        yield check.warning("the kernel does not report the memory")
        return
    words = f"{format_bytes(available)} of {format_bytes(total)} available"
    if available < SCARCE_MEMORY * total:
        yield check.warning(words, "ps aux --sort=-rss | head shows who has it")
    else:
        yield check.ok(words)


def swap(facts: Facts, check: Check) -> Iterator[Finding]:
    table = meminfo(facts.root / "proc/meminfo")
    total = table.get("SwapTotal")
    if total is None:
        yield check.note("the kernel does not report the swap")
    elif not total:
        yield check.note("none: when memory runs out, the kernel kills at once")
    else:
        used = total - table.get("SwapFree", total)
        words = f"{format_bytes(used)} of {format_bytes(total)} used"
        if used > BUSY_SWAP * total:
            yield check.warning(
                words, "a model that was swapped out answers slowly; free memory first"
            )
        else:
            yield check.ok(words)


def pressure(facts: Facts, check: Check) -> Iterator[Finding]:
    """Memory pressure (PSI), as the kernel's ten-second average."""
    try:
        text = (facts.root / "proc/pressure/memory").read_text()
        match = re.search(r"^full avg10=([\d.]+)", text, re.MULTILINE)
    except OSError:
        match = None
    if match is None:
        yield check.note(
            "the kernel reports no memory pressure (PSI)", "boot it with psi=1 where it has PSI"
        )
        return
    full = float(match[1])
    words = f"{full:g} % of the last ten seconds everything waited for memory"
    if full >= PRESSURE_PERCENT:
        yield check.warning(words, "the machine is thrashing: end unneeded processes")
    else:
        yield check.ok(words)


def home(facts: Facts, check: Check) -> Iterator[Finding]:
    yield _space(check, paths.home(), Level.WARNING)


def runs(facts: Facts, check: Check) -> Iterator[Finding]:
    """The disk that journals and logs go to."""
    yield _space(check, paths.state_dir(), Level.FAILED)


def models(facts: Facts, check: Check) -> Iterator[Finding]:
    """The directories of the baseline's models, which are where downloads go."""
    site = facts.site()
    if site is None:
        return
    places = sorted({str(path) for path in _folders(site)})

    def look(place: str) -> Finding | None:
        # A directory that is missing is told by the baseline's own check.
        return _space(check, Path(place), Level.NOTE) if os.path.isdir(place) else None

    for place, finding in each(check.id, places, lambda place: [look(place)], ASK_S):
        if finding is None:
            hint = "a dead mount? `findmnt -T` names it"
            yield check.failed(f"{place}: no answer within {ASK_S:g} s", hint)
        elif finding[0] is not None:
            yield finding[0]


def oom(facts: Facts, check: Check) -> Iterator[Finding]:
    """Whether the standby can be protected from the OOM killer."""
    if not may_take(LADDER_SCORE):
        yield check.note(
            "the standby may be killed when memory runs out (oom_score_adj is not writable)",
            "with CAP_SYS_RESOURCE it is protected; omni-console rollback works without it too",
        )
    else:
        yield check.ok("the standby is protected (oom_score_adj is writable)")


def may_take(oom_score: int) -> bool:
    """Whether the kernel accepts such an OOM score; a child process tries it on itself."""
    argv = ["sh", "-c", f"echo {oom_score} > /proc/self/oom_score_adj"]
    return not children.run(argv, ASK_S, env=os.environ)[0]


def kernel(facts: Facts, check: Check) -> Iterator[Finding]:
    name, release = platform.system(), platform.release()
    match = _RELEASE.match(release)
    if name != "Linux":
        yield check.failed(f"{name} {release}", "the console needs Linux")
    elif match and (int(match[1]), int(match[2])) < OLDEST_KERNEL:
        yield check.warning(f"Linux {release}", "5.3 or newer can name a process for good (pidfd)")
    else:
        yield check.ok(f"Linux {release}, {platform.machine()}, {os.cpu_count()} CPUs")


def numa(facts: Facts, check: Check) -> Iterator[Finding]:
    """NUMA nodes: a model that spans them is read across dies (lesson S-005)."""
    count = numa_nodes(facts.root)
    if count is None:
        yield check.note("the kernel does not list NUMA nodes")
    elif count > 1:
        yield check.note(
            f"{count} nodes: a model in RAM that spans them decodes slower (S-005: 5.2 against "
            "10.9 tok/s)",
            "one socket: set NPS1 in the BIOS, then numactl --hardware says `1 nodes`",
        )
    else:
        yield check.ok("1 node")


def refusal(path: Path) -> str:
    """Why nothing can be written there, "" if it can; tried with an unnamed file and TRIED bytes in
    it, since a full disk takes an empty one.

    A path that does not exist yet is judged by the directory it would be made in.
    """
    try:
        with tempfile.TemporaryFile(dir=existing(path), buffering=0) as file:
            if os.write(file.fileno(), bytes(TRIED)) < TRIED:
                return os.strerror(errno.ENOSPC)
            os.fsync(file.fileno())  # a disk over the network takes the bytes first, and fails here
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _space(check: Check, path: Path, refused: Level) -> Finding:
    """Free space, and whether this user may write; `refused` is the level if not."""
    disk_space = space(path)
    words = f"{path}: {format_bytes(disk_space.free)} of {format_bytes(disk_space.total)} free"
    why = refusal(path)
    if why:
        return check.finding(
            refused, f"{path} cannot be written: {why}", f"ls -ld {path}; findmnt -T {path}"
        )
    hint = f"du -sh {path}/* shows what is large"
    if disk_space.free < FULL_DISK and refused is Level.FAILED:
        return check.failed(words, hint)
    return check.warning(words, hint) if disk_space.free < SCARCE_DISK else check.ok(words)


def declared(facts: Facts, check: Check) -> Iterator[Finding]:
    """Each figure of the site's `machine` that is wrong; measured figures need no line."""
    from console.host.gpu.inventory import Cards
    from console.host.machine import look

    site = facts.site()
    if site is None:
        return
    disk = next(iter(_folders(site)), site.base)  # downloads go there
    contradictions = dict(_compared(site.model.machine, look(disk, root=facts.root, cards=Cards())))
    for name, words in contradictions.items():
        if words:
            hint = f"{_line(site, name)} says so; without that line it is measured"
            yield check.warning(f"{name}: {words}", hint)
    if contradictions and not any(contradictions.values()):
        yield check.ok(f"as the site file has it: {', '.join(contradictions)}")


def _compared(model: MachineModel, seen: Machine) -> Iterator[tuple[str, str]]:
    """Each key with what contradicts it, "" if nothing does; unknown figures are left out."""
    if model.ram is not None and seen.ram_total is not None:
        yield "ram", _bytes(model.ram, seen.ram_total)
    if model.swap is not None and seen.swap_total is not None:
        yield "swap", _bytes(model.swap, seen.swap_total)
    if model.disk_free is not None and seen.disk_free is not None:
        # more room than was declared takes nothing from a verdict
        words = _bytes(model.disk_free, min(seen.disk_free, model.disk_free))
        yield "disk_free", words and f"{words}, where {seen.disk_path} is or would be"
    if model.cpu and seen.cpu_name:
        more = _words(model.cpu) - _words(seen.cpu_name)
        yield "cpu", _both(model.cpu, seen.cpu_name) if more else ""
    if model.cpu_flags and seen.cpu_flags:
        lacks = [flag for flag in model.cpu_flags if flag not in seen.cpu_flags]
        yield "cpu_flags", f"this processor lacks {', '.join(lacks)}" if lacks else ""
    for name in ("cores", "numa_nodes"):
        claim, has = getattr(model, name), getattr(seen, name)
        if claim is not None and has is not None:
            yield name, _both(claim, has) if claim != has else ""


def _both(claim: object, has: object) -> str:
    return f"{claim} in the site file, {has} here"


def _bytes(claim: int, has: int) -> str:
    near = abs(claim - has) <= NEAR * claim
    return "" if near else _both(format_bytes(claim), format_bytes(has))


def _words(name: str) -> set[str]:
    """A processor's name without the kernel's extra words: (R), 96-Cores."""
    return set(name.lower().replace("(r)", " ").replace("(tm)", " ").split())


def _folders(site: Site) -> list[Path]:
    """Directories of the baseline's models."""
    named = site.model.baseline.models
    return [(site.base / os.path.expanduser(name)).parent for name in named]


def _line(site: Site, name: str) -> str:
    from console.config.yaml import parse

    document = parse(site.text, str(site.path), "")
    return f"{site.path}:{document.place(('machine', name))[0]}"


CHECKS = (
    Check("machine.memory", "memory", memory, Level.WARNING),
    Check("machine.swap", "swap", swap, Level.WARNING),
    Check("machine.pressure", "pressure", pressure, Level.WARNING),
    Check("machine.runs", "disk: runs", runs),
    Check("machine.home", "disk: home", home),
    Check("machine.models", "disk: models", models),
    Check("machine.oom", "OOM killer", oom, Level.NOTE),
    Check("machine.kernel", "kernel", kernel, Level.WARNING),
    Check("machine.numa", "NUMA", numa, Level.NOTE),
)

DECLARED_CHECKS = (Check("machine.declared", "site's machine", declared),)
