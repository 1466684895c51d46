"""`promote`: accept a candidate that has the production port, and say what that means."""

from __future__ import annotations

import json
import sys
from argparse import Namespace

from console.common.errors import Exit, UsageError
from console.common.text import clean
from console.config.site.site import Site
from console.frontends.cli.shared import site_of
from console.recovery.rollback.promotion import Promotion
from console.runner import promote as promoting
from console.runner.main import owner
from console.runner.promote import CutOver
from console.runner.promote_text import first, outage_words, site_lines


def promote(args: Namespace) -> int:
    """0 when it is recorded; asks at a terminal, needs --yes without one."""
    site = site_of(args.site)
    cut = promoting.standing(site)
    why = args.why.strip()
    if not why:
        raise UsageError("why is it promoted?", "the record says who, when and why", "--why TEXT")
    done = promoting.proven(site)
    out = sys.stderr if args.json else sys.stdout
    for line in _facts(site, cut, done.detail):
        print(line, file=out, flush=True)
    if not args.yes and not _agreed(cut):
        print("nothing was changed", file=out)
        return int(Exit.FAILED)
    made = promoting.accept(cut, owner(), why)
    for line in _meaning(site, cut, made):
        print(line, file=out)
    if args.json:
        print(json.dumps(_json(site, cut, made)))
    return int(Exit.OK)


def _facts(site: Site, cut: CutOver, answered: str) -> list[str]:
    view, url = cut.view, site.model.baseline.url
    decision = str(view.decision).upper().replace("_", "-") or "none: no gate judged it"
    marks = f", {view.mark}" if view.mark else ""
    return [
        f"{cut.relay.service} answers at {url}: {clean(answered)}",
        f"  by run {cut.run.id} ({clean(view.title)}), decision {decision}{marks}",
        f"  `omni-console rollback` brings the site's baseline: {outage_words(view)}",
    ]


def _agreed(cut: CutOver) -> bool:
    """A word typed at a terminal: Enter alone accepts nothing. Raises UsageError without one."""
    if not sys.stdin.isatty():
        raise UsageError("nobody is there to agree", hint="--yes says so beforehand")
    print(f"type {cut.relay.service} to promote it: ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip() == cut.relay.service


def _meaning(site: Site, cut: CutOver, made: Promotion) -> list[str]:
    """What holds now, what does not, and what would make it last."""
    name, url = made.service, site.model.baseline.url
    before = first(cut.spec, url)
    return [
        f"promoted: {name}, by {made.who}: {made.why}",
        "",
        f"What holds now: clients of {url} stay at {name}, by a relay (pid {cut.relay.pid}).",
        "  It does not survive a reboot, and no guard watches over it.",
        f"  `omni-console rollback` and F12 still return to the baseline of {site.path}.",
        "  No run starts meanwhile: a run needs the site's own baseline to serve.",
        "",
        f"To make {name} the baseline itself, which a rollback restores:",
        *([f"  1. {line}" for line in before] or []),
        f"  {2 if before else 1}. in {site.path}, instead of its `baseline:`",
        *[f"       {line}" for line in site_lines(cut.spec, url, cut.view)],
        f"  {3 if before else 2}. omni-console rollback: ends the relay, starts it at {url}, "
        "proves it",
    ]


def _json(site: Site, cut: CutOver, made: Promotion) -> dict[str, object]:
    url = site.model.baseline.url
    return {
        "service": made.service, "url": url, "run": cut.run.id, "who": made.who,
        "why": made.why, "at": made.at, "relay_pid": cut.relay.pid, "site": str(site.path),
        "before": first(cut.spec, url), "site_lines": site_lines(cut.spec, url, cut.view),
    }  # fmt: skip
