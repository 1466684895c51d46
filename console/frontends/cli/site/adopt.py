"""`adopt`: takes over a running server as the baseline that the site file describes."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from console.common import redact
from console.common.errors import ConsoleError, Exit, UsageError
from console.common.text import clean, one_line

if TYPE_CHECKING:
    from console.config.site.site import Site
    from console.runtime.discovery.processes import Running


def adopt(args: Namespace) -> int:
    """0 when the console knows the server as its baseline and it has answered a completion, 5 when
    it has not answered; 2 when it cannot be taken over, and then nothing was changed."""
    from console.config.locate import site_file
    from console.config.site.site import load_site
    from console.host.process import ProcessSpec
    from console.runner.prepare import adopt as adoption
    from console.runner.prepare import namesakes

    path = site_file(args.site)
    if path is None:
        raise UsageError(
            "nothing was taken over: there is no site file", "",
            "omni-console init writes one for what runs, and takes it over",
        )  # fmt: skip
    site = load_site(Path(path), lacking=True)
    namesakes.refuse(site)
    out = sys.stderr if args.json else sys.stdout
    notes, beside = list[str](), adoption.cut_overs_beside(site.model.baseline.url)
    for words in beside:
        print(f"note: {words}", file=out, flush=True)
    pid = 0
    if isinstance(site.baseline_spec().runs, ProcessSpec):
        running = _process(site, args.what)
        pid = running.pid
        known = adoption.is_adopted(site, running)
        notes = [] if known else adoption.adopt(site, running)
        words = f"pid {pid} is the baseline of site {site.name} already" if known else (
            f"pid {pid} is the baseline of site {site.name} from now on; it goes on serving"
        )  # fmt: skip
    else:
        words = _of_site(site, args.what)
    print(clean(words, 400), file=out)
    for note in notes:
        print(f"  note: {clean(note, 400)}", file=out)
    ok, detail = _prove(site)
    print(f"  proof: {'ok: ' if ok else 'FAILED: '}{detail}", file=out, flush=True)
    if args.json:
        facts = {"site": site.name, "pid": pid or None, "detail": clean(words, 400),
                 "notes": [*beside, *notes], "proof": {"ok": ok, "detail": detail}}  # fmt: skip
        print(redact.dumped(facts))
    return int(Exit.OK if ok else Exit.FAILED)


def _prove(site: Site) -> tuple[bool, str]:
    from console.runner.prepare import adopt as adoption

    try:
        return True, adoption.prove(site).detail
    except ConsoleError as error:
        return False, clean(error.detail or error.title, 400)


def _process(site: Site, what: str) -> Running:
    """The process that is meant: by its pid or its unit, or the one at the baseline's address."""
    from console.runner.prepare.adopt import CannotAdopt, at_its_address
    from console.runtime.discovery import processes
    from console.runtime.discovery.servers import search

    if not what:
        return at_its_address(site)
    if what.isascii() and what.isdigit():
        process = processes.read(int(what))
        if process is None:
            raise CannotAdopt(f"there is no process {what}", "omni-console init --list shows them")
        return process
    named = [server for server in search().servers if what in server.names]
    if len(named) > 1:
        which = ", ".join(server.words for server in named)
        raise CannotAdopt(f"{one_line(what, 60)} may be several: {which}", "give the pid")
    if not named:
        raise CannotAdopt(
            f"no server that runs is named {one_line(what, 60)}",
            "omni-console init --list shows them",
        )
    if named[0].running is None:
        raise CannotAdopt(
            f"{named[0].words}: the site file's baseline is a process",
            f"omni-console init --pick {one_line(what, 60)} --force describes it instead",
        )
    return named[0].running


def _of_site(site: Site, what: str) -> str:
    """Words for a baseline that the console knows by its name. Raises CannotAdopt for another."""
    from console.runner.prepare.adopt import CannotAdopt, named

    names, words = named(site)
    if what and what not in names:
        raise CannotAdopt(
            f"{one_line(what, 60)} is not the site file's baseline, which is {words}",
            f"omni-console init --pick {one_line(what, 60)} --force describes it instead",
        )
    return (
        f"{words} is the baseline of site {site.name}: the console knows it by its name, and "
        "nothing has to be recorded"
    )
