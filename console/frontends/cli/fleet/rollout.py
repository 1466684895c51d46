"""`fleet run` and `fleet report`: a playbook on one host after the other, and who decided what."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

from console.common import redact
from console.common.clock import SystemClock
from console.common.errors import Exit, UsageError
from console.common.text import clean, columns, folded, one_line
from console.config.locate import inputs_of, playbook_path, shipped
from console.config.site.schedule import MIN_LEASE_S
from console.config.yaml import read_text
from console.fleet import rollout
from console.fleet.drive import SHOWN, Driver, require_none_waits
from console.fleet.inventory import Fleet, Host, load_fleet
from console.fleet.known import clock
from console.fleet.line import Line, at_once, control_dir
from console.fleet.protocol import MAX_NAME, SEVERAL, BridgeError, LineLost
from console.fleet.report import Decided, decided, markdown
from console.fleet.starts import Wanted
from console.fleet.table import tell_words
from console.frontends.cli.commands.shared import REMOTE_VERBS
from console.frontends.cli.follow import EventPrinter, at_terminal, forget_typed
from console.frontends.cli.run import lease_of
from console.frontends.cli.site.slurm import pairs
from console.journal.state import RunState

_HostAnswer = Decided | BridgeError | None
"""What a host says of a run that is named: None where it has none, the error where several fit."""


def run(args: Namespace) -> int:
    """Run a playbook on one host after the other; the exit code is that of the last run."""
    made, out = load_fleet(args.fleet), sys.stderr if args.json else sys.stdout
    hosts, path = made.chosen(args.on), playbook_path(args.playbook)
    wanted = Wanted(
        path.stem, read_text(path, "the playbook cannot be used"), inputs_of(args.input),
        _lease(args), args.yes, path.resolve().parent == shipped().resolve(), pairs(args.slurm),
    )  # fmt: skip
    if wanted.slurm and not any(host.slurm for host in hosts):
        raise UsageError("--slurm", f"none of these hosts has `slurm:` in {made.path.name}")
    here, now = control_dir(), SystemClock()
    record = partial(rollout.opened, wanted, made.path, hosts, now.now(), fresh=args.fresh)
    say = partial(print, file=out, flush=True)
    with rollout.held(record()):
        fleet_rollout = record()  # now: another terminal may have gone on with it before it let go
        driver = Driver(
            fleet_rollout, wanted, line=lambda host: Line(host, here), say=say,
            agree=partial(_agreed, args, say),
            viewer=lambda host: _HostPrinter(host.name, out), clock=now, headless=not at_terminal(),
        )  # fmt: skip
        if args.fresh:
            require_none_waits(fleet_rollout, hosts, driver.line)
        if any(leg.hash for leg in fleet_rollout.legs):
            say(f"going on with the rollout of {clock(fleet_rollout.begun, now.now())}")
            if fleet_rollout.terms != rollout.terms_of(wanted):
                say("a run that has begun keeps the --lease, --slurm and --yes that it began with")
        try:
            code = driver.go(hosts)
        except KeyboardInterrupt:
            say("\n" + _left(fleet_rollout, fresh=args.fresh))
            code = Exit.INTERRUPTED
    if args.json:
        legs = [
            {"host": x.host, "run": x.run or None, "exit_code": x.exit} for x in fleet_rollout.legs
        ]
        print(redact.dumped({"hosts": legs, "over": fleet_rollout.over, "exit_code": int(code)}))
    return int(code)


def _left(fleet_rollout: rollout.Rollout, *, fresh: bool) -> str:
    """What a rollout leaves that a person has interrupted."""
    again = "the same command without --fresh" if fresh else "the same command"
    if not any(leg.hash for leg in fleet_rollout.legs):
        return "nothing was started"
    begun = [leg for leg in fleet_rollout.legs if leg.hash and leg.exit is None]
    goes = "what runs goes on" if begun else "nothing runs"
    if begun and not begun[-1].run:
        goes = f"the run asked for on {begun[-1].host} goes on, even if it still waits for Slurm"
    return f"{goes}; {again} goes on with this rollout"


def _lease(args: Namespace) -> float | None:
    given = lease_of(args)
    if given is not None and given < MIN_LEASE_S:
        raise UsageError(
            f"--lease {args.lease}", "a run over a line that may be lost has a lease of at least "
            f"{MIN_LEASE_S:.0f} s",
        )  # fmt: skip
    return given


class _HostPrinter(EventPrinter):
    """A run on another host, a line for each event."""

    def __init__(self, host: str, out: Any) -> None:
        super().__init__(out, news=out.isatty())
        self.host = host
        self.rollback = f"omni-console fleet rollback {host}"

    def _how(self, verbs: list[str]) -> str:
        step = self.view.current
        # a pause stands before a step that has not begun
        asks = step is not None and self.view.state is RunState.WAITING_APPROVAL
        at = clean(step.id, 60) if step is not None and asks else ""
        return tell_words(self.host, [verb for verb in verbs if verb in REMOTE_VERBS], at)


def _agreed(args: Namespace, say: Callable[[str], None], host: Host, plan: dict[str, Any]) -> bool:
    """Show a plan, and have its hash confirmed by hand: Enter alone starts nothing. Raises
    UsageError without a terminal."""
    shown, width = plan.get("lines"), columns(sys.stdout)
    for line in shown if isinstance(shown, list) else ():
        say("\n".join(folded(clean(str(line)), width)))
    short = clean(str(plan["hash"]), 80)[:SHOWN]
    say(f"plan {short} of {host.name}")
    if args.yes:
        return True
    if not at_terminal():
        raise UsageError("there is no terminal to confirm the plan at", hint="--yes takes it")
    forget_typed()
    while True:
        words = f"type {short} to start it on {host.name}, or no: "
        print(words, end="", file=sys.stderr, flush=True)
        typed = sys.stdin.readline()
        if typed.strip().lower() in ("n", "no", "q") or not typed.endswith("\n"):
            return False
        if typed.strip() == short:
            return True
        print(f"'{one_line(typed.strip(), 40)}' is neither", file=sys.stderr)


def report(args: Namespace) -> int:
    """Who decided what on which host, in one table. Without a name: in the newest rollout."""
    made = load_fleet(args.fleet)
    head: list[str] = []
    gone: list[Decided] = []
    if args.run:
        names = list(dict.fromkeys(name for name in args.run if name.strip()))
        requests = [(host, names) for host in made.hosts]
        if not names or any("/" in name or len(name) > MAX_NAME for name in names):
            words = "a run's id, or the beginning or the end of one"
            raise UsageError("which run?", words, "omni-console fleet report RUN…")
    else:
        newest, head = _newest(made)
        known = {host.name: host for host in made.hosts}
        requests = [(known[x.host], [x.run]) for x in newest.legs if x.run and x.host in known]
        why = f"it is no host of {made.path.name} any more"
        gone = [
            Decided(x.host, clean(x.run, 120), trouble=why)
            for x in newest.legs
            if x.run and x.host not in known
        ]
    named_answers = _told_by(requests)
    answers = [answer for _, answer in named_answers]
    run_reports = [answer for answer in (*answers, *gone) if isinstance(answer, Decided)]
    several = [str(answer) for answer in answers if isinstance(answer, BridgeError)]
    # which host has a run that was named is not known beforehand
    silent = [run_report for run_report in run_reports if run_report.trouble] if args.run else []
    seen = {name for name, answer in named_answers if answer is not None}
    run_reports = [run_report for run_report in run_reports if run_report not in silent]
    unasked = list(
        dict.fromkeys(
            f"{run_report.host} did not answer: {run_report.trouble}" for run_report in silent
        )
    )
    if not run_reports:
        _refuse_unknown(args.run, unasked, several)
    missing = list(
        dict.fromkeys(one_line(name, 80) for name, _ in named_answers if name not in seen)
    )
    lost = [*several, *(f"no host has a run {name}" for name in missing)]
    if args.json:
        rows = [run_report.as_json() for run_report in run_reports]
        print(
            redact.dumped(
                {"runs": rows, "unasked": unasked, "unknown": missing, "several": several}
            )
        )
    else:
        print("\n".join([*head, *markdown(run_reports), *unasked, *lost]))
    if lost:
        return int(Exit.USAGE)
    return int(
        Exit.HOLD if unasked or any(run_report.trouble for run_report in run_reports) else Exit.OK
    )


def _told_by(requests: Sequence[tuple[Host, list[str]]]) -> list[tuple[str, _HostAnswer]]:
    """What each host says of as many runs each, name by name: of the first of all hosts first."""
    here, named = control_dir(), [names for _, names in requests]
    answers = at_once([Line(host, here) for host, _ in requests], _decided, named)
    rows = [
        zip(names, host_answers, strict=True)
        for names, host_answers in zip(named, answers, strict=True)
    ]
    return [pair for nth in zip(*rows, strict=True) for pair in nth]


def _newest(made: Fleet) -> tuple[rollout.Rollout, list[str]]:
    """The newest rollout of this fleet that has begun a run, and the lines that name it. Raises
    UsageError without any."""
    every = [
        fleet_rollout
        for fleet_rollout in rollout.kept()
        if fleet_rollout.fleet == str(made.path.resolve())
    ]
    newest = next(
        (fleet_rollout for fleet_rollout in every if any(leg.run for leg in fleet_rollout.legs)),
        None,
    )
    if newest is None:
        raise UsageError("no rollout has begun a run yet", hint="omni-console fleet report RUN…")
    now = SystemClock().now()
    head = [f"{_named(newest, now)}{'' if newest.over else ', not over'}", ""]
    if every[0] is not newest:
        head.insert(1, f"{_named(every[0], now)}, has begun no run")
    return newest, [clean(line) for line in head]


def _named(fleet_rollout: rollout.Rollout, now: float) -> str:
    return f"rollout of {fleet_rollout.playbook}, {clock(fleet_rollout.begun, now)}"


def _refuse_unknown(runs: list[str], unasked: list[str], several: list[str]) -> NoReturn:
    """Raises BridgeError where a host that did not answer may have these runs, else UsageError."""
    names = one_line(", ".join(runs))
    if several:
        raise UsageError("which run?", "\n".join([*several, *unasked]))
    if not unasked:
        raise UsageError("no host has such a run", names)
    words = f"no host that answered has such a run: {names}"
    raise BridgeError("no_run", words, "\n".join(unasked), "", Exit.HOLD)


def _decided(line: Line, names: Sequence[str]) -> list[_HostAnswer]:
    """What was decided in each of these runs, over one line: hundreds at once would be more than a
    host takes, or than this process may open. A host that is out of reach is asked once."""
    answers: list[_HostAnswer] = []
    try:
        line.open()
        for name in names:
            answers.append(_of(line, name))
    except (LineLost, BridgeError) as error:
        lost = error.detail or error.title if isinstance(error, LineLost) else _refused(line, error)
        answers += [Decided(line.host.name, name, trouble=lost) for name in names[len(answers) :]]
    finally:
        line.close()
    return answers


def _of(line: Line, name: str) -> _HostAnswer:
    """What was decided in one run. Raises LineLost."""
    host = line.host.name
    try:
        return decided(host, line, name)
    except BridgeError as error:
        if error.code == SEVERAL:
            return error
        return (
            None if error.code == "no_run" else Decided(host, name, trouble=_refused(line, error))
        )


def _refused(line: Line, error: BridgeError) -> str:
    """A host's refusal where its name stands already."""
    return str(error).removeprefix(f"{line.name}: ")
