"""`lint`: the format of playbooks and sites, and the faults of the lessons in them and beside."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from dataclasses import asdict
from functools import partial
from pathlib import Path

from console.checks.lint import output as text
from console.checks.lint import pool
from console.checks.lint.facts import Facts
from console.checks.lint.finding import Severity
from console.checks.lint.rule import rules
from console.checks.lint.run import Outcome
from console.checks.lint.run import lint as look
from console.common.errors import Exit, InvalidFile, Problem, UsageError
from console.common.text import clean
from console.config.locate import services, shipped, site_file


def lint(args: Namespace) -> int:
    """Every finding of every file. Exit 9 with errors or warnings, 2 where a file cannot even be
    read."""
    if args.rules:
        return _rules(args)
    if not args.paths:
        raise UsageError("lint needs a PATH", hint="omni-console lint .  or  lint --rules")
    if args.sarif and args.json:
        raise UsageError("--sarif and --json are two forms", hint="give one of them")
    facts = _site(args)
    outcome = look([Path(one) for one in args.paths], facts)
    problems = _strict(outcome, args.site)
    if args.sarif:
        from console.checks.lint import sarif
        from console.frontends.cli.arguments import VERSION

        made = sarif.report(VERSION, outcome.findings, problems, outcome.refused)
        print(json.dumps(made, indent=1))
    elif args.json:
        print(json.dumps(_json(outcome, problems)))
    else:
        _print(outcome, problems)
    return int(_code(outcome, problems))


def _code(outcome: Outcome, problems: list[Problem]) -> Exit:
    if outcome.refused:
        return Exit.USAGE
    grave = outcome.worst() in (Severity.ERROR, Severity.WARNING)
    return Exit.LINT if problems or grave else Exit.OK


def _site(args: Namespace) -> Facts:
    """What the site says of its machine; nothing where no site is configured."""
    if site_file(args.site) is None:
        return Facts()
    from console.checks.lint.facts import facts_of
    from console.frontends.cli.shared import site_of

    return facts_of(site_of(args.site))


def _strict(outcome: Outcome, site: str | None) -> list[Problem]:
    """What the readers of playbooks and sites refuse, in their words."""
    if not outcome.strict:
        return []
    work = partial(_refused, services(site), (shipped() / "demo.yaml").resolve())
    return [problem for found in pool.each(work, outcome.strict) for problem in found]


def _refused(known: frozenset[str], demo: Path, item: tuple[Path, str]) -> list[Problem]:
    """`known`: services of the site."""
    path, schema = item
    try:
        lint_one(path, schema, _demo_services() if path.resolve() == demo else known)
    except InvalidFile as error:
        return error.problems
    return []


def _demo_services() -> frozenset[str]:
    """The demo's playbook is always about the demo's own site."""
    from console.config.demo_site import NAMES

    return frozenset(NAMES[1:])


def lint_one(path: Path, schema: str, site_services: frozenset[str]) -> None:
    """A site file or a lesson by its schema line, else a playbook. Raises InvalidFile."""
    if schema.startswith("omni.site/"):
        from console.config.site.load import load_site

        load_site(path)
    elif schema.startswith("omni.lesson/"):
        from console.config.lessons.load import load_lesson

        load_lesson(path)
    else:
        from console.config.playbook.load import load_playbook

        load_playbook(path, planning=True, site_services=site_services)


def _print(outcome: Outcome, problems: list[Problem]) -> None:
    for problem in (*outcome.refused, *problems):
        print(clean(str(problem), 1000))
    for line in text.lines(outcome.open):
        print(line)
    said = f"{outcome.looked} file(s), {text.count(outcome.findings)}"
    quiet = not (outcome.open or problems or outcome.refused)
    print(said if quiet else _also(said, problems), file=sys.stdout if quiet else sys.stderr)


def _also(said: str, problems: list[Problem]) -> str:
    return f"{said}; {len(problems)} of the format" if problems else said


def _json(outcome: Outcome, problems: list[Problem]) -> dict[str, object]:
    return {
        "files": outcome.looked,
        "problems": [str(one) for one in (*outcome.refused, *problems)],
        "refused": [asdict(one) for one in outcome.refused],
        "format": [asdict(one) for one in problems],
        "findings": [text.as_json(one) for one in outcome.findings],
    }


def _rules(args: Namespace) -> int:
    if args.json:
        print(json.dumps({"rules": [text.rule_json(one) for one in rules().values()]}))
    else:
        print(text.document(), end="")
    return int(Exit.OK)
