"""What a search tells before it takes the baseline down, and the question that it asks."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable

from console.common.errors import UsageError
from console.common.text import columns, folded
from console.config.playbook.playbook import Playbook
from console.config.site.site import Site
from console.frontends.cli.follow import at_terminal, forget_typed


def planned(
    site: Site, playbook: Playbook, lease_s: float | None, say: Callable[[str], None]
) -> bool:
    """Print the plan of a search as `omni-console plan` does; return whether the baseline goes down
    in it. Raises InvalidFile."""
    from console.checks.lint.rule import facts_of
    from console.journal.history import usual
    from console.runner.prepare import startable
    from console.runner.prepare.admission import plan_findings
    from console.runner.prepare.baseline import restore_time
    from console.runner.prepare.plan import make_plan
    from console.runner.prepare.plan_text import lines

    past = usual(playbook.name, site.name)
    plan = make_plan(playbook, site, restore_time(site.name), history=past)
    findings = plan_findings(playbook, facts_of(site))
    width = columns(sys.stdout)
    for line in lines(plan, findings, startable.look(playbook, site), lease_s):
        for part in folded(line, width):
            say(part)
    return plan.takes_down


def agreed(args: Namespace) -> bool:
    """Ask for a typed word: Enter alone starts nothing. Raises UsageError without a terminal and
    without --yes, because nobody has seen that the baseline goes down."""
    if args.yes:
        return True
    if not at_terminal():
        words = "the baseline would go down, and there is no terminal to agree at"
        raise UsageError(words, "", "the same command with --yes")
    forget_typed()
    print("type yes to begin: ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip() == "yes"
