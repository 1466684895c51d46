"""`bisect`: the first bad one of an ordered list of versions, by runs of a playbook."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

from console.common import redact
from console.common.clock import SystemClock
from console.common.errors import Exit, UsageError
from console.common.text import clean, one_line
from console.common.units import plural
from console.config.locate import inputs_of, playbook_of, playbook_path
from console.config.locate import site as site_of
from console.config.playbook.inputs import names_input, variable_of
from console.config.playbook.load import TITLE
from console.config.playbook.playbook import Playbook
from console.config.playbook.steps import Step
from console.config.site.site import Site
from console.config.yaml import parse
from console.frontends.cli.follow import Follow
from console.frontends.cli.run import lease_of
from console.frontends.cli.search.consent import agreed
from console.journal.run_dir import RunDir
from console.runner.bisect import candidates, report
from console.runner.bisect.drive import Driver
from console.runner.bisect.record import BisectQuery, Record, held, kept, opened
from console.runner.bisect.search import Word

Say = Callable[[str], None]


def bisect(args: Namespace) -> int:
    """Find the first bad version, from where an earlier call of the same command ended. Exit 0 if
    it is found, 4 if only skipped ones are left, 5 if an end is not what it was said to be."""
    if args.status:
        return _status(args)
    _check(args)
    say = partial(print, file=sys.stderr if args.json else sys.stdout, flush=True)
    site = site_of(args.site)
    versions = _versions(args)
    inputs = inputs_of(args.input)
    playbook = _playbook(args, site, versions[-1])
    _refuse(args, playbook, versions)
    repo = str(Path(args.git).resolve()) if args.git else ""
    search = BisectQuery(
        playbook.name, playbook.digest, site.name, args.over, versions, inputs, repo
    )
    clock = SystemClock()
    with held(Record(search, 0.0)):
        record = opened(search, clock.now(), fresh=args.fresh)
        if args.again:
            record.tries = [trial for trial in record.tries if trial.word is not Word.SKIP]
        say(_begins(record, site, playbook, lease_of(args), verify=args.verify))
        if not agreed(args):
            say("nothing was started")
            return int(Exit.FAILED)
        driver = Driver(
            record, clock, say=say, start=partial(_start, args, site, say),
            follow=partial(_follow, args), resume=_resume,
        )  # fmt: skip
        try:
            driver.go(verify=args.verify)
        except KeyboardInterrupt:
            run = record.pending.run if record.pending is not None else ""
            lead = f"run {run} goes on; " if run else ""
            say(f"\n{lead}the same command goes on with this bisect")
            return int(Exit.INTERRUPTED)
        finally:
            record.save()
            report.write(record)
        return _ended(args, record, say)


def _ended(args: Namespace, record: Record, say: Say) -> int:
    """Say what was found, and where the report is."""
    say("\n" + "\n".join(report.conclusion(record)))
    place = record.report
    if args.to:
        place = Path(args.to).expanduser()
        place.write_text(report.markdown(record), "utf-8")
    say(f"report: {clean(str(place), 300)}")
    if args.json:
        print(redact.dumped(report.as_json(record)))
    return int(report.exit_of(record))


def _check(args: Namespace) -> None:
    """Raises UsageError for what is missing or contradicts itself."""
    hint = "omni-console bisect --good v1 --bad v9 PLAYBOOK --over image --list v1,v2,…"
    needed = {
        "PLAYBOOK": args.playbook, "--good": args.good, "--bad": args.bad, "--over": args.over,
    }  # fmt: skip
    if lacking := [name for name, value in needed.items() if not value]:
        raise UsageError(f"bisect needs {', '.join(lacking)}", "", hint)
    given = [source for source in (args.list, args.list_file, args.git) if source]
    if len(given) != 1:
        raise UsageError("which versions?", "exactly one of --list, --list-file and --git", hint)
    if args.over in inputs_of(args.input):
        raise UsageError(f"input {one_line(args.over, 60)} is given, and searched by --over")


def _versions(args: Namespace) -> tuple[str, ...]:
    """Every version from the good one to the bad one. Raises UsageError, InvalidFile."""
    if args.git:
        return candidates.of_git(Path(args.git), args.good, args.bad)
    path = Path(args.list_file) if args.list_file else None
    listed = candidates.of_file(path) if path else candidates.of_words(args.list)
    return candidates.between(listed, args.good, args.bad)


def _playbook(args: Namespace, site: Site, version: str) -> Playbook:
    """The playbook with one version filled in. Raises InvalidFile, UsageError."""
    return playbook_of(args.playbook, [*args.input, f"{args.over}={version}"], site)


def _refuse(args: Namespace, playbook: Playbook, versions: tuple[str, ...]) -> None:
    """Raise UsageError for what could never give a verdict, before the first run."""
    from console.config.playbook.inputs import convert

    model = playbook.model.inputs[args.over]
    for version in versions:
        try:
            convert(model, version, playbook.base)
        except ValueError as error:
            what = f"{one_line(version, 60)} is no value of input {args.over}"
            raise UsageError(what, f"expected {one_line(str(error))}") from error
    steps = [step for _, step in playbook.steps() if step.when]
    if not any(step.gate for step in steps):
        raise UsageError(
            f"playbook {playbook.name} has no gate", "its gate says which version is good"
        )
    if not _is_named(playbook, args.over) and not any(
        step.content.runs_program for step in _all_steps(playbook)
    ):
        raise UsageError(
            f"nothing in playbook {playbook.name} uses input {one_line(args.over, 60)}",
            "every run would be of the same version",
            f"write ${{{{ inputs.{args.over} }}}} where the version belongs",
        )
    stays = next((step for step in steps if step.cutover and step.cutover.stays), None)
    if stays is not None:
        raise UsageError(
            f"step {stays.id} leaves clients at the candidate", "no further run could begin",
            "a playbook without a cutover, or one with then: back",
        )  # fmt: skip
    asks = next((step for step in steps if step.content.KIND.asks), None)
    if asks is not None and not args.yes:
        raise UsageError(
            f"step {asks.id} waits for a person in every run", "", "--yes approves (recorded)"
        )


def _is_named(playbook: Playbook, name: str) -> bool:
    """Whether anything in the playbook but its declaration names an input."""
    data = parse(playbook.text, str(playbook.path), TITLE).data
    return names_input({key: value for key, value in data.items() if key != "inputs"}, name)


def _all_steps(playbook: Playbook) -> list[Step]:
    return [*(step for _, step in playbook.steps()), *playbook.model.finally_]


def _begins(
    record: Record, site: Site, playbook: Playbook, lease_s: float | None, *, verify: bool
) -> str:
    """What is searched, and what that costs: by the runs so far, else by history and playbook."""
    from console.journal.history import usual
    from console.render.guard import lease_terms
    from console.runner.guard import limits
    from console.runner.prepare.plan import make_plan

    plan = make_plan(playbook, site, history=usual(playbook.name, site.name))
    past = [trial.took_s for trial in record.tries if trial.took_s is not None]
    each_s, known = (median(past), f"median of {plural(len(past), 'run')}") if past else (0.0, "")
    if not past:
        each_s = sum(step.takes_s or 0.0 for step in plan.steps if not step.implicit)
        seen = any(step.takes_from for step in plan.steps)
        known = "as in earlier runs" if seen else "as the playbook says"
    down_s = sum(step.takes_s or 0.0 for step in plan.steps if step.baseline_down)
    search, last = record.query, len(record.query.candidates) - 1
    ends = f"good {report.name_of(record, 0)}, bad {report.name_of(record, last)}"
    lead = f"{search.playbook} over {clean(search.over, 60)}: {last + 1} versions ({ends})"
    if not _is_named(playbook, search.over):
        variable = variable_of(search.over)
        lead += (
            f"\nWARNING: nothing in the playbook names input {clean(search.over, 60)}; unless a "
            f"program of its steps reads {clean(variable, 80)}, every run is of the same version"
        )
    if report.is_over(record):
        return lead
    lead += f", going on after {plural(len(record.tries), 'version')}" if record.tries else ""
    lease = lease_terms(limits.lease_of(plan, lease_s))
    cost = report.cost(record, each_s, known, down_s, verify=verify)
    return f"{lead}\n{cost}\nlease of each run: {lease}"


def _start(args: Namespace, site: Site, say: Say, version: str) -> RunDir:
    """Start a run with a version. Raises NotStarted, InvalidFile, LintRefused."""
    from console.runner.launch import begin
    from console.runner.prepare.admission import overrides_of

    inputs = {**inputs_of(args.input), args.over: version}
    return begin(
        site, _playbook(args, site, version), inputs, step=False, say=say, yes=args.yes,
        headless=True, lease_s=lease_of(args), overrides=overrides_of(args.override),
    )  # fmt: skip


def _follow(args: Namespace, run: RunDir) -> None:
    Follow(run, sys.stderr if args.json else sys.stdout, interactive=False).until_end()


def _resume(run: RunDir) -> None:
    from console.runner.launch import resume

    resume(run)


def _status(args: Namespace) -> int:
    """Every bisect that is on record, or those of one playbook."""
    wanted = playbook_path(args.playbook).stem if args.playbook else ""
    bisections = [bisection for bisection in kept() if wanted in ("", bisection.query.playbook)]
    if args.json:
        print(redact.dumped({"bisects": [report.as_json(bisection) for bisection in bisections]}))
        return int(Exit.OK)
    for record in bisections:
        print(report.line(record))
    if not bisections:
        print("no bisect is on record")
    return int(Exit.OK)
