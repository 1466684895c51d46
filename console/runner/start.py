"""Starting a run, from a screen or from the command line: a directory, then a detached runner."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from console.common.errors import ConsoleError
from console.common.text import clean, one_line
from console.journal.run_dir import RunDir, RunMeta, create
from console.rehearsal.workspace import MAPPING
from console.runner.launch import launch
from console.runner.prepare.catalog import digest

if TYPE_CHECKING:
    from console.config.playbook.playbook import Playbook
    from console.config.site.site import Site


def begin(
    site: Site,
    playbook: Playbook,
    inputs: dict[str, str],
    *,
    step: bool,
    say: Callable[[str], None],
    yes: bool = False,
    headless: bool = False,
    expect: str = "",
    lease_s: float | None = None,
    overrides: Mapping[str, str] | None = None,
    rehearsal: str = "",
) -> RunDir:
    """A new run whose runner has begun; `say` gets clean sentences while it does.

    `expect`: the digest of the plan that was shown; another playbook or site is refused then.
    `lease_s`: instead of the playbook's lease. `overrides`: lint rules to go past, with a reason
    for each. `rehearsal`: the mapping of a rehearsal, as JSON. Blocks for as long as the baseline
    takes for one completion. Raises NotStarted (the runner refused), LintRefused or another
    ConsoleError; no trace is left.
    """
    from console.runner.main import owner

    _same(playbook, site, expect)
    found = _linted(playbook, site, overrides or {}, say, blockers=not rehearsal)
    meta = RunMeta(
        run_id="", playbook=str(playbook.path.resolve()), base=str(playbook.base),
        digest=playbook.digest, site=str(site.path.resolve()), site_base=str(site.base),
        inputs=inputs, yes=yes, step=step, headless=headless, owner=owner(), created=time.time(),
        lease_s=lease_s, lint=found,
    )  # fmt: skip
    made = _directory(meta, playbook, site, rehearsal)
    say(f"run {made.id}: {clean(playbook.model.title)} (site {site.name})")
    say("checking that the baseline serves …")
    try:
        how = launch(made)
    except (ConsoleError, OSError) as error:
        shutil.rmtree(made.path, ignore_errors=True)
        if isinstance(error, OSError):
            raise ConsoleError("the runner cannot be started", _words(error)) from error
        raise
    if how.warning:
        say(f"WARNING: {how.warning}")
    return made


def _same(playbook: Playbook, site: Site, expect: str) -> None:
    """Raises ConsoleError for a playbook that can only be planned, or is another than was shown."""
    if playbook.missing:
        words = ", ".join(one_line(x) for x in playbook.missing)
        raise ConsoleError("this playbook was loaded for its plan only", words)
    if expect and expect != digest(playbook, site):
        raise ConsoleError(
            "the playbook or site file has changed since its plan was shown",
            hint="read the plan again",
        )


def _linted(
    playbook: Playbook, site: Site, overrides: Mapping[str, str], say: Callable[[str], None],
    *, blockers: bool,
) -> list[dict[str, Any]]:  # fmt: skip
    """What lint says, told and ready to be recorded. `blockers`: ask for a reason to go past
    them; a rehearsal costs nothing, and is how one is looked at. Raises LintRefused."""
    from console.checks.lint.facts import facts_of
    from console.runner.prepare import load
    from console.runner.prepare.admission import findings
    from console.runner.prepare.plan import make_plan

    more = findings(make_plan(playbook, site)) if blockers else []
    found = load.check(playbook, facts_of(site), overrides, more)
    for one in found:
        say(f"lint: {one.text}" + (f" ({one.suppressed})" if one.suppressed else ""))
    return load.records(found)


def _directory(meta: RunMeta, playbook: Playbook, site: Site, rehearsal: str) -> RunDir:
    name = f"rehearsal-{playbook.name}" if rehearsal else playbook.name
    try:
        made = create(name, meta, playbook.text, site.text)
        if rehearsal:
            (made.path / MAPPING).write_text(rehearsal)
    except OSError as error:
        raise ConsoleError("the run's directory cannot be made", _words(error)) from error
    return made


def _words(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    return one_line(f"{where}{error.strerror or error}")
