"""`plan`, `lint`, `schema`: what would run, before anything does."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

from console.command.common import playbook_of, site_of
from console.document.reader import parse, read_text
from console.errors import Exit, InvalidFile
from console.playbook.load import load_playbook
from console.run.baseline import restore_time
from console.run.plan import make_plan
from console.run.plan_text import as_json, lines
from console.site.load import load_site
from console.text import clean
from console.viewer.site import services


def plan(args: Namespace) -> int:
    """Every argv, effect and planned duration, and where the baseline goes down.

    Exit 2 when the playbook would be refused by `run` (something is not built yet).
    """
    if args.rehearse or args.fault:
        from console.command.rehearse import planned

        made = planned(args)
    else:
        site = site_of(args.site)
        playbook = playbook_of(args.playbook, args.input, site, planning=True)
        made = make_plan(playbook, site, restore_time(site.name))
    if args.json:
        print(json.dumps(as_json(made)))
    else:
        print("\n".join(lines(made)))
    return int(Exit.USAGE if made.playbook.unbuilt else Exit.OK)


def lint(args: Namespace) -> int:
    """Check files strictly; all problems of all files. Exit 9 with findings, 2 where a file cannot
    even be read."""
    problems, code = [], Exit.OK
    known = services(args.site)
    for text in args.paths:
        try:
            read_text(Path(text), "the file cannot be read")
        except InvalidFile as error:
            problems += error.problems
            code = Exit.USAGE
            continue
        try:
            lint_one(Path(text), known)
        except InvalidFile as error:
            problems += error.problems
            code = code or Exit.LINT
    if args.json:
        print(json.dumps({"problems": [str(p) for p in problems]}))
    else:
        for problem in problems:
            print(clean(str(problem), 1000))
        if not problems:
            print(f"{len(args.paths)} file(s), no problems")
    return int(code)


def lint_one(path: Path, site_services: frozenset[str] = frozenset()) -> None:
    """A site file by its schema line, else a playbook. Raises InvalidFile."""
    title = "the file cannot be used"
    data = parse(read_text(path, title), str(path), title).data
    if isinstance(data, dict) and str(data.get("schema", "")).startswith("omni.site/"):
        load_site(path)
    else:
        playbook = load_playbook(path, planning=True, site_services=site_services)
        if playbook.unbuilt:
            raise InvalidFile(title, list(playbook.unbuilt))


def schema(args: Namespace) -> int:
    from console.playbook.schema import playbook_schema

    print(json.dumps(playbook_schema(), indent=None if args.json else 1))
    return int(Exit.OK)
