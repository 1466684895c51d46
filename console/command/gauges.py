"""`gauges`: GPUs, memory and disks of this machine, once or once a second. Draws nothing."""

from __future__ import annotations

import json
import shutil
import sys
import time
from argparse import Namespace
from dataclasses import asdict
from queue import Empty, SimpleQueue
from typing import Any

from console.errors import Exit
from console.gauges.layout import all_rows, one_row
from console.gauges.level import disk_level, gpu_levels, memory_levels
from console.gauges.sample import Sample
from console.gauges.sampler import Sampler
from console.gauges.text import Signs, plain

LOOK_S = 3.0
"""What one look waits for NVML and for a second reading of the swap counters."""
LOOK_EVERY_S = 0.25
UNICODE = Signs("█", "░", "▁▂▃▄▅▆▇█", "…", "°C")


def gauges(args: Namespace) -> int:
    """One look, or with `--watch` a line a second until Ctrl-C; what is not known is said."""
    arrived: SimpleQueue[Sample] = SimpleQueue()
    every = 1.0 if args.watch else LOOK_EVERY_S
    sampler = Sampler(args.path or ["/"], arrived.put, every)
    sampler.start()
    try:
        if not args.watch:
            _print(_one_look(arrived), args.json)
        while args.watch:
            sample = arrived.get()
            line = json.dumps(as_json(sample)) if args.json else _line(sample)
            print(line, flush=True)
    finally:
        sampler.close()
    return int(Exit.OK)


def _one_look(arrived: SimpleQueue[Sample]) -> Sample:
    """The first sample that knows all it ever will, or the last before time is up."""
    deadline = time.monotonic() + LOOK_S
    sample = arrived.get()
    while not _complete(sample) and (left := deadline - time.monotonic()) > 0:
        try:
            sample = arrived.get(timeout=left)
        except Empty:
            break
    return sample


def _complete(sample: Sample) -> bool:
    memory = sample.memory
    return (
        sample.gpu is not None
        and (memory is None or memory.swap_in_rate is not None)
        and all(disk.why != "asking" for disk in sample.disks)
    )


def _print(sample: Sample, as_object: bool) -> None:
    if as_object:
        print(json.dumps(as_json(sample)))
        return
    width = shutil.get_terminal_size((100, 24)).columns if sys.stdout.isatty() else 100
    for row in all_rows(sample, width, time.monotonic(), _signs(), {}):
        print(plain(row))
    if sample.gpu is None:
        print(f"GPU: NVML did not answer within {LOOK_S:.0f} s")
        return
    for gpu in sample.gpu.gpus:
        why = f"  {gpu.why}" if gpu.why else ""
        print(f"GPU{gpu.index} {gpu.uuid}  {gpu.name}{why}")


def _line(sample: Sample) -> str:
    now = time.strftime("%H:%M:%S")
    return f"{now}  {plain(one_row(sample, time.monotonic(), _signs()))}"


def as_json(sample: Sample) -> dict[str, Any]:
    """Plain objects; `at` in Unix seconds, ages in seconds, each level as a word."""
    now = time.monotonic()
    out: dict[str, Any] = {"at": time.time() - (now - sample.at), "memory": None}
    if sample.memory is not None:
        levels = {name: level.name.lower() for name, level in memory_levels(sample.memory).items()}
        out["memory"] = {**asdict(sample.memory), "levels": levels}
    else:
        out["memory_why"] = sample.memory_why
    out["disks"] = [
        {**asdict(disk), "level": disk_level(disk).name.lower()} for disk in sample.disks
    ]
    report = sample.gpu
    out["gpus"] = [
        {**asdict(gpu), "levels": {n: v.name.lower() for n, v in gpu_levels(gpu).items()}}
        for gpu in (report.gpus if report is not None else ())
    ]
    out["gpu_trouble"] = report.trouble if report is not None else "NVML has not answered yet"
    out["gpu_age_s"] = round(now - report.at, 3) if report is not None else None
    return out


def _signs() -> Signs:
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    return UNICODE if encoding == "utf8" else Signs()
