"""What preflight steps and downloads do, in lines an operator reads before pressing enter. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from console.common.text import one_line
from console.common.units import format_bytes
from console.config.playbook.preflight import (
    CheckpointStep,
    DownloadStep,
    GgufStep,
    HostStep,
    ImportsStep,
)
from console.config.playbook.steps import Step

PREFLIGHT = ("checkpoint", "gguf", "host", "imports", "download")


def look_words(step: Step) -> Iterator[str]:
    """Nothing is downloaded, started or written by the first four."""
    if step.checkpoint is not None:
        yield from _checkpoint(step.checkpoint)
    elif step.gguf is not None:
        yield _gguf(step.gguf)
    elif step.host is not None:
        yield f"looks at this machine: {', '.join(_host(step.host)) or 'memory, CPU, GPUs'}"
    elif step.imports is not None:
        yield _imports(step.imports)
    elif step.download is not None:
        yield from _download(step.download)
        return
    yield f"on NO-GO: {step.on_no_go}; on HOLD (also what is not known): {step.on_hold}"


def _checkpoint(asked: CheckpointStep) -> Iterator[str]:
    which = f" {' '.join(asked.include)}" if asked.include else ""
    yield f"looks up {one_line(asked.repo)}{one_line(which)}: listing and headers only"
    how = asked.engine or {"mmap": "llama.cpp"}.get(asked.loader or "", "")
    parts = [how, asked.loader or "", f"context {asked.ctx}" if asked.ctx else ""]
    if asked.service:
        parts.append(f"the arguments of {asked.service}")
    if asked.args:
        parts.append(shlex.join(asked.args))
    words = ", ".join(part for part in parts if part) or "as its format asks"
    yield f"works out whether it fits, loaded by: {one_line(words, 300)}"
    if asked.to:
        yield f"and whether the disk of {one_line(asked.to)} holds it"
    if asked.beside:
        yield "beside the baseline, which goes on serving"


def _gguf(asked: GgufStep) -> str:
    build = asked.image or asked.binary or asked.service or "the baseline"
    where = "no GPU, no network" if not asked.binary else "on the host"
    return (
        f"reads the architecture of {one_line(asked.file)} and asks the build of {one_line(build)} "
        f"with a probe file ({where})"
    )


def _host(asked: HostStep) -> Iterator[str]:
    if asked.method:
        yield f"kernels for {one_line(asked.method)}"
    if asked.compute:
        yield f"compute capability {asked.compute[0]}.{asked.compute[1]}"
    if asked.cuda:
        yield f"CUDA {asked.cuda[0]}.{asked.cuda[1]} for its GPUs"
    if asked.driver:
        yield f"NVIDIA driver {one_line(asked.driver)}"
    if asked.gpus:
        yield "the site's GPUs"
    if asked.sched_ext:
        yield "sched_ext in the kernel"
    yield from (f"port {port}" for port in asked.ports)
    yield from (f"image {one_line(ref)}" for ref in asked.images)
    yield from (f"PyTorch in {one_line(ref)}" for ref in asked.torch)
    yield from (f"compose file {one_line(path)}" for path in asked.compose)
    if asked.disk is not None:
        yield f"{format_bytes(asked.disk.free)} free at {one_line(asked.disk.path)}"


def _imports(asked: ImportsStep) -> str:
    modules = ", ".join(one_line(name) for name in asked.modules)
    return (
        f"imports {modules} in a one-off container of {one_line(asked.image or asked.service)} "
        "(no GPU, no network)"
    )


def _download(asked: DownloadStep) -> Iterator[str]:
    what = f"what {asked.of} judged" if asked.of else one_line(asked.repo)
    which = f" {' '.join(asked.include)}" if asked.include else ""
    yield (
        f"$ hf download of {what}{one_line(which)} → {one_line(asked.to)}, {asked.workers} workers"
    )
    yield "pinned to one commit; what is here is kept; sizes verified; stops before a full disk"
    if asked.of:
        yield f"a NO-GO of {asked.of} needs a typed override"
