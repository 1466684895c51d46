"""What the baseline runs on and with, cheaply, so that a change of its speed has a name: kernel,
driver, firmware, NUMA layout; image, command line and files of the server; clocks and power limit.

Every value is a clean text, and a missing one is left out. Reads files of the kernel, and of the
container engine one answer; nothing is started.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from console.common import redact
from console.common.errors import EngineError, ServiceError
from console.common.files import read_bytes, read_text
from console.common.text import decode, one_line
from console.host import process, units
from console.host.ports import listeners
from console.host.process import BASELINE_COOKIE
from console.recovery.rollback.observe import inspected
from console.recovery.rollback.sealed_plan import SealedPlan
from console.runtime.engine_api import RawEngine

Print = dict[str, str]
ENGINE_S = 2.0
MAX_LIBRARIES = 60
MAX_NOTES = 1 << 16
LIMIT = 1500
_DRIVER = re.compile(r"\b(\d{3}\.\d+(?:\.\d+)*)\b")
FILES = {
    "BIOS": "sys/class/dmi/id/bios_version",
    "BIOS date": "sys/class/dmi/id/bios_date",
    "board": "sys/class/dmi/id/board_name",
    "NUMA nodes": "sys/devices/system/node/online",
    "processors online": "sys/devices/system/cpu/online",
    "SMT": "sys/devices/system/cpu/smt/control",
    "CPU governor": "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    "CPU boost": "sys/devices/system/cpu/cpufreq/boost",
    "huge pages": "sys/kernel/mm/transparent_hugepage/enabled",
    "NUMA balancing": "proc/sys/kernel/numa_balancing",
    "kernel command line": "proc/cmdline",
    "AMD driver": "sys/module/amdgpu/version",
}
BOOT, STARTED, IMAGE, ARGV = "boot", "server process", "image", "command line"
PRESSURE = {"CPU pressure": "cpu", "memory pressure": "memory", "IO pressure": "io"}
"""Gauges in per cent; every other gauge is in MHz."""
POINTS, PART = 5.0, 0.05
"""A gauge has changed by so many points of a percentage, or by this part of itself."""


def machine(root: Path = Path("/")) -> Print:
    """The machine: kernel, firmware, drivers, memory."""
    facts = {name: one_line(read_text(root / path), LIMIT) for name, path in FILES.items()}
    facts["kernel"] = one_line(read_text(root / "proc/sys/kernel/osrelease"), 120)
    facts[BOOT] = one_line(read_text(root / "proc/sys/kernel/random/boot_id"), 60)
    driver = _DRIVER.search(read_text(root / "proc/driver/nvidia/version").partition("\n")[0])
    facts["driver"] = driver[1] if driver else ""
    for line in read_text(root / "proc/meminfo").splitlines()[:1]:
        if (words := line.split())[:1] == ["MemTotal:"]:
            facts["RAM"] = f"{round(int(words[1]) / (1 << 20))} GiB"
    return {name: value for name, value in facts.items() if value}


def gauges(root: Path = Path("/")) -> dict[str, float]:
    """What others take of the machine now: the share of the last minute in which somebody waited
    for a processor, for memory, for a disk; per cent."""
    pressures = {}
    for name, file in PRESSURE.items():
        seen = re.search(r"^some .*?avg60=([\d.]+)", read_text(root / "proc/pressure" / file))
        if seen:
            pressures[name] = float(seen[1])
    return pressures


def cards(card_clocks: Mapping[str, Any]) -> tuple[Print, dict[str, float]]:
    """The power limit and the clocks of each card, from an answer of `console.host.gpu.clocks`."""
    fixed, moving = Print(), dict[str, float]()
    for uuid, card in card_clocks.items():
        name = f"{one_line(str(card.get('name') or 'card'), 40)} {one_line(str(uuid), 60)[-4:]}"
        if card.get("power_limit_w"):
            fixed[f"power limit of {name}"] = f"{card['power_limit_w']:g} W"
        for key, words in (("sm_mhz", "SM clock"), ("memory_mhz", "memory clock")):
            if card.get(key):
                moving[f"{words} of {name}"] = float(card[key]["max"])
    return fixed, moving


class Server:
    """The server of one baseline; its process is looked for only when the known one is gone."""

    def __init__(self, plan: SealedPlan) -> None:
        self.plan = plan
        self._known: tuple[int, int] | None = None
        self._read: Print = {}

    def look(self) -> Print:
        """Image and container, or command line and files of the process."""
        pid, facts = self.pid(), Print()
        if self.plan.baseline.kind == "container":
            facts |= self._container()
        if pid is None:
            return facts
        if self._known is None or not process.alive(*self._known) or self._known[0] != pid:
            start = process.start_time(pid)
            self._known = (pid, start) if start is not None else None
            self._read = _process(pid)
        # a container's own command line is known from its engine, and its pid changes with STARTED
        return {**self._read, **facts, STARTED: "{} {}".format(*self._known or (pid, 0))}

    def pid(self) -> int | None:
        """The process that serves, as far as this user may see it."""
        if self._known is not None and process.alive(*self._known):
            return self._known[0]
        base = self.plan.baseline
        if base.kind == "container":
            state = self._inspected().get("State")
            first = state.get("Pid") if isinstance(state, dict) else None
            return first if isinstance(first, int) and first > 0 else None
        known = None
        if base.process is not None:
            known = process.known(self.plan.records_dir, base.name, base.process, BASELINE_COOKIE)
        group = process.members(*known, cookie=BASELINE_COOKIE) if known is not None else []
        own = {member.pid for member in group}
        for who in listeners(base.url):
            # others may share its address (SO_REUSEPORT)
            if not who.is_engine_proxy and (not own or who.pid in own):
                return who.pid
        if known is not None:
            return known[0]
        if base.unit is not None:
            with contextlib.suppress(ServiceError):
                return units.look(base.unit).main or None
        return None

    def _container(self) -> Print:
        container = self._inspected()
        if not container:
            return {}
        settings = container.get("Config")
        settings = settings if isinstance(settings, dict) else {}
        words = [*(settings.get("Entrypoint") or []), *(settings.get("Cmd") or [])]
        return {
            IMAGE: one_line(str(container.get("Image", "")), 80),
            "image name": one_line(str(settings.get("Image", "")), 200),
            "container": one_line(str(container.get("Id", ""))[:12], 12),
            ARGV: _words(map(str, words)),
        }

    def _inspected(self) -> dict[str, Any]:
        engine = RawEngine(self.plan.engine.socket or self.plan.engine.docker_host, ENGINE_S)
        with contextlib.suppress(EngineError):
            return inspected(self.plan, engine)
        return {}


def _process(pid: int) -> Print:
    """Command line, program and libraries of a process; what may not be read is left out."""
    facts = {ARGV: _words(decode(read_bytes(f"/proc/{pid}/cmdline")).split("\0"))}
    try:
        program = os.readlink(f"/proc/{pid}/exe")
    except OSError:
        program = ""
    files = [program] if program.startswith("/") else []
    for row in decode(read_bytes(f"/proc/{pid}/maps")).splitlines():
        path = row[row.find("/") :] if "/" in row else ""
        if " r-xp " in row and ".so" in path and path not in files:
            files.append(path)
    for path in files[:MAX_LIBRARIES]:
        # through the process' own root, so that a container's files are its own
        identity = _identity(f"/proc/{pid}/root{path}")
        name = "program" if path == program else f"library {one_line(os.path.basename(path), 80)}"
        if identity:
            facts[name] = identity
    return {name: value for name, value in facts.items() if value}


def _words(argv: Any) -> str:
    return one_line(shlex.join(redact.argv(word for word in argv if word)), LIMIT)


def _identity(path: str) -> str:
    """Build id, size and time of a program's file; "" if it cannot be read."""
    try:
        info = os.stat(path)
    except OSError:
        return ""
    build = build_id(path)
    return f"{f'build {build[:12]}, ' if build else ''}{info.st_size} bytes of {info.st_mtime:.0f}"


def build_id(path: str) -> str:
    """The GNU build id of a 64-bit ELF file; "" if it has none."""
    with contextlib.suppress(OSError, struct.error, ValueError), open(path, "rb") as file:
        head = file.read(64)
        if head[:6] != b"\x7fELF\x02\x01":
            return ""
        (table,) = struct.unpack_from("<Q", head, 32)
        size, count = struct.unpack_from("<HH", head, 54)
        file.seek(table)
        rows = file.read(size * count)
        for number in range(count):
            kind, _, at, _, _, length = struct.unpack_from("<IIQQQQ", rows, number * size)
            if kind == 4 and length <= MAX_NOTES:  # PT_NOTE
                file.seek(at)
                if identifier := _note(file.read(length)):
                    return identifier
    return ""


def _note(data: bytes) -> str:
    at = 0
    while at + 12 <= len(data):
        name, body, kind = struct.unpack_from("<III", data, at)
        begin = at + 12 + (name + 3) // 4 * 4
        if kind == 3 and data[at + 12 : at + 16] == b"GNU\0":
            return data[begin : begin + body].hex()
        at = begin + (body + 3) // 4 * 4
    return ""


def changes(old: Print, new: Print) -> dict[str, tuple[str, str]]:
    """What differs: name → old and new value. A value that is missing on one side counts only for
    the program's files: what cannot be read at a moment has not changed."""
    files = ("library ", "program")
    names = {*old, *new} if _both_read(old, new) else {*old} & {*new}
    return {
        name: (old.get(name, ""), new.get(name, ""))
        for name in sorted(names)
        if old.get(name) != new.get(name)
        and ((name in old and name in new) or name.startswith(files))
    }


def _both_read(old: Print, new: Print) -> bool:
    return "program" in old and "program" in new


def change_words(name: str, old: str, new: str) -> str:
    """A change as an operator reads it: `driver 575.57 → 580.65`, `image changed`."""
    if name == BOOT:
        return "the machine was booted"
    if name == STARTED:
        return "the server was started anew"
    if name == ARGV:
        return f"command line: {_differing(old, new)}"
    if name == "program" or name.startswith("library "):
        kind = "changed" if old and new else "is new" if new else "is gone"
        return f"{name} {kind}"
    if name in (IMAGE, "container"):
        return f"{name} changed ({_short(old)} → {_short(new)})"
    return f"{name} {one_line(old, 60)} → {one_line(new, 60)}"


def _short(identity: str) -> str:
    return identity.removeprefix("sha256:")[:12]


def _differing(old: str, new: str) -> str:
    """The words that are gone and those that came."""
    sides = []
    for text in (old, new):
        try:
            sides.append(shlex.split(text))
        except ValueError:
            sides.append(text.split())
    gone = [word for word in sides[0] if word not in sides[1]]
    came = [word for word in sides[1] if word not in sides[0]]
    if not gone and not came:
        return "its words are in another order, or repeated"
    parts = (one_line(" ".join(words), 100) or "nothing" for words in (gone, came))
    return " → ".join(parts)


def gauge_words(gauge_changes: tuple[tuple[str, float, float], ...]) -> list[str]:
    """The gauges that were different before and after, in words."""
    words = []
    for name, before, after in gauge_changes:
        if name in PRESSURE:
            if abs(after - before) >= POINTS:
                words.append(f"{name} {before:.0f} % → {after:.0f} %")
        elif before > 0 and abs(after / before - 1) >= PART:
            words.append(f"{name} {before:.0f} → {after:.0f} MHz")
    return words
