"""`check`, `lint`, `plan`, `schema`: checks of models, host, files and a playbook before anything
is paid for."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from console.checks.preflight import Finding, Level, worst
from console.common import redact
from console.common.errors import ConsoleError, Exit, InvalidFile, Problem, UsageError
from console.common.text import clean, columns, folded
from console.common.units import DRIVER_FORM, is_driver, parse_bytes, parse_rate, plural
from console.config.candidates import CANDIDATES
from console.config.locate import playbook_of, services, shipped, site_file
from console.config.locate import site as site_of
from console.config.playbook.verdict import Verdict

if TYPE_CHECKING:
    import docker
    from pydantic import BaseModel

    from console.checks.lint.rule import Facts
    from console.checks.lint.run import Outcome
    from console.checks.preflight.architecture.check import Command
    from console.checks.preflight.architecture.support import Engine
    from console.checks.preflight.of_site import AskedBuild
    from console.checks.preflight.sources.assistant import BuildAsk
    from console.config.site.site import Site

T = TypeVar("T")
EXIT = {Verdict.GO: Exit.OK, Verdict.HOLD: Exit.HOLD, Verdict.NO_GO: Exit.NO_GO}


def gguf(args: Namespace) -> int:
    """The architecture of a file, and whether the installed build accepts it."""
    from console.checks.preflight.architecture.check import check as check_architecture
    from console.checks.preflight.of_site import LEVELS
    from console.models.hub.reference import typed
    from console.models.sizing.assessment import wrapped

    width = columns(sys.stdout)
    engine, why = _engine(args)
    answer = check_architecture(typed(args.what), engine, include=tuple(args.include))
    lines = answer.lines(width)
    if engine is None:
        lines += wrapped(f"unknown whether a build accepts it: {why}", "        ", width)
    _print(args, lines, answer.to_json())
    finding = answer.finding()
    return int(Exit.HOLD if finding is None else EXIT[LEVELS[finding.level]])


def checkpoint(args: Namespace) -> int:
    """Size, fit and arithmetic of a checkpoint under a loader."""
    from console.checks.preflight import of_site
    from console.checks.preflight.architecture.check import of_baseline
    from console.models.hub.reference import typed

    site = site_of(args.site)
    if args.suggest:
        return _suggest(args, site)
    if args.top is not None:
        raise UsageError("--top belongs to --suggest", hint="add --suggest, or leave --top out")
    build = _named_build(args, site)
    preflight = of_site.checkpoint(
        site.model, typed(args.what), kind=args.loader, engine=args.engine,
        args=args.args, ctx=args.ctx, include=args.include, exclude=args.exclude,
        to=Path(args.to).expanduser() if args.to else None, beside=args.beside,
        line_bps=_parsed("--line", args.line, parse_rate), lent=_lent(args, site),
        own=of_baseline(site.baseline_spec()),
        build=_baseline(site) if build is None else lambda: build, named=build is not None,
    )  # fmt: skip
    _print(args, preflight.lines(columns(sys.stdout)), preflight.to_json())
    return int(EXIT[of_site.FITS[preflight.verdict]])


def _suggest(args: Namespace, site: Site) -> int:
    """What of the repository fits this machine, and how it would be started."""
    from console.checks.preflight import of_site, suggest, suggest_text
    from console.checks.preflight.architecture.check import of_baseline
    from console.models.hub.reference import typed

    to = Path(args.to).expanduser().absolute() if args.to else None
    top = suggest.TOP if args.top is None else args.top
    if not 1 <= top <= suggest.MAX_SETS:
        raise UsageError(f"--top {top}", f"expected a number from 1 to {suggest.MAX_SETS}")
    build = _named_build(args, site)
    suggestion = of_site.suggestion(
        site.model, typed(args.what), kind=args.loader, engine=args.engine, args=args.args,
        ctx=args.ctx, own=of_baseline(site.baseline_spec()), include=args.include,
        exclude=args.exclude, to=to, beside=args.beside, top=top,
        build=_baseline(site) if build is None else lambda: build, named=build is not None,
    )  # fmt: skip
    place = suggest_text.Place(beside=args.beside, to=to)
    lines = suggest_text.lines(suggestion, place, columns(sys.stdout))
    _print(args, lines, suggest_text.to_json(suggestion, place))
    return int(EXIT[of_site.FITS[suggestion.verdict]])


def host(args: Namespace) -> int:
    """What this machine offers for the requirements given; without any, the machine itself."""
    from console.checks.preflight import of_site
    from console.checks.preflight.host import HostAsk
    from console.host.activation import Activation

    site = site_of(args.site)
    ask = HostAsk(
        method=args.method, ports=tuple(args.port), images=tuple(args.image),
        compose=tuple(Path(compose_file) for compose_file in args.compose),
        disk=Path(args.disk).expanduser() if args.disk else None,
        need=_parsed("--need", args.need, parse_bytes), sched_ext=args.sched_ext,
        gpus=tuple(gpu.uuid for gpu in site.model.gpus), torch=tuple(args.torch),
        cuda=_parsed("--cuda", args.cuda, _version),
        compute=_parsed("--compute", args.compute, _version),
        driver=_parsed("--driver", args.driver, _driver) or "",
        tools=tuple(args.tool), headers=tuple(args.header),
        within=Activation(str(Path(args.conda).expanduser().absolute()) if args.conda else ""),
    )  # fmt: skip
    return _findings(args, of_site.host(site, ask, lambda: _docker(site)))


def imports(args: Namespace) -> int:
    """Whether an image's modules can be imported at all."""
    from console.checks.preflight import of_site

    client = _docker(site_of(args.site))
    return _findings(args, of_site.imports(client, args.image, args.module))


def build(args: Namespace) -> int:
    """Every fault of a playbook's builds, or of a source tree's, before hours are spent on it."""
    from console.checks.preflight import of_site
    from console.checks.preflight.checkpoint import finding_lines

    site = site_of(args.site)
    rows: list[Finding] = []
    lines: list[str] = []
    for words, ask in _builds(args, site):
        findings = of_site.build(site, ask, lambda: _docker(site))
        good = worst(findings) is Level.OK
        lines += [f"{words}: no fault is known" if good else f"{words}:"]
        lines += [
            line for finding in findings for line in finding_lines(finding, columns(sys.stdout))
        ]
        rows += findings
    return _findings(args, rows, lines)


def _builds(args: Namespace, site: Site) -> list[tuple[str, BuildAsk]]:
    """(what, the question) for each build that is asked about. Raises UsageError."""
    from console.checks.preflight.sources import assistant, of_playbook

    tree = Path(args.what).expanduser()
    single = args.dockerfile or args.target or args.build_arg or args.module
    if not tree.is_dir():
        if single:
            raise UsageError(f"{args.what} is no directory", "", "name a directory of sources")
        build_asks = of_playbook.asks(playbook_of(args.what, args.input, site, planning=True))
        if not build_asks:
            raise UsageError(f"{args.what} builds nothing", "", "name a playbook with a build step")
        return build_asks
    if args.input:
        raise UsageError("--input belongs to a playbook", "", "for a directory: --build-arg")
    pairs = [text.partition("=") for text in args.build_arg]
    if wrong := [text for text, (name, sign, _) in zip(args.build_arg, pairs, strict=True)
                 if not (name and sign)]:  # fmt: skip
        raise UsageError(f"--build-arg {wrong[0]}", "expected NAME=VALUE")
    given = Path(args.dockerfile).expanduser() if args.dockerfile else tree / "Dockerfile"
    if args.dockerfile and not given.is_file():
        raise UsageError(f"--dockerfile {args.dockerfile}", "there is no such file")
    if not given.is_file() and (args.target or args.build_arg):
        raise UsageError("--target and --build-arg need a Dockerfile", "", "give --dockerfile")
    ask = assistant.of_directory(
        tree, given if given.is_file() else None, args.target,
        {name: value for name, _, value in pairs}, tuple(args.module),
    )  # fmt: skip
    return [(clean(str(args.what), 200), ask)]


def _findings(args: Namespace, rows: Sequence[Finding], lines: list[str] | None = None) -> int:
    """Print the findings, or `lines` that have them, and return what the worst of them comes to."""
    from console.checks.preflight.checkpoint import finding_lines
    from console.checks.preflight.of_site import LEVELS

    level = worst(rows)
    width = columns(sys.stdout)
    lines = lines or [line for finding in rows for line in finding_lines(finding, width)]
    data = {"level": str(level), "findings": [{**asdict(x), "level": str(x.level)} for x in rows]}
    _print(args, lines, data)
    return int(EXIT[LEVELS[level]])


def _print(args: Namespace, lines: list[str], data: object) -> None:
    print(redact.dumped(data) if args.json else "\n".join(lines))


def _docker(site: Site | None) -> docker.DockerClient:
    from console.runtime.docker.client import connect

    return connect((site.model.engine.host if site is not None else "") or None)


def _parsed(flag: str, text: str, parse: Callable[[str], T]) -> T | None:
    """The value of an option; None if it was not given. Raises UsageError."""
    try:
        return parse(text) if text else None
    except ValueError as error:
        raise UsageError(f"{flag} {text}", f"expected {error}") from error


def _version(text: str) -> tuple[int, int]:
    major, dot, minor = text.partition(".")
    if not (dot and major.isdecimal() and minor.isdecimal()):
        raise ValueError("a version like 12.8")
    return int(major), int(minor)


def _driver(text: str) -> str:
    if not is_driver(text):
        raise ValueError(DRIVER_FORM)
    return text


def _engine(args: Namespace) -> tuple[Engine | None, str]:
    """The build to ask: the one on the command line, else the baseline's; or why there is none."""
    _one_build(args)
    try:
        # a binary needs no site
        return _build(args, None if args.binary else site_of(args.site)), ""
    except UsageError:
        raise
    except ConsoleError as error:
        return None, f"{error}; name one with --image or --binary"


def _build(args: Namespace, site: Site | None) -> Engine:
    """The build that the command line names, else the baseline's. Raises ConsoleError."""
    from console.checks.preflight.architecture.check import build_of
    from console.checks.preflight.of_site import services as services_of

    return build_of(
        services_of(site) if site is not None else {}, lambda: _docker(site),
        service=args.service or "baseline", image=args.image, binary=args.binary,
    )  # fmt: skip


def _named_build(args: Namespace, site: Site) -> Engine | None:
    """The build that is to load a checkpoint; None if the command line names none. Raises
    ConsoleError for one that is not there."""
    _one_build(args)
    if not (args.binary or args.image or args.service):
        return None
    build = _build(args, site)
    build.identity()
    return build


def _one_build(args: Namespace) -> None:
    given = [name for name in ("binary", "image", "service") if getattr(args, name)]
    if len(given) > 1:
        words = " and ".join(f"--{name}" for name in given)
        raise UsageError(f"{words} exclude each other", hint="the build is one of these")


def _lent(args: Namespace, site: Site) -> Command | None:
    """The command line of the service that is named; None where others are given."""
    from console.checks.preflight.architecture.check import command_of
    from console.checks.preflight.of_site import services as services_of

    if not args.service or args.args:
        return None
    return command_of(services_of(site)[args.service], lambda: _docker(site))


def _baseline(site: Site) -> AskedBuild:
    """Looks for the baseline's build."""
    from console.checks.preflight.of_site import build_here

    return lambda: build_here(site, lambda: _docker(site))


def lint(args: Namespace) -> int:
    """Check the format of playbooks and sites, and known faults in them and in files beside them:
    every finding of every file. Exit 9 with errors or warnings, 2 if a file cannot be read."""
    from console.checks.lint import output as text
    from console.checks.lint import run
    from console.checks.lint.unit import Severity

    if args.rules:
        return _rules(args)
    if not args.paths:
        raise UsageError("lint needs a PATH", hint="omni-console lint .  or  lint --rules")
    if args.sarif and args.json:
        raise UsageError("--sarif and --json exclude each other", hint="give only one of them")
    facts = _facts(args)
    outcome = run.lint([Path(path) for path in args.paths], facts)
    problems = _strict(outcome, args.site)
    if args.sarif:
        from console import VERSION

        made = text.sarif(VERSION, outcome.findings, problems, outcome.refused)
        print(redact.dumped(made, indent=1))
    elif args.json:
        print(redact.dumped(_json(outcome, problems)))
    else:
        _print_findings(outcome, problems)
    if outcome.refused:
        return int(Exit.USAGE)
    grave = outcome.worst() in (Severity.ERROR, Severity.WARNING)
    return int(Exit.LINT if problems or grave else Exit.OK)


def _facts(args: Namespace) -> Facts:
    """The site's facts on its machine; none if no site is configured."""
    from console.checks.lint.rule import Facts, facts_of

    if site_file(args.site) is None:
        return Facts()
    return facts_of(site_of(args.site))


def _strict(outcome: Outcome, site: str | None) -> list[Problem]:
    """Errors of the strict readers of playbooks and sites, in their words."""
    from console.checks.lint import run

    if not outcome.strict:
        return []
    own = site_of(site) if site_file(site) is not None else None
    work = partial(_refused, services(site), own, (shipped() / "demo.yaml").resolve())
    return [problem for problems in run.each(work, outcome.strict) for problem in problems]


def _refused(
    known: frozenset[str], own: Site | None, demo: Path, item: tuple[Path, str]
) -> list[Problem]:
    """Errors of one file. `known`: services of the site; the demo's playbook uses the demo's.
    `own`: the site, if one is configured: this machine is then where a playbook is to run."""
    path, schema = item
    if path.resolve() == demo:
        known, own = frozenset(CANDIDATES), None
    try:
        return _load(path, schema, known, own)
    except InvalidFile as error:
        return error.problems


def _load(
    path: Path, schema: str, site_services: frozenset[str], own: Site | None
) -> list[Problem]:
    """A site file, a lesson or a contract by its schema line, else a playbook: services of it that
    could not start. Raises InvalidFile."""
    if schema.startswith("omni.contract/"):
        from console.config.contract import load_cases

        load_cases(path)
        return []
    if schema.startswith("omni.lesson/"):
        from console.config.lessons.registry import load_lesson

        load_lesson(path)
        return []
    from console.runner.prepare import startable

    if schema.startswith("omni.site/"):
        from console.config.site.site import load_site

        mine = own is not None and path.resolve() == own.path.resolve()
        return startable.of_site(load_site(path), here=mine)
    from console.config.playbook.inputs import NO_OFFERS
    from console.config.playbook.load import load_playbook

    aliases, offers = (own.model.names, own.offers) if own is not None else (None, NO_OFFERS)
    made = load_playbook(
        path, planning=True, site_services=site_services, aliases=aliases, offers=offers
    )
    return startable.look(made, own, here=own is not None, now=False).problems


def _print_findings(outcome: Outcome, problems: list[Problem]) -> None:
    from console.checks.lint import output as text

    for problem in (*outcome.refused, *problems):
        print(clean(str(problem), 1000))
    for line in text.lines(outcome.open):
        print(line)
    count = plural(outcome.looked, "file")
    counts = [plural(len(problems), "error")] if problems else []
    counts += [text.count(outcome.findings)] if outcome.findings or not problems else []
    summary = ", ".join([count, *counts])
    quiet = not (outcome.open or problems or outcome.refused)
    print(summary, file=sys.stdout if quiet else sys.stderr)


def _json(outcome: Outcome, problems: list[Problem]) -> dict[str, object]:
    from console.checks.lint import output as text

    return {
        "files": outcome.looked,
        "problems": [str(problem) for problem in (*outcome.refused, *problems)],
        "refused": [problem._asdict() for problem in outcome.refused],
        "format": [problem._asdict() for problem in problems],
        "findings": [text.as_json(finding) for finding in outcome.findings],
    }


def _rules(args: Namespace) -> int:
    from console.checks.lint import output as text
    from console.checks.lint.rule import rules

    if args.json:
        print(redact.dumped({"rules": [text.rule_json(rule) for rule in rules().values()]}))
    else:
        print(text.document(), end="")
    return int(Exit.OK)


def plan(args: Namespace) -> int:
    """Print every argv, effect and planned duration, outages of the baseline, lint findings. Exit 2
    if a run would be refused because a service cannot start."""
    from console.checks.lint.rule import facts_of
    from console.journal.history import usual
    from console.runner.prepare import startable
    from console.runner.prepare.admission import plan_findings, records
    from console.runner.prepare.baseline import restore_time
    from console.runner.prepare.plan import make_plan
    from console.runner.prepare.plan_text import as_json, lines

    if args.rehearse or args.fault:
        from console.frontends.cli.demo import planned

        made = planned(args)
    else:
        site = site_of(args.site)
        playbook = playbook_of(args.playbook, args.input, site, planning=True)
        past = usual(playbook.name, site.name)
        made = make_plan(playbook, site, restore_time(site.name), history=past)
    findings = plan_findings(made.playbook, facts_of(made.site))
    looked = startable.look(made.playbook, made.site) if made.rehearsal is None else None
    refused = [made.known.text(str(problem)) for problem in (looked.problems if looked else ())]
    if args.json:
        known = made.known.data(records(findings))
        print(redact.dumped({**as_json(made), "lint": known, "refused": refused}))
    else:
        width = columns(sys.stdout)
        print(
            "\n".join(
                part for line in lines(made, findings, looked) for part in folded(line, width)
            )
        )
    return int(Exit.USAGE if refused else Exit.OK)


def schema(args: Namespace) -> int:
    from console.config.playbook.playbook import playbook_schema, reference
    from console.config.site.site import SiteModel
    from console.config.validation import json_schema
    from console.fleet.fleet_file import FleetModel

    others: dict[str, tuple[type[BaseModel], str]] = {
        "site": (SiteModel, "reference/site"),
        "fleet": (FleetModel, "how-to/fleet"),
    }
    model, page = others.get(args.what, (None, ""))
    if args.markdown and model is not None:
        words = f"schema {args.what} --markdown"
        raise UsageError(words, "that page is written by hand", f"docs/{page}.md")
    if args.markdown:
        print(reference(), end="")
        return int(Exit.OK)
    document = json_schema(model, f"omni-console {args.what}") if model else playbook_schema()
    print(redact.dumped(document, indent=None if args.json else 1))
    return int(Exit.OK)
