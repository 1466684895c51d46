"""What may never be removed: what the site names, what is protected, what somebody uses."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from console.common.text import decode
from console.config.site.site import Site
from console.runtime.spec import ContainerSpec


@dataclass(frozen=True)
class Spared:
    """`names`: containers by name or id; `images`: references and ids; `paths`: real paths;
    `words`: every argument of the baseline, of the site's services and of all that runs."""

    names: frozenset[str]
    images: frozenset[str]
    paths: frozenset[str]
    words: tuple[str, ...]

    def path_reason(self, path: str) -> str:
        """Why a path stays: the site names it, or something in or around it."""
        for one in self.paths:
            if one == path or _inside(one, path):
                return f"the site names {one}"
            if _inside(path, one):
                return f"it lies in {one}, which the site names"
        return ""

    def mentions(self, name: str) -> bool:
        """Whether a command line that counts speaks of this name as a whole word: one that says
        `llama.gguf` does not mean `a.gguf`."""
        whole = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")
        return len(name) > 2 and any(whole.search(word) for word in self.words)


def _inside(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")


def spared(site: Site, containers: Iterable[dict[str, Any]] = ()) -> Spared:
    """`containers`: what the engine says of the baseline's and of all that run (inspected)."""
    model = site.model
    base = model.baseline
    names = {*model.protected, *([base.container] if base.container else [])}
    images: set[str] = set()
    words = [*base.args]
    found = {os.path.realpath(site.base / one) for one in base.models}
    if base.process is not None:
        words += base.process.argv
    if base.compose is not None:
        found.add(os.path.realpath(site.base / base.compose.file))
        names.add(base.compose.service)
    for spec in site.service_specs().values():
        if isinstance(spec.runs, ContainerSpec):
            images.add(_tagged(spec.runs.image))
            words += [*spec.runs.command, *spec.runs.entrypoint]
            found |= {os.path.realpath(m.source) for m in spec.runs.mounts if _is_file(m.source)}
        else:
            words += [str(word) for word in getattr(spec.runs, "argv", ())]
    for one in containers:
        config = one.get("Config") or {}
        words += [str(w) for part in ("Entrypoint", "Cmd") for w in config.get(part) or ()]
        images |= {str(one.get("Image", "")), str(config.get("Image", ""))}
        names |= {str(one.get("Id", "")), str(one.get("Name", "")).lstrip("/")}
    return Spared(
        frozenset(n for n in names if n), frozenset(i for i in images if i), frozenset(found),
        (*words, *running_words()),
    )  # fmt: skip


def _tagged(ref: str) -> str:
    """An image reference as the engine lists it."""
    return ref if ":" in ref.rpartition("/")[2] or "@" in ref else f"{ref}:latest"


def _is_file(path: str) -> bool:
    """A mounted model file is named; a mounted directory of models names none of them."""
    return Path(path).is_file()


def running_words(proc: Path = Path("/proc")) -> list[str]:
    """The arguments of every process but this one and its parents, which name what they remove."""
    from console.host.process import ancestry

    mine = ancestry(os.getpid())
    found: list[str] = []
    for name in os.listdir(proc):
        if name.isdigit() and int(name) not in mine:
            try:
                found += [decode(w) for w in (proc / name / "cmdline").read_bytes().split(b"\0")]
            except OSError:
                continue
    return [word for word in found if word]


def opened(files: Iterable[str], proc: Path = Path("/proc")) -> str:
    """One of these files that a process of this user has open or mapped; "" for none."""
    wanted: dict[tuple[int, int], str] = {}
    for file in files:
        try:
            info = os.stat(file)
        except OSError:
            continue
        wanted[info.st_dev, info.st_ino] = file
    for name in os.listdir(proc):
        if not name.isdigit():
            continue
        for held in (*_open(proc / name / "fd"), *_mapped(proc / name / "maps")):
            if held in wanted:
                return wanted[held]
    return ""


def _open(folder: Path) -> list[tuple[int, int]]:
    """(device, inode) of every open file."""
    found = []
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    for name in names:
        with contextlib.suppress(OSError):
            info = os.stat(folder / name)
            found.append((info.st_dev, info.st_ino))
    return found


def _mapped(maps: Path) -> list[tuple[int, int]]:
    """The same of every mapped file: engines map a model and close it."""
    found = []
    try:
        rows = maps.read_bytes().split(b"\n")
    except OSError:
        return []
    for row in rows:
        fields = row.split(None, 5)
        if len(fields) == 6 and fields[4] != b"0":
            with contextlib.suppress(OSError):
                info = os.stat(fields[5])
                found.append((info.st_dev, info.st_ino))
    return list(dict.fromkeys(found))
