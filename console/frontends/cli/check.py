"""`check gguf`, `check checkpoint`, `check host`: what can be known before anything is paid for."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from console.common.errors import ConsoleError, Exit, UsageError
from console.common.finding import Finding, Level, worst
from console.common.units import parse_bytes, parse_rate
from console.models.sizing.assessment import Verdict

if TYPE_CHECKING:
    import docker

    from console.checks.preflight.architecture.support import Engine
    from console.config.site.site import Site

EXIT = {
    Verdict.GO: Exit.OK, Verdict.STREAMING: Exit.OK, Verdict.TIGHT: Exit.HOLD,
    Verdict.UNKNOWN: Exit.HOLD, Verdict.NO_GO: Exit.NO_GO,
}  # fmt: skip
LEVELS = {
    Level.OK: Exit.OK, Level.WARN: Exit.OK, Level.UNKNOWN: Exit.HOLD, Level.FAIL: Exit.NO_GO,
}  # fmt: skip


def gguf(args: Namespace) -> int:
    """The architecture of a file, and whether the installed build accepts it."""
    from console.checks.preflight.architecture.check import check
    from console.models.hub.reference import typed
    from console.models.sizing.text import wrapped

    engine, why = _engine(args)
    answer = check(typed(args.what), engine, include=tuple(args.include))
    lines = answer.lines()
    if engine is None:
        lines += wrapped(f"unknown whether a build accepts it: {why}", "        ")
    _print(args, lines, answer.to_json())
    finding = answer.finding()
    return int(Exit.HOLD if finding is None else LEVELS[finding.level])


def checkpoint(args: Namespace) -> int:
    """Size, fit and arithmetic of a checkpoint under a loader."""
    from console.checks.preflight.architecture.planning import (
        loader_for,
        machine_for,
        reference_for,
    )
    from console.checks.preflight.checkpoint import Ask, preflight
    from console.models.gguf.cache import HeaderCache
    from console.models.hub.reference import typed

    site = _site(args)
    to = Path(args.to).expanduser() if args.to else None
    machine = machine_for(site.model, to, beside=args.beside)
    if args.line:
        machine = replace(
            machine, line_bps=_rate(args.line), given={**machine.given, "line_bps": "given"}
        )
    loader = loader_for(site.model, args.loader, args.engine, args.args, args.ctx)
    ask = Ask(
        typed(args.what), loader, tuple(args.include), tuple(args.exclude), to,
        beside=args.beside, memory_read_bps=site.model.machine.memory_read,
    )  # fmt: skip
    found = preflight(
        ask, machine, reference=lambda file: reference_for(site.model, file), cache=HeaderCache()
    )
    _print(args, found.lines(), found.to_json())
    return int(EXIT[found.verdict])


def host(args: Namespace) -> int:
    """What this machine has for what is asked; without a question, the machine itself."""
    from console.checks.preflight.architecture.planning import machine_for
    from console.checks.preflight.host_ask import HostAsk, findings

    site = _site(args)
    ask = HostAsk(
        method=args.method, ports=tuple(args.port), images=tuple(args.image),
        compose=tuple(Path(one) for one in args.compose),
        disk=Path(args.disk).expanduser() if args.disk else None,
        need=_bytes("--need", args.need), sched_ext=args.sched_ext,
        gpus=tuple(gpu.uuid for gpu in site.model.gpus), torch=tuple(args.torch),
        cuda=_pair("--cuda", args.cuda), compute=_pair("--compute", args.compute),
        driver=_driver(args.driver), engine=site.model.engine.host,
        compose_env=tuple(site.compose_env.items()),
    )  # fmt: skip
    return _findings(args, findings(ask, machine_for(site.model, ask.disk), lambda: _docker(site)))


def imports(args: Namespace) -> int:
    """Whether an image's modules can be imported at all."""
    from console.checks.preflight import image
    from console.checks.preflight.imports import check

    client = _docker(_site(args))
    found = image.check(client, args.image)
    if worst(found) is not Level.FAIL:
        found = tuple(check(client, args.image, args.modules))
    return _findings(args, found)


def _findings(args: Namespace, found: Iterable[Finding]) -> int:
    from console.checks.preflight.checkpoint import finding_lines

    rows = list(found)
    level = worst(rows)
    lines = [line for one in rows for line in finding_lines(one)]
    data = {"level": str(level), "findings": [{**asdict(x), "level": str(x.level)} for x in rows]}
    _print(args, lines, data)
    return int(LEVELS[level])


def _print(args: Namespace, lines: list[str], data: object) -> None:
    print(json.dumps(data) if args.json else "\n".join(lines))


def _site(args: Namespace) -> Site:
    from console.frontends.cli.shared import site_of

    return site_of(args.site)


def _docker(site: Site) -> docker.DockerClient:
    from console.runtime.docker.client import connect

    return connect(site.model.engine.host or None)


def _rate(text: str) -> float:
    try:
        return parse_rate(text)
    except ValueError as error:
        raise UsageError(f"--line {text}", f"expected {error}") from error


def _bytes(flag: str, text: str) -> int | None:
    try:
        return parse_bytes(text) if text else None
    except ValueError as error:
        raise UsageError(f"{flag} {text}", f"expected {error}") from error


def _pair(flag: str, text: str) -> tuple[int, int] | None:
    if not text:
        return None
    major, dot, minor = text.partition(".")
    if not (dot and major.isdecimal() and minor.isdecimal()):
        raise UsageError(f"{flag} {text}", "expected a version like 12.8")
    return int(major), int(minor)


def _driver(text: str) -> str:
    from console.common.units import DRIVER_FORM, is_driver

    if text and not is_driver(text):
        raise UsageError(f"--driver {text}", f"expected {DRIVER_FORM}")
    return text


def _engine(args: Namespace) -> tuple[Engine | None, str]:
    """The build to ask: named on the command line, else the baseline's; or why there is none."""
    from console.checks.preflight.architecture.on_host import HostProgram
    from console.checks.preflight.architecture.planning import build_of

    if args.binary:
        return HostProgram((args.binary,)), ""
    site = _site(args)
    specs = {**site.service_specs(), "baseline": site.baseline_spec()}
    try:
        engine = build_of(specs, lambda: _docker(site), service=args.service, image=args.image)
    except UsageError:
        raise
    except ConsoleError as error:
        return None, f"{error}; name one with --image or --binary"
    return engine, ""
