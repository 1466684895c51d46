"""`run --slurm`: a run that begins once Slurm has given it this machine's cards."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterable
from functools import partial

from console.common import redact
from console.common.errors import UsageError
from console.common.text import one_line
from console.config.locate import inputs_of, playbook_of
from console.config.locate import site as site_of
from console.config.site.schedule import USUAL_LEASE_S
from console.frontends.cli.follow import at_terminal
from console.journal.run_dir import RunDir, find_run
from console.runner.slurm.job import Wish, require_sound
from console.runner.slurm.standing import NotBegun, standing
from console.runner.slurm.ticket import Ticket

POLL_S = 1.0


def begun(args: Namespace, lease_s: float | None) -> RunDir | None:
    """Ask for the allocation, and return the run once it has begun; None with `--detach`, which
    waits for neither. Raises ConsoleError."""
    from console.runner.launch import admit
    from console.runner.prepare.admission import overrides_of
    from console.runner.slurm.waiter import enter

    if args.rehearse or args.step:
        raise UsageError("--slurm with --rehearse or --step", "a run that waits has nobody beside")
    wish = Wish.read(pairs(args.slurm))
    site = site_of(args.site)
    playbook = playbook_of(args.playbook, args.input, site)
    say = partial(print, file=sys.stderr if args.json else sys.stdout, flush=True)
    overrides = overrides_of(args.override)
    if lease_s is None and playbook.model.lease is None and site.model.lease is None:
        lease_s = USUAL_LEASE_S  # nobody may be there when it begins
    admit(playbook, site, overrides, say, lease_s)
    ticket = enter(
        site, playbook, inputs_of(args.input), wish, say, yes=args.yes, lease_s=lease_s,
        headless=not args.detach and not at_terminal(), overrides=overrides,
    )  # fmt: skip
    if args.detach:
        if args.json:
            print(redact.dumped({"job": ticket.job, "ticket": ticket.id}))
        return None
    try:
        return _waited(ticket, say)
    except KeyboardInterrupt:
        say(f"\nit waits on; `scancel {ticket.job}` gives it up")
        raise


def pairs(given: Iterable[str]) -> dict[str, str]:
    """`KEY=VALUE` each; a word alone is the partition. Raises UsageError."""
    options = {}
    for word in given:
        name, sign, value = word.partition("=")
        key, value = (name, value) if sign else ("partition", name)
        if key in options:
            raise UsageError(f"--slurm {one_line(key, 40)} is given twice")
        require_sound(key, value)
        options[key] = value
    return options


def _waited(ticket: Ticket, say: Callable[[str], None]) -> RunDir:
    """Say what Slurm says of the job until the run has begun. Raises NotBegun."""
    previous_words = ""
    while True:
        now = standing(ticket)
        if now.run:
            return find_run(now.run)
        if now.why:
            raise NotBegun(now.why, now.exit_code)
        if (words := f"Slurm job {now.job}: {now.words}") != previous_words:
            previous_words = words
            say(words)
        time.sleep(POLL_S)
