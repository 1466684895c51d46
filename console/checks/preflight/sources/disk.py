"""Whether the disk of the container engine holds the layers of a build, as far as can be told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from console.checks.lint import vocabulary
from console.checks.lint.unit import Unit
from console.checks.preflight import Finding, Level, host
from console.checks.preflight.sources import requirements
from console.common.errors import EngineError, EngineTimeout
from console.common.text import one_line
from console.common.units import format_bytes
from console.host.machine import disk_free
from console.runtime.docker.client import ask, known

if TYPE_CHECKING:
    import docker

    from console.checks.preflight.sources.tree import SourceTree

TITLE = "disk of the layers"
SIZES = ("F-001", "F-018")
GB = 10**9
_BASES = (
    ("nvidia/cuda", "-devel", 9 * GB), ("nvidia/cuda", "-runtime", 4 * GB),
    ("nvidia/cuda", "", 1 * GB), ("pytorch/pytorch", "-devel", 18 * GB),
    ("pytorch/pytorch", "", 9 * GB), ("nvcr.io/nvidia/pytorch", "", 22 * GB),
    ("vllm/vllm-openai", "", 20 * GB), ("lmsysorg/sglang", "", 25 * GB),
    ("ubuntu", "", GB // 10), ("debian", "", GB // 8), ("python", "", GB),
)  # fmt: skip
"""Repository, a word of the tag, and about what the image takes unpacked."""
_WHEELS = {"torch": 8 * GB, "vllm": 9 * GB, "sglang": 9 * GB, "tensorflow": 5 * GB}
"""What pip installs with a project for CUDA, its libraries included, once for a build."""


def needed(unit: Unit, scope: str, context: SourceTree | None, here: bool) -> tuple[int, list[str]]:
    """(bytes, what they are for), an estimate from below; `here`: the base image needs no room."""
    parts: list[tuple[str, int]] = []
    stage = unit.stage(scope)
    base = (stage.base if stage else "").removeprefix("docker.io/").removeprefix("library/")
    name, _, tag = base.partition(":")
    size = next((size for repo, word, size in _BASES if name == repo and word in tag), None)
    if size and not here:
        parts.append((one_line(base, 60), size))
    projects = {
        requirements.name(word.text)
        for command in unit.within(scope)
        for word in vocabulary.pip_words(command)
    } & _WHEELS.keys()
    largest = max(projects, key=lambda project: _WHEELS[project], default="")
    if largest:
        parts.append((f"{largest} and its libraries", _WHEELS[largest]))
    copies = any(not any(w.startswith("--from") for w in copy.words) for copy in unit.copies)
    if context is not None and copies and context.size:
        parts.append(("the context", context.size))
    return sum(size for _, size in parts), [f"{name} {format_bytes(size)}" for name, size in parts]


def findings(
    unit: Unit, scope: str, context: SourceTree | None, connect: Callable[[], docker.DockerClient]
) -> Iterator[Finding]:
    """Ask the engine where it keeps its layers, and the disk there what is free."""
    stage = unit.stage(scope)
    try:
        api: Any = connect().api
        engine_info = ask("Asking the engine where it keeps its data", api.info)
        ref = stage.base if stage else ""
        here = bool(ref) and known(f"image {one_line(ref)}", lambda: api.inspect_image(ref))
    except EngineError as error:
        yield Finding(Level.UNKNOWN, TITLE, f"not known: {error}", error.hint)
        return
    need, parts = needed(unit, scope, context, bool(here))
    root = Path(str(engine_info.get("DockerRootDir") or "/var/lib/docker"))
    yield room(root, need, parts)


def room(root: Path, need: int, parts: Sequence[str]) -> Finding:
    """Compare the estimate with the disk of the engine's data."""
    title = f"{TITLE}, {one_line(str(root), 50)}"
    try:
        free = disk_free(root)
    except EngineTimeout as error:
        return Finding(Level.FAIL, title, str(error), error.hint)
    except OSError as error:
        return Finding(Level.UNKNOWN, title, f"cannot be read: {error.strerror}")
    if not need:
        return Finding(Level.OK, title, f"{format_bytes(free)} free; no large layer is known")
    finding = host.room(title, free, need)
    words = f"{finding.words}, estimated from below: {', '.join(parts)}"
    hint = "`omni-console clean --all` lists old images and the build cache" * (
        finding.level is Level.FAIL
    )
    return Finding(finding.level, title, words, hint, SIZES if hint else ())
