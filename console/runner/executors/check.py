"""`check`: one question about the machine or a service, asked anew each time."""

from __future__ import annotations

import re
import socket
from pathlib import Path

from console.common.text import decode, one_line
from console.common.units import format_bytes
from console.config.playbook.steps import Check, HttpCheck, Step
from console.host.activation import PLAIN, Activation
from console.journal.state import Cause
from console.render.effects import check_words
from console.runner.context import Attempt, Context, Done, StepFailed
from console.runner.executors.command import capture_outputs, run_host
from console.runner.prepare.plan import PlannedStep
from console.runtime.docker.client import image_info, pull_hint
from console.runtime.probe import ProbeError, fetch


def execute(context: Context, planned: PlannedStep, attempt: Attempt) -> Done:
    """Raises StepFailed when the answer is not the expected one."""
    within = planned.written.environment.activation(context.plan.playbook.base)
    detail = ask(context, planned.section(Check), attempt, within)
    attempt.close()
    capture_outputs(context, planned.written, attempt)
    return Done(detail)


def ask(context: Context, check: Check, attempt: Attempt, within: Activation = PLAIN) -> str:
    """The answer in words. Raises StepFailed (output_invalid)."""
    if check.http is not None:
        return _http(check.http, attempt)
    if check.output is not None:
        return _output(context, check, attempt, within)
    if check.file is not None:
        return _file(context.path(check.file), check.min_bytes)
    if check.port_free is not None:
        return _port(check.port_free)
    if check.image is not None:
        return _image(context, check.image, check.platform)
    return _cpu(check.cpu or "")


def requires(context: Context, step: Step, attempt: Attempt) -> None:
    """Raises StepFailed(precondition) for the first requirement that does not hold."""
    for check in step.requires:
        try:
            ask(context, check, attempt, step.environment.activation(context.plan.playbook.base))
        except StepFailed as failed:
            raise StepFailed(
                Cause.PRECONDITION, f"requires {check_words(check)}: {failed.detail}"
            ) from failed


def _no(detail: str, lines: list[str] | None = None) -> StepFailed:
    return StepFailed(Cause.OUTPUT_INVALID, detail, lines=lines)


def _http(check: HttpCheck, attempt: Attempt) -> str:
    try:
        reply = fetch(check.url, timeout_s=min(check.timeout, attempt.remaining()))
    except ProbeError as error:
        raise _no(f"{check.url}: {error}") from error
    body = decode(reply.body)
    if reply.status != check.status:
        raise _no(f"{check.url} answered {reply.status}, expected {check.status}", [one_line(body)])
    if check.matches and attempt.find(check.matches, [body], lines=True) == [None]:
        raise _no(f"the answer does not match {one_line(check.matches)}", [one_line(body)])
    return f"{check.url} answered {reply.status}"


def _output(context: Context, check: Check, attempt: Attempt, within: Activation) -> str:
    argv, base = list(check.output or []), context.plan.playbook.base
    code = run_host(context, argv, {}, str(base), attempt, within)
    lines, tail = attempt.output(), attempt.last_lines()
    if code != 0:
        raise StepFailed(Cause.EXIT_CODE, f"ended with {code}", exit_code=code, lines=tail)
    hits = _matching(check.matches, lines, attempt)
    if check.matches and not hits:
        raise _no(f"no line of output matches {one_line(check.matches)}", tail)
    bad = _matching(check.not_matches, lines, attempt)
    if bad:
        raise _no(f"output matches {one_line(check.not_matches or '')}", [one_line(bad[0])])
    return f"matches: {one_line(hits[0], 120)}" if hits else "nothing unwanted in the output"


def _matching(pattern: str | None, lines: list[str], attempt: Attempt) -> list[str]:
    matches = attempt.find(pattern, lines) if pattern else []
    return [line for line, spans in zip(lines, matches, strict=False) if spans is not None]


def _file(path: Path, min_bytes: int | None) -> str:
    try:
        size = path.stat().st_size
    except OSError as error:
        raise _no(f"{one_line(str(path))}: {error.strerror}") from error
    if min_bytes is not None and size < min_bytes:
        raise _no(f"{one_line(str(path))} has {format_bytes(size)}, not {format_bytes(min_bytes)}")
    return f"{one_line(str(path))}: {format_bytes(size)}"


def _port(port: int) -> str:
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.settimeout(1.0)
                if probe.connect_ex((host, port)) == 0:
                    raise _no(f"something listens on port {port}")
        except OSError:
            continue  # no such family on this machine
    return f"port {port} is free"


def _image(context: Context, ref: str, platform: str | None) -> str:
    info = image_info(context.services.client, ref)
    if info is None:
        what = context.plan.fitting(pull_hint(ref))
        raise _no(f"image {one_line(ref)} is not on this machine; {what}")
    have = f"{info.os}/{info.architecture}"
    if platform is not None and platform != have:
        raise _no(f"image {one_line(ref)} is {have}, not {one_line(platform)}")
    return f"{one_line(ref)}: {have}, {format_bytes(info.size_bytes)}"


def _cpu(feature: str) -> str:
    text = Path("/proc/cpuinfo").read_text()
    flags = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    if flags is None or feature.lower() not in flags[1].split():
        raise _no(f"this CPU has no {one_line(feature)}")
    return f"this CPU has {one_line(feature)}"
