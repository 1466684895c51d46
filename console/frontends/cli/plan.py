"""`plan`, `schema`: what would run, before anything does."""

from __future__ import annotations

import json
from argparse import Namespace

from console.checks.lint.rule import facts_of
from console.common.errors import Exit
from console.config.locate import playbook_of
from console.config.locate import site as site_of
from console.runner.prepare.baseline import restore_time
from console.runner.prepare.load import records, told
from console.runner.prepare.plan import make_plan
from console.runner.prepare.plan_text import as_json, lines


def plan(args: Namespace) -> int:
    """Every argv, effect and planned duration, where the baseline goes down, what lint says."""
    if args.rehearse or args.fault:
        from console.frontends.cli.demo import planned

        made = planned(args)
    else:
        site = site_of(args.site)
        playbook = playbook_of(args.playbook, args.input, site, planning=True)
        made = make_plan(playbook, site, restore_time(site.name))
    found = told(made.playbook, facts_of(made.site))
    if args.json:
        print(json.dumps({**as_json(made), "lint": made.known.data(records(found))}))
    else:
        print("\n".join(lines(made, found)))
    return int(Exit.OK)


def schema(args: Namespace) -> int:
    from console.config.playbook.playbook import playbook_schema

    if args.markdown:
        from console.config.playbook.playbook import reference

        print(reference(), end="")
        return int(Exit.OK)
    print(json.dumps(playbook_schema(), indent=None if args.json else 1))
    return int(Exit.OK)
