"""The commands about this machine: `doctor` (is it ready?), `gauges`, and `boot` (its unit).

`boot` is about the unit that brings the baseline back after a reboot in the middle of an outage.
"""

from __future__ import annotations

import sys
import textwrap
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from console.common import redact
from console.common.errors import Exit, UsageError
from console.common.text import clean, columns, one_line
from console.common.units import DURATION_FORM, parse_duration, plural
from console.host.sample import History, Sample, disk_level, gpu_levels, memory_levels
from console.journal.guard_status import GuardView, GuardWatch
from console.journal.lock import run_on
from console.render.cells import ASCII, UNICODE, Glyphs, plain
from console.render.gauges import all_rows, one_row
from console.render.guard import lease_words
from console.render.guard import line as guard_line

if TYPE_CHECKING:
    from console.checks.doctor.facts import Finding
    from console.host import systemd

SIGNS = {"ok": " ok ", "note": "note", "warning": "WARN", "failed": "FAIL"}
"""Signs of a finding's level."""
WHAT = 14
DETAIL = 2 + 4 + 2 + WHAT + 2
HINT = 8
MIN_WIDTH = 40
WHOLE: dict[str, Any] = {"break_on_hyphens": False, "break_long_words": False}
"""How a path stays in one piece, to be copied."""
DRAWN = 100
"""How wide figures are drawn where nothing limits it."""

LOOK_S = 3.0
"""Seconds to wait for NVML and for a second reading of the swap counters."""
MIN_S, MAX_S = 0.1, 3600.0


def doctor(args: Namespace) -> int:
    """Whether this machine and this login are ready, on one page: findings are printed as they
    come. Exit 0 when nothing failed, 5 when something did."""
    from console.checks.doctor.run import counts, in_order, iterate

    width = max(MIN_WIDTH, columns(sys.stdout))
    findings: list[Finding] = []
    group = ""
    for answer in in_order(iterate(args.site)):
        for finding in answer.findings:
            if not args.json:
                if finding.group != group:
                    print(f"{chr(10) if group else ''}{finding.group}")
                    group = finding.group
                print("\n".join(lines(finding, width)), flush=True)
            findings.append(finding)
    failed, warnings = counts(findings)
    if args.json:
        rows = [{**asdict(finding), "group": finding.group} for finding in findings]
        print(redact.dumped({"findings": rows, "failed": failed, "warnings": warnings}))
    else:
        print("\n" + "\n".join(textwrap.wrap(last_line(findings), width, **WHOLE)))
    return int(Exit.FAILED if failed else Exit.OK)


def lines(finding: Finding, width: int) -> list[str]:
    """A finding as a person reads it: sign, what, detail; then the hint, further in."""
    head = f"  {SIGNS[finding.level]}  {finding.what:<{WHAT}}  "
    out = textwrap.wrap(
        finding.detail, width, initial_indent=head, subsequent_indent=" " * DETAIL, **WHOLE
    )
    out = out or [head.rstrip()]
    inner = " " * (HINT + 3)
    for at, text in enumerate(finding.hint.splitlines()):
        lead = inner if at else f"{'->':>{HINT + 2}} "
        out += textwrap.wrap(text, width, initial_indent=lead, subsequent_indent=inner, **WHOLE)
    return out


def last_line(findings: Sequence[Finding]) -> str:
    """How many findings failed, how many are warnings, and what to do next."""
    from console.checks.doctor.facts import Level
    from console.checks.doctor.run import counts

    failed, warnings = counts(findings)
    sums = f"{failed} failed, {plural(warnings, 'warning')}."
    for level in (Level.FAILED, Level.WARNING):
        for finding in findings:
            if finding.level is level and finding.hint:
                return f"{sums} Next, {finding.what}: {finding.hint.splitlines()[0]}"
    if failed:
        return f"{sums} Next: correct that, then run omni-console doctor again."
    demo = any(f.id == "baseline.demo" and f.level is Level.OK for f in findings)
    return f"{sums} Next: omni-console {'demo shows a whole run' if demo else 'opens the console'}."


def gauges(args: Namespace) -> int:
    """GPUs, memory and disks: one look, or with `--watch` a line a second until Ctrl-C; nothing is
    drawn, and unknown figures are named."""
    from console.host.sampler import Sampler, look_once

    if not args.watch:
        _print(look_once(args.path or ["/"], LOOK_S), args.json)
        return int(Exit.OK)
    arrived: SimpleQueue[Sample] = SimpleQueue()
    every = _every(getattr(args, "every", "1s"))
    sampler = Sampler(args.path or ["/"], arrived.put, every)
    sampler.start()
    try:
        _watch(arrived, args.json, every)
    finally:
        sampler.close()
    return int(Exit.OK)


def _every(text: str) -> float:
    """Seconds between two lines. Raises UsageError."""
    try:
        every = parse_duration(text)
    except ValueError:
        every = 0.0
    if not MIN_S <= every <= MAX_S:
        raise UsageError(f"--every {one_line(text, 40)}", f"expected {DURATION_FORM}", "--every 1s")
    return every


def _watch(arrived: SimpleQueue[Sample], as_object: bool, every: float) -> None:
    """Print a line per sample, with the guard of the active run, until interrupted."""
    guard = GuardWatch(every_s=every)
    guard.follow(*run_on(), over=False)
    guard.look_now()
    guard.start()
    try:
        while True:
            sample = arrived.get()
            guard.follow(*run_on(), over=False)
            view = guard.latest
            json_line = (
                redact.dumped({**as_json(sample), "guard": guard_json(view)}) if as_object else ""
            )
            print(json_line or _line(sample, view), flush=True)
    finally:
        guard.close()


def _print(sample: Sample, as_object: bool) -> None:
    if as_object:
        print(redact.dumped(as_json(sample)))
        return
    width = columns(sys.stdout, DRAWN)
    for row in all_rows(sample, width, time.monotonic(), text_signs(), History()):
        print(plain(row))
    if sample.gpu is None:
        print(f"GPU: NVML did not answer within {LOOK_S:.0f} s")
        return
    for gpu in sample.gpu.gpus:
        why = f"  {gpu.why}" if gpu.why else ""
        print(f"GPU{gpu.index} {gpu.uuid}  {gpu.name}{why}")


def _line(sample: Sample, view: GuardView) -> str:
    now, at = time.strftime("%H:%M:%S"), time.monotonic()
    row = one_row(sample, at, text_signs())
    notes = [plain(guard_line(view, at, key="")), lease_words(view.lease)]
    gpu = sample.gpu
    age = f"  cards {max(0.0, at - gpu.at):.1f} s old" if gpu is not None and gpu.gpus else ""
    return f"{now}  {plain(row)}{age}  {'  '.join(x for x in notes if x)}"


def guard_json(view: GuardView) -> dict[str, Any]:
    """The guard as a plain object: its state as a word and in words, and its facts; None is
    "unknown"."""
    now = time.monotonic()
    return {
        "run": view.run.id if view.run is not None else None,
        "state": view.word_at(now), "words": plain(guard_line(view, now, key="")),
        "reasons": list(view.reasons),
        "tte_s": view.tte_s, "filling": view.filling if view.tte_s is not None else None,
        "age_s": None if view.at is None else round(now - view.at, 3),
        "advisory": view.advisory, "not_protected": list(view.missing),
        "spared": list(view.spared), "trouble": list(view.trouble),
        "lease_s": view.lease.left_s if view.lease is not None else None,
        "attended": view.lease.attended if view.lease is not None else None,
        "runner_gone": view.alone,
    }  # fmt: skip


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


def text_signs() -> Glyphs:
    """The signs for bars on this standard output."""
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    return UNICODE if encoding == "utf8" else ASCII


def install(args: Namespace) -> int:
    from console.host import systemd
    from console.runner.unattended import boot

    unit = systemd.unit(args.system)
    boot.install(unit, args.site)
    return _say(args, unit, f"installed: {unit.path}; it acts after the next reboot")


def remove(args: Namespace) -> int:
    """Remove the unit; 0 even if there is none."""
    from console.host import systemd

    unit = systemd.unit(args.system)
    gone = systemd.remove(unit)
    return _say(args, unit, f"removed: {unit.path}" if gone else f"nothing to remove: {unit.path}")


def status(args: Namespace) -> int:
    """0 when a unit would act after a reboot, 5 when none would."""
    from console.host import systemd

    unit = systemd.installed()
    if unit is None:
        return _say(args, None, "not installed: omni-console boot install", Exit.FAILED)
    if not unit.lingers:
        words = f"{unit.path} waits for a login: sudo loginctl enable-linger {unit.user}"
        return _say(args, unit, words, Exit.FAILED)
    return _say(args, unit, f"installed: {unit.path}, as {unit.user}")


def _say(args: Namespace, unit: systemd.Unit | None, words: str, code: Exit = Exit.OK) -> int:
    if args.json:
        path = str(unit.path) if unit is not None else ""
        active = unit is not None and unit.enabled() and unit.lingers
        print(redact.dumped({"unit": path, "active": active, "detail": words}))
    else:
        print(clean(words))
    return int(code)
